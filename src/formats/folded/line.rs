//! One line of folded stacks, and one frame of a line. Pure.

use std::borrow::Cow;

use super::UNKNOWN;
use crate::formats::reading::kind_named;
use crate::profile::{FrameKind, Language};

/// A count as written: `12.5` is 12 and 500,000,000 billionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Count {
    pub(super) whole: u64,
    pub(super) billionths: u32,
}

const ONE: u32 = 1_000_000_000;

impl Count {
    /// Returns how many digits its fraction has: `12.5` has one.
    pub(super) fn decimals(self) -> u32 {
        let mut rest = self.billionths;
        let mut decimals = 9;
        while decimals > 0 && rest.is_multiple_of(10) {
            (rest, decimals) = (rest / 10, decimals - 1);
        }
        decimals
    }

    /// Multiplies the count by a power of ten, at most 10⁹. A product that is too large becomes the largest possible count.
    pub(super) fn scaled(self, decimals: u32) -> Count {
        let factor = 10u64.pow(decimals);
        let fraction = u64::from(self.billionths) * factor;
        let whole = self.whole.saturating_mul(factor).saturating_add(fraction / u64::from(ONE));
        Count { whole, billionths: (fraction % u64::from(ONE)) as u32 }
    }
}

/// A parsed line.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Line<'a> {
    Stack { frames: &'a [u8], count: Count },
    Comment,
    Blank,
    Nonsense,
}

/// Splits a line into frames and count. The count follows the last space or tab; the frames come before it.
pub(super) fn parse(line: &[u8]) -> Line<'_> {
    let line = line.trim_ascii();
    match line {
        [] => return Line::Blank,
        [b'#'] | [b'#', b' ' | b'\t', ..] => return Line::Comment,
        _ => {}
    }
    let Some((frames, count)) = memchr::memrchr2(b' ', b'\t', line).and_then(|space| line.split_at_checked(space)) else {
        return Line::Nonsense;
    };
    let frames = frames.trim_ascii_end();
    match parse_count(count.trim_ascii_start()) {
        Some(count) if !frames.is_empty() => Line::Stack { frames, count },
        _ => Line::Nonsense,
    }
}

/// Whether the first line that could be a stack is one, of several frames.
pub(in crate::formats) fn begins_with_a_stack(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').map(parse);
    let first = lines.find(|line| !matches!(line, Line::Blank | Line::Comment));
    matches!(first, Some(Line::Stack { frames, .. }) if frames.contains(&b';') && !frames.contains(&0))
}

/// Splits a second count off the end of the frames that [`parse`] returned. It is a baseline's count, as FlameGraph's
/// `difffolded.pl` writes it.
pub(super) fn parse_before(frames: &[u8]) -> Option<(&[u8], Count)> {
    match parse(frames) {
        Line::Stack { frames, count } => Some((frames, count)),
        Line::Comment | Line::Blank | Line::Nonsense => None,
    }
}

/// Parses digits, perhaps with a fraction; at most `u64::MAX`. Signs and exponents are refused: flamegraph.pl does not know them.
fn parse_count(text: &[u8]) -> Option<Count> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(dot) => (text.get(..dot)?, text.get(dot + 1..)?),
        None => (text, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let whole = whole.iter().try_fold(0u64, |sum, byte| sum.checked_mul(10)?.checked_add(digit(byte)?))?;
    if fraction.is_empty() {
        return Some(Count { whole, billionths: 0 });
    }
    fraction.iter().try_for_each(|byte| digit(byte).map(|_| ()))?;
    let billionths = fraction.iter().chain([b'0'; 9].iter()).take(9).fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0'));
    Some(Count { whole, billionths })
}

/// Returns the name and the kind of a frame as written.
pub(super) fn parse_frame(frame: &[u8]) -> (Cow<'_, str>, FrameKind) {
    let (name, kind) = match frame {
        [name @ .., b'_', b'[', b'k', b']'] => (name, FrameKind::Kernel),
        [name @ .., b'_', b'[', b'i', b']'] => (name, FrameKind::Inlined),
        [name @ .., b'_', b'[', b'j', b']'] => (name, FrameKind::Jit),
        [name @ .., b'_', b'[', b'p', b']'] => (name, FrameKind::Script(Language::Python)),
        [name @ .., b'_', b'[', b's', b']'] => (name, FrameKind::Script(Language::JavaScript)),
        [name @ .., b'_', b'[', b'v', b']'] => (name, FrameKind::Script(Language::Java)),
        [name @ .., b'_', b'[', b'w', b']'] => (name, FrameKind::User),
        name => (name, FrameKind::User),
    };
    let name = if name.trim_ascii().is_empty() { UNKNOWN.into() } else { String::from_utf8_lossy(name) };
    let kind = match kind {
        FrameKind::User if name == UNKNOWN => FrameKind::Unknown,
        kind => kind_named(&name, kind),
    };
    (name, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &str, whole: u64, billionths: u32) -> Line<'_> {
        Line::Stack { frames: frames.as_bytes(), count: Count { whole, billionths } }
    }

    #[test]
    fn the_count_comes_after_the_last_space() {
        assert_eq!(parse(b"a;b c;d 12"), stack("a;b c;d", 12, 0));
        assert_eq!(parse(b"a;b 3 12\r"), stack("a;b 3", 12, 0));
        assert_eq!(parse(b"  a;b\t \t7  "), stack("a;b", 7, 0));
        assert_eq!(parse(b"a 18446744073709551615"), stack("a", u64::MAX, 0));
    }

    #[test]
    fn counts_may_have_fractions() {
        assert_eq!(parse(b"a 0.5"), stack("a", 0, 500_000_000));
        assert_eq!(parse(b"a .25"), stack("a", 0, 250_000_000));
        assert_eq!(parse(b"a 3."), stack("a", 3, 0));
        assert_eq!(parse(b"a 1.0000000019"), stack("a", 1, 1));
    }

    #[test]
    fn a_second_count_is_that_of_the_baseline() {
        let Line::Stack { frames, count } = parse(b"a;b 12 31") else { panic!() };
        assert_eq!(
            (count.whole, parse_before(frames).map(|(frames, count)| (frames, count.whole))),
            (31, Some((&b"a;b"[..], 12)))
        );
        assert_eq!(parse_before(b"a;b"), None);
        assert_eq!(parse_before(b"12"), None, "there would be no frames");
    }

    #[test]
    fn counts_are_multiplied_by_powers_of_ten() {
        let count = |whole, billionths| Count { whole, billionths };
        assert_eq!(count(0, 156_000_000).decimals(), 3);
        assert_eq!((count(12, 0).decimals(), count(0, 1).decimals()), (0, 9));
        assert_eq!(count(12, 345_600_000).scaled(3), count(12_345, 600_000_000));
        assert_eq!(count(0, 1).scaled(9), count(1, 0));
        assert_eq!(count(u64::MAX, 5).scaled(1).whole, u64::MAX);
    }

    #[test]
    fn what_is_no_stack_is_told_apart() {
        for nonsense in ["a;b", " 123", "123", "a -1", "a 1e3", "a 0x10", "a .", "a 1.2.3", "a 18446744073709551616", "a 1,5"] {
            assert_eq!(parse(nonsense.as_bytes()), Line::Nonsense, "{nonsense:?}");
        }
        for comment in ["#", "# for human: 42", "#\t1", " # 1"] {
            assert_eq!(parse(comment.as_bytes()), Line::Comment, "{comment:?}");
        }
        assert_eq!(parse(b"#private;b 1"), stack("#private;b", 1, 0));
        assert_eq!(parse(b" \t\r"), Line::Blank);
    }

    #[test]
    fn annotations_say_what_a_frame_is() {
        let frame = |text: &'static str| {
            let (name, kind) = parse_frame(text.as_bytes());
            (name.into_owned(), kind)
        };
        assert_eq!(frame("read_[k]"), ("read".into(), FrameKind::Kernel));
        assert_eq!(frame("memcpy_[i]"), ("memcpy".into(), FrameKind::Inlined));
        assert_eq!(frame("Lio/netty/A;::b_[j]"), ("Lio/netty/A;::b".into(), FrameKind::Jit));
        assert_eq!(frame("wake_[w]"), ("wake".into(), FrameKind::User));
        assert_eq!(frame("a_[x]"), ("a_[x]".into(), FrameKind::User));
        assert_eq!(frame("[unknown]"), ("[unknown]".into(), FrameKind::Unknown));
        assert_eq!(frame("[unknown]_[k]"), ("[unknown]".into(), FrameKind::Kernel));
        assert_eq!(frame("_[k]"), ("[unknown]".into(), FrameKind::Kernel));
        assert_eq!(frame(" "), ("[unknown]".into(), FrameKind::Unknown));
        assert_eq!(parse_frame(b"\xff\xfe").0, "\u{fffd}\u{fffd}");
    }
}
