//! The process table under made-up events; nothing here touches the kernel.

use std::time::{Duration, Instant};

use super::*;
use crate::collector::Batch;
use crate::collector::processes::functions::{Code, FunctionsRead};
use crate::collector::processes::proc::{Mapped, MappedList};
use crate::collector::processes::reader::Reply;
use crate::collector::wire::perf_records::Identity;
use crate::collector::wire::records;
use crate::collector::wire::records::Record;
use crate::collector::wire::records::tests::record_bytes;
use crate::profile::{BuildId, FileOffset, Frame, FrameKind, KernelAddress, ObjectId, ObjectKind, UserEnd, UserId};
use crate::runtimes::python::{self, Lines};

/// Above the kernel's PID_MAX_LIMIT, so that nothing is found in /proc.
const NOBODY: u32 = 5_000_000;
const SECOND: u64 = 1_000_000_000;

struct World {
    table: ProcessTable,
    names: Arc<Names>,
    shared: Arc<Processes>,
    happened: Happened,
    time: u64,
}

/// No bit of records: the user part of the sample is to be as below a system call.
const IN_SYSCALL: u8 = 1 << 7;
/// `FRAME_INTERRUPTED`, where it is in a frame.
const INTERRUPTED: u64 = 1 << 56;

impl World {
    fn new() -> World {
        let (names, shared) = (Arc::new(Names::default()), Arc::new(Processes::default()));
        let table = ProcessTable::new(names.clone(), shared.clone());
        World { table, names, shared, happened: Happened::default(), time: 100 * SECOND }
    }

    fn event(&mut self, event: Event) {
        self.time += 1;
        self.table.apply(Timed { time: self.time, event }, &mut self.happened);
    }

    fn fork(&mut self, parent: u32, tgid: u32) {
        self.event(Event::Fork { tgid, parent });
    }

    fn exec(&mut self, tgid: u32, name: &str) {
        self.event(Event::Name { tgid, exec: true, comm: comm_bytes(name.as_bytes()) });
    }

    fn map(&mut self, tgid: u32, start: u64, path: &str, id: u8) {
        let identity = Identity::BuildId(BuildId::new(&[id; 20]).unwrap());
        self.event(Event::Map { tgid, start, end: start + 0x1000, offset: 0x400, identity, path: path.into() });
    }

    fn exit(&mut self, tgid: u32, tid: u32) {
        self.event(Event::Exit { tgid, tid });
    }

    /// Sends all questions and waits for all answers.
    fn settle(&mut self, batch: &mut Batch) {
        let begun = Instant::now();
        let mut asked = self.table.send_questions();
        loop {
            // In this order, an answer that comes between the two calls is taken in the next round.
            let is_last = !self.table.is_expecting();
            let answers = self.table.answers(asked, Instant::now() + ProcessTable::patience(true));
            self.table.settle(self.time, answers, batch, |_| false);
            // Answers lead to new questions: a process's mappings to the build ids of its files.
            asked = self.table.send_questions();
            if is_last && !self.table.is_expecting() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no answers");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The frames of a sample, innermost last, and the name of its process.
    fn sample(&mut self, tgid: u32, name: &str, user: &[u64], flags: u8) -> (Vec<(String, Frame)>, String) {
        let mut batch = Batch::default();
        let kernel: &[u64] = if flags == 0 { &[] } else { &[0xffff_ffff_8100_0000, 0xffff_ffff_8100_1000] };
        let mut user = user.to_vec();
        if flags != IN_SYSCALL
            && let Some(leaf) = user.first_mut()
        {
            *leaf |= INTERRUPTED;
        }
        let bytes = record_bytes(self.time, tgid, name.as_bytes(), kernel, &user, flags);
        self.table.take(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
        self.settle(&mut batch);
        let frames = batch.frames.iter().filter_map(|id| self.names.frames.get(*id));
        let frames = frames.map(|frame| (self.names.objects.get(frame.object()).unwrap().path.to_string(), frame)).collect();
        (frames, self.names.labels.name(batch.samples[0].thread.process).to_string())
    }
}

#[test]
fn frames_are_in_the_file_that_was_mapped_and_say_what_kind_of_address_they_are() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/bin/prog", 1);
    let (frames, process) = world.sample(NOBODY, "prog", &[0x10010, 0x10020, 0x99999], 0);
    let expected = [
        ("[unmapped]".to_string(), Frame::Unmapped),
        ("/bin/prog".to_string(), Frame::File { object: frames[1].1.object(), offset: FileOffset(0x420), is_return: true }),
        ("/bin/prog".to_string(), Frame::File { object: frames[1].1.object(), offset: FileOffset(0x410), is_return: false }),
    ];
    assert_eq!(frames, expected);
    assert_eq!(process, "prog");
}

#[test]
fn a_stack_is_cut_at_the_first_caller_that_is_no_code() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/bin/prog", 1);
    let objects = |frames: Vec<(String, Frame)>| frames.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let (frames, _) = world.sample(NOBODY, "prog", &[0x10010, 0x10020, 0x1, 0x10030, 0x2], 0);
    assert_eq!(objects(frames), ["[unmapped]", "/bin/prog", "/bin/prog"]);
    // The first address is where the thread ran. Although it is unknown, its callers count.
    let (frames, _) = world.sample(NOBODY, "prog", &[0x1, 0x10020, 0x10030], 0);
    assert_eq!(objects(frames), ["/bin/prog", "/bin/prog", "[unmapped]"]);
}

#[test]
fn below_a_system_call_the_user_part_begins_with_a_return_address() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/bin/prog", 1);
    let returns = |frames: &[(String, Frame)]| frames.iter().map(|(_, frame)| frame.is_return()).collect::<Vec<_>>();
    let (frames, _) = world.sample(NOBODY, "prog", &[0x10010, 0x10020], IN_SYSCALL);
    assert_eq!(returns(&frames), [true, true, true, false]);
    let (frames, _) = world.sample(NOBODY, "prog", &[0x10010, 0x10020], records::KERNEL_CUT);
    assert_eq!(returns(&frames), [true, false, true, false]);
    assert_eq!(frames[3].1, Frame::Kernel { address: KernelAddress(0xffff_ffff_8100_0000), is_return: false });
}

#[test]
fn a_return_address_behind_the_last_byte_of_a_mapping_is_in_it() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/bin/prog", 1);
    let (frames, _) = world.sample(NOBODY, "prog", &[0x11000, 0x11000], 0);
    assert_eq!((frames[0].0.as_str(), frames[0].1.address()), ("/bin/prog", 0x1400));
    assert_eq!(frames[1].1.object(), ObjectId::UNMAPPED);
}

#[test]
fn a_child_has_its_parents_mappings_until_it_runs_another_program() {
    let mut world = World::new();
    let child = NOBODY + 1;
    world.exec(NOBODY, "shell");
    world.map(NOBODY, 0x10000, "/bin/sh", 1);
    world.fork(NOBODY, child);
    let (frames, process) = world.sample(child, "shell", &[0x10010], 0);
    assert_eq!((frames[0].0.as_str(), process.as_str()), ("/bin/sh", "shell"));
    assert_eq!(world.shared.get(&Tgid(child)).map(|process| process.parent), Some(Tgid(NOBODY)));
    world.exec(child, "make");
    world.map(child, 0x10000, "/bin/make", 2);
    let (frames, process) = world.sample(child, "make", &[0x10010], 0);
    assert_eq!((frames[0].0.as_str(), process.as_str()), ("/bin/make", "make"));
    let (frames, process) = world.sample(NOBODY, "shell", &[0x10010], 0);
    assert_eq!((frames[0].0.as_str(), process.as_str()), ("/bin/sh", "shell"));
}

#[test]
fn a_process_ends_with_its_last_thread_and_is_kept_for_late_samples() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/bin/prog", 1);
    world.fork(NOBODY, NOBODY);
    world.exit(NOBODY, NOBODY + 7);
    assert!(world.happened.exited.is_empty());
    world.exit(NOBODY, NOBODY);
    assert_eq!(world.happened.exited, [Tgid(NOBODY)]);
    assert_eq!(world.sample(NOBODY, "prog", &[0x10010], 0).0[0].0, "/bin/prog");
    let mut happened = Happened::default();
    world.table.tidy(world.time + SECOND, &mut happened);
    assert_eq!(world.table.states.len(), 1);
    world.table.tidy(world.time + 4 * SECOND, &mut happened);
    assert_eq!(world.table.states.len(), 0);
    // The process had a sample, so its name is still needed until that sample is gone.
    let exited = world.shared.get(&Tgid(NOBODY)).and_then(|process| process.exited).unwrap();
    world.table.forget_before(exited);
    assert!(world.shared.contains_key(&Tgid(NOBODY)));
    world.table.forget_before(Timestamp(exited.0 + 1));
    assert!(!world.shared.contains_key(&Tgid(NOBODY)));
}

#[test]
fn a_process_without_samples_is_forgotten_and_one_of_the_same_number_is_not() {
    let mut world = World::new();
    world.exec(NOBODY, "first");
    world.exit(NOBODY, NOBODY);
    world.fork(1, NOBODY);
    world.exec(NOBODY, "second");
    let mut happened = Happened::default();
    world.table.tidy(world.time + 4 * SECOND, &mut happened);
    assert_eq!(world.table.states[&NOBODY].comm, comm_bytes(b"second"));
    world.exit(NOBODY, NOBODY);
    world.table.tidy(world.time + 4 * SECOND, &mut happened);
    assert!(world.shared.get(&Tgid(NOBODY)).is_none());
    assert!(!world.table.states.contains_key(&NOBODY));
}

#[test]
fn a_process_whose_main_thread_left_and_whose_count_is_wrong_ends_when_its_number_is_free() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.fork(NOBODY, NOBODY);
    world.exit(NOBODY, NOBODY);
    assert!(world.happened.exited.is_empty());
    let mut happened = Happened::default();
    world.table.tidy(world.time, &mut happened);
    assert_eq!(happened.exited, [Tgid(NOBODY)]);
}

#[test]
fn after_lost_events_a_process_is_read_at_once_if_its_code_is_not_mapped() {
    let mut world = World::new();
    let (own, address) = (std::process::id(), comm_text as *const () as u64);
    let is_unmapped = |world: &mut World| {
        world.time += BEFORE_ANOTHER_READING;
        world.sample(own, "prog", &[address], 0).0[0].1 == Frame::Unmapped
    };
    world.exec(own, "prog");
    assert!(is_unmapped(&mut world), "no event has told of a mapping");
    world.event(Event::Full);
    assert!(!is_unmapped(&mut world));
    let read_at = world.table.states[&own].read_at;
    assert!(!is_unmapped(&mut world));
    assert_eq!(world.table.states[&own].read_at, read_at, "it is not read again while all is mapped");
}

#[test]
fn the_main_threads_name_is_the_processes_name() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    assert_eq!(world.sample(NOBODY, "prog", &[], 0).1, "prog");
    world.event(Event::Name { tgid: NOBODY, exec: false, comm: comm_bytes(b"renamed") });
    assert_eq!(world.sample(NOBODY, "renamed", &[], 0).1, "renamed");
    // An event may be lost. The sample of the main thread contains the name too.
    assert_eq!(world.sample(NOBODY, "again", &[], 0).1, "again");
}

#[test]
fn jit_code_is_its_processs_own_and_has_addresses() {
    let mut world = World::new();
    let (child, address) = (NOBODY + 1, 0x10010);
    let anonymous = |world: &mut World, tgid| world.map(tgid, 0x10000, "//anon", 1);
    world.exec(NOBODY, "node");
    anonymous(&mut world, NOBODY);
    let (frames, _) = world.sample(NOBODY, "node", &[address, address + 0x10], 0);
    let [(_, caller), (path, leaf)] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!((path.as_str(), leaf.address(), leaf.is_return()), ("[anon]", address, false));
    assert_eq!((caller.object(), caller.address(), caller.is_return()), (leaf.object(), address + 0x10, true));
    assert_eq!(world.names.objects.get(leaf.object()).map(|object| object.kind), Some(ObjectKind::Anonymous));
    assert_ne!(leaf.object(), ObjectId::ANONYMOUS);
    let object_of = |world: &mut World, tgid| world.sample(tgid, "node", &[address], 0).0[0].1.object();
    assert_eq!(object_of(&mut world, NOBODY), leaf.object());
    // From here on, a forked child generates its own code at the addresses where its parent generates other code.
    world.fork(NOBODY, child);
    let of_child = object_of(&mut world, child);
    assert_ne!(of_child, leaf.object());
    world.exec(child, "node");
    anonymous(&mut world, child);
    let of_next = object_of(&mut world, child);
    assert_ne!(of_next, of_child, "the same number, but another program");
    world.exit(child, child);
    world.fork(1, child);
    world.exec(child, "node");
    anonymous(&mut world, child);
    assert_ne!(object_of(&mut world, child), of_next, "the same number, but another process");
}

#[test]
fn mappings_without_end_are_bounded() {
    let mut world = World::new();
    world.exec(NOBODY, "jit");
    for number in 0..u64::try_from(MAX_MAPPINGS).unwrap() + 10 {
        world.map(NOBODY, number * 0x2000, "/dev/zero", 1);
    }
    assert!(world.table.states[&NOBODY].mappings.len() <= MAX_MAPPINGS);
}

/// A world in which `read` answers questions about processes.
fn world_with(read: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> World {
    let mut world = World::new();
    world.table.reader = ProcessReader::with(Box::new(read));
    world
}

/// Takes a sample of a process that was there before us, at address 0x10010.
fn sample_of(world: &mut World, tgid: u32, batch: &mut Batch) {
    let bytes = record_bytes(world.time, tgid, b"old", &[], &[0x10010 | INTERRUPTED], 0);
    world.table.take(&Record::parse(&bytes).unwrap(), &bytes, batch);
}

fn one_mapping() -> Reply {
    let identity = Identity::BuildId(BuildId::new(&[1; 20]).unwrap());
    let mapped = Mapped { start: 0x10000, end: 0x11000, offset: 0x400, identity, path: "/bin/old".into() };
    Reply::Mappings(Some(MappedList { mapped: vec![mapped], cut: false }))
}

#[test]
fn samples_wait_a_second_for_a_process_that_does_not_answer_and_others_do_not() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (silent, other) = (NOBODY, NOBODY + 1);
    let mut world = world_with(move |question| match &question.what {
        What::Mappings => {
            if question.tgid == silent {
                let _ = held.lock().unwrap().recv();
            }
            one_mapping()
        }
        _ => Reply::CommandLine(String::new()),
    });
    let mut batch = Batch::default();
    sample_of(&mut world, silent, &mut batch);
    sample_of(&mut world, other, &mut batch);
    assert!(batch.samples.is_empty(), "both wait");
    let settle = |world: &mut World, batch: &mut Batch, late: u64| {
        let asked = world.table.send_questions();
        let answers = world.table.answers(asked, Instant::now() + ProcessTable::patience(true));
        world.table.settle(world.time + late, answers, batch, |_| false);
    };
    let began = Instant::now();
    while batch.samples.is_empty() {
        assert!(began.elapsed().as_secs() < 60);
        settle(&mut world, &mut batch, 0);
    }
    assert_eq!(batch.samples.iter().map(|sample| sample.thread.tgid.0).collect::<Vec<_>>(), [other]);
    assert_eq!(world.table.unread().processes, 0);
    settle(&mut world, &mut batch, 2 * SECOND);
    let [_, late] = batch.samples.as_slice() else { panic!("{:?}", batch.samples) };
    assert_eq!((late.thread.tgid.0, late.user_end, late.frames.len()), (silent, UserEnd::Unread, 1));
    let unread = world.table.unread();
    assert_eq!((unread.processes, unread.samples), (1, 1), "{unread:?}");
    // Later samples do not wait for it. When it answers at last, its mappings are known.
    sample_of(&mut world, silent, &mut batch);
    assert_eq!(batch.samples.len(), 3);
    drop(release);
    while world.table.states[&silent].known != Known::Yes {
        assert!(began.elapsed().as_secs() < 60);
        settle(&mut world, &mut batch, 2 * SECOND);
    }
    sample_of(&mut world, silent, &mut batch);
    let object = batch.frames.last().and_then(|frame| world.names.objects.get(world.names.frames.get(*frame)?.object()));
    assert_eq!(object.map(|object| object.path.to_string()).as_deref(), Some("/bin/old"));
}

#[test]
fn a_copy_that_is_gone_before_it_is_read_has_its_parents_mappings() {
    let (parent, copy, other, stranger) = (NOBODY, NOBODY + 1, NOBODY + 2, NOBODY + 3);
    let mut world = world_with(move |question| match &question.what {
        What::Mappings if question.tgid == parent => one_mapping(),
        What::Mappings => Reply::Mappings(None),
        _ => Reply::CommandLine(String::new()),
    });
    let comm = |name: &str| comm_bytes(name.as_bytes());
    for (tgid, parent, comm, is_young_copy) in [
        (copy, parent, comm("old"), true),
        (parent, 1, comm("old"), false),
        (other, parent, comm("old"), false),
        (stranger, parent, comm("another"), true),
    ] {
        world.table.add_found(proc::FoundProcess { tgid, parent, threads: 1, comm, is_young_copy });
    }
    let mut seen = |tgid, name: &str| {
        let mut batch = Batch::default();
        let bytes = record_bytes(world.time, tgid, name.as_bytes(), &[], &[0x10010 | INTERRUPTED], 0);
        world.table.take(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
        world.settle(&mut batch);
        let object = world.names.frames.get(batch.frames[0]).and_then(|frame| world.names.objects.get(frame.object()));
        (batch.samples[0].user_end, object.unwrap().path.to_string())
    };
    assert_eq!(seen(copy, "old"), (UserEnd::FramePointerEnd, "/bin/old".to_owned()));
    // The mappings of the two further processes are not known, and their samples say so.
    assert_eq!(seen(other, "old"), (UserEnd::Unread, "[unmapped]".to_owned()));
    assert_eq!(seen(stranger, "another"), (UserEnd::Unread, "[unmapped]".to_owned()));
}

#[test]
fn in_the_midst_of_execve_a_program_without_mappings_says_that_its_registers_are_of_another() {
    let mut world = World::new();
    world.exec(NOBODY, "new");
    let mut ends = |walked: UserEnd| {
        let mut bytes = record_bytes(world.time, NOBODY, b"new", &[], &[0x10010 | INTERRUPTED], 0);
        bytes = Record::with_user(&bytes, &[], 1, walked).unwrap();
        let mut batch = Batch::default();
        world.table.take(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
        world.settle(&mut batch);
        (batch.samples[0].user_end, batch.frames.len())
    };
    assert_eq!(ends(UserEnd::Registers), (UserEnd::Registers, 1));
    assert_eq!(ends(UserEnd::Root), (UserEnd::Unread, 1));
}

#[test]
fn samples_that_wait_are_bounded_by_user() {
    let (_release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let mut world = world_with(move |_| {
        let _ = held.lock().unwrap().recv();
        one_mapping()
    });
    let mut batch = Batch::default();
    for _ in 0..100_000 {
        sample_of(&mut world, NOBODY, &mut batch);
    }
    // The records of tests are root's: 8 MB may wait, about 150 bytes each.
    let waiting = 100_000 - batch.samples.len();
    assert!((40_000..90_000).contains(&waiting), "{waiting}");
    assert_eq!(world.table.unread().samples, u64::try_from(batch.samples.len()).unwrap());
}

#[test]
fn an_answer_about_another_program_of_that_number_is_none() {
    let mut world = world_with(|question| match &question.what {
        What::Mappings => one_mapping(),
        _ => Reply::CommandLine(String::new()),
    });
    let mut batch = Batch::default();
    sample_of(&mut world, NOBODY, &mut batch);
    world.table.send_questions();
    world.exec(NOBODY, "new");
    let began = Instant::now();
    while batch.samples.is_empty() {
        assert!(began.elapsed().as_secs() < 60);
        let answers = world.table.answers(false, Instant::now());
        world.table.settle(world.time, answers, &mut batch, |_| false);
    }
    assert_eq!(batch.samples[0].user_end, UserEnd::Changing, "where it was is not known any more");
    assert_eq!(world.table.states[&NOBODY].mappings.len(), 0);
}

#[test]
fn an_address_that_was_mapped_anew_while_a_sample_waited_is_unknown_and_all_others_are_known() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    // The mappings that are read already contain the new library.
    let list = || {
        let piece = |start, path: &str, id| {
            let identity = Identity::BuildId(BuildId::new(&[id; 20]).unwrap());
            Mapped { start, end: start + 0x1000, offset: 0x400, identity, path: path.into() }
        };
        let mapped = vec![piece(0x10000, "/bin/prog", 1), piece(0x20000, "/lib/new.so", 3)];
        Reply::Mappings(Some(MappedList { mapped, cut: false }))
    };
    let mut world = world_with(move |question| match question.what {
        What::Mappings => {
            let _ = held.lock().unwrap().recv();
            list()
        }
        _ => Reply::CommandLine(String::new()),
    });
    let mut batch = Batch::default();
    let user = [0x20010 | INTERRUPTED, 0x10010, 0x10020];
    let bytes = record_bytes(world.time, NOBODY, b"prog", &[], &user, 0);
    world.table.take(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
    assert!(batch.samples.is_empty(), "it waits");
    world.map(NOBODY, 0x20000, "/lib/new.so", 3);
    // All addresses of a later sample are known.
    world.table.take(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
    drop(release);
    world.settle(&mut batch);
    let path =
        |frame: &FrameId| world.names.objects.get(world.names.frames.get(*frame).unwrap().object()).unwrap().path.to_string();
    let stacks: Vec<Vec<String>> =
        batch.samples.iter().map(|sample| batch.frames[sample.frames.clone()].iter().map(path).collect()).collect();
    assert_eq!(stacks, [["/bin/prog", "/bin/prog", "[unmapped]"], ["/bin/prog", "/bin/prog", "/lib/new.so"]]);
    assert_eq!(batch.samples[0].user_end, UserEnd::Changing);
    assert_ne!(batch.samples[1].user_end, UserEnd::Changing);
    assert!(!world.table.remapped.is_any());
}

#[test]
fn names_that_only_events_tell_make_no_labels() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    let before = world.names.labels.len();
    for number in 0..1000 {
        let comm = comm_bytes(format!("name {number}").as_bytes());
        world.event(Event::Name { tgid: NOBODY, exec: false, comm });
        world.fork(NOBODY, NOBODY + 1);
        world.exec(NOBODY + 1, &format!("other {number}"));
    }
    assert_eq!(world.names.labels.len(), before);
    assert_eq!(world.sample(NOBODY, "name 999", &[], 0).1, "name 999");
}

#[test]
fn with_other_names_all_ids_are_made_anew() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/bin/prog", 1);
    let user = [0x10010, 0x10020, 0x99999];
    let before = world.sample(NOBODY, "prog", &user, records::KERNEL_CUT);
    world.names = Arc::default();
    // Fills the new tables, so that new ids differ from the old ids.
    (0..100).for_each(|number| {
        world.names.labels.intern(&format!("{number}"), "", FrameKind::User);
        world.names.intern_frame(Frame::Kernel { address: KernelAddress(number), is_return: false });
    });
    world.table.use_names(Arc::clone(&world.names));
    let after = world.sample(NOBODY, "prog", &user, records::KERNEL_CUT);
    let paths = |sample: &(Vec<(String, Frame)>, String)| {
        sample.0.iter().map(|(path, frame)| (path.clone(), frame.address())).collect::<Vec<_>>()
    };
    assert_eq!((paths(&after), &after.1), (paths(&before), &before.1));
    let kernel =
        world.names.frames.ids().filter(|frame| world.names.frames.get(*frame).is_some_and(|f| f.object() == ObjectId::KERNEL));
    assert_eq!(kernel.count(), 102, "also those of the kernel");
}

#[test]
fn mappings_are_bounded_over_all_processes_and_read_again() {
    let mut world = World::new();
    world.table.bounds = Bounds::of(8 << 20);
    for number in 0..60 {
        let tgid = NOBODY + number;
        world.exec(tgid, "many");
        let count = if number == 0 { 3 } else { 2_000 };
        (0..count).for_each(|at| world.map(tgid, 0x10000 + at * 0x3000, "/bin/many", 1));
    }
    let mut happened = Happened::default();
    world.table.tidy(world.time, &mut happened);
    assert!(world.table.mappings_memory > 1 << 20, "{}", world.table.mappings_memory);
    world.table.tidy(world.time, &mut happened);
    assert!(world.table.mappings_memory < 100_000, "{}", world.table.mappings_memory);
    assert_eq!(world.table.unread().forgotten, 1);
    assert_eq!((world.table.states[&NOBODY].mappings.len(), world.table.states[&NOBODY].known), (3, Known::Yes));
    assert_eq!((world.table.states[&(NOBODY + 1)].mappings.len(), world.table.states[&(NOBODY + 1)].known), (0, Known::No));
}

#[test]
fn mappings_that_forks_share_count_once() {
    let mut world = World::new();
    world.exec(NOBODY, "server");
    (0..2_000).for_each(|at| world.map(NOBODY, 0x10000 + at * 0x3000, "/bin/server", 1));
    (1..100).for_each(|number| world.fork(NOBODY, NOBODY + number));
    world.table.tidy(world.time, &mut Happened::default());
    assert!(world.table.mappings_memory <= 2_000 * size_of::<Mapping>(), "{}", world.table.mappings_memory);
    assert!(world.table.memory() > world.table.mappings_memory);
}

#[test]
fn functions_of_interpreters_are_bounded_over_all_processes_and_forks_share_them() {
    let mut world = World::new();
    world.table.bounds = Bounds::of(32 << 20);
    let code = || {
        Code::Python(python::Code { name: "name".repeat(100), file: "/file".repeat(100), first_line: 1, lines: Lines::default() })
    };
    let functions = |count: u64| FunctionsRead {
        functions: (0..count).map(|at| ((at, 1), Some(code()))).collect(),
        ..FunctionsRead::default()
    };
    for (number, count) in [(0, 2), (1, 1000)] {
        world.exec(NOBODY + number, "python3");
        world.table.told_functions(NOBODY + number, UserId(NOBODY), functions(count), world.time);
    }
    (2..100).for_each(|number| world.fork(NOBODY + 1, NOBODY + number));
    let known = |world: &World, number| world.table.states[&(NOBODY + number)].scripts.functions.get(&(1, 1)).is_some();
    let mut happened = Happened::default();
    world.table.tidy(world.time, &mut happened);
    assert!((1_000_000..1_500_000).contains(&world.table.functions_memory), "{}", world.table.functions_memory);
    assert!(known(&world, 0) && known(&world, 1) && known(&world, 99), "there is room for all");
    world.table.bounds = Bounds::of(64 << 10);
    (0..2).for_each(|_| world.table.tidy(world.time, &mut happened));
    assert!(known(&world, 0) && !known(&world, 1), "who has most is read again");
    assert!(world.table.functions_memory < 4096, "{}", world.table.functions_memory);
}

#[test]
fn a_users_many_small_processes_take_no_functions_from_anothers_large_one() {
    let mut world = World::new();
    let code =
        || Code::Python(python::Code { name: "name".into(), file: "/file".repeat(100), first_line: 1, lines: Lines::default() });
    let functions = |count: u64| FunctionsRead {
        functions: (0..count).map(|at| ((at, 1), Some(code()))).collect(),
        ..FunctionsRead::default()
    };
    for number in 0..100 {
        let (user, count) = if number == 0 { (UserId(0), 1000) } else { (UserId(NOBODY), 20) };
        world.exec(NOBODY + number, "python3");
        world.table.states.get_mut(&(NOBODY + number)).unwrap().user = user;
        world.table.told_functions(NOBODY + number, user, functions(count), world.time);
    }
    // The bound is half of the bytes that they have together.
    world.table.bounds = Bounds::of(16 << 20);
    (0..3).for_each(|_| world.table.tidy(world.time, &mut Happened::default()));
    let known = |number| world.table.states[&(NOBODY + number)].scripts.functions.get(&(1, 1)).is_some();
    assert!(known(0) && (1..100).all(|number| !known(number)));
}

mod command_lines;
mod files;
mod interpreters;
mod moved;
