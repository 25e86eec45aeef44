//! Profiles of OpenTelemetry.

use std::process::Command;

use super::*;

use flametop::profile::{Cpu, FrameKind, Tgid, Tid};

/// Returns the bytes of what `flametop convert` writes of the text of `perf script`.
fn written(place: &Path) -> Vec<u8> {
    std::fs::write(place.join("x.perf"), perf_script::TEXT).unwrap();
    convert::converted(place, &["x.perf", "x.otlp", "--force"]);
    std::fs::read(place.join("x.otlp")).unwrap()
}

#[test]
fn what_is_written_reads_back() {
    let place = tempfile::tempdir().unwrap();
    let bytes = written(place.path());
    let (file, text) = (File::open(&bytes), File::open(perf_script::TEXT.as_bytes()));
    // The samples that are shown first: those of the clock.
    assert_eq!(file.folded(), text.folded());
    let rows = |file: &File| {
        let row = |row: &flametop::profile::Thread| (row.tgid, row.tid, file.names.labels.name(row.name).to_owned());
        let mut rows: Vec<_> = file.profile.threads.rows().iter().map(row).collect();
        rows.sort();
        rows.dedup();
        rows
    };
    assert_eq!(rows(&file), rows(&text));
    let begin = |file: &File| file.profile.samples.first_time().unwrap();
    let seen = |file: &File| {
        let shown = file.profile.samples.slices_from(0).flatten().filter(|sample| Some(sample.source) == file.opened.source);
        shown.map(|sample| (sample.time.since(begin(file)), sample.cpu, sample.weight)).collect::<Vec<_>>()
    };
    assert_eq!(seen(&file), seen(&text));
    assert_eq!(file.profile.unit(EventSource(1)), Unit::Nanoseconds);
    assert_eq!(file.profile.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["cpu-clock", "cycles:u"]);
    let tree = file.tree();
    let kind_of = |name: &str| {
        let labels = tree.nodes().iter().filter_map(|node| file.names.labels.get(node.label));
        labels.into_iter().find(|label| &*label.name == name).map(|label| label.kind)
    };
    assert_eq!(kind_of("native_write_msr_safe"), Some(FrameKind::Kernel));
    assert_eq!(kind_of("leaf"), Some(FrameKind::Inlined));
    assert_eq!(kind_of("outer"), Some(FrameKind::Jit));
}

/// The protocol's own Python library decodes it, and the rules of OpenTelemetry's `profcheck` hold.
#[test]
fn other_readers_accept_what_is_written() {
    let place = tempfile::tempdir().unwrap();
    written(place.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/profcheck.py");
    // Python's packages are kept for the next run.
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("otlp-python");
    if !packages.join("bin/python").exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&packages).status().unwrap();
        assert!(made.success(), "python3 -m venv failed");
    }
    let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "opentelemetry-proto==1.45.2"];
    let installed = Command::new(packages.join("bin/python")).args(pip).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    convert::converted(place.path(), &["x.otlp", "x.otlp.json", "--force"]);
    let expected = ["_[k]", "_[j]", "_[i]"]
        .iter()
        .fold(perf_script::FOLDED.replace("worker_1", "worker 1"), |text, mark| text.replace(mark, ""));
    for file in ["x.otlp", "x.otlp.json"] {
        let output = Command::new(packages.join("bin/python")).arg(&script).arg(place.path().join(file)).output().unwrap();
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        let folded: String = sorted(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(folded, sorted(&format!("{expected}idle;alone 7\n")), "{file}");
    }
    // Back from JSON, it is the same file.
    let copy = |file: &str| {
        convert::converted(place.path(), &[file, "copy.otlp", "--force"]);
        std::fs::read(place.path().join("copy.otlp")).unwrap()
    };
    assert_eq!(copy("x.otlp"), copy("x.otlp.json"));
}

#[test]
fn files_of_other_projects_are_read() {
    for path in data("otlp").into_iter().filter(|path| path.extension().is_none_or(|ending| ending != "json")) {
        let file = File::try_open(&std::fs::read(&path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let capabilities = file.profile.capabilities();
        // The file of version 1.9 tells neither CPUs nor numbers of processes.
        let has_cpus = path.ends_with("otel-ebpf-profile.pb.bin");
        assert!(
            capabilities.time && capabilities.threads && capabilities.cpus == has_cpus,
            "{}: {capabilities:?}",
            path.display()
        );
        let rows = file.profile.threads.rows();
        let is_told = rows.iter().any(|row| row.tgid != Tgid(0) && row.tid != Tid(row.tgid.0));
        assert_eq!(is_told, has_cpus, "{}", path.display());
        assert!(
            !has_cpus || file.profile.samples.slices_from(0).flatten().any(|sample| sample.cpu != Cpu(0)),
            "{}",
            path.display()
        );
        // Functions of the kernel have names, and those of Java.
        let mark = if has_cpus { "_[k]" } else { "java.lang.Thread.run" };
        assert!(file.folded().contains(mark), "{}", path.display());
    }
}

#[test]
fn nothing_in_a_file_makes_the_reader_stumble() {
    let place = tempfile::tempdir().unwrap();
    let whole = written(place.path());
    for length in 0..whole.len() {
        drop(File::try_open(&whole[..length]));
    }
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let mut runner = TestRunner::new(Config { failure_persistence: None, cases: 2000, ..Config::default() });
    let outcome = runner.run(&prop::collection::vec(change, 1..6), |changes| {
        let mut bytes = whole.clone();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        drop(File::try_open(&bytes));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
