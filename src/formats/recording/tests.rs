//! Tests that a recording holds all that a profile holds, and that damage costs no more than what is damaged.

use std::sync::{Arc, RwLock};

use proptest::prelude::*;

use super::*;
use crate::formats::about::{About, Problem};
use crate::formats::sink::Sink;
use crate::formats::{Destination, FormatError, Opened, ThisMachine, open};
use crate::profile::{
    Capabilities, CgroupId, Clock, Cpu, EventSource, EventStatus, FileOffset, Folding, Frame, FrameId, FrameKind, KernelAddress,
    Language, Limits, Names, Object, ObjectKind, Process, ProcessAddress, Processes, Profile, Renewals, Sample, Tgid, Thread,
    Tid, Timestamp, Unit, UserEnd, UserId,
};

/// What a sample says, in words: independent of tables.
type Said = (u64, String, u16, u64, u8, u8, Vec<String>);

fn said(profile: &Profile, names: &Names) -> Vec<Said> {
    let label = |id| {
        let label = names.labels.get(id).unwrap();
        format!("{} {} {:?}", label.name, label.object, label.kind)
    };
    let of = |sample: &Sample| {
        let thread = profile.threads.get(sample.thread).unwrap();
        let Thread { tgid, tid, process, name, cgroup } = thread;
        let thread = format!("{tgid} {tid} {} {} {cgroup}", label(process), label(name));
        let mut frames = Vec::new();
        for frame in profile.stacks.frames(sample.stack) {
            let mut shown = Vec::new();
            names.labels_shown(frame, Folding { interpreter: false, ..Folding::default() }, |id| shown.push(label(id)));
            let of = names.frames.get(frame).unwrap();
            let object = names.objects.get(of.object()).unwrap();
            let kind = std::mem::discriminant(&of);
            frames.push(format!("{shown:?} {object:?} {kind:?} {} {}", of.address(), of.is_return()));
        }
        let Sample { time, cpu, weight, source, user_end, .. } = *sample;
        (time.0, thread, cpu.0, weight, source.0, user_end as u8, frames)
    };
    profile.samples.slices_from(0).flatten().map(of).collect()
}

/// Tables that a reader has filled.
#[derive(Default)]
struct Read {
    names: Names,
    processes: Processes,
    profile: Profile,
}

fn read(bytes: &[u8]) -> Result<(Read, Opened), FormatError> {
    let mut read = Read { profile: Profile::fixed(Capabilities::STACKS), ..Read::default() };
    let Read { names, processes, profile } = &mut read;
    let opened = open(bytes, &mut Destination { names, processes, profile, before: None, machine: ThisMachine::default() })?;
    Ok((read, opened))
}

/// A run of a machine: samples of two processes and of the kernel, with frames of every kind.
struct Machine {
    names: Arc<Names>,
    profile: RwLock<Profile>,
    processes: Processes,
    frames: Vec<FrameId>,
}

impl Machine {
    fn new() -> Machine {
        let names = Arc::new(Names::default());
        let mut profile = Profile::beside(&names, Limits::default());
        profile.set_clock(Clock { period: 10_000_000, cpus: 2, since: Timestamp(1_000), until: None });
        let mut machine = Machine { names, profile: RwLock::new(profile), processes: Processes::default(), frames: Vec::new() };
        machine.make_frames();
        let command =
            Process { command_line: "nginx -g daemon".into(), parent: Tgid(1), user: Some(UserId(33)), threads: 4, exited: None };
        machine.processes.insert(Tgid(7), command);
        machine
    }

    fn make_frames(&mut self) {
        let names = &*self.names;
        let build_id = crate::profile::BuildId::new(&[0xab; 20]);
        let elf =
            Object { kind: ObjectKind::Elf, path: "/lib/libc.so.6".into(), build_id, file: Some((8, 99)), ..Object::default() };
        let elf = names.objects.intern(Object { user: UserId(33), ..elf });
        let script = names.objects.intern(Object { kind: ObjectKind::Script, path: "/srv/a.py".into(), ..Object::default() });
        let jit = names.jit_object(UserId(33), Tgid(7), 5);
        let function = names.labels.intern("run", "/srv/a.py:3", FrameKind::Script(Language::Python));
        let all = [
            Frame::Named(names.labels.intern("main", "prog", FrameKind::User)),
            Frame::Kernel { address: KernelAddress(0xffff_ffff_8100_0000), is_return: true },
            Frame::File { object: elf, offset: FileOffset(0x1234), is_return: true },
            Frame::Interpreter { object: elf, offset: FileOffset(0x99), is_return: false },
            Frame::Process { object: jit, address: ProcessAddress(0x7fff_0000), is_return: false },
            Frame::Script { object: script, label: function, line: 42 },
            Frame::Unmapped,
            Frame::AnyOf(elf),
        ];
        self.frames = all.into_iter().map(|frame| names.intern_frame(frame).0).collect();
    }

    fn sample(&self, time: u64, seed: usize) {
        let process = self.names.labels.intern(["nginx", "python3"][seed % 2], "", FrameKind::Process);
        let name = self.names.labels.intern(["worker", "main"][seed / 2 % 2], "", FrameKind::Process);
        let tgid = 7 + (seed % 2) as u32;
        let cgroup = CgroupId(100 + (seed % 3) as u64);
        let thread = Thread { tgid: Tgid(tgid), tid: Tid(tgid + (seed % 5) as u32), process, name, cgroup };
        let frames = (0..1 + seed % 6).map(|at| self.frames[(seed + at * at) % self.frames.len()]);
        let source = EventSource((seed % 7 == 3).into());
        let sample = Sample {
            time: Timestamp(time),
            cpu: Cpu((seed % 4) as u16),
            weight: if source == EventSource::CLOCK { 1 } else { 1_000 + seed as u64 },
            source,
            user_end: UserEnd::ALL[seed % UserEnd::ALL.len()],
            ..Sample::default()
        };
        self.profile.write().unwrap().record(thread, frames, sample);
    }

    fn take(&self, recorder: &mut Recorder) {
        let names = Arc::clone(self.profile.read().unwrap().names().unwrap());
        while recorder.take(&self.profile.read().unwrap(), &names) {}
        recorder.tell(&about(), &self.processes);
    }
}

fn about() -> About {
    About {
        host: "vm".to_owned(),
        boot: "b1".to_owned(),
        source: "cpu-clock 99 Hz".to_owned(),
        clock: true,
        frequency: 99,
        cpus: 2,
        wall: Some(1_700_000_000_000_000_000),
        utc: Some(1_699_996_400_000_000_000),
        cgroups: Arc::new([(CgroupId(100), "/system.slice".into())].into_iter().collect()),
        containers: Arc::new([(CgroupId(100), "web".into())].into_iter().collect()),
        users: Arc::new([(UserId(33), "www-data".into())].into_iter().collect()),
        problems: vec![Problem { path: "/bin/x".to_owned(), reason: "stripped".to_owned(), unnamed: 7, remedy: String::new() }],
        notes: vec!["a note".to_owned()],
        ..About::default()
    }
}

#[test]
fn a_recording_holds_what_the_store_held_whatever_happened_meanwhile() {
    let mut machine = Machine::new();
    let mut recorder = Recorder::new();
    let mut file = recorder.bytes();
    let mut expected = Vec::new();
    for second in 0..6u64 {
        for at in 0..50 {
            machine.sample(1_000 + second * 1_000_000_000 + at * 10_000, (second * 50 + at) as usize * 7);
        }
        match second {
            // A name that comes late, with a function that was inlined.
            2 => {
                let names = &machine.names;
                let chain = [("read", FrameKind::User), ("copy", FrameKind::Inlined)];
                let chain = chain.map(|(name, kind)| names.labels.intern(name, "libc.so.6", kind));
                names.name_frame(machine.frames[2], &chain);
            }
            // Nodes and threads get other numbers.
            3 => machine.profile.write().unwrap().compact(),
            _ => {}
        }
        machine.take(&mut recorder);
        file.extend(recorder.bytes());
        if second == 3 {
            // All names get other numbers, and only those that samples need are kept.
            expected = said(&machine.profile.read().unwrap(), &machine.names);
            machine.names = Renewals::at_once(&machine.profile).unwrap().names;
            machine.make_frames();
            let chain = [("read", FrameKind::User), ("copy", FrameKind::Inlined)];
            let chain = chain.map(|(name, kind)| machine.names.labels.intern(name, "libc.so.6", kind));
            machine.names.name_frame(machine.frames[2], &chain);
        }
    }
    machine.profile.write().unwrap().losses.ring_full = 12;
    let events = EventStatus {
        source: EventSource(1),
        name: "page-faults".into(),
        how: "counter".into(),
        events: 9,
        waited: Some(0),
        unknown: 2,
        ..EventStatus::default()
    };
    machine.profile.write().unwrap().events = vec![events.clone()].into();
    machine.profile.write().unwrap().set_unit(EventSource(1), Unit::Bytes);
    machine.profile.write().unwrap().end_clock(Timestamp(6_000_000_000));
    machine.take(&mut recorder);
    recorder.end().unwrap();
    file.extend(recorder.bytes());

    let (read, opened) = read(&file).unwrap();
    let all = said(&machine.profile.read().unwrap(), &machine.names);
    assert_eq!(all[..expected.len()], expected);
    assert_eq!(said(&read.profile, &read.names), all);
    assert_eq!(opened.remarks, Vec::<String>::new());
    let told = *opened.about.unwrap();
    assert_eq!(told, about());
    assert_eq!(read.profile.clock(), machine.profile.read().unwrap().clock());
    assert_eq!((read.profile.losses.ring_full, &*read.profile.events), (12, &[events][..]));
    assert_eq!((read.profile.unit(EventSource(1)), read.profile.unit(EventSource::CLOCK)), (Unit::Bytes, Unit::Samples));
    assert_eq!(
        read.processes.get(&Tgid(7)).map(|process| process.clone()),
        machine.processes.get(&Tgid(7)).map(|process| process.clone())
    );
    assert_eq!(opened.until, Some(Timestamp(6_000_000_000)));
    let per_sample = file.len() / all.len();
    assert!(per_sample < 30, "{per_sample} bytes a sample, tables included");
}

#[test]
fn samples_that_the_store_has_dropped_are_counted() {
    let machine = Machine::new();
    let mut recorder = Recorder::new();
    (0..5_000).for_each(|at| machine.sample(at * 1_000, at as usize));
    machine.profile.write().unwrap().trim(Timestamp(600_000_000_000 + 3_000_000));
    machine.take(&mut recorder);
    recorder.end().unwrap();
    let (read, _) = read(&recorder.bytes()).unwrap();
    assert_eq!((read.profile.samples.len(), read.profile.losses.over_memory), (5_000 - 2 * 1_024, 2 * 1_024));
    assert_eq!(recorder.missed(), 2 * 1_024);
}

#[test]
fn a_part_of_a_run_lasts_as_long_as_the_part() {
    let machine = Machine::new();
    (0..100).for_each(|at| machine.sample(at * 100_000_000, at as usize));
    let (from, to) = (Timestamp(3_000_000_000), Timestamp(5_000_000_000));
    let mut recorder = Recorder::new();
    recorder.within(from, to);
    let mut is_kept = |sample: &Sample| (from..to).contains(&sample.time);
    let profile = machine.profile.read().unwrap();
    while recorder.take_some(&profile, &machine.names, &mut is_kept) {}
    recorder.end().unwrap();
    let (read, opened) = read(&recorder.bytes()).unwrap();
    let clock = read.profile.clock().unwrap();
    assert_eq!((read.profile.samples.len(), clock.since, clock.until, opened.until), (20, from, Some(to), Some(to)));
}

#[test]
fn processes_without_end_are_forgotten_and_their_samples_are_there() {
    const PROCESSES: u32 = 40_000;
    let machine = Machine::new();
    let mut recorder = Recorder::new();
    let (mut file, mut segments) = (recorder.bytes(), 0);
    for tgid in 1..=PROCESSES {
        let label = machine.names.labels.intern("fork", "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(tgid), tid: Tid(tgid), process: label, name: label, ..Thread::default() };
        let sample = Sample { time: Timestamp(u64::from(tgid)), ..Sample::default() };
        machine.profile.write().unwrap().record(thread, [machine.frames[0]], sample);
        let command_line = format!("fork {tgid} {}", "x".repeat(1_000)).into();
        machine.processes.insert(Tgid(tgid), Process { command_line, parent: Tgid(1), user: None, threads: 1, exited: None });
        if tgid.is_multiple_of(4_000) {
            machine.take(&mut recorder);
            file.extend(recorder.bytes());
            assert!(recorder.kept() < 24 << 20, "{} bytes are kept", recorder.kept());
        }
    }
    recorder.end().unwrap();
    file.extend(recorder.bytes());
    let mut at = 12;
    while let Some(head) = file.get(at..at + 36) {
        segments += usize::from(head[0] == chunk::Kind::Segment as u8);
        at += 36 + u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
    }
    assert!(segments >= 2, "{segments}");
    let (read, opened) = read(&file).unwrap();
    assert_eq!((read.profile.samples.len(), opened.remarks.len()), (PROCESSES as usize, 0));
    let has_command = |tgid| read.processes.get(&Tgid(tgid)).is_some_and(|process| process.command_line.starts_with("fork "));
    assert!((1..=PROCESSES).all(has_command));
}

/// A recording of three seconds, and where its seconds end.
fn three_seconds() -> (Vec<u8>, Vec<usize>, Vec<Said>) {
    let machine = Machine::new();
    let mut recorder = Recorder::new();
    let (mut file, mut ends) = (Vec::new(), Vec::new());
    for second in 0..3 {
        (0..20).for_each(|at| machine.sample(1_000 + second * 1_000_000_000 + at, (second * 20 + at) as usize));
        machine.take(&mut recorder);
        if second == 2 {
            recorder.end().unwrap();
        }
        file.extend(recorder.bytes());
        ends.push(file.len());
    }
    let all = said(&machine.profile.read().unwrap(), &machine.names);
    (file, ends, all)
}

#[test]
fn a_recording_that_was_cut_anywhere_opens_up_to_its_last_whole_chunk() {
    let (file, ends, all) = three_seconds();
    for length in 0..file.len() {
        let whole = ends.iter().filter(|end| **end <= length).count() * 20;
        match read(&file[..length]) {
            Ok((read, opened)) => {
                let found = said(&read.profile, &read.names);
                assert!(found.len() >= whole && found == all[..found.len()], "{length}");
                assert_eq!(opened.remarks.len(), 1, "{length}: {:?}", opened.remarks);
            }
            Err(error) => assert!(whole == 0, "{length}: {error}"),
        }
    }
    let (_, opened) = read(&file[..ends[1] + 5]).unwrap();
    assert_eq!(opened.remarks, [format!("the recording is cut or damaged at byte {}: 1.0 s of it are there", ends[1])]);
    let (_, opened) = read(&file[..ends[1]]).unwrap();
    assert_eq!(opened.remarks, ["the recording did not end as it should: 1.0 s of it are there"]);
}

#[test]
fn two_recordings_put_together_are_one() {
    let (file, _, all) = three_seconds();
    let (read, opened) = read(&[file.clone(), file].concat()).unwrap();
    assert_eq!(opened.remarks, Vec::<String>::new());
    let both = said(&read.profile, &read.names);
    assert_eq!(both.len(), 2 * all.len());
    // Times of the same boot: the samples of both are in one order.
    assert!(both.is_sorted_by_key(|sample| sample.0));
}

#[test]
fn chunks_that_are_not_known_are_skipped_unless_they_are_needed() {
    let (file, ends, all) = three_seconds();
    let with = |flags: u8| {
        let mut chunk = Vec::new();
        chunk::write_chunk(&mut chunk, chunk::Kind::Note, 0, (0, 0), b"what comes later");
        (chunk[0], chunk[1]) = (200, flags);
        let mut crc = flate2::Crc::new();
        crc.update(&chunk[..32]);
        crc.update(&chunk[36..]);
        chunk[32..36].copy_from_slice(&crc.sum().to_le_bytes());
        [&file[..ends[0]], &chunk, &file[ends[0]..]].concat()
    };
    let (found, _) = read(&with(0)).unwrap();
    assert_eq!(said(&found.profile, &found.names), all);
    assert!(matches!(read(&with(chunk::NEEDED)), Err(FormatError::Newer { .. })));
    let mut newer = file;
    newer[8] = 2;
    assert!(read(&newer).err().unwrap().to_string().starts_with("a newer flametop wrote this recording (format 2)"));
}

proptest! {
    #[test]
    fn damage_never_leads_to_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), mends in any::<bool>()) {
        let (mut file, ..) = three_seconds();
        let place = at.index(file.len());
        file[place] = byte;
        if mends {
            mend(&mut file);
        }
        let _ = read(&file);
    }
}

/// Makes all checksums right, as an attacker would.
fn mend(file: &mut [u8]) {
    let mut at = 12;
    while let Some(head) = file.get(at..at + 36) {
        let stored = u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
        let Some(payload) = file.get(at + 36..at.saturating_add(36).saturating_add(stored)) else { return };
        let mut crc = flate2::Crc::new();
        crc.update(&file[at..at + 32]);
        crc.update(payload);
        let sum = crc.sum();
        file[at + 32..at + 36].copy_from_slice(&sum.to_le_bytes());
        at += 36 + stored;
    }
}
