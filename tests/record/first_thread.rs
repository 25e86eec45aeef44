//! Programs whose first thread has ended: `/proc/PID` then shows no memory, files or root directory.

use std::time::Instant;

use super::*;

/// A copy of `leader` whose file is deleted when it runs, so that names come through its mapping.
fn run_deleted(place: &Place) -> Running {
    let copy = place.path("no-leader");
    std::fs::copy(Program::build("leader.c").path, &copy).unwrap();
    let running = Program { path: copy.clone() }.run(&[]);
    std::fs::remove_file(copy).unwrap();
    running
}

#[test]
fn a_process_whose_first_thread_has_ended_has_whole_stacks_with_names() {
    let place = Place::new();
    let program = run_deleted(&place);
    let pid = program.pid().to_string();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(stat.contains(") Z "), "the first thread has not ended: {stat}");
    let output = place.record(&["-p", &pid, "-d", "1", "-F", "997", "-o", "x.folded"]);
    let said = words(&output);
    assert!(output.status.success() && said.contains("100.0 % of user stacks complete"), "{said}");
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    assert_chain(&lines, "no-leader", "spin;outer;inner");
    assert!(!lines.iter().any(|line| line.text().contains("[unknown]")), "{}", listing(&lines));
}

#[test]
fn a_command_whose_first_thread_has_ended_is_ended_with_the_recording() {
    let place = Place::new();
    let copy = place.path("no-leader");
    std::fs::copy(Program::build("leader.c").path, &copy).unwrap();
    let begun = Instant::now();
    let lines = place.folded(&["-d", "1", "--", copy.to_str().unwrap()]);
    assert!(begun.elapsed() < Duration::from_secs(50), "it ended by itself");
    assert_chain(&lines, "no-leader", "spin;outer;inner");
    let still_there = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let tasks = std::fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| std::fs::read_link(task.path().join("exe")).ok()).any(|executable| executable == copy)
    });
    assert!(!still_there, "the command runs on without its profiler");
}
