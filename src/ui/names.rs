//! Shortens names of functions to the chosen detail and to the available columns: C++, Rust, Go, and names in no known form.
//!
//! A name is scanned once from its beginning. If its brackets do not match, it stays unchanged, because any removed part could be
//! its most telling part.

mod java;
mod script;

use std::borrow::Cow;

use self::script::ScriptName;
use super::text::{cut, head, tail, width};

/// How much of a name is shown. It changes neither the names nor the text that a search sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// The whole name: `std::vector<int>::push_back(int&&)`.
    #[default]
    Full,
    /// Without parameters and templates: `std::vector::push_back`.
    Plain,
    /// Its last segment: `push_back`. If that says nothing alone, the segment before it, too: `main::{closure#0}`.
    Last,
}

impl Detail {
    /// Returns the next detail; the first follows the last.
    pub fn next(self) -> Detail {
        match self {
            Detail::Full => Detail::Plain,
            Detail::Plain => Detail::Last,
            Detail::Last => Detail::Full,
        }
    }

    /// Returns a description.
    pub fn describe(self) -> &'static str {
        match self {
            Detail::Full => "names in full",
            Detail::Plain => "names without parameters and templates",
            Detail::Last => "only the last segment of names",
        }
    }
}

/// Returns a function's name in this detail.
///
/// | full | plain | last |
/// | --- | --- | --- |
/// | `ns::f<int>(char*) const [clone .cold]` | `ns::f [clone .cold]` | `f [clone .cold]` |
/// | `<a::B<T> as c::Trait>::method` | `a::B::method` | `method` |
/// | `net/http.(*conn).serve` | the same | `serve` |
/// | `main.F[...].func1` | `main.F.func1` | `F.func1` |
/// | `fib /srv/w.js:2:13` | `fib w.js:2` | `fib` |
/// | `do_idle.cold`, `libc.so.6+0x12` | the same | the same |
pub(super) fn shorten(name: &str, detail: Detail) -> Cow<'_, str> {
    // Most names contain nothing to remove.
    let plain = !name.bytes().any(|byte| matches!(byte, b'<' | b'(' | b'[' | b'{' | b' ' | b':' | b'.'));
    if detail == Detail::Full || plain || is_an_address(name) || name.starts_with('[') {
        return Cow::Borrowed(name);
    }
    if let Some(script) = ScriptName::of(name) {
        return Cow::Owned(if detail == Detail::Last { script.last() } else { script.short() });
    }
    if name.split('.').any(is_of_python) {
        let plain = name.replace(".<locals>", "");
        return Cow::Owned(match detail {
            Detail::Last => plain.rsplit('.').next().unwrap_or_default().to_owned(),
            _ => plain,
        });
    }
    let Some(scan) = Scan::of(name, 0) else { return Cow::Borrowed(name) };
    match detail {
        Detail::Last => Cow::Owned(scan.last().to_owned()),
        _ if scan.plain == name => Cow::Borrowed(name),
        _ => Cow::Owned(scan.plain),
    }
}

/// Returns the name of a method of Java in this detail.
pub(super) fn shorten_method(name: &str, detail: Detail) -> &str {
    match detail {
        Detail::Full => name,
        Detail::Plain => java::plain(name),
        Detail::Last => java::last(name),
    }
}

/// Returns a function's name without parameters and templates, for boxes of saved pictures.
pub fn plain_name(name: &str) -> Cow<'_, str> {
    shorten(name, Detail::Plain)
}

/// Returns whether the name has the form `module+0x12`.
fn is_an_address(name: &str) -> bool {
    name.rsplit_once("+0x").is_some_and(|(_, digits)| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Deepest nesting of receivers that is followed, as in `<<A as B>::C as D>::e`.
const DEEPEST: u32 = 16;

/// Operators, the longest first: the first one that fits is used.
const OPERATORS: [&str; 42] = [
    "()",
    "[]",
    "->*",
    "<=>",
    "<<=",
    ">>=",
    "->",
    "<<",
    ">>",
    "<=",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    "+=",
    "-=",
    "*=",
    "/=",
    "%=",
    "^=",
    "&=",
    "|=",
    "++",
    "--",
    "<",
    ">",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "&",
    "|",
    "~",
    "!",
    "=",
    ",",
    "\"\"",
    " new[]",
    " delete[]",
];

/// A name without parameters and templates, and the positions where its segments begin.
struct Scan {
    plain: String,
    starts: Vec<usize>,
    /// From here on, the name is a conversion operator. Its `::` and blanks are part of a type and separate nothing.
    conversion: bool,
    /// Position behind the last blank. A function's name begins there if its parameters follow.
    blank: Option<usize>,
    /// A list of parameters has just been left out, so `const` may follow.
    after_parameters: bool,
}

impl Scan {
    /// Returns `None` if brackets do not match.
    fn of(name: &str, depth: u32) -> Option<Scan> {
        if depth > DEEPEST {
            return None;
        }
        let empty = String::with_capacity(name.len());
        let mut scan = Scan { plain: empty, starts: vec![0], conversion: false, blank: None, after_parameters: false };
        let mut at = 0;
        while let Some(rest) = name.get(at..).filter(|rest| !rest.is_empty()) {
            at += scan.step(name, at, rest, depth)?;
        }
        while scan.plain.ends_with("::") {
            scan.plain.truncate(scan.plain.len() - 2);
        }
        let length = scan.plain.len();
        scan.starts.retain(|start| *start == 0 || *start < length);
        (length > 0).then_some(scan)
    }

    /// Scans the next piece of the name and returns its length.
    fn step(&mut self, name: &str, at: usize, rest: &str, depth: u32) -> Option<usize> {
        let after_parameters = std::mem::take(&mut self.after_parameters);
        let first = rest.bytes().next()?;
        match first {
            b'<' => self.angle(rest, depth),
            b'(' => self.parenthesis(rest),
            b'[' => {
                let end = close(rest)?;
                // `F[...]` of Go and `f[abi:cxx11]` of GCC are removed, ` [clone .cold]` stays.
                if !self.plain.ends_with(is_word) {
                    self.plain.push_str(&rest[..end]);
                }
                Some(end)
            }
            b'{' => {
                let end = close(rest)?;
                self.push_braces(&rest[..end]);
                Some(end)
            }
            b' ' | b'&' if after_parameters && qualifier(rest).is_some() => {
                self.after_parameters = true;
                qualifier(rest)
            }
            b' ' => {
                self.plain.push(' ');
                // `void f(int)`: the part before the blank is a type.
                if !self.conversion && !rest.starts_with(" [") && !rest.starts_with(" (") {
                    self.blank = Some(self.plain.len());
                }
                Some(1)
            }
            b':' if rest.starts_with("::") => {
                if !self.plain.ends_with("::") && !self.plain.is_empty() {
                    self.plain.push_str("::");
                    if !self.conversion {
                        self.starts.push(self.plain.len());
                    }
                }
                Some(2)
            }
            _ if rest.starts_with("operator") && !name[..at].ends_with(is_word) => self.operator(rest),
            _ => {
                let next = rest.char_indices().skip(1).find(|(_, c)| matches!(c, '<' | '(' | '[' | '{' | ' ' | ':' | '&'));
                let end = next.map_or(rest.len(), |(end, _)| end);
                // An operator may begin within the piece only after a character that is not part of a word. All such characters
                // that occur before an operator in names are handled above.
                self.plain.push_str(&rest[..end]);
                Some(end)
            }
        }
    }

    /// Scans `operator<` and other operators whose brackets open nothing.
    fn operator(&mut self, rest: &str) -> Option<usize> {
        const WORD: &str = "operator";
        let after = &rest[WORD.len()..];
        self.plain.push_str(WORD);
        if after.starts_with(is_word) {
            return Some(WORD.len());
        }
        let symbol = OPERATORS.into_iter().find(|symbol| after.starts_with(symbol));
        if let Some(symbol) = symbol {
            self.plain.push_str(symbol);
            // `operator<< <char>` has a blank before its templates.
            let blank = after[symbol.len()..].starts_with(" <");
            return Some(WORD.len() + symbol.len() + usize::from(blank));
        }
        self.conversion = after.starts_with(' ');
        Some(WORD.len())
    }

    /// Removes templates. The type of a leading receiver (`<T as Trait>::method`) stays.
    fn angle(&mut self, rest: &str, depth: u32) -> Option<usize> {
        let end = close(rest)?;
        let inner = &rest[1..end - 1];
        if self.plain.is_empty() && rest[end..].starts_with("::") {
            let receiver = receiver_of(inner);
            let bare = receiver.trim_start_matches(['&', '*']);
            let bare = ["mut ", "const ", "dyn "].iter().fold(bare, |bare, word| bare.strip_prefix(word).unwrap_or(bare));
            if bare.starts_with(|c: char| is_word(c) || c == '<')
                && let Some(scan) = Scan::of(bare, depth + 1)
            {
                (self.plain, self.starts) = (scan.plain, scan.starts);
            } else {
                self.plain.push_str(receiver);
            }
        } else if inner.starts_with("lambda") && !self.plain.ends_with(is_word) {
            // `<lambda(int)>` is GCC's name for a lambda in debug information.
            self.plain.push_str("<lambda>");
        }
        Some(end)
    }

    /// Removes parameters. `(anonymous namespace)` and the receivers of Go stay.
    fn parenthesis(&mut self, rest: &str) -> Option<usize> {
        let end = close(rest)?;
        let group = &rest[..end];
        let begins_a_segment = self.plain.is_empty() || self.plain.ends_with("::");
        if self.plain.ends_with('.') {
            // `net/http.(*conn).serve`, `main.(*List[...]).Push`
            let type_end = group.find('[').unwrap_or(end - 1);
            self.plain.push_str(&group[..type_end]);
            self.plain.push(')');
        } else if begins_a_segment || group.starts_with("(.") {
            self.plain.push_str(group);
        } else {
            while self.plain.ends_with(' ') {
                self.plain.pop();
            }
            self.after_parameters = true;
            self.conversion = false;
            if let Some(blank) = self.blank.take() {
                // If several blanks stand before the parameters, the last blanks have been removed already.
                let blank = blank.min(self.plain.len());
                self.starts.insert(self.starts.partition_point(|start| *start < blank), blank);
            }
        }
        Some(end)
    }

    /// Adds `{lambda(int)#1}` as `{lambda#1}`.
    fn push_braces(&mut self, group: &str) {
        match (group.find('('), group.rfind(')')) {
            (Some(open), Some(closed)) if open < closed => {
                self.plain.push_str(&group[..open]);
                self.plain.push_str(&group[closed + 1..]);
            }
            _ => self.plain.push_str(group),
        }
    }

    /// Returns the end of the name, from the last meaningful segment on.
    fn last(&self) -> &str {
        let says_nothing = |segment: &str| segment.starts_with(['{', '$', '\'', '<']) || segment.starts_with("operator()");
        let mut last = self.plain.as_str();
        for start in self.starts.iter().rev() {
            let Some(segment) = self.plain.get(*start..) else { continue };
            last = segment;
            if !says_nothing(last) {
                break;
            }
        }
        if self.starts.len() == 1 { last_of_go(last).unwrap_or(last) } else { last }
    }
}

/// Returns whether the character is part of a word, in any language.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// Returns the length of `const` and similar words at the beginning, including the blank before.
fn qualifier(rest: &str) -> Option<usize> {
    const QUALIFIERS: [&str; 7] = [" const", " volatile", " noexcept", " &&", " &", "&&", "&"];
    let found = QUALIFIERS.iter().find(|qualifier| rest.starts_with(**qualifier))?;
    (!rest[found.len()..].starts_with(is_word)).then_some(found.len())
}

/// Finds the end of the bracket that `rest` begins with. Returns the position after it.
fn close(rest: &str) -> Option<usize> {
    let mut open = Vec::new();
    let bytes = rest.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'(' | b'[' | b'{' | b'<' => open.push(byte),
            // The arrow in a function's type does not close a bracket.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b')' | b']' | b'}' | b'>' => {
                let pair = match byte {
                    b')' => b'(',
                    b']' => b'[',
                    b'}' => b'{',
                    _ => b'<',
                };
                if open.pop() != Some(pair) {
                    return None;
                }
                if open.is_empty() {
                    return Some(at + 1);
                }
            }
            b'o' if rest[at..].starts_with("operator") && !rest[..at].ends_with(is_word) => {
                let after = &rest[at + "operator".len()..];
                let symbol = OPERATORS.into_iter().find(|symbol| after.starts_with(symbol));
                at += "operator".len() + symbol.map_or(0, str::len);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns `T` of `T as Trait` and of `impl Trait for T`. The words between must not be within brackets.
fn receiver_of(inner: &str) -> &str {
    let is_impl = inner.starts_with("impl ");
    let mut depth = 0i32;
    let bytes = inner.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' => depth -= 1,
            b' ' if depth == 0 && !is_impl && inner[at..].starts_with(" as ") => return &inner[..at],
            b' ' if depth == 0 && is_impl && inner[at..].starts_with(" for ") => return &inner[at + " for ".len()..],
            _ => {}
        }
    }
    inner
}

/// Returns `serve` of `net/http.(*conn).serve`; `None` for names that are not in the form of Go, Java and similar languages.
fn last_of_go(name: &str) -> Option<&str> {
    // Suffixes that compilers and linkers add to the names of C functions, and endings of files.
    const NOT_GO: [&str; 12] =
        ["cold", "isra", "part", "constprop", "llvm", "lto_priv", "localalias", "plt", "so", "ko", "warm", "hot"];
    if name.contains(' ') {
        return None;
    }
    let path = name.find('(').map_or(name, |open| &name[..open]);
    let path = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path + name[path..].find('.')?;
    let function = &name[dot + 1..];
    let first = function.split('.').next().unwrap_or_default();
    if dot == path
        || NOT_GO.contains(&first)
        || first.bytes().all(|byte| byte.is_ascii_digit()) && !function.starts_with(['.', '('])
    {
        return None;
    }
    let says_nothing = |part: &str| {
        let numbered = |word: &str| part.strip_prefix(word).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        ["", "func", "gowrap", "deferwrap"].iter().any(|word| numbered(word)) || part.starts_with("abi")
    };
    let mut begin = function.len();
    for part in function.rsplit('.') {
        begin = begin.saturating_sub(part.len());
        if !says_nothing(part) {
            break;
        }
        begin = begin.saturating_sub(1);
    }
    function.get(begin..).filter(|last| !last.is_empty())
}

/// Shortens a function's name to at most `columns`.
///
/// The last segment of a path distinguishes functions best, so it is kept longest. Suffixes of compilers and arguments are removed first.
/// Then generic arguments become `<…>`, and leading segments become `…`. The last segment is cut at its end only if that is not enough. A
/// cut name with less than three letters and digits says nothing, so the result is then empty.
pub fn fit_name(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    let cut = cut_name(without_suffixes(name), columns);
    if cut.chars().filter(|c| c.is_alphanumeric()).count() < 3 { String::new() } else { cut }
}

/// Removes what compilers append to the names of variants: `.constprop.0`, `.isra.1`, `.part.0`, `.cold`, `.llvm.123`, `.lto_priv.0`.
fn without_suffixes(name: &str) -> &str {
    const SUFFIXES: [&str; 6] = ["constprop", "isra", "part", "cold", "llvm", "lto_priv"];
    let mut rest = name;
    while let Some((before, last)) = rest.rsplit_once('.').filter(|(before, _)| !before.is_empty()) {
        let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        let suffix = if is_number { before.rsplit_once('.') } else { Some((before, last)) };
        match suffix.filter(|(before, word)| !before.is_empty() && SUFFIXES.contains(word)) {
            Some((before, _)) => rest = before,
            None => break,
        }
    }
    rest
}

/// Shortens a name to at most `columns`, for [`fit_name`].
fn cut_name(name: &str, columns: usize) -> String {
    if width(name) <= columns || columns == 0 {
        return head(name, columns).to_owned();
    }
    if let Some(script) = ScriptName::of(name) {
        return script.fit(columns);
    }
    if name.split('.').any(is_of_python) {
        return fit_python(name, columns);
    }
    // Names may be thousands of characters long. Only the end is examined; it is long enough to contain everything that could fit.
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
    // `drop_in_place::<…>` without its last part, which says nothing.
    let folded = folded.strip_suffix("::<…>").unwrap_or(&folded);
    for start in segment_starts(folded) {
        let rest = &folded[start..];
        if start == 0 && width(rest) <= columns {
            return rest.to_owned();
        }
        if start > 0 && width(rest) < columns {
            return format!("…{rest}");
        }
    }
    let last = segment_starts(folded).last().map_or(folded, |start| &folded[start..]);
    if last.len() == folded.len() && (last.contains('/') || is_an_address(last)) && !last.starts_with(['[', '<']) {
        // A path, or a place in a file: the end says more than the beginning.
        return format!("…{}", tail(last, columns - 1));
    }
    // `runtime.mallocgc`: the function is the last part. `python3.11-dbg` and `libc.so.6` have no such part.
    let function = last.rsplit('.').next().unwrap_or(last);
    if function.len() < 4 || !function.starts_with(char::is_alphabetic) {
        return cut(last, columns);
    }
    let mut ends = last.match_indices('.').map(|(at, _)| &last[at + 1..]);
    ends.find(|end| width(end) < columns).map_or_else(|| cut(function, columns), |end| format!("…{end}"))
}

/// Returns whether a segment of a name was made by Python.
fn is_of_python(segment: &str) -> bool {
    matches!(segment, "<locals>" | "<lambda>" | "<listcomp>" | "<setcomp>" | "<dictcomp>" | "<genexpr>" | "<module>")
}

/// Shortens `Server.handle.<locals>.<lambda>`: removes `<locals>`, then leading segments.
fn fit_python(name: &str, columns: usize) -> String {
    let name = name.replace(".<locals>", "");
    let starts = std::iter::once(0).chain(name.match_indices('.').map(|(at, _)| at + 1));
    let dots = |start: usize| if start > 0 { "…" } else { "" };
    let fitted = starts.map(|start| format!("{}{}", dots(start), &name[start..])).find(|rest| width(rest) <= columns);
    fitted.unwrap_or_else(|| cut(name.rsplit('.').next().unwrap_or(&name), columns))
}

/// Removes the parameter list of a C++ function. It is the last part of the name, apart from qualifiers. A type in a template (`<F
/// as FnOnce<()>>::call_once`) and the receiver of a method in Go (`http.(*conn).serve`) are not parameter lists.
fn without_arguments(name: &str) -> &str {
    let Some(end) = name.rfind(')') else { return name };
    let mut after = &name[end + 1..];
    while let Some(length) = qualifier(after) {
        after = &after[length..];
    }
    if !(after.is_empty() || after.starts_with(" [")) {
        return name;
    }
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

/// Returns `<a::b::Type<T> as c::Trait>::method` as `a::b::Type<T>::method`. The trait and the path of the type say least.
fn receiver_only(name: &str) -> String {
    let Some(rest) = name.strip_prefix('<') else { return name.to_owned() };
    let (mut depth, mut cast) = (1usize, None);
    let mut previous = '<';
    for (at, c) in rest.char_indices() {
        match c {
            // The ` as ` of the receiver itself. Deeper ones belong to types within the receiver.
            ' ' if depth == 1 && cast.is_none() && rest[at..].starts_with(" as ") => cast = Some(at),
            '<' => depth += 1,
            '>' if previous != '-' => depth -= 1,
            _ => {}
        }
        previous = c;
        if depth == 0 {
            let receiver = &rest[..cast.unwrap_or(at)];
            return format!("{receiver}{}", &rest[at + 1..]);
        }
    }
    name.to_owned()
}

/// Folds every outermost `<…>`. `operator<` and other brackets without a closing bracket stay unchanged. A closing bracket without
/// an opening one belongs to a bracket that began before the visible part of the name.
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
            '>' if depth == 0 && previous != '-' && !ends_with_operator(&folded) => {
                folded.clear();
                folded.push_str("<…>");
            }
            c if depth == 0 => folded.push(c),
            _ => {}
        }
        previous = c;
    }
    if depth > 0 { name.to_owned() } else { folded }
}

/// Returns whether the name ends with `operator` or the beginning of an operator. `operator>` opens and closes nothing.
fn ends_with_operator(name: &str) -> bool {
    name.trim_end_matches(['<', '>', '=', '-']).ends_with("operator")
}

/// Returns the positions where the segments of a path begin. Closures (`{{closure}}`, `{closure#0}`) and `<…>` say nothing without
/// their function, so they do not begin a segment.
fn segment_starts(name: &str) -> impl Iterator<Item = usize> + '_ {
    let starts = name.match_indices("::").map(|(at, _)| at + 2);
    std::iter::once(0).chain(starts.filter(|start| !name[*start..].starts_with('{') && !name[*start..].starts_with("<…>")))
}

#[cfg(test)]
mod tests;
