//! Fetches debug files one after the other, and names the frames of their objects again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Service;
use super::debuginfod::{Runner, Wish, fetch};
use crate::locks::lock;
use crate::object::debug_files::Fetched;
use crate::profile::{BuildId, FrameId, ObjectId, UserId};

impl Service {
    /// Queues an object's debug file for fetching. Counts as pending until that was tried. The file is not fetched if too many files of its
    /// user wait.
    pub(crate) fn fetch_later(self: &Arc<Self>, object: ObjectId, id: BuildId) {
        let Some(program) = self.fetch.program.get().cloned() else { return };
        let user = self.names.objects.get(object).map_or(UserId(0), |object| object.user);
        self.begun(1);
        match lock(&self.fetch.lane).push(user, Wish { object, id }) {
            Some(true) => {}
            Some(false) => return,
            None => return self.finished(1),
        }
        let service = Arc::clone(self);
        drop(self.handle.spawn_blocking(move || service.fetch_all(&program)));
    }

    fn fetch_all(self: &Arc<Self>, program: &Path) {
        loop {
            let is_over = || self.stopped.load(Ordering::Relaxed);
            let next = {
                let mut lane = lock(&self.fetch.lane);
                if is_over() {
                    self.finished(lane.clear());
                }
                lane.pop()
            };
            let Some(Wish { object, id }) = next else { return };
            let runner = self.fetch.runner.get_or_init(|| Runner::find().map(Arc::new)).clone();
            if let Some(fetched) = runner.and_then(|runner| fetch(program, &runner, id, is_over)) {
                self.take_fetched(object, fetched);
            }
            self.finished(1);
        }
    }

    /// Attaches a fetched file and queues the object's frames that were already named, or given up, to be named again. The other frames
    /// still wait for their turn.
    fn take_fetched(self: &Arc<Self>, object: ObjectId, fetched: Fetched) {
        let entry = self.objects.entry(object);
        self.objects.take_fetched(&entry, fetched);
        let ids = self.names.frames.ids();
        let is_its = |id: &FrameId| self.names.frames.get(*id).is_some_and(|frame| frame.object() == object);
        self.name_again(object, ids.filter(is_its).filter(|id| !self.is_waiting(*id)).collect());
    }
}
