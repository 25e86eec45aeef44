//! A symbolizer with its runtime, and programs to test it with.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use flametop::object::open::own_files;
use flametop::profile::{
    BuildId, FileOffset, Frame, FrameId, FrameKind, FrameWeight, LabelId, Listing, NameRequest, Names, Object, ObjectId,
    ObjectKind, ProcessAddress, Tgid, UserId,
};
use flametop::symbolize::{Problem, Symbolizer};

use crate::oracle::run;

pub(crate) struct Bench {
    pub(crate) names: Arc<Names>,
    pub(crate) symbolizer: Symbolizer,
    runtime: tokio::runtime::Runtime,
}

/// Final name of a frame.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) object: String,
    pub(crate) kind: FrameKind,
    pub(crate) provisional: bool,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let names = Arc::new(Names::default());
        let symbolizer = Symbolizer::start(Arc::clone(&names), runtime.handle().clone());
        Bench { names, symbolizer, runtime }
    }

    /// An object for a file in its current state: by build id if it is given, by device and inode if not.
    pub(crate) fn object(&self, path: &Path, build_id: Option<&[u8]>) -> ObjectId {
        let file = path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let build_id = build_id.and_then(BuildId::new);
        let file = if build_id.is_some() { None } else { file };
        self.names.objects.intern(Object {
            kind: ObjectKind::Elf,
            path: path.to_str().unwrap().into(),
            build_id,
            file,
            ..Default::default()
        })
    }

    pub(crate) fn frame(&self, object: ObjectId, address: u64, is_return: bool) -> FrameId {
        self.names.intern_frame(Frame::File { object, offset: FileOffset(address), is_return }).0
    }

    /// Asks for all frames and waits for them.
    pub(crate) fn name(&self, frames: &[FrameId], tgid: u32, mapping: std::ops::Range<u64>) {
        let mapping = ProcessAddress(mapping.start)..ProcessAddress(mapping.end);
        let request = |frame: &FrameId| NameRequest {
            frame: *frame,
            tgid: Tgid(tgid),
            user: UserId(0),
            files: own_files(),
            mapping: mapping.clone(),
        };
        self.symbolizer.request(frames.iter().map(request));
        let settled = self.runtime.block_on(self.symbolizer.settled(Duration::from_secs(120)));
        assert!(settled, "{} frames are still waiting", self.symbolizer.pending());
    }

    /// The frames of these offsets, named.
    pub(crate) fn names_at(&self, object: ObjectId, offsets: &[u64]) -> Vec<Named> {
        let frames: Vec<FrameId> = offsets.iter().map(|offset| self.frame(object, *offset, false)).collect();
        self.name(&frames, std::process::id(), 0..0);
        frames.iter().map(|frame| self.named(*frame)).collect()
    }

    pub(crate) fn named(&self, frame: FrameId) -> Named {
        let mut labels: Vec<LabelId> = Vec::new();
        self.names.labels_of(frame, |label| labels.push(label));
        // Labels of inlined functions come after it.
        let label = self.names.labels.get(labels[0]).unwrap();
        let (name, object) = (label.name.to_string(), label.object.to_string());
        Named { name, object, kind: label.kind, provisional: label.provisional }
    }

    /// Names of a frame's functions, root first, and whether each was inlined.
    pub(crate) fn chain(&self, frame: FrameId) -> Vec<(String, bool)> {
        let mut chain = Vec::new();
        self.names.labels_of(frame, |label| {
            let label = self.names.labels.get(label).unwrap();
            chain.push((label.name.to_string(), label.kind == FrameKind::Inlined));
        });
        chain
    }

    pub(crate) fn problem(&self, object: ObjectId) -> Option<Problem> {
        self.symbolizer.problems().into_iter().find(|problem| problem.object == object)
    }

    /// A function's listing, of frames that weigh the same.
    pub(crate) fn listing(&self, label: LabelId, frames: &[FrameId]) -> Result<Listing, String> {
        self.listing_by(label, frames, None)
    }

    /// A function's listing, of weighed frames, the heaviest first.
    pub(crate) fn listing_of(&self, label: LabelId, frames: Vec<FrameWeight>) -> Result<Listing, String> {
        self.runtime.block_on(self.symbolizer.listing(label, frames, None)).unwrap()
    }

    /// [`Bench::listing`] of the function that has an address.
    pub(crate) fn listing_by(&self, label: LabelId, frames: &[FrameId], by: Option<FrameId>) -> Result<Listing, String> {
        let frames = frames.iter().map(|frame| FrameWeight { frame: *frame, own: 1, total: 1 }).collect();
        self.runtime.block_on(self.symbolizer.listing(label, frames, by)).unwrap()
    }

    pub(crate) fn locate(&self, frame: FrameId) -> Option<(String, u32)> {
        let location = self.runtime.block_on(self.symbolizer.locate(frame)).unwrap()?;
        Some((location.file.to_string(), location.line))
    }
}

/// Builds a program or library from source with gcc or g++.
pub(crate) fn build(directory: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let output = directory.join(name);
    let cpp = source.contains("namespace");
    let file = directory.join(format!("{name}.{}", if cpp { "cc" } else { "c" }));
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new(if cpp { "g++" } else { "gcc" });
    run(compiler.args(["-O1", "-fno-inline", "-Wl,--build-id"]).args(options).arg("-o").arg(&output).arg(&file));
    output
}

/// C with what makes symbol tables interesting: statics, aliases, assembly with and without size, a label, a nested function
/// symbol, a function that ends in a call that never returns.
pub(crate) const C: &str = r#"
#include <stdlib.h>
#include <unistd.h>
static int helper(int a) { return a * 3; }
int public_one(int a) { return helper(a) + 1; }
int __alias_one(int) __attribute__((alias("public_one")));
int alias_one_too(int) __attribute__((weak, alias("public_one")));
__asm__(".text\n.globl asm_without_size\nasm_without_size:\n nop\n nop\n nop\n ret\n"
        ".globl asm_next\nasm_next:\n nop\n ret\n .p2align 4\n"
        ".globl asm_sized\n.type asm_sized,@function\nasm_sized:\n nop\nasm_label:\n nop\n ret\n.size asm_sized,.-asm_sized\n");
int asm_without_size(void); int asm_sized(void);
__attribute__((noinline, noreturn)) void dies(void) { abort(); }
int main(int c, char **v) { if (c > 9) dies(); if (c > 1) pause(); return public_one(c) - asm_sized(); }
"#;

pub(crate) const CPP: &str = r#"
#include <vector>
#include <string>
namespace shop { template <class T> struct Till { T sum{}; Till() ; T add(T v); };
template <class T> Till<T>::Till() { sum = T(); }
template <class T> T Till<T>::add(T v) { sum += v; return sum; }
template struct Till<int>; template struct Till<std::string>;
int count(const std::vector<int>& v) { int n = 0; for (int i : v) n += i; return n; } }
int main(int c, char**) { shop::Till<int> t; return t.add(c) + shop::count({1, 2, c}); }
"#;
