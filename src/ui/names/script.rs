//! Names of functions in scripts, in V8's form: `fib /srv/w.js:2:13`.

use crate::ui::text::{cut, width};

/// A function of a script.
pub(super) struct ScriptName<'a> {
    function: &'a str,
    /// The last segment of the script's path.
    file: &'a str,
    line: &'a str,
}

impl<'a> ScriptName<'a> {
    /// Returns `None` for every name that does not end with a position in a script.
    pub(super) fn of(name: &'a str) -> Option<ScriptName<'a>> {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let (rest, column) = name.rsplit_once(':')?;
        let (rest, line) = rest.rsplit_once(':')?;
        if !is_number(column) || !is_number(line) {
            return None;
        }
        // Paths may have blanks, and so may functions (`get total`).
        let begins = rest.find(" /").or_else(|| rest.find("://").and_then(|at| rest[..at].rfind(' ')));
        let (function, path) = rest.split_at_checked(begins.or_else(|| rest.rfind(' '))?)?;
        let path = path.strip_prefix(' ')?;
        let file = path.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or(path);
        Some(ScriptName { function, file, line })
    }

    /// Returns `fib w.js:2`.
    pub(super) fn short(&self) -> String {
        format!("{} {}:{}", self.function, self.file, self.line)
    }

    /// Returns `fib`. For a function without a name, returns its position.
    pub(super) fn last(&self) -> String {
        if self.function.starts_with('(') { format!("{}:{}", self.file, self.line) } else { self.function.to_owned() }
    }

    /// Returns the part that fits.
    pub(super) fn fit(&self, columns: usize) -> String {
        let short = self.short();
        if width(&short) <= columns { short } else { cut(&self.last(), columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Detail, fit_name, shorten};

    const NAMES: [(&str, &str, &str); 8] = [
        ("fib /srv/w.js:2:13", "fib w.js:2", "fib"),
        ("get total /srv/my app/w.js:2:13", "get total w.js:2", "get total"),
        ("fib file:///srv/w.mjs:2:13", "fib w.mjs:2", "fib"),
        ("get f https://host/a/b.js:12:1", "get f b.js:12", "get f"),
        ("processTicks node:internal/process/task_queues:71:35", "processTicks task_queues:71", "processTicks"),
        ("(anonymous) /srv/w.js:9:4", "(anonymous) w.js:9", "w.js:9"),
        ("(eval) :1:1", "(eval) :1", ":1"),
        // Not a name of a script.
        ("caller app.js:1", "caller app.js:1", "caller app.js:1"),
    ];

    #[test]
    fn scripts_have_three_details() {
        for (full, plain, last) in NAMES {
            assert_eq!(shorten(full, Detail::Full), full);
            assert_eq!(shorten(full, Detail::Plain), plain);
            assert_eq!(shorten(full, Detail::Last), last);
        }
    }

    #[test]
    fn the_function_is_kept_longest() {
        let name = "handler /srv/app/w.js:2:13";
        assert_eq!(fit_name(name, 26), name);
        assert_eq!(fit_name(name, 25), "handler w.js:2");
        assert_eq!(fit_name(name, 13), "handler");
        assert_eq!(fit_name(name, 5), "hand…");
        assert_eq!(fit_name(name, 2), "");
        assert_eq!(fit_name("(anonymous) /srv/w.js:9:4", 18), "(anonymous) w.js:9");
        assert_eq!(fit_name("(anonymous) /srv/w.js:9:4", 17), "w.js:9");
    }
}
