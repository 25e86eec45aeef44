//! Files and lines of addresses, looked up independently of the naming of frames.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::Service;
use super::latest::Newest;
use crate::profile::{
    Begin, Frame, FrameId, FrameKind, FrameWeight, LabelId, Language, Object, ObjectId, ObjectKind, SourceLocation, hottest_line,
    sanitize,
};
use crate::symbolize::dwarf::location;
use crate::symbolize::kernel::vmlinux::same_function;
use crate::symbolize::symbols::demangle::{Detail, demangle};

/// A function at an address, and the line that is executed in it there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    /// The label of its name.
    pub(crate) label: LabelId,
    /// For the innermost function the line of the address, for outer functions the line of the call.
    pub(crate) location: Option<SourceLocation>,
}

/// Lines that are executed at each address, innermost function first. Inlined calls without a name are left out.
type Places = Vec<Option<SourceLocation>>;

/// Functions of an object that are looked up together.
const BATCH: usize = 16;

/// Lines of some addresses of a function.
type Lines = Vec<(FrameId, SourceLocation)>;

/// Finds lines for the cursor: of a frame's innermost function, or of the addresses of a function.
#[derive(Default)]
pub(crate) struct Locator {
    innermost: Arc<Newest<FrameId, Option<SourceLocation>>>,
    named: Arc<Newest<(LabelId, Vec<FrameId>), Lines>>,
}

impl Locator {
    /// Asks about a frame's innermost function.
    pub(crate) fn ask(&self, service: &Arc<Service>, frame: FrameId) -> oneshot::Receiver<Option<SourceLocation>> {
        self.innermost.ask(service, frame, |service, frame| {
            let object = service.names.frames.get(frame)?.object();
            let places = places(service, object, &[frame]);
            service.objects.shrink();
            places?.pop()?.into_iter().next()?
        })
    }

    /// Asks about addresses of the function with this name. Answers for those that are in the object of the first one.
    pub(crate) fn ask_named(&self, service: &Arc<Service>, label: LabelId, frames: Vec<FrameId>) -> oneshot::Receiver<Lines> {
        self.named.ask(service, (label, frames), |service, (label, frames)| {
            let object_of = |frame: &FrameId| service.names.frames.get(*frame).map(|frame| frame.object());
            let Some(object) = frames.first().and_then(object_of) else { return Lines::new() };
            let frames: Vec<FrameId> = frames.into_iter().filter(|frame| object_of(frame) == Some(object)).collect();
            let chains = chains(service, object, &frames).unwrap_or_default();
            service.objects.shrink();
            frames.into_iter().zip(chains).filter_map(|(frame, chain)| Some((frame, line_of(label, chain)?))).collect()
        })
    }

    /// Asks for the hottest lines of many functions, each by its heaviest addresses. Answers come object by object: the objects with the
    /// most questions first, the kernel last. The work ends when the receiver is dropped.
    pub(crate) fn ask_all(service: &Arc<Service>, questions: Questions) -> UnboundedReceiver<(LabelId, SourceLocation)> {
        let (sender, receiver) = unbounded_channel();
        let (handle, service) = (service.handle.clone(), Arc::clone(service));
        let answer = move || {
            for (object, questions) in by_object(&service, questions) {
                // Two functions of the kernel may be in different files: see `places`.
                let batch = if object == ObjectId::KERNEL { 1 } else { BATCH };
                for questions in questions.chunks(batch) {
                    let frames: Vec<FrameId> =
                        questions.iter().flat_map(|(_, weights)| weights).map(|weight| weight.frame).collect();
                    let mut chains = chains(&service, object, &frames).unwrap_or_default().into_iter();
                    for (label, weights) in questions {
                        let current = service.names.labels.current(*label);
                        let lines = weights.iter().zip(chains.by_ref()).map(|(weight, chain)| (*weight, line_of(current, chain)));
                        let lines: Vec<_> = lines.collect();
                        let known = lines.iter().filter_map(|(weight, line)| Some((*weight, line.as_ref()?)));
                        let Some(line) = hottest_line(known).cloned() else { continue };
                        drop(sender.send((*label, line)));
                    }
                    if sender.is_closed() || service.stopped.load(Ordering::Relaxed) {
                        return service.objects.shrink();
                    }
                }
                service.objects.shrink();
            }
        };
        drop(handle.spawn_blocking(answer));
        receiver
    }
}

/// Returns the line of the function with this name among the functions at an address.
fn line_of(label: LabelId, chain: Vec<Located>) -> Option<SourceLocation> {
    chain.into_iter().rev().find(|located| located.label == label)?.location
}

type Questions = Vec<(LabelId, Vec<FrameWeight>)>;

/// Groups the questions by the object of their heaviest address, and drops addresses in other objects.
fn by_object(service: &Service, questions: Questions) -> Vec<(ObjectId, Questions)> {
    let mut objects: BTreeMap<ObjectId, Questions> = BTreeMap::new();
    let object_of = |weight: &FrameWeight| service.names.frames.get(weight.frame).map(|frame| frame.object());
    for (label, mut weights) in questions {
        if let Some(object) = weights.first().and_then(object_of) {
            weights.retain(|weight| object_of(weight) == Some(object));
            objects.entry(object).or_default().push((label, weights));
        }
    }
    let mut in_order: Vec<_> = objects.into_iter().collect();
    in_order.sort_by_key(|(object, questions)| (*object == ObjectId::KERNEL, std::cmp::Reverse(questions.len())));
    in_order
}

/// Returns the functions at each address of an object, and the line in each. They come root first, as from
/// [`Names::labels_of`](crate::profile::Names::labels_of). `None` if the object has no readable debug information.
pub(crate) fn chains(service: &Service, object: ObjectId, frames: &[FrameId]) -> Option<Vec<Vec<Located>>> {
    let places = places(service, object, frames)?;
    let chain = |(frame, places): (&FrameId, Places)| {
        let mut chain = Vec::new();
        // A frame that so far has only the name of its symbol has its outermost function.
        let mut outermost_first = places.into_iter().rev();
        service.names.labels_of(*frame, |label| chain.push(Located { label, location: outermost_first.next().flatten() }));
        chain
    };
    Some(frames.iter().zip(places).map(chain).collect())
}

/// Asks the object's debug information. An error in one unit does not affect other units.
fn places(service: &Service, object: ObjectId, frames: &[FrameId]) -> Option<Vec<Places>> {
    // Kernel frames must be of one function: then all of them are in the same file.
    let object = match object {
        ObjectId::KERNEL => service.has_debug_information_of(*frames.first()?)?,
        object => object,
    };
    let about = service.names.objects.get(object)?;
    match about.kind {
        ObjectKind::Elf | ObjectKind::Kernel => {}
        ObjectKind::Script => {
            let file: Arc<str> = sanitize(&about.path).into();
            let place = |frame: &FrameId| match service.names.frames.get(*frame)? {
                Frame::Script { line, label, .. } if line > 0 => {
                    let original = service.original(object, about, label, line);
                    Some(original.unwrap_or_else(|| SourceLocation { file: Arc::clone(&file), line }))
                }
                _ => None,
            };
            return Some(frames.iter().map(|frame| vec![place(frame)]).collect());
        }
        ObjectKind::Anonymous => {
            let place = |frame: &FrameId| service.jit.locate(&service.names, *frame, &service.stopped);
            return Some(frames.iter().map(|frame| vec![place(frame)]).collect());
        }
        _ => return None,
    }
    let entry = service.objects.entry(object);
    let mut state = entry.state();
    let images = service.objects.images(&mut state, about, &[]).ok()?;
    let asked = service.objects.with_dwarf(&mut state, &images, |_, dwarf| {
        let of_frame = |frame: &FrameId| {
            let mut places = Places::new();
            let of_object = if about.kind == ObjectKind::Kernel { ObjectId::KERNEL } else { object };
            let known = service.names.frames.get(*frame).filter(|frame| frame.object() == of_object);
            let address = known.and_then(|frame| images.elf_address(frame));
            let mut named = Vec::new();
            // The debug information counts only if it has the kernel's own name for the function.
            let is_kernel = about.kind == ObjectKind::Kernel;
            let mut is_other = false;
            let found = address.map(|address| {
                dwarf.calls(address, |call| {
                    places.push(call.place.map(location));
                    named.push(call.name.is_some());
                    // The last one is the outermost.
                    is_other = is_kernel && call.name.is_some_and(|name| !service.is_named(*frame, name));
                })
            });
            if !matches!(found, Some(Ok(()))) || is_other {
                places.clear();
            }
            // An inlined call without a name has no label either. The outermost function has the label of its symbol.
            let outermost = places.len().saturating_sub(1);
            let mut depth = 0..;
            places.retain(|_| depth.next().is_none_or(|depth| depth == outermost || named.get(depth).is_none_or(|named| *named)));
            places
        };
        let places: Vec<Places> = frames.iter().map(of_frame).collect();
        dwarf.give_back();
        (!dwarf.is_torn()).then_some(places)
    });
    images.check_unchanged().ok()?;
    asked.ok().flatten().flatten()
}

impl Service {
    /// Returns what a line of a function of JavaScript was made from, if its script has a source map. The column is known only where the
    /// function begins; a minified script is one line. A function that begins with the script is the whole script, made from many sources.
    fn original(&self, object: ObjectId, about: &Object, label: LabelId, line: u32) -> Option<SourceLocation> {
        const SCRIPT: (u32, Option<u32>) = (1, Some(1));
        let label = self.names.labels.get(label).filter(|label| label.kind == FrameKind::Script(Language::JavaScript))?;
        let begin = Begin::parse(&label.object).map(|begin| (begin.line, begin.column)).filter(|begin| begin.0 == line);
        let column = begin.and_then(|(_, column)| column);
        let original = || self.source_maps.original(self.script(object, about), line, column);
        if begin == Some(SCRIPT) { None } else { original() }
    }

    /// Whether a frame's outermost function has this name.
    fn is_named(&self, frame: FrameId, name: &[u8]) -> bool {
        let symbol = self.symbol_of(frame).and_then(|label| self.names.labels.get(label));
        symbol.is_some_and(|symbol| same_function(&symbol.name, &demangle(name, Detail::default())))
    }
}
