//! Files, modules and tests must exist if a script, a comment or a document mentions them.
//!
//! | mention | form | example |
//! | --- | --- | --- |
//! | file | begins with a folder of the tree | `docs/unwinding.md` |
//! | file under `src/` | begins with a folder there, and has an ending | `ui/app.rs` |
//! | module, in scripts | ends in `::` | `collector::wire::` |
//! | test | four words | `small_files_with_large_tables` |
//! | test, in comments | five words: many functions of the kernel have four | `deep_stacks_take_a_bounded_time` |
//!
//! A part of a test's name is enough, because filters are such parts.

use std::collections::BTreeSet;

use super::{Source, code_of};

/// Beginnings of paths in other projects (Go, V8, musl), and of files that are made here.
const FOREIGN: &[&str] =
    &["src/cmd/", "src/internal/", "src/objects/", "src/process/", "src/runtime/", "src/thread/", "fuzz/Cargo.lock"];

/// History, and inputs of tests.
const LEFT_OUT: &[&str] = &["CHANGELOG.md", "docs/archive/", "fuzz/corpus/", "tests/screens/"];

/// Kinds of files, by the text that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Script,
    Document,
    Other,
}

fn kind(path: &str) -> Kind {
    match path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending) {
        Some("rs" | "c" | "h" | "cpp" | "js") => Kind::Code,
        Some("md" | "1") => Kind::Document,
        Some("sh") | None => Kind::Script,
        Some(_) if path == ".ci/run" => Kind::Script,
        Some(_) => Kind::Other,
    }
}

/// Returns the text of a line for readers: its comment if the file is code.
fn said(kind: Kind, line: &str) -> &str {
    match kind {
        Kind::Other => "",
        Kind::Script | Kind::Document => line,
        Kind::Code => {
            let begins = if line.trim_start().starts_with('*') { Some(0) } else { line.find("//").or_else(|| line.find("/*")) };
            begins.and_then(|at| line.get(at..)).unwrap_or_default()
        }
    }
}

/// Everything that can be mentioned.
pub(super) struct Tree {
    /// Files and folders.
    paths: BTreeSet<String>,
    /// Words of the code, and names of functions in scripts, one a line.
    names: String,
}

impl Tree {
    pub(super) fn of(sources: &[Source]) -> Tree {
        let mut paths = BTreeSet::new();
        let mut names = BTreeSet::new();
        for Source { path, text } in sources {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            paths.extend(ends.filter_map(|end| path.get(..end)).map(str::to_owned));
            match kind(path) {
                Kind::Code => {
                    let words = |line| code_of(line).split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned);
                    names.extend(text.lines().flat_map(words));
                }
                Kind::Script => {
                    names.extend(text.lines().filter_map(|line| line.split_once("()")).map(|(name, _)| name.to_owned()));
                }
                Kind::Document | Kind::Other => {}
            }
        }
        Tree { paths, names: names.into_iter().collect::<Vec<_>>().join("\n") }
    }

    /// Whether this word is no path of the tree, or one that exists. `folder` is the folder of the file that mentions it.
    fn has_path(&self, word: &str, folder: &str) -> bool {
        let Some((first, rest)) = word.split_once('/') else { return true };
        let is_ours = self.paths.contains(first) && first != "target";
        let is_below_src = self.paths.contains(&format!("src/{first}")) && rest.contains('.');
        if !is_ours && !is_below_src || FOREIGN.iter().any(|foreign| word.starts_with(foreign)) {
            return true;
        }
        // `fuzz/corpus/TARGET`, `src/ui/…`: the part before is a path.
        let is_variable = |part: &str| part.contains(['*', '…']) || !part.contains(|c: char| !c.is_ascii_uppercase());
        let known: Vec<&str> = word.split('/').take_while(|part| !is_variable(part)).collect();
        let known = known.join("/");
        ["", "src/", "tests/", folder].into_iter().any(|place| self.paths.contains(&format!("{place}{known}")))
    }

    fn has_module(&self, word: &str) -> bool {
        let Some(module) = word.strip_suffix("::") else { return true };
        let path = module.replace("::", "/");
        let is_name = !path.is_empty() && path.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '/');
        !is_name
            || ["src/", "tests/"]
                .into_iter()
                .any(|place| self.paths.contains(&format!("{place}{path}")) || self.paths.contains(&format!("{place}{path}.rs")))
    }

    fn has_name(&self, word: &str, parts: usize) -> bool {
        let is_name = word.split('_').count() >= parts
            && word.split('_').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        !is_name || self.names.contains(word)
    }
}

/// Returns the mentions of nothing in a file, with their places.
pub(super) fn unknown(source: &Source, tree: &Tree) -> Vec<String> {
    let kind = kind(&source.path);
    if LEFT_OUT.iter().any(|left_out| source.path.starts_with(left_out)) {
        return Vec::new();
    }
    let folder = source.path.rfind('/').and_then(|at| source.path.get(..=at)).unwrap_or_default();
    let parts = if kind == Kind::Code { 5 } else { 4 };
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let said = said(kind, line);
        let of_paths = said.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '/' | '-' | '*' | '…'));
        let of_modules = said.split(char::is_whitespace).filter(|_| kind == Kind::Script);
        let of_names = said.split(|c: char| !c.is_alphanumeric() && c != '_');
        let paths = of_paths.map(|word| word.trim_end_matches(['.', '/', '-'])).filter(|word| !tree.has_path(word, folder));
        let modules = of_modules.filter(|word| !tree.has_module(word));
        let names = of_names.filter(|word| !tree.has_name(word, parts));
        found.extend(paths.chain(modules).chain(names).map(|word| format!("{}:{}: {word}", source.path, number + 1)));
    }
    found
}
