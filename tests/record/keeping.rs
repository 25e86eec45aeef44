//! The flight recorder: what is kept, when it is written, and what a file holds.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr};

use flametop::profile::Tgid;
use rustix::process::Signal;

use super::recording::Recorded;
use super::*;

/// A flight recorder that runs, and what it says.
struct Flight {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Flight {
    fn start(place: &Place, args: &[&str]) -> Flight {
        let mut child = place.command(args).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Flight { child, said }
    }

    /// Returns the next line with this in it.
    fn says(&mut self, words: &str) -> String {
        self.said.by_ref().map(Result::unwrap).find(|line| line.contains(words)).unwrap_or_else(|| panic!("never said: {words}"))
    }

    fn signal(&self, signal: Signal) {
        terminal::kill(self.child.id(), signal);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_last_seconds_are_written_at_each_signal_and_at_the_end() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let mut flight = Flight::start(&place, &["-F", "499", "--keep", "3s", "-p", &chain.pid_text()]);
    let announced = flight.says("keeping the last 3 s");
    assert!(announced.contains(&format!("kill -USR1 {}", flight.child.id())), "{announced}");
    std::thread::sleep(Duration::from_secs(7));
    for count in 1..=2 {
        flight.signal(Signal::USR1);
        let line = flight.says(" samples written to ");
        assert!(line.ends_with("): SIGUSR1"), "{line}");
        assert_eq!(place.files().len(), count, "{line}");
    }
    flight.signal(Signal::TERM);
    flight.says(" samples written to ");
    assert!(flight.child.wait().unwrap().success());
    let files = place.files();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let start = format!("flametop-pid-{}-", chain.pid());
        assert!(file.starts_with(&start) && file.ends_with(".flametop"), "{file}");
        let recorded = Recorded::open(&std::fs::read(place.path(&file)).unwrap());
        assert_eq!(recorded.opened.remarks, Vec::<String>::new());
        assert!(recorded.stacks(Tgid(chain.pid())).iter().any(|stack| stack.contains("main;outer;middle;inner")));
        let first = recorded.profile.samples.slices_from(0).flatten().map(|sample| sample.time).min().unwrap();
        let since = recorded.profile.clock().unwrap().since;
        assert!(first.since(since) < 500_000_000, "{file}: the file begins at {since:?}, its first sample is of {first:?}");
        let seconds = recorded.profile.samples.last_time().unwrap().since(first) as f64 / 1e9;
        assert!((2.0..3.5).contains(&seconds), "{file}: {seconds} s");
    }
}

#[test]
fn a_condition_writes_a_file_once() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let directory = place.path("kept");
    std::fs::create_dir(&directory).unwrap();
    let args = ["-F", "499", "--keep", "5m", "--when", "cpu > 2% for 1s", "-o", "kept", "-p", &chain.pid_text(), "-d", "6"];
    let mut flight = Flight::start(&place, &args);
    assert!(flight.says("keeping the last 5 min").ends_with("and when cpu > 2 % for 1 s"));
    assert!(flight.says(" samples written to kept/").ends_with("): cpu > 2 % for 1 s"));
    flight.says(" samples written to kept/");
    assert!(flight.child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2, "one for the condition, one for the end");
}

#[test]
fn what_cannot_be_kept_is_refused_at_the_start() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    place.refuses(&["--keep", "10m", "-o", "none"], &["`none` is not a directory"]);
    place.refuses(&["--keep", "10m", "-o", "file"], &["`file` is not a directory"]);
    let events = ["--keep", "10m", "--when", "cpu > 90%", "-e", "page-faults"];
    place.refuses(&events, &["`--when` needs the clock", "-e cpu"]);
    for wrong in ["load > 3", "cpu 90%", "cpu > 190%", "cpu > 90% for ever"] {
        let output = place.record(&["--keep", "10m", "--when", wrong]);
        assert!(!output.status.success() && words(&output).contains("--when"), "{}", words(&output));
    }
}
