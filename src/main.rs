//! The `flametop` command: reads its arguments, runs one session, and reports an error in one sentence.

use std::io::{Error, ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = flametop::cli::parse();
    match flametop::session::run(cli) {
        Ok(status) => ExitCode::from(status),
        // `flametop doctor | head`: the reader has closed the pipe and wants no message. The status is a shell's for SIGPIPE.
        Err(error) if error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) => {
            ExitCode::from(141)
        }
        Err(error) => {
            // `{:#}` prints the chain of causes on one line. If standard error is closed, there is no other place for the message.
            drop(writeln!(std::io::stderr(), "flametop: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
