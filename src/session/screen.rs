//! Connects a session to the screen: the engine thread, saving, signals, and the channels between them. Used by the live view and by the
//! view of a file.

use crate::session::about::about_of;
use crate::session::clock::{began, below_title, now};
use crate::session::lines::{LINES_WITHIN, lines_of};
use crate::session::save_samples::save_samples;
use crate::session::shared::Shared;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::formats::folded::FoldedOptions;
use crate::formats::save::{self, Overwrite, SaveError, expand_home};
use crate::formats::svg::SvgOptions;
use crate::formats::{About, Format, FormatError, Part, SaveOptions};
use crate::profile::{Addresses, Engine, FrameId, LabelId, Request, Snapshot, Timestamp};
use crate::ui::{Event, EventCommand, Link, Place, SaveRequest, Saved, Status, Stop, fit_name, plain_name};

/// Interval between two pictures while samples come in; it is shorter at first. Four pictures a second are promised, and a busy machine
/// wakes threads late.
const PICTURE_EVERY: Duration = Duration::from_millis(200);
const PICTURE_AT_FIRST: Duration = Duration::from_millis(60);

/// Most events that wait for the screen. A command that writes more than can be shown waits, as it would for a terminal.
const EVENTS: usize = 16;

/// The session's side of the channels to the screen.
pub(super) struct Ends {
    snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) status: watch::Sender<Status>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) requests: watch::Receiver<Request>,
    listings: watch::Receiver<Option<(Arc<Addresses>, Option<FrameId>)>>,
    places: watch::Receiver<Option<(LabelId, Vec<FrameId>)>>,
    saves: std::cell::Cell<Option<mpsc::UnboundedReceiver<SaveRequest>>>,
    /// The screen's requests about events. The live view takes the receiver; files have no events.
    #[cfg_attr(not(feature = "live"), expect(dead_code, reason = "files have no events"))]
    pub(super) orders: std::cell::Cell<Option<mpsc::UnboundedReceiver<EventCommand>>>,
    stop: watch::Sender<Stop>,
}

/// Makes both sides of the channels to the screen.
pub(super) fn ends() -> (Ends, Link) {
    let (snapshots, new_snapshots) = watch::channel(Arc::default());
    let (status, new_status) = watch::channel(Status::default());
    let (events, new_events) = mpsc::channel(EVENTS);
    let (requests, new_requests) = watch::channel(Request::default());
    let (saves, new_saves) = mpsc::unbounded_channel();
    let (orders, new_orders) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(Stop::No);
    let (listings, new_listings) = watch::channel(None);
    let (places, new_places) = watch::channel(None);
    let link = Link {
        snapshots: new_snapshots,
        status: new_status,
        events: new_events,
        requests,
        listings,
        places,
        saves,
        orders,
        stop: stopped,
    };
    let saves = std::cell::Cell::new(Some(new_saves));
    let orders = std::cell::Cell::new(Some(new_orders));
    let (requests, listings, places) = (new_requests, new_listings, new_places);
    let ends = Ends { snapshots, status, events, requests, listings, places, saves, orders, stop };
    (ends, link)
}

impl Ends {
    /// Ends the screen and the engine.
    pub(super) fn stop(&self) {
        self.stop.send_replace(Stop::Asked);
    }

    /// Starts the engine's thread, which answers the newest request at once. While samples come in, it answers the same request again. For
    /// samples that have all been taken, `end` is the moment of every answer.
    pub(super) fn spawn_engine(&self, mut engine: Engine, end: Option<Timestamp>) -> Result<std::thread::JoinHandle<()>> {
        let mut requests = self.requests.clone();
        let snapshots = self.snapshots.clone();
        let stop = self.stop.clone();
        let handle = tokio::runtime::Handle::current();
        let body = move || {
            // After a panic here the picture would never change again: ending the program is better.
            let _end = StopWhenDropped(stop.clone());
            // No picture is made before the screen's first request, not even for a moment. A file's stacks grouped by process would be
            // another tree than the next one, and a click on it would be lost.
            if handle.block_on(requests.changed()).is_err() {
                return;
            }
            answer_requests(&mut engine, &mut requests, &snapshots, &stop.subscribe(), end, &handle);
        };
        std::thread::Builder::new().name("flametop-engine".to_owned()).spawn(body).context("failed to start a thread")
    }

    /// Asks the symbolizer about the code that the screen wants to show. Only the newest request counts.
    pub(super) fn spawn_readers(&self, shared: &Shared) {
        let (symbolizer, events) = (shared.symbolizer.clone(), self.events.clone());
        tokio::spawn(newest(self.listings.clone(), move |(addresses, by): (Arc<Addresses>, Option<FrameId>)| {
            let (label, events) = (addresses.label, events.clone());
            let answer = symbolizer.listing(label, addresses.frames.clone(), by);
            async move {
                let listing = answer.await.unwrap_or_else(|_| Err("reading its code failed; please report this".to_owned()));
                drop(events.send(Event::Listing(label, listing.map(Arc::new))).await);
            }
        }));
        let (symbolizer, events) = (shared.symbolizer.clone(), self.events.clone());
        tokio::spawn(newest(self.places.clone(), move |(label, frames)| {
            let events = events.clone();
            let answer = symbolizer.locate_named(label, frames);
            async move {
                let lines = answer.await.unwrap_or_default();
                drop(events.send(Event::Located(label, lines)).await);
            }
        }));
    }

    /// Saves the views that the screen orders, outside the drawing thread. Pictures have callers at the bottom, or at the top if
    /// `is_icicle`.
    pub(super) fn spawn_saver(&self, shared: &Shared, is_icicle: bool) {
        let Some(mut saves) = self.saves.take() else { return };
        let (shared, events, status) = (shared.clone(), self.events.clone(), self.status.subscribe());
        tokio::task::spawn_blocking(move || {
            while let Some(mut order) = saves.blocking_recv() {
                order.path = expand_home(&order.path);
                let watched = order.watched.clone().unwrap_or_default();
                let about = About { watched, ..about_of(&status.borrow()) };
                let saved = match save_view(&order, &shared, &about, is_icicle) {
                    Ok((saved, cut)) => Saved::Done { path: order.path, bytes: saved.bytes, cut },
                    Err(SaveError::Exists { .. }) => Saved::Exists(order.path),
                    Err(error) => Saved::Failed(error.to_string()),
                };
                if events.blocking_send(Event::Saved(saved)).is_err() {
                    return;
                }
            }
        });
    }

    /// Ends the screen in order when a signal arrives.
    pub(super) fn spawn_signals(&self) -> Result<()> {
        for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()] {
            let mut caught = signal(kind).context("failed to watch for signals")?;
            let stop = self.stop.clone();
            tokio::spawn(async move {
                caught.recv().await;
                stop.send_replace(Stop::Asked);
            });
        }
        Ok(())
    }
}

/// Answers the newest request as soon as it comes, and the same request again as samples come in. If all samples have been taken, `end` is
/// the moment of every answer. Ends when `stop` says so, or when the screen has closed its end of a channel. Public for
/// `examples/live_like.rs`, which measures with it.
pub fn answer_requests(
    engine: &mut Engine,
    requests: &mut watch::Receiver<Request>,
    snapshots: &watch::Sender<Arc<Snapshot>>,
    stop: &watch::Receiver<Stop>,
    end: Option<Timestamp>,
    handle: &tokio::runtime::Handle,
) {
    let began = Instant::now();
    let goes_on = || matches!(*stop.borrow(), Stop::No);
    while goes_on() {
        let request = requests.borrow_and_update().clone();
        let answered = Instant::now();
        if snapshots.send(Arc::new(engine.answer(&request, end.unwrap_or_else(|| engine.present(now()))))).is_err() || !goes_on()
        {
            return;
        }
        let pause = match (end.is_none(), began.elapsed() < Duration::from_secs(2)) {
            (false, _) => Duration::from_secs(3600),
            (true, true) => PICTURE_AT_FIRST,
            // Pictures never take more than a quarter of the time.
            (true, false) => PICTURE_EVERY.saturating_sub(answered.elapsed()).max(answered.elapsed() * 3),
        };
        // Each step of the cursor asks for the addresses of another function. They come with the next picture; a step makes no picture.
        let another = async {
            loop {
                requests.changed().await?;
                if !requests.borrow().has_the_picture_of(&request) {
                    return Ok::<(), watch::error::RecvError>(());
                }
            }
        };
        let changed = handle.block_on(async { tokio::time::timeout(pause, another).await });
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}

/// Answers the newest question, and drops that work when a newer question comes. Ends when the asking side is closed.
async fn newest<Q: Clone, F: Future<Output = ()>>(mut questions: watch::Receiver<Option<Q>>, answer: impl Fn(Q) -> F) {
    while questions.changed().await.is_ok() {
        loop {
            let Some(question) = questions.borrow_and_update().clone() else { break };
            tokio::select! {
                biased;
                changed = questions.changed() => if changed.is_err() { return },
                () = answer(question) => break,
            }
        }
    }
}

/// Ends the screen when the thread that holds this ends, whatever the reason.
struct StopWhenDropped(watch::Sender<Stop>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.send_if_modified(|stop| {
            let running = matches!(stop, Stop::No);
            if running {
                *stop = if std::thread::panicking() {
                    Stop::Failed("the thread that makes the pictures failed; please report this".to_owned())
                } else {
                    Stop::Asked
                };
            }
            running
        });
    }
}

/// Writes the view on screen to a file. Also returns a note about parts that the file lacks.
fn save_view(
    order: &SaveRequest,
    shared: &Shared,
    about: &About,
    is_icicle: bool,
) -> Result<(save::Saved, Option<String>), SaveError> {
    let format = Format::of(&order.path)?;
    let overwrite = if order.overwrite { Overwrite::Yes } else { Overwrite::No };
    if let Some(sink) = format.sink() {
        let samples = |out: &mut dyn Write| save_samples(sink, shared, &order.query, about, out).map(drop);
        return Ok((save::save(&order.path, overwrite, samples)?, None));
    }
    let mut tree = Arc::clone(&order.tree);
    if order.one > 1 && order.difference.is_none() {
        Arc::make_mut(&mut tree).divide(order.one);
    }
    let zoom = Place { path: order.zoom.clone(), rest: false };
    let (root, _) = zoom.find(&tree);
    let part = Part { tree: &tree, difference: order.difference.as_deref(), labels: &order.names.labels, root };
    let lines = lines_of(shared, &order.names, &part, format, order.source, LINES_WITHIN);
    let lines = tokio::runtime::Handle::current().block_on(lines);
    let picture = SvgOptions {
        title: order.title.clone(),
        subtitle: Some(below_title(order.facts.clone())),
        inverted: is_icicle,
        count_name: order.unit.word().to_owned(),
        palette: order.palette,
        lines,
        short: plain_name,
        fit: fit_name,
    };
    let options = SaveOptions {
        picture,
        folded: FoldedOptions::default(),
        unit: order.unit,
        frequency: about.frequency,
        time: order.seconds.map(began),
        seconds: order.seconds,
    };
    let mut cut = None;
    let saved = save::save(&order.path, overwrite, |out| -> Result<(), FormatError> {
        cut = format.write(part, &options, out)?;
        Ok(())
    })?;
    Ok((saved, cut))
}
