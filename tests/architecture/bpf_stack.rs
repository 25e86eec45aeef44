//! Measures how much BPF stack our programs need at most, and how deep their calls are.
//!
//! A program and the functions that it calls have 512 bytes together. The kernel rounds the stack of each function up: to 32 bytes in
//! 6.1, to 16 bytes in later versions. On arm64 there is none left to spare, and only `make test-vm` loads programs there. So this test
//! reads both objects and adds up the stacks of all chains of calls, as 6.1 does (`check_max_stack_depth` in kernel/bpf/verifier.c).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};

/// `MAX_BPF_STACK`: bytes of a program and all the functions it calls.
const MOST: usize = 512;
/// `MAX_CALL_FRAMES`: functions that run inside each other. Beyond that, loading fails with E2BIG.
const MOST_CALLS: usize = 8;
/// 6.1 rounds the stack of a function up to a multiple of this.
const ROUNDED_TO: usize = 32;
/// Bytes of an instruction.
const INSTRUCTION: usize = 8;
/// The register that points behind a function's stack.
const FRAME: u8 = 10;

/// A BPF instruction: see "Instruction encoding" in Documentation/bpf/standardization/instruction-set.rst.
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn read(bytes: &[u8]) -> Instruction {
        let [code, registers, offset @ .., _, _, _, _] = bytes else { panic!("no instruction: {bytes:?}") };
        Instruction {
            code: *code,
            to: registers & 15,
            from: registers >> 4,
            offset: i16::from_le_bytes(offset.try_into().unwrap()),
            immediate: i32::from_le_bytes(bytes[4..].try_into().unwrap()),
        }
    }

    /// Whether it is the first half of a load of 64 bits. The second half has the code 0.
    fn is_wide(&self) -> bool {
        self.code == 0x18
    }

    fn is_call(&self) -> bool {
        self.code == 0x85 && self.from == 1
    }
}

/// A function by the section and the offset of its first instruction.
type Start = (usize, u64);

struct Function {
    name: String,
    /// Bytes, without rounding and without the functions that it calls.
    stack: usize,
    calls: Vec<Start>,
}

/// Reads all functions of an object.
fn functions(bytes: &[u8]) -> BTreeMap<Start, Function> {
    let file = object::File::parse(bytes).unwrap();
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let section = symbol.section_index().unwrap();
        let code = file.section_by_index(section).unwrap();
        let range = usize::try_from(symbol.address()).unwrap()..usize::try_from(symbol.address() + symbol.size()).unwrap();
        let relocations: BTreeMap<u64, RelocationTarget> = code.relocations().map(|(at, to)| (at, to.target())).collect();
        let text = &code.data().unwrap()[range.clone()];
        let instructions: Vec<Instruction> = text.chunks_exact(INSTRUCTION).map(Instruction::read).collect();
        let calls = instructions.iter().enumerate().filter_map(|(nth, instruction)| {
            let at = (range.start + nth * INSTRUCTION) as u64;
            let target = match relocations.get(&at) {
                Some(RelocationTarget::Symbol(target)) => Some(file.symbol_by_index(*target).unwrap()),
                _ => None,
            };
            called(instruction, at, section, target.as_ref())
        });
        let function =
            Function { name: symbol.name().unwrap().to_owned(), stack: stack_of(&instructions), calls: calls.collect() };
        functions.insert((section.0, symbol.address()), function);
    }
    functions
}

/// Returns the function that an instruction calls, or whose address it loads for a helper to call.
fn called<'a>(
    instruction: &Instruction,
    at: u64,
    section: SectionIndex,
    target: Option<&impl ObjectSymbol<'a>>,
) -> Option<Start> {
    let (section, symbol) = match target {
        Some(target) if matches!(target.kind(), SymbolKind::Text | SymbolKind::Section) => {
            (target.section_index()?, target.address())
        }
        Some(_) => return None,
        None => (section, at),
    };
    let immediate = i64::from(instruction.immediate);
    // Calls count instructions from the one after the call, or from the symbol. Addresses count bytes.
    let start = match target {
        _ if instruction.is_call() => symbol.checked_add_signed((immediate + 1) * INSTRUCTION as i64)?,
        Some(_) if instruction.is_wide() => symbol.checked_add_signed(immediate)?,
        _ => return None,
    };
    Some((section.0, start))
}

/// Returns how far below its end a function touches its own stack: directly, or through registers that it moved from there.
fn stack_of(instructions: &[Instruction]) -> usize {
    const ADD_IMMEDIATE: u8 = 0x07;
    const MOVE: u8 = 0xbf;
    let mut lowest = 0;
    // For each register, its distance from the end of the stack.
    let mut known: [Option<i64>; 16] = [None; 16];
    known[usize::from(FRAME)] = Some(0);
    for Instruction { code, to, from, offset, immediate } in instructions {
        let (to, from) = (usize::from(*to), usize::from(*from));
        // Classes: 1 loads from the second register, 2 and 3 store to the first one, 4 and 7 calculate.
        let touched = match code & 7 {
            1 => known[from].map(|base| base + i64::from(*offset)),
            2 | 3 => known[to].map(|base| base + i64::from(*offset)),
            _ => None,
        };
        match (*code, code & 7) {
            (MOVE, _) => known[to] = known[from],
            (ADD_IMMEDIATE, _) => known[to] = known[to].map(|base| base + i64::from(*immediate)),
            (_, 0 | 1 | 4 | 7) => known[to] = None,
            _ => {}
        }
        lowest = lowest.min(touched.unwrap_or(0)).min(known[to].unwrap_or(0));
    }
    usize::try_from(-lowest).unwrap()
}

/// Returns the most stack that a function needs with all that it calls, and the names on the way there.
fn deepest(functions: &BTreeMap<Start, Function>, at: Start) -> (usize, String) {
    let function = functions.get(&at).unwrap_or_else(|| panic!("no function begins at {at:?}"));
    let own = function.stack.max(1).next_multiple_of(ROUNDED_TO);
    let below = function.calls.iter().map(|called| deepest(functions, *called)).max().unwrap_or_default();
    (own + below.0, format!("{} {own}, {}", function.name, below.1))
}

/// Returns the most functions that run inside each other from this one on, and their names.
fn longest(functions: &BTreeMap<Start, Function>, at: Start) -> (usize, String) {
    let function = functions.get(&at).unwrap_or_else(|| panic!("no function begins at {at:?}"));
    let below = function.calls.iter().map(|called| longest(functions, *called)).max().unwrap_or_default();
    (below.0 + 1, format!("{}, {}", function.name, below.1))
}

#[test]
fn our_programs_have_enough_stack_on_each_architecture() {
    let objects: [(&str, &[u8]); 2] = [
        ("x86_64", include_bytes!(concat!(env!("OUT_DIR"), "/sampler.x86.bpf.o"))),
        ("arm64", include_bytes!(concat!(env!("OUT_DIR"), "/sampler.arm64.bpf.o"))),
    ];
    for (architecture, object) in objects {
        let functions = functions(object);
        let (bytes, way) = functions.keys().map(|start| deepest(&functions, *start)).max().unwrap();
        eprintln!("{architecture}: {bytes} bytes: {way}");
        assert!(bytes > 300, "{bytes} bytes on {architecture}: this test no longer finds the stack");
        assert!(
            bytes <= MOST,
            "{bytes} bytes of BPF stack are needed on {architecture}, 512 is the limit: {way}\n\
             move words that live across calls to struct cpu_state",
        );
        let (calls, way) = functions.keys().map(|start| longest(&functions, *start)).max().unwrap();
        eprintln!("{architecture}: {calls} calls: {way}");
        assert!(calls > 5, "{calls} calls on {architecture}: this test no longer finds the calls");
        assert!(calls <= MOST_CALLS, "{calls} functions call each other on {architecture}, {MOST_CALLS} are allowed: {way}");
    }
}
