//! Command lines of processes.

use super::*;

#[test]
fn a_child_has_its_own_command_line_or_else_its_parents() {
    let own = std::process::id();
    let line = |world: &World, tgid| world.shared.get(&Tgid(tgid)).map(|process| process.command_line.to_string()).unwrap();
    // A daemon: its parent was gone before flametop asked about it, and was never sampled.
    let mut world = World::new();
    world.exec(NOBODY, "daemon");
    world.fork(NOBODY, own);
    world.sample(own, "daemon", &[], 0);
    assert!(line(&world, own).contains("flametop"), "{}", line(&world, own));
    // The reverse case: a child that is gone before its first sample is processed.
    let mut world = World::new();
    world.exec(own, "shell");
    world.fork(own, NOBODY);
    world.sample(NOBODY, "shell", &[], 0);
    assert!(line(&world, NOBODY).contains("flametop"), "{}", line(&world, NOBODY));
}

#[test]
fn an_exited_process_is_not_asked_for_its_arguments() {
    let (asked, answers) = std::sync::mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    let (parent, gone, alive) = (NOBODY, NOBODY + 1, NOBODY + 2);
    let mut world = world_with(move |question| {
        asked.lock().unwrap().send(question.tgid).unwrap();
        Reply::CommandLine("make -j2".to_owned())
    });
    world.exec(parent, "make");
    world.table.states.get_mut(&parent).unwrap().command_line_known = Known::Yes;
    for tgid in [gone, alive] {
        world.fork(parent, tgid);
        world.exec(tgid, "cc");
    }
    world.exit(gone, gone);
    world.table.want_command_line(gone);
    world.table.want_command_line(alive);
    world.settle(&mut Batch::default());
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), [alive]);
    assert_eq!(world.table.states[&gone].command_line_known, Known::Yes);
}

#[test]
fn a_child_whose_answer_comes_before_its_parents_has_its_parents_command_line() {
    // Two workers answer: the parent's answer may come last.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (parent, child, grandchild) = (NOBODY, NOBODY + 1, NOBODY + 2);
    let mut world = world_with(move |question| {
        if question.tgid != parent {
            return Reply::CommandLine(String::new());
        }
        let _ = held.lock().unwrap().recv();
        Reply::CommandLine("make -j2".to_owned())
    });
    world.exec(parent, "make");
    world.fork(parent, child);
    world.fork(child, grandchild);
    world.table.want_command_line(grandchild);
    world.table.send_questions();
    let line = |world: &World, tgid| world.shared.get(&Tgid(tgid)).map(|process| process.command_line.to_string());
    let begun = Instant::now();
    while world.table.heirs.len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", world.table.heirs);
        world.table.send_questions();
        let answers = world.table.answers(false, Instant::now());
        world.table.settle(world.time, answers, &mut Batch::default(), |_| false);
    }
    assert_eq!(line(&world, grandchild).as_deref(), Some(""));
    drop(release);
    world.settle(&mut Batch::default());
    assert_eq!([child, grandchild].map(|tgid| line(&world, tgid)), [(); 2].map(|()| Some("make -j2".to_owned())));
    assert!(world.table.heirs.is_empty());
}

#[test]
fn long_command_lines_are_cut_where_all_are_too_long() {
    let mut world = World::new();
    world.table.bounds = Bounds::of(64 << 10);
    let long: Arc<str> = "ä".repeat(400).into();
    for number in 0..10 {
        world.exec(NOBODY + number, "prog");
        let line = if number == 0 { "short".into() } else { Arc::from(&*long) };
        world.table.states.get_mut(&(NOBODY + number)).unwrap().command_line = Arc::clone(&line);
        world.shared.get_mut(&Tgid(NOBODY + number)).unwrap().command_line = line;
    }
    world.table.tidy(world.time, &mut Happened::default());
    let line = |number| world.shared.get(&Tgid(NOBODY + number)).unwrap().command_line.to_string();
    assert_eq!(line(0), "short");
    assert!(line(1).ends_with("ä…") && line(1).len() < 140, "{}", line(1));
}
