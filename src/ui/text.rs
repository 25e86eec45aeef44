//! Text that fits: cuts text to columns, and formats numbers short enough for a column.

use crate::profile::Unit;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns the columns of `text`.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Returns the longest beginning of `text` that takes at most `columns`.
pub(super) fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let mut to = text.len();
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            to = at;
            break;
        }
    }
    // Characters may be wider together than the sum of their widths: a digit that a selector turns into a picture.
    while width(&text[..to]) > columns {
        to = text[..to].char_indices().next_back().map_or(0, |(at, _)| at);
    }
    &text[..to]
}

/// Returns the longest end of `text` that takes at most `columns`.
pub(super) fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let mut from = text.len();
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        from = at;
    }
    while width(&text[from..]) > columns {
        from += text[from..].chars().next().map_or(1, char::len_utf8);
    }
    &text[from..]
}

/// Cuts `text` at its end, and marks the cut with `…`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    match columns {
        0 => String::new(),
        _ => format!("{}…", head(text, columns - 1)),
    }
}

/// Breaks a line at blanks into as many lines as it needs. The second and later lines are indented to the column of the text after
/// the figures.
pub(super) fn wrap(line: &str, columns: usize) -> Vec<String> {
    /// Figures end before this column.
    const FIGURES: usize = 34;
    if width(line) <= columns {
        return vec![line.to_owned()];
    }
    let figures = head(line, FIGURES.min(columns / 2));
    let text = figures.rfind("  ").map_or(0, |at| at + 2);
    let indent = " ".repeat(width(&line[..text]));
    let mut lines = vec![line[..text].to_owned()];
    for word in line[text..].split_inclusive(' ') {
        let last = lines.last_mut().filter(|last| width(last) + width(word.trim_end()) <= columns || last.len() == indent.len());
        match last {
            Some(last) => last.push_str(word),
            None => lines.push(format!("{indent}{word}")),
        }
    }
    lines
}

/// Formats a count in at most five columns: `843`, `12.3k`, `4.1M`.
pub(super) fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// Formats nanoseconds as seconds: `12`, `0.34`.
pub(super) fn seconds(ns: u64) -> String {
    if ns.is_multiple_of(1_000_000_000) { (ns / 1_000_000_000).to_string() } else { format!("{:.2}", ns as f64 / 1e9) }
}

/// Formats a number of CPUs: `1 CPU`, `2 CPUs`.
pub(super) fn cpus(count: usize) -> String {
    format!("{count} {}", if count == 1 { "CPU" } else { "CPUs" })
}

/// Formats CPU time: `0.08 s`, `12.3 s`, `412 s`, `2.1 h`.
pub(super) fn cpu_time(seconds: f64) -> String {
    match seconds {
        ..9.995 => format!("{seconds:.2} s"),
        ..99.95 => format!("{seconds:.1} s"),
        ..9999.5 => format!("{} s", grouped(seconds.round() as u64)),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Formats nanoseconds with the unit that suits them: `820 ns`, `12.3 µs`, `4.56 ms`; from a second on seconds or hours.
pub fn duration(ns: u64) -> String {
    let in_unit = |unit: f64, word: &str| match ns as f64 / unit {
        few @ ..9.995 => format!("{few:.2} {word}"),
        some @ ..99.95 => format!("{some:.1} {word}"),
        many => format!("{many:.0} {word}"),
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => in_unit(1e3, "µs"),
        999_500..999_500_000 => in_unit(1e6, "ms"),
        _ => cpu_time(ns as f64 / 1e9),
    }
}

/// Formats a weight with its unit: `8,312 samples`, `4.20 s`, `12 MB`.
pub fn amount(weight: u64, unit: Unit) -> String {
    match unit {
        Unit::Samples | Unit::Events => format!("{} {}", grouped(weight), unit.word()),
        Unit::Nanoseconds => duration(weight),
        Unit::Bytes => bytes(usize::try_from(weight).unwrap_or(usize::MAX)),
    }
}

/// Formats a number of threads that only wait for work: `41 idle threads`.
pub fn idle_threads(count: usize) -> String {
    format!("{} idle {}", grouped(count as u64), if count == 1 { "thread" } else { "threads" })
}

/// Formats a change of a share in per cent of the whole, `+4.2`, with as many digits as a reader can use.
pub(super) fn points(by: f64) -> String {
    let points = by * 100.0;
    if points.abs() < 0.995 { format!("{points:+.2}") } else { format!("{points:+.1}") }
}

/// Formats a count with separated thousands: `8,312`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats `part` of `whole` in per cent: `37.5`, `0.04`, `100`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0".to_owned();
    }
    let share = part as f64 * 100.0 / whole as f64;
    if part == whole {
        "100".to_owned()
    } else if share >= 0.1 || part == 0 {
        format!("{share:.1}")
    } else {
        format!("{share:.2}")
    }
}

/// Formats bytes: `38 MB`.
pub fn bytes(n: usize) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..1_000_000 => format!("{} kB", n / 1000),
        1_000_000..10_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        10_000_000..10_000_000_000 => format!("{} MB", n / 1_000_000),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// Formats seconds as `00:42` or `1:02:03`.
pub(super) fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes:02}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_their_unit() {
        let shown = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (4_560_000, "4.56 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (61_000_000_000, "61.0 s"),
            (36_000_000_000_000, "10.0 h"),
        ];
        for (ns, words) in shown {
            assert_eq!(duration(ns), words, "{ns}");
        }
    }

    #[test]
    fn what_is_cut_fits_however_wide_characters_are_together() {
        for text in ["0ⷘ00\u{fe0f} ￒ¡Aa", "ab0\u{fe0f}cd", "名\u{fe0f}前"] {
            for columns in 0..12 {
                assert!(width(head(text, columns)) <= columns && width(tail(text, columns)) <= columns, "{text:?} in {columns}");
            }
        }
    }

    #[test]
    fn long_lines_go_on_behind_their_figures() {
        let line = "     1,204   0.9 %  code without unwind information";
        assert_eq!(wrap(line, 60), [line]);
        assert_eq!(wrap(line, 36), ["     1,204   0.9 %  code without ", "             unwind information"]);
        assert_eq!(wrap("  /usr/lib/libfoo.so: stripped", 20), ["  /usr/lib/libfoo.so: ", "  stripped"]);
        assert!(wrap(&"名前 ".repeat(40), 12).iter().all(|line| width(line.trim_end()) <= 12));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((count(843), count(12_345), count(4_100_000)), ("843".into(), "12.3k".into(), "4.1M".into()));
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((percent(3, 8), percent(8, 8), percent(1, 5000)), ("37.5".into(), "100".into(), "0.02".into()));
        let times = [0.0, 0.081, 9.99, 9.999, 12.34, 99.99, 412.4, 9999.9].map(cpu_time);
        assert_eq!(times, ["0.00 s", "0.08 s", "9.99 s", "10.0 s", "12.3 s", "100 s", "412 s", "2.8 h"]);
        assert_eq!((clock(42), clock(3723)), ("00:42".into(), "1:02:03".into()));
    }
}
