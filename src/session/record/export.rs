//! Sampling for weeks, for an engine: `flametop export`.
//!
//! ```text
//! collecting thread: kernel ─► Profile     this thread, every ten seconds: Profile ─► OtlpWriter ─► Package ─► the sender's pipe
//! ```
//!
//! The sender is another process (`__send`), so flametop with its privileges speaks to nobody. If the sender does not read, this thread waits, and
//! the store drops the oldest samples. They are counted as missed.

use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::sync::watch;

use super::ending::{NAMES_AT_LEAST, Ours, Signals, end, settle, sleep_until};
use crate::allocator::keep_little_memory;
use crate::cli;
use crate::fleet::{Address, LARGEST, Package, attributes, endpoint, metrics_address};
use crate::formats::{About, otlp_of_samples};
use crate::locks;
use crate::privileges;
use crate::session::about::about_of;
use crate::session::clock::local_offset;
use crate::session::options::{duties, limits};
use crate::session::runtime::runtime;
use crate::session::sampling::{END_WITHIN, Ended, Sampling};
use crate::session::shared::Shared;
use crate::session::status::StatusMaker;

/// The time of the samples in a package.
const PACKAGE: Duration = Duration::from_secs(10);
/// Time for names of the newest samples, before they are packed.
const NAMES_WITHIN: Duration = Duration::from_secs(2);
/// Time that samples are kept: as long as the sender may take for a package.
const WINDOW: Duration = Duration::from_secs(60);
/// Time that the sender has at the end.
const SENT_WITHIN: Duration = Duration::from_secs(5);

/// Samples, and sends what it finds, until it is ended.
pub(in crate::session) fn run(options: &cli::Export) -> Result<u8> {
    let environment = |name: &str| std::env::var(name).ok();
    let to = options.to.clone().or_else(|| endpoint(environment));
    let to = to.context("say where profiles go: --to otlp+https://collector:4318, or set OTEL_EXPORTER_OTLP_ENDPOINT")?;
    let address = Address::parse(&to, options.insecure).map_err(|why| anyhow!(why))?;
    options.metrics.as_deref().map(metrics_address).transpose().map_err(|why| anyhow!(why))?;
    let attributes = attributes(environment).map_err(|why| anyhow!(why))?;
    let (mut sender, pipe) = start_sender(&to, options)?;
    privileges::keep(duties(&options.sampling, &[], false));
    // Set before other threads start, because a thread keeps the arena that it began with.
    keep_little_memory();
    let runtime = runtime()?;
    let mut signals = runtime.block_on(async { Signals::watch(format!("everything was sent to {}", address.server)) })?;
    let shared = Shared::live(limits(&options.sampling, Some(WINDOW)), &runtime);
    let mut sampling = Sampling::start(&options.sampling, None, &shared)?;
    privileges::close();
    let maker = StatusMaker::new(sampling.watcher(), &shared, options.sampling.frequency, local_offset());
    let exporting = Exporting::start(pipe, attributes, maker, &shared)?;
    eprintln!("flametop: sampling at {} Hz, sending to {to}", options.sampling.frequency);
    let ended = runtime.block_on(wait(&sampling, options.duration, &mut signals, &exporting));
    let by = Instant::now() + END_WITHIN;
    runtime.block_on(end(&sampling, by, None, &mut signals));
    sampling.finish(by);
    let by = by.max(Instant::now() + NAMES_AT_LEAST);
    runtime.block_on(settle(&shared, by, &Ours::find(None), &mut signals));
    let is_told = exporting.finish(Instant::now() + SENT_WITHIN);
    let status = ended_by(&mut sender, Instant::now() + SENT_WITHIN);
    match ended {
        Some(Ended::Failed(why)) => bail!("sampling stopped: {why}"),
        _ if !is_told => bail!("the process that sends to {} has ended", address.server),
        _ if status.is_none() => eprintln!("flametop: {} did not answer in time; the last samples are lost", address.server),
        _ => {}
    }
    Ok(0)
}

/// Waits for the end of sampling.
async fn wait(sampling: &Sampling, duration: Option<Duration>, signals: &mut Signals, exporting: &Exporting) -> Option<Ended> {
    let deadline = duration.map(|duration| tokio::time::Instant::now() + duration);
    let ended = tokio::select! {
        () = signals.reach(Signals::ENDING) => None,
        () = sleep_until(deadline) => None,
        () = exporting.failed() => None,
        ended = sampling.ended_unasked() => Some(ended),
    };
    signals.ending();
    ended
}

/// Starts the process that sends. It is in a process group of its own: Ctrl-C ends flametop, which then closes the pipe.
fn start_sender(to: &str, options: &cli::Export) -> Result<(Process, ChildStdin)> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["__send", "--to", to]);
    if options.insecure {
        command.arg("--insecure");
    }
    if let Some(address) = &options.metrics {
        command.args(["--metrics", address]);
    }
    let mut sender =
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("failed to start the sender")?;
    let pipe = sender.stdin.take().context("the sender has no pipe")?;
    Ok((sender, pipe))
}

/// Waits until the sender has ended by itself, or ends it. Returns its status in the first case.
fn ended_by(sender: &mut Process, by: Instant) -> Option<std::process::ExitStatus> {
    while Instant::now() < by {
        if let Ok(Some(status)) = sender.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = sender.kill();
    let _ = sender.wait();
    None
}

/// The thread that packs samples.
struct Exporting {
    thread: JoinHandle<()>,
    stop: Sender<()>,
    failed: watch::Receiver<bool>,
}

impl Exporting {
    fn start(pipe: ChildStdin, attributes: Vec<(String, String)>, maker: StatusMaker, shared: &Shared) -> Result<Exporting> {
        let (stop, stopped) = channel::<()>();
        let (fails, failed) = watch::channel(false);
        let mut packing = Packing { pipe, attributes, maker, shared: shared.clone(), next: 0 };
        let body = move || {
            if packing.run(&stopped).is_err() {
                fails.send_replace(true);
            }
        };
        let thread = std::thread::Builder::new().name("flametop-export".to_owned()).spawn(body);
        Ok(Exporting { thread: thread.context("failed to start a thread")?, stop, failed })
    }

    /// Waits until the sender takes nothing any more.
    async fn failed(&self) {
        if self.failed.clone().wait_for(|failed| *failed).await.is_err() {
            std::future::pending().await
        }
    }

    /// Packs the last samples. Returns whether the sender was there. A sender that does not read is not waited for.
    fn finish(self, by: Instant) -> bool {
        drop(self.stop);
        while !self.thread.is_finished() && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(5));
        }
        !*self.failed.borrow()
    }
}

struct Packing {
    pipe: ChildStdin,
    attributes: Vec<(String, String)>,
    maker: StatusMaker,
    shared: Shared,
    /// Number of the first sample that was not packed yet.
    next: u64,
}

impl Packing {
    /// Hands over packages until it is stopped.
    fn run(&mut self, stopped: &Receiver<()>) -> std::io::Result<()> {
        let is_stopped = |time| stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
        loop {
            if is_stopped(PACKAGE - NAMES_WITHIN) {
                break;
            }
            let end = self.end();
            if is_stopped(NAMES_WITHIN) {
                break;
            }
            self.pack(end)?;
        }
        self.pack(self.end())
    }

    fn end(&self) -> u64 {
        locks::read(&self.shared.profile).samples.end()
    }

    /// Packs all samples before this one.
    fn pack(&mut self, end: u64) -> std::io::Result<()> {
        self.maker.look_around();
        let about = about_of(&self.maker.make(false).0);
        let all = std::mem::replace(&mut self.next, end)..end;
        self.hand_over(all, &about)
    }

    /// Hands over samples in packages that are small enough.
    fn hand_over(&mut self, samples: Range<u64>, about: &About) -> std::io::Result<()> {
        let package = self.package(samples.clone(), about);
        let middle = samples.start.midpoint(samples.end);
        if package.body.len() > LARGEST && middle > samples.start {
            drop(package);
            self.hand_over(samples.start..middle, about)?;
            return self.hand_over(middle..samples.end, about);
        }
        if package.samples > 0 || package.missed > 0 { package.write(&mut self.pipe) } else { Ok(()) }
    }

    fn package(&self, part: Range<u64>, about: &About) -> Package {
        let mut sink = otlp_of_samples(part, self.attributes.clone());
        loop {
            let profile = locks::read(&self.shared.profile);
            let names = self.shared.names_of(&profile);
            if !sink.take_some(&profile, &names, &mut |_| true) {
                break;
            }
        }
        sink.tell(about, &self.shared.processes);
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (samples, missed) = (number(sink.samples()), number(sink.missed()));
        // It is made in memory.
        let body = if samples > 0 && sink.end().is_ok() { sink.bytes() } else { Vec::new() };
        Package { samples, missed, body }
    }
}
