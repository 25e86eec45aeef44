//! Functions: what a SharedFunctionInfo tells of one.

use super::code::Codes;
use super::heap::{Heap, address, smi};
use super::layout::Layout;
use super::lines::Lines;
use super::source::Sources;
use super::wasm;
use crate::runtimes::Memory;

/// Characters of a function's name that are read. The rest is cut off.
pub const MAX_NAME: u32 = 512;
/// Characters of a file's name that are read. The rest is cut off.
pub const MAX_FILE: u32 = 1024;
/// Bytes of sources whose lines one reader counts. The largest bundles have some 10 MB.
const MAX_SOURCES: u64 = 16 << 20;
/// Words that one reader looks at in search of code. Each costs a microsecond.
const MAX_WORDS: u32 = 1 << 14;
/// Words of a ScopeInfo after its variables that are searched for name, begin and end.
const WORDS_AFTER_VARIABLES: usize = 12;
/// Most variables of a ScopeInfo. A function with more has no name here.
const MAX_VARIABLES: u64 = 1 << 16;
/// More variables than these are not listed one by one, but in a table, which is one word.
const MAX_LISTED: u64 = 75;
/// How often a function is read if V8 moves its parts meanwhile.
const ATTEMPTS: usize = 3;

/// A function of JavaScript.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name. Empty if it has none.
    pub name: String,
    /// The file of its script: a path, or a name such as `node:internal/timers`. Empty if the script has none, or if V8 itself has the function.
    pub file: String,
    /// The line where it begins. 0: not known.
    pub first_line: u32,
    /// The column where its parameters begin. 0: not known.
    pub first_column: u32,
    /// The lines of its instructions.
    pub lines: Lines,
    /// Whether it has no place in a script: V8 itself has it, as `Array.prototype.map`, or it is a module of WebAssembly.
    pub is_builtin: bool,
}

impl Function {
    /// Returns a number that tells one SharedFunctionInfo from another that takes its address: of how many parameters it has, where its name is
    /// in the source, and its number among the functions of its script. BPF computes the same one (`check_of` in `bpf/walk/v8.h`).
    pub fn check(memory: &impl Memory, layout: &Layout, shared: u64) -> Option<u32> {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bytes = [0; 16];
        let at = address(shared)?.checked_add(layout.shared_check)?;
        let is_read = memory.read(at, &mut bytes);
        let word = |at| bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word));
        let mix = (word(0) << 16).wrapping_mul(FACTOR);
        is_read.then_some((((mix ^ word(8) >> 32).wrapping_mul(FACTOR)) >> 32) as u32)
    }

    fn built_in(name: String) -> Function {
        Function { name, file: String::new(), first_line: 0, first_column: 0, lines: Lines::default(), is_builtin: true }
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        size_of::<Function>() - size_of::<Lines>() + self.name.len() + self.file.len() + self.lines.size()
    }
}

/// The known sources and codes of one process.
#[derive(Default, Debug)]
pub struct Known {
    sources: Sources,
    codes: Codes,
}

/// Reads functions of one process.
pub struct Reader<'a, M> {
    heap: Heap<'a, M>,
    known: &'a mut Known,
    /// Bytes of sources that may still be read to count their lines.
    left: u64,
    /// Words that may still be read to find code.
    words_left: u32,
}

/// A function that runs, and the line. 0: not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its SharedFunctionInfo.
    pub shared: u64,
    /// See [`Function::check`].
    pub check: u32,
    /// The line that runs.
    pub line: u32,
}

/// What a ScopeInfo tells of its function.
#[derive(Default)]
struct Scope {
    name: Option<u64>,
    begin: Option<u32>,
}

impl<'a, M: Memory> Reader<'a, M> {
    /// Returns a reader of this memory. `known` is of the same process.
    pub fn new(memory: &'a M, layout: &'a Layout, known: &'a mut Known) -> Reader<'a, M> {
        Reader { heap: Heap { memory, layout }, known, left: MAX_SOURCES, words_left: MAX_WORDS }
    }

    /// Returns the functions that an instruction of a function's compiled code belongs to: those that were inlined first, and the function
    /// itself last. Returns `None` if it is no longer code of the function.
    pub fn calls(&mut self, shared: u64, instruction: u64) -> Option<Vec<Call>> {
        let heap = self.heap;
        // Code of WebAssembly has another header.
        if heap.type_of(shared)? != heap.layout.type_shared {
            return None;
        }
        let code = self.known.codes.at(&heap, instruction, &mut self.words_left)?;
        let places = code.places(&heap, shared, instruction)?;
        places.into_iter().map(|(shared, position)| self.call(shared, position)).collect()
    }

    /// Reads the function and the line of a position.
    fn call(&mut self, shared: u64, position: u32) -> Option<Call> {
        let heap = self.heap;
        let check = Function::check(heap.memory, heap.layout, shared)?;
        let script = heap.field(shared, heap.layout.shared_script)?;
        let is_script = heap.type_of(shared)? == heap.layout.type_shared && heap.type_of(script) == Some(heap.layout.type_script);
        let line = is_script.then(|| self.line(script, position)).flatten().unwrap_or(0);
        Some(Call { shared, check, line })
    }

    /// Returns the line of a position in a script.
    fn line(&mut self, script: u64, position: u32) -> Option<u32> {
        let source = |reader: &Self| reader.heap.field(script, reader.heap.layout.script_source);
        self.steadily(source, |reader| reader.known.sources.of(reader.heap, script, &mut reader.left)?.line_of(position))
    }

    /// Reads something, and again if V8 has moved a part of it meanwhile: the source of a script is a young object for the first milliseconds,
    /// and moves twice. `parts` returns where the parts are.
    fn steadily<P: PartialEq, T>(&mut self, parts: impl Fn(&Self) -> P, mut read: impl FnMut(&mut Self) -> T) -> T {
        let mut before = parts(self);
        let mut attempt = 1;
        loop {
            let found = read(self);
            let after = parts(self);
            if after == before || attempt == ATTEMPTS {
                return found;
            }
            before = after;
            attempt += 1;
        }
    }

    /// Returns where the parts of a function are.
    fn parts(&self, shared: u64) -> [Option<u64>; 4] {
        let Layout { shared_name, shared_script, script_name, script_source, .. } = *self.heap.layout;
        let script = self.heap.field(shared, shared_script);
        let of_script = |offset| script.and_then(|script| self.heap.field(script, offset));
        [self.heap.field(shared, shared_name), script, of_script(script_name), of_script(script_source)]
    }

    /// Reads the function of a SharedFunctionInfo. Returns `None` if it cannot be read, or if something else is there.
    pub fn function(&mut self, shared: u64) -> Option<Function> {
        self.steadily(|reader| reader.parts(shared), |reader| reader.function_now(shared))
    }

    fn function_now(&mut self, shared: u64) -> Option<Function> {
        let Heap { layout, .. } = self.heap;
        if self.heap.type_of(shared)? != layout.type_shared {
            return wasm::module(&self.heap, shared).map(Function::built_in);
        }
        let named = self.heap.field(shared, layout.shared_name)?;
        let scope = match self.heap.type_of(named)? {
            kind if kind < layout.first_nonstring => Scope { name: Some(named), begin: None },
            kind if kind == layout.type_scope => self.scope(named)?,
            _ => Scope::default(),
        };
        let name = scope.name.and_then(|name| self.heap.text(name, MAX_NAME)).unwrap_or_default();
        let script = self.heap.field(shared, layout.shared_script)?;
        let has_script = self.heap.type_of(script) == Some(layout.type_script);
        if !has_script {
            return Some(Function::built_in(name));
        }
        let file = self.heap.field(script, layout.script_name).filter(|name| self.heap.is_string(*name));
        let file = file.and_then(|name| self.heap.text(name, MAX_FILE)).unwrap_or_default();
        // Modules are called by URL.
        let file = file.strip_prefix("file://").map_or(file.clone(), str::to_owned);
        let name = wasm::exported(&name, &file).unwrap_or(name);
        let positions = self.positions(shared);
        let (mut begin, mut lines) = (None, Lines::default());
        let heap = self.heap;
        if let Some(mut source) = self.known.sources.of(heap, script, &mut self.left) {
            begin = scope.begin.and_then(|begin| source.line_of(begin).zip(source.column_of(begin)));
            lines = positions.map(|table| Lines::read(&heap, table, &mut source)).unwrap_or_default();
        }
        let (first_line, first_column) = begin.unwrap_or_default();
        Some(Function { name, file, first_line, first_column, lines, is_builtin: false })
    }

    /// Reads a ScopeInfo:
    ///
    /// ```text
    /// flags, parameters, variables n │ begin, end (from 12.8 on) │ n names, or a table │ n numbers │ … name │ number │ inferred name │ begin, end │ …
    /// ```
    fn scope(&self, scope: u64) -> Option<Scope> {
        const VARIABLES: u64 = 2;
        let word = |index: u64| self.heap.field(scope, 8 + 8 * index);
        let first = self.heap.layout.scope_first;
        let count = u64::try_from(smi(word(VARIABLES)?)?).ok().filter(|count| *count <= MAX_VARIABLES)?;
        let listed = if count > MAX_LISTED && !self.heap.is_string(word(first)?) { 1 } else { count };
        let after: Vec<u64> = (first + listed + count..).take(WORDS_AFTER_VARIABLES).map_while(word).collect();
        let begin = match first {
            0..=3 => begin_of(&after),
            _ => word(first - 2).and_then(smi),
        };
        // Name, a number, and the name that V8 inferred from the source. Other names may come before.
        let is_name = |at: &usize| {
            let word = |at: usize| after.get(at).copied();
            word(*at).is_some_and(|name| self.heap.is_string(name)) && word(at + 1).is_some_and(|number| smi(number).is_some())
        };
        let at = (0..after.len()).find(is_name);
        let text = |at: usize| after.get(at).copied().filter(|name| self.heap.is_string(*name));
        let is_empty = |name: u64| self.heap.flat(name).is_some_and(|name| name.length == 0);
        let name =
            at.and_then(text).map(|name| if is_empty(name) { at.and_then(|at| text(at + 2)).unwrap_or(name) } else { name });
        Some(Scope { name, begin: begin.and_then(|begin| u32::try_from(begin).ok()) })
    }

    /// Returns the table of positions of a function's bytecode.
    fn positions(&self, shared: u64) -> Option<u64> {
        /// In a SharedFunctionInfo: its bytecode, or what leads to it. And in InterpreterData: the BytecodeArray.
        const DATA: u64 = 8;
        let layout = self.heap.layout;
        let mut data = self.heap.field(shared, DATA)?;
        for _ in 0..3 {
            match self.heap.type_of(data)? {
                kind if kind == layout.type_bytecode => return self.heap.field(data, layout.bytecode_positions),
                kind if kind == layout.type_interpreter_data => data = self.heap.field(data, DATA)?,
                kind if kind == layout.type_code => data = self.heap.field(data, layout.code_data)?,
                _ => return None,
            }
        }
        None
    }
}

/// Returns the begin of a function, from the words after its variables. Begin and end are the last two numbers before a pointer.
fn begin_of(words: &[u64]) -> Option<i32> {
    let numbers: Vec<Option<i32>> = words.iter().map(|word| smi(*word)).collect();
    numbers.windows(3).find_map(|window| match window {
        [Some(begin), Some(end), None] if 0 <= *begin && begin <= end => Some(*begin),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;

    /// A function `f` of a file `/a.js`. Words by their addresses, and what the name of the file's slot contains the first time.
    struct Moving {
        words: HashMap<u64, u64>,
        first: Cell<Option<u64>>,
    }

    const MAPS: u64 = 0x100;
    const SHARED: u64 = 0x1000;
    const SCRIPT: u64 = 0x2000;
    const FILE_SLOT: u64 = SCRIPT + 16;

    impl Memory for Moving {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let first = if address == FILE_SLOT { self.first.take() } else { None };
            let byte = |at: u64| self.words.get(&(at & !7)).map(|word| word.to_le_bytes()[(at & 7) as usize]);
            let bytes: Option<Vec<u8>> = (address..address + buffer.len() as u64).map(byte).collect();
            let bytes = first.map(|word| word.to_le_bytes().to_vec()).or(bytes);
            bytes.is_some_and(|bytes| {
                buffer.copy_from_slice(&bytes[..buffer.len()]);
                true
            })
        }
    }

    /// The file's name is at 0x3000.
    fn memory() -> (Moving, Layout) {
        let value = |name: &str| {
            Some(match name {
                name if name.contains("major") => 12,
                name if name.contains("instance_type") => 12,
                name if name.contains("type_Shared") => 201,
                name if name.contains("type_Script") => 202,
                name if name.contains("type_") => 203,
                name if name.contains("Nonstring") => 128,
                name if name.contains("Script__name") || name.contains("shared_script") => 16,
                name if name.contains("SharedFunctionInfo__script") => 24,
                _ => 8,
            })
        };
        let map = |kind: u64| MAPS + 16 * kind;
        let string = |text: &str| u64::from_le_bytes(format!("{text:\0<8}").as_bytes().try_into().unwrap());
        let mut words: HashMap<u64, u64> = [8u64, 201, 202].map(|kind| (map(kind) + 8, kind << 32)).into();
        words.extend([
            (SHARED, map(201) | 1),
            (SHARED + 8, 0x4001),
            (SHARED + 24, SCRIPT | 1),
            (SCRIPT, map(202) | 1),
            (SCRIPT + 8, 0),
            (FILE_SLOT, 0x3001),
            (0x3000, map(8) | 1),
            (0x3008, 5 << 32),
            (0x3010, string("/a.js")),
            (0x4000, map(8) | 1),
            (0x4008, 1 << 32),
            (0x4010, string("f")),
        ]);
        (Moving { words, first: Cell::new(None) }, Layout::of(value).unwrap())
    }

    fn read((memory, layout): &(Moving, Layout)) -> (String, String) {
        let mut known = Known::default();
        let function = Reader::new(memory, layout, &mut known).function(SHARED | 1).unwrap();
        (function.name, function.file)
    }

    #[test]
    fn parts_that_v8_moves_meanwhile_are_read() {
        let expected = ("f".to_owned(), "/a.js".to_owned());
        let mut still = memory();
        assert_eq!(read(&still), expected);
        // The slot leads to the old place, which has other contents by now.
        still.0.first.set(Some(0x9001));
        assert_eq!(read(&still), expected);
        // The old place is intact, and its first word says where the copy is.
        let map = still.0.words.insert(0x3000, 0x5000).unwrap();
        still.0.words.insert(0x5000, map);
        assert_eq!(read(&still), expected);
    }
}
