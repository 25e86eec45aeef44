//! The command line.

#[cfg(feature = "live")]
use std::ffi::OsString;
use std::path::PathBuf;
#[cfg(feature = "live")]
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::formats::Format;

/// Headings of the help.
#[cfg(feature = "live")]
const SAMPLES: &str = "What to sample";
#[cfg(feature = "live")]
const STACKS: &str = "Stacks and names";
#[cfg(feature = "live")]
const KEPT: &str = "How much to keep";
#[cfg(feature = "live")]
const COMMAND: &str = "The command";
#[cfg(feature = "live")]
const FILE: &str = "The file";
#[cfg(feature = "live")]
const ENGINE: &str = "The engine";
const LOOKS: &str = "Looks";

/// Examples at the end of the help.
const EXAMPLES: &str = "Examples:
  sudo flametop                           the whole machine
  sudo flametop -p 4121                   one process
  sudo flametop -- make -j8               a command and all processes that it starts
  sudo flametop -e uprobe:libc:malloc     who calls malloc
  sudo flametop record -d 30 -o cpu.svg   30 seconds, as a flame graph for a browser

On the screen, ? lists all keys. `man flametop` has the details.";

/// Show a live flame graph of all CPUs of this machine in the terminal.
///
/// Without a subcommand, flametop shows the whole machine, some processes (-p), or a command and its descendants (--).
#[derive(Parser, Debug)]
#[command(
    name = "flametop",
    version,
    max_term_width = 100,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true
)]
pub struct Cli {
    /// The subcommand; without one the live view starts.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The live view's options.
    #[cfg(feature = "live")]
    #[command(flatten)]
    pub live: Live,
}

/// A subcommand.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Sample without a screen, and write a flame graph, a recording or folded stacks
    #[cfg(feature = "live")]
    Record(Record),
    /// Open a recording, a pprof profile, perf.data, the text of `perf script` or folded stacks in the same views
    View(View),
    /// Write a file of one format in another one
    Convert(Convert),
    /// Sample for weeks, and send profiles to OpenTelemetry's Collector or Grafana Pyroscope
    #[cfg(feature = "live")]
    Export(Export),
    /// Print the stacks of all threads of a process now, of those that run and of those that wait
    #[cfg(feature = "live")]
    Dump(Dump),
    /// Check what this machine supports and how to fix what is missing
    #[cfg(feature = "live")]
    Doctor,
    /// Check the unwind tables of programs and libraries
    UnwindCheck(UnwindCheck),
    /// Print the functions at addresses of a program or library
    Names(NamesOf),
    /// Wait for a signal, then become the command, so that it is sampled from its first instruction.
    #[cfg(feature = "live")]
    #[command(name = "__hold", hide = true)]
    Hold(Hold),
    /// Send what comes through standard input: the part of `export` that has no privileges.
    #[cfg(feature = "live")]
    #[command(name = "__send", hide = true)]
    Send(Send),
}

/// Options of the process that becomes the command.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Hold {
    /// Begins a new session.
    #[arg(long)]
    pub session: bool,
    /// Makes the terminal that it writes to its controlling terminal.
    #[arg(long)]
    pub terminal: bool,
    /// Becomes this user: UID:GID:GROUPS.
    #[arg(long = "as")]
    pub user: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Options of sampling.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Sampling {
    /// Sample only these processes: 12, or 12,34
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..), help_heading = SAMPLES)]
    pub pids: Vec<u32>,
    /// Take this many samples a second on each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=25_000), help_heading = SAMPLES)]
    pub frequency: u32,
    /// Take stacks at events instead of clock ticks: FUNC of the kernel, uprobe:FILE:FUNC, tracepoint:CAT:NAME, page-faults, …
    ///
    /// Shows who calls a function, how often, and from where. All events are counted.
    /// Programs lose time at each event: the live view and the end of `record` show how much.
    /// --event-stacks limits the stacks. FUNC may be a glob (`vfs_*`) or a regular expression
    /// between slashes.
    ///
    /// FUNC                          calls of a kernel function, by the cheapest method
    /// fentry:FUNC kprobe.multi:FUNC kprobe:FUNC            the same calls, by this method
    /// fexit:FUNC kretprobe.multi:FUNC kretprobe:FUNC       returns from it
    /// uprobe:FILE:FUNC              calls of a function; FILE is a path or a name like libc.
    ///                               uprobe:FUNC looks in the command or in -p
    /// uretprobe:FILE:FUNC           returns from it
    /// tracepoint:CATEGORY:NAME      a tracepoint; also CATEGORY:NAME
    /// page-faults context-switches cpu-migrations cycles instructions cache-misses …
    ///                               counters, as perf calls them
    /// off-cpu                       waits: where threads do not run, and how long
    /// cpu                           the clock, in addition to other events
    #[arg(short = 'e', long = "event", value_name = "EVENT", verbatim_doc_comment, help_heading = SAMPLES)]
    pub events: Vec<String>,
    /// Show where threads wait, and how long; the same as -e off-cpu
    #[arg(long, help_heading = SAMPLES)]
    pub off_cpu: bool,
    /// Take at most this many event stacks a second on each CPU; all events are still counted
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000), help_heading = SAMPLES)]
    pub event_stacks: u32,
    /// Choose how the kernel's stack is walked at fentry and fexit
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Backtrace::Kernel, help_heading = STACKS)]
    pub backtrace: Backtrace,
    /// Look at threads that wait at once, and not after a second.
    #[arg(skip)]
    pub at_once: bool,
    /// Sample idle CPUs too; of waits, show threads that only wait for work
    #[arg(long, help_heading = SAMPLES)]
    pub idle: bool,
    /// Show flametop itself too; without this option, its samples and events are only counted
    #[arg(long = "self", help_heading = SAMPLES)]
    pub include_self: bool,
    /// Show no inlined functions; their samples count for the function that contains them
    #[arg(long, help_heading = STACKS)]
    pub no_inline: bool,
    /// Show the interpreter's own frames between functions of Python and JavaScript
    #[arg(long, help_heading = STACKS)]
    pub interpreter: bool,
    /// Fetch missing debug files from the servers in DEBUGINFOD_URLS, with debuginfod-find
    #[arg(long, help_heading = STACKS)]
    pub debuginfod: bool,
    /// Choose how callers are found in programs and libraries
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Unwind::Tables, help_heading = STACKS)]
    pub unwind: Unwind,
    /// Keep only the samples of the last TIME: 90s, 10m, 2h [default: 10m in the live view, no limit in `record`]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = KEPT)]
    pub window: Option<Duration>,
    /// Limit the memory for samples and names: 64M, 1G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size, help_heading = KEPT)]
    pub memory: usize,
    /// Limit the kernel's memory for unwind tables: 64M, 1G
    #[arg(long, value_name = "SIZE", default_value = "384M", value_parser = parse_size, help_heading = KEPT)]
    pub kernel_memory: usize,
}

/// Ways to find callers in programs and libraries.
#[cfg(feature = "live")]
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwind {
    /// Use unwind information: whole stacks of nearly every program
    Tables,
    /// Use frame pointers: whole stacks only of programs that are built with them
    Fp,
    /// Use unwind information on a copy of the stack: a third slower; try it first if a kernel misbehaves
    Copied,
}

/// Ways to walk the kernel's stack at fentry and fexit.
#[cfg(feature = "live")]
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backtrace {
    /// Use the kernel's own walk
    Kernel,
    /// Follow frame records, beginning with the trampoline's: the whole stack on arm64, two functions on x86_64
    Manual,
    /// Do both; show the kernel's walk and count the differences in view 5
    Both,
    /// Do both; search for the trampoline upwards from the program's own frame
    Scan,
}

/// Options of looks.
#[derive(Args, Debug, Clone)]
pub struct Looks {
    /// Draw with ASCII characters only; this is the default if the locale is not UTF-8
    #[arg(long, help_heading = LOOKS)]
    pub ascii: bool,
    /// Choose colours for this background of the terminal
    #[arg(long, value_enum, default_value_t = Background::Auto, help_heading = LOOKS)]
    pub theme: Background,
    /// Choose the number of colours
    #[arg(long, value_enum, default_value_t = Colours::Auto, help_heading = LOOKS)]
    pub color: Colours,
    /// Choose the colours: `standard` (the default), or `colour-blind` for every kind of colour vision
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true, help_heading = LOOKS)]
    pub palette: Option<PaletteName>,
    /// Draw callers at the top of saved pictures instead of at the bottom
    #[arg(long, help_heading = LOOKS)]
    pub icicle: bool,
    /// Read keys and looks from this file [default: `flametop/config.toml` below `$XDG_CONFIG_HOME` or `~/.config`]
    #[arg(long, value_name = "FILE", help_heading = LOOKS)]
    pub config: Option<PathBuf>,
}

/// Palettes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaletteName {
    /// The colours of flame graphs
    Standard,
    /// The colours of Okabe and Ito
    #[value(alias = "color-blind", alias = "okabe-ito")]
    ColourBlind,
}

/// A value from a list, on the command line or in the configuration file.
pub trait Choice: ValueEnum {}
impl<T: ValueEnum> Choice for T {}

/// Returns the value with this name.
///
/// # Errors
///
/// No value has this name. The error lists all names.
pub fn choice<T: Choice>(text: &str) -> Result<T, Vec<String>> {
    let names = || T::value_variants().iter().filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()));
    T::from_str(text, false).map_err(|_| names().collect())
}

/// Backgrounds of terminals.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Read COLORFGBG or ask the terminal; otherwise dark
    Auto,
    /// Dark
    Dark,
    /// Light
    Light,
}

/// Numbers of colours.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Read TERM, COLORTERM and NO_COLOR
    Auto,
    /// No colours
    Never,
    /// The 16 colours of every terminal
    #[value(name = "16")]
    Sixteen,
    /// The 256 colours of xterm
    #[value(name = "256")]
    Indexed,
    /// 24-bit colours
    True,
}

/// The live view's options.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Live {
    /// Options of sampling.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Options of looks.
    #[command(flatten)]
    pub looks: Looks,
    /// Choose where the command's output goes: `pane` (below the view), a new file, or `leave` (as without flametop)
    #[arg(long, value_name = "WHERE", default_value = "pane", requires = "program", help_heading = COMMAND)]
    pub output: PathBuf,
    /// Start the command as this user: a name or a number
    #[arg(long, value_name = "NAME", requires = "program", help_heading = COMMAND)]
    pub user: Option<String>,
    /// Start this command; show it and all processes that it starts
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `record`.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Record {
    /// Options of sampling.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Stop after this time: 30 (seconds), 90s, 10m, 2h; otherwise at Ctrl-C or at the end of the command
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, help_heading = SAMPLES)]
    pub duration: Option<Duration>,
    /// Write to this file
    #[arg(short, long, value_name = "FILE", help = output_help(), help_heading = FILE)]
    pub output: Option<PathBuf>,
    /// Write this kind of file, whatever its name ends in: svg, html, flametop, pprof, otlp, otlp.json, speedscope, firefox, tree, folded
    #[arg(long, value_name = "KIND", value_parser = parse_format, help_heading = FILE)]
    pub format: Option<Format>,
    /// Keep the last TIME in memory, and write it to a new .flametop file in the directory -o at SIGUSR1 and at the end: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["window", "format", "force"], help_heading = KEPT)]
    pub keep: Option<Duration>,
    /// Write what is kept also when a condition on the CPU use is met: 'cpu > 90%', 'cpu < 5% for 30s'
    ///
    /// 100 % is all CPUs, busy with what is recorded. The condition must hold for 5 seconds, or for
    /// the given time. Nothing is written again while it still holds, nor within the time that is kept.
    #[arg(long, value_name = "CONDITION", value_parser = When::parse, requires = "keep", help_heading = KEPT)]
    pub when: Option<When>,
    /// Replace an existing file
    #[arg(long, help_heading = FILE)]
    pub force: bool,
    /// Write folded stacks without `_[k]`, `_[i]`, `_[j]`, `_[p]`, `_[s]`, `_[v]` after kernel, inlined, JIT, Python, JavaScript and Java frames
    #[arg(long, help_heading = FILE)]
    pub no_annotations: bool,
    /// Write file and line into folded stacks, behind the names of Python, JavaScript and Java functions: `run (/srv/views.py:1)`
    #[arg(long, help_heading = FILE)]
    pub places: bool,
    /// Draw callers at the top of a picture instead of at the bottom
    #[arg(long, help_heading = FILE)]
    pub icicle: bool,
    /// Choose the colours of a picture: `standard` (the default) or `colour-blind`
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true, help_heading = FILE)]
    pub palette: Option<PaletteName>,
    /// Start the command as this user: a name or a number
    #[arg(long, value_name = "NAME", requires = "program", help_heading = COMMAND)]
    pub user: Option<String>,
    /// Start this command; record it and all processes that it starts
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `export`.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Export {
    /// Options of sampling.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Send to this engine: otlp+https://collector:4318, pyroscope+https://pyroscope:4040 [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", help_heading = ENGINE)]
    pub to: Option<String>,
    /// Send unencrypted to other machines too
    #[arg(long, help_heading = ENGINE)]
    pub insecure: bool,
    /// Serve counts of what was sent and what was lost to Prometheus, on this machine: 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", help_heading = ENGINE)]
    pub metrics: Option<String>,
    /// Stop after this time: 30 (seconds), 90s, 10m, 2h; otherwise at Ctrl-C
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, help_heading = SAMPLES)]
    pub duration: Option<Duration>,
}

/// Options of the process that sends.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Send {
    /// The engine.
    #[arg(long)]
    pub to: String,
    /// Whether it may be spoken to without encryption.
    #[arg(long)]
    pub insecure: bool,
    /// Where counts are served.
    #[arg(long)]
    pub metrics: Option<String>,
}

/// Options of `convert`.
#[derive(Args, Debug, Clone)]
pub struct Convert {
    /// Read this recording, pprof profile, perf.data, text of perf script, or file of folded stacks; - is standard input
    #[arg(value_name = "IN")]
    pub file: PathBuf,
    /// Write to this file
    #[arg(value_name = "OUT", help = converted_help())]
    pub output: PathBuf,
    /// Write the difference from this file
    #[arg(short, long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Take this kind of event or value, if the file has several
    #[arg(short, long, value_name = "NAME")]
    pub event: Option<String>,
    /// Write this kind of file, whatever its name ends in
    #[arg(long, value_name = "KIND", value_parser = parse_format)]
    pub format: Option<Format>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Write folded stacks without `_[k]`, `_[i]`, `_[j]`, `_[p]`, `_[s]`, `_[v]` after kernel, inlined, JIT, Python, JavaScript and Java frames
    #[arg(long)]
    pub no_annotations: bool,
    /// Write file and line into folded stacks, behind the names of Python, JavaScript and Java functions: `run (/srv/views.py:1)`
    #[arg(long)]
    pub places: bool,
    /// Draw threads that only wait for work, too, in a picture of waits
    #[arg(long)]
    pub idle: bool,
    /// Draw callers at the top of a picture instead of at the bottom
    #[arg(long)]
    pub icicle: bool,
    /// Choose the colours of a picture: `standard` (the default) or `colour-blind`
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    pub palette: Option<PaletteName>,
}

/// Options of `view`.
#[derive(Args, Debug, Clone)]
pub struct View {
    /// Open this recording, pprof profile, perf.data, text of `perf script` or file of folded stacks; - is standard input
    ///
    /// The content decides, not the name. It may be compressed by gzip, zstd or xz. An address such as
    /// http://localhost:6060/debug/pprof/profile?seconds=10 is requested. An engine tells what it
    /// has kept: pyroscope+https://HOST:4040/{service_name="x"}@-2h..-1h. If it
    /// is a directory, its profiles are listed, to choose from.
    pub file: PathBuf,
    /// Ask an engine for what it has kept from this time on: -1h, -30m, 2026-11-30T22:00Z [default: -1h]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Ask an engine for what it has kept until this time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<String>,
    /// Show the difference from this file
    #[arg(short, long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Options of looks.
    #[command(flatten)]
    pub looks: Looks,
}

/// Options of `unwind-check`.
#[derive(Args, Debug, Clone)]
pub struct UnwindCheck {
    /// Check these ELF files, or all ELF files below these directories
    #[arg(value_name = "FILE", required = true)]
    pub paths: Vec<PathBuf>,
    /// Print only totals and errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options of `dump`.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Dump {
    /// The processes, and how their stacks are read.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Print JSON: see docs/guide.md
    #[arg(long)]
    pub json: bool,
}

/// Options of sampling that `dump` has.
#[cfg(feature = "live")]
const OF_DUMP: [&str; 3] = ["pids", "interpreter", "no_inline"];

/// Options of `names`.
#[derive(Args, Debug, Clone)]
pub struct NamesOf {
    /// Read this ELF file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Look up these hexadecimal addresses of the file; without any, read them from standard input, one a line
    #[arg(value_name = "ADDRESS")]
    pub addresses: Vec<String>,
    /// Print names without demangling them
    #[arg(long)]
    pub mangled: bool,
}

/// Reads the command line. If it is wrong or asks for help, prints a message and ends the program.
pub fn parse() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).with_events()
}

impl Cli {
    /// Turns options that are short for events into these.
    #[cfg(feature = "live")]
    fn with_events(mut self) -> Cli {
        let sampling = match &mut self.command {
            None => &mut self.live.sampling,
            Some(Command::Record(record)) => &mut record.sampling,
            Some(Command::Export(export)) => &mut export.sampling,
            Some(Command::Dump(dump)) => {
                dump.sampling.events = vec!["off-cpu".to_owned(), "cpu".to_owned()];
                dump.sampling.at_once = true;
                return self;
            }
            Some(_) => return self,
        };
        if sampling.off_cpu {
            sampling.events.insert(0, "off-cpu".to_owned());
        }
        self
    }

    #[cfg(not(feature = "live"))]
    fn with_events(self) -> Cli {
        self
    }
}

/// Returns the description of the command line. `export` runs for weeks: it samples less often, and keeps less.
fn command() -> clap::Command {
    let command = Cli::command();
    #[cfg(feature = "live")]
    let command = command.mut_subcommand("export", |export| {
        export
            .mut_arg("frequency", |frequency| frequency.default_value("19"))
            .mut_arg("memory", |memory| memory.default_value("32M"))
    });
    #[cfg(feature = "live")]
    let command = command.mut_subcommand("dump", |dump| {
        dump.mut_args(|arg| if OF_DUMP.contains(&arg.get_id().as_str()) || arg.get_id() == "json" { arg } else { arg.hide(true) })
            .mut_arg("pids", |pids| pids.required(true).help("Print the stacks of this process"))
    });
    command
}

/// Reads these words as a command line, for tests.
#[cfg(test)]
pub(crate) fn parse_words(words: &[&str]) -> Cli {
    Cli::parse_from(words).with_events()
}

fn converted_help() -> String {
    format!("Write to this file: {}; - is standard output", crate::formats::table::described())
}

#[cfg(feature = "live")]
fn output_help() -> String {
    let formats = crate::formats::table::described();
    format!(
        "Write to this file: {formats}; - is standard output (the command's own output then goes to standard error) \
         [default: flametop-COMMAND-DATE.svg in this directory]; with --keep, write into this directory [default: .]"
    )
}

/// A condition on the CPU use.
#[cfg(feature = "live")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct When {
    is_above: bool,
    percent: f64,
    /// How long it must hold.
    pub lasting: Duration,
}

#[cfg(feature = "live")]
impl When {
    /// Reads `cpu > 90%` or `cpu < 5% for 30s`.
    pub fn parse(text: &str) -> Result<When, String> {
        let how = || "write a condition as 'cpu > 90%' or 'cpu < 5% for 30s'".to_owned();
        let (condition, lasting) = match text.split_once(" for ") {
            Some((condition, time)) => (condition, seconds_in(time.trim())?),
            None => (text, 5.0),
        };
        let rest = condition.trim().strip_prefix("cpu").ok_or_else(how)?.trim_start();
        let (is_above, percent) = match (rest.strip_prefix('>'), rest.strip_prefix('<')) {
            (Some(percent), _) => (true, percent),
            (None, Some(percent)) => (false, percent),
            (None, None) => return Err(how()),
        };
        let percent: f64 = percent.trim().trim_end_matches('%').trim_end().parse().map_err(|_| how())?;
        if !(0.0..=100.0).contains(&percent) || !(0.0..1e6).contains(&lasting) {
            return Err(how());
        }
        Ok(When { is_above, percent, lasting: Duration::from_secs_f64(lasting) })
    }

    /// Whether it holds at this CPU use, in percent.
    pub fn holds(&self, percent: f64) -> bool {
        if self.is_above { percent > self.percent } else { percent < self.percent }
    }
}

#[cfg(feature = "live")]
impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.is_above { '>' } else { '<' };
        write!(f, "cpu {sign} {} % for {} s", self.percent, self.lasting.as_secs_f64())
    }
}

fn parse_format(text: &str) -> Result<Format, String> {
    let kinds = crate::formats::table::offered_endings();
    let known = || kinds.iter().map(|ending| ending.trim_start_matches('.')).collect::<Vec<_>>().join(", ");
    Format::of_ending(text.trim_start_matches('.')).ok_or_else(|| format!("flametop writes {}", known()))
}

#[cfg(feature = "live")]
fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = seconds_in(text)?;
    if seconds > 0.0 && seconds < 1e9 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be more than 0 and less than a billion seconds".to_owned())
    }
}

#[cfg(feature = "live")]
fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds = seconds_in(text)?;
    if (1.0..1e9).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be at least one second".to_owned())
    }
}

#[cfg(feature = "live")]
fn seconds_in(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    Ok(number.parse::<f64>().map_err(|_| "write a time as 90s, 10m or 2h".to_owned())? * factor)
}

#[cfg(feature = "live")]
fn parse_size(text: &str) -> Result<usize, String> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.trim_end_matches('B');
    let (number, factor) = match upper.strip_suffix(['K', 'M', 'G']) {
        Some(number) if upper.ends_with('K') => (number, 1e3),
        Some(number) if upper.ends_with('M') => (number, 1e6),
        Some(number) => (number, 1e9),
        None => (upper, 1.0),
    };
    let bytes = number.parse::<f64>().map_err(|_| "write a size as 64M or 1G".to_owned())? * factor;
    if (1e6..1e15).contains(&bytes) { Ok(bytes as usize) } else { Err("must be at least 1M".to_owned()) }
}

#[cfg(all(test, feature = "live"))]
impl Record {
    /// Returns the options of `flametop record` with these words.
    pub(crate) fn of(words: &[&str]) -> Record {
        match Cli::parse_from(["flametop", "record"].iter().chain(words)).command {
            Some(Command::Record(options)) => options,
            other => unreachable!("{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn times_and_sizes_are_read_as_people_write_them() {
        assert_eq!(parse_time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_time("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert!(parse_duration("0").is_err() && parse_duration("nan").is_err() && parse_duration("").is_err());
        assert!(parse_time("soon").is_err() && parse_time("0s").is_err());
        assert_eq!(
            (parse_size("256M"), parse_size("1gb"), parse_size("2000000")),
            (Ok(256_000_000), Ok(1_000_000_000), Ok(2_000_000))
        );
        assert!(parse_size("5").is_err() && parse_size("many").is_err());
    }

    #[test]
    fn a_command_comes_after_two_dashes() {
        let cli = Cli::parse_from(["flametop", "-p", "1,2", "--", "sleep", "-x"]);
        assert_eq!((cli.live.sampling.pids, cli.live.program), (vec![1, 2], vec!["sleep".into(), "-x".into()]));
        let cli = Cli::parse_from(["flametop", "record", "-d", "2.5", "-o", "a.svg"]);
        assert!(matches!(cli.command, Some(Command::Record(Record { duration: Some(d), .. })) if d.as_millis() == 2500));
    }

    #[test]
    fn a_command_need_not_be_utf8() {
        use std::os::unix::ffi::OsStringExt;
        let word = OsString::from_vec(b"a\xff".to_vec());
        let words = |start: &[&str]| start.iter().map(OsString::from).chain([word.clone()]).collect::<Vec<_>>();
        let cli = Cli::parse_from(words(&["flametop", "__hold", "--session", "--", "--terminal"]));
        let Some(Command::Hold(hold)) = cli.command else { panic!("{cli:?}") };
        assert_eq!((hold.session, hold.terminal, hold.command), (true, false, vec!["--terminal".into(), word.clone()]));
        assert_eq!(Cli::parse_from(words(&["flametop", "--"])).live.program, [word]);
    }
}
