//! Memory use of a process, read from the kernel: `--memory` bounds the whole profile, and freed memory is returned. This is one test: beside a
//! second one, the threads of the harness would allocate meanwhile, above the memory that is to be returned.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier};

use flametop::allocator::{keep_little_memory, release_memory};
use flametop::profile::{
    FileOffset, Frame, FrameKind, Limits, Names, Object, ObjectId, ObjectKind, Profile, Sample, Tgid, Thread, Tid, Timestamp,
};

const MB: usize = 1_000_000;

#[test]
fn freed_memory_goes_back_and_a_profile_stays_within_its_bound() {
    // The end of the arena is returned only if the allocator is set to keep little before the memory is freed.
    keep_little_memory();
    what_a_thread_has_freed_goes_back_though_it_lives_on();
    // Otherwise the next allocations would fill the freed memory, and the process would not grow.
    release_memory();
    millions_of_addresses_stay_within_the_memory_that_was_given();
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

fn what_a_thread_has_freed_goes_back_though_it_lives_on() {
    // After this the allocator would keep twice as much by default.
    drop(std::hint::black_box(vec![1u8; 30 << 20]));
    let before = resident();
    // Until `malloc_trim` the thread allocates nothing else above the pieces, and nothing that would keep the pieces from being
    // returned. Part of the 46 MB may be memory kept of the 30 MB: at most 4 MiB and one growth step of the arena.
    let (filled, emptied, seen) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    let (most, after) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let pieces: Vec<Vec<u8>> = (0..1_120).map(|_| vec![1u8; 40 << 10]).collect();
            filled.wait();
            seen.wait();
            drop(pieces);
            emptied.wait();
            seen.wait();
        });
        filled.wait();
        let most = resident() - before;
        seen.wait();
        emptied.wait();
        let after = resident().saturating_sub(before);
        seen.wait();
        (most, after)
    });
    println!("{} MB, then {} MB", most / MB, after / MB);
    assert!(most > 40 * MB && after < 8 * MB, "{} MB of {} MB kept", after / MB, most / MB);
}

fn millions_of_addresses_stay_within_the_memory_that_was_given() {
    let limits = Limits { window: u64::MAX, memory: 96 * MB };
    let before = resident();
    let names = Names::bounded(limits.names());
    let names = Arc::new(names);
    let mut profile = Profile::beside(&names, limits);
    let elf = |path: &str| {
        names.objects.intern(Object {
            kind: ObjectKind::Elf,
            path: path.into(),
            build_id: None,
            file: Some((1, 2)),
            ..Default::default()
        })
    };
    let objects = [elf("/usr/lib/libfoo.so"), elf("/usr/bin/program"), ObjectId::KERNEL];
    let (mut counted, mut real) = (0, 0);
    let (mut named, mut wanted) = (0u64, 0u64);
    // A stack of eight addresses and a thread that were never seen before: the worst case.
    for sample in 0..1_200_000u64 {
        let frames: Vec<_> = (0..8u64)
            .map(|depth| {
                let object = objects[depth as usize % objects.len()];
                let (frame, new) =
                    names.intern_frame(Frame::File { object, offset: FileOffset(sample * 64 + depth), is_return: depth > 0 });
                wanted += 1;
                if new {
                    // A name for every fourth address, as long as C++ names are.
                    let name = format!("space::container<{}>::function_with_a_name(int, char const*)", sample / 4);
                    names.name_frame(frame, &[names.labels.intern(&name, "libfoo.so", FrameKind::User)]);
                    named += 1;
                }
                frame
            })
            .collect();
        let process = names.labels.intern("program", "", FrameKind::Process);
        let number = u32::try_from(sample).unwrap();
        let thread = Thread { tgid: Tgid(number), tid: Tid(number), process, name: process, ..Thread::default() };
        profile.record(thread, frames, Sample { time: Timestamp(sample), ..Sample::default() });
        // Once a second at 5,000 samples a second.
        if sample % 5_000 == 0 {
            profile.trim(Timestamp(sample));
            counted = counted.max(profile.memory());
            real = real.max(resident().saturating_sub(before));
        }
    }
    println!(
        "{wanted} addresses, {named} named; counted {} MB, resident {} MB, of it names {} MB; {} samples kept, {} let go",
        counted / MB,
        real / MB,
        names.memory() / MB,
        profile.samples.len(),
        profile.losses.over_memory
    );
    assert!(wanted > 4_000_000 && named < wanted / 4);
    assert!(names.refused() > 1_000_000 && profile.losses.over_memory > 0, "what was let go is counted");
    assert!(counted <= limits.memory, "counted {counted}");
    assert!(real <= limits.memory, "resident {real}");
    // Names do not push samples out: half of the memory is theirs.
    assert!(profile.samples.len() > 100_000, "{} samples", profile.samples.len());
}
