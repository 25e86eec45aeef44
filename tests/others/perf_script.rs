//! The text of `perf script`.

use super::*;

use flametop::profile::{Cpu, Tgid, Tid};

pub(super) const TEXT: &str = "\
# ========
# hostname : server
# ========
#
worker 1  41/42 [003] 100.500000:    1001001 cpu-clock:
\tffffffff8104f45a native_write_msr_safe+0xa ([kernel.kallsyms])
\t    7f1e214c24d9 ns::Type<int (*)(char)>::run(Task*, unsigned int)+0x19 (/lib/libjvm.so)
\t    7f1e214c24d8 (anonymous namespace)::go (/lib/libjvm.so)
\t  file.c:12
\t    7f1e214c24d7 github.com/x.(*Type).Method (/bin/go (deleted))
\t    7f1e214c24d6 [unknown] (/lib/libc.so)
\t               0 [unknown] ([unknown])

worker 1  41/42 [001] 100.250000:    2002002 cpu-clock:
\t    7f1e214c24d9 outer->middle->leaf (/tmp/perf-41.map)
\t            1f4d main+0xffff (/bin/main)

idle  43/43 [000] 101.000000:          7 cycles:u:      ff alone+0x1 (/bin/idle)
java 44/45 [000] 102.000000:          1 cpu-clock:
\t   1234 Lorg/Context;::call (/tmp/perf-44.map)

";

/// What `stackcollapse-perf.pl --kernel --jit` of Brendan Gregg's FlameGraph prints of the clock's events.
pub(super) const FOLDED: &str = "\
java;org/Context:::call_[j] 1
worker_1;[unknown];[libc.so];github.com/x.(*Type).Method;(anonymous namespace)::go;ns::Type<int ;native_write_msr_safe_[k] 1001001
worker_1;main;outer_[j];middle_[i];leaf_[i] 2002002
";

#[test]
fn times_threads_cpus_periods_and_kinds_of_events_are_kept() {
    let file = File::open(TEXT.as_bytes());
    assert_eq!(file.folded(), sorted(&FOLDED.replace("worker_1", "worker 1")));
    assert_eq!(file.opened.remarks, Vec::<String>::new());
    assert_eq!(file.opened.about.as_ref().unwrap().host, "server");
    let capabilities = file.profile.capabilities();
    assert!(capabilities.time && capabilities.threads && capabilities.cpus && capabilities.events, "{capabilities:?}");
    assert_eq!(file.profile.unit(EventSource(1)), Unit::Nanoseconds);
    assert_eq!(file.profile.unit(EventSource(2)), Unit::Events);
    let events: Vec<_> = file.profile.events.iter().map(|event| (&*event.name, event.stacks, event.events)).collect();
    assert_eq!(events, [("cpu-clock", 3, 3_003_004), ("cycles:u", 1, 7)]);
    // The text is not in the order of time.
    let samples: Vec<_> = file.profile.samples.slices_from(0).flatten().collect();
    let first = file.profile.threads.get(samples[0].thread).unwrap();
    assert_eq!((samples[0].time, samples[0].cpu), (Timestamp(100_250_000_000), Cpu(1)));
    assert_eq!((first.tgid, first.tid), (Tgid(41), Tid(42)));
    assert_eq!(file.opened.until, Some(Timestamp(102_000_000_000)));
    let cycles = file.tree_of(Query { source: Some(EventSource(2)), grouping: Grouping::Name, ..Query::default() });
    assert_eq!(folded(&cycles, &file.names), "idle;alone 7\n");
}

#[test]
fn what_a_text_lacks_is_not_pretended() {
    let file = File::open(b"a b 7 cycles:\n\tff f (m)\n\tgg not a frame\n\nwhat is this\nc 8 cycles:\n");
    assert_eq!(file.folded(), "a b;f 1\nc 1\n");
    let capabilities = file.profile.capabilities();
    assert!(!capabilities.time && capabilities.threads && !capabilities.cpus && !capabilities.events, "{capabilities:?}");
    assert_eq!(file.profile.unit(EventSource(1)), Unit::Samples);
    let remarks = &file.opened.remarks;
    assert_eq!(remarks[0], "1 lines are neither events nor frames (first: line 5)");
    assert!(remarks[1].starts_with("threads count as processes"), "{remarks:?}");
}

#[test]
fn stacks_are_those_of_flamegraph_to_the_byte() {
    for path in data("perf-script") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let file = File::open(&std::fs::read(&path).unwrap());
        let expected = path.with_file_name("expected").join(format!("{name}-all.folded"));
        match std::fs::read_to_string(&expected) {
            Ok(expected) => {
                let folded = file.folded();
                let differs = folded.lines().zip(expected.lines()).find(|(ours, theirs)| ours != theirs);
                assert!(folded == expected, "{name}: {differs:#?}");
            }
            Err(_) => assert!(name.starts_with("speedscope-") && !file.folded().is_empty(), "{name}"),
        }
    }
}

#[test]
fn nothing_in_a_text_makes_the_reader_stumble() {
    let pieces: [&[u8]; 14] = [
        b"a 1/2 [003] 1.5: 7 cycles:\n",
        b"a b 9 x:  ff f (m)\n",
        b"\tff f+0x1 (m)\n",
        b"\tff a->b->(c) (/tmp/perf-1.map)\n",
        b"\t0  ()\n",
        b"\n",
        b"# hostname : \x1b[0m\xff\n",
        b"a 4294967296 18446744073709551615 x:\n",
        b"a 1 99999999999.9999999999: x:\n",
        b"java -1 [-1] 0.0: 0 x:\n",
        b"\tff (anonymous namespace)::f(x) ((deleted))\n",
        b" (",
        b"+0x",
        b"->",
    ];
    stumble(&pieces);
}
