//! Machine code → instructions as text: x86_64 by iced-x86, arm64 by yaxpeax-arm.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, SymbolResolver, SymbolResult};
use rustc_hash::FxHashMap;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{ARMv8, Opcode, Operand};

use super::called::{Called, MAX_INSTRUCTIONS};
use crate::object::headers::Arch;
use crate::profile::{Row, sanitize};

/// Most characters of a name that is shown next to an instruction. There may be as many names as instructions, and a process may write
/// names of any length.
const MAX_NAME: usize = 200;

/// Decodes the instructions of the function at `range`. `bytes` are its first bytes.
///
/// # Errors
///
/// Never; without the feature `disassembly`, always.
#[allow(clippy::unnecessary_wraps)]
pub(super) fn decode(arch: Arch, bytes: &[u8], range: Range<u64>, symbols: impl Called) -> Result<Vec<Row>, &'static str> {
    let start = range.start;
    let mut targets = Targets { range, symbols, known: FxHashMap::default() };
    Ok(match arch {
        Arch::X86_64 => x86(bytes, start, targets),
        Arch::Aarch64 => arm(bytes, start, &mut targets),
    })
}

/// The targets of one function's calls and jumps.
struct Targets<C> {
    symbols: C,
    /// The function that is shown: jumps within it show addresses.
    range: Range<u64>,
    known: FxHashMap<u64, Option<(u64, String)>>,
}

impl<C: Called> Targets<C> {
    fn name(&mut self, address: u64) -> Option<(u64, String)> {
        if self.range.contains(&address) {
            return None;
        }
        let find = || {
            let (start, name) = self.symbols.name(address)?;
            let end = name.char_indices().nth(MAX_NAME).map_or(name.len(), |(at, _)| at);
            Some((start, sanitize(name.get(..end).unwrap_or_default()).into_owned()))
        };
        self.known.entry(address).or_insert_with(find).clone()
    }

    /// Returns `name`, `name+0x12`, or the address.
    fn describe(&mut self, address: u64) -> String {
        match self.name(address) {
            Some((start, name)) if start == address => name,
            Some((start, name)) => format!("{name}+{:#x}", address - start),
            None => format!("{address:#x}"),
        }
    }
}

impl<C: Called> SymbolResolver for Targets<C> {
    fn symbol(&mut self, instruction: &Instruction, _: u32, _: Option<u32>, address: u64, _: u32) -> Option<SymbolResult<'_>> {
        let leads_there = matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        // The decoder asks this for each number in an instruction.
        let (start, name) = if leads_there { self.name(address)? } else { return None };
        Some(SymbolResult::with_string(start, name))
    }
}

fn x86<C: Called>(bytes: &[u8], start: u64, targets: Targets<C>) -> Vec<Row> {
    let mut formatter = GasFormatter::with_options(Some(Box::new(targets)), None);
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_rip_relative_addresses(true);
    formatter.options_mut().set_small_hex_numbers_in_decimal(false);
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut rows = Vec::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() && rows.len() < MAX_INSTRUCTIONS {
        decoder.decode_out(&mut instruction);
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        if instruction.is_ip_rel_memory_operand() {
            text.push_str(&format!("  # {:#x}", instruction.ip_rel_memory_address()));
        }
        rows.push(Row { place: instruction.ip(), text: text.into() });
    }
    rows
}

fn arm<C: Called>(bytes: &[u8], start: u64, targets: &mut Targets<C>) -> Vec<Row> {
    let decoder = <ARMv8 as yaxpeax_arch::Arch>::Decoder::default();
    let words = bytes.chunks_exact(4).take(MAX_INSTRUCTIONS);
    let row = |(word, place): (&[u8], u64)| {
        let text = match decoder.decode(&mut U8Reader::new(word)) {
            Ok(instruction) => {
                let text = instruction.to_string();
                let offset = instruction.operands.iter().find_map(|operand| match operand {
                    Operand::PCOffset(offset) => Some(*offset),
                    _ => None,
                });
                match offset.and_then(|offset| Some((text.find('$')?, offset))) {
                    Some((at, offset)) => {
                        let from = if instruction.opcode == Opcode::ADRP { place & !0xfff } else { place };
                        let token = text.get(at..).unwrap_or_default();
                        let rest = token.find([',', ' ']).and_then(|end| token.get(end..)).unwrap_or_default();
                        let target = targets.describe(from.wrapping_add_signed(offset));
                        format!("{}{target}{rest}", text.get(..at).unwrap_or_default())
                    }
                    None => text,
                }
            }
            Err(_) => format!(".word {:#010x}", u32::from_le_bytes(word.try_into().unwrap_or_default())),
        };
        Row { place, text: text.into() }
    };
    words.zip((start..).step_by(4)).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of two functions.
    struct Two;

    impl Called for Two {
        fn name(&self, address: u64) -> Option<(u64, String)> {
            let start = [0x2000, 0x1000].into_iter().find(|start| (*start..*start + 0x100).contains(&address))?;
            Some((start, if start == 0x2000 { "callee" } else { "itself" }.to_owned()))
        }
    }

    fn targets() -> Targets<Two> {
        Targets { symbols: Two, range: 0x1000..0x1020, known: FxHashMap::default() }
    }

    fn texts(rows: &[Row]) -> Vec<(u64, &str)> {
        rows.iter().map(|row| (row.place, &*row.text)).collect()
    }

    #[test]
    fn x86_is_written_as_objdump_does() {
        // push %rbp; mov %rsp,%rbp; mov 0x10(%rdi,%rax,4),%ecx; call 0x2000; jne 0x1000; mov 0x10(%rip),%rdi; (bad)
        let bytes = [
            0x55, 0x48, 0x89, 0xe5, 0x8b, 0x4c, 0x87, 0x10, 0xe8, 0xf3, 0x0f, 0, 0, 0x75, 0xf1, 0x48, 0x8b, 0x3d, 0x10, 0, 0, 0,
            6,
        ];
        let rows = x86(&bytes, 0x1000, targets());
        let expected =
            [(0x1000, "push %rbp"), (0x1001, "mov %rsp,%rbp"), (0x1004, "mov 0x10(%rdi,%rax,4),%ecx"), (0x1008, "call callee")];
        assert_eq!(texts(&rows)[..4], expected);
        assert_eq!(texts(&rows)[4..], [(0x100d, "jne 0x1000"), (0x100f, "mov 0x10(%rip),%rdi  # 0x1026"), (0x1016, "(bad)")]);
    }

    #[test]
    fn arm64_has_addresses_and_names_where_it_jumps_to() {
        // stp x29, x30, [sp, #-16]!; bl 0x2000; b.ne 0x1000; cbz w0, 0x1000; adrp x0, 0x3000; ret; (none)
        let words: [u32; 7] = [0xa9bf7bfd, 0x940003ff, 0x54ffffc1, 0x34ffffa0, 0xd0000000, 0xd65f03c0, 0xffffffff];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let rows = arm(&bytes, 0x1000, &mut targets());
        let texts = texts(&rows);
        assert!(texts[0].1.starts_with("stp x29, x30, [sp"), "{texts:?}");
        assert_eq!(texts[1], (0x1004, "bl callee"));
        assert_eq!((texts[2].1, texts[3].1), ("b.ne 0x1000", "cbz w0, 0x1000"));
        assert_eq!((texts[4].1, texts[5].1, texts[6].1), ("adrp x0, 0x3000", "ret", ".word 0xffffffff"));
    }

    #[test]
    fn any_bytes_can_be_read() {
        let mut random = 42u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        })
        .take(100_000)
        .collect();
        assert!(x86(&bytes, 0x1000, targets()).len() >= MAX_INSTRUCTIONS);
        assert_eq!(arm(&bytes, 0x1000, &mut targets()).len(), MAX_INSTRUCTIONS);
    }
}
