//! Languages whose functions have frames of their own, because a runtime runs them or makes their code.

/// A language with a runtime that flametop knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Language {
    /// Python, run by CPython.
    Python,
    /// JavaScript, run by V8.
    JavaScript,
    /// Java and other languages of the JVM, run by HotSpot.
    Java,
}

impl Language {
    /// All languages, in the order of legends.
    pub const ALL: [Language; 3] = [Language::Python, Language::JavaScript, Language::Java];

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Language::Python => "Python",
            Language::JavaScript => "JavaScript",
            Language::Java => "Java",
        }
    }

    /// Returns the mark beside the names of its functions.
    pub fn mark(self) -> &'static str {
        match self {
            Language::Python => "[py]",
            Language::JavaScript => "[js]",
            Language::Java => "[java]",
        }
    }

    /// Returns the annotation of its functions in folded stacks.
    pub fn annotation(self) -> &'static str {
        match self {
            Language::Python => "_[p]",
            Language::JavaScript => "_[s]",
            Language::Java => "_[v]",
        }
    }

    /// Returns the language of a source file, by the end of its name.
    pub fn of_file(path: &str) -> Option<Language> {
        let ending = path.rsplit_once('.')?.1;
        match ending {
            "py" => Some(Language::Python),
            "js" | "mjs" | "cjs" | "ts" | "mts" | "cts" | "jsx" | "tsx" => Some(Language::JavaScript),
            "java" | "kt" | "scala" | "groovy" | "clj" => Some(Language::Java),
            _ => None,
        }
    }
}
