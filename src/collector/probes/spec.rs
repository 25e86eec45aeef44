//! Parses the text of `-e` into an [`EventSpec`].

use regex::Regex;
use std::path::PathBuf;

/// The mechanism that runs a BPF program at an event: `enum register_source` in bpf/regs.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// A counter of the kernel or the processor, sampled.
    PerfEvent,
    /// A breakpoint, or ftrace, at the entry of a kernel function.
    Kprobe,
    /// The same at the function's return.
    Kretprobe,
    /// ftrace at the entries of any number of functions.
    KprobeMulti,
    /// The same at the functions' returns.
    KretprobeMulti,
    /// A breakpoint in a program.
    Uprobe,
    /// A breakpoint at the return from a function of a program.
    Uretprobe,
    /// A place in the kernel that was made for tracing.
    Tracepoint,
    /// A trampoline at a function's entry: the cheapest.
    Fentry,
    /// The same at its return.
    Fexit,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Mechanism; 10] = [
        Mechanism::Fentry,
        Mechanism::Fexit,
        Mechanism::KprobeMulti,
        Mechanism::KretprobeMulti,
        Mechanism::Kprobe,
        Mechanism::Kretprobe,
        Mechanism::Uprobe,
        Mechanism::Uretprobe,
        Mechanism::Tracepoint,
        Mechanism::PerfEvent,
    ];

    /// Returns the mechanism's name in `-e`.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::PerfEvent => "perf",
            Mechanism::Kprobe => "kprobe",
            Mechanism::Kretprobe => "kretprobe",
            Mechanism::KprobeMulti => "kprobe.multi",
            Mechanism::KretprobeMulti => "kretprobe.multi",
            Mechanism::Uprobe => "uprobe",
            Mechanism::Uretprobe => "uretprobe",
            Mechanism::Tracepoint => "tracepoint",
            Mechanism::Fentry => "fentry",
            Mechanism::Fexit => "fexit",
        }
    }

    fn named(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}

/// A pattern for names.
#[derive(Clone, Debug)]
pub enum NamePattern {
    /// This name only.
    Exact(String),
    /// All names that match. The pattern is a glob (`vfs_*`), or a regular expression between slashes (`/^vfs_(read|write)$/`).
    Matching(Regex),
}

impl NamePattern {
    fn parse(text: &str) -> Result<NamePattern, String> {
        if text.is_empty() {
            return Err("the name is missing".to_owned());
        }
        let compile = |source: &str| {
            let compiled = regex::RegexBuilder::new(source).size_limit(1 << 22).build();
            compiled.map(NamePattern::Matching).map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "the expression is too large".to_owned(),
                other => other.to_string().lines().last().unwrap_or("not a regular expression").trim().to_owned(),
            })
        };
        if let Some(source) = text.strip_prefix('/').and_then(|text| text.strip_suffix('/')).filter(|source| !source.is_empty()) {
            return compile(source);
        }
        if !text.contains(['*', '?']) {
            return Ok(NamePattern::Exact(text.to_owned()));
        }
        let pieces = text.chars().map(|c| match c {
            '*' => ".*".to_owned(),
            '?' => ".".to_owned(),
            c => regex::escape(c.encode_utf8(&mut [0; 4])),
        });
        compile(&format!("^{}$", pieces.collect::<String>()))
    }

    /// Tells whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            NamePattern::Exact(wanted) => wanted == name,
            NamePattern::Matching(regex) => regex.is_match(name),
        }
    }

    /// Returns the name, if the pattern is a name.
    pub fn exact(&self) -> Option<&str> {
        match self {
            NamePattern::Exact(name) => Some(name),
            NamePattern::Matching(_) => None,
        }
    }
}

/// A counter: `PERF_TYPE_…` and its number in linux/perf_event.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Its name in perf.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    pub(super) hardware: bool,
    pub(super) number: u64,
}

/// All counters that can be chosen, by perf's names.
pub const COUNTERS: [Counter; 17] = [
    software("page-faults", 2, "memory touched that was not mapped yet"),
    software("minor-faults", 5, "page faults without reading from disk"),
    software("major-faults", 6, "page faults that waited for the disk"),
    software("context-switches", 3, "a thread leaves its CPU"),
    software("cpu-migrations", 4, "a thread moves to another CPU"),
    software("cgroup-switches", 11, "a CPU switches to another cgroup"),
    software("alignment-faults", 7, "unaligned accesses that the kernel fixes"),
    software("emulation-faults", 8, "instructions that the kernel emulates"),
    hardware("cycles", 0, "the processor's cycles"),
    hardware("instructions", 1, "instructions retired"),
    hardware("cache-references", 2, "accesses to the last-level cache"),
    hardware("cache-misses", 3, "accesses that missed the last-level cache"),
    hardware("branches", 4, "branches retired"),
    hardware("branch-misses", 5, "branches mispredicted"),
    hardware("stalled-cycles-frontend", 7, "cycles that waited for instructions"),
    hardware("stalled-cycles-backend", 8, "cycles that waited for results"),
    hardware("ref-cycles", 9, "cycles at a constant frequency"),
];

const fn software(name: &'static str, number: u64, help: &'static str) -> Counter {
    Counter { name, help, hardware: false, number }
}

const fn hardware(name: &'static str, number: u64, help: &'static str) -> Counter {
    Counter { name, help, hardware: true, number }
}

/// A source of events, as the user described it.
#[derive(Clone, Debug)]
pub enum EventSpec {
    /// Samples of the clock, as without `-e`.
    Clock,
    /// Entries into functions of the kernel, or returns from them. Without a mechanism, the cheapest one that works is taken.
    Kernel {
        /// The mechanism, if the user chose one.
        mechanism: Option<Mechanism>,
        /// The functions.
        functions: NamePattern,
    },
    /// Entries into functions of programs and libraries, or returns from them.
    User {
        /// [`Mechanism::Uprobe`] or [`Mechanism::Uretprobe`].
        mechanism: Mechanism,
        /// A path, or a library's name. Without a file: the program itself and the files that it has mapped.
        file: Option<String>,
        /// The functions, by their readable or their mangled names.
        functions: NamePattern,
    },
    /// A tracepoint.
    Tracepoint {
        /// Such as `sched`.
        category: String,
        /// Such as `sched_switch`.
        name: String,
    },
    /// A counter.
    Counter(Counter),
    /// Time in which threads do not run.
    Waits,
}

/// The name of [`EventSpec::Waits`] in `-e`.
pub const OFF_CPU: &str = "off-cpu";

impl EventSpec {
    /// Parses the text of one `-e`.
    ///
    /// # Errors
    ///
    /// The mistake, as the end of a sentence.
    pub fn parse(text: &str) -> Result<EventSpec, String> {
        if matches!(text, "cpu" | "clock" | "cpu-clock") {
            return Ok(EventSpec::Clock);
        }
        if matches!(text, OFF_CPU | "offcpu") {
            return Ok(EventSpec::Waits);
        }
        let aliases = [("faults", "page-faults"), ("cs", "context-switches"), ("migrations", "cpu-migrations")];
        let known = aliases.iter().find(|(short, _)| *short == text).map_or(text, |(_, long)| long);
        if let Some(counter) = COUNTERS.iter().find(|counter| counter.name == known) {
            return Ok(EventSpec::Counter(*counter));
        }
        if text.starts_with('/') {
            return Ok(EventSpec::Kernel { mechanism: None, functions: NamePattern::parse(text)? });
        }
        let Some((prefix, rest)) = text.split_once(':') else {
            return Ok(EventSpec::Kernel { mechanism: None, functions: NamePattern::parse(text)? });
        };
        match Mechanism::named(prefix) {
            Some(Mechanism::Tracepoint) => tracepoint(rest),
            Some(mechanism @ (Mechanism::Uprobe | Mechanism::Uretprobe)) => {
                let (file, name) = split_file(rest);
                Ok(EventSpec::User { mechanism, file: file.map(str::to_owned), functions: NamePattern::parse(name)? })
            }
            Some(Mechanism::PerfEvent) => {
                Err(format!("there is no counter `{rest}`; the counters are {}", COUNTERS.map(|counter| counter.name).join(", ")))
            }
            Some(mechanism) => Ok(EventSpec::Kernel { mechanism: Some(mechanism), functions: NamePattern::parse(rest)? }),
            // perf writes tracepoints like this.
            None if !rest.contains(':') => tracepoint(text),
            None => Err(format!("`{prefix}` is not one of {}", Mechanism::ALL.map(Mechanism::name).join(", "))),
        }
    }
}

fn tracepoint(text: &str) -> Result<EventSpec, String> {
    // Both become parts of a path.
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    match text.split_once(':') {
        Some((category, name)) if plain(category) && plain(name) => {
            Ok(EventSpec::Tracepoint { category: category.to_owned(), name: name.to_owned() })
        }
        _ => Err("a tracepoint is written as tracepoint:CATEGORY:NAME, such as tracepoint:sched:sched_switch".to_owned()),
    }
}

/// Splits `FILE:NAME` at the first single colon. Double colons are part of C++ and Rust names.
fn split_file(text: &str) -> (Option<&str>, &str) {
    let bytes = text.as_bytes();
    let is_colon = |at: usize| bytes.get(at) == Some(&b':');
    let single = (0..bytes.len()).find(|at| is_colon(*at) && !is_colon(at + 1) && (*at == 0 || !is_colon(at - 1)));
    match single.map(|at| text.split_at(at)) {
        Some((file, rest)) if !file.is_empty() => (Some(file), rest.strip_prefix(':').unwrap_or(rest)),
        Some((_, rest)) => (None, rest.strip_prefix(':').unwrap_or(rest)),
        None => (None, text),
    }
}

/// How to unwind the kernel's stack at fentry and fexit: `enum backtrace`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Backtrace {
    /// By the kernel's own walk.
    #[default]
    Kernel = 0,
    /// By frame records, starting with the trampoline's: on arm64 the whole stack, on x86_64 the function and its caller.
    Manual = 1,
    /// By the kernel's walk, and by frame records in a second sample ([`compared`](crate::collector::Collected::compared)).
    Both = 2,
    /// By the kernel's walk, and in a second sample by the frame records that are found by scanning from the program's own frame.
    Scan = 3,
}

/// A place in a program or library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserPlace {
    /// The first bytes of its code.
    pub begins: [u8; 4],
    /// A path that flametop can open.
    pub path: PathBuf,
    /// Offset in the file.
    pub offset: u64,
}

/// A request to attach to events.
#[derive(Clone, Debug)]
pub struct EventRequest {
    /// The event's text, as the user wrote it.
    pub name: String,
    /// The parsed text.
    pub spec: EventSpec,
    /// For events of programs: the places, which were found in the programs' symbols.
    pub places: Vec<UserPlace>,
    /// Whether it may cost the programs any time. Otherwise it is not attached if it costs them more than a tenth of a CPU.
    pub is_agreed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match EventSpec::parse(text) {
            Ok(EventSpec::Clock) => "clock".to_owned(),
            Ok(EventSpec::Kernel { mechanism, functions }) => {
                format!("kernel {} {:?}", mechanism.map_or("any", Mechanism::name), functions.exact())
            }
            Ok(EventSpec::User { mechanism, file, functions }) => {
                format!("{} {file:?} {:?}", mechanism.name(), functions.exact())
            }
            Ok(EventSpec::Tracepoint { category, name }) => format!("tracepoint {category} {name}"),
            Ok(EventSpec::Waits) => "waits".to_owned(),
            Ok(EventSpec::Counter(counter)) => format!("counter {}", counter.name),
            Err(why) => format!("error {why}"),
        }
    }

    #[test]
    fn events_are_read_as_people_write_them() {
        assert_eq!(shown("vfs_read"), "kernel any Some(\"vfs_read\")");
        assert_eq!(shown("fentry:vfs_read"), "kernel fentry Some(\"vfs_read\")");
        assert_eq!(shown("kprobe.multi:vfs_*"), "kernel kprobe.multi None");
        assert_eq!(shown("/^vfs_(read|write)$/"), "kernel any None");
        assert_eq!(shown("uprobe:malloc"), "uprobe None Some(\"malloc\")");
        assert_eq!(shown("uprobe:libc:malloc"), "uprobe Some(\"libc\") Some(\"malloc\")");
        assert_eq!(shown("uretprobe:/bin/x:ns::Type::run"), "uretprobe Some(\"/bin/x\") Some(\"ns::Type::run\")");
        assert_eq!(shown("uprobe:ns::run"), "uprobe None Some(\"ns::run\")");
        assert_eq!(shown("tracepoint:sched:sched_switch"), "tracepoint sched sched_switch");
        assert_eq!(shown("sched:sched_switch"), "tracepoint sched sched_switch");
        assert_eq!(shown("faults"), "counter page-faults");
        assert_eq!(shown("cpu"), "clock");
        assert_eq!([shown("off-cpu"), shown("offcpu")], ["waits", "waits"]);
    }

    #[test]
    fn what_is_no_event_says_why() {
        for text in ["", "fentry:", "tracepoint:sched", "tracepoint:../x:y", "a:b:c", "perf:x", "fentry:/(/", "uprobe:libc:"] {
            assert!(shown(text).starts_with("error "), "{text}: {}", shown(text));
        }
    }

    #[test]
    fn globs_and_expressions_match_names() {
        let matches = |pattern: &str, name: &str| NamePattern::parse(pattern).unwrap().matches(name);
        assert!(matches("vfs_*", "vfs_read") && !matches("vfs_*", "do_vfs_read"));
        assert!(matches("?read", "vread") && !matches("?read", "read"));
        assert!(matches("/read/", "vfs_read_more") && !matches("a.c", "abc"));
    }
}
