//! `flametop dump`: prints the stacks of all threads of processes at one moment.
//!
//! Threads that run have a stack at the next tick of the clock, threads that wait at once: see `collector/probes/sleepers.rs`. Of each thread,
//! the newest stack counts. Nothing of the process is stopped. Whatever may wait for a lock of the process is read on threads that can be left
//! behind.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, iter, thread};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::ending::{NAMES_AT_LEAST, Ours, Signals, end, settle};
use crate::allocator::keep_little_memory;
use crate::cli;
use crate::locks;
use crate::privileges;
use crate::profile::{
    Folding, Frame, FrameId, FrameKind, Names, Profile, Sample, StackId, Tgid, Unit, UserEnd, WaitReason, sanitize,
};
use crate::session::options::{duties, folding, limits};
use crate::session::runtime::runtime;
use crate::session::sampling::{END_WITHIN, Ended, Sampling};
use crate::session::shared::Shared;
use crate::ui::format_duration;

/// Threads that run have a tick within this time.
const AT_LEAST: Duration = Duration::from_millis(250);
/// Threads without a stack are not waited for longer: tables of their files are made meanwhile.
const AT_MOST: Duration = Duration::from_millis(3500);
/// What the kernel tells of threads is waited for no longer.
const FACTS_WITHIN: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a thread does.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum State {
    Runs,
    Waits,
    /// It has no stack.
    Unknown,
}

/// A function in a stack.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
struct Function {
    name: String,
    /// The object, or the file of a function of a language.
    #[serde(skip_serializing_if = "String::is_empty")]
    object: String,
    /// The line that runs, of functions of a language.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    kind: &'static str,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct ThreadNow {
    tid: u32,
    name: String,
    state: State,
    /// Why it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The file that it waits for, or the address of its lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    /// Since when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Why its outer functions are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<&'static str>,
    /// Innermost first.
    stack: Vec<Function>,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct ProcessNow {
    pid: u32,
    command: String,
    threads: Vec<ThreadNow>,
}

/// The content of `--json`.
#[derive(Serialize)]
struct Dump {
    version: u32,
    processes: Vec<ProcessNow>,
}

/// Prints the stacks.
pub(in crate::session) fn run(options: &cli::Dump) -> Result<()> {
    let sampling_options = &options.sampling;
    for pid in &sampling_options.pids {
        if threads_of(*pid).is_empty() {
            bail!("there is no process {pid}");
        }
    }
    privileges::keep(duties(sampling_options, &[], false));
    keep_little_memory();
    let runtime = runtime()?;
    let mut signals = runtime.block_on(async { Signals::watch("the stacks".to_owned()) })?;
    let shared = Shared::live(limits(sampling_options, None), &runtime);
    let mut sampling = Sampling::start(sampling_options, None, &shared)?;
    privileges::close();
    let ended = runtime.block_on(wait(&sampling, &shared, &sampling_options.pids, &mut signals));
    let by = Instant::now() + END_WITHIN;
    runtime.block_on(end(&sampling, by, None, &mut signals));
    sampling.finish(by);
    if let Some(Ended::Failed(why)) = ended {
        bail!("sampling stopped: {why}");
    }
    let by = by.max(Instant::now() + NAMES_AT_LEAST);
    runtime.block_on(settle(&shared, by, &Ours::find(None), &mut signals));
    let processes = {
        let profile = locks::read(&shared.profile);
        let names = shared.names_of(&profile);
        let of = Stacks { profile: &profile, names: &names, folding: folding(sampling_options) };
        sampling_options.pids.iter().map(|pid| of.process(*pid, &shared)).collect::<Vec<_>>()
    };
    let mut out = io::stdout().lock();
    let printed = if options.json {
        let dump = Dump { version: 1, processes };
        serde_json::to_string_pretty(&dump).map_err(io::Error::from).and_then(|text| writeln!(out, "{text}"))
    } else {
        processes.iter().try_for_each(|process| print(process, &mut out))
    };
    printed.and_then(|()| out.flush()).context("failed to write to the standard output")
}

/// Waits until each thread has a stack, and those that run had time for a tick.
async fn wait(sampling: &Sampling, shared: &Shared, pids: &[u32], signals: &mut Signals) -> Option<Ended> {
    let enough = async {
        let since = Instant::now();
        while since.elapsed() < AT_MOST {
            tokio::time::sleep(LOOK_EVERY).await;
            let profile = locks::read(&shared.profile);
            let seen = newest(&profile);
            let all = || pids.iter().flat_map(|pid| threads_of(*pid)).all(|tid| seen.contains_key(&tid));
            if since.elapsed() >= AT_LEAST && all() {
                return;
            }
        }
    };
    tokio::select! {
        () = enough => None,
        () = signals.reach(Signals::ENDING) => None,
        ended = sampling.ended_unasked() => Some(ended),
    }
}

/// Returns the newest sample of each thread. Of two samples of a wait, the first one says why the thread waits.
fn newest(profile: &Profile) -> BTreeMap<u32, Sample> {
    let mut newest: BTreeMap<u32, Sample> = BTreeMap::new();
    for sample in profile.samples.slices_from(profile.samples.first()).flatten() {
        let Some(thread) = profile.threads.get(sample.thread) else { continue };
        if newest.get(&thread.tid.0).is_none_or(|known| known.time < sample.time) {
            newest.insert(thread.tid.0, *sample);
        }
    }
    newest
}

struct Stacks<'a> {
    profile: &'a Profile,
    names: &'a Names,
    folding: Folding,
}

impl Stacks<'_> {
    fn process(&self, pid: u32, shared: &Shared) -> ProcessNow {
        let command = shared.processes.get(&Tgid(pid)).map(|process| process.command_line.to_string()).unwrap_or_default();
        let (newest, facts) = (newest(self.profile), facts_of(pid));
        let thread = |tid| self.thread(tid, newest.get(&tid), facts.get(&tid).cloned().unwrap_or_default());
        let threads = threads_of(pid).into_iter().map(thread).collect();
        ProcessNow { pid, command, threads }
    }

    fn thread(&self, tid: u32, sample: Option<&Sample>, facts: Facts) -> ThreadNow {
        let mut thread = ThreadNow {
            tid,
            name: facts.name,
            state: State::Unknown,
            reason: None,
            on: None,
            seconds: None,
            incomplete: None,
            stack: Vec::new(),
        };
        let Some(sample) = sample else { return thread };
        thread.stack = self.functions(sample.stack);
        let ends = matches!(sample.user_end, UserEnd::Root | UserEnd::KernelThread);
        thread.incomplete = (!ends).then(|| sample.user_end.explain().0);
        if self.profile.unit(sample.source) != Unit::Nanoseconds {
            thread.state = State::Runs;
            return thread;
        }
        thread.state = State::Waits;
        let reason =
            thread.stack.first().and_then(|function| WaitReason::ALL.iter().find(|reason| reason.label() == function.name));
        if let Some(reason) = reason.copied() {
            thread.stack.remove(0);
            thread.reason = Some(reason.label().trim_matches(['[', ']']));
            thread.on = match reason {
                WaitReason::Lock => facts.argument.map(|address| format!("{address:#x}")),
                WaitReason::Network | WaitReason::Pipe | WaitReason::Disk => facts.file,
                _ => None,
            };
        }
        thread.seconds = facts.seconds;
        thread
    }

    /// Returns the functions of a stack, innermost first.
    fn functions(&self, stack: StackId) -> Vec<Function> {
        // A stack is a path in a trie, which is walked from its end.
        let mut functions = Vec::new();
        for frame in self.profile.stacks.frames(stack) {
            let from = functions.len();
            self.names.labels_shown(frame, self.folding, |label| {
                let Some(label) = self.names.labels.get(self.names.labels.current(label)) else { return };
                functions.push(Function {
                    name: label.name.to_string(),
                    object: label.object.to_string(),
                    line: self.line(frame),
                    kind: kind_of(label.kind),
                });
            });
            if let Some(of_frame) = functions.get_mut(from..) {
                of_frame.reverse();
            }
        }
        functions
    }

    fn line(&self, frame: FrameId) -> Option<u32> {
        match self.names.frames.get(frame)? {
            Frame::Script { line, .. } if line > 0 => Some(line),
            _ => None,
        }
    }
}

fn kind_of(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Kernel => "kernel",
        FrameKind::Inlined => "inlined",
        FrameKind::Jit => "jit",
        FrameKind::Script(language) => language.word(),
        FrameKind::Wait => "wait",
        FrameKind::Process | FrameKind::User => "native",
        FrameKind::Unknown => "unknown",
    }
}

/// Returns the numbers of a process's threads, in their order.
fn threads_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    threads
}

/// Returns how long the thread has waited, in seconds: the kernel notes when it ran last, in its scheduler's clock. Ours runs now.
fn waits_for(pid: u32, tid: u32) -> Option<f64> {
    let ran = |path: String| -> Option<f64> {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
        line.split(':').nth(1)?.trim().parse().ok()
    };
    let before = ran(format!("/proc/{pid}/task/{tid}/sched"))?;
    let own = ran("/proc/thread-self/sched".to_owned())?;
    Some(((own - before) / 1e3).max(0.0))
}

/// What the kernel tells of a thread that waits.
#[derive(Clone, Default, Debug)]
struct Facts {
    name: String,
    seconds: Option<f64>,
    /// The first argument of its system call.
    argument: Option<u64>,
    /// The file that this argument names, if it is the number of a file.
    file: Option<String>,
}

impl Facts {
    fn read(pid: u32, tid: u32) -> Facts {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
        let argument =
            call.split_ascii_whitespace().nth(1).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let file = argument.and_then(|number| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok());
        Facts {
            name: sanitize(name.trim_end()).into_owned(),
            seconds: waits_for(pid, tid),
            argument,
            file: file.map(|file| sanitize(&file.to_string_lossy()).into_owned()),
        }
    }
}

/// Reads the facts of all threads of a process. The kernel may wait for a process that is starting a program: what is late is missing.
fn facts_of(pid: u32) -> BTreeMap<u32, Facts> {
    let (tell, told) = mpsc::channel();
    let read = move || threads_of(pid).into_iter().try_for_each(|tid| tell.send((tid, Facts::read(pid, tid))));
    if thread::Builder::new().spawn(read).is_err() {
        return BTreeMap::new();
    }
    let until = Instant::now() + FACTS_WITHIN;
    iter::from_fn(|| told.recv_timeout(until.saturating_duration_since(Instant::now())).ok()).collect()
}

fn print(process: &ProcessNow, out: &mut impl Write) -> io::Result<()> {
    let threads = process.threads.len();
    writeln!(out, "process {}: {}, {threads} thread{}", process.pid, process.command, if threads == 1 { "" } else { "s" })?;
    for thread in &process.threads {
        let mut words = vec![format!("{} {}", thread.tid, thread.name)];
        match thread.state {
            State::Runs => words.push("runs".to_owned()),
            State::Unknown => words.push("no stack: it did not run and could not be read".to_owned()),
            State::Waits => {
                let reason = thread.reason.map(|reason| format!(" [{reason}]")).unwrap_or_default();
                let on = thread.on.as_ref().map(|on| format!(" {on}")).unwrap_or_default();
                let seconds = thread.seconds.map(|seconds| format!(" for {}", format_duration((seconds * 1e9) as u64)));
                words.push(format!("waits{}{reason}{on}", seconds.unwrap_or_default()));
            }
        }
        writeln!(out, "\n{}", words.join(": "))?;
        for function in &thread.stack {
            let place = match function.line {
                Some(line) => format!("{}:{line}", function.object.split(':').next().unwrap_or_default()),
                None => function.object.clone(),
            };
            writeln!(out, "    {}{}{place}", function.name, if place.is_empty() { "" } else { "  " })?;
        }
        if let Some(why) = thread.incomplete {
            writeln!(out, "    …  ({why})")?;
        }
    }
    writeln!(out)
}
