//! File and line of the selected frame, looked up beside the naming of frames. Only the newest question is kept: while the
//! cursor moves, the answers to where it was are of no use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::dwarf::{SourceLocation, location};
use super::objects::lock;
use super::service::Service;
use crate::profile::{FileOffset, FrameId, ObjectKind};

type Question = (FrameId, oneshot::Sender<Option<SourceLocation>>);

/// The newest question.
#[derive(Default)]
pub(super) struct Locator {
    lane: Mutex<Lane>,
}

#[derive(Default)]
struct Lane {
    newest: Option<Question>,
    running: bool,
}

impl Locator {
    /// Asks about a frame. The receiver of an older question, if it was not begun, sees its sender dropped.
    pub(super) fn ask(self: &Arc<Self>, service: &Arc<Service>, frame: FrameId) -> oneshot::Receiver<Option<SourceLocation>> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut lane = lock(&self.lane);
            lane.newest = Some((frame, sender));
            if lane.running {
                return receiver;
            }
            lane.running = true;
        }
        let (locator, service) = (Arc::clone(self), Arc::clone(service));
        drop(service.handle.clone().spawn_blocking(move || locator.work(&service)));
        receiver
    }

    fn work(&self, service: &Service) {
        loop {
            let (frame, sender) = {
                let mut lane = lock(&self.lane);
                match lane.newest.take() {
                    Some(question) if !service.stopped.load(Ordering::Relaxed) => question,
                    _ => {
                        lane.running = false;
                        return;
                    }
                }
            };
            let answer = catch_unwind(AssertUnwindSafe(|| self.find(service, frame))).unwrap_or(None);
            let _ = sender.send(answer);
        }
    }

    fn find(&self, service: &Service, frame: FrameId) -> Option<SourceLocation> {
        let frame = service.names.frames.get(frame)?;
        let object = service.names.objects.get(frame.object).filter(|object| object.kind == ObjectKind::Elf)?;
        let entry = service.objects.entry(frame.object);
        let mut state = entry.state();
        let images = service.objects.images(&mut state, object, &[]).ok()?;
        let address = images.own.elf_address(FileOffset(frame.lookup_address()))?;
        let mut innermost = None;
        let asked = service.objects.with_dwarf(&mut state, &images, |_, dwarf| {
            let mut first = true;
            let found = dwarf.calls(address, |call| {
                if std::mem::take(&mut first) {
                    innermost = call.place.map(location);
                }
            });
            found.is_ok() && !dwarf.is_torn()
        });
        images.check_unchanged().ok()?;
        innermost.filter(|_| matches!(asked, Ok(Some(true))))
    }
}
