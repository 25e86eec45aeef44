//! The text that `perf script` prints: an event a paragraph, with its stack, innermost frame first.
//!
//! ```text
//! # hostname : server                                    ← comments; some name the machine
//! java 4121/4130 [003] 30143.481555:  1001001 cpu-clock:
//! └┬─┘ └──┬────┘ └─┬─┘ └───┬──────┘   └──┬──┘ └───┬───┘
//! comm  tgid/tid  CPU     time      period     event     ← all but comm, tid and event may be missing
//!         7f1e214c24d9 SpinPause+0x9 (/lib/libjvm.so)
//!         └ address    └ name        └ module, the last parenthesis
//! ```
//!
//! The text has no specification. Names and marks are those of FlameGraph's `stackcollapse-perf.pl`. The folded stacks of a file are equal
//! to its output:
//!
//! - The arguments of a function are left out: `do_it(Task*, int)` is `do_it`. So are quotes. `;` becomes `:`.
//! - A function without a name has its module's: `[libc-2.19.so]`; or it is `[unknown]`.
//! - A module in brackets, or `vmlinux`, is the kernel. `/tmp/perf-PID.map` is code made at run time.
//! - `a->b->c` is a function and what is inlined in it.
//!
//! A sample weighs its period, if the file has periods, and 1 otherwise. Each kind of event is a source.

mod line;
mod read;

pub(super) use read::open;

use line::Event;

use crate::profile::Unit;

/// Returns the unit of an event's periods. perf writes modifiers behind its name: `cpu-clock:u`.
pub(super) fn unit_of(event: &str) -> Unit {
    match event.split(':').next() {
        Some("cpu-clock" | "task-clock") => Unit::Nanoseconds,
        _ => Unit::Events,
    }
}

/// Whether a file that begins with these bytes is such a text: its first line that is no comment is an event.
pub(super) fn recognizes(head: &[u8]) -> bool {
    if head.starts_with(b"# ========\n") {
        return true;
    }
    let mut lines = head.split(|byte| *byte == b'\n').skip_while(|line| line.trim_ascii().is_empty() || line.starts_with(b"#"));
    let Some(event) = lines.next().and_then(Event::parse) else { return false };
    match lines.next() {
        Some(next) => {
            line::Frame::parse(event.rest).is_some() || next.trim_ascii().is_empty() || line::Frame::parse(next).is_some()
        }
        None => event.time.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_a_stack_is_recognized_and_a_stack_with_a_count_is_not() {
        for text in [
            "a 1 cycles:\n\t ff f (m)\n\n",
            "# hostname : x\n#\n\nswapper     0 [000] 1.5:   1 cycles:  ff f (m)\n",
            "a b 1/2 [000] 1.5: sched:sched_switch: prev_comm=x ==> next\n\n",
        ] {
            assert!(recognizes(text.as_bytes()), "{text}");
        }
        for text in ["", "#\n", "main;f 1\n", "main 1\n", "a b: 12\nc: 1\n", "a 1 cycles: 5\nb 1 x\n", "{\"a\": 1}\n"] {
            assert!(!recognizes(text.as_bytes()), "{text}");
        }
    }
}
