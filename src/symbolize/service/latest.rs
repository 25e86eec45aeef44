//! Keeps only the newest question from the screen: once the cursor has moved, answers for its old position are useless.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::Service;
use crate::locks::lock;

/// Answers questions of one kind, one at a time. The blocking thread exists only while there is a question.
pub(crate) struct Newest<Q, A> {
    lane: Mutex<Lane<Q, A>>,
}

struct Lane<Q, A> {
    newest: Option<(Q, oneshot::Sender<A>)>,
    running: bool,
}

impl<Q, A> Default for Newest<Q, A> {
    fn default() -> Self {
        Newest { lane: Mutex::new(Lane { newest: None, running: false }) }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Newest<Q, A> {
    /// Leaves a question. If an older one has not begun, its receiver sees the sender dropped. The same happens if an answer fails
    /// unexpectedly. `answer` is the same for all questions of a kind.
    pub(crate) fn ask(
        self: &Arc<Self>,
        service: &Arc<Service>,
        question: Q,
        answer: impl Fn(&Service, Q) -> A + Send + 'static,
    ) -> oneshot::Receiver<A> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut lane = lock(&self.lane);
            lane.newest = Some((question, sender));
            if lane.running {
                return receiver;
            }
            lane.running = true;
        }
        let (newest, service) = (Arc::clone(self), Arc::clone(service));
        drop(service.handle.clone().spawn_blocking(move || newest.work(&service, answer)));
        receiver
    }

    fn work(&self, service: &Service, answer: impl Fn(&Service, Q) -> A) {
        loop {
            let (question, sender) = {
                let mut lane = lock(&self.lane);
                match lane.newest.take() {
                    Some(question) if !service.stopped.load(Ordering::Relaxed) => question,
                    _ => {
                        lane.running = false;
                        return;
                    }
                }
            };
            if let Ok(answer) = catch_unwind(AssertUnwindSafe(|| answer(service, question))) {
                // The caller may have replaced the question meanwhile.
                let _ = sender.send(answer);
            }
        }
    }
}
