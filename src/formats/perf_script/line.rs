//! The lines of the text.

/// The first line of an event.
#[derive(Debug, PartialEq)]
pub(super) struct Event<'a> {
    /// The thread's name.
    pub(super) comm: &'a [u8],
    pub(super) tgid: Option<u32>,
    pub(super) tid: u32,
    pub(super) cpu: Option<u16>,
    /// In nanoseconds.
    pub(super) time: Option<u64>,
    pub(super) period: Option<u64>,
    /// The kind of event, as perf names it.
    pub(super) event: &'a [u8],
    /// The text after the event. It is a frame if the stack has no other.
    pub(super) rest: &'a [u8],
}

impl<'a> Event<'a> {
    /// Reads a line that does not begin with a space.
    pub(super) fn parse(line: &'a [u8]) -> Option<Event<'a>> {
        if line.first().is_none_or(|first| first.is_ascii_whitespace()) {
            return None;
        }
        // A name may have spaces. The first number ends it, unless a number follows that surely is the thread's: `worker 1 41/42 [003]`.
        let mut words = Words { line, at: 0 };
        let mut end = words.next()?.1;
        let (tgid, tid) = loop {
            let (start, after) = words.next()?;
            match ids(line.get(start..after)?) {
                Some(ids) if !words.begin_with_ids() => break ids,
                _ => end = after,
            }
        };
        let comm = line.get(..end)?;
        let mut event = Event { comm, tgid, tid, cpu: None, time: None, period: None, event: b"", rest: b"" };
        loop {
            let (start, after) = words.next()?;
            let word = line.get(start..after)?;
            if let Some(number) = word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]")) {
                event.cpu = number_of(number).and_then(|number| u16::try_from(number).ok());
            } else if let Some(time) = word.strip_suffix(b":").and_then(nanoseconds).filter(|_| event.time.is_none()) {
                event.time = Some(time);
            } else if let Some(number) = number_of(word) {
                event.period = Some(number);
            } else if let Some(name) = word.strip_suffix(b":").filter(|name| !name.is_empty()) {
                event.event = name;
                event.rest = line.get(after..)?;
                return Some(event);
            } else if event.time.is_some() || word.len() > 32 {
                // Before the time, there may be flags. After it, there is nothing but the period.
                return None;
            }
        }
    }
}

/// A line of a stack.
#[derive(Debug, PartialEq)]
pub(super) struct Frame<'a> {
    /// The function's name without its offset.
    pub(super) name: &'a [u8],
    pub(super) module: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads `   7f1e214c24d9 SpinPause+0x9 (/lib/libjvm.so)`.
    pub(super) fn parse(line: &'a [u8]) -> Option<Frame<'a>> {
        let line = line.trim_ascii();
        let space = memchr::memchr(b' ', line)?;
        let (address, text) = line.split_at_checked(space)?;
        if address.len() > 16 || !address.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let text = text.trim_ascii_start();
        let inner = text.strip_suffix(b")")?;
        // A module's name may have parentheses: `/tmp/a (deleted)`. The last one that follows a space is taken, but for that one.
        let whole = inner.strip_suffix(b" (deleted)").unwrap_or(inner);
        let is_outer = |at: &usize| *at == 0 || whole.get(*at - 1) == Some(&b' ');
        let open = memchr::memrchr_iter(b'(', whole).find(is_outer)?;
        let (name, module) = (text.get(..open)?.trim_ascii_end(), inner.get(open + 1..)?);
        // The last `+0x` begins an offset if only digits follow, so the last plus does.
        let plus = memchr::memrchr(b'+', name);
        let is_offset = |at: &usize| {
            let digits = name.get(*at..).and_then(|text| text.strip_prefix(b"+0x"));
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let name = plus.filter(is_offset).and_then(|at| name.get(..at)).unwrap_or(name);
        Some(Frame { name, module })
    }
}

/// Words between white space.
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl Words<'_> {
    /// Whether the next word is a thread's number for sure: it has a process's before it, or the CPU or the time follows.
    fn begin_with_ids(&self) -> bool {
        let mut ahead = Words { line: self.line, at: self.at };
        let mut word = || ahead.next().and_then(|(start, end)| self.line.get(start..end)).unwrap_or_default();
        let (first, second) = (word(), word());
        let is_time = || second.strip_suffix(b":").and_then(nanoseconds).is_some();
        ids(first).is_some() && (first.contains(&b'/') || second.starts_with(b"[") || is_time())
    }

    /// Returns where the next word begins and ends.
    fn next(&mut self) -> Option<(usize, usize)> {
        let rest = self.line.get(self.at..)?;
        let start = self.at + rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let word = self.line.get(start..)?;
        let end = start + word.iter().position(u8::is_ascii_whitespace).unwrap_or(word.len());
        self.at = end;
        Some((start, end))
    }
}

/// Reads `4130` or `4121/4130`: a process, if it is given, and a thread. perf writes -1 where it knows neither.
fn ids(word: &[u8]) -> Option<(Option<u32>, u32)> {
    let id = |word: &[u8]| match word {
        b"-1" => Some(0),
        word => number_of(word).and_then(|number| u32::try_from(number).ok()),
    };
    match memchr::memchr(b'/', word) {
        Some(at) => Some((Some(id(word.get(..at)?)?), id(word.get(at + 1..)?)?)),
        None => Some((None, id(word)?)),
    }
}

fn number_of(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Reads seconds with up to nine decimals.
fn nanoseconds(word: &[u8]) -> Option<u64> {
    let dot = memchr::memchr(b'.', word)?;
    let (seconds, decimals) = (number_of(word.get(..dot)?)?, word.get(dot + 1..)?);
    let factor = 10u64.pow(9u32.checked_sub(u32::try_from(decimals.len()).ok()?)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(number_of(decimals)? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_name_thread_and_event_may_be_missing() {
        let whole = |line: &'static str| Event::parse(line.as_bytes());
        let parse = |line| whole(line).map(|event| Event { rest: b"", ..event });
        let event = |comm, tgid, tid, cpu, time, period, event| {
            let (comm, event): (&'static str, &'static str) = (comm, event);
            Some(Event { comm: comm.as_bytes(), tgid, tid, cpu, time, period, event: event.as_bytes(), rest: b"" })
        };
        assert_eq!(parse("java  3244 cpu-clock: "), event("java", None, 3244, None, None, None, "cpu-clock"));
        assert_eq!(
            parse("iperf 27409/28744 [000] 441995.133575: cpu-clock: "),
            event("iperf", Some(27409), 28744, Some(0), Some(441_995_133_575_000), None, "cpu-clock")
        );
        assert_eq!(
            parse("worker 1  42 [001] 1.5: 9 x:"),
            event("worker 1", None, 42, Some(1), Some(1_500_000_000), Some(9), "x")
        );
        assert_eq!(parse("java 42 9 x:"), event("java", None, 42, None, None, Some(9), "x"));
        assert_eq!(
            parse("Web Content 9 d..1. 75695.008865123:  597 cycles:u: "),
            event("Web Content", None, 9, None, Some(75_695_008_865_123), Some(597), "cycles:u")
        );
        let tracepoint = parse("a b 1/2 [015] 1.5: sched:sched_switch: prev_comm=x prev_pid=7 ==> y (z)");
        assert_eq!(tracepoint, event("a b", Some(1), 2, Some(15), Some(1_500_000_000), None, "sched:sched_switch"));
        let alone = whole("a 1 1.0: 1 cycles:  ffff f+0x1 (m)").unwrap();
        assert_eq!(Frame::parse(alone.rest).map(|frame| frame.name), Some(&b"f"[..]));
        assert_eq!(
            parse(":-1    -1 [001]  0.5: 1 cycles:"),
            event(":-1", None, 0, Some(1), Some(500_000_000), Some(1), "cycles")
        );
        for line in ["", " a 1 x:", "main;f 1", "main 1", "a b", "a 99999999999999999999 x:", "a 1 1.0: word x:"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_frame_has_a_name_without_its_offset_and_a_module_in_the_last_parenthesis() {
        let parse = |line: &'static str| {
            let text = |bytes: &'static [u8]| std::str::from_utf8(bytes).unwrap();
            Frame::parse(line.as_bytes()).map(|frame| (text(frame.name), text(frame.module)))
        };
        for (line, frame) in [
            ("\t    7f f (/lib/l.so)", Some(("f", "/lib/l.so"))),
            ("\tff f+0xffff018f (m)", Some(("f", "m"))),
            ("\tff T::f(A (*)(int), B) (/x (y).so)", Some(("T::f(A (*)(int), B) (/x", "y).so"))),
            ("\tff f (/x (deleted))", Some(("f", "/x (deleted)"))),
            ("\tff f+0x1+0xzz (m)", Some(("f+0x1+0xzz", "m"))),
            ("\tff  ([unknown])", Some(("", "[unknown]"))),
            ("\tff [unknown] ([kernel.kallsyms])", Some(("[unknown]", "[kernel.kallsyms]"))),
            ("\tff f", None),
            ("\tfile.c:12 (x)", None),
            ("\t11223344556677889 f (m)", None),
        ] {
            assert_eq!(parse(line), frame, "{line}");
        }
    }
}
