//! One sample: addresses → frames, thread and process names.
//!
//! User frames are cut at the first caller that is no code: see [`ProcessTable::resolve`]. Almost every address was seen before in its process, so the usual way is one look into a hash map for each frame.

use std::ops::Range;

use super::events::Identity;
use super::mappings::{BuildIdOf, FileIndex, Files, Mapping};
use super::processes::{Known, Parts, ProcessTable, State};
use super::reader::{MappedFile, Question, What};
use super::records::{KERNEL_CUT, Record, UserFrame};
use super::{Batch, Collected};
use crate::profile::{
    CgroupId, Cpu, EventSource, FileNamespace, Frame, FrameId, NameRequest, Names, Object, ObjectId, ObjectKind, ProcessAddress,
    Tgid, Thread, Tid, Timestamp, UserEnd, UserId,
};

/// Addresses kept for one process, or for the kernel, before starting again. JIT code may have any number of them.
const MAX_CACHED: usize = 1 << 17;

/// The process of a sample, who is charged for it, and which files its paths lead to.
#[derive(Clone, Copy)]
struct Owner {
    tgid: u32,
    user: UserId,
    files: FileNamespace,
}

/// Whether a sample waits for what is being read of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// It does.
    MayWait,
    /// Not any more: it is taken with what is known.
    NoMore,
    /// What is known by now is not about it: its process runs another program, or has other code at some addresses.
    ForNothing,
}

/// A frame, or none where nothing is mapped; or an answer is to be waited for.
enum NewFrame {
    Frame(FrameId),
    Unmapped,
    Later,
}

impl ProcessTable {
    /// Adds a sample of a process that was [prepared](ProcessTable::prepare) to the batch: frames root first, user part before kernel
    /// part. `false`, and nothing added, if it has to wait.
    pub(crate) fn resolve(&mut self, record: &Record, batch: &mut Batch, waits: Waits) -> bool {
        let name = self.label_for(record.uid, record.comm);
        let process = self.process_label(record.tgid);
        // A process that was forgotten while its sample waited.
        let Some(Parts { state, files, names, kernel_frames, questions }) = self.parts(record.tgid) else { return true };
        let from = batch.frames.len();
        let owner = Owner { tgid: record.tgid, user: record.uid, files: record.files };
        let mut user_end = UserEnd::from_wire(record.user_end);

        let unread = record.user().len() > 0 && (state.known != Known::Yes || waits == Waits::ForNothing);
        if unread && state.known == Known::Asked && waits == Waits::MayWait {
            return false;
        }
        if unread {
            batch.frames.push(unmapped(names));
            user_end = UserEnd::Unread;
        }
        // Innermost first on the wire. A user part below a system call begins behind the instruction that made it: a return
        // address. Below an interrupt, a fault or a signal it is the instruction that was running.
        let frames = record.user().take(if unread { 0 } else { usize::MAX });
        for (depth, UserFrame { address, is_return, guessed }) in frames.enumerate() {
            if address == 0 && guessed {
                // The walk says that frames are missing here.
                batch.frames.push(unmapped(names));
                continue;
            }
            let key = address << 1 | u64::from(is_return);
            let frame = match state.frames.get(&key) {
                Some(known) => NewFrame::Frame(*known),
                None => {
                    let mut place = Place { state, files, names, questions, owner, waits, now: record.time };
                    place.new_user_frame(address, is_return, &mut batch.wanted)
                }
            };
            match frame {
                NewFrame::Frame(frame) => batch.frames.push(frame),
                NewFrame::Later => {
                    batch.frames.truncate(from);
                    return false;
                }
                NewFrame::Unmapped => {
                    batch.frames.push(unmapped(names));
                    // Code built without frame pointers uses their register for anything, and the kernel follows it through the
                    // stack. What is no code was not called from anywhere: what comes after is no more of a caller than this.
                    if depth > 0 {
                        user_end = UserEnd::NoCode;
                        break;
                    }
                }
            }
        }
        if let Some(user) = batch.frames.get_mut(from..) {
            user.reverse();
        }
        // Of kernel frames, the first is an instruction pointer, the others are return addresses.
        let kernel = record.kernel();
        let mut callers = kernel.len();
        for address in kernel.rev() {
            callers -= 1;
            let is_return = callers > 0;
            // The top bit is set in all of them, so that it may be shifted out.
            let key = address << 1 | u64::from(is_return);
            let frame = kernel_frames.get(&key).copied().unwrap_or_else(|| {
                let (frame, new) = names.intern_frame(Frame { object: ObjectId::KERNEL, is_return, address });
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
            thread: Thread { tgid: Tgid(record.tgid), tid: Tid(record.tid), process, name },
            frames: from..batch.frames.len(),
            time: Timestamp(record.time),
            cgroup: CgroupId(record.cgroup),
            cpu: Cpu(u16::try_from(record.cpu).unwrap_or(u16::MAX)),
            user_end,
            source: EventSource(record.source),
            weight: record.weight.into(),
            kernel_frames: record.kernel().len(),
            kernel_cut: record.flags & KERNEL_CUT != 0,
            compared: record.compared,
        });
        true
    }
}

fn request(frame: FrameId, owner: Owner, mapping: Range<u64>) -> NameRequest {
    let Owner { tgid, user, files } = owner;
    NameRequest { frame, tgid: Tgid(tgid), user, files, mapping: ProcessAddress(mapping.start)..ProcessAddress(mapping.end) }
}

fn unmapped(names: &Names) -> FrameId {
    names.intern_frame(Frame { object: ObjectId::UNMAPPED, is_return: false, address: 0 }).0
}

/// Where an address of a sample is looked for.
struct Place<'a> {
    state: &'a mut State,
    files: &'a mut Files,
    names: &'a Names,
    questions: &'a mut Vec<Question>,
    owner: Owner,
    waits: Waits,
    /// When the sample was taken.
    now: u64,
}

impl Place<'_> {
    /// The frame of an address that is not in the process's cache.
    fn new_user_frame(&mut self, address: u64, is_return: bool, wanted: &mut Vec<NameRequest>) -> NewFrame {
        // A return address may be the first byte after its mapping, when a call is the last instruction of it.
        let Some(&mapping) = self.state.mappings.find(address.saturating_sub(u64::from(is_return))) else {
            // Not cached: a mapping may come, and does not empty the cache then.
            return NewFrame::Unmapped;
        };
        let (object, address_in) = match mapping.file {
            FileIndex::ANONYMOUS => (jit_object(self.state, self.names, self.owner), address),
            FileIndex::VDSO => (ObjectId::VDSO, address - mapping.start),
            FileIndex::REFUSED => (ObjectId::MORE, address),
            file => match self.object_of(&mapping, file) {
                Some(object) => (object, mapping.file_offset(address)),
                None => return NewFrame::Later,
            },
        };
        let (frame, new) = match object {
            // What has no object of its own has no names either: one frame will do.
            ObjectId::ANONYMOUS => self.names.intern_frame(Frame { object, is_return: false, address: 0 }),
            _ => self.names.intern_frame(Frame { object, is_return, address: address_in }),
        };
        if new && object != ObjectId::ANONYMOUS {
            wanted.push(request(frame, self.owner, mapping.range()));
        }
        if self.state.frames.len() >= MAX_CACHED {
            self.state.frames.clear();
        }
        self.state.frames.insert(address << 1 | u64::from(is_return), frame);
        NewFrame::Frame(frame)
    }

    /// The object of a file: known by its build id if it has one that can be found, else by device and inode. `None` while that is
    /// being looked for.
    ///
    /// Files of one path and build id are different objects for different users, and where other files are under a path: a user can put
    /// a file of his own over any path that he sees, with the build id of the one that is there.
    fn object_of(&mut self, mapping: &Mapping, index: FileIndex) -> Option<ObjectId> {
        let Some(file) = self.files.get_mut(index) else { return Some(ObjectId::ANONYMOUS) };
        let whose = (self.owner.files, self.owner.user);
        if let Some(object) = file.objects.get(whose) {
            return Some(object);
        }
        let (build_id, inode) = match file.identity {
            Identity::BuildId(id) => (Some(id), None),
            Identity::Inode(device, inode) => {
                if file.build_id.is_to_be_asked(self.now) {
                    file.build_id = BuildIdOf::Asked;
                    let (path, file) = (file.path.clone(), (device, inode));
                    let what = What::BuildId(MappedFile { start: mapping.start, end: mapping.end, path, file });
                    let Owner { tgid, user, .. } = self.owner;
                    self.questions.push(Question { tgid, life: self.state.life, user, what });
                }
                match file.build_id {
                    BuildIdOf::Asked if self.waits == Waits::MayWait => return None,
                    BuildIdOf::Found(id) => (Some(id), None),
                    _ => (None, Some((device, inode))),
                }
            }
        };
        let (files, user) = whose;
        let object = Object { kind: ObjectKind::Elf, path: file.path.clone(), build_id, file: inode, files, user };
        let object = self.names.objects.intern(object);
        // Through another process the file may be reachable.
        if !matches!(file.build_id, BuildIdOf::NotReachable(_)) {
            file.objects.set(whose, object);
        }
        Some(object)
    }
}

/// The object of a process's code without a file. Other processes have other code at its addresses.
fn jit_object(state: &mut State, names: &Names, owner: Owner) -> ObjectId {
    *state.anonymous.get_or_insert_with(|| names.jit_object(owner.user, Tgid(owner.tgid), state.life))
}
