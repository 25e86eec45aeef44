//! Text that fits: names cut where least is lost, numbers short enough for a column.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that `text` takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The longest beginning of `text` that takes at most `columns`.
pub(super) fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// The longest end of `text` that takes at most `columns`.
fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let mut from = text.len();
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        from = at;
    }
    &text[from..]
}

/// `text` cut at its end, with `…` where something is missing.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    match columns {
        0 => String::new(),
        _ => format!("{}…", head(text, columns - 1)),
    }
}

/// A function's name in at most `columns`, cut where least is lost.
///
/// What tells functions apart is the last segment of a path, so it is kept longest: arguments go first, then generic
/// arguments become `<…>`, then leading segments become `…`, and only then is the last segment cut at its end.
/// Fewer than three columns hold nothing that could be read, so nothing comes back.
pub(super) fn fit_name(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    if columns < 3 {
        return String::new();
    }
    // Names may be thousands of characters long; what is cut is decided on the end of them, in which all that could fit is.
    let name = tail(name, 4 * columns + 256);
    let bare = without_arguments(name);
    if width(bare) <= columns {
        return bare.to_owned();
    }
    let plain = receiver_only(bare);
    if width(&plain) <= columns {
        return plain;
    }
    let folded = fold_generics(&plain);
    if width(&folded) <= columns {
        return folded;
    }
    for start in segment_starts(&folded).skip(1) {
        let rest = &folded[start..];
        if width(rest) < columns {
            return format!("…{rest}");
        }
    }
    let last = segment_starts(&folded).last().map_or(&*folded, |start| &folded[start..]);
    if last.len() == folded.len() && last.contains(['/', '.', '-']) && !last.starts_with(['[', '<']) {
        // A path or a file's name: the end says more than the beginning.
        return format!("…{}", tail(last, columns - 1));
    }
    cut(last, columns)
}

/// Without the parameter list of a C++ function.
fn without_arguments(name: &str) -> &str {
    let Some(end) = name.rfind(')') else { return name };
    let mut depth = 0;
    for (at, c) in name[..=end].char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth -= 1;
                if depth == 0 {
                    return if at == 0 { name } else { &name[..at] };
                }
            }
            _ => {}
        }
    }
    name
}

/// `<a::b::Type<T> as c::Trait>::method` as `b::Type<T>::method`: the trait and where the type lives tell least.
fn receiver_only(name: &str) -> String {
    let Some(rest) = name.strip_prefix('<') else { return name.to_owned() };
    let mut depth = 1usize;
    let mut previous = '<';
    for (at, c) in rest.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if previous != '-' => depth -= 1,
            _ => {}
        }
        previous = c;
        if depth == 0 {
            let inner = &rest[..at];
            let receiver = inner.split(" as ").next().unwrap_or(inner);
            return format!("{receiver}{}", &rest[at + 1..]);
        }
    }
    name.to_owned()
}

/// With every outermost `<…>` folded; `operator<` and what else has no closing bracket is left alone.
fn fold_generics(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut previous = ' ';
    for c in name.chars() {
        match c {
            '<' => {
                if depth == 0 {
                    folded.push_str("<…");
                }
                depth += 1;
            }
            '>' if depth > 0 && previous != '-' => {
                depth -= 1;
                if depth == 0 {
                    folded.push('>');
                }
            }
            c if depth == 0 => folded.push(c),
            _ => {}
        }
        previous = c;
    }
    if depth > 0 { name.to_owned() } else { folded }
}

/// Where the segments of a path begin. `{{closure}}` says nothing without the function that it is in, so it begins none.
fn segment_starts(name: &str) -> impl Iterator<Item = usize> + '_ {
    let starts = name.match_indices("::").map(|(at, _)| at + 2);
    std::iter::once(0).chain(starts.filter(|start| !name[*start..].starts_with("{{")))
}

/// A count in at most five columns: `843`, `12.3k`, `4.1M`.
pub(super) fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// Nanoseconds in seconds: `12`, `0.34`.
pub(super) fn seconds(ns: u64) -> String {
    if ns.is_multiple_of(1_000_000_000) { (ns / 1_000_000_000).to_string() } else { format!("{:.2}", ns as f64 / 1e9) }
}

/// A change of a share in per cent of the whole, `+4.2`: with as many digits as a reader can use.
pub(super) fn points(by: f64) -> String {
    let points = by * 100.0;
    if points.abs() < 0.995 { format!("{points:+.2}") } else { format!("{points:+.1}") }
}

/// A count with its thousands set apart: `8,312`.
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

/// `part` of `whole` in per cent: `37.5`, `0.04`, `100`.
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

/// Bytes for people: `38 MB`.
pub fn bytes(n: usize) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..1_000_000 => format!("{} kB", n / 1000),
        1_000_000..10_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        10_000_000..10_000_000_000 => format!("{} MB", n / 1_000_000),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// Seconds as `00:42` or `1:02:03`.
pub(super) fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes:02}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_where_least_is_lost() {
        let rust = "rustc_codegen_ssa::back::write::drive";
        assert_eq!(fit_name(rust, 40), rust);
        assert_eq!(fit_name(rust, 20), "…back::write::drive");
        assert_eq!(fit_name(rust, 15), "…write::drive");
        assert_eq!(fit_name(rust, 9), "…drive");
        assert_eq!(fit_name(rust, 4), "dri…");
        assert_eq!(fit_name(rust, 2), "");
        assert_eq!(fit_name("alloc::vec::Vec<alloc::string::String>::push", 26), "alloc::vec::Vec<…>::push");
        assert_eq!(fit_name("alloc::vec::Vec<alloc::string::String>::push", 14), "…Vec<…>::push");
        assert_eq!(fit_name("std::sort<int*>(int*, int*)", 16), "std::sort<int*>");
        let method = "<alloc::vec::Vec<u8> as std::io::Write>::write_all";
        assert_eq!(fit_name(method, 40), "alloc::vec::Vec<u8>::write_all");
        assert_eq!(fit_name(method, 18), "…Vec<…>::write_all");
        assert_eq!(fit_name("std::rt::lang_start::{{closure}}", 26), "…lang_start::{{closure}}");
        assert_eq!(fit_name("std::rt::lang_start::{{closure}}", 12), "lang_start:…");
        assert_eq!(fit_name("(anonymous namespace)::run(int)", 24), "…run");
        assert_eq!(fit_name("libc.so.6+0x12345", 9), "…+0x12345");
    }

    #[test]
    fn no_name_is_ever_wider_than_it_may_be() {
        let names =
            ["a::b", "名前::長い関数名", "x", "operator<<", "Vec<u8>::{{closure}}", "<T as Trait>::call", "))((", "<<", ""];
        for name in names {
            for columns in 0..30 {
                assert!(width(&fit_name(name, columns)) <= columns, "{name} in {columns}");
                assert!(width(&cut(name, columns)) <= columns, "{name} in {columns}");
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((count(843), count(12_345), count(4_100_000)), ("843".into(), "12.3k".into(), "4.1M".into()));
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((percent(3, 8), percent(8, 8), percent(1, 5000)), ("37.5".into(), "100".into(), "0.02".into()));
        assert_eq!((clock(42), clock(3723)), ("00:42".into(), "1:02:03".into()));
    }
}
