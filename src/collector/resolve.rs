//! One sample: addresses → frames, thread and process names.
//!
//! User frames are cut at the first caller that is no code: see [`ProcessTable::resolve`]. Almost every address was seen before in its process, so the usual way is one look into a hash map for each frame.

use std::ops::Range;

use super::build_id::{self, Missing};
use super::events::Identity;
use super::mappings::{FileIndex, Files, Mapping};
use super::processes::{ProcessTable, State};
use super::records::{KERNEL_CUT, Record, UserFrame};
use super::{Batch, Collected};
use crate::profile::{
    CgroupId, Cpu, EventSource, Frame, FrameId, NameRequest, Names, Object, ObjectId, ObjectKind, ProcessAddress, Tgid, Thread,
    Tid, Timestamp, UserEnd,
};

/// Addresses kept for one process, or for the kernel, before starting again. JIT code may have any number of them.
const MAX_CACHED: usize = 1 << 17;

impl ProcessTable {
    /// Adds a sample to the batch: frames root first, user part before kernel part.
    pub(crate) fn resolve(&mut self, record: &Record, batch: &mut Batch) {
        self.prepare(record.tgid, record.tid, record.comm, record.user().len() > 0);
        let name = self.label(record.comm);
        let Some((state, files, names, kernel_frames)) = self.parts(record.tgid) else { return };
        let from = batch.frames.len();
        let mut user_end = UserEnd::from_wire(record.user_end);

        // Innermost first on the wire. A user part below a system call begins behind the instruction that made it: a return
        // address. Below an interrupt, a fault or a signal it is the instruction that was running.
        for (depth, UserFrame { address, is_return, guessed }) in record.user().enumerate() {
            if address == 0 && guessed {
                // The walk says that frames are missing here.
                batch.frames.push(unmapped(names));
                continue;
            }
            let key = address << 1 | u64::from(is_return);
            let known = state.frames.get(&key).copied();
            let frame = known.or_else(|| new_user_frame(state, files, names, record.tgid, address, is_return, &mut batch.wanted));
            batch.frames.push(frame.unwrap_or_else(|| unmapped(names)));
            // Code built without frame pointers uses their register for anything, and the kernel follows it through the
            // stack. What is no code was not called from anywhere: what comes after is no more of a caller than this.
            if frame.is_none() && depth > 0 {
                user_end = UserEnd::NoCode;
                break;
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
                    batch.wanted.push(request(frame, record.tgid, 0..0));
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
            thread: Thread { tgid: Tgid(record.tgid), tid: Tid(record.tid), process: state.name, name },
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
    }
}

fn request(frame: FrameId, tgid: u32, mapping: Range<u64>) -> NameRequest {
    NameRequest { frame, tgid: Tgid(tgid), mapping: ProcessAddress(mapping.start)..ProcessAddress(mapping.end) }
}

fn unmapped(names: &Names) -> FrameId {
    names.intern_frame(Frame { object: ObjectId::UNMAPPED, is_return: false, address: 0 }).0
}

/// The frame of an address that is not in the process's cache; `None` where nothing is mapped.
fn new_user_frame(
    state: &mut State,
    files: &mut Files,
    names: &Names,
    tgid: u32,
    address: u64,
    is_return: bool,
    wanted: &mut Vec<NameRequest>,
) -> Option<FrameId> {
    // A return address may be the first byte after its mapping, when a call is the last instruction of it.
    let Some(&mapping) = state.mappings.find(address.saturating_sub(u64::from(is_return))) else {
        // Not cached: a mapping may come, and does not empty the cache then.
        return None;
    };
    let (object, address_in) = match mapping.file {
        FileIndex::ANONYMOUS => (jit_object(state, names, tgid), address),
        FileIndex::VDSO => (ObjectId::VDSO, address - mapping.start),
        file => (object_of(files, names, tgid, &mapping, file), mapping.file_offset(address)),
    };
    let (frame, new) = match object {
        // What has no object of its own has no names either: one frame will do.
        ObjectId::ANONYMOUS => names.intern_frame(Frame { object, is_return: false, address: 0 }),
        _ => names.intern_frame(Frame { object, is_return, address: address_in }),
    };
    if new && object != ObjectId::ANONYMOUS {
        wanted.push(request(frame, tgid, mapping.range()));
    }
    if state.frames.len() >= MAX_CACHED {
        state.frames.clear();
    }
    state.frames.insert(address << 1 | u64::from(is_return), frame);
    Some(frame)
}

/// The object of a process's code without a file. Other processes have other code at its addresses.
fn jit_object(state: &mut State, names: &Names, tgid: u32) -> ObjectId {
    *state.anonymous.get_or_insert_with(|| names.jit_object(Tgid(tgid), state.life))
}

/// The object of a file: known by its build id if it has one that can be found, else by device and inode.
fn object_of(files: &mut Files, names: &Names, tgid: u32, mapping: &Mapping, index: FileIndex) -> ObjectId {
    let Some(file) = files.get_mut(index) else { return ObjectId::ANONYMOUS };
    if let Some(object) = file.object {
        return object;
    }
    let found = match file.identity {
        Identity::BuildId(id) => Ok(id),
        Identity::Inode(device, inode) => build_id::of_mapping(tgid, mapping.start, mapping.end, &file.path, (device, inode)),
    };
    let inode = match file.identity {
        Identity::Inode(device, inode) if found.is_err() => Some((device, inode)),
        _ => None,
    };
    let object = Object { kind: ObjectKind::Elf, path: file.path.clone(), build_id: found.as_ref().ok().copied(), file: inode };
    let object = names.objects.intern(object);
    if found != Err(Missing::NotReachable) {
        file.object = Some(object);
    }
    object
}
