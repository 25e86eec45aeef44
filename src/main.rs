//! The `flametop` command: reads its arguments, runs one session, and says in one sentence what went wrong if it did.

use std::io::{Error, ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = flametop::cli::parse();
    match flametop::session::run(cli) {
        Ok(status) => ExitCode::from(status),
        // `flametop doctor | head`: who reads no more has seen enough, and wants no sentence. The status is a shell's for SIGPIPE.
        Err(error) if error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) => {
            ExitCode::from(141)
        }
        Err(error) => {
            // `{:#}` prints the chain of causes on one line. Standard error may be gone; there is nobody left to tell.
            drop(writeln!(std::io::stderr(), "flametop: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
