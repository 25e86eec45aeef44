//! What a process can do to who reads about it: hold its memory lock, map files without end, map memory without end.

use super::*;

/// Resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

/// A program that holds its own memory lock.
fn holder(lair: &Lair) -> Running {
    // Everybody may open /dev/fuse where udev runs.
    let device = rustix::fs::makedev(10, 229);
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let node = lair.path().join("device");
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::CharacterDevice, mode, device)
        .expect("NOT TESTED: no mknod");
    rustix::fs::chmod(&node, mode).unwrap();
    let holder = lair.start(&attacker("fuse.c", &[]).path, &["40"]);
    // It holds: who reads its arguments waits. (Since Linux 6.17 its mappings can be read without that lock.)
    let (tell, told) = std::sync::mpsc::channel();
    let arguments = format!("/proc/{}/cmdline", holder.pid());
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let (tell, arguments) = (tell.clone(), arguments.clone());
        std::thread::spawn(move || tell.send(std::fs::read(arguments).is_ok()));
        match told.recv_timeout(Duration::from_secs(1)) {
            Err(_) => return holder,
            Ok(there) => assert!(there && Instant::now() < until, "NOT TESTED: the lock is not held (see what it said)"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_process_that_holds_its_memory_lock_holds_up_nobody() {
    let _alone = alone();
    let lair = Lair::new();
    let holder = holder(&lair);
    let recording = Recording::start(&["-F", "499", "-d", "8"]);
    std::thread::sleep(Duration::from_millis(1500));
    let witness = Witness::start("witness-lock");
    let (lines, said) = recording.end(Duration::from_millis(6500));
    drop((witness, holder));
    Witness::assert_seen("witness-lock", &lines);
    let of_it: u64 = lines.iter().filter(|line| line.frames[0] == "holder").map(|line| line.count).sum();
    assert!(of_it > 100, "{of_it} samples of the holder: {said}");
}

#[test]
fn a_recording_beside_a_held_lock_ends_at_the_first_signal() {
    let _alone = alone();
    let lair = Lair::new();
    let holder = holder(&lair);
    let recording = Recording::start(&["-F", "499"]);
    std::thread::sleep(Duration::from_millis(2500));
    common::terminal::kill(recording.pid(), rustix::process::Signal::TERM);
    let (lines, _) = recording.end(Duration::ZERO);
    drop(holder);
    assert!(lines.iter().any(|line| line.frames[0] == "holder"));
}

/// Files with long names, mapped one after the other: what they leave in memory.
#[track_caller]
fn assert_mapped_files_are_let_go(args: &[&str]) {
    let lair = Lair::new();
    let recording = Recording::start(&["-F", "99", "-d", "16", "--memory", "64M"]);
    std::thread::sleep(Duration::from_millis(500));
    let attacker = lair.start(&attacker("files.c", &[]).path, args);
    std::thread::sleep(Duration::from_secs(5));
    let before = resident(recording.pid());
    std::thread::sleep(Duration::from_secs(4));
    let witness = Witness::start("witness-files");
    std::thread::sleep(Duration::from_millis(4500));
    let after = resident(recording.pid());
    let (lines, said) = recording.end(Duration::from_secs(1));
    drop((attacker, witness));
    println!("{} MB after 5 s, {} MB after 15 s; {said}", before / 1_000_000, after / 1_000_000);
    // 4.7 MB a second, unmended: 47.
    assert!(after < before + 15_000_000, "{} MB more in ten seconds: {said}", (after - before) / 1_000_000);
    Witness::assert_seen("witness-files", &lines);
}

#[test]
fn files_that_were_mapped_once_are_let_go() {
    let _alone = alone();
    assert_mapped_files_are_let_go(&["20"]);
}

#[test]
fn files_that_are_never_mapped_over_are_bounded() {
    let _alone = alone();
    assert_mapped_files_are_let_go(&["20", "apart"]);
}
