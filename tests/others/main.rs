//! Reads files of other profilers and compares with what their own tools make of them.
//!
//! Each rule is tested with inputs of ours. Files of other projects lie in `../shared/data`, outside the repository, because their licences
//! differ. They are read as well where that folder is there; elsewhere the tests say so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod convert;
mod fetch;
mod json;
mod otlp;
mod perf_data;
mod perf_script;
mod pprof;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flametop::formats::folded::{FoldedOptions, write};
use flametop::formats::{Destination, FormatError, Opened, ThisMachine};
use flametop::profile::{
    CallTree, Capabilities, EventSource, Grouping, Names, Processes, Profile, Progress, Query, Timestamp, Unit, ViewBuilder,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// The files of this kind of other projects, if they are there.
fn data(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(kind);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("NOT TESTED: files of other projects; there is no folder {}", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// An opened file.
struct File {
    names: Arc<Names>,
    profile: Profile,
    opened: Opened,
}

impl File {
    fn try_open(bytes: &[u8]) -> Result<File, FormatError> {
        let names = Arc::new(Names::default());
        let mut profile = Profile::fixed(Capabilities::STACKS);
        let into = &mut Destination {
            names: &names,
            processes: &Processes::default(),
            profile: &mut profile,
            before: None,
            machine: ThisMachine::default(),
        };
        let opened = flametop::formats::open(bytes, into)?;
        Ok(File { names, profile, opened })
    }

    #[track_caller]
    fn open(bytes: &[u8]) -> File {
        File::try_open(bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The tree of the source that is shown first, by the names of processes if the file has them.
    fn tree(&self) -> CallTree {
        let grouping = if self.profile.capabilities().threads { Grouping::Name } else { Grouping::None };
        self.tree_of(Query { grouping, source: self.opened.source, ..Query::default() })
    }

    fn tree_of(&self, query: Query) -> CallTree {
        let mut view = ViewBuilder::new(Arc::clone(&self.names), query);
        while view.update(&self.profile, Timestamp(u64::MAX), usize::MAX) == Progress::More {}
        view.take_tree()
    }

    /// Its folded stacks, in the order of their bytes.
    fn folded(&self) -> String {
        folded(&self.tree(), &self.names)
    }
}

/// The folded stacks of a tree, in the order of their bytes.
fn folded(tree: &CallTree, names: &Names) -> String {
    let mut out = Vec::new();
    write(tree, &names.labels, CallTree::ROOT, FoldedOptions::default(), &mut out).unwrap();
    sorted(&String::from_utf8(out).unwrap())
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n") + "\n"
}

/// Reads pieces of files in any order, and cut anywhere: nothing makes a reader stumble.
fn stumble(pieces: &[&[u8]]) {
    let piece = prop_oneof![
        9 => (0..pieces.len()).prop_map(|at| pieces[at].to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let files = (prop::collection::vec(piece, 0..40), any::<prop::sample::Index>());
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&files, |(pieces, cut)| {
        let mut bytes = pieces.concat();
        bytes.truncate(cut.index(bytes.len() + 1).max(bytes.len() / 2));
        if let Ok(file) = File::try_open(&bytes) {
            let samples = file.profile.samples.slices_from(0).flatten();
            let shown = samples.filter(|sample| file.opened.source.is_none_or(|source| source == sample.source));
            prop_assert_eq!(file.tree().total(), shown.map(|sample| sample.weight).sum::<u64>());
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
