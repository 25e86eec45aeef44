//! Parses the ring buffer's bytes into typed records: the Rust side of `bpf/record.h`.
//!
//! Promises: any bytes give a record or `None`, never a panic, and are not copied. Numbers are in the machine's byte order.

use crate::object::io_timeout::FailureDomain;
use std::mem::offset_of;

use super::script::Script;
use crate::object::numbers::{array_at, u16_at, u32_at, u64_at};
use crate::profile::{FileNamespace, UserEnd, UserId};
use crate::unwind::walk::{Piece, Registers, WalkedFrame};

/// Length of a task's name, including its zero bytes: `TASK_COMM_LEN`.
pub(crate) const COMM_LENGTH: usize = 16;

/// Most frames of a walk by the kernel: `MAX_KERNEL_FRAMES`.
pub(crate) const MAX_FRAMES: u32 = 127;

/// Kinds of records: `enum record_kind`.
const COMPARED: u8 = 1;
const WAIT: u8 = 3;
const WISH: u8 = 255;

/// Bits in the upper byte of a user frame: `enum frame_bits`.
const FRAME_BITS_SHIFT: u32 = 56;
const FRAME_INTERRUPTED: u64 = 1;
const FRAME_GUESSED: u64 = 2;

/// The kernel stack lacks its outer side: `SAMPLE_KERNEL_CUT`.
pub(crate) const KERNEL_CUT: u8 = 1;

/// A dump of the sample's stack was sent before: `SAMPLE_HAS_DUMP`.
pub(crate) const HAS_DUMP: u8 = 2;

/// The stack was not dumped, because budget or room was lacking: `SAMPLE_DUMP_REFUSED`.
pub(crate) const DUMP_REFUSED: u8 = 4;

/// The CPU time of the thread's cgroup was used up when it left the CPU: `SAMPLE_QUOTA`.
const QUOTA: u8 = 16;

/// The wait had not ended: `SAMPLE_ASLEEP`.
const ASLEEP: u8 = 32;

/// Then: it waits for a disk, as the kernel counts it: `SAMPLE_IO`.
const IO: u8 = 64;

/// And: signals do not end the wait: `SAMPLE_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u8 = 128;

/// `RECORD_SLEEPS_ON`.
const SLEEPS_ON: u8 = 253;

/// The functions of an interpreter were sent before: `SAMPLE_HAS_SCRIPT`. Their record follows the sample's own bytes.
pub(crate) const HAS_SCRIPT: u8 = 8;

/// Most bytes of a stack dump.
pub(crate) const MAX_DUMP: usize = size_of::<StackDumpRecord>();

/// Bytes of a page of a dump, and the highest numbers of pages: `DUMP_PAGE`, `LARGE_DUMP_PAGES`, `FAR_DUMP_PAGES`.
const DUMP_PAGE: usize = 4096;
const LARGE_DUMP_PAGES: usize = 17;
const FAR_DUMP_PAGES: usize = 15;

/// Identity of a file's content, from the kernel: `struct object_key`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ObjectKey {
    pub(crate) inode: u64,
    pub(crate) device: u32,
    pub(crate) generation: u32,
}

impl ObjectKey {
    /// The key of the vDSO, which has no file.
    pub(crate) const VDSO: ObjectKey = ObjectKey { inode: 0, device: 0, generation: 0 };
    /// In a request: which file's code is in this anonymous mapping? `GENERATION_OF_MOVED` of bpf/record.h.
    pub(crate) const MOVED: ObjectKey = ObjectKey { inode: 0, device: 0, generation: 1 };

    /// In a request: bring the code at this address into memory. `GENERATION_OF_CODE` of bpf/record.h.
    pub(crate) const CODE: ObjectKey = ObjectKey { inode: 0, device: 0, generation: 2 };

    /// Returns the key of a file. `device` is the superblock's number in the encoding of stat.
    pub(crate) fn new(device: u64, inode: u64, generation: u32) -> ObjectKey {
        ObjectKey { inode, device: rustix::fs::major(device) << 20 | rustix::fs::minor(device), generation }
    }

    /// Returns the superblock's number in the encoding of stat.
    pub(crate) fn device(self) -> u64 {
        // In the kernel's own encoding, the lower 20 bits are the minor number.
        rustix::fs::makedev(self.device >> 20, self.device & 0xf_ffff)
    }

    /// Returns the failure domain of the file: its device.
    pub(crate) fn place(self) -> FailureDomain {
        FailureDomain::device(self.device())
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (inode, rest) = bytes.split_at_mut(8);
        let (device, generation) = rest.split_at_mut(4);
        inode.copy_from_slice(&self.inode.to_ne_bytes());
        device.copy_from_slice(&self.device.to_ne_bytes());
        generation.copy_from_slice(&self.generation.to_ne_bytes());
        bytes
    }
}

/// `struct sample_header`, used for its offsets.
#[repr(C)]
struct SampleHeader {
    time: u64,
    cgroup: u64,
    tgid: u32,
    tid: u32,
    cpu: u32,
    kernel_frames: u16,
    user_frames: u16,
    comm: [u8; COMM_LENGTH],
    user_end: u8,
    kind: u8,
    flags: u8,
    source: u8,
    wanted: u32,
    uid: u32,
    files: u32,
    weight: u64,
}

/// `struct event`: the counts of a source on one CPU.
#[repr(C)]
struct Event {
    count: u64,
    reported: u64,
    next: u64,
    mark: u64,
    taken: u64,
    busy: u64,
    ring_full: u64,
    cut: u64,
    epoch: u32,
    period: u32,
    tokens: u32,
    skipped: u32,
    own: u64,
    waits: u64,
    unknown: u64,
    switched: u64,
    asleep: u64,
    cuts: u64,
}

/// `struct counters`: the outcome of each tick.
#[repr(C)]
struct Counters {
    taken: u64,
    idle: u64,
    filtered: u64,
    ring_full: u64,
    own: u64,
    user_frames: u64,
    mapping_misses: u64,
    rule_misses: u64,
    guesses: u64,
    retraced: u64,
    moved: u64,
    reserved: [u64; 5],
}

/// `struct wish`, used for its offsets.
#[repr(C)]
struct WishRecord {
    time: u64,
    start: u64,
    tgid: u32,
    tid: u32,
    end: u64,
    inode: u64,
    device: u32,
    generation: u32,
    reserved: u8,
    kind: u8,
    reserved2: [u8; 6],
    uid: u32,
    files: u32,
}

/// `struct stack_dump`, used for its offsets.
#[repr(C)]
struct StackDumpRecord {
    time: u64,
    pc: u64,
    cpu: u32,
    valid: u32,
    copied: u32,
    frames: u16,
    is_return: u8,
    guessed: u8,
    switches: u8,
    reserved: [u8; 3],
    far: u16,
    reserved2: u16,
    inode: u64,
    device: u32,
    generation: u32,
    regs: [u64; 32],
    stack: [u8; (LARGE_DUMP_PAGES + FAR_DUMP_PAGES) * DUMP_PAGE],
}

/// `struct fork_counters`.
#[repr(C)]
struct ForkCounters {
    followed: u64,
    targets_full: u64,
}

// These assertions are also in bpf/record.h.
const _: () = {
    assert!(offset_of!(SampleHeader, time) == 0);
    assert!(offset_of!(SampleHeader, cgroup) == 8);
    assert!(offset_of!(SampleHeader, tgid) == 16);
    assert!(offset_of!(SampleHeader, tid) == 20);
    assert!(offset_of!(SampleHeader, cpu) == 24);
    assert!(offset_of!(SampleHeader, kernel_frames) == 28);
    assert!(offset_of!(SampleHeader, user_frames) == 30);
    assert!(offset_of!(SampleHeader, comm) == 32);
    assert!(offset_of!(SampleHeader, user_end) == 48);
    assert!(offset_of!(SampleHeader, kind) == 49);
    assert!(offset_of!(SampleHeader, flags) == 50);
    assert!(offset_of!(SampleHeader, source) == 51);
    assert!(size_of::<Event>() == 128);
    assert!(offset_of!(SampleHeader, uid) == 56);
    assert!(offset_of!(SampleHeader, files) == 60);
    assert!(offset_of!(SampleHeader, weight) == 64);
    assert!(HEADER == 72);
    assert!(offset_of!(WishRecord, start) == 8);
    assert!(offset_of!(WishRecord, tgid) == 16);
    assert!(offset_of!(WishRecord, end) == 24);
    assert!(offset_of!(WishRecord, inode) == 32);
    assert!(offset_of!(WishRecord, device) == 40);
    assert!(offset_of!(WishRecord, kind) == offset_of!(SampleHeader, kind));
    assert!(offset_of!(WishRecord, uid) == offset_of!(SampleHeader, uid));
    assert!(offset_of!(WishRecord, files) == offset_of!(SampleHeader, files));
    assert!(size_of::<WishRecord>() == 64);
    assert!(offset_of!(StackDumpRecord, cpu) == 16);
    assert!(offset_of!(StackDumpRecord, copied) == 24);
    assert!(offset_of!(StackDumpRecord, frames) == 28);
    assert!(offset_of!(StackDumpRecord, is_return) == 30);
    assert!(offset_of!(StackDumpRecord, switches) == 32);
    assert!(offset_of!(StackDumpRecord, far) == 36);
    assert!(offset_of!(StackDumpRecord, inode) == 40);
    assert!(offset_of!(StackDumpRecord, regs) == 56);
    assert!(offset_of!(StackDumpRecord, stack) == 312);
    assert!(size_of::<Counters>() == 128);
    assert!(size_of::<ForkCounters>() == 16);
};

const HEADER: usize = size_of::<SampleHeader>();

/// One sample, in the layout of the ring buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    /// The task's cgroup.
    pub(crate) cgroup: u64,
    /// The process.
    pub(crate) tgid: u32,
    /// The thread.
    pub(crate) tid: u32,
    /// The CPU.
    pub(crate) cpu: u32,
    /// The thread's name, ended by a zero byte.
    pub(crate) comm: [u8; COMM_LENGTH],
    /// The number of a `UserEnd`.
    pub(crate) user_end: u8,
    /// Bits of `enum sample_flags`.
    pub(crate) flags: u8,
    /// Whether this is the sample before, walked in another way for comparison.
    pub(crate) compared: bool,
    /// Whether it was taken at the end of a wait: its weight is in nanoseconds.
    pub(crate) is_wait: bool,
    /// The source of the event; 0 is the clock.
    pub(crate) source: u8,
    /// Its weight, in the unit of its source.
    pub(crate) weight: u64,
    /// The part of a wait's weight in which the thread could have run, in 2⁻³².
    wanted: u32,
    /// The user who is charged for the task.
    pub(crate) uid: UserId,
    /// The namespace in which its paths name files.
    pub(crate) files: FileNamespace,
    kernel: &'a [u8],
    user: &'a [u8],
    script: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Parses the record in `bytes`. Returns `None` if its frame counts contradict its length.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let kernel_frames = usize::from(u16_at(bytes, offset_of!(SampleHeader, kernel_frames))?);
        let user_frames = usize::from(u16_at(bytes, offset_of!(SampleHeader, user_frames))?);
        let flags = *bytes.get(offset_of!(SampleHeader, flags))?;
        let (frames, script) = bytes.get(HEADER..)?.split_at_checked((kernel_frames + user_frames) * 8)?;
        if !script.is_empty() && flags & HAS_SCRIPT == 0 {
            return None;
        }
        let (kernel, user) = frames.split_at_checked(kernel_frames * 8)?;
        Some(Record {
            time: Record::time_of(bytes)?,
            cgroup: u64_at(bytes, offset_of!(SampleHeader, cgroup))?,
            tgid: u32_at(bytes, offset_of!(SampleHeader, tgid))?,
            tid: u32_at(bytes, offset_of!(SampleHeader, tid))?,
            cpu: u32_at(bytes, offset_of!(SampleHeader, cpu))?,
            comm: array_at(bytes, offset_of!(SampleHeader, comm))?,
            user_end: *bytes.get(offset_of!(SampleHeader, user_end))?,
            flags,
            source: *bytes.get(offset_of!(SampleHeader, source))?,
            weight: u64_at(bytes, offset_of!(SampleHeader, weight))?,
            wanted: u32_at(bytes, offset_of!(SampleHeader, wanted))?,
            uid: UserId(u32_at(bytes, offset_of!(SampleHeader, uid))?),
            files: FileNamespace(u32_at(bytes, offset_of!(SampleHeader, files))?),
            compared: bytes.get(offset_of!(SampleHeader, kind)) == Some(&COMPARED),
            is_wait: bytes.get(offset_of!(SampleHeader, kind)) == Some(&WAIT),
            kernel,
            user,
            script: Some(script).filter(|script| !script.is_empty()),
        })
    }

    /// Tells whether a sample still lacks the record of its interpreter's functions.
    pub(crate) fn wants_script(bytes: &[u8]) -> bool {
        bytes.get(offset_of!(SampleHeader, flags)).is_some_and(|flags| flags & HAS_SCRIPT != 0)
    }

    /// Returns the thread, if this is the sample of a wait that had not ended.
    pub(crate) fn asleep(bytes: &[u8]) -> Option<u32> {
        let is_asleep = bytes.get(offset_of!(SampleHeader, flags)).is_some_and(|flags| flags & ASLEEP != 0);
        u32_at(bytes, offset_of!(SampleHeader, tid)).filter(|_| is_asleep)
    }

    /// Returns the thread, if these bytes only say that it has waited longer.
    pub(crate) fn sleeps_on(bytes: &[u8]) -> Option<u32> {
        let is_it = bytes.get(offset_of!(SampleHeader, kind)) == Some(&SLEEPS_ON);
        u32_at(bytes, offset_of!(SampleHeader, tid)).filter(|_| is_it)
    }

    /// Returns the bytes of the last sample of a wait, with the time and the weight of `later`, the record of a longer wait.
    pub(crate) fn repeated(last: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let mut new = last.to_vec();
        for member in [
            offset_of!(SampleHeader, time)..offset_of!(SampleHeader, cgroup),
            offset_of!(SampleHeader, wanted)..offset_of!(SampleHeader, uid),
            offset_of!(SampleHeader, weight)..HEADER,
        ] {
            new.get_mut(member.clone())?.copy_from_slice(later.get(member)?);
        }
        Some(new)
    }

    /// Returns only the user who is charged for the task.
    pub(crate) fn user_of(bytes: &[u8]) -> Option<UserId> {
        u32_at(bytes, offset_of!(SampleHeader, uid)).map(UserId)
    }

    /// Returns only the CPU.
    pub(crate) fn cpu_of(bytes: &[u8]) -> Option<u32> {
        u32_at(bytes, offset_of!(SampleHeader, cpu))
    }

    /// Returns the part of a wait's weight in which the thread could have run.
    pub(crate) fn wanted(&self) -> u64 {
        match self.wanted {
            u32::MAX => self.weight,
            part => ((u128::from(self.weight) * u128::from(part)) >> 32) as u64,
        }
    }

    /// Tells whether a wait began when the CPU time of the thread's cgroup was used up.
    pub(crate) fn has_quota(&self) -> bool {
        self.flags & QUOTA != 0
    }

    /// Tells whether the wait had not ended. Then all addresses of the kernel are return addresses.
    pub(crate) fn is_asleep(&self) -> bool {
        self.flags & ASLEEP != 0
    }

    /// Tells whether the thread waited for a disk, if the wait had not ended.
    pub(crate) fn is_io(&self) -> bool {
        self.flags & IO != 0
    }

    /// Tells whether signals did not end the wait, if it had not ended.
    pub(crate) fn is_uninterruptible(&self) -> bool {
        self.flags & UNINTERRUPTIBLE != 0
    }

    /// Returns the functions of an interpreter.
    pub(crate) fn script(&self) -> Option<Script<'a>> {
        Script::parse(self.script?)
    }

    /// Returns the bytes of the record with other user frames, and without the flags about dumps.
    pub(crate) fn with_user(bytes: &[u8], user: &[WalkedFrame], before: usize, user_end: UserEnd) -> Option<Vec<u8>> {
        let kernel = usize::from(u16_at(bytes, offset_of!(SampleHeader, kernel_frames))?);
        let frames = usize::from(u16_at(bytes, offset_of!(SampleHeader, user_frames))?);
        let script = bytes.get(HEADER + 8 * (kernel + frames)..).filter(|script| !script.is_empty());
        let mut new = bytes.get(..HEADER + 8 * (kernel + before))?.to_vec();
        for frame in user {
            let bits = if frame.is_return { 0 } else { FRAME_INTERRUPTED } | if frame.guessed { FRAME_GUESSED } else { 0 };
            new.extend((frame.pc & ((1 << FRAME_BITS_SHIFT) - 1) | bits << FRAME_BITS_SHIFT).to_ne_bytes());
        }
        let count = u16::try_from(before + user.len()).ok()?.to_ne_bytes();
        new.get_mut(offset_of!(SampleHeader, user_frames)..)?.first_chunk_mut().map(|place| *place = count)?;
        *new.get_mut(offset_of!(SampleHeader, user_end))? = user_end as u8;
        *new.get_mut(offset_of!(SampleHeader, flags))? &= !(HAS_DUMP | DUMP_REFUSED);
        if let Some(script) = script {
            new.extend(Script::with_user(script, before, user.iter().map(|frame| frame.sp))?);
        }
        Some(new)
    }

    /// Marks the record as a second walk of the sample before it.
    pub(crate) fn set_compared(bytes: &mut [u8]) {
        bytes.iter_mut().skip(offset_of!(SampleHeader, kind)).take(1).for_each(|kind| *kind = COMPARED);
    }

    /// Returns only the time, for sorting.
    pub(crate) fn time_of(bytes: &[u8]) -> Option<u64> {
        u64_at(bytes, offset_of!(SampleHeader, time))
    }

    /// Returns the kernel addresses, innermost first.
    pub(crate) fn kernel(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        addresses(self.kernel)
    }

    /// Returns the user frames, innermost first.
    pub(crate) fn user(&self) -> impl DoubleEndedIterator<Item = UserFrame> + ExactSizeIterator + 'a {
        addresses(self.user).map(UserFrame::from_wire)
    }
}

/// A frame of the user part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserFrame {
    /// The code address.
    pub(crate) address: u64,
    /// Whether the address is a return address: the call ends there. Otherwise it is an interrupted instruction.
    pub(crate) is_return: bool,
    /// Whether it was found without unwind information.
    pub(crate) guessed: bool,
}

impl UserFrame {
    fn from_wire(word: u64) -> UserFrame {
        let bits = word >> FRAME_BITS_SHIFT;
        let address = word & ((1 << FRAME_BITS_SHIFT) - 1);
        UserFrame { address, is_return: bits & FRAME_INTERRUPTED == 0, guessed: bits & FRAME_GUESSED != 0 }
    }
}

/// Request for a table: a sample hit code without one. `struct wish`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    /// The time of the sample.
    pub(crate) time: u64,
    pub(crate) tgid: u32,
    /// The mapping in that process.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) key: ObjectKey,
    /// The user who is charged for the task.
    pub(crate) user: UserId,
    /// The namespace in which its paths name files.
    pub(crate) files: FileNamespace,
}

impl Wish {
    /// Parses the request in `bytes`. Returns `None` if it is another record.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Wish> {
        if bytes.len() != size_of::<WishRecord>() || bytes.get(offset_of!(WishRecord, kind)) != Some(&WISH) {
            return None;
        }
        Some(Wish {
            time: u64_at(bytes, offset_of!(WishRecord, time))?,
            tgid: u32_at(bytes, offset_of!(WishRecord, tgid))?,
            start: u64_at(bytes, offset_of!(WishRecord, start))?,
            end: u64_at(bytes, offset_of!(WishRecord, end))?,
            key: key_at(bytes, offset_of!(WishRecord, inode))?,
            user: UserId(u32_at(bytes, offset_of!(WishRecord, uid))?),
            files: FileNamespace(u32_at(bytes, offset_of!(WishRecord, files))?),
        })
    }
}

/// Returns the `struct object_key` at `offset`.
fn key_at(bytes: &[u8], offset: usize) -> Option<ObjectKey> {
    Some(ObjectKey { inode: u64_at(bytes, offset)?, device: u32_at(bytes, offset + 8)?, generation: u32_at(bytes, offset + 12)? })
}

/// Registers and stack of a frame that could not be walked yet: `struct stack_dump`, without the pages that were not copied.
#[derive(Clone, Debug)]
pub(crate) struct StackDump {
    /// CPU and time of its sample.
    pub(crate) of: (u32, u64),
    pub(crate) registers: Registers,
    /// The file of the code at the program counter, if it had no table.
    pub(crate) key: Option<ObjectKey>,
    /// Number of user frames in the sample before this frame.
    pub(crate) frames: usize,
    /// The copied pieces of the stack, from the stack pointer on.
    pub(crate) stack: Vec<Piece>,
}

impl StackDump {
    /// Parses the dump in `bytes`. Returns `None` if it contradicts itself. `sp` is the number of the stack pointer's register.
    pub(crate) fn parse(bytes: &[u8], sp: usize) -> Option<StackDump> {
        let byte = |offset: usize| bytes.get(offset).copied();
        let mut values = [0; 32];
        for (number, value) in values.iter_mut().enumerate() {
            *value = u64_at(bytes, offset_of!(StackDumpRecord, regs) + 8 * number)?;
        }
        let registers = Registers {
            pc: u64_at(bytes, offset_of!(StackDumpRecord, pc))?,
            values,
            valid: u32_at(bytes, offset_of!(StackDumpRecord, valid))?,
            is_return: byte(offset_of!(StackDumpRecord, is_return))? != 0,
            guessed: byte(offset_of!(StackDumpRecord, guessed))? != 0,
            switches: byte(offset_of!(StackDumpRecord, switches))?,
        };
        let sp = *values.get(sp)?;
        Some(StackDump {
            of: (u32_at(bytes, offset_of!(StackDumpRecord, cpu))?, u64_at(bytes, offset_of!(StackDumpRecord, time))?),
            registers,
            // A key of zeros belongs to the vDSO, which always has a table.
            key: key_at(bytes, offset_of!(StackDumpRecord, inode))
                .filter(|key| ![ObjectKey::VDSO, ObjectKey::MOVED].contains(key)),
            frames: u16_at(bytes, offset_of!(StackDumpRecord, frames))?.into(),
            stack: StackDump::pieces(bytes, sp)?,
        })
    }

    /// Returns the copied pages from the stack pointer on: a piece for each run of pages in the first part, and in the far end.
    fn pieces(bytes: &[u8], sp: u64) -> Option<Vec<Piece>> {
        let copied = u32_at(bytes, offset_of!(StackDumpRecord, copied))?;
        let far = u64::from(u16_at(bytes, offset_of!(StackDumpRecord, far))?);
        let mut pieces = Vec::new();
        for (pages, number) in [(0..LARGE_DUMP_PAGES, 0), (LARGE_DUMP_PAGES..LARGE_DUMP_PAGES + FAR_DUMP_PAGES, far)] {
            let is_copied = |page: &usize| copied >> page & 1 != 0;
            let mut page = pages.start;
            while page < pages.end {
                let run = (page..pages.end).take_while(is_copied).count();
                if run > 0 {
                    let from = offset_of!(StackDumpRecord, stack) + page * DUMP_PAGE;
                    let offset = (number + (page - pages.start) as u64) * DUMP_PAGE as u64;
                    let start = (sp - sp % DUMP_PAGE as u64).checked_add(offset)?;
                    // The first page may begin below the stack pointer.
                    let below = sp.saturating_sub(start);
                    let stack = bytes.get(from + usize::try_from(below).ok()?..from + run * DUMP_PAGE)?;
                    pieces.push(Piece { start: start + below, bytes: stack.to_vec() });
                }
                page += run + 1;
            }
        }
        Some(pieces)
    }

    /// Bytes of the copied stack.
    pub(crate) fn stack_bytes(&self) -> usize {
        self.stack.iter().map(|piece| piece.bytes.capacity()).sum()
    }

    /// Keeps the first bytes of the stack only.
    pub(crate) fn shorten(&mut self, most: usize) {
        self.stack.truncate(1);
        for piece in &mut self.stack {
            piece.bytes.truncate(most);
            piece.bytes.shrink_to_fit();
        }
    }
}

fn addresses(bytes: &[u8]) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk))
}

/// Counters of a source of events.
#[derive(Clone, Copy)]
pub(crate) enum EventCount {
    /// Events.
    Events,
    /// Records that were sent for these events.
    Stacks,
    /// Events that were due while another stack was being taken.
    Busy,
    /// Stacks that were lost because the ring buffer was full.
    RingFull,
    /// Stacks whose kernel part is known to lack its outer side.
    Cut,
    /// Events of flametop itself, which are left out.
    Own,
    /// Waits. For their source, [`EventCount::Events`] counts nanoseconds.
    Waits,
    /// Switches of threads whose waits are not known.
    Unknown,
    /// Nanoseconds of waits that had not ended, in addition to [`EventCount::Events`].
    Asleep,
    /// How often waits were cut.
    Cuts,
}

/// Returns a counter of a source, from one CPU's `struct event`.
pub(crate) fn event_count(event: &[u8], which: EventCount) -> Option<u64> {
    let offset = match which {
        EventCount::Events => offset_of!(Event, count),
        EventCount::Stacks => offset_of!(Event, taken),
        EventCount::Busy => offset_of!(Event, busy),
        EventCount::RingFull => offset_of!(Event, ring_full),
        EventCount::Cut => offset_of!(Event, cut),
        EventCount::Own => offset_of!(Event, own),
        EventCount::Waits => offset_of!(Event, waits),
        EventCount::Unknown => offset_of!(Event, unknown),
        EventCount::Asleep => offset_of!(Event, asleep),
        EventCount::Cuts => offset_of!(Event, cuts),
    };
    u64_at(event, offset)
}

/// Returns the ticks that found the ring buffer full, from one CPU's `struct counters`.
pub(crate) fn ring_full(counters: &[u8]) -> Option<u64> {
    u64_at(counters, offset_of!(Counters, ring_full))
}

/// Returns the ticks in flametop itself, which are left out, from one CPU's `struct counters`.
pub(crate) fn own(counters: &[u8]) -> Option<u64> {
    u64_at(counters, offset_of!(Counters, own))
}

/// Counts of the walk by tables.
#[derive(Clone, Copy, Default, Debug)]
pub struct Walked {
    /// User frames.
    pub frames: u64,
    /// Look-ups that missed in the cache of mappings.
    pub mapping_misses: u64,
    /// Look-ups that missed in the cache of rules.
    pub rule_misses: u64,
    /// Frames without unwind information.
    pub guesses: u64,
    /// Frames that were unchanged since the thread's last sample.
    pub retraced: u64,
    /// Stacks that were walked again from copies, because a page was taken away while the stack was read in place.
    pub moved: u64,
}

/// Returns the members of [`Walked`] in their order, from one CPU's `struct counters`.
pub(crate) fn walked(counters: &[u8], member: usize) -> Option<u64> {
    u64_at(counters, offset_of!(Counters, user_frames) + member * size_of::<u64>())
}

/// Returns the forks that found no room among the targets, from one CPU's `struct fork_counters`.
pub(crate) fn targets_full(counters: &[u8]) -> Option<u64> {
    u64_at(counters, offset_of!(ForkCounters, targets_full))
}

/// Returns the name before the first zero byte. Bytes that are not UTF-8 are replaced.
pub(crate) fn comm_text(comm: &[u8]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The bytes of a record, for tests of its readers.
    pub(crate) fn record_bytes(time: u64, tgid: u32, comm: &[u8], kernel: &[u64], user: &[u64], flags: u8) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(0, &time.to_ne_bytes());
        put(8, &77u64.to_ne_bytes());
        put(16, &tgid.to_ne_bytes());
        put(20, &tgid.to_ne_bytes());
        put(24, &3u32.to_ne_bytes());
        put(28, &u16::try_from(kernel.len()).unwrap().to_ne_bytes());
        put(30, &u16::try_from(user.len()).unwrap().to_ne_bytes());
        put(32, comm);
        put(48, &[2]);
        put(50, &[flags]);
        put(64, &1u64.to_ne_bytes());
        kernel.iter().chain(user).for_each(|frame| bytes.extend(frame.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes = record_bytes(
            5,
            42,
            b"worker",
            &[0xffff_0000, 0xffff_0001],
            &[1 << 56 | 0x1000, 0x2000, 2 << 56 | 0x3000],
            KERNEL_CUT,
        );
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.time, record.cgroup, record.tgid, record.tid, record.cpu), (5, 77, 42, 42, 3));
        assert_eq!(comm_text(&record.comm), "worker");
        assert_eq!(record.kernel().collect::<Vec<_>>(), [0xffff_0000, 0xffff_0001]);
        let frame = |address, is_return, guessed| UserFrame { address, is_return, guessed };
        let frames = [frame(0x1000, false, false), frame(0x2000, true, false), frame(0x3000, true, true)];
        assert_eq!(record.user().collect::<Vec<_>>(), frames);
        assert_eq!((record.flags, record.compared), (KERNEL_CUT, false));
        assert_eq!(record.weight, 1);
        assert_eq!(record.user_end, 2);
    }

    #[test]
    fn a_record_whose_length_does_not_fit_its_counts_is_refused() {
        let bytes = record_bytes(5, 42, b"x", &[1], &[2, 3], 0);
        for length in 0..bytes.len() {
            assert!(Record::parse(&bytes[..length]).is_none(), "{length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Record::parse(&longer).is_none());
        assert!(Record::parse(&bytes).is_some());
    }

    #[test]
    fn a_wish_is_told_from_a_sample() {
        let mut bytes = vec![0; 64];
        bytes[0] = 7;
        bytes[8] = 0x10;
        bytes[16] = 42;
        bytes[24] = 0x20;
        bytes[32] = 7;
        bytes[40] = 8;
        bytes[44] = 9;
        assert_eq!(Wish::parse(&bytes), None, "its kind is that of a sample");
        bytes[49] = WISH;
        bytes[56] = 10;
        bytes[60] = 11;
        let key = ObjectKey { inode: 7, device: 8, generation: 9 };
        let (user, files) = (UserId(10), FileNamespace(11));
        assert_eq!(Wish::parse(&bytes), Some(Wish { time: 7, tgid: 42, start: 0x10, end: 0x20, key, user, files }));
        assert_eq!(Wish::parse(&bytes[..63]), None);
    }

    #[test]
    fn a_name_without_zero_byte_and_not_utf8_is_readable() {
        assert_eq!(comm_text(b"sixteen-letters!"), "sixteen-letters!");
        assert_eq!(comm_text(b"a\xffb\0cd"), "a\u{fffd}b");
    }
}
