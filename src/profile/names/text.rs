//! Makes text from processes safe to print anywhere: terminal, SVG, folded stacks, messages.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_syntax::hir::{ClassUnicodeRange, HirKind};

/// Longest name that is kept, in characters. Longer names are cut and end in `…`. Names come from hostile processes.
const MAX_NAME: usize = 4096;

/// Characters that are replaced, by Unicode property:
///
/// ```text
/// Cc  Cf                         control characters; format characters (soft hyphen, direction marks, Arabic and Egyptian signs, tags)
/// Zl  Zp                         line and paragraph separators
/// Co  Noncharacter_Code_Point    private use (looks as the font wants), noncharacters
/// Default_Ignorable_Code_Point   takes no room: variation selectors, joiners, Hangul fillers
/// Bidi_Control                   changes the direction of the following text
/// ```
///
/// Surrogates cannot be in a `str`.
const UNSAFE: &str =
    r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Noncharacter_Code_Point}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}]";

/// The ranges of [`UNSAFE`], in ascending order.
static RANGES: LazyLock<Vec<ClassUnicodeRange>> = LazyLock::new(|| {
    let class = regex_syntax::parse(UNSAFE).map(regex_syntax::hir::Hir::into_kind);
    match class {
        Ok(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => class.ranges().to_vec(),
        // Cannot happen; a test proves it. Without Unicode's tables only ASCII is safe.
        _ => vec![ClassUnicodeRange::new('\0', '\x1f'), ClassUnicodeRange::new('\x7f', char::MAX)],
    }
});

/// Returns the name with each unsafe character replaced by `·`, cut to `MAX_NAME` characters.
///
/// Unsafe characters are invisible, or change how others are shown.
pub fn sanitize(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME && name.chars().all(is_safe_to_print) {
        return Cow::Borrowed(name);
    }
    let mut safe: String = name.chars().take(MAX_NAME).map(|c| if is_safe_to_print(c) { c } else { '·' }).collect();
    if name.chars().nth(MAX_NAME).is_some() {
        safe.push('…');
    }
    Cow::Owned(safe)
}

/// Whether a character is visible and does not change how others are shown.
fn is_safe_to_print(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let next = RANGES.partition_point(|range| range.end() < c);
    RANGES.get(next).is_none_or(|range| c < range.start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_ten_thousand_characters_is_cut_and_says_so() {
        let long = "x".repeat(10_000);
        let cut = sanitize(&long);
        assert_eq!(cut.chars().count(), MAX_NAME + 1);
        assert!(cut.ends_with('…'));
        assert_eq!(sanitize("plain"), "plain");
        assert_eq!(sanitize("a\u{202e}b\u{200b}c\u{9b}d"), "a·b·c·d");
        assert_eq!(sanitize("main.(*T).f·dwrap·1 größer 日本語 ∕ Ωλ é"), "main.(*T).f·dwrap·1 größer 日本語 ∕ Ωλ é");
    }

    #[test]
    fn invisible_characters_that_are_no_controls_are_replaced() {
        let passed = "\u{ad}\u{fe0f}\u{34f}\u{115f}\u{1160}\u{3164}\u{ffa0}\u{600}\u{61c}\u{6dd}\u{8e2}\u{180b}\u{180e}\u{13430}\u{1d173}\
                      \u{e0001}\u{e0041}\u{e0100}\u{2066}\u{2028}\u{2029}\u{feff}\u{fff9}\u{e000}\u{10fffd}\u{ffff}\u{200d}";
        assert_eq!(sanitize(passed), "·".repeat(passed.chars().count()));
    }

    /// Compares all of Unicode with another engine's tables of the same properties.
    #[test]
    fn each_character_is_as_its_properties_say() {
        let engine = regex::Regex::new(UNSAFE).unwrap();
        let mut unsafe_ones = 0;
        for c in '\0'..=char::MAX {
            let matched = engine.is_match(c.encode_utf8(&mut [0; 4]));
            assert_eq!(is_safe_to_print(c), !matched, "{c:?}");
            unsafe_ones += usize::from(matched);
        }
        // 137,468 are for private use; some thousands more are reserved as ignorable.
        assert!((137_468..150_000).contains(&unsafe_ones), "{unsafe_ones}");
        assert!(RANGES.len() < 100, "{} ranges", RANGES.len());
    }
}
