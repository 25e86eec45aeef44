//! Files that are not what they seem: FIFOs, devices, state of the kernel, holes.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::inotify;

use super::*;
use common::{Terminal, root_box};

/// A directory on a disk, and one in memory. flametop asks their file systems in different ways.
const PLACES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// Time until the other programs that run beside the test have unwind tables.
const WARM: Duration = Duration::from_secs(3);

/// Tells whether a file was opened or read since this was made.
struct Watch(OwnedFd);

impl Watch {
    #[track_caller]
    fn on(path: &Path) -> Watch {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN | inotify::WatchFlags::ACCESS).unwrap();
        Watch(watch)
    }

    fn has_seen_something(&self) -> bool {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
        inotify::Reader::new(&self.0, &mut buffer).next().is_ok()
    }
}

/// Records while files of the attacker become something else. The witness must be seen.
#[track_caller]
fn record_beside(attack: &Lair, start: impl FnOnce() -> Running, witness: &str) {
    let recording = Recording::start(&["-F", "499", "-d", "9"]);
    std::thread::sleep(WARM);
    let mut attacker = start();
    std::thread::sleep(Duration::from_millis(800));
    let program = Witness::start(witness);
    let (lines, _) = recording.end(Duration::from_secs(9));
    drop(program);
    assert!(attack.path().join("f5").symlink_metadata().is_ok(), "the attack has not taken place");
    let was_sampled = lines.iter().any(|line| line.frames[0] == "replaced");
    assert!(was_sampled && attacker.child.try_wait().unwrap().is_none(), "the attack has not taken place");
    Witness::assert_seen(witness, &lines);
}

#[test]
fn a_fifo_in_the_place_of_a_mapped_file_holds_nobody_up() {
    let _alone = alone();
    for (place, witness) in PLACES.into_iter().zip(["fifodisk", "fifomem"]) {
        let lair = Lair::under(Path::new(place));
        let directory = lair.path().to_str().unwrap().to_owned();
        record_beside(&lair, || lair.start(&attacker("replaced.c", &[]).path, &[&directory, "fifo"]), witness);
    }
}

/// Makes a device that no other program opens.
#[track_caller]
fn device() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("device");
    // As /dev/full.
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, rustix::fs::makedev(1, 7)).expect("this test needs root");
    (directory, path)
}

#[test]
#[ignore = "of one kind with `a_fifo_in_the_place_of_a_mapped_file_holds_nobody_up`"]
fn a_link_to_a_device_in_the_place_of_a_mapped_file_is_not_followed() {
    let _alone = alone();
    for (place, witness) in PLACES.into_iter().zip(["devicedisk", "devicemem"]) {
        let (_device, path) = device();
        let watch = Watch::on(&path);
        let lair = Lair::under(Path::new(place));
        let directory = lair.path().to_str().unwrap().to_owned();
        let target = path.to_str().unwrap();
        record_beside(&lair, || lair.start(&attacker("replaced.c", &[]).path, &[&directory, target]), witness);
        assert!(!watch.has_seen_something(), "the device was opened");
        std::fs::File::open(&path).unwrap();
        assert!(watch.has_seen_something(), "this would have been seen");
    }
}

#[test]
fn an_absolute_link_in_another_root_does_not_lead_into_ours() {
    let _alone = alone();
    let (_device, path) = device();
    let watch = Watch::on(&path);
    let lair = Lair::under(Path::new("/var/tmp"));
    let program = lair.copy(&attacker("replaced.c", &["-static"]).path, "replaced");
    let start = || {
        let mut command = Command::new("chroot");
        command.args(["--userspec=65534:65534"]).arg(lair.path()).args(["/replaced", "/"]).arg(&path);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("chroot (coreutils)");
        Running { child }
    };
    record_beside(&lair, start, "deviceroot");
    assert!(program.exists() && !watch.has_seen_something(), "the host's device was opened for a process with another root");
}

#[test]
fn the_live_view_goes_on_and_ends_beside_a_fifo() {
    let _alone = alone();
    let program = attacker("replaced.c", &[]).path;
    for end in ["q", "SIGTERM", "Ctrl-C"] {
        let lair = Lair::under(Path::new("/var/tmp"));
        let mut terminal = Terminal::start(&["-F", "499"], 36, 132, &[]);
        terminal.wait_for_text("live", Duration::from_secs(60));
        let directory = lair.path().to_str().unwrap().to_owned();
        let _attacker = lair.start(&program, &[&directory, "fifo"]);
        let _witness = Witness::start_unseen("liveone");
        std::thread::sleep(Duration::from_millis(2500));
        assert!(lair.path().join("f5").symlink_metadata().is_ok(), "the attack has not taken place");
        // Samples still come after the attack has begun.
        let before = root_box(&terminal.screen()).expect("the screen shows its root");
        terminal.wait_for(|screen| root_box(screen).is_some_and(|line| line != before), SOON);
        terminal.keys("?");
        terminal.wait_for_text("back to the whole view", SOON);
        terminal.keys("Esc");
        match end {
            "q" => terminal.keys("q"),
            "SIGTERM" => terminal.signal(rustix::process::Signal::TERM),
            _ => terminal.send(b"\x03"),
        }
        terminal.wait_exit_within(SOON);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The attacker's copy of a program that runs in `main`, with debug information.
fn debuggable(lair: &Lair, name: &str) -> PathBuf {
    let program = Program::build_with("chain.c", &["-g"]);
    lair.copy(&program.path, name)
}

/// A file in which the kernel shows its state, and which few programs read.
fn state_of_the_kernel() -> &'static Path {
    const FILES: [&str; 4] =
        ["/sys/kernel/rcu_normal", "/sys/kernel/fscaps", "/sys/kernel/rcu_expedited", "/sys/kernel/profiling"];
    FILES.iter().map(Path::new).find(|path| path.exists()).expect("sysfs is mounted")
}

#[test]
fn debug_information_does_not_lead_into_files_that_are_no_storage() {
    let _alone = alone();
    let lair = Lair::new();
    let path = debuggable(&lair, "altlink");
    let link = lair.path().join("link");
    let mut bytes = state_of_the_kernel().to_str().unwrap().as_bytes().to_vec();
    bytes.extend([0]);
    bytes.extend([0xab; 20]);
    std::fs::write(&link, bytes).unwrap();
    run(Command::new("objcopy").arg(format!("--add-section=.gnu_debugaltlink={}", link.display())).arg(&path));
    let watch = Watch::on(state_of_the_kernel());
    let recording = Recording::start(&["-F", "499", "-d", "9"]);
    std::thread::sleep(WARM);
    let attacker = lair.run(&path, &[]);
    let witness = Witness::start("altwitness");
    let (lines, _) = recording.end(Duration::from_secs(9));
    drop((attacker, witness));
    assert!(!watch.has_seen_something(), "{} was opened", state_of_the_kernel().display());
    std::fs::read(state_of_the_kernel()).unwrap();
    assert!(watch.has_seen_something(), "this would have been seen");
    let named = lines.iter().any(|line| line.frames[0] == "altlink" && line.frames.iter().any(|frame| frame == "inner"));
    assert!(named, "the program has its names all the same");
    Witness::assert_seen("altwitness", &lines);
}

/// Makes a section of an ELF file `length` bytes long: a hole behind the file's end.
fn make_sparse(path: &Path, section: &[u8], length: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let u16_at = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let table = usize::try_from(u64_at(0x28)).unwrap();
    let header = |index: usize| table + 64 * index;
    let names = usize::try_from(u64_at(header(u16_at(0x3e)) + 0x18)).unwrap();
    let is_it = |index: &usize| {
        let name = names + u32::from_le_bytes(bytes[header(*index)..header(*index) + 4].try_into().unwrap()) as usize;
        bytes[name..].starts_with(section) && bytes[name + section.len()] == 0
    };
    let at = header((0..u16_at(0x3c)).find(is_it).expect("it has that section")) as u64;
    let end = (bytes.len() as u64).next_multiple_of(4096);
    file.write_all_at(&end.to_le_bytes(), at + 0x18).unwrap();
    file.write_all_at(&length.to_le_bytes(), at + 0x20).unwrap();
    file.set_len(end + length).unwrap();
}

#[test]
fn a_sparse_file_costs_what_it_takes_on_its_disk() {
    let _alone = alone();
    const LENGTH: u64 = 950 << 20;
    let lair = Lair::new();
    let path = debuggable(&lair, "sparse");
    make_sparse(&path, b".debug_info", LENGTH);
    assert!(std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) < 1000, "a sparse file");
    let recording = Recording::start(&["-F", "499", "-d", "9"]);
    std::thread::sleep(WARM);
    let attacker = lair.run(&path, &[]);
    let witness = Witness::start("sparsewitness");
    let pid = recording.pid();
    let written = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse::<u64>().ok()).unwrap_or(0)
    };
    let (mut most, until) = (0, Instant::now() + Duration::from_millis(5500));
    while Instant::now() < until {
        most = most.max(written());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (lines, _) = recording.end(Duration::from_secs(3));
    drop((attacker, witness));
    println!("{most} bytes written");
    // These are other writes: the cache starts empty and gets tables of all programs, and debug information of the host's
    // programs is unpacked: 17 to 52 MB.
    assert!(most < LENGTH / 10, "{most} bytes were written for a file of some kilobytes");
    assert!(lines.iter().any(|line| line.frames[0] == "sparse" && line.frames.iter().any(|frame| frame == "inner")));
    Witness::assert_seen("sparsewitness", &lines);
}
