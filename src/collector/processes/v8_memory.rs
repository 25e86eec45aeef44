//! Reads functions of V8 from memory of processes, on the threads of [`reader`](super::reader).

use super::interpreter::CodeKey;
use super::process_memory::ProcessMemory;
use crate::runtimes::v8::{Function, Known, Layout, Reader};

/// A question about a function. With the address of an instruction of its compiled code: which functions run there? With 0: what is it?
pub(crate) type Asked = (CodeKey, u64);
/// Functions with their lines, those that were inlined first. A line of 0 is not known.
pub(crate) type Calls = Box<[(CodeKey, u32)]>;

/// Functions of a process, and the functions of instructions.
pub(super) type FunctionsAndCalls = (Vec<(CodeKey, Option<Function>)>, Vec<(Asked, Calls)>);

/// Reads functions of a process, and the functions of instructions. A function is `None` if it is gone, or if another one is in its place by now.
pub(super) fn functions(tgid: u32, layout: &Layout, known: &mut Known, wanted: &[Asked]) -> FunctionsAndCalls {
    let (mut functions, mut instructions) = (Vec::new(), Vec::new());
    let Some(memory) = ProcessMemory::open(tgid) else { return (functions, instructions) };
    let mut reader = Reader::new(&memory, layout, known);
    for &(key, instruction) in wanted {
        let (shared, check) = key;
        let is_it = || Function::check(&memory, layout, shared) == Some(check);
        if instruction == 0 {
            let function = if is_it() { reader.function(shared) } else { None };
            // It may have gone while it was read.
            functions.push((key, function.filter(|_| is_it())));
            continue;
        }
        let calls = reader.calls(shared, instruction).filter(|_| is_it());
        let calls = calls.map(|calls| calls.iter().map(|call| ((call.shared, call.check), call.line)).collect::<Calls>());
        // Without its code, only the function is known.
        instructions.push(((key, instruction), calls.unwrap_or_else(|| Box::new([(key, 0)]))));
    }
    (functions, instructions)
}
