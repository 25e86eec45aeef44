//! The file of `perf record`.

use std::collections::HashMap;
use std::process::{Command, Stdio};

use super::*;

use flametop::profile::{Cpu, Tgid, Tid};

/// A file as `perf record` writes it, made of its parts.
struct Made {
    records: Vec<u8>,
    /// Bits of what samples have: address, thread, time, CPU, period, callchain.
    has: u64,
    features: Vec<(u32, Vec<u8>)>,
}

const ALL: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7 | 1 << 8;
const KERNEL: u64 = -128i64 as u64;
const USER: u64 = -512i64 as u64;

fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() + 8) / 8 * 8, 0);
    bytes
}

impl Made {
    fn new() -> Made {
        Made { records: Vec::new(), has: ALL, features: Vec::new() }
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.records.extend(kind.to_le_bytes());
        self.records.extend(misc.to_le_bytes());
        self.records.extend(u16::try_from(body.len() + 8).unwrap().to_le_bytes());
        self.records.extend(body);
    }

    /// What ends each record but samples: thread, time, CPU.
    fn end(thread: (u32, u32), time: u64) -> Vec<u8> {
        [&thread.0.to_le_bytes()[..], &thread.1.to_le_bytes(), &time.to_le_bytes(), &[0; 8]].concat()
    }

    fn name(&mut self, time: u64, (tgid, tid): (u32, u32), name: &str, of_exec: bool) {
        let body = [&tgid.to_le_bytes()[..], &tid.to_le_bytes(), &padded(name), &Made::end((tgid, tid), time)].concat();
        self.record(3, u16::from(of_exec) << 13, &body);
    }

    fn fork(&mut self, time: u64, (tgid, tid): (u32, u32), (parent, parent_tid): (u32, u32)) {
        let ids: Vec<u8> = [tgid, parent, tid, parent_tid].iter().flat_map(|id| id.to_le_bytes()).collect();
        self.record(7, 0, &[&ids[..], &time.to_le_bytes(), &Made::end((tgid, tid), time)].concat());
    }

    fn map(&mut self, time: u64, tgid: u32, (start, size, offset): (u64, u64, u64), path: &str) {
        let ids: Vec<u8> = [tgid, tgid].iter().flat_map(|id| id.to_le_bytes()).collect();
        let places: Vec<u8> = [start, size, offset].iter().flat_map(|place| place.to_le_bytes()).collect();
        // Device, inode, generation; readable and executable; private.
        let file = [&[8, 0, 0, 0, 1, 0, 0, 0][..], &77u64.to_le_bytes(), &[0; 8], &[5, 0, 0, 0, 2, 0, 0, 0]].concat();
        self.record(10, 2, &[&ids[..], &places, &file, &padded(path), &Made::end((tgid, tgid), time)].concat());
    }

    fn sample(&mut self, time: u64, (tgid, tid): (u32, u32), cpu: u32, period: u64, chain: &[u64]) {
        let mut body = chain.last().copied().unwrap_or(0).to_le_bytes().to_vec();
        body.extend([tgid, tid].iter().flat_map(|id| id.to_le_bytes()));
        body.extend(time.to_le_bytes());
        body.extend([cpu, 0].iter().flat_map(|cpu| cpu.to_le_bytes()));
        body.extend(period.to_le_bytes());
        body.extend((chain.len() as u64).to_le_bytes());
        body.extend(chain.iter().flat_map(|address| address.to_le_bytes()));
        self.record(9, 2, &body);
    }

    fn file(&self) -> Vec<u8> {
        // The clock, with a frequency, and an id in each record.
        let mut attribute = vec![0; 128];
        attribute[..8].copy_from_slice(&[1, 0, 0, 0, 128, 0, 0, 0]);
        attribute[16..24].copy_from_slice(&99u64.to_le_bytes());
        attribute[24..32].copy_from_slice(&self.has.to_le_bytes());
        attribute[40..48].copy_from_slice(&(1u64 << 10 | 1 << 18).to_le_bytes());
        attribute.extend([0; 16]);
        let (begin, data) = (104u64, 104 + 144u64);
        let size = self.records.len() as u64;
        let mut bits = [0u8; 32];
        let (mut sections, mut contents) = (Vec::new(), Vec::new());
        let after = data + size + self.features.len() as u64 * 16;
        for (feature, content) in &self.features {
            bits[*feature as usize / 8] |= 1 << (feature % 8);
            sections.extend((after + contents.len() as u64).to_le_bytes());
            sections.extend((content.len() as u64).to_le_bytes());
            contents.extend(content);
        }
        let mut file = b"PERFILE2".to_vec();
        for number in [104, 144, begin, 144, data, size, 0, 0] {
            file.extend(number.to_le_bytes());
        }
        file.extend(bits);
        [file, attribute, self.records.clone(), sections, contents].concat()
    }
}

fn usual() -> Made {
    let mut made = Made::new();
    made.map(0, 10, (0x1000, 0x1000, 0), "/bin/server");
    made.name(0, (10, 10), "server", false);
    made.fork(100, (20, 20), (10, 10));
    // Out of order, as records of several CPUs are.
    made.sample(400, (20, 21), 1, 7, &[USER, 0x5010, 0x5020, 0x1100]);
    made.sample(200, (10, 10), 0, 3, &[KERNEL, 0xffff_ffff_8100_1000, 0xffff_ffff_8100_2000, USER, 0x1010, 0x1020]);
    made.sample(250, (20, 20), 0, 5, &[USER, 0x1010, 0x9999]);
    made.name(300, (20, 20), "worker", true);
    made.map(300, 20, (0x5000, 0x1000, 0x2000), "/bin/worker");
    made.fork(310, (20, 21), (20, 20));
    made.record(2, 0, &[0u64.to_le_bytes(), 12u64.to_le_bytes()].concat());
    made.features.push((3, [&8u32.to_le_bytes()[..], b"vm1\0\0\0\0\0"].concat()));
    made
}

#[test]
fn samples_have_the_files_that_were_mapped_at_their_time() {
    let bytes = usual().file();
    let file = File::open(&bytes);
    assert_eq!(
        file.folded(),
        "server;[unknown];server+0x10 5\nserver;server+0x20;server+0x10;[kernel]_[k] 3\nworker;[unknown];worker+0x2020;worker+0x2010 7\n"
    );
    let rows: Vec<_> =
        file.profile.threads.rows().iter().map(|row| (row.tgid, row.tid, file.names.labels.name(row.name).to_owned())).collect();
    let row = |tgid, tid, name: &str| (Tgid(tgid), Tid(tid), name.to_owned());
    assert_eq!(rows, [row(10, 10, "server"), row(20, 20, "server"), row(20, 21, "worker")]);
    let samples: Vec<_> = file.profile.samples.slices_from(0).flatten().map(|sample| (sample.time.0, sample.cpu)).collect();
    assert_eq!(samples, [(200, Cpu(0)), (250, Cpu(0)), (400, Cpu(1))]);
    let capabilities = file.profile.capabilities();
    assert!(capabilities.time && capabilities.threads && capabilities.cpus && !capabilities.events, "{capabilities:?}");
    assert_eq!((file.profile.unit(EventSource(1)), file.profile.losses.ring_full), (Unit::Nanoseconds, 12));
    assert_eq!(file.opened.about.as_ref().unwrap().host, "vm1");
    // Each address of a file once.
    assert_eq!(file.opened.wanted.len(), 4);
    assert!(file.opened.remarks[0].starts_with("1 samples are in a kernel that does not run here"), "{:?}", file.opened.remarks);
}

#[test]
fn a_kernel_that_runs_here_has_addresses() {
    let mut made = usual();
    let text = padded("[kernel.kallsyms]_text");
    let places: Vec<u8> =
        [0xffff_ffff_8100_0000u64, 0x10_0000, 0xffff_ffff_8100_0000].iter().flat_map(|place| place.to_le_bytes()).collect();
    made.record(1, 1, &[&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0][..], &places, &text, &Made::end((0, 0), 0)].concat());
    let names = Arc::new(Names::default());
    let mut profile = Profile::fixed(Capabilities::STACKS);
    let machine = ThisMachine {
        runs_here: |kernel| (kernel.symbol, kernel.address) == ("_text", 0xffff_ffff_8100_0000),
        ..ThisMachine::default()
    };
    let into = &mut Destination { names: &names, processes: &Processes::default(), profile: &mut profile, before: None, machine };
    let opened = flametop::formats::open(&made.file()[..], into).unwrap();
    assert_eq!((opened.wanted.len(), opened.remarks), (6, Vec::new()));
}

#[test]
fn from_a_pipe_attributes_are_records() {
    let whole = usual().file();
    let mut attribute = whole[104..104 + 128].to_vec();
    attribute.extend(0u64.to_le_bytes());
    let mut made = Made::new();
    made.record(64, 0, &attribute);
    let piped = [b"PERFILE2".as_slice(), &16u64.to_le_bytes(), &made.records, &usual().records].concat();
    assert_eq!(File::open(&piped).folded(), File::open(&whole).folded());
}

#[test]
fn a_cut_file_has_what_is_whole_of_it() {
    let made = usual();
    let whole = made.file();
    let file = File::open(&whole[..104 + 144 + made.records.len() - 60]);
    assert!(file.opened.remarks.iter().any(|remark| remark.starts_with("the file is cut")), "{:?}", file.opened.remarks);
    assert!(file.folded().contains("server;server+0x20"));
    for length in 0..whole.len() {
        drop(File::try_open(&whole[..length]));
    }
}

#[test]
fn nothing_in_a_file_makes_the_reader_stumble() {
    let whole = usual().file();
    let change = (any::<prop::sample::Index>(), prop::sample::select(vec![0u8, 1, 7, 20, 21, 0x7f, 0x80, 0xff]));
    let mut runner = TestRunner::new(Config { failure_persistence: None, cases: 2000, ..Config::default() });
    let outcome = runner.run(&prop::collection::vec(change, 1..6), |changes| {
        let mut bytes = whole.clone();
        for (at, to) in changes {
            let at = at.index(bytes.len() - 8) + 8;
            bytes[at] = to;
        }
        if let Ok(file) = File::try_open(&bytes) {
            let sum: u64 = file.profile.samples.slices_from(0).flatten().map(|sample| sample.weight).sum();
            prop_assert_eq!(file.tree().total(), sum);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    stumble(&[&whole[..104], &whole[104..248], &usual().records, b"\xff\xff\xff\xff\xff\xff\xff\xff", &[0; 8]]);
}

#[test]
fn files_of_other_projects_are_read_or_refused_in_a_sentence() {
    for path in data("perf-data") {
        match File::try_open(&std::fs::read(&path).unwrap()) {
            Ok(file) => assert!(file.tree().total() > 0, "{}", path.display()),
            Err(error) => {
                let is_bad = path.ends_with("perf.data.broken.gz") || path.ends_with("perf.data.true.v1");
                assert!(is_bad, "{}: {error}", path.display());
            }
        }
    }
}

/// Without the C library: its functions have several names each, and programs differ in the one that they print.
const PROGRAM: &str = "
volatile unsigned long sum;
char buffer[1 << 20];
static long ask(long number, long a, long b, long c)
{
    long answer;
    __asm__ volatile(\"syscall\" : \"=a\"(answer) : \"a\"(number), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\");
    return answer;
}
__attribute__((noinline)) void leaf(int n) { for (int i = 0; i < 30000; i++) sum += i * n; __asm__ volatile(\"\"); }
__attribute__((noinline)) void middle(int n) { leaf(n); leaf(n + 1); __asm__ volatile(\"\"); }
__attribute__((noinline)) void reading(void)
{
    long zero = ask(2, (long)\"/dev/zero\", 0, 0);
    ask(0, zero, (long)buffer, sizeof buffer);
    ask(3, zero, 0, 0);
}
void run(void) { for (int i = 0; i < 6000; i++) { middle(i); reading(); } ask(231, 0, 0, 0); }
__asm__(\".globl _start\\n_start: xor %ebp, %ebp\\n and $-16, %rsp\\n call run\\n nop\\n\");
";

#[test]
fn a_file_has_the_stacks_that_perf_script_prints() {
    let with_frame_pointers = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
    let ours = compared_with_perf_script(&with_frame_pointers, &["--call-graph", "fp"]);
    assert!(ours.contains(";leaf "), "{ours}");
    let packed = compared_with_perf_script(&with_frame_pointers, &["--call-graph", "fp", "-z"]);
    assert!(packed.contains(";leaf "), "{packed}");
}

/// Copies of stacks are walked by our own tables, and by perf's own unwinder.
#[test]
fn copies_of_stacks_have_the_frames_that_perf_script_prints() {
    let ours = compared_with_perf_script(
        &["-fomit-frame-pointer", "-fasynchronous-unwind-tables", "-Wl,--eh-frame-hdr"],
        &["--call-graph", "dwarf,4096"],
    );
    assert!(ours.contains(";_start;run;middle;leaf "), "{ours}");
    assert!(ours.lines().any(|line| line.contains(";_start;run;reading;") && line.contains("do_syscall_64")), "{ours}");
}

/// Returns the folded stacks of a recording of [`PROGRAM`]. perf's own text of the same file is the oracle.
fn compared_with_perf_script(compiled: &[&str], options: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("busy.c"), PROGRAM).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        let output = command.args(&words[1..]).current_dir(place.path()).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run(&[&["gcc", "-O1", "-static", "-nostdlib", "busy.c", "-o", "busy"], compiled].concat());
    let record = ["perf", "record", "-q", "--no-buildid-cache", "-e", "cpu-clock", "-F", "999", "-o", "busy.data"];
    run(&[&record[..], options, &["./busy"]].concat());
    std::fs::write(place.path().join("busy.perf"), run(&["perf", "script", "--no-inline", "-F", "+pid", "-i", "busy.data"]))
        .unwrap();
    let of = |name: &str| sorted(&convert::converted(place.path(), &[name, "-", "--no-annotations"]));
    // BPF programs that run in system calls come and go: perf and flametop ask the kernel for their names at different times.
    let lasting =
        |text: String| text.lines().filter(|line| !line.contains("bpf")).map(|line| format!("{line}\n")).collect::<String>();
    let (ours, theirs) = (lasting(of("busy.data")), lasting(of("busy.perf")));
    assert_eq!(with_one_name_for_each_address(&ours), with_one_name_for_each_address(&theirs), "{ours}\n\n{theirs}");
    assert!(ours.lines().any(|line| line.contains(";reading;") && line.contains("do_syscall_64")), "{ours}");
    ours
}

/// Returns folded stacks in which functions of the kernel have the first name of their address. `memset` is `__pi_memset` as well, and perf and
/// flametop may prefer different names.
fn with_one_name_for_each_address(stacks: &str) -> String {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let (mut first, mut names) = (HashMap::new(), HashMap::new());
    for mut words in symbols.lines().map(str::split_whitespace) {
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        names.insert(name, *first.entry(address).or_insert(name));
    }
    assert!(first.len() > 1000, "NOT TESTED: addresses of the kernel are hidden");
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let frames: Vec<&str> = stack.split(';').map(|frame| names.get(frame).copied().unwrap_or(frame)).collect();
        format!("{} {count}", frames.join(";"))
    };
    sorted(&stacks.lines().map(|stack| line(stack) + "\n").collect::<String>())
}

/// A file may claim the same bytes many times. They take neither time nor memory each time.
#[test]
fn claims_that_overlap_are_bounded() {
    let mut made = usual();
    // A large process forks twenty thousand times, and each child maps something.
    for number in 0..1000 {
        made.map(0, 10, (0x10_0000 + number * 0x1000, 0x1000, 0), "/bin/server");
    }
    for child in 0..20_000 {
        made.fork(150, (1000 + child, 1000 + child), (10, 10));
        made.map(160, 1000 + child, (0x1000, 0x1000, 0), "/bin/server");
    }
    let text = padded("[kernel.kallsyms]_nowhere");
    for _ in 0..20_000 {
        made.record(1, 1, &[&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0][..], &[1; 24], &text, &Made::end((0, 0), 0)].concat());
    }
    let file = File::open(&made.file());
    assert!(file.opened.remarks.iter().any(|remark| remark.contains("processes have no files")), "{:?}", file.opened.remarks);
    // 4,000 events whose ids are all of the file.
    let mut bytes = usual().file();
    let attribute = bytes[104..104 + 128].to_vec();
    let at = bytes.len() as u64;
    for _ in 0..4000 {
        bytes.extend(&attribute);
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(600_000u64.to_le_bytes());
    }
    bytes[24..32].copy_from_slice(&at.to_le_bytes());
    bytes[32..40].copy_from_slice(&(4000 * 144u64).to_le_bytes());
    let before = resident();
    drop(File::try_open(&bytes));
    assert!(resident() < before + 50_000_000, "{before} bytes, then {}", resident());
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
