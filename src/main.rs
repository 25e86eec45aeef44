//! The `flametop` command: reads its arguments, runs one session, and says in one sentence what went wrong if it did.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = flametop::cli::parse();
    match flametop::session::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // `{:#}` prints the chain of causes on one line. Standard error may be gone; there is nobody left to tell.
            drop(writeln!(std::io::stderr(), "flametop: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
