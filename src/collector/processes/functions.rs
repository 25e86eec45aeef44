//! Functions of the languages that flametop knows, and reading them from the memory of a process.

use std::sync::{Arc, Mutex};

use super::interpreter::{self, CodeKey};
use super::jvm_memory::{self, Found, Jvm};
use super::v8_memory::{self, Asked, Calls};
use crate::locks::lock;
use crate::runtimes::python::{self, Layout};
use crate::runtimes::{hotspot, v8};

/// The runtime of functions, and where fields are in its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Runtime {
    /// CPython.
    Python(Box<Layout>),
    /// V8.
    JavaScript(Arc<v8::Layout>, HeapOfProcess),
    /// HotSpot.
    Java(Arc<Jvm>),
}

/// The known sources and codes of a process. A worker uses them to read functions.
#[derive(Clone, Default, Debug)]
pub(crate) struct HeapOfProcess(Arc<Mutex<v8::Known>>);

impl PartialEq for HeapOfProcess {
    fn eq(&self, other: &HeapOfProcess) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HeapOfProcess {}

/// Functions that were read, and those of instructions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FunctionsRead {
    /// Functions. `None`: gone, or another one is in its place by now.
    pub(super) functions: Vec<(CodeKey, Option<Code>)>,
    /// The functions of instructions.
    pub(super) calls: Vec<(Asked, Calls)>,
}

/// A function that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    /// Of Python.
    Python(python::Code),
    /// Of JavaScript.
    JavaScript(v8::Function),
    /// A method of Java.
    Java(hotspot::Method),
    /// Code of a JVM that is no method's: its name.
    Stub(String),
}

impl Code {
    /// Returns the bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        match self {
            Code::Python(code) => code.size(),
            Code::JavaScript(function) => function.size(),
            Code::Java(method) => method.size(),
            Code::Stub(name) => name.len(),
        }
    }

    /// Whether the interpreter made it, and no programmer wrote it.
    pub(super) fn is_hidden(&self) -> bool {
        matches!(self, Code::Python(code) if code.is_shim())
    }

    /// Returns the path of its file, if it is in one.
    pub(super) fn file(&self) -> Option<&str> {
        let file: &str = match self {
            Code::Python(code) => &code.file,
            Code::JavaScript(function) => &function.file,
            Code::Java(method) => &method.file,
            Code::Stub(_) => "",
        };
        Some(file).filter(|file| !file.is_empty())
    }
}

/// Reads functions of a process.
pub(super) fn read(tgid: u32, runtime: &Runtime, wanted: &[Asked]) -> FunctionsRead {
    match runtime {
        Runtime::Python(layout) => {
            let keys: Vec<CodeKey> = wanted.iter().map(|(key, _)| *key).collect();
            let read = interpreter::functions(tgid, layout, &keys).into_iter();
            FunctionsRead { functions: read.map(|(key, code)| (key, code.map(Code::Python))).collect(), calls: Vec::new() }
        }
        Runtime::JavaScript(layout, HeapOfProcess(known)) => {
            let (functions, calls) = v8_memory::functions(tgid, layout, &mut lock(known), wanted);
            let functions = functions.into_iter().map(|(key, function)| (key, function.map(Code::JavaScript)));
            FunctionsRead { functions: functions.collect(), calls }
        }
        Runtime::Java(jvm) => {
            let (found, calls) = jvm_memory::functions(tgid, jvm, wanted);
            let code = |found| match found {
                Found::Method(method) => Code::Java(method),
                Found::Stub(name) => Code::Stub(name),
            };
            FunctionsRead { functions: found.into_iter().map(|(key, found)| (key, found.map(code))).collect(), calls }
        }
    }
}
