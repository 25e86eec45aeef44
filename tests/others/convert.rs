//! `flametop convert`.

use std::process::{Command, Output};

use super::*;

fn convert(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flametop"));
    command.arg("convert").args(args).current_dir(directory).env_remove("SUDO_UID").env_remove("SUDO_GID");
    command.output().unwrap()
}

/// Returns what a conversion that succeeds prints on standard output.
#[track_caller]
pub(super) fn converted(directory: &Path, args: &[&str]) -> String {
    let output = convert(directory, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_format_keeps_the_stacks() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("x.perf"), perf_script::TEXT).unwrap();
    let folded = converted(place.path(), &["x.perf", "-"]);
    assert_eq!(sorted(&folded), sorted(&perf_script::FOLDED.replace("worker_1", "worker 1")));
    converted(place.path(), &["x.perf", "x.flametop"]);
    assert_eq!(converted(place.path(), &["x.flametop", "-"]), folded);
    assert_eq!(converted(place.path(), &["x.flametop", "-", "-e", "cycles:u"]), "idle;alone 7\n");
    let recorded = File::open(&std::fs::read(place.path().join("x.flametop")).unwrap());
    let text = File::open(perf_script::TEXT.as_bytes());
    let times = |file: &File| file.profile.samples.slices_from(0).flatten().map(|sample| sample.time).collect::<Vec<_>>();
    assert_eq!(times(&recorded), times(&text));
    assert_eq!(recorded.profile.unit(EventSource(1)), Unit::Nanoseconds);
    for name in ["x.svg", "x.html", "x.pprof", "x.folded"] {
        converted(place.path(), &["x.perf", name]);
    }
    // Firefox's profiler has one kind of samples: the first one.
    converted(place.path(), &["x.perf", "x.firefox.json.gz"]);
    let firefox = converted(place.path(), &["x.firefox.json.gz", "-"]);
    assert_eq!(firefox, converted(place.path(), &["x.perf", "-", "-e", "cpu-clock"]));
    let pprof = converted(place.path(), &["x.pprof", "-", "--no-annotations"]);
    assert_eq!(pprof.lines().filter(|line| line.starts_with("worker 1;")).count(), 2, "{pprof}");
    // Where two files are compared, each line has two counts.
    let both = converted(place.path(), &["x.folded", "-", "-b", "x.folded"]);
    assert!(both.contains("worker 1;main;outer_[j];middle_[i];leaf_[i] 2002002 2002002\n"), "{both}");
}

#[test]
fn what_cannot_be_converted_is_told_in_a_sentence() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    std::fs::write(path("x.perf"), perf_script::TEXT).unwrap();
    std::fs::write(path("there.svg"), "mine").unwrap();
    for (args, words) in [
        (&["x.perf", "there.svg"][..], "`there.svg` exists already; --force replaces it"),
        (&["none", "y.svg"], "failed to open none"),
        (&["x.perf", "y.png"], "unknown file ending: `y.png`"),
        (&["x.perf", "y.svg", "-e", "faults"], "x.perf has no event `faults`; it has cpu-clock, cycles:u"),
        (&["x.perf", "y.flametop", "-b", "x.perf"], ".flametop files hold the samples of one file"),
    ] {
        let output = convert(place.path(), args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words) && said.lines().count() == 1, "{args:?}: {said}");
    }
    assert_eq!(std::fs::read(path("there.svg")).unwrap(), b"mine");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "nothing was left behind");
}
