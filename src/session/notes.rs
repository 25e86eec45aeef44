//! Lines for the health view: the state of unwind tables, and processes that could not be read.

use crate::collector::{Collector, DumpCounts, FoundEngine, ObjectState, ScriptCounts, UnfitHotSpot, UnfitV8, Unread};
use crate::profile::sanitize;
use crate::ui::format_grouped;

/// Describes the state of all unwind tables, with one line for each object that has none.
pub(super) fn of_tables(collector: &Collector, without: &[String]) -> Vec<String> {
    let mut lines = collector.walk_notes();
    let Some(tables) = collector.tables() else { return lines };
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    lines.extend([
        format!(
            "{} objects, {:.2} million rows in {:.1} MB of the kernel's memory; {} of them from the cache on disk",
            tables.ready,
            tables.rows as f64 / 1e6,
            megabytes(tables.bytes),
            tables.from_cache
        ),
        format!(
            "kernel memory: {:.0} of {:.0} MB (--kernel-memory); making tables took {:.1} s of CPU time, at most a quarter of one CPU",
            megabytes(tables.segment_bytes),
            megabytes(tables.bound),
            tables.cpu.as_secs_f64()
        ),
    ]);
    if tables.waiting > 0 {
        lines.push(format!("{} more tables are being made", tables.waiting));
    }
    if tables.evicted > 0 {
        lines.push(format!("{} tables were evicted because memory was full", tables.evicted));
    }
    if tables.waiting_for_room > 0 {
        lines.push(format!("{} tables are ready but have no room (raise --kernel-memory)", tables.waiting_for_room));
    }
    for user in tables.held_back.iter().take(10) {
        lines.push(format!(
            "user {user} starts programs faster than tables can be made: their stacks stay short until the tables are ready"
        ));
    }
    if tables.turned_away > 0 {
        lines.push(format!("{} requests for tables were dropped: the queue was full", tables.turned_away));
    }
    lines.extend(of_dumps(&collector.dumps()));
    lines.extend(of_scripts(&collector.scripts()));
    lines.extend(collector.engines().iter().map(|(path, found)| of_engine(path, *found)));
    let partial = collector.objects().into_iter().filter_map(|object| match object.state {
        ObjectState::Without(_) => None,
        ObjectState::Ready(summary) if summary.covered < summary.text / 2 => {
            let percent = summary.covered * 100 / summary.text.max(1);
            Some(format!(
                "{}: only {percent} % of its code has unwind information; its debug symbols may have more",
                sanitize(&object.path)
            ))
        }
        ObjectState::Ready(_) => None,
    });
    lines.extend(without.iter().cloned().chain(partial).take(50));
    lines
}

/// Returns the files that have no unwind table, with the reasons.
pub(super) fn without_tables(collector: &Collector) -> Vec<String> {
    let without = collector.objects().into_iter().filter_map(|object| match object.state {
        ObjectState::Without(why) => Some(format!("no unwind table for {}: {why}", sanitize(&object.path))),
        ObjectState::Ready(_) => None,
    });
    without.collect()
}

/// Describes samples whose unwind table was loaded after they were taken.
pub(super) fn of_dumps(dumps: &DumpCounts) -> Vec<String> {
    let mut lines = Vec::new();
    if dumps.dumped > 0 {
        lines.push(format!(
            "{} samples came before their unwind table and were walked later from a copy of the stack: {} are complete, {} got \
             no table within 2.5 s",
            dumps.dumped, dumps.whole, dumps.late
        ));
    }
    if dumps.refused > 0 {
        lines.push(format!(
            "{} samples came before their unwind table and were not walked later: too many waited (usual in the first seconds)",
            dumps.refused
        ));
    }
    lines
}

/// Describes how complete the functions of interpreters are.
fn of_scripts(scripts: &ScriptCounts) -> Vec<String> {
    let told = [
        (scripts.unreadable, "samples lack Python functions: memory of the interpreter could not be read"),
        (
            scripts.gone,
            "functions of Python, JavaScript or Java were gone before their names were read: shown as [function that is gone]",
        ),
        (
            scripts.refused,
            "samples have functions of Python, JavaScript or Java that were not read, because their user has too many new functions: shown as [functions not read]",
        ),
        (
            scripts.late,
            "samples have functions of Python, JavaScript or Java whose names did not come in time: shown as [functions not read]",
        ),
        (
            scripts.processes_refused,
            "processes are shown without their functions of Python, JavaScript or Java: their user has too many processes",
        ),
    ];
    let mut lines = Vec::new();
    if scripts.samples > 0 {
        lines.push(format!(
            "{} samples of programs in Python, JavaScript or Java, {} of them with all functions",
            scripts.samples, scripts.whole
        ));
    }
    if scripts.cut > 0 {
        let (least, most) = scripts.cut_to;
        lines.push(format!(
            "{} samples lack their outermost functions of Python, JavaScript or Java: after {} to {} functions there was no room or time left",
            scripts.cut,
            format_grouped(least),
            format_grouped(most)
        ));
    }
    lines.extend(told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    lines
}

/// Describes a file that contains V8 or HotSpot.
fn of_engine(path: &str, found: FoundEngine) -> String {
    let path = sanitize(path);
    let remedy = "its functions are named only if it runs with --perf-basic-prof";
    match found {
        FoundEngine::V8(version) => format!("functions of JavaScript are found in V8 {version} of {path}"),
        FoundEngine::UnfitV8(UnfitV8 { version, missing: None }) => {
            format!("V8 {version} of {path} is older than V8 9: {remedy}")
        }
        FoundEngine::UnfitV8(UnfitV8 { version, missing: Some(symbol) }) => {
            format!("V8 {version} of {path} does not export v8dbg_{symbol}: {remedy}")
        }
        FoundEngine::HotSpot(version) => format!("methods of Java are found in JDK {version} of {path}"),
        FoundEngine::UnfitHotSpot(UnfitHotSpot { version, missing }) => {
            let jdk = if version > 0 { format!("JDK {version}") } else { "the JVM".to_owned() };
            format!("{jdk} of {path} does not describe {missing}: its methods are named only after jcmd PID Compiler.perfmap")
        }
    }
}

/// Describes processes whose samples have no user frames because their data could not be read.
pub(super) fn of_unread(unread: &Unread) -> Vec<String> {
    let mut lines = Vec::new();
    let some = unread.some.iter().map(|(tgid, name, user)| format!("{tgid} {} (user {user})", sanitize(name)));
    let some: Vec<String> = some.collect();
    if unread.processes > 0 {
        let more = unread.processes.saturating_sub(some.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!(
            "the mappings of {}{more} cannot be read: something holds their memory lock, and `ps` waits for it as well; {} threads wait, \
             {} samples have no user frames",
            some.join(", "),
            unread.threads,
            unread.samples
        ));
    }
    if unread.refused_files > 0 {
        lines.push(format!(
            "no room for {} mapped files (a user gets a quarter of it): their code is `[more objects]` (raise --memory)",
            unread.refused_files
        ));
    }
    if unread.forgotten > 0 {
        lines.push(format!(
            "no room for all mappings: those of the largest processes were dropped and read again {} times (raise --memory)",
            unread.forgotten
        ));
    }
    if unread.cut > 0 {
        lines.push(format!("{} lists of mappings were cut at 16 MB or 65,530 mappings: code in the rest is unknown", unread.cut));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::V8Version;

    #[test]
    fn a_version_of_v8_is_told_or_what_it_lacks() {
        let version = V8Version { major: 12, minor: 4, build: 254 };
        assert_eq!(
            of_engine("/bin/node", FoundEngine::V8(version)),
            "functions of JavaScript are found in V8 12.4.254 of /bin/node"
        );
        let unfit = |missing| of_engine("/bin/node", FoundEngine::UnfitV8(UnfitV8 { version, missing }));
        let remedy = "its functions are named only if it runs with --perf-basic-prof";
        assert_eq!(unfit(None), format!("V8 12.4.254 of /bin/node is older than V8 9: {remedy}"));
        let lacks = format!("V8 12.4.254 of /bin/node does not export v8dbg_type_Script__SCRIPT_TYPE: {remedy}");
        assert_eq!(unfit(Some("type_Script__SCRIPT_TYPE")), lacks);
        assert_eq!(of_engine("/a/libjvm.so", FoundEngine::HotSpot(21)), "methods of Java are found in JDK 21 of /a/libjvm.so");
        assert_eq!(
            of_engine("/a/libjvm.so", FoundEngine::UnfitHotSpot(UnfitHotSpot { version: 8, missing: "CodeCache._heaps" })),
            "JDK 8 of /a/libjvm.so does not describe CodeCache._heaps: its methods are named only after jcmd PID Compiler.perfmap"
        );
    }

    #[test]
    fn samples_that_lack_python_functions_tell_how_many_they_have() {
        let counts =
            ScriptCounts { samples: 20, whole: 7, cut: 12, cut_to: (447, 4096), unreadable: 1, ..ScriptCounts::default() };
        let lines = [
            "20 samples of programs in Python, JavaScript or Java, 7 of them with all functions",
            "12 samples lack their outermost functions of Python, JavaScript or Java: after 447 to 4,096 functions there was no room or time left",
            "1 samples lack Python functions: memory of the interpreter could not be read",
        ];
        assert_eq!(of_scripts(&counts), lines);
        assert!(of_scripts(&ScriptCounts::default()).is_empty());
    }
}
