//! The screen and its keys.
//!
//! [`App`] is a state machine without I/O. [`run`] passes it the terminal's events, the answers to its requests and the state of
//! the run. It draws all changes and sends the effects through [`Link`]. The drawing thread waits only for events.

mod amounts;
mod app;
mod areas;
mod background;
mod baseline;
mod choose;
mod compare;
mod detail;
mod dialogs;
mod event_choice;
mod find;
mod going;
mod graph;
mod keys;
mod messages;
mod mouse;
mod names;
mod overlay;
mod paint;
mod place;
mod position;
mod read_source;
mod scene;
mod screen;
mod source;
mod span;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod theme;
mod time_range;
mod title;
mod view;
mod views;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, EventStream, KeyCode, KeyEvent, KeyModifiers, MouseEventKind};
use futures_util::StreamExt;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

pub use app::{App, SaveOffer};
pub use areas::Areas;
pub use background::has_dark_background;
pub use baseline::Compare;
pub use choose::{ProfileFile, ProfileList, choose};
pub use keys::{Action, BINDINGS, Binding, KeyMap, Section};
pub use messages::{
    Effect, Ended, Event, EventCommand, EventName, Heap, Message, NotAttached, Problem, SaveRequest, Saved, Status,
};
pub use names::{Detail, fit_name, plain_name};
pub use place::Place;
pub use scene::{Chip, Scene};
pub use screen::draw;
pub use source::{Pane, Source};
pub use span::Span;
pub use text::{
    amount as format_amount, bytes as format_bytes, duration as format_duration, grouped as format_grouped,
    idle_threads as format_idle_threads,
};
pub use theme::{ColourMode, Depth, Theme};
pub use title::{Sampled, picture_facts, process_title};
pub use view::View;

use crate::profile::{Addresses, FrameId, LabelId, Request, Snapshot};

/// The screen's channels to the session: input besides keys, and output.
pub struct Link {
    /// The newest answer.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The newest state of the run.
    pub status: watch::Receiver<Status>,
    /// Results of saves, and lines of output.
    pub events: mpsc::Receiver<Event>,
    /// The newest request.
    pub requests: watch::Sender<Request>,
    /// The newest function to read, with the addresses of its samples.
    pub listings: watch::Sender<Option<(Arc<Addresses>, Option<FrameId>)>>,
    /// The newest addresses to look up, and their function: files and lines are wanted.
    pub places: watch::Sender<Option<(LabelId, Vec<FrameId>)>>,
    /// Requests to save.
    pub saves: mpsc::UnboundedSender<SaveRequest>,
    /// Commands about events.
    pub orders: mpsc::UnboundedSender<EventCommand>,
    /// Whether the program is to end.
    pub stop: watch::Receiver<Stop>,
}

/// Whether and why the screen is to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It continues.
    #[default]
    No,
    /// A signal or the session's end requested it.
    Asked,
    /// A part that is needed for the picture failed. Contains the reason.
    Failed(String),
}

/// Least time between two pictures while no key is pressed. Keys are answered at once.
const LEAST_BETWEEN_PICTURES: Duration = Duration::from_millis(50);

/// Runs the screen until the user quits or `link.stop` is set. Returns whether the user quit. The terminal is restored in every case.
///
/// # Errors
///
/// The terminal cannot be taken over, or has disappeared.
pub async fn run(mut app: App, mut link: Link) -> io::Result<bool> {
    let mut guard = terminal::Guard::take()?;
    let (mut stops, mut goes_on) = (job_signal(Signal::TSTP)?, job_signal(Signal::CONT)?);
    let mut gone = std::pin::pin!(terminal::gone());
    // Created before the first picture, so that no change of the size is missed.
    let mut terminal_events = EventStream::new();
    let size = guard.screen.size()?;
    apply(&mut app, Event::Resize(size.width, size.height), &link, &mut guard)?;
    picture(&mut app, &link, &mut guard)?;
    loop {
        let event = tokio::select! {
            biased;
            changed = link.stop.changed() => {
                match &*link.stop.borrow() {
                    Stop::Failed(why) => return Err(io::Error::other(why.clone())),
                    Stop::No if changed.is_ok() => {}
                    Stop::No | Stop::Asked => return Ok(false),
                }
                continue;
            }
            () = &mut gone => return Ok(false),
            _ = stops.recv() => {
                stop_for_a_while(&mut app, &mut guard, &mut goes_on).await?;
                picture(&mut app, &link, &mut guard)?;
                continue;
            }
            // After a stop from outside, such as kill -STOP, other programs may have changed the terminal.
            _ = goes_on.recv() => {
                guard.resume()?;
                picture(&mut app, &link, &mut guard)?;
                continue;
            }
            event = terminal_events.next() => match event {
                // The terminal has disappeared, for example because its window was closed.
                None => return Ok(false),
                Some(event) => event?,
            },
            Ok(()) = link.snapshots.changed() => {
                let snapshot = Arc::clone(&link.snapshots.borrow_and_update());
                apply(&mut app, Event::Snapshot(snapshot), &link, &mut guard)?;
                let status = link.status.borrow_and_update().clone();
                apply(&mut app, Event::Status(Box::new(status)), &link, &mut guard)?;
                picture(&mut app, &link, &mut guard)?;
                continue;
            }
            Ok(()) = link.status.changed() => {
                let status = link.status.borrow_and_update().clone();
                apply(&mut app, Event::Status(Box::new(status)), &link, &mut guard)?;
                // While samples arrive, the next picture follows soon and shows it.
                if !app.scene.status.live {
                    picture(&mut app, &link, &mut guard)?;
                }
                continue;
            }
            // Last, and all pending events at once: a command with endless output must delay neither keys nor pictures.
            Some(event) = link.events.recv() => {
                let mut next = Some(event);
                while let Some(event) = next.take() {
                    if apply(&mut app, event, &link, &mut guard)? == Next::Quit { return Ok(true); }
                    next = link.events.try_recv().ok();
                }
                picture(&mut app, &link, &mut guard)?;
                continue;
            }
        };
        // Further input that has arrived is processed before drawing, so that a held key never lags behind.
        let mut next = Some(event);
        let mut moved_only = true;
        while let Some(event) = next.take() {
            for event in from_terminal(event) {
                moved_only &= matches!(&event, Event::Mouse(mouse) if mouse.kind == MouseEventKind::Moved);
                match apply(&mut app, event, &link, &mut guard)? {
                    Next::GoOn => {}
                    Next::Quit => return Ok(true),
                    Next::Suspend => stop_for_a_while(&mut app, &mut guard, &mut goes_on).await?,
                }
            }
            // Polled with this task's waker: the stream keeps the first waker that it is given.
            let ready = poll_fn(|context| Poll::Ready(terminal_events.poll_next_unpin(context))).await;
            next = match ready {
                Poll::Ready(Some(event)) => Some(event?),
                Poll::Ready(None) => return Ok(false),
                Poll::Pending => None,
            };
        }
        picture(&mut app, &link, &mut guard)?;
        if moved_only {
            // A moving pointer would cause continuous drawing.
            tokio::time::sleep(LEAST_BETWEEN_PICTURES / 4).await;
        }
    }
}

fn job_signal(kind: Signal) -> io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::from_raw(kind.as_raw()))
}

/// Gives the terminal to the shell and stops the process, sampling included. Takes the terminal again after `fg`.
async fn stop_for_a_while(
    app: &mut App,
    guard: &mut terminal::Guard,
    goes_on: &mut tokio::signal::unix::Signal,
) -> io::Result<()> {
    if !terminal::has_a_shell() {
        app.scene.message = Some(Message { text: "there is no shell to go back to".to_owned(), bad: false });
        return Ok(());
    }
    guard.pause();
    terminal::stop()?;
    goes_on.recv().await;
    guard.resume()
}

/// Draws for the terminal's current size. The event about a change of the size may still be on its way, and a picture of another
/// size would not fit.
fn picture(app: &mut App, link: &Link, guard: &mut terminal::Guard) -> io::Result<()> {
    let size = guard.screen.size()?;
    if app.scene.size != (size.width, size.height) {
        apply(app, Event::Resize(size.width, size.height), link, guard)?;
    }
    guard.draw(|frame| draw(app, frame))
}

fn from_terminal(event: TerminalEvent) -> Vec<Event> {
    match event {
        // If Esc and another key are read together, they look like Alt and that key. Alt has no meaning here; Esc has one.
        TerminalEvent::Key(key) if key.modifiers.contains(KeyModifiers::ALT) => {
            let then = KeyEvent { modifiers: key.modifiers.difference(KeyModifiers::ALT), ..key };
            vec![Event::Key(KeyEvent { code: KeyCode::Esc, modifiers: KeyModifiers::NONE, ..key }), Event::Key(then)]
        }
        TerminalEvent::Key(key) => vec![Event::Key(key)],
        TerminalEvent::Mouse(mouse) => vec![Event::Mouse(mouse)],
        TerminalEvent::Paste(text) => vec![Event::Paste(text)],
        TerminalEvent::Resize(columns, rows) => vec![Event::Resize(columns, rows)],
        TerminalEvent::FocusGained | TerminalEvent::FocusLost => Vec::new(),
    }
}

/// The next step of the loop after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Suspend,
    Quit,
}

/// Passes an event to the state machine and carries out its effects.
fn apply(app: &mut App, event: Event, link: &Link, guard: &mut terminal::Guard) -> io::Result<Next> {
    let mut next = Next::GoOn;
    for effect in app.update(event) {
        match effect {
            // The receiver is closed only when the program is ending.
            Effect::Ask(request) => drop(link.requests.send(*request)),
            Effect::List(addresses, by) => drop(link.listings.send(Some((addresses, by)))),
            Effect::Locate(label, frames) => drop(link.places.send(Some((label, frames)))),
            Effect::Save(order) => drop(link.saves.send(*order)),
            Effect::Events(order) => drop(link.orders.send(order)),
            Effect::Copy(text) => terminal::copy(&text)?,
            Effect::Redraw => guard.screen.clear()?,
            Effect::Suspend => next = Next::Suspend,
            Effect::Quit => return Ok(Next::Quit),
        }
    }
    Ok(next)
}
