//! Mangled names made readable, within bounds: names come from hostile files, and a short mangled name can stand for a
//! very long one.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Longest result. What is longer helps nobody on a screen, and is what an attack makes: names that double with each
/// substitution.
pub(crate) const MAX_OUTPUT: usize = 16 << 10;
/// Longest mangled name tried; longer ones stay as they are.
const MAX_INPUT: usize = 16 << 10;
/// Limits of the search for the part of a name that can be read: bytes, and places where that part may end. Each place takes two attempts
/// of a few microseconds.
const MAX_BEGIN: usize = 512;
const MAX_ENDS: usize = 96;
/// Most pieces of one attempt: all attempts for a name together take no longer than a few of [`MAX_PIECES`].
const PIECES_OF_BEGIN: u32 = 4096;
/// Pieces a result is written in, at most: bounds the time of names that consist of empty parts.
const MAX_PIECES: u32 = 200_000;
/// Depth of a C++ name while it is parsed and written; the crate's own defaults are 96 and 128. A blocking thread's 2 MiB of
/// stack is enough for it: the test of nested names runs on a thread of that size.
const MAX_DEPTH: u32 = 192;

/// How much of a name is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Detail {
    /// C++ without parameters and return type: `ns::Type<int>::run`.
    Short,
    /// C++ without return type: `ns::Type<int>::run(char*)`.
    #[default]
    Normal,
    /// All there is: C++ with return type, Rust with its hash.
    Full,
}

/// The readable form of a symbol: Rust (both schemes), C++ (Itanium), or as it is. Bytes that are not UTF-8 become `�`.
///
/// A name of C++ that the library cannot read becomes its qualified name, without what cannot be read: `std::swap<…>`.
///
/// A symbol's version (`memcpy@@GLIBC_2.14`) is left out but in full detail; that a stub is one (`memcpy@plt`) stays.
pub fn demangle(symbol: &[u8], detail: Detail) -> Cow<'_, str> {
    const STUB: &str = "@plt";
    if let Some(target) = symbol.strip_suffix(STUB.as_bytes()) {
        return Cow::Owned(demangle(target, detail).into_owned() + STUB);
    }
    let name = String::from_utf8_lossy(symbol);
    let bare = if detail == Detail::Full { &name } else { without_version(&name) };
    if bare.len() <= MAX_INPUT
        && let Some(readable) = rust(bare, detail).or_else(|| cpp(bare, detail)).or_else(|| begin_of_cpp(bare))
    {
        return Cow::Owned(readable);
    }
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(name.get(..bare.len()).unwrap_or(name)),
        Cow::Owned(ref owned) => Cow::Owned(owned.get(..bare.len()).unwrap_or(owned).to_owned()),
    }
}

/// `name@VERSION` and `name@@VERSION` as the linker writes them into `.symtab`.
fn without_version(name: &str) -> &str {
    match name.split_once('@') {
        Some((bare, version)) if !bare.is_empty() => {
            let version = version.strip_prefix('@').unwrap_or(version);
            let plain = version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            if plain && version.starts_with(|c: char| c.is_ascii_uppercase()) { bare } else { name }
        }
        _ => name,
    }
}

/// Rust's `_R…` and its older `_ZN…17h<hash>E`, which is told from C++ by the hash.
fn rust(name: &str, detail: Detail) -> Option<String> {
    let legacy = name.starts_with("_ZN") && has_legacy_hash(name);
    if !legacy && !name.starts_with("_R") {
        return None;
    }
    let readable = rustc_demangle::try_demangle(name).ok()?;
    let mut output = Bounded::default();
    match detail {
        Detail::Full => write!(output, "{readable}"),
        Detail::Short | Detail::Normal => write!(output, "{readable:#}"),
    }
    .ok()?;
    // The v0 printer writes what is wrong into the name and goes on.
    let broken = output.text.contains("{invalid syntax}") || output.text.contains("{recursion limit reached}");
    (!broken).then_some(output.text)
}

/// Whether `17h`, sixteen hexadecimal digits and `E` are in the name's last element: `_ZN4core3fmt5write17h0123456789abcdefE`,
/// maybe followed by `.llvm.123` or `.cold`.
fn has_legacy_hash(name: &str) -> bool {
    const LENGTH: usize = 16;
    name.match_indices("17h").any(|(at, mark)| {
        let rest = name.as_bytes().get(at + mark.len()..).unwrap_or_default();
        rest.get(..LENGTH).is_some_and(|hash| hash.iter().all(u8::is_ascii_hexdigit))
            && rest.get(LENGTH) == Some(&b'E')
            && matches!(rest.get(LENGTH + 1), None | Some(b'.'))
    })
}

fn cpp(name: &str, detail: Detail) -> Option<String> {
    cpp_within(name, detail, MAX_PIECES)
}

/// Reads a C++ name. Refuses one that is written in more pieces than `pieces`.
fn cpp_within(name: &str, detail: Detail, pieces: u32) -> Option<String> {
    if !(name.starts_with("_Z") || name.starts_with("__Z") || name.starts_with("_GLOBAL__")) {
        return None;
    }
    let parse = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let (symbol, tail) = BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parse).ok()?;
    let options = DemangleOptions::new().recursion_limit(MAX_DEPTH);
    let options = match detail {
        Detail::Short => options.no_params().no_return_type(),
        Detail::Normal => options.no_return_type(),
        Detail::Full => options,
    };
    // A tail that is no clone suffix means that the name was not understood.
    if !tail.is_empty() {
        return None;
    }
    let mut output = Bounded { pieces: MAX_PIECES.saturating_sub(pieces), ..Bounded::default() };
    symbol.structured_demangle(&mut output, &options).ok()?;
    (!output.text.is_empty()).then_some(output.text)
}

/// Returns the qualified name of a C++ function whose mangled name the library cannot read as a whole.
///
/// The mangled name is cut, and gets the end of a function without parameters: `_ZSt4swapIiENSt9enable_ifIX…` becomes
/// `_ZSt4swapIiENSt9enable_ifEv`. The longest begin that can be read tells the name, without return type and parameters. The part that was
/// cut off may belong to the name itself. To find out, a placeholder is put there: if the library shows it in the name, `…` takes its place.
fn begin_of_cpp(name: &str) -> Option<String> {
    const PLACEHOLDER: &str = "1_";
    // The name of a local entity begins with that of its function: `_ZZ1fvE1x`.
    let function = name.strip_prefix("_Z")?.trim_start_matches('Z');
    if function.len() + 2 < name.len() {
        return Some(begin_of_cpp(&["_Z", function].concat())? + "::…");
    }
    let read = |parts: &[&str]| cpp_within(&parts.concat(), Detail::Short, PIECES_OF_BEGIN);
    // A type, a nested name, or arguments of a template begin with one of these.
    let places = name.bytes().take(MAX_BEGIN).enumerate().skip(3).filter(|(_, byte)| b"INSPRKFDAMXLT".contains(byte));
    let ends: Vec<usize> = places.map(|(at, _)| at).take(MAX_ENDS).collect();
    let begins = ends.into_iter().rev().filter_map(|end| name.split_at_checked(end));
    let (begin, rest, end, known) = begins
        .flat_map(|(begin, rest)| ["Ev", "v"].map(|end| (begin, rest, end)))
        .find_map(|(begin, rest, end)| Some((begin, rest, end, read(&[begin, end])?)))?;
    let arguments = if rest.starts_with('I') { "I1_E" } else { "" };
    let text = match read(&[begin, arguments, end]) {
        Some(with) if !arguments.is_empty() && with == format!("{known}<_>") => format!("{known}<…>"),
        _ => known.clone(),
    };
    let is_open = [arguments, ""].iter().any(|arguments| {
        read(&[begin, arguments, PLACEHOLDER, end]).is_some_and(|longer| longer.starts_with(&known) && longer.ends_with("::_"))
    });
    Some(if is_open { format!("{text}::…") } else { text })
}

/// A string that refuses to grow without end.
#[derive(Default)]
struct Bounded {
    text: String,
    pieces: u32,
}

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.pieces += 1;
        if self.text.len() + piece.len() > MAX_OUTPUT || self.pieces > MAX_PIECES {
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_time;

    fn normal(symbol: &str) -> String {
        demangle(symbol.as_bytes(), Detail::Normal).into_owned()
    }

    #[test]
    fn rust_names_of_both_schemes_lose_their_hash() {
        assert_eq!(normal("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(normal("_ZN3foo3bar17h0123456789abcdefE.llvm.1234"), "foo::bar");
        assert_eq!(normal("_RNvCskwGfYPst2Cb_3foo3bar"), "foo::bar");
        let full = demangle(b"_ZN3foo3bar17h0123456789abcdefE", Detail::Full);
        assert_eq!(full, "foo::bar::h0123456789abcdef");
    }

    #[test]
    fn cpp_names_have_three_levels_of_detail() {
        let symbol = b"_ZN2ns4TypeIiE3runIcEET_Pc";
        assert_eq!(demangle(symbol, Detail::Short), "ns::Type<int>::run<char>");
        assert_eq!(demangle(symbol, Detail::Normal), "ns::Type<int>::run<char>(char*)");
        assert_eq!(demangle(symbol, Detail::Full), "char ns::Type<int>::run<char>(char*)");
    }

    #[test]
    fn cpp_names_without_a_rust_hash_are_not_taken_for_rust() {
        assert_eq!(normal("_ZN3foo3barE"), "foo::bar");
        assert_eq!(normal("_ZN3foo3barEv"), "foo::bar()");
        assert_eq!(normal("_ZNSt6vectorIiSaIiEE9push_backEOi"), "std::vector<int, std::allocator<int> >::push_back(int&&)");
    }

    #[test]
    fn plain_names_and_broken_ones_stay_as_they_are() {
        for name in ["main", "_start", "foo.cold", "_Z", "_ZN", "_R", "_RNvC", "runtime.goexit", "a@b c", "@x", "_Zqqqq"] {
            assert_eq!(normal(name), name);
        }
        assert_eq!(demangle(b"bad\xff", Detail::Normal), "bad\u{fffd}");
    }

    /// Expected: what c++filt has as name of the function.
    #[test]
    fn names_that_the_library_cannot_read_are_read_as_far_as_they_can() {
        let swap = "_ZSt4swapIiENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructibleIS4_ESt18is_move_\
                    assignableIS4_EEE5valueEvE4typeERS4_SE_";
        let check = "_ZN2v84base17PrintCheckOperandIPKaEENSt9enable_ifIXaaaantsrSt11is_functionINSt14remove_pointerIT_E4typeEE5valuentsr\
                     St7is_enumIS5_E5valuesr25has_output_operatorIS5_NS0_18CheckMessageStreamEEE5valueENSt7__cxx1112basic_stringIcSt11char_traits\
                     IcESaIcEEEE4typeES5_";
        let cases = [
            (swap, "std::swap<int>"),
            (check, "v8::base::PrintCheckOperand<signed char const*>"),
            // The part that cannot be read is of the name: arguments of a function, of a class, and what follows those.
            ("_ZSt4swapIXsrSt1aIT_E1bEEvv", "std::swap<…>"),
            ("_ZN1a1bIXsrSt1cIT_E1dEEEvv", "a::b<…>::…"),
            ("_ZN1a1bIXsrSt1cIT_E1dEE1eEv", "a::b<…>::…"),
            ("_ZZN1a1bIiEENSt9enable_ifIXsrSt1cIT_E1dEE4typeES2_E1x", "a::b<int>::…"),
        ];
        for (symbol, name) in cases {
            assert_eq!(cpp(symbol, Detail::Normal), None, "the library can read it by now: {symbol}");
            assert_eq!(normal(symbol), name);
        }
        // A variant of a function of C for vectors is no name of C++.
        assert_eq!(normal("_ZGVbN2v_cos"), "_ZGVbN2v_cos");
    }

    #[test]
    fn symbol_versions_are_left_out() {
        assert_eq!(normal("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(normal("memcpy@GLIBC_2.2.5"), "memcpy");
        assert_eq!(normal("_ZNSs4swapERSs@@GLIBCXX_3.4"), normal("_ZNSs4swapERSs"));
        assert_eq!(demangle(b"memcpy@GLIBC_2.2.5", Detail::Full), "memcpy@GLIBC_2.2.5");
        assert_eq!(normal("_ZdlPvm@plt"), "operator delete(void*, unsigned long)@plt");
    }

    #[test]
    fn names_that_explode_or_nest_without_end_stay_as_they_are_and_take_no_time() {
        let start = cpu_time::of_this_thread();
        let nested = format!("_Z{}", "N".repeat(10_000));
        assert_eq!(normal(&nested), nested);
        let pointers = format!("_Z1f{}i", "P".repeat(10_000));
        assert_eq!(normal(&pointers), "f");
        // Each parameter is a pair of the one before: 2^40 characters if it were written out.
        let mut doubling = String::from("_Z1f1AIiiE");
        for index in 0..40u8 {
            let previous = if index == 0 { "S_".to_owned() } else { format!("S{}_", base36(index - 1)) };
            doubling += &format!("1BI{previous}{previous}E");
        }
        assert!(normal(&doubling).len() <= MAX_OUTPUT);
        let rust = format!("_RNvC3foo{}", "I".repeat(10_000));
        assert_eq!(normal(&rust), rust);
        assert!(cpu_time::since(start).as_secs() < 2, "{:?}", cpu_time::since(start));
    }

    /// A file may have thousands of such names. Each may be tried 200 times.
    #[test]
    fn a_name_that_cannot_be_read_takes_few_milliseconds() {
        // Arguments of the name itself that double, and packs that double and write nothing.
        let double = |first: &str, last: &str| {
            let mut name = format!("_Z1fI{first}");
            for index in 0..40u8 {
                let previous = if index == 0 { "S_".to_owned() } else { format!("S{}_", base36(index - 1)) };
                name += &format!("1BI{previous}{previous}E");
            }
            name + last
        };
        let names = [
            double("1AIiiE", "XsrSt1aIT_E1bEEvv"),
            double("1AIJEJEE", "XsrSt1aIT_E1bEEvv"),
            format!("_Z1f{}X", "DpN1A1BI".repeat(60)),
            format!("_Z{}X", "N1AI".repeat(120)),
            format!("_Z1fI{}", "XsrSt1aIT_E1bE".repeat(36)),
        ];
        for name in names {
            let start = cpu_time::of_this_thread();
            let readable = normal(&name);
            let took = cpu_time::since(start);
            println!("{took:?} {:.40}", readable);
            assert!(took.as_millis() < 250, "{took:?}: {name}");
        }
    }

    #[test]
    fn nesting_up_to_the_limit_and_past_it_fits_the_stack_of_a_worker() {
        let mut deepest = 0;
        for depth in 1..400 {
            for open in ["P", "1AI", "FvP", "DpN1A1BI"] {
                let name = format!("_Z1f{}i{}", open.repeat(depth), "E".repeat(depth));
                if normal(&name) != name {
                    deepest = depth;
                }
            }
            normal(&format!("_Z1fI{}iEvT_", "P".repeat(depth)));
            normal(&format!("_Z1fDT{}fp_Li1EE", "pl".repeat(depth)));
        }
        assert!(normal(&format!("_Z1f{}i", "P".repeat(60))).ends_with("*)"));
        assert!(deepest < 400);
    }

    fn base36(value: u8) -> char {
        char::from_digit(u32::from(value), 36).map_or('Z', |c| c.to_ascii_uppercase())
    }
}
