//! Reads the records into samples, in the order of their times.

use std::io::BufRead;

use rustc_hash::FxHashMap;

use crate::formats::FormatError;
use crate::formats::about::About;
use crate::formats::perf_script::unit_of;
use crate::formats::reading::{CodeAt, DEEPEST, Destination, Kernel, Opened, StackWalker};
use crate::profile::{
    BuildId, Cpu, EventSource, EventStatus, FileOffset, Frame, FrameId, FrameKind, KernelAddress, LabelId, Object, ObjectId,
    ObjectKind, Sample, Tgid, Thread, Tid, Timestamp, Unit, UserEnd, sanitize,
};

use super::container::{Container, Event, Record, nonsense};
use super::record::{self, RawFork, RawMapping, RawName, RawSample, kinds};
use super::space::{Code, Mapping, Spaces};

/// Most events that become sources.
const MOST_SOURCES: usize = 60;

/// Callchains have marks between their addresses: from here on, the address space is another one.
const FIRST_MARK: u64 = -4095i64 as u64;
const KERNEL_MARK: u64 = -128i64 as u64;
const USER_MARK: u64 = -512i64 as u64;

/// Reads the file into the tables. Each event becomes a source; the first one that has samples is shown first.
pub(in crate::formats) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(FormatError::Read)?;
    let file = Container::new(bytes)?;
    let sources =
        file.events.iter().take(MOST_SOURCES).map(|event| Source { name: name_of(event), ..Source::default() }).collect();
    // Registers have other numbers on other machines, and their files are not here.
    let is_like_this = file.system.split_whitespace().nth(1).is_none_or(|machine| machine == std::env::consts::ARCH);
    let walker = is_like_this.then(into.machine.walker).flatten();
    let mut reader = Reader {
        file: &file,
        into,
        sources,
        spaces: Spaces::default(),
        comms: FxHashMap::default(),
        kernel_runs_here: None,
        wanted: Vec::new(),
        stack: Vec::new(),
        walker,
        walked: Vec::new(),
        seen: Seen::default(),
    };
    for (time, record) in file.in_order() {
        reader.take(time, record);
    }
    reader.end()
}

/// Returns the name of an event; of one without a name, that of its kind.
fn name_of(event: &Event) -> String {
    match (&*event.name, event.attribute.kind, event.attribute.config) {
        ("", 0, 0) => "cycles".to_owned(),
        ("", 1, 0) => "cpu-clock".to_owned(),
        ("", 1, 1) => "task-clock".to_owned(),
        ("", 2, number) => format!("tracepoint {number}"),
        ("", kind, config) => format!("event {kind}/{config:x}"),
        (name, ..) => name.to_owned(),
    }
}

/// The counts of an event.
#[derive(Default)]
struct Source {
    name: String,
    stacks: u64,
    weight: u64,
    has_periods: bool,
}

#[derive(Default)]
struct Seen {
    damaged: u64,
    without_source: u64,
    /// Samples with a copy of the stack's memory instead of its frames.
    copies: u64,
    cut: u64,
    lost: u64,
    lacks_time: bool,
    lacks_cpu: bool,
    /// Samples in the kernel, if its addresses have no names here.
    in_other_kernel: u64,
}

struct Reader<'a, 'b> {
    file: &'a Container,
    into: &'a mut Destination<'b>,
    sources: Vec<Source>,
    spaces: Spaces,
    /// The name of each thread.
    comms: FxHashMap<u32, LabelId>,
    /// Whether the kernel of the file runs here; `None` before the file has told it.
    kernel_runs_here: Option<bool>,
    wanted: Vec<FrameId>,
    /// Frames of the sample that is being read, innermost first.
    stack: Vec<FrameId>,
    walker: Option<Box<dyn StackWalker>>,
    /// Frames of a copied stack: see [`StackWalker::walk`].
    walked: Vec<(u64, bool)>,
    seen: Seen,
}

impl Reader<'_, '_> {
    fn take(&mut self, time: u64, record: &Record) {
        let body = self.file.body(record);
        let done = match record.kind {
            kinds::SAMPLE => self.file.event_of(record).and_then(|(number, event)| {
                self.sample((number, event), time, record.misc, &event.attribute.sample(body)?);
                Some(())
            }),
            kinds::NAME => RawName::read(record.misc, body).map(|name| self.name(&name)),
            kinds::FORK => RawFork::read(body).map(|fork| self.fork(&fork)),
            kinds::MAPPING | kinds::MAPPING_2 => {
                RawMapping::read(record.kind, record.misc, body).map(|mapping| self.map(record.misc, &mapping))
            }
            kinds::LOST | kinds::LOST_SAMPLES => {
                record::lost(record.kind, body).map(|count| self.seen.lost = self.seen.lost.saturating_add(count))
            }
            _ => Some(()),
        };
        self.seen.damaged += u64::from(done.is_none());
    }

    fn label(&self, name: &[u8], object: &str, kind: FrameKind) -> LabelId {
        self.into.names.labels.intern(&sanitize(&String::from_utf8_lossy(name)), object, kind)
    }

    fn name(&mut self, name: &RawName<'_>) {
        let label = self.label(name.name, "", FrameKind::Process);
        self.comms.insert(name.tid, label);
        if name.of_exec {
            self.spaces.exec(name.tgid);
        }
    }

    fn fork(&mut self, fork: &RawFork) {
        if let Some(name) = self.comms.get(&fork.parent_tid).copied() {
            self.comms.insert(fork.tid, name);
        }
        if fork.tgid != fork.parent {
            self.spaces.fork(fork.parent, fork.tgid);
        }
    }

    fn map(&mut self, misc: u16, mapping: &RawMapping<'_>) {
        let RawMapping { tgid, start, size, offset, build_id, file, path, is_code } = *mapping;
        if !is_code {
            return;
        }
        if misc & record::MODE == record::KERNEL {
            // To look at the running kernel takes milliseconds: a file has one chance.
            if let Some(symbol) = path.strip_prefix(b"[kernel.kallsyms]").filter(|_| self.kernel_runs_here.is_none()) {
                let build_id = self.file.build_ids.get(b"[kernel.kallsyms]".as_slice()).copied();
                let kernel = Kernel { symbol: str::from_utf8(symbol).unwrap_or_default(), address: offset, build_id };
                self.kernel_runs_here = Some((self.into.machine.runs_here)(&kernel));
            }
            return;
        }
        let build_id = build_id.and_then(BuildId::new).or_else(|| self.file.build_ids.get(path).copied());
        let code = self.code(path, build_id, file);
        self.spaces.map(tgid, start, Mapping { end: start.saturating_add(size), offset, code });
    }

    fn code(&self, path: &[u8], build_id: Option<BuildId>, file: Option<(u64, u64)>) -> Code {
        let names = self.into.names;
        let is_file = path.starts_with(b"/") && !path.starts_with(b"//") && !path.starts_with(b"/memfd:");
        let path = String::from_utf8_lossy(path);
        if !is_file || path.starts_with("/dev/") || path.starts_with("/SYSV") {
            let (name, kind) = match &*path {
                "[vdso]" if self.kernel_runs_here == Some(true) => return Code::Of(ObjectId::VDSO),
                "[vdso]" => ("[vdso]", FrameKind::User),
                "[vsyscall]" => ("[vsyscall]", FrameKind::User),
                _ => ("[anon]", FrameKind::Jit),
            };
            return Code::Frame(names.intern_named(names.labels.intern(name, "", kind)));
        }
        let file = if build_id.is_some() { None } else { file };
        let path = sanitize(&path).into();
        Code::Of(names.objects.intern(Object {
            kind: ObjectKind::Elf,
            path,
            build_id,
            file,
            files: self.into.machine.files,
            ..Object::default()
        }))
    }

    fn sample(&mut self, (number, event): (usize, &Event), time: u64, misc: u16, sample: &RawSample<'_>) {
        let Some(source) = self.sources.get_mut(number) else {
            self.seen.without_source += 1;
            return;
        };
        let period = sample.period.or(event.attribute.period);
        let weight = period.unwrap_or(1).min(i64::MAX as u64 >> 16);
        if weight == 0 {
            return;
        }
        source.has_periods |= period.is_some();
        source.stacks += 1;
        source.weight = source.weight.saturating_add(weight);
        self.seen.lacks_time |= !event.attribute.has_time();
        self.seen.lacks_cpu |= sample.cpu.is_none();
        let (tgid, tid) = (sample.tgid, sample.tid);
        let unknown = if tid == 0 { "swapper".to_owned() } else { format!("[{tid}]") };
        let name = self.comms.get(&tid).copied().unwrap_or_else(|| self.label(unknown.as_bytes(), "", FrameKind::Process));
        let process = self.comms.get(&tgid).copied().unwrap_or(name);
        let thread = Thread { tgid: Tgid(tgid), tid: Tid(tid), process, name, ..Thread::default() };
        self.stack.clear();
        let user_end = self.frames(misc & record::MODE, sample);
        let stack = self.into.profile.stacks.intern(self.stack.iter().rev().copied());
        let sample = Sample {
            time: Timestamp(time),
            stack,
            thread: self.into.profile.threads.intern(thread),
            cpu: Cpu(sample.cpu.and_then(|cpu| u16::try_from(cpu).ok()).unwrap_or(0)),
            weight,
            source: source_of(number),
            user_end,
            ..Sample::default()
        };
        self.into.profile.samples.add(sample);
    }

    /// Puts the sample's frames on the stack, innermost first. Returns why its user stack ends, if that is known.
    fn frames(&mut self, mut mode: u16, sample: &RawSample<'_>) -> UserEnd {
        let copy = sample.copy.filter(|_| self.walker.is_some() && !sample.chain().any(|address| address == USER_MARK));
        self.seen.copies += u64::from(sample.has_copy && copy.is_none());
        let mut in_other_kernel = false;
        // The first address of each address space is that of the instruction that ran.
        let mut is_return = false;
        let alone = sample.address.filter(|_| sample.chain().len() == 0 && (copy.is_none() || mode != record::USER));
        for address in sample.chain().chain(alone) {
            match address {
                KERNEL_MARK => (mode, is_return) = (record::KERNEL, false),
                USER_MARK => (mode, is_return) = (record::USER, false),
                FIRST_MARK.. => (mode, is_return) = (0, false),
                _ if self.stack.len() == DEEPEST => {
                    self.seen.cut += 1;
                    break;
                }
                _ => {
                    in_other_kernel |= self.frame(sample.tgid, mode, address, is_return);
                    is_return = true;
                }
            }
        }
        self.seen.in_other_kernel += u64::from(in_other_kernel);
        let (Some(copy), Some(walker)) = (copy, &mut self.walker) else { return UserEnd::Unspecified };
        let spaces = &self.spaces;
        let code = |address| match spaces.find(sample.tgid, address) {
            Some((Mapping { code: Code::Of(object), .. }, offset)) => CodeAt::File(object, FileOffset(offset)),
            Some((Mapping { code: Code::Frame(_), .. }, _)) => CodeAt::NoFile,
            None => CodeAt::Nothing,
        };
        let mut walked = std::mem::take(&mut self.walked);
        walked.clear();
        let end = walker.walk(self.into.names, &copy, &code, &mut walked);
        for (address, is_return) in &walked {
            self.frame(sample.tgid, record::USER, *address, *is_return);
        }
        self.walked = walked;
        end
    }

    /// Puts a frame on the stack. Returns whether it is of a kernel that does not run here.
    fn frame(&mut self, process: u32, mode: u16, address: u64, is_return: bool) -> bool {
        let names = self.into.names;
        let runs_here = self.kernel_runs_here == Some(true);
        let frame = match mode {
            record::KERNEL if runs_here => Frame::Kernel { address: KernelAddress(address), is_return },
            record::KERNEL => Frame::Named(names.labels.intern("[kernel]", "", FrameKind::Kernel)),
            record::USER => match self.spaces.find(process, address) {
                Some((Mapping { code: Code::Of(object), .. }, offset)) => {
                    Frame::File { object, offset: FileOffset(offset), is_return }
                }
                Some((Mapping { code: Code::Frame(frame), .. }, _)) => {
                    self.stack.push(frame);
                    return false;
                }
                None => Frame::Unmapped,
            },
            _ => Frame::Named(names.labels.intern("[guest]", "", FrameKind::Unknown)),
        };
        let (id, is_new) = names.intern_frame(frame);
        if is_new && matches!(frame, Frame::Kernel { .. } | Frame::File { .. }) {
            self.wanted.push(id);
        }
        // One frame for all functions of another kernel.
        let is_repeated = matches!(frame, Frame::Named(_)) && self.stack.last() == Some(&id);
        if !is_repeated {
            self.stack.push(id);
        }
        mode == record::KERNEL && !runs_here
    }

    fn end(self) -> Result<Opened, FormatError> {
        let Reader { file, into, sources, spaces, wanted, seen, .. } = self;
        let profile = &mut *into.profile;
        if profile.samples.is_empty() {
            return Err(match seen.damaged {
                0 => FormatError::NoSamples,
                _ => nonsense("none of its samples can be read"),
            });
        }
        profile.losses.ring_full = seen.lost;
        let with_samples = || sources.iter().enumerate().filter(|(_, source)| source.stacks > 0);
        for (number, source) in with_samples() {
            profile.set_unit(source_of(number), if source.has_periods { unit_of(&source.name) } else { Unit::Samples });
        }
        let status = |(number, source): (usize, &Source)| EventStatus {
            source: source_of(number),
            name: source.name.clone(),
            how: "perf".into(),
            stacks: source.stacks,
            events: source.weight,
            ..EventStatus::default()
        };
        profile.events = with_samples().map(status).collect();
        let mut capabilities = profile.capabilities();
        capabilities.threads = true;
        capabilities.time = !seen.lacks_time;
        capabilities.cpus = !seen.lacks_cpu;
        capabilities.addresses = true;
        capabilities.events = profile.events.len() > 1;
        profile.set_capabilities(capabilities);
        let until = profile.samples.last_time().filter(|_| capabilities.time);
        let source = profile.events.first().map(|event| event.source);
        let mut remarks = Vec::new();
        let mut remark = |count: u64, words: &str| {
            if count > 0 {
                remarks.push(format!("{count} {words}"));
            }
        };
        remark(seen.damaged, "records could not be read");
        remark(seen.without_source, "samples of more than 60 events were left out");
        remark(seen.cut, "stacks were cut after 16,384 frames");
        remark(spaces.without, "processes have no files: too many were forked from large ones");
        remark(
            seen.copies,
            "user stacks have only their innermost frame: their copies of memory (--call-graph dwarf) are of a 32-bit program or of another kind of machine; there, `perf script -F +pid | flametop view -` shows them",
        );
        remark(
            seen.in_other_kernel,
            "samples are in a kernel that does not run here, or ran before this start: its functions have no names",
        );
        if file.is_cut {
            remarks.push("the file is cut: it ends in the middle of a record".to_owned());
        }
        let (host, system, cpus, utc) = (file.host.clone(), file.system.clone(), file.cpus, file.utc);
        let about = About { host, system, cpus, utc, ..About::default() };
        Ok(Opened { remarks, source, about: Some(Box::new(about)), until, wanted, ..Opened::default() })
    }
}

fn source_of(event: usize) -> EventSource {
    EventSource(u8::try_from(event + 1).unwrap_or(u8::MAX))
}
