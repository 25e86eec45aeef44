//! Files of a file system that does not answer any more.

use std::time::Instant;

use super::common::SilentDisk;
use super::*;

/// No request to the file system delays flametop: the recording ends in time, and all other programs have names and whole stacks.
#[test]
fn a_file_system_that_falls_silent_holds_nobody_up() {
    let place = Place::new();
    std::fs::create_dir(place.path("far")).unwrap();
    let (there, here) = (Program::build("chain.c"), Program::build("threads.c"));
    let mut disk = SilentDisk::mount(&place.path("far"), "remote", std::fs::read(&there.path).unwrap());
    let remote = Program { path: place.path("far/remote") }.run(&[]);
    let local = here.run(&[]);
    // The whole file is in memory: the program does not need the server.
    assert_eq!(std::fs::read(place.path("far/remote")).unwrap().len(), std::fs::metadata(&there.path).unwrap().len() as usize);
    disk.fall_silent();
    let begun = Instant::now();
    let output = place.record(&["-o", "x.folded", "--force", "-F", "997", "-d", "3"]);
    assert!(output.status.success(), "{}", words(&output));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    // It was sampled, and only its addresses are known.
    let of_remote: Vec<&Line> = lines.iter().filter(|line| line.process() == "remote").collect();
    assert!(of_remote.iter().any(|line| line.text().contains("remote+0x")), "{}", listing(&lines));
    let of_local: u64 = lines.iter().filter(|line| line.process().starts_with("threads")).map(|line| line.count).sum();
    let named = |line: &&Line| line.process().starts_with("threads") && !line.text().contains("threads+0x");
    let named: u64 = lines.iter().filter(named).map(|line| line.count).sum();
    assert!(of_local > 500 && named * 100 >= of_local * 95, "{named} of {of_local}:\n{}", listing(&lines));
    // And the health view says why, once of its unwind table and once of its names.
    let mut terminal = Terminal::start(&["-F", "997", "-p", &remote.pid_text()], 70, 180, &[]);
    terminal.keys("5");
    terminal.wait_for_text("far/remote: its file system does not answer", SOON);
    terminal.wait_for_text("far/remote: the file system does not answer", SOON);
    terminal.keys("q");
    assert!(terminal.wait_exit_within(SOON).success());
    drop((remote, local, disk));
}
