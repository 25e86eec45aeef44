//! Lists a function's source and instructions, with the row of each of its sampled addresses.
//!
//! ```text
//! label, frames ─► locate     file and line of each frame in the function of that label
//!              └─► text       that file, from the root of a process that runs the object, or our own
//!              ├─► code       the function's bytes: by its symbol, else by its unwind information; decoded
//!              ├─► running    those of the kernel, from its memory
//!              └─► made       those of JIT code, from the memory of its process or its jitdump
//! ```

mod called;
mod code;
#[cfg_attr(not(feature = "disassembly"), path = "no_disassembly.rs")]
mod disassembly;
pub(super) mod fuzzing;
pub(crate) mod jit_code;
pub(crate) mod kernel_code;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::service::Service;
use super::service::latest::Newest;
use super::service::locate::chains;
use super::source_files::text::{self, Host};
use crate::profile::{Frame, FrameId, FrameWeight, LabelId, Listing, Object, ObjectId, ObjectKind, Row, Rows, UserId, sanitize};

/// Most addresses of one function that are examined, the heaviest first. Functions have some thousand instructions, most of them never
/// sampled.
const MAX_FRAMES: usize = 16_384;
const UNKNOWN: &str = "no address of this function has been sampled";

/// A request for a listing.
pub(super) struct Question {
    pub(super) label: LabelId,
    /// The function's frames, the heaviest first.
    pub(super) frames: Vec<FrameWeight>,
    /// An address in the function that was shown before, if there was one.
    pub(super) by: Option<FrameId>,
}

type Answer = Result<Listing, String>;

/// Makes listings. Only the newest request is kept.
#[derive(Default)]
pub(super) struct Lister(Arc<Newest<Question, Answer>>);

impl Lister {
    /// Requests a listing.
    pub(super) fn ask(&self, service: &Arc<Service>, question: Question) -> oneshot::Receiver<Answer> {
        self.0.ask(service, question, |service, question| {
            let answer = list(service, question);
            service.objects.shrink();
            answer
        })
    }
}

/// Returns the object in which the function has most of its weight. Where different users have different programs with such a function,
/// root's comes first: no other user decides what root reads.
fn heaviest_object(service: &Service, frames: &[FrameWeight]) -> Option<ObjectId> {
    let users_differ = service.names.users_differ(frames.iter().map(|weight| weight.frame));
    let is_preferred = |id| users_differ && service.names.objects.get(id).is_some_and(|object| object.user == UserId(0));
    let mut weights: FxHashMap<ObjectId, (u64, u64)> = FxHashMap::default();
    for weight in frames {
        let Some(frame) = service.names.frames.get(weight.frame) else { continue };
        let sum = weights.entry(frame.object()).or_default();
        *sum = (sum.0 + weight.own, sum.1 + weight.total);
    }
    let rank = |(object, weight): &(ObjectId, (u64, u64))| (is_preferred(*object), *weight, std::cmp::Reverse(*object));
    weights.into_iter().max_by_key(rank).map(|(object, _)| object)
}

/// Returns the object's heaviest address that is in the function itself.
fn heaviest_of(service: &Service, object: ObjectId, label: LabelId, frames: &[FrameWeight]) -> Option<FrameId> {
    let is_called = |frame: &FrameId| {
        let mut found = false;
        service.names.labels_of(*frame, |name| found |= name == label);
        found
    };
    let is_its = |frame: &FrameId| service.names.frames.get(*frame).is_some_and(|frame| frame.object() == object);
    let mut of_object = frames.iter().map(|weight| weight.frame).filter(is_its);
    let first = of_object.clone().next();
    of_object.find(is_called).or(first)
}

/// Lists the function that was shown before if it is still there and has samples; else the one with the most samples.
fn list(service: &Service, question: Question) -> Answer {
    let Question { label, frames, by } = question;
    let before = by.map(|by| list_of(service, label, &frames, by));
    let has_samples = |listing: &Listing| frames.is_empty() || frames.iter().any(|weight| listing.shows(weight.frame));
    match before {
        Some(Ok(listing)) if has_samples(&listing) => Ok(listing),
        before => {
            let heaviest = heaviest_object(service, &frames).and_then(|id| heaviest_of(service, id, label, &frames));
            let newest = match heaviest {
                Some(by) => list_of(service, label, &frames, by),
                None => Err(UNKNOWN.to_owned()),
            };
            match (before, newest) {
                (Some(before @ Ok(_)), Err(_)) => before,
                (_, newest) => newest,
            }
        }
    }
}

/// Lists the function at this address.
fn list_of(service: &Service, label: LabelId, frames: &[FrameWeight], by: FrameId) -> Answer {
    let id = service.names.frames.get(by).ok_or(UNKNOWN)?.object();
    let object = service.names.objects.get(id).ok_or(UNKNOWN)?;
    let all = frames.iter().map(|weight| weight.frame).chain([by]);
    let user = service.names.users_differ(all).then_some(object.user);
    let known = frames.iter().map(|weight| weight.frame).collect();
    let is_its = |weight: &&FrameWeight| service.names.frames.get(weight.frame).is_some_and(|frame| frame.object() == id);
    let mut frames: Vec<FrameWeight> = frames.iter().filter(is_its).take(MAX_FRAMES).copied().collect();
    if !frames.iter().any(|weight| weight.frame == by) {
        frames.push(FrameWeight { frame: by, own: 0, total: 0 });
    }
    let of_hosts = || service.hosts.of(id);
    let about = About { service, label, by, id, object, frames: &frames };
    let (source, code) = match object.kind {
        ObjectKind::Kernel => about.of_kernel()?,
        ObjectKind::Elf | ObjectKind::Vdso => {
            (about.source((id, object), &of_hosts()), code::instructions(service, id, object, by, &frames))
        }
        ObjectKind::Anonymous => {
            const MADE: &str = "this code was made at run time, and";
            match (about.source((id, object), &of_hosts()), jit_code::instructions(service, id, by, &frames)) {
                (Err(_), Err(why)) => return Err(format!("neither source nor instructions: {MADE} {why}")),
                (source, code) => (source, code.map_err(|why| format!("no instructions: {MADE} {why}"))),
            }
        }
        ObjectKind::Script => {
            let why = "no instructions: an interpreter runs this function".to_owned();
            (about.source((id, object), &of_hosts()), Err(why))
        }
        ObjectKind::Named => {
            return Err("only the name of this function is known: neither source nor instructions".to_owned());
        }
        ObjectKind::Unmapped => {
            return Err("no file is mapped at these addresses: neither source nor instructions are known".to_owned());
        }
    };
    Ok(Listing { label, by, source, code, user, known })
}

/// One function of one object.
struct About<'a> {
    service: &'a Service,
    label: LabelId,
    by: FrameId,
    id: ObjectId,
    object: &'a Object,
    /// Its sampled addresses, the heaviest first.
    frames: &'a [FrameWeight],
}

type Pane = Result<Rows, String>;

impl About<'_> {
    /// Returns the source and the instructions of a function of the kernel.
    fn of_kernel(&self) -> Result<(Pane, Pane), String> {
        let running = kernel_code::instructions(self.service, self.by, self.frames);
        let owner = code::kernel_object(self.service, self.frames);
        let owner = owner.and_then(|id| Ok((id, self.service.names.objects.get(id).ok_or("")?)));
        match (running, owner) {
            // The kernel's source is only searched in our own root: a process in a container has another file at this path.
            (Ok(code), Ok(owner)) => Ok((self.source(owner, &[]), Ok(code))),
            (Ok(code), Err(why)) => Ok((Err(format!("no source: {why}")), Ok(code))),
            // Fall back to the instructions in the file.
            (Err(why), Ok((id, object))) => {
                let code = code::instructions(self.service, id, object, self.by, self.frames);
                let code = code.map_err(|of_file| format!("{of_file}; and {why}"));
                Ok((self.source((id, object), &[]), code))
            }
            (Err(why), Err(of_files)) => Err(format!("neither source nor instructions: {why}, and {of_files}")),
        }
    }

    /// Finds the source file of the function, and the rows of its addresses. The addresses are of one object; `owner` is the object with
    /// the debug information. For the kernel it may be a module.
    fn source(&self, (owner, about): (ObjectId, &Object), hosts: &[Host]) -> Pane {
        let About { service, label, id, .. } = *self;
        let name = sanitize(about.short_name()).into_owned();
        let frames: Vec<FrameId> = self.frames.iter().map(|weight| weight.frame).collect();
        let Some(chains) = chains(service, id, &frames) else {
            return Err(format!("no source: {name} has no debug information; build it with -g, or install its debug symbols"));
        };
        let mut lines: Vec<Line> = Vec::new();
        let mut files: FxHashMap<Arc<str>, (u64, u64)> = FxHashMap::default();
        for (weight, chain) in self.frames.iter().zip(chains) {
            // If a function is inlined into itself, the innermost one counts.
            let located = chain.into_iter().rev().find(|located| located.label == label);
            let Some(place) = located.and_then(|located| located.location) else { continue };
            let sum = files.entry(Arc::clone(&place.file)).or_default();
            *sum = (sum.0 + weight.own, sum.1 + weight.total);
            lines.push((weight.frame, place.file, place.line));
        }
        let its_own = lines.iter().find(|(frame, ..)| *frame == self.by).map(|(_, file, _)| Arc::clone(file));
        let heaviest = || files.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a))).map(|(file, _)| file);
        let Some(file) = its_own.or_else(heaviest) else {
            return Err(match self.object.kind {
                ObjectKind::Anonymous => "no source: its runtime did not record its source lines".to_owned(),
                ObjectKind::Script => format!("no source: the interpreter has no line numbers for {name}"),
                _ => format!("no source: the debug information of {name} has no lines for this function"),
            });
        };
        let is_script = self.object.kind == ObjectKind::Script;
        let script = sanitize(&self.object.path);
        if is_script && *file != *script {
            return self.original(&file, &lines, hosts).or_else(|why| self.script(&script, hosts, &why));
        }
        let of_user = Some(self.object).filter(|object| object.kind != ObjectKind::Kernel);
        let text = text::read(&file, hosts, of_user).map_err(|why| format!("no source: {why}"))?;
        let is_built = !matches!(self.object.kind, ObjectKind::Anonymous | ObjectKind::Script);
        let built = if is_built { code::modified(service, owner, about) } else { None };
        let fault = if is_script { service.source_maps.fault(service.script(id, self.object)) } else { None };
        let note = match (built, fault) {
            (Some(built), _) if built < text.modified => {
                "the file is newer than the program: its lines may differ from the code that runs".to_owned()
            }
            (_, Some(why)) => format!("the source map is not used: {why}"),
            _ => String::new(),
        };
        Ok(rows_of(file, text.rows, &lines, note))
    }

    /// Returns the source that a script was made from.
    fn original(&self, file: &Arc<str>, lines: &[Line], hosts: &[Host]) -> Pane {
        let About { service, id, object, .. } = *self;
        let rows = match service.source_maps.content(service.script(id, object), file) {
            Some(text) => text::lines(file, text.as_bytes())?,
            None => text::read(file, hosts, Some(object))?.rows,
        };
        let note = format!("from the source map of {}", sanitize(object.short_name()));
        Ok(rows_of(Arc::clone(file), rows, lines, note))
    }

    /// Returns a script whose original cannot be shown.
    fn script(&self, file: &str, hosts: &[Host], why: &str) -> Pane {
        let text = text::read(file, hosts, Some(self.object)).map_err(|why| format!("no source: {why}"))?;
        let file: Arc<str> = file.into();
        let line = |weight: &FrameWeight| match self.service.names.frames.get(weight.frame)? {
            Frame::Script { line, .. } => Some((weight.frame, Arc::clone(&file), line)),
            _ => None,
        };
        let lines: Vec<Line> = self.frames.iter().filter_map(line).collect();
        Ok(rows_of(Arc::clone(&file), text.rows, &lines, format!("the source map's original is not shown: {why}")))
    }
}

/// An address of a function, and its line in a file.
type Line = (FrameId, Arc<str>, u32);

/// Finds the rows of addresses in a file.
fn rows_of(file: Arc<str>, rows: Vec<Row>, lines: &[Line], note: String) -> Rows {
    let at_row = |line: &u32| (*line as usize).checked_sub(1).filter(|row| *row < rows.len());
    let its = || lines.iter().filter(|(_, of, _)| *of == file);
    let row_of = its().filter_map(|(frame, _, line)| Some((*frame, at_row(line)?))).collect();
    let is_short = its().any(|(.., line)| at_row(line).is_none());
    let note = if is_short { "the file has changed: it has fewer lines than the compiler saw".to_owned() } else { note };
    Rows { file, note, rows, row_of }
}
