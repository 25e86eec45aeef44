//! Functions of the languages that flametop knows, and reading them from the memory of a process.

use std::sync::{Arc, Mutex};

use super::interpreter::{self, CodeKey};
use super::v8_memory;
use crate::locks::lock;
use crate::runtimes::python::{self, Layout};
use crate::runtimes::v8;

/// The runtime of functions, and where fields are in its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Runtime {
    /// CPython.
    Python(Box<Layout>),
    /// V8.
    JavaScript(Arc<v8::Layout>, SourcesOfProcess),
}

/// What is known of the sources of a process's scripts. A worker reads them.
#[derive(Clone, Default, Debug)]
pub(crate) struct SourcesOfProcess(Arc<Mutex<v8::Sources>>);

impl PartialEq for SourcesOfProcess {
    fn eq(&self, other: &SourcesOfProcess) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SourcesOfProcess {}

/// A function that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    /// Of Python.
    Python(python::Code),
    /// Of JavaScript.
    JavaScript(v8::Function),
}

impl Code {
    /// Returns the bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        match self {
            Code::Python(code) => code.size(),
            Code::JavaScript(function) => function.size(),
        }
    }

    /// Whether the interpreter made it, and no programmer wrote it.
    pub(super) fn is_hidden(&self) -> bool {
        matches!(self, Code::Python(code) if code.is_shim())
    }

    /// Returns the path of its file, if it is in one.
    pub(super) fn file(&self) -> Option<&str> {
        let file = match self {
            Code::Python(code) => &code.file,
            Code::JavaScript(function) => &function.file,
        };
        Some(&**file).filter(|file| !file.is_empty())
    }
}

/// Reads functions of a process.
pub(super) fn read(tgid: u32, runtime: &Runtime, wanted: &[CodeKey]) -> Vec<(CodeKey, Option<Code>)> {
    match runtime {
        Runtime::Python(layout) => {
            let read = interpreter::functions(tgid, layout, wanted).into_iter();
            read.map(|(key, code)| (key, code.map(Code::Python))).collect()
        }
        Runtime::JavaScript(layout, SourcesOfProcess(sources)) => {
            let read = v8_memory::functions(tgid, layout, &mut lock(sources), wanted).into_iter();
            read.map(|(key, function)| (key, function.map(Code::JavaScript))).collect()
        }
    }
}
