//! Reads packages from the sampling process, and sends them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::address::Address;
use super::answer::{self, Answer};
use super::client::Client;
use super::counts::{Counts, Teller};
use super::outbox::{Outbox, Parcel};
use super::package::Package;
use super::retry::Waits;
use super::{environment, metrics};
use crate::locks;

/// Longest sleep: what went wrong is said at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What a sender is told.
pub struct Settings {
    /// The engine.
    pub address: Address,
    /// Where Prometheus reads the numbers: `127.0.0.1:9464`.
    pub metrics: Option<String>,
}

/// What the threads share.
#[derive(Default)]
struct State {
    outbox: Outbox,
    counts: Counts,
    teller: Teller,
    /// The sampling process has ended, or closed the pipe.
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something has come, or the end.
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        locks::lock(&self.state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
}

/// Sends what comes through `input`, until it ends. `get` returns variables of the environment, `tell` prints a line.
///
/// # Errors
///
/// A sentence, if nothing can be sent at all.
pub fn run(
    settings: &Settings,
    input: impl Read + Send + 'static,
    get: impl Fn(&str) -> Option<String>,
    tell: impl Fn(&str),
) -> Result<(), String> {
    let client = Client::new(&settings.address, environment::manners(get)?)?;
    let shared = Arc::new(Shared::default());
    if let Some(address) = &settings.metrics {
        let listener =
            TcpListener::bind(metrics::parse(address)?).map_err(|error| format!("failed to listen at {address}: {error}"))?;
        let shared = Arc::clone(&shared);
        begin("metrics", move || {
            metrics::serve(&listener, || {
                let state = shared.lock();
                (state.counts, state.outbox.size())
            });
        })?;
    }
    let reading = Arc::clone(&shared);
    begin("read", move || read(&reading, input))?;
    send(&shared, &settings.address, &client, &tell);
    tell(&shared.lock().counts.line());
    Ok(())
}

fn begin(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = std::thread::Builder::new().name(format!("flametop-{name}")).spawn(body);
    thread.map(drop).map_err(|error| format!("failed to start a thread: {error}"))
}

/// Puts packages into the outbox.
fn read(shared: &Shared, mut input: impl Read) {
    loop {
        let package = Package::read(&mut input);
        let Ok(Some(Package { samples, missed, body })) = package else { break };
        let parcel = Parcel { body: compressed(&body).into(), samples: samples.into() };
        drop(body);
        let mut state = shared.lock();
        state.counts.missed += u64::from(missed);
        if samples > 0 {
            let gone = state.outbox.put(parcel);
            state.counts.given_up += gone.iter().map(|parcel| parcel.samples).sum::<u64>();
        }
        drop(state);
        shared.changed.notify_all();
    }
    shared.lock().is_over = true;
    shared.changed.notify_all();
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(3));
    // Memory can be written.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

/// Sends parcels, one after another. At the end, all that are left are tried until one fails.
fn send(shared: &Shared, address: &Address, client: &Client, tell: &impl Fn(&str)) {
    let mut waits = Waits::default();
    let say = |state: &mut State| {
        let counts = state.counts;
        if let Some(message) = state.teller.message(Instant::now(), &counts) {
            tell(&message);
        }
    };
    let mut state = shared.lock();
    loop {
        say(&mut state);
        let Some(parcel) = state.outbox.take() else {
            if state.is_over {
                break;
            }
            state = shared.wait(state, LOOK_EVERY);
            continue;
        };
        drop(state);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let answer = match client.send(&parcel.body) {
            Ok(reply) => answer::of(&reply, address, since_1970.as_secs()),
            Err(why) => Answer::Later { after: None, why: format!("failed to send to {}: {why}", address.server) },
        };
        state = shared.lock();
        match answer {
            Answer::Taken { rejected, why } => {
                waits.succeeded();
                state.counts.requests += 1;
                state.counts.samples += parcel.samples;
                state.counts.bytes += parcel.body.len() as u64;
                state.counts.rejected += rejected;
                if rejected > 0 {
                    state.teller.note(why);
                }
            }
            Answer::Refused { why } => {
                state.counts.failures += 1;
                state.counts.refused += parcel.samples;
                state.teller.note(why);
            }
            Answer::Later { after, why } => {
                state.counts.failures += 1;
                state.teller.note(why);
                if let Some(gone) = state.outbox.put_back(parcel) {
                    state.counts.given_up += gone.samples;
                }
                if state.is_over {
                    while let Some(parcel) = state.outbox.take() {
                        state.counts.given_up += parcel.samples;
                    }
                }
                let until =
                    Instant::now() + waits.next(after, u64::from(since_1970.subsec_nanos()).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                while !state.is_over {
                    say(&mut state);
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    state = shared.wait(state, left.min(LOOK_EVERY));
                }
            }
        }
    }
}
