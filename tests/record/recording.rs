//! Recordings: what is in them, and what is left of them after an accident.

use flametop::formats::{Destination, Opened, ThisMachine};
use flametop::profile::{Capabilities, Names, Processes, Profile, Tgid, UserEnd};

use super::common::TinyDisk;
use super::*;

/// A recording, opened.
pub(super) struct Recorded {
    names: Names,
    processes: Processes,
    pub(super) profile: Profile,
    pub(super) opened: Opened,
}

impl Recorded {
    #[track_caller]
    pub(super) fn open(bytes: &[u8]) -> Recorded {
        Recorded::try_open(bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_open(bytes: &[u8]) -> Result<Recorded, flametop::formats::FormatError> {
        let (names, processes) = (Names::default(), Processes::default());
        let mut profile = Profile::fixed(Capabilities::STACKS);
        let mut into = Destination {
            names: &names,
            processes: &processes,
            profile: &mut profile,
            before: None,
            machine: ThisMachine::default(),
        };
        let opened = flametop::formats::open(bytes, &mut into)?;
        Ok(Recorded { names, processes, profile, opened })
    }

    /// Seconds from the start of sampling to the last sample.
    fn seconds(&self) -> f64 {
        let since = self.profile.clock().expect("the clock is in it").since;
        self.profile.samples.last_time().map_or(0.0, |last| last.since(since) as f64 / 1e9)
    }

    /// The stacks of a process, root first, each once.
    pub(super) fn stacks(&self, tgid: Tgid) -> Vec<String> {
        let samples = self.profile.samples.slices_from(0).flatten();
        let of_process = samples.filter(|sample| self.profile.threads.get(sample.thread).unwrap().tgid == tgid);
        let mut stacks: Vec<String> = of_process
            .map(|sample| {
                let mut words = Vec::new();
                for frame in self.profile.stacks.frames(sample.stack) {
                    let mut of_frame = Vec::new();
                    self.names.labels_of(frame, |label| of_frame.push(self.names.labels.name(label).to_owned()));
                    words.extend(of_frame.into_iter().rev());
                }
                words.reverse();
                words.join(";")
            })
            .collect();
        stacks.sort();
        stacks.dedup();
        stacks
    }
}

#[test]
fn a_recording_has_times_threads_stacks_names_and_the_machine() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let mut command = place.command(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "run.flametop"]);
    let output = to_its_end(command.env("SUDO_UID", "65534").env("SUDO_GID", "65533"));
    assert!(output.status.success() && words(&output).contains("samples written to run.flametop ("), "{}", words(&output));
    let file = std::fs::metadata(place.path("run.flametop")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65534, 65533, 0o600));
    let recorded = Recorded::open(&std::fs::read(place.path("run.flametop")).unwrap());
    assert_eq!(recorded.opened.remarks, Vec::<String>::new());
    let tgid = Tgid(chain.pid());
    let stacks = recorded.stacks(tgid);
    assert!(stacks.iter().any(|stack| stack.contains("main;outer;middle;inner")), "{stacks:?}");
    let command = recorded.processes.get(&tgid).expect("the process is in it").command_line.clone();
    assert!(command.contains("chain"), "{command}");
    let about = recorded.opened.about.as_ref().expect("the machine is in it");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!((&*about.host, about.frequency, &*about.watched), (&*host, 997, &*format!("process {tgid}")));
    assert!(about.users.values().any(|user| &**user == "root"), "{:?}", about.users);
    let clock = recorded.profile.clock().unwrap();
    assert!(clock.until.is_some_and(|until| until.since(clock.since) >= 1_900_000_000), "{clock:?}");
    let samples = recorded.profile.samples.slices_from(0).flatten();
    assert!(samples.filter(|sample| sample.user_end == UserEnd::Root).count() > 0);
}

#[test]
fn what_was_written_before_a_kill_is_there() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let mut command = place.command(&["-F", "997", "-p", &chain.pid_text(), "-o", "run.flametop"]);
    let mut flametop = command.stderr(Stdio::null()).spawn().unwrap();
    let file = place.path("run.flametop");
    let now = || std::fs::read(&file).ok().and_then(|bytes| Recorded::try_open(&bytes).ok());
    let begun = std::time::Instant::now();
    while now().is_none_or(|recorded| recorded.seconds() < 2.0) {
        assert!(begun.elapsed() < 2 * SOON, "nothing was written");
        std::thread::sleep(Duration::from_millis(50));
    }
    flametop.kill().unwrap();
    flametop.wait().unwrap();
    let recorded = now().unwrap();
    assert!(recorded.stacks(Tgid(chain.pid())).iter().any(|stack| stack.contains("main;outer;middle;inner")));
    let [remark] = &*recorded.opened.remarks else { panic!("{:?}", recorded.opened.remarks) };
    assert!(remark.starts_with("the recording did not end as it should: "), "{remark}");
}

#[test]
fn a_full_disk_ends_the_recording_and_what_is_there_opens() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    std::fs::create_dir(place.path("disk")).unwrap();
    let disk = TinyDisk::mount(&place.path("disk"));
    std::fs::write(disk.0.join("filler"), vec![0; 36 << 10]).unwrap();
    let path = disk.0.join("run.flametop");
    // Without the error it would not end.
    let output = place.record(&["-F", "4999", "-p", &chain.pid_text(), "-o", path.to_str().unwrap()]);
    assert_refusal(&output, &["run.flametop", "the recording is incomplete", "No space left"]);
    let recorded = Recorded::open(&std::fs::read(&path).unwrap());
    assert_eq!(recorded.opened.remarks.len(), 1, "{:?}", recorded.opened.remarks);
    assert!(recorded.stacks(Tgid(chain.pid())).iter().any(|stack| stack.contains("main;outer;middle;inner")));
}

#[test]
fn recordings_go_to_files_and_pipes_as_other_files_do() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "1", "-o", "-", "--format", "flametop"]);
    assert!(output.status.success(), "{}", words(&output));
    let recorded = Recorded::open(&output.stdout);
    assert!(recorded.opened.remarks.is_empty() && !recorded.stacks(Tgid(chain.pid())).is_empty());
    std::fs::write(place.path("run.flametop"), "mine").unwrap();
    place.refuses(&["-p", &chain.pid_text(), "-d", "1", "-o", "run.flametop"], &["run.flametop", "exists", "--force"]);
    assert_eq!(std::fs::read(place.path("run.flametop")).unwrap(), b"mine");
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "1", "-o", "run.flametop", "--force"]);
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(place.files(), ["run.flametop"]);
    Recorded::open(&std::fs::read(place.path("run.flametop")).unwrap());
    // A process that sleeps has no samples, and no file.
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    place.refuses(&["-p", &sleeper.id().to_string(), "-d", "0.5", "-o", "none.flametop"], &["no samples", "none.flametop"]);
    let args = ["-p", &sleeper.id().to_string(), "-d", "0.5", "-o", "run.flametop", "--force"];
    let before = std::fs::read(place.path("run.flametop")).unwrap();
    place.refuses(&args, &["no samples", "run.flametop"]);
    assert_eq!(std::fs::read(place.path("run.flametop")).unwrap(), before, "what was there is kept");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_profile_for_firefox_has_times_threads_and_the_stacks_of_a_recording() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "1", "-o", "run.json.gz"]);
    assert!(output.status.success(), "{}", words(&output));
    let recorded = Recorded::open(&std::fs::read(place.path("run.json.gz")).unwrap());
    let stacks = recorded.stacks(Tgid(chain.pid()));
    assert!(stacks.iter().any(|stack| stack.contains("main")), "{stacks:?}");
    assert!(recorded.profile.capabilities().time && recorded.profile.capabilities().threads);
    let about = recorded.opened.about.unwrap();
    let began = Duration::from_nanos(about.utc.unwrap().try_into().unwrap());
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(began);
    assert!(about.frequency == 997 && since.as_secs() < 3600, "{since:?}");
}
