//! Resolves one sample: addresses → frames, thread and process names.
//!
//! User frames are cut at the first caller that is no code: see [`ProcessTable::resolve`]. Almost every address was seen before in its
//! process, so a frame usually takes one lookup in a hash map.

use crate::collector::processes::mapped_build_id::MappedFile;
use std::ops::Range;

use super::mappings::{BuildIdOf, FileIndex, Files, Mapping};
use super::moved::file_range;
use super::reader::{Question, What};
use super::reasons::Reasons;
use super::state::{Known, ProcessState};
use super::table::{Parts, ProcessTable};
use super::wanted_functions::knows_functions;
use crate::collector::wire::perf_records::Identity;
use crate::collector::wire::records::{KERNEL_CUT, Record, UserFrame};
use crate::collector::wire::script::Of;
use crate::collector::{Batch, Collected};
use crate::profile::{
    CgroupId, Cpu, EventSource, FileNamespace, FileOffset, Frame, FrameId, KernelAddress, Language, NameRequest, Names, Object,
    ObjectId, ObjectKind, ProcessAddress, Tgid, Thread, Tid, Timestamp, Unit, UserEnd, UserId,
};

/// Most addresses that are cached for one process, or for the kernel. A full cache is emptied. JIT code may have any number of addresses.
const MAX_CACHED: usize = 1 << 17;

/// The process of a sample, the user who is charged for it, and the namespace of its files.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) tgid: u32,
    pub(super) user: UserId,
    pub(super) files: FileNamespace,
}

/// Whether a sample may wait until its process is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// It may wait.
    MayWait,
    /// It has waited long enough, and is resolved from the known facts.
    NoMore,
    /// Waiting is useless: its process runs another program by now, or has other code at some addresses.
    ForNothing,
}

/// The result of resolving an address: a frame; nothing is mapped there; or an answer has to come first.
enum NewFrame {
    Frame(FrameId),
    Unmapped,
    Later,
}

impl ProcessTable {
    /// Adds a sample of a [prepared](ProcessTable::prepare) process to the batch: frames root first, user part before kernel part. If the
    /// sample has to wait, adds nothing and returns `false`.
    pub(crate) fn resolve(&mut self, record: &Record, batch: &mut Batch, waits: Waits) -> bool {
        let name = self.label_for(record.uid, record.comm);
        let process = self.process_label(record.tgid);
        let Some(Parts { state, files, names, kernel_frames, questions, reads, reasons }) = self.parts(record.tgid) else {
            return self.resolve_forgotten(record, batch);
        };
        let from = batch.frames.len();
        let owner = Owner { tgid: record.tgid, user: record.uid, files: record.files };
        let mut user_end = UserEnd::from_wire(record.user_end);

        // A process that ended before it was read has no known mappings. A process in the midst of execve has none either, but then its
        // walk has found that its registers belong to the previous program.
        let is_empty = state.mappings.len() == 0 && user_end != UserEnd::Registers;
        let unread = record.user().len() > 0 && (state.known != Known::Yes || waits == Waits::ForNothing || is_empty);
        if unread && state.known == Known::Asked && waits == Waits::MayWait {
            return false;
        }
        if unread {
            batch.frames.push(unmapped(names));
            // The mappings that are known now are newer than the sample.
            let changed = waits == Waits::ForNothing && state.known == Known::Yes;
            user_end = if changed { UserEnd::Changing } else { UserEnd::Unread };
        }
        let script = record.script().filter(|_| !unread);
        if let Some(script) = script
            && waits == Waits::MayWait
            && !knows_functions(state, (record, script), questions, reads)
        {
            return false;
        }
        if !unread {
            let place = Place { state, files, names, questions, owner, waits, now: record.time };
            let mut user = UserPart {
                place,
                frames: &mut batch.frames,
                wanted: &mut batch.wanted,
                end: user_end,
                ended: false,
                has_unread: false,
                not_read: None,
            };
            let whole = match script {
                Some(script) => user.functions_and_frames(record, script),
                None => user.frames(record),
            };
            user_end = match script.filter(|_| user.end == UserEnd::Root) {
                Some(script) if script.lacks_functions() => UserEnd::Functions,
                Some(script) if script.in_frames().any(|(_, of, _)| of == Of::Frozen) => UserEnd::Frozen,
                _ => user.end,
            };
            let has_unread = user.has_unread;
            if whole.is_none() {
                batch.frames.truncate(from);
                return false;
            }
            script.into_iter().for_each(|script| reads.count(&script));
            match waits {
                Waits::MayWait => reads.counts.refused += u64::from(has_unread),
                Waits::NoMore | Waits::ForNothing => reads.counts.late += u64::from(has_unread),
            }
        }
        if let Some(user) = batch.frames.get_mut(from..) {
            user.reverse();
        }
        let reasons = record.is_wait.then(|| &*reasons.get_or_insert_with(Reasons::read));
        let own = reasons.map_or(0, |reasons| reasons.frames_of_scheduler(record));
        // The first kernel frame is an instruction pointer. All further kernel frames are return addresses.
        let kernel = record.kernel();
        let mut callers = kernel.len();
        for address in kernel.skip(own).rev() {
            callers -= 1;
            let is_return = callers > 0 || record.is_asleep();
            // All kernel addresses have the top bit set, so it may be shifted out.
            let key = address << 1 | u64::from(is_return);
            let frame = kernel_frames.get(&key).copied().unwrap_or_else(|| {
                let (frame, new) = names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return });
                if new {
                    batch.wanted.push(request(frame, owner, 0..0));
                }
                if kernel_frames.len() >= MAX_CACHED {
                    kernel_frames.clear();
                }
                kernel_frames.insert(key, frame);
                frame
            });
            batch.frames.push(frame);
        }
        batch.samples.push(Collected {
            thread: Thread { tgid: Tgid(record.tgid), tid: Tid(record.tid), process, name, cgroup: CgroupId(record.cgroup) },
            frames: from..batch.frames.len(),
            time: Timestamp(record.time),
            cpu: Cpu(u16::try_from(record.cpu).unwrap_or(u16::MAX)),
            user_end,
            source: EventSource(record.source),
            unit: match EventSource(record.source) {
                EventSource::CLOCK => Unit::Samples,
                _ if record.is_wait => Unit::Nanoseconds,
                _ => Unit::Events,
            },
            weight: record.weight,
            kernel_frames: record.kernel().len() - own,
            kernel_cut: record.flags & KERNEL_CUT != 0,
            compared: record.compared,
        });
        reasons.into_iter().for_each(|reasons| reasons.tell(record, names, batch));
        true
    }
}

/// The user part of a sample while it is built: innermost frame first, as on the wire.
pub(super) struct UserPart<'a> {
    pub(super) place: Place<'a>,
    pub(super) frames: &'a mut Vec<FrameId>,
    pub(super) wanted: &'a mut Vec<NameRequest>,
    pub(super) end: UserEnd,
    /// Whether the last frame is no code, so that the addresses after it are no callers.
    pub(super) ended: bool,
    /// Whether functions of a runtime were not read.
    pub(super) has_unread: bool,
    /// The frame of functions that were not read, in a language.
    pub(super) not_read: Option<(Language, FrameId)>,
}

impl UserPart<'_> {
    /// Adds all frames of a sample without functions. `None` if an answer has to come first.
    fn frames(&mut self, record: &Record) -> Option<()> {
        for (depth, frame) in record.user().enumerate() {
            let address = frame.address;
            let (frame, _) = self.native(depth, frame)?;
            self.push_native(frame, address);
            if self.ended {
                break;
            }
        }
        Some(())
    }

    /// Returns the frame of an address of the sample, and its key in [`ProcessState::frames`]. `None` if an answer has to come first.
    ///
    /// Below a system call, the user part begins after the instruction that made the call: its first address is a return address. Below
    /// an interrupt, a fault or a signal, its first address is the instruction that was running.
    pub(super) fn native(&mut self, depth: usize, frame: UserFrame) -> Option<(FrameId, u64)> {
        let UserFrame { address, is_return, guessed } = frame;
        let key = address << 1 | u64::from(is_return);
        if address == 0 && guessed {
            // The walk marks missing frames this way.
            return Some((unmapped(self.place.names), key));
        }
        if let Some(known) = self.place.state.frames.get(&key) {
            return Some((*known, key));
        }
        match self.place.new_user_frame(address, is_return, self.wanted) {
            NewFrame::Frame(frame) => return Some((frame, key)),
            NewFrame::Later => return None,
            NewFrame::Unmapped if self.place.state.lacks_remapped => self.end = UserEnd::Changing,
            // Code built without frame pointers uses the frame pointer's register for other values, and the kernel follows them through the
            // stack. An address without code is not a return address, so the addresses after it are no callers either.
            NewFrame::Unmapped if depth > 0 => {
                self.end = UserEnd::NoCode;
                self.ended = true;
            }
            NewFrame::Unmapped => {}
        }
        Some((unmapped(self.place.names), key))
    }
}

pub(super) fn request(frame: FrameId, owner: Owner, mapping: Range<u64>) -> NameRequest {
    let Owner { tgid, user, files } = owner;
    NameRequest { frame, tgid: Tgid(tgid), user, files, mapping: ProcessAddress(mapping.start)..ProcessAddress(mapping.end) }
}

fn unmapped(names: &Names) -> FrameId {
    names.intern_frame(Frame::Unmapped).0
}

/// The state that is needed to resolve an address of a sample.
pub(super) struct Place<'a> {
    pub(super) state: &'a mut ProcessState,
    pub(super) files: &'a mut Files,
    pub(super) names: &'a Names,
    pub(super) questions: &'a mut Vec<Question>,
    pub(super) owner: Owner,
    pub(super) waits: Waits,
    /// The time of the sample.
    pub(super) now: u64,
}

impl Place<'_> {
    /// Resolves an address that is not in the process's cache.
    fn new_user_frame(&mut self, address: u64, is_return: bool, wanted: &mut Vec<NameRequest>) -> NewFrame {
        // A return address may be the first byte after its mapping, if a call is the mapping's last instruction.
        let Some(&mapping) = self.state.mappings.find(address.saturating_sub(u64::from(is_return))) else {
            // Not cached: a new mapping there would not empty the cache.
            return NewFrame::Unmapped;
        };
        let of_file = |object, offset| Frame::File { object, offset: FileOffset(offset), is_return };
        let frame = match mapping.file {
            FileIndex::ANONYMOUS if self.waits == Waits::MayWait && self.state.is_asked(address) => return NewFrame::Later,
            FileIndex::ANONYMOUS => self.jit_frame(address, is_return),
            FileIndex::VDSO => of_file(ObjectId::VDSO, address - mapping.start),
            FileIndex::REFUSED => Frame::AnyOf(ObjectId::MORE),
            file => match self.object_of(&mapping, file) {
                Some(ObjectId::ANONYMOUS) => self.jit_frame(address, is_return),
                Some(object) => of_file(object, mapping.file_offset(address)),
                None => return NewFrame::Later,
            },
        };
        // Functions of V8 and of a JVM replace the frames of their code: it is named only where they do not.
        let is_named = match frame {
            Frame::Process { .. } if self.state.scripts.has_engine() => false,
            frame => frame.object() != ObjectId::ANONYMOUS,
        };
        let (frame, new) = self.names.intern_frame(frame);
        if new && is_named {
            wanted.push(request(frame, self.owner, file_range(&self.state.moved, &mapping)));
        }
        if self.state.frames.len() >= MAX_CACHED {
            self.state.frames.clear();
        }
        self.state.frames.insert(address << 1 | u64::from(is_return), frame);
        NewFrame::Frame(frame)
    }

    /// Returns the frame of code without a file.
    fn jit_frame(&mut self, address: u64, is_return: bool) -> Frame {
        match jit_object(self.state, self.names, self.owner) {
            // Code without an object has no names, so all its addresses share one frame.
            object @ ObjectId::ANONYMOUS => Frame::Process { object, address: ProcessAddress(0), is_return: false },
            object => Frame::Process { object, address: ProcessAddress(address), is_return },
        }
    }

    /// Returns the object of a file, or [`ObjectId::ANONYMOUS`] if it is no program. The object is identified by its build id if that can
    /// be found, else by device and inode. `None` while the build id is being read.
    ///
    /// Files with the same path and build id are different objects for different users, and in different file namespaces. The reason: a
    /// user can mount his own file over any path that he sees, and give it the build id of the original.
    fn object_of(&mut self, mapping: &Mapping, index: FileIndex) -> Option<ObjectId> {
        let Some(file) = self.files.get_mut(index) else { return Some(ObjectId::ANONYMOUS) };
        let whose = (self.owner.files, self.owner.user);
        if let Some(object) = file.objects.get(whose) {
            return Some(object);
        }
        let (build_id, inode) = match file.identity {
            Identity::BuildId(id) => (Some(id), None),
            Identity::Inode(inode) => {
                if file.build_id.is_to_be_asked(self.now) {
                    file.build_id = BuildIdOf::Asked;
                    let path = file.path.clone();
                    let Range { start, end } = file_range(&self.state.moved, mapping);
                    let what = What::BuildId(MappedFile { start, end, path, file: Some(inode) });
                    let Owner { tgid, user, .. } = self.owner;
                    self.questions.push(Question { tgid, life: self.state.life, user, what });
                }
                match file.build_id {
                    BuildIdOf::Asked if self.waits == Waits::MayWait => return None,
                    BuildIdOf::Found(id) => (Some(id), None),
                    _ => (None, Some((inode.device, inode.number))),
                }
            }
        };
        if file.is_anonymous() {
            return Some(ObjectId::ANONYMOUS);
        }
        let (files, user) = whose;
        let object = Object { kind: ObjectKind::Elf, path: file.path.clone(), build_id, file: inode, files, user };
        let object = self.names.objects.intern(object);
        // Not cached if it was not reachable: it may be reachable through another process.
        if !matches!(file.build_id, BuildIdOf::NotReachable(_)) {
            file.objects.set(whose, object);
        }
        Some(object)
    }
}

/// Returns the object of a process's code without a file. Other processes have other code at these addresses.
fn jit_object(state: &mut ProcessState, names: &Names, owner: Owner) -> ObjectId {
    *state.anonymous.get_or_insert_with(|| names.jit_object(owner.user, Tgid(owner.tgid), state.life))
}
