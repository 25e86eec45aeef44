//! Helpers of the integration tests: a real terminal, programs to sample, and the BPF programs that the kernel has loaded.
//!
//! `mod common;` in a file of `tests/` brings it in. Every helper that fails panics with a sentence, which is the test's report.
//! Every started process is ended by its own pid when its handle is dropped.

// Each test program uses only a part of this module.
#![allow(dead_code)]
// Helpers of tests, which clippy does not count as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod functions;
pub(crate) mod kernel;
pub(crate) mod program;
pub(crate) mod silent_disk;
pub(crate) mod terminal;
pub(crate) mod tiny_disk;

#[allow(unused_imports)]
pub(crate) use self::kernel::{BpfProgram, alone, bpf_programs_of, loaded_bpf_programs, root_or_fail};
#[allow(unused_imports)]
pub(crate) use self::program::{Program, Running, go_build};
#[allow(unused_imports)]
pub(crate) use self::silent_disk::SilentDisk;
#[allow(unused_imports)]
pub(crate) use self::terminal::{Mouse, Terminal};
#[allow(unused_imports)]
pub(crate) use self::tiny_disk::TinyDisk;

/// The flametop that cargo built for these tests.
pub(crate) const FLAMETOP: &str = env!("CARGO_BIN_EXE_flametop");

impl Terminal {
    /// Starts flametop with `args` in a terminal of `rows` × `cols`; see [`Terminal::spawn`] for the environment.
    pub(crate) fn start(args: &[&str], rows: u16, cols: u16, env: &[(&str, &str)]) -> Self {
        Self::spawn(FLAMETOP, args, rows, cols, env)
    }
}

/// The line of the root's box: `all 9.45 s of CPU  1.28 of 2 CPUs`, if this screen shows it.
pub(crate) fn root_box(screen: &str) -> Option<String> {
    screen.lines().find(|line| line.starts_with("all ")).map(str::to_owned)
}

/// Runs flametop without a terminal, to its end.
pub(crate) fn flametop(args: &[&str]) -> std::process::Output {
    std::process::Command::new(FLAMETOP)
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("failed to run {FLAMETOP}: {error}"))
}
