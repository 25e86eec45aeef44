//! Code of files in anonymous memory, and code that has left memory.

use std::ops::Range;

use super::*;
use crate::collector::processes::mapped_build_id::MappedFile;
use crate::collector::processes::moved::MovedEntry;
use crate::collector::processes::moved_file::MovedText;
use crate::collector::wire::perf_records::Inode;

#[test]
fn anonymous_memory_gets_the_file_whose_code_it_holds_until_it_is_mapped_again() {
    let mut world = World::new();
    world.exec(NOBODY, "node");
    world.map(NOBODY, 0x10000, "/bin/node", 1);
    world.map(NOBODY, 0x11000, "//anon", 0);
    world.map(NOBODY, 0x12000, "/bin/node", 1);
    let beside = MappedFile { start: 0x10000, end: 0x11000, path: "/bin/node".into(), file: None };
    let range = 0x11000..0x12000;
    let ask = |world: &mut World, tgid, range: &Range<u64>| {
        world.table.want_moved(tgid, range.clone(), UserId(0), world.time);
        std::mem::take(&mut world.table.questions).len()
    };
    let path = |world: &mut World, tgid| world.sample(tgid, "node", &[0x11010], 0).0[0].0.clone();
    // One question at a time. Its answer counts only for the memory in the question.
    let asked_at = world.time;
    assert_eq!([ask(&mut world, NOBODY, &range), ask(&mut world, NOBODY, &range)], [1, 0]);
    let found = MovedText { beside, offset: 0x1400 };
    world.table.told_moved(NOBODY, &(0x11000..0x11800), Some(found.clone()));
    assert!(world.table.moved.take_changes().is_empty());
    world.table.told_moved(NOBODY, &range, Some(found.clone()));
    let entry = MovedEntry { offset: 0x1400, beside: 0x10000 };
    assert_eq!(world.table.moved.take_changes(), [((NOBODY, 0x11000), Some(entry))]);
    let (frames, _) = world.sample(NOBODY, "node", &[0x11010], 0);
    assert_eq!((frames[0].0.as_str(), frames[0].1.address()), ("/bin/node", 0x1410));
    // The copy of a process has the same memory. A new reading of its mappings names no file there, but the answer still counts.
    world.fork(NOBODY, NOBODY + 1);
    assert_eq!(world.table.moved.take_changes(), [((NOBODY + 1, 0x11000), Some(entry))]);
    world.event(Event::Lost(1));
    let identity = Identity::BuildId(BuildId::new(&[1; 20]).unwrap());
    let mapped = |start, path: &str| Mapped { start, end: start + 0x1000, offset: 0, identity, path: path.to_owned() };
    let list = MappedList { mapped: vec![mapped(0x10000, "/bin/node"), mapped(0x11000, "")], cut: false };
    world.table.want_mappings(NOBODY + 1);
    let question = world.table.questions.pop().unwrap();
    world.table.apply_answer(Answer { question, found: Reply::Mappings(Some(list)), time: world.time, cpu: Duration::ZERO });
    assert_eq!(path(&mut world, NOBODY + 1), "/bin/node");
    // The event of a mapping may come after the answer about it.
    let anonymous = |time| {
        let (path, identity) = ("//anon".into(), identity);
        Timed { time, event: Event::Map { tgid: NOBODY + 1, start: 0x11000, end: 0x12000, offset: 0, identity, path } }
    };
    world.table.apply(anonymous(asked_at), &mut Happened::default());
    assert!(world.table.moved.take_changes().is_empty());
    assert_eq!(path(&mut world, NOBODY + 1), "/bin/node");
    // Another mapping there ends it, and so does another program.
    world.map(NOBODY + 1, 0x11000, "//anon", 0);
    assert_eq!(world.table.moved.take_changes(), [((NOBODY + 1, 0x11000), None)]);
    assert_ne!(path(&mut world, NOBODY + 1), "/bin/node");
    world.exec(NOBODY, "other");
    assert_eq!(world.table.moved.take_changes(), [((NOBODY, 0x11000), None)]);
    // The end of a process ends it too. An answer that comes later counts for its last samples, but not for BPF.
    world.fork(NOBODY + 1, NOBODY + 2);
    world.map(NOBODY + 2, 0x11000, "//anon", 0);
    world.map(NOBODY + 2, 0x21000, "//anon", 0);
    let later = 0x21000..0x22000;
    assert_eq!([ask(&mut world, NOBODY + 2, &range), ask(&mut world, NOBODY + 2, &later)], [1, 1]);
    world.table.told_moved(NOBODY + 2, &range, Some(found.clone()));
    assert_eq!(world.table.moved.take_changes(), [((NOBODY + 2, 0x11000), Some(entry))]);
    world.exit(NOBODY + 2, NOBODY + 2);
    assert_eq!(world.table.moved.take_changes(), [((NOBODY + 2, 0x11000), None)]);
    world.table.told_moved(NOBODY + 2, &later, Some(found.clone()));
    assert!(world.table.moved.take_changes().is_empty());
    let (frames, _) = world.sample(NOBODY + 2, "node", &[0x21010], 0);
    assert_eq!(frames[0].0, "/bin/node");
    // Memory with other code is known too, so that nobody asks again.
    world.map(NOBODY, 0x11000, "//anon", 0);
    assert_eq!(ask(&mut world, NOBODY, &range), 1);
    world.table.told_moved(NOBODY, &range, None);
    assert_eq!(world.table.moved.take_changes(), [((NOBODY, 0x11000), Some(MovedEntry { offset: 0, beside: 0 }))]);
    assert_eq!(ask(&mut world, NOBODY, &range), 0);
    // A process that maps without end causes a bounded number of questions.
    let asked: usize = (0..1000u64)
        .map(|number| {
            world.map(NOBODY, 0x11000, "//anon", 0);
            world.map(NOBODY, 0x20000, "//anon", 0);
            let asked = ask(&mut world, NOBODY, &(0x20000..0x21000 + number));
            world.table.told_moved(NOBODY, &(0x20000..0x21000 + number), None);
            asked
        })
        .sum();
    assert_eq!(asked, 63);
}

#[test]
fn a_file_stays_known_as_long_as_memory_holds_its_code() {
    let mut world = World::new();
    world.exec(NOBODY, "node");
    world.map(NOBODY, 0x11000, "//anon", 0);
    let range = 0x11000..0x12000;
    world.table.want_moved(NOBODY, range.clone(), UserId(0), world.time);
    let file = Some(Inode { device: 1, number: 2, generation: None });
    let beside = MappedFile { start: 0x12000, end: 0x13000, path: "/opt/node".into(), file };
    world.table.told_moved(NOBODY, &range, Some(MovedText { beside, offset: 0x1400 }));
    // No mapping leads to it while the process is read again.
    world.table.states.get_mut(&NOBODY).unwrap().mappings = Mappings::default();
    world.table.lately.clear();
    let file = world.table.states[&NOBODY].moved[0].code.file().unwrap();
    (0..3000u32).for_each(|number| world.map(NOBODY + 1 + number, 0x10000, &format!("/bin/{number}"), 1));
    world.table.tidy_files();
    assert_eq!(world.table.files.get_mut(file).map(|file| file.path.to_string()).as_deref(), Some("/opt/node"));
}

#[test]
fn a_page_of_code_is_read_once_a_second_and_not_all_of_a_process() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    let page = rustix::param::page_size() as u64;
    let mut read = |tgid, address, seconds: u64| {
        world.table.want_code(tgid, address, UserId(0), world.time + seconds * SECOND);
        std::mem::take(&mut world.table.questions).len()
    };
    assert_eq!([read(NOBODY, 10 * page, 0), read(NOBODY, 10 * page + 8, 0), read(NOBODY, 11 * page, 0)], [1, 0, 1]);
    assert_eq!([read(NOBODY, 10 * page, 2), read(NOBODY + 1, 10 * page, 2)], [1, 0], "later again; no such process");
    assert_eq!((0..100).map(|number| read(NOBODY, number * page, 9)).sum::<usize>(), 16);
}
