//! Makes the names readable that runtimes write for functions compiled at run time.

use std::borrow::Cow;

use crate::symbolize::symbols::demangle::{Detail, demangle};

/// Returns a readable name for the runtime's name of a function. Mangled names are demangled, and V8's names lose their prefix such as
/// `JS:*`.
pub(super) fn readable(name: &[u8]) -> Cow<'_, str> {
    let mangled = [&b"_Z"[..], b"__Z", b"_R"].iter().any(|prefix| name.starts_with(prefix));
    if mangled {
        return demangle(name, Detail::default());
    }
    let name = String::from_utf8_lossy(name);
    of_v8(&name).map_or(name, Cow::Owned)
}

/// Returns `fib /srv/w.js:2:13` for V8's `JS:*fib /srv/w.js:2:13`; `None` for all other names.
///
/// V8 compiles a hot function several times, and marks each name with the compiler (`ComputeMarker` in `src/objects/code-kind.cc`): `~` for
/// bytecode, `^` for Sparkplug, `+` for Maglev, `*` for TurboFan. Without the mark they are one function. Releases before Node.js 18 write
/// `LazyCompile` for `JS`.
fn of_v8(name: &str) -> Option<String> {
    let (kind, rest) = name.split_once(':')?;
    let unnamed = match kind {
        "JS" | "LazyCompile" | "Function" => "(anonymous)",
        "Eval" => "(eval)",
        "Script" => "(top level)",
        _ => return None,
    };
    let rest = rest.strip_prefix(['~', '^', '+', '*'])?;
    let rest = rest.strip_prefix('\'').unwrap_or(rest);
    Some(match rest.strip_prefix(' ') {
        Some(place) => format!("{unnamed} {place}"),
        None => rest.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_v8_have_one_name_whatever_compiled_them() {
        let names = [
            ("JS:~fib /srv/w.js:2:13", "fib /srv/w.js:2:13"),
            ("JS:^fib /srv/w.js:2:13", "fib /srv/w.js:2:13"),
            ("JS:+fib /srv/w.js:2:13", "fib /srv/w.js:2:13"),
            ("JS:*fib /srv/w.js:2:13", "fib /srv/w.js:2:13"),
            ("LazyCompile:*fib /srv/w.js:2:13", "fib /srv/w.js:2:13"),
            ("JS:*get total /srv/w.js:1:13", "get total /srv/w.js:1:13"),
            ("JS:* /srv/w.js:9:4", "(anonymous) /srv/w.js:9:4"),
            ("Eval:~ :1:1", "(eval) :1:1"),
            ("Script:~ /srv/w.js:1:1", "(top level) /srv/w.js:1:1"),
        ];
        for (written, read) in names {
            assert_eq!(readable(written.as_bytes()), read);
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in ["Builtin:LdaZero", "RegExp:a+b", "JS:fib", "py::run:/srv/app.py", "a::b", "JS", ""] {
            assert_eq!(readable(name.as_bytes()), name);
        }
        assert_eq!(readable(b"_ZN3foo3barEv"), "foo::bar()");
    }
}
