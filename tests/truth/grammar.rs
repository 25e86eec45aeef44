//! Decides which stacks are legal: reads a graph of calls from the sources of test programs, and compares stacks with it.
//!
//! The lines are explained in `tests/programs/truth/truth.h`. A node of the graph is a function's name, or a run of frames of a
//! library. A stack is right if and only if its frames, root first, are a path from a root. A stack with a missing, extra or
//! wrong frame is no path, as every function has one place. A stack whose leaf side is a path that does not begin at a root is
//! incomplete; every other stack is wrong.

use std::collections::{BTreeMap, BTreeSet};

/// Location of a frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// In a program or library that was built for the test: all names of the function there, if it has one.
    Built(Vec<String>),
    /// In a linkage stub of such a file.
    Plt,
    /// In a library of the system: its kind, as lines of grammars call it; two with a `|` between where it may be either.
    Library(&'static str),
    /// Anywhere else: never legal; the text is for messages.
    Strange(String),
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Built(names) => formatter.write_str(names.first().map_or("[no name]", |name| name)),
            Place::Plt => formatter.write_str("[plt]"),
            Place::Library(kind) => write!(formatter, "[{kind}]"),
            Place::Strange(text) => write!(formatter, "?{text}?"),
        }
    }
}

#[derive(Clone, Debug)]
enum Matcher {
    Function(String),
    Stretch(Vec<String>),
}

#[derive(Clone, Debug)]
struct Node {
    matcher: Matcher,
    root: bool,
}

/// Entry node and exit nodes of one word of a line.
#[derive(Clone, Debug, Default)]
struct Part {
    first: usize,
    last: Vec<usize>,
}

/// The calls of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grammar {
    nodes: Vec<Node>,
    next: Vec<BTreeSet<usize>>,
    parts: BTreeMap<String, Part>,
    declared: BTreeSet<String>,
    /// Program and libraries are in one file: a function that no line declares is a library's.
    is_static: bool,
}

/// Result for a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A path from a root to the leaf.
    Whole,
    /// A path, but not from a root.
    Incomplete,
    /// No path: the number of the first frame, from the leaf, that no path to the leaf has.
    Wrong(usize),
}

impl Grammar {
    /// Reads the lines of these sources.
    pub(crate) fn read(sources: &[&str], is_static: bool) -> Grammar {
        let mut grammar = Grammar { is_static, ..Grammar::default() };
        let lines = || sources.iter().flat_map(|source| source.lines()).filter_map(|line| line.trim().strip_prefix("//= "));
        // Names first: a star means all of them.
        let mut stars = Vec::new();
        for line in lines() {
            let steps: Vec<Vec<Part>> =
                line.split(" > ").map(|step| step.split(" | ").map(|word| grammar.part(word.trim())).collect()).collect();
            for pair in steps.windows(2) {
                for (from, to) in pair[0].iter().flat_map(|from| pair[1].iter().map(move |to| (from, to))) {
                    if from.last.is_empty() {
                        stars.push(to.first);
                    }
                    for last in &from.last {
                        grammar.next[*last].insert(to.first);
                    }
                }
            }
        }
        grammar.bind_lazily();
        for target in stars {
            for node in 0..grammar.nodes.len() {
                grammar.next[node].insert(target);
            }
        }
        assert!(grammar.nodes.iter().any(|node| node.root), "a grammar without a root");
        grammar
    }

    /// Lets each function of the program be in a linkage stub, or in the linker that binds its call. This includes functions that
    /// no line declares: the compiler's `__do_global_dtors_aux` calls `__cxa_finalize` through a stub. The linker may ask the
    /// library for the best of several implementations.
    fn bind_lazily(&mut self) {
        let [stub, bind] = ["<plt:call>*1", "<ld:bind>"].map(|word| self.part(word));
        let chosen = self.part("<libc:chosen>");
        self.next[bind.first].insert(chosen.first);
        for node in 0..self.nodes.len() {
            self.next[node].insert(bind.first);
            let of_program = match &self.nodes[node].matcher {
                Matcher::Function(_) => true,
                Matcher::Stretch(kinds) => kinds.iter().any(|kind| kind == "rest"),
            };
            if of_program {
                self.next[node].insert(stub.first);
            }
        }
    }

    fn node(&mut self, matcher: Matcher, root: bool) -> usize {
        self.nodes.push(Node { matcher, root });
        self.next.push(BTreeSet::new());
        self.nodes.len() - 1
    }

    /// The nodes of a word, made if it is new. A star has none.
    fn part(&mut self, word: &str) -> Part {
        let (root, word) = word.strip_prefix('^').map_or((false, word), |word| (true, word));
        if word == "*" {
            return Part::default();
        }
        if let Some(part) = self.parts.get(word) {
            assert!(!root || self.nodes[part.first].root, "{word} was no root before");
            return part.clone();
        }
        let part = if let Some(inner) = word.strip_prefix('<') {
            self.stretch(word, inner, root)
        } else if let Some((name, numbers)) = word.strip_suffix(']').and_then(|word| word.split_once('[')) {
            self.chain(name, numbers, root)
        } else {
            self.declared.insert(word.to_owned());
            let node = self.node(Matcher::Function(word.to_owned()), root);
            Part { first: node, last: vec![node] }
        };
        self.parts.insert(word.to_owned(), part.clone());
        part
    }

    /// `<kinds:name>`, `<kinds:name>*2`, `<kinds:name>*1..3`
    fn stretch(&mut self, word: &str, inner: &str, root: bool) -> Part {
        let (inside, count) = inner.split_once('>').unwrap_or_else(|| panic!("{word}: no end"));
        let (kinds, _) = inside.split_once(':').unwrap_or_else(|| panic!("{word}: no name"));
        let matcher = Matcher::Stretch(kinds.split(',').map(str::to_owned).collect());
        let Some(count) = count.strip_prefix('*') else {
            assert!(count.is_empty(), "{word}: what is {count}?");
            let node = self.node(matcher, root);
            self.next[node].insert(node);
            return Part { first: node, last: vec![node] };
        };
        let (least, most) = count.split_once("..").unwrap_or((count, count));
        let [least, most] = [least, most].map(|number| number.parse::<usize>().unwrap_or_else(|_| panic!("{word}: no number")));
        let nodes: Vec<usize> = (0..most).map(|n| self.node(matcher.clone(), root && n == 0)).collect();
        for pair in nodes.windows(2) {
            self.next[pair[0]].insert(pair[1]);
        }
        Part { first: nodes[0], last: nodes[least - 1..].to_vec() }
    }

    /// `f[00..19]`: f00 > f01 > … > f19; each is also a separate word.
    fn chain(&mut self, name: &str, numbers: &str, root: bool) -> Part {
        let (from, to) = numbers.split_once("..").unwrap_or_else(|| panic!("{name}[{numbers}]: no range"));
        let width = from.len();
        let [from, to] = [from, to].map(|number| number.parse::<usize>().unwrap_or_else(|_| panic!("{name}[{numbers}]")));
        let all: Vec<Part> = (from..=to)
            .map(|number| {
                let mark = if root && number == from { "^" } else { "" };
                self.part(&format!("{mark}{name}{number:0width$}"))
            })
            .collect();
        for pair in all.windows(2) {
            self.next[pair[0].first].insert(pair[1].first);
        }
        Part { first: all[0].first, last: vec![all[all.len() - 1].first] }
    }

    fn matches(&self, node: usize, place: &Place) -> bool {
        // A static program contains all libraries, but no linker.
        let own = |kind: &String| kind == "rest" || self.is_static && !matches!(&**kind, "ld" | "ldentry" | "plt" | "clone");
        match (&self.nodes[node].matcher, place) {
            (Matcher::Function(function), Place::Built(names)) => names.contains(function),
            (Matcher::Stretch(kinds), Place::Built(names)) => {
                !names.iter().any(|name| self.declared.contains(name)) && kinds.iter().any(own)
            }
            (Matcher::Stretch(kinds), Place::Plt) => kinds.iter().any(|kind| kind == "plt" || self.is_static && own(kind)),
            (Matcher::Stretch(kinds), Place::Library(kind)) => kinds.iter().any(|own| kind.split('|').any(|kind| kind == own)),
            (Matcher::Function(_), _) | (_, Place::Strange(_)) => false,
        }
    }

    /// Returns the nodes that a place may be. Call it once for each place.
    pub(crate) fn nodes_of(&self, place: &Place) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.matches(*node, place)).collect()
    }

    /// Follows a stack, root first: for each frame, the nodes it may be.
    pub(crate) fn judge(&self, stack: &[&[usize]]) -> Verdict {
        let Some((first, _)) = stack.split_first() else { return Verdict::Incomplete };
        let roots: Vec<usize> = first.iter().copied().filter(|node| self.nodes[*node].root).collect();
        if self.follow(&roots, stack) {
            return Verdict::Whole;
        }
        // Backward from the leaf, to find the wrong frame: callers of the reached nodes.
        let Some((leaf, callers)) = stack.split_last() else { return Verdict::Incomplete };
        let mut reached: Vec<usize> = leaf.to_vec();
        for (depth, nodes) in callers.iter().rev().enumerate() {
            if reached.is_empty() {
                return Verdict::Wrong(depth);
            }
            reached =
                nodes.iter().copied().filter(|node| reached.iter().any(|callee| self.next[*node].contains(callee))).collect();
        }
        if reached.is_empty() { Verdict::Wrong(stack.len() - 1) } else { Verdict::Incomplete }
    }

    fn follow(&self, starts: &[usize], stack: &[&[usize]]) -> bool {
        let mut reached = starts.to_vec();
        for nodes in stack.iter().skip(1) {
            reached =
                nodes.iter().copied().filter(|node| reached.iter().any(|caller| self.next[*caller].contains(node))).collect();
            if reached.is_empty() {
                return false;
            }
        }
        !reached.is_empty()
    }
}

#[test]
fn a_stack_is_right_if_and_only_if_it_is_a_path_from_a_root() {
    let lines = "//= ^_start > <libc:start>*1..2 > main\n//= main > f[00..19] > burn\n  //= main > sort > <libc:sort> > compare\n\
                 //= * > <libc:signal>*1 > handler\n//= ^<clone:t>*1 > <libc:t>*1 > thread";
    let grammar = Grammar::read(&[lines], false);
    let judge = |stack: &[&str]| {
        let place = |name: &&str| match *name {
            "[libc]" => Place::Library("libc"),
            "[clone]" => Place::Library("clone"),
            "[ld]" => Place::Library("ld"),
            "[plt]" => Place::Plt,
            "?" => Place::Strange("?".to_owned()),
            name => Place::Built(vec![name.to_owned()]),
        };
        let nodes: Vec<Vec<usize>> = stack.iter().map(|name| grammar.nodes_of(&place(name))).collect();
        grammar.judge(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    let chain: Vec<String> = (0..20).map(|n| format!("f{n:02}")).collect();
    let whole: Vec<&str> =
        ["_start", "[libc]", "[libc]", "main"].into_iter().chain(chain.iter().map(String::as_str)).chain(["burn"]).collect();
    assert_eq!(judge(&whole), Verdict::Whole);
    // Every beginning of it is also whole: the leaf may be anywhere.
    assert!((1..whole.len()).all(|length| judge(&whole[..length]) == Verdict::Whole));
    // Every end of it is incomplete.
    assert!((1..whole.len()).all(|from| judge(&whole[from..]) == Verdict::Incomplete));
    // Each missing inner frame is detected, but not one of two in a library.
    for missing in 3..whole.len() - 1 {
        let mut stack = whole.clone();
        stack.remove(missing);
        assert_eq!(judge(&stack), Verdict::Wrong(whole.len() - 1 - missing), "without {}", whole[missing]);
    }
    // Each frame that is doubled or strange is detected as well.
    for (at, extra) in (3..whole.len()).zip(["?", "main", "sort", "burn", "compare"].iter().cycle()) {
        let mut stack = whole.clone();
        stack.insert(at, extra);
        assert!(matches!(judge(&stack), Verdict::Wrong(_)), "{extra} at {at}");
    }
    assert_eq!(judge(&["_start", "[libc]", "[libc]", "[libc]", "main"]), Verdict::Wrong(3));
    assert_eq!(judge(&["_start", "[libc]", "main", "sort", "[libc]", "[libc]", "[libc]", "compare"]), Verdict::Whole);
    assert_eq!(judge(&["_start", "[libc]", "main", "[libc]", "[libc]", "compare"]), Verdict::Wrong(3));
    assert_eq!(judge(&["_start", "[libc]", "main", "f00", "[libc]", "handler", "[libc]", "handler"]), Verdict::Whole);
    assert_eq!(judge(&["_start", "[libc]", "main", "sort", "[plt]"]), Verdict::Whole);
    assert_eq!(judge(&["_start", "[libc]", "main", "sort", "[ld]", "[ld]", "[libc]"]), Verdict::Whole);
    assert_eq!(judge(&["_start", "[libc]", "main", "[plt]", "sort"]), Verdict::Wrong(1));
    assert_eq!(judge(&["[clone]", "[libc]", "thread"]), Verdict::Whole);
    assert_eq!(judge(&["[libc]", "[libc]", "thread"]), Verdict::Wrong(2));
    assert_eq!(judge(&["[libc]", "thread"]), Verdict::Incomplete);
    assert_eq!(judge(&[]), Verdict::Incomplete);
}

/// `exit` in a program that is linked with the compiler's start and end files: seen in the storm of short processes.
#[test]
fn a_function_that_no_line_declares_may_be_in_a_linkage_stub() {
    let lines = "//= ^_start > <libc:start>*1..3 > main | <libc:boot>\n//= <libc:boot> > <ld:exit> > <rest:boot>";
    let grammar = Grammar::read(&[lines], false);
    let place = |name: &&str| match *name {
        "[libc]" => Place::Library("libc"),
        "[ld]" => Place::Library("ld"),
        "[plt]" => Place::Plt,
        name => Place::Built(vec![name.to_owned()]),
    };
    let judge = |stack: &[&str]| {
        let nodes: Vec<Vec<usize>> = stack.iter().map(|name| grammar.nodes_of(&place(name))).collect();
        grammar.judge(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    let at_exit = ["_start", "[libc]", "[libc]", "[libc]", "[ld]", "[ld]", "__do_global_dtors_aux", "[plt]"];
    assert_eq!(judge(&at_exit), Verdict::Whole);
    assert!(matches!(judge(&["_start", "[libc]", "main", "__do_global_dtors_aux", "[plt]"]), Verdict::Wrong(_)));
}

#[test]
fn in_a_static_program_a_library_is_what_no_line_declares() {
    let grammar = Grammar::read(&["//= ^_start > <libc:start>*1..2 > main > <ld:never>"], true);
    let nodes = |name: &str| grammar.nodes_of(&Place::Built(vec![name.to_owned()]));
    let judge = |stack: &[&str]| {
        let nodes: Vec<Vec<usize>> = stack.iter().map(|name| nodes(name)).collect();
        grammar.judge(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    assert_eq!(judge(&["_start", "__libc_start_main", "main"]), Verdict::Whole);
    assert_eq!(judge(&["_start", "_start", "main"]), Verdict::Wrong(1));
    assert_eq!(judge(&["_start", "main"]), Verdict::Wrong(1));
    assert_eq!(judge(&["__libc_start_main", "main"]), Verdict::Incomplete);
}
