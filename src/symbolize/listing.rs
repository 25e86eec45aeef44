//! A function's source and instructions, and which of its addresses are on which row.
//!
//! ```text
//! label, frames ─► locate     file and line of each frame in the function of that label
//!              └─► text       that file, from the root of a process that runs the object, or our own
//!              └─► code       the function's bytes: by its symbol, else by its unwind information (bounds); decoded
//! ```

mod bounds;
mod code;
mod text;

use std::collections::VecDeque;
use std::sync::Arc;

use dashmap::DashMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use tokio::sync::oneshot;

use super::locate::chains;
use super::newest::Newest;
use super::service::Service;
use crate::profile::{FrameId, FrameWeight, LabelId, Listing, NameRequest, Object, ObjectId, ObjectKind, Rows, Tgid, sanitize};

/// Addresses of one function looked at, the heaviest first. Functions have some thousand instructions, most of them never sampled.
const MAX_FRAMES: usize = 16_384;
/// Processes remembered of each object: most objects are run by few programs, and a file is usually found by the first.
const MAX_HOSTS: usize = 4;

type Question = (LabelId, Vec<FrameWeight>);
type Answer = Result<Listing, String>;

/// Makes listings; the newest that is asked for.
#[derive(Default)]
pub(super) struct Lister {
    lane: Arc<Newest<Question, Answer>>,
    hosts: Arc<DashMap<ObjectId, VecDeque<Tgid>, FxBuildHasher>>,
}

impl Lister {
    /// Remembers which processes run which objects: their source is looked for where they see it.
    pub(super) fn remember(&self, service: &Service, requests: &[NameRequest]) {
        for request in requests {
            let Some(frame) = service.names.frames.get(request.frame) else { continue };
            let mut hosts = self.hosts.entry(frame.object).or_default();
            if !hosts.contains(&request.tgid) {
                hosts.push_front(request.tgid);
                hosts.truncate(MAX_HOSTS);
            }
        }
    }

    /// Asks for a function.
    pub(super) fn ask(&self, service: &Arc<Service>, label: LabelId, frames: Vec<FrameWeight>) -> oneshot::Receiver<Answer> {
        let hosts = Arc::clone(&self.hosts);
        self.lane.ask(service, (label, frames), move |service, (label, frames)| {
            let answer = list(service, &hosts, label, &frames);
            service.objects.shrink();
            answer
        })
    }
}

/// The object in which the function has most of its weight.
fn heaviest_object(service: &Service, frames: &[FrameWeight]) -> Option<ObjectId> {
    let mut weights: FxHashMap<ObjectId, (u64, u64)> = FxHashMap::default();
    for weight in frames {
        let Some(frame) = service.names.frames.get(weight.frame) else { continue };
        let sum = weights.entry(frame.object).or_default();
        *sum = (sum.0 + weight.own, sum.1 + weight.total);
    }
    weights.into_iter().max_by_key(|(object, weight)| (*weight, std::cmp::Reverse(*object))).map(|(object, _)| object)
}

fn list(
    service: &Service,
    hosts: &DashMap<ObjectId, VecDeque<Tgid>, FxBuildHasher>,
    label: LabelId,
    frames: &[FrameWeight],
) -> Answer {
    let id = heaviest_object(service, frames).ok_or("no address of this function has been sampled")?;
    let object = service.names.objects.get(id).ok_or("no address of this function has been sampled")?;
    let mut owner = id;
    let why_nothing = match object.kind {
        ObjectKind::Elf | ObjectKind::Vdso => "",
        ObjectKind::Kernel => match code::kernel_object(service, frames) {
            Ok(found) => {
                owner = found;
                ""
            }
            Err(why) => why,
        },
        ObjectKind::Named => "a name is all that is known of this function: neither source nor instructions",
        ObjectKind::Anonymous => "",
        ObjectKind::Unmapped => "no file is mapped at these addresses: neither source nor instructions are known",
    };
    if !why_nothing.is_empty() {
        return Err(why_nothing.to_owned());
    }
    let known = frames.iter().map(|weight| weight.frame).collect();
    let of_object = |weight: &&FrameWeight| service.names.frames.get(weight.frame).is_some_and(|frame| frame.object == id);
    let frames: Vec<FrameWeight> = frames.iter().filter(of_object).take(MAX_FRAMES).copied().collect();
    // The kernel's source is nobody's but ours: what a process in a container has at its path is another file.
    let hosts = if object.kind == ObjectKind::Kernel { &DashMap::default() } else { hosts };
    let hosts: Vec<Tgid> = hosts.get(&id).map(|hosts| hosts.iter().copied().collect()).unwrap_or_default();
    let object = service.names.objects.get(owner).unwrap_or(object);
    let source = source(service, (id, owner), object, &hosts, label, &frames);
    let code = match object.kind {
        ObjectKind::Anonymous if source.is_err() => {
            return Err("this code was made at run time: neither its source nor its instructions are known".to_owned());
        }
        ObjectKind::Anonymous => Err("no instructions: this code was made at run time".to_owned()),
        _ => code::instructions(service, owner, object, label, &frames),
    };
    Ok(Listing { label, source, code, known })
}

/// The file in which the function has most of its weight, and where in it its addresses are. They are of one object, and another may
/// know of them: a module of the kernel.
fn source(
    service: &Service,
    (id, owner): (ObjectId, ObjectId),
    object: &Object,
    hosts: &[Tgid],
    label: LabelId,
    weights: &[FrameWeight],
) -> Result<Rows, String> {
    let name = sanitize(object.short_name()).into_owned();
    let frames: Vec<FrameId> = weights.iter().map(|weight| weight.frame).collect();
    let Some(chains) = chains(service, id, &frames) else {
        return Err(format!("no source: {name} has no debug information; build it with -g, or install its debug symbols"));
    };
    let mut lines: Vec<(FrameId, Arc<str>, u32)> = Vec::new();
    let mut files: FxHashMap<Arc<str>, (u64, u64)> = FxHashMap::default();
    for (weight, chain) in weights.iter().zip(chains) {
        // Of a function that is inlined into itself, the innermost one.
        let located = chain.into_iter().rev().find(|located| located.label == label);
        let Some(place) = located.and_then(|located| located.location) else { continue };
        let sum = files.entry(Arc::clone(&place.file)).or_default();
        *sum = (sum.0 + weight.own, sum.1 + weight.total);
        lines.push((weight.frame, place.file, place.line));
    }
    let heaviest = files.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a)));
    let Some((file, _)) = heaviest else {
        return Err(format!("no source: the debug information of {name} has no lines for this function"));
    };
    let text = text::read(&file, hosts).map_err(|why| format!("no source: {why}"))?;
    let at_row = |line: &u32| (*line as usize).checked_sub(1).filter(|row| *row < text.rows.len());
    let row_of: FxHashMap<FrameId, usize> =
        lines.iter().filter(|(_, of, _)| *of == file).filter_map(|(frame, _, line)| Some((*frame, at_row(line)?))).collect();
    let built = if object.kind == ObjectKind::Anonymous { None } else { code::modified(service, owner, object) };
    let note = match built {
        _ if lines.iter().any(|(_, of, line)| *of == file && at_row(line).is_none()) => {
            "the file has fewer lines than the compiler saw: it was changed since"
        }
        Some(built) if built < text.modified => "the file is newer than the program: its lines may not be those that run",
        _ => "",
    };
    Ok(Rows { file, note: note.to_owned(), rows: text.rows, row_of })
}
