//! Answers the screen's requests about events: lists them, and attaches and detaches sources.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::event_targets::{Watched, request};
use super::sampling::AttachCommand;
use super::screen::Ends;
use crate::collector::probes::{COUNTERS, EventRequest, KernelFunctions, OFF_CPU, Refused, tracepoints};
use crate::profile::EventSource;
use crate::ui::{Event, EventCommand, EventName, NotAttached};

/// Answers the screen's requests about events. Lists the events itself; sends orders to attach and detach to the collecting thread.
pub(super) fn spawn(ends: &Ends, collecting: Sender<AttachCommand>, pids: Vec<u32>) {
    let Some(mut asked) = ends.orders.take() else { return };
    let screen = ends.events.clone();
    tokio::spawn(async move {
        while let Some(order) = asked.recv().await {
            let (collecting, screen, pids) = (collecting.clone(), screen.clone(), pids.clone());
            match order {
                EventCommand::Detach(source) => drop(collecting.send(AttachCommand::Detach(source))),
                // Listing and attaching run as separate tasks, because the next order may be to detach.
                EventCommand::List => drop(tokio::spawn(async move {
                    let (answer, answered) = tokio::sync::oneshot::channel();
                    drop(collecting.send(AttachCommand::Try(answer)));
                    let refused = answered.await.unwrap_or_default();
                    let listed = tokio::task::spawn_blocking(move || all_names(&refused)).await.unwrap_or_default();
                    drop(screen.send(Event::EventNames(listed.into())).await);
                })),
                EventCommand::Attach { name, is_agreed } => drop(tokio::spawn(async move {
                    let attached = attach(name.clone(), is_agreed, collecting, pids).await;
                    drop(screen.send(Event::Attached(name, attached)).await);
                })),
            }
        }
    });
}

async fn attach(
    name: String,
    is_agreed: bool,
    collecting: Sender<AttachCommand>,
    pids: Vec<u32>,
) -> Result<EventSource, NotAttached> {
    let failed = |why: &str| NotAttached::Failed(why.to_owned());
    let read = move || request(&name, &Watched { command: None, pids: &pids });
    let read = tokio::task::spawn_blocking(read).await.map_err(|_| failed("looking for the event failed; please report this"))?;
    let request = EventRequest { is_agreed, ..read.map_err(|error| failed(&format!("{error:#}")))? };
    let (answer, answered) = tokio::sync::oneshot::channel();
    let gone = || failed("sampling has ended");
    collecting.send(AttachCommand::Attach(request, answer)).map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

/// Lists the events. Events that this machine refuses have a reason. Functions of programs are not in the list: the user types them.
fn all_names(refused: &Refused) -> Vec<EventName> {
    let event =
        |name: &str, help, refused: Option<&str>| EventName { name: name.to_owned(), help, refused: refused.map(Arc::from) };
    let counters = COUNTERS.iter().map(|counter| event(counter.name, counter.help, refused.counter(counter.name)));
    let waits = event(OFF_CPU, "where threads wait, and how long", refused.waits.as_deref());
    let tracepoints = tracepoints().into_iter().map(|name| event(&name, "tracepoint", refused.tracepoints.as_deref()));
    let functions = KernelFunctions::read().unwrap_or_default();
    let functions = functions.names().iter().map(|name| event(name, "function of the kernel", refused.functions.as_deref()));
    std::iter::once(waits).chain(counters).chain(tracepoints).chain(functions).collect()
}
