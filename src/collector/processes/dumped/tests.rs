//! Samples that wait for tables, with made-up events and rules.

use crate::collector::wire::records::ObjectKey;
use std::sync::Arc;

use super::*;
use crate::collector::wire::perf_records::{Event, Timed, comm_bytes};
use crate::collector::wire::records::HAS_DUMP;
use crate::collector::wire::records::tests::record_bytes;
use crate::profile::{BuildId, Names, Processes};
use crate::unwind::Packed;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Ra, Rbx, Rule};
use crate::unwind::walk::{Piece, Registers};

/// Above the kernel's PID_MAX_LIMIT, so that nothing is found in /proc.
const PROCESS: u32 = 5_000_000;
const SECOND: u64 = 1_000_000_000;
const STACK: u64 = 0x7000;

/// The table of one file, once it is loaded: up to offset 0x417 a function with a return address at its stack pointer, then a root.
struct OneTable {
    is_known: bool,
    is_there: bool,
}

const KEY: ObjectKey = ObjectKey { inode: 7, device: 1, generation: 0 };

impl RuleSource for OneTable {
    fn key_of(&mut self, path: &str, _: Identity, _: UserId) -> Option<ObjectKey> {
        (self.is_known && path == "/bin/prog").then_some(KEY)
    }

    fn at(&mut self, key: ObjectKey, _: UserId, offset: u64) -> RuleAt {
        assert_eq!(key, KEY);
        let leaf = Frame {
            cfa: Cfa::Register(Arch::OWN.sp(), 16),
            ra: Ra::AtCfa(-8),
            fp: Fp::Unchanged,
            rbx: Rbx::Unknown,
            interrupted: false,
            skips: false,
        };
        let rule = if offset < 0x418 { Rule::Frame(leaf) } else { Rule::Root };
        if self.is_there { RuleAt::Rule(Packed::new(rule, Arch::OWN).unwrap()) } else { RuleAt::NotYet }
    }
}

struct World {
    table: ProcessTable,
    names: Arc<Names>,
    time: u64,
}

impl World {
    /// A process whose program is `/bin/prog`, mapped at 0x10000.
    fn new() -> World {
        let (names, shared) = (Arc::new(Names::default()), Arc::new(Processes::default()));
        let mut world = World { table: ProcessTable::new(names.clone(), shared), names, time: 100 * SECOND };
        world.run("/bin/prog");
        world
    }

    fn event(&mut self, event: Event) {
        self.time += 1;
        self.table.apply(Timed { time: self.time, event }, &mut crate::collector::processes::table::Happened::default());
    }

    fn run(&mut self, path: &str) {
        self.event(Event::Name { tgid: PROCESS, exec: true, comm: comm_bytes(b"prog") });
        let identity = Identity::BuildId(BuildId::new(&[1; 20]).unwrap());
        self.event(Event::Map { tgid: PROCESS, start: 0x10000, end: 0x11000, offset: 0x400, identity, path: path.into() });
    }

    /// Takes a sample at 0x10010, called from 0x10020. The kernel has found only the first frame.
    fn sample(&mut self, rules: &mut OneTable, batch: &mut Batch) {
        let bytes = record_bytes(self.time, PROCESS, b"prog", &[], &[1 << 56 | 0x10010], HAS_DUMP);
        let mut values = [0; 32];
        values[usize::from(Arch::OWN.sp().0)] = STACK;
        let registers =
            Registers { pc: 0x10010, values, valid: 1 << Arch::OWN.sp().0, is_return: false, guessed: false, switches: 0 };
        let bytes_of_stack = [1u64, 0x10020].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let stack = vec![Piece { start: STACK, bytes: bytes_of_stack }];
        let dump = StackDump { of: (3, self.time), registers, key: None, frames: 0, stack };
        self.table.take_dumped(&Record::parse(&bytes).unwrap(), &bytes, dump, rules, batch);
    }

    /// The number of user frames, their file, and the end of each sample.
    fn stacks(&self, batch: &Batch) -> Vec<(usize, String, UserEnd)> {
        let stack = |sample: &super::super::super::Collected| {
            let leaf = self.names.frames.get(batch.frames[sample.frames.end - 1]).unwrap();
            (sample.frames.len(), self.names.objects.get(leaf.object()).unwrap().path.to_string(), sample.user_end)
        };
        batch.samples.iter().map(stack).collect()
    }
}

#[test]
fn a_sample_is_whole_when_its_table_has_come() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    let mut rules = OneTable { is_known: true, is_there: false };
    world.sample(&mut rules, &mut batch);
    let first = world.time;
    world.table.settle_dumped(first + SECOND, 1, false, &mut rules, &mut batch);
    assert!(batch.samples.is_empty() && world.table.is_any_dumped());
    rules.is_there = true;
    // Nothing is tried until the tables change.
    world.table.settle_dumped(first + SECOND, 1, false, &mut rules, &mut batch);
    assert!(batch.samples.is_empty());
    world.table.settle_dumped(first + SECOND, 2, false, &mut rules, &mut batch);
    assert_eq!(world.stacks(&batch), [(2, "/bin/prog".to_owned(), UserEnd::Root)]);
    assert_eq!(batch.samples[0].time.0, first);
    assert_eq!(world.table.dump_counts(), DumpCounts { dumped: 1, whole: 1, ..DumpCounts::default() });
    assert!(!world.table.is_any_dumped() && world.table.dumped.memory() == 0);
}

#[test]
fn a_sample_whose_table_is_there_by_now_does_not_wait() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    world.sample(&mut OneTable { is_known: true, is_there: true }, &mut batch);
    assert_eq!(world.stacks(&batch), [(2, "/bin/prog".to_owned(), UserEnd::Root)]);
}

#[test]
fn a_sample_whose_table_does_not_come_is_taken_as_the_kernel_walked_it() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    let mut rules = OneTable { is_known: false, is_there: false };
    world.sample(&mut rules, &mut batch);
    let requests = world.table.take_requests();
    assert_eq!(requests.iter().map(|request| &*request.path).collect::<Vec<_>>(), ["/bin/prog"]);
    world.table.settle_dumped(world.time + PATIENCE, 0, false, &mut rules, &mut batch);
    assert_eq!(world.stacks(&batch), [(1, "/bin/prog".to_owned(), UserEnd::FramePointerEnd)]);
    assert_eq!(world.table.dump_counts(), DumpCounts { dumped: 1, late: 1, ..DumpCounts::default() });
}

#[test]
fn at_the_end_nothing_waits() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    let mut rules = OneTable { is_known: true, is_there: false };
    world.sample(&mut rules, &mut batch);
    world.table.settle_dumped(world.time, 0, true, &mut rules, &mut batch);
    assert_eq!(batch.samples.len(), 1);
}

#[test]
fn a_process_that_runs_another_program_by_now_is_walked_as_it_was() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    let mut rules = OneTable { is_known: true, is_there: false };
    world.sample(&mut rules, &mut batch);
    world.run("/bin/other");
    rules.is_there = true;
    world.table.settle_dumped(world.time, 1, false, &mut rules, &mut batch);
    assert_eq!(world.stacks(&batch), [(2, "/bin/prog".to_owned(), UserEnd::Root)]);
    // Afterwards the process has its present state again.
    let bytes = record_bytes(world.time, PROCESS, b"prog", &[], &[1 << 56 | 0x10010], 0);
    let mut batch = Batch::default();
    world.table.take(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
    assert_eq!(world.stacks(&batch), [(1, "/bin/other".to_owned(), UserEnd::FramePointerEnd)]);
}

#[test]
fn a_process_that_was_forgotten_by_now_is_walked_as_it_was() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    let mut rules = OneTable { is_known: true, is_there: false };
    world.sample(&mut rules, &mut batch);
    world.event(Event::Exit { tgid: PROCESS, tid: PROCESS });
    let later = world.time + 2 * crate::collector::processes::tidy::KEEP_EXITED;
    world.table.tidy(later, &mut crate::collector::processes::table::Happened::default());
    assert!(!world.table.states.contains_key(&PROCESS));
    rules.is_there = true;
    world.table.settle_dumped(world.time, 1, false, &mut rules, &mut batch);
    assert_eq!(world.stacks(&batch), [(2, "/bin/prog".to_owned(), UserEnd::Root)]);
    assert!(!world.table.states.contains_key(&PROCESS));
    // A sample that waited for something else is not lost either.
    let bytes = record_bytes(world.time, PROCESS, b"prog", &[], &[1 << 56 | 0x10010], 0);
    world.table.place(&Record::parse(&bytes).unwrap(), &bytes, &mut batch);
    assert_eq!((batch.samples.len(), batch.samples[1].user_end), (2, UserEnd::Unread));
    assert!(!world.table.states.contains_key(&PROCESS));
}

#[test]
fn samples_that_wait_are_bounded() {
    let (mut world, mut batch) = (World::new(), Batch::default());
    let mut rules = OneTable { is_known: true, is_there: false };
    while world.table.dump_counts().refused == 0 {
        world.sample(&mut rules, &mut batch);
        assert!(world.table.dumped.memory() <= crate::collector::processes::dumps::MAX_BYTES_OF_ROOT);
    }
    assert_eq!(batch.samples.len(), 1);
    assert!(world.table.dumped.memory() > crate::collector::processes::dumps::MAX_BYTES_OF_ROOT / 2);
}

#[test]
fn registers_and_the_copied_bytes_are_read_from_a_dump() {
    let mut bytes = vec![0u8; 312 + 32 * 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &5u64.to_ne_bytes());
    put(8, &0x1234u64.to_ne_bytes());
    put(16, &3u32.to_ne_bytes());
    put(20, &0xffu32.to_ne_bytes());
    // Pages 0 and 1; 3; the first two of the far end.
    put(24, &(0b1011u32 | 0b11 << 17).to_ne_bytes());
    put(28, &9u16.to_ne_bytes());
    put(30, &[1, 1, 2]);
    put(36, &100u16.to_ne_bytes());
    put(40, &77u64.to_ne_bytes());
    put(48, &8u32.to_ne_bytes());
    put(52, &3u32.to_ne_bytes());
    put(56 + 8 * 7, &0x7fff_0020u64.to_ne_bytes());
    put(312 + 0x20, &0xabcdu64.to_ne_bytes());
    put(312 + 17 * 4096, &0xef01u64.to_ne_bytes());
    let dump = StackDump::parse(&bytes, 7).unwrap();
    let pieces: Vec<(u64, usize)> = dump.stack.iter().map(|piece| (piece.start, piece.bytes.len())).collect();
    assert_eq!((dump.of, dump.frames), ((3, 5), 9));
    assert_eq!(pieces, [(0x7fff_0020, 0x2000 - 0x20), (0x7fff_3000, 0x1000), (0x7fff_0000 + 100 * 0x1000, 0x2000)]);
    assert_eq!(dump.stack[0].bytes[..8], 0xabcdu64.to_ne_bytes());
    assert_eq!(dump.stack[2].bytes[..8], 0xef01u64.to_ne_bytes());
    assert_eq!(dump.key, Some(ObjectKey { inode: 77, device: 8, generation: 3 }));
    let Registers { pc, valid, is_return, guessed, switches, .. } = dump.registers;
    assert_eq!((pc, valid, is_return, guessed, switches), (0x1234, 0xff, true, true, 2));
    let mut short = dump;
    short.shorten(64);
    assert_eq!((short.stack.len(), short.stack_bytes()), (1, 64));
    // More pages than there are.
    assert!(StackDump::parse(&bytes[..312 + 17 * 4096], 7).is_none());
    // No page could be read.
    bytes[24..28].copy_from_slice(&[0; 4]);
    assert!(StackDump::parse(&bytes, 7).unwrap().stack.is_empty());
    assert!(StackDump::parse(&bytes[..300], 7).is_none());
}
