//! Profiles of pprof.

use std::process::Command;

use super::*;

/// Go's own tool prints the stacks that were written.
#[test]
fn gos_pprof_prints_the_stacks_that_are_written() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("x.perf"), perf_script::TEXT).unwrap();
    convert::converted(place.path(), &["x.perf", "x.pprof"]);
    let options = ["tool", "pprof", "-traces", "-unit=ns", "-symbolize=none", "x.pprof"];
    let output =
        Command::new("go").args(options).current_dir(place.path()).output().unwrap_or_else(|error| panic!("go: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Total samples = 3003004ns"), "{text}");
    // Stacks between lines of dashes, innermost first; the value is before the first function.
    let traces = text.split("-----------+").skip(1).filter_map(|trace| trace.split_once('\n'));
    let folded = traces.filter(|(_, trace)| !trace.trim().is_empty()).map(|(_, trace)| {
        let (value, stack) = trace.trim().split_once("ns ").unwrap();
        let mut frames: Vec<&str> = stack.lines().map(|line| line.trim().trim_end_matches(" (inline)")).collect();
        frames.reverse();
        format!("{} {value}\n", frames.join(";"))
    });
    // The tool trims names.
    let expected = convert::converted(place.path(), &["x.perf", "-", "--no-annotations"]).replace("<int ;", "<int;");
    assert_eq!(sorted(&folded.collect::<String>()), sorted(&expected));
}
