//! The command line.

#[cfg(feature = "live")]
use std::ffi::OsString;
use std::path::PathBuf;
#[cfg(feature = "live")]
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// See live, as a flame graph in the terminal, what every CPU of this machine is doing.
///
/// Without a subcommand the live view starts: of everything, of some processes (-p), or of a command and all it starts (--).
#[derive(Parser, Debug)]
#[command(
    name = "flametop",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true
)]
pub struct Cli {
    /// What to do instead of showing the live view.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The live view's options.
    #[cfg(feature = "live")]
    #[command(flatten)]
    pub live: Live,
}

/// What to do instead of showing the live view.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Sample without a screen and write what was seen to a file
    #[cfg(feature = "live")]
    Record(Record),
    /// Open a file of folded stacks in the same views
    View(View),
    /// Tell what this machine offers, and how to mend what it lacks
    #[cfg(feature = "live")]
    Doctor,
    /// Tell how well the stacks of programs and libraries can be walked
    UnwindCheck(UnwindCheck),
    /// Tell what the addresses of a program or library are called
    Names(NamesOf),
    /// Stops itself, and becomes the command when it is let go on: so that it is sampled from its first instruction.
    #[cfg(feature = "live")]
    #[command(name = "__hold", hide = true)]
    Hold(Hold),
}

/// How the process that becomes the command lives until then.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Hold {
    /// Begins a session of its own.
    #[arg(long)]
    pub session: bool,
    /// Takes the terminal that it writes to as its own.
    #[arg(long)]
    pub terminal: bool,
    /// Becomes this user: UID:GID:GROUPS.
    #[arg(long = "as")]
    pub user: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Whose samples, and how many.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Sampling {
    /// Only these processes
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Samples a second on each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=25_000))]
    pub frequency: u32,
    /// Instead of by the clock, take stacks where this happens: FUNC of the kernel, uprobe:FILE:FUNC, tracepoint:CAT:NAME, page-faults, …
    ///
    /// Who calls this function, how often, and from where. All events are counted; stacks are
    /// taken of as many as --event-stacks allows. FUNC may be a glob (`vfs_*`), or a regular
    /// expression between slashes.
    ///
    /// FUNC                          calls of a function of the kernel, by the cheapest means
    /// fentry:FUNC kprobe.multi:FUNC kprobe:FUNC            the same, by these means
    /// fexit:FUNC kretprobe.multi:FUNC kretprobe:FUNC       returns from it
    /// uprobe:FILE:FUNC              calls of a function of a program or library (libc is enough of
    ///                               a name); uprobe:FUNC is one of the command or of -p
    /// uretprobe:FILE:FUNC           returns from it
    /// tracepoint:CATEGORY:NAME      a tracepoint; also CATEGORY:NAME
    /// page-faults context-switches cpu-migrations cycles instructions cache-misses …
    ///                               counters, as perf calls them
    /// cpu                           the clock, beside other events
    #[arg(short = 'e', long = "event", value_name = "EVENT", verbatim_doc_comment)]
    pub events: Vec<String>,
    /// Take at most this many stacks a second of events, on each CPU; what happens between is counted
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub event_stacks: u32,
    /// Whose word is taken for the kernel's stack at fentry and fexit
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Backtrace::Kernel)]
    pub backtrace: Backtrace,
    /// Sample CPUs that have nothing to do, too
    #[arg(long)]
    pub idle: bool,
    /// Show flametop itself, too: its own samples and events are otherwise left out and only counted
    #[arg(long = "self")]
    pub include_self: bool,
    /// Do not show inlined functions: their samples are those of the function that they were inlined into
    #[arg(long)]
    pub no_inline: bool,
    /// Show an interpreter's own frames, too: those between Python functions are otherwise a part of the functions that they run
    #[arg(long)]
    pub interpreter: bool,
    /// Fetch debug files that are not installed, from the servers in DEBUGINFOD_URLS: the program debuginfod-find does it
    #[arg(long)]
    pub debuginfod: bool,
    /// How callers are found in programs and libraries
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Unwind::Tables)]
    pub unwind: Unwind,
    /// Keep at most this much time: 90s, 10m, 2h [default: 10m in the live view, all of it in `record`]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub window: Option<Duration>,
    /// Keep at most this much in memory: 64M, 1G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub memory: usize,
    /// Keep at most this much of unwind tables in the kernel's memory
    #[arg(long, value_name = "SIZE", default_value = "384M", value_parser = parse_size)]
    pub kernel_memory: usize,
}

/// How callers are found in programs and libraries.
#[cfg(feature = "live")]
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwind {
    /// By their unwind information: whole stacks of nearly everything
    Tables,
    /// By frame pointers: only where everything is built with them
    Fp,
    /// By unwind information, and stacks copied instead of read in place: slower; the first thing to try if a kernel misbehaves
    Copied,
}

/// Whose word is taken for the kernel's stack at fentry and fexit.
#[cfg(feature = "live")]
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backtrace {
    /// The kernel's own walk
    Kernel,
    /// Frame records from the trampoline's on: the whole stack on arm64, the function and its caller on x86_64
    Manual,
    /// The kernel's, and both compared: what differs is counted in the health view
    Both,
    /// The same, where the trampoline is looked for from the program's own frame upwards
    Scan,
}

/// How the screen looks.
#[derive(Args, Debug, Clone)]
pub struct Looks {
    /// Only characters that every terminal has (also when the locale is not UTF-8)
    #[arg(long)]
    pub ascii: bool,
    /// The terminal's background
    #[arg(long, value_enum, default_value_t = Background::Auto)]
    pub theme: Background,
    /// How many colours to use
    #[arg(long, value_enum, default_value_t = Colours::Auto)]
    pub color: Colours,
    /// Which colours [default: `standard`]; `colour-blind` keeps kinds apart for every kind of colour vision
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    pub palette: Option<PaletteName>,
    /// Save pictures with callers at the top, as on the screen, instead of at the bottom
    #[arg(long)]
    pub icicle: bool,
    /// Keys and looks from this file [default: `flametop/config.toml` below `$XDG_CONFIG_HOME` or `~/.config`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which colours.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaletteName {
    /// Those of flame graphs
    Standard,
    /// Those of Okabe and Ito
    #[value(alias = "color-blind", alias = "okabe-ito")]
    ColourBlind,
}

/// What is chosen from a list, on the command line or in the configuration file.
pub trait Choice: ValueEnum {}
impl<T: ValueEnum> Choice for T {}

/// The choice of this name, or the names of those there are.
///
/// # Errors
///
/// When there is none of this name: with the names.
pub fn choice<T: Choice>(text: &str) -> Result<T, Vec<String>> {
    let names = || T::value_variants().iter().filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()));
    T::from_str(text, false).map_err(|_| names().collect())
}

/// The terminal's background.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// From COLORFGBG, else what the terminal answers, else dark
    Auto,
    /// Dark
    Dark,
    /// Light
    Light,
}

/// How many colours to use.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// From TERM, COLORTERM and NO_COLOR
    Auto,
    /// None
    Never,
    /// The sixteen of every terminal
    #[value(name = "16")]
    Sixteen,
    /// The 256 of xterm
    #[value(name = "256")]
    Indexed,
    /// 24 bits
    True,
}

/// The live view's options.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Live {
    /// Whose samples, and how many.
    #[command(flatten)]
    pub sampling: Sampling,
    /// How the screen looks.
    #[command(flatten)]
    pub looks: Looks,
    /// Where the command's output goes: `pane` (below the view), `leave` (where it goes without flametop), or a new file
    #[arg(long, value_name = "WHERE", default_value = "pane", requires = "program")]
    pub output: PathBuf,
    /// Start the command as this user (a name or a number) instead of as the user that flametop runs as
    #[arg(long, value_name = "NAME", requires = "program")]
    pub user: Option<String>,
    /// Start this command, and show it and all it starts
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `record`.
#[cfg(feature = "live")]
#[derive(Args, Debug, Clone)]
pub struct Record {
    /// Whose samples, and how many.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Stop after so many seconds (or 90s, 10m, 2h); without it at Ctrl-C or when the command ends
    #[arg(short, long, value_name = "SECS", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Write to this file
    #[arg(short, long, value_name = "FILE", help = output_help())]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    /// Folded stacks without `_[k]`, `_[i]`, `_[j]`, `_[p]` behind kernel, inlined, JIT and Python frames
    #[arg(long)]
    pub no_annotations: bool,
    /// Draw callers at the top of a picture instead of at the bottom
    #[arg(long)]
    pub icicle: bool,
    /// Colours of a picture [default: `standard`]; `colour-blind` keeps kinds apart for every kind of colour vision
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    pub palette: Option<PaletteName>,
    /// Start the command as this user (a name or a number) instead of as the user that flametop runs as
    #[arg(long, value_name = "NAME", requires = "program")]
    pub user: Option<String>,
    /// Start this command, and record it and all it starts
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `view`.
#[derive(Args, Debug, Clone)]
pub struct View {
    /// The file; - is standard input
    pub file: PathBuf,
    /// Show how it differs from this file
    #[arg(short, long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// How the screen looks.
    #[command(flatten)]
    pub looks: Looks,
}

/// Options of `unwind-check`.
#[derive(Args, Debug, Clone)]
pub struct UnwindCheck {
    /// ELF files; of a directory all that are below it
    #[arg(value_name = "FILE", required = true)]
    pub paths: Vec<PathBuf>,
    /// Print only the sum and what is wrong
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options of `names`.
#[derive(Args, Debug, Clone)]
pub struct NamesOf {
    /// An ELF file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Addresses as the file has them, in hexadecimal; without any, one a line from the standard input
    #[arg(value_name = "ADDRESS")]
    pub addresses: Vec<String>,
    /// Print names as the linker has them
    #[arg(long)]
    pub mangled: bool,
}

/// Reads the command line; on a mistake, or when asked for help, says so and ends the program.
pub fn parse() -> Cli {
    Cli::parse()
}

/// Reads these words as a command line, for tests of what is done with it.
#[cfg(test)]
pub(crate) fn parse_words(words: &[&str]) -> Cli {
    Cli::parse_from(words)
}

#[cfg(feature = "live")]
fn output_help() -> String {
    let formats = crate::formats::table::described();
    format!(
        "Write to this file: {formats}; - is standard output (the command's own output then goes to standard error) \
         [default: flametop-COMMAND-DATE.svg in this directory]"
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
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
