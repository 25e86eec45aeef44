//! Names of kernel addresses, from `/proc/kallsyms`: core kernel, modules and BPF programs.
//!
//! A line is `ffffffff81000000 T _stext`. A symbol that is not the core kernel's has a tab and `[module]` after its name. There are no
//! sizes: a symbol reaches to the next one. Addresses that are not in code must have no name. So a hole is put at `_etext`, `_einittext`
//! and `_end`, at each data symbol, and where the last symbol of an owner would reach farther than 64 KiB.
//!
//! Reading costs the time that the kernel takes to print the file: 24 ms of system time for 122,117 lines on 6.18 (`dd bs=64k`). The table
//! holds one name for each address, 12 bytes each besides the names.

use std::fs::File;
use std::io::{ErrorKind, Read};

use crate::object::reason::Reason;
use crate::symbolize::symbols::index::preference;

/// Most bytes that the last symbol of an owner covers. No known function is longer, and the code after it may be anything.
const LAST_REACH: u64 = 64 << 10;
/// Most lines read; 6.18 without modules has 122,117.
const MAX_SYMBOLS: usize = 2_000_000;
/// Ends each name in the arena; no kernel symbol contains it.
const END: u8 = b'\n';
/// Stands in the place of a name: no symbol is known from this address on.
const HOLE: u32 = u32::MAX;
/// Number of the core kernel as owner; modules are numbered from 1.
const CORE: u16 = 0;

struct Line {
    address: u64,
    /// Offset in the arena, or `HOLE`.
    name: u32,
    owner: u16,
    weak: bool,
}

/// A run of symbols of one owner, from index `first` on.
struct Run {
    first: u32,
    owner: u16,
}

/// The table of kernel symbols. Immutable once read.
pub(crate) struct KernelSymbols {
    addresses: Box<[u64]>,
    names: Box<[u32]>,
    arena: Box<[u8]>,
    runs: Box<[Run]>,
    owners: Vec<String>,
}

/// The kernel's name for an address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KernelName<'a> {
    /// The symbol's name.
    pub(crate) name: &'a [u8],
    /// `kernel`, `[module]` or `[bpf]`.
    pub(crate) owner: &'a str,
    /// Whether the symbol is the core kernel's, which never moves.
    pub(crate) core: bool,
}

impl KernelSymbols {
    /// Reads the running kernel's symbols.
    pub(crate) fn read() -> Result<KernelSymbols, Reason> {
        let file = File::open("/proc/kallsyms").map_err(|error| Reason::KernelSymbolsUnreadable(error.kind()))?;
        KernelSymbols::parse(file)
    }

    /// Reads symbols in the format of `/proc/kallsyms`.
    pub(crate) fn parse(mut input: impl Read) -> Result<KernelSymbols, Reason> {
        let mut reader = KallsymsReader::default();
        let mut buffer = vec![0; 64 << 10];
        let mut kept = 0;
        loop {
            let Some(room) = buffer.get_mut(kept..).filter(|room| !room.is_empty()) else {
                return Err(Reason::Malformed);
            };
            let count = match input.read(room) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Reason::KernelSymbolsUnreadable(error.kind())),
            };
            let filled = buffer.get(..kept + count).unwrap_or_default();
            let whole = memchr::memrchr(b'\n', filled).map_or(0, |end| end + 1);
            for line in filled.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n') {
                reader.line(line);
            }
            kept = filled.len() - whole;
            buffer.copy_within(whole..whole + kept, 0);
            if reader.lines.len() > MAX_SYMBOLS {
                return Err(Reason::TooLarge);
            }
        }
        reader.finish()
    }

    /// Returns the symbol that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<KernelName<'_>> {
        let index = self.addresses.partition_point(|start| *start <= address).checked_sub(1)?;
        let name = *self.names.get(index)?;
        let bytes = self.arena.get(name as usize..)?;
        let run = self.runs.partition_point(|run| run.first as usize <= index).checked_sub(1)?;
        let owner = self.runs.get(run)?.owner;
        let name = bytes.get(..memchr::memchr(END, bytes)?)?;
        Some(KernelName { name, owner: self.owners.get(usize::from(owner))?, core: owner == CORE })
    }

    /// Returns the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.addresses.len() * 12 + self.arena.len() + self.runs.len() * size_of::<Run>()
    }

    /// Returns the number of symbols and holes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }
}

#[derive(Default)]
struct KallsymsReader {
    lines: Vec<Line>,
    arena: Vec<u8>,
    owners: Vec<String>,
    any_address: bool,
    any_line: bool,
}

impl KallsymsReader {
    fn line(&mut self, line: &[u8]) {
        let Some((address, rest)) = hexadecimal(line) else { return };
        let Some((&kind, name)) = rest.split_first() else { return };
        let name = name.strip_prefix(b" ").unwrap_or(name);
        let (name, module) = match memchr::memchr(b'\t', name) {
            Some(tab) => (name.get(..tab).unwrap_or_default(), name.get(tab + 1..).unwrap_or_default()),
            None => (name, &[][..]),
        };
        self.any_line = true;
        self.any_address |= address != 0;
        if name.is_empty() || address == 0 {
            return;
        }
        let owner = self.owner(module);
        let code = matches!(kind, b't' | b'T' | b'w' | b'W') || module == b"[bpf]";
        let end = owner == CORE && matches!(name, b"_etext" | b"_einittext" | b"_end");
        if !code || end {
            self.lines.push(Line { address, name: HOLE, owner, weak: true });
            return;
        }
        let Ok(offset) = u32::try_from(self.arena.len()) else { return };
        self.arena.extend_from_slice(name);
        self.arena.push(END);
        self.lines.push(Line { address, name: offset, owner, weak: matches!(kind, b'w' | b'W') });
    }

    /// Returns the owner's number. Lines come module by module, so it is nearly always the last owner.
    fn owner(&mut self, module: &[u8]) -> u16 {
        if module.is_empty() {
            return CORE;
        }
        let found = self.owners.iter().rposition(|owner| owner.as_bytes() == module);
        let index = found.unwrap_or_else(|| {
            self.owners.push(String::from_utf8_lossy(module).into_owned());
            self.owners.len() - 1
        });
        u16::try_from(index + 1).unwrap_or(u16::MAX)
    }

    fn finish(mut self) -> Result<KernelSymbols, Reason> {
        if !self.any_line {
            return Err(Reason::NoSymbols);
        }
        if !self.any_address {
            return Err(Reason::KernelAddressesHidden);
        }
        let arena = self.arena;
        let name_of = |line: &Line| {
            let rest = arena.get(line.name as usize..).unwrap_or_default();
            preference(rest.get(..memchr::memchr(END, rest).unwrap_or(0)).unwrap_or_default())
        };
        // Not `sort_unstable`: the lines come nearly sorted, and the stable sort is faster on them.
        self.lines.sort_by(|a, b| {
            let plain = (a.address, a.name == HOLE, a.weak).cmp(&(b.address, b.name == HOLE, b.weak));
            plain.then_with(|| name_of(a).cmp(&name_of(b)))
        });
        let (mut addresses, mut names, mut runs) = (Vec::new(), Vec::new(), Vec::<Run>::new());
        let mut add = |address: u64, name: u32, owner: u16| {
            if runs.last().is_none_or(|run| run.owner != owner) {
                runs.push(Run { first: u32::try_from(addresses.len()).unwrap_or(u32::MAX), owner });
            }
            addresses.push(address);
            names.push(name);
        };
        let mut last: Option<&Line> = None;
        for line in &self.lines {
            let Some(before) = last else {
                add(line.address, line.name, line.owner);
                last = Some(line);
                continue;
            };
            if line.address == before.address || (line.name == HOLE && before.name == HOLE) {
                continue;
            }
            let reach = before.address.saturating_add(LAST_REACH);
            if before.owner != line.owner && before.name != HOLE && reach < line.address {
                add(reach, HOLE, before.owner);
            }
            add(line.address, line.name, line.owner);
            last = Some(line);
        }
        if let Some(last) = last.filter(|last| last.name != HOLE) {
            add(last.address.saturating_add(LAST_REACH), HOLE, last.owner);
        }
        let mut owners = vec!["kernel".to_owned()];
        owners.append(&mut self.owners);
        Ok(KernelSymbols { addresses: addresses.into(), names: names.into(), arena: arena.into(), runs: runs.into(), owners })
    }
}

/// Parses the number at the start of a line. Returns it and the text after the space that follows.
fn hexadecimal(line: &[u8]) -> Option<(u64, &[u8])> {
    let space = memchr::memchr(b' ', line).filter(|length| (1..=16).contains(length))?;
    let (digits, rest) = line.split_at_checked(space)?;
    let value = digits.iter().try_fold(0u64, |value, byte| Some(value << 4 | u64::from(char::from(*byte).to_digit(16)?)))?;
    Some((value, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T start_here
ffffffff81000100 W weak_one
ffffffff81000100 T __strong_one
ffffffff81000200 t do_work.isra.0
ffffffff81000300 T _etext
ffffffff81400000 D some_data
ffffffff82000000 T early_init
ffffffff82000040 T _einittext
ffffffffc0000000 t helper\t[nf_tables]
ffffffffc0000100 t worker\t[nf_tables]
ffffffffc0000180 d table\t[nf_tables]
ffffffffc0100000 t bpf_prog_6deef7357e7b4530_egress\t[bpf]
";

    fn name(symbols: &KernelSymbols, address: u64) -> Option<(String, String)> {
        let found = symbols.find(address)?;
        Some((String::from_utf8_lossy(found.name).into_owned(), found.owner.to_owned()))
    }

    fn pair(name: &str, owner: &str) -> Option<(String, String)> {
        Some((name.to_owned(), owner.to_owned()))
    }

    #[test]
    fn kernel_module_and_bpf_addresses_have_names_and_owners() {
        let symbols = KernelSymbols::parse(SAMPLE.as_bytes()).unwrap();
        assert_eq!(name(&symbols, 0xffffffff81000000), pair("start_here", "kernel"), "fewest underscores");
        assert_eq!(name(&symbols, 0xffffffff81000150), pair("__strong_one", "kernel"), "strong before weak");
        assert_eq!(name(&symbols, 0xffffffff810002ff), pair("do_work.isra.0", "kernel"));
        assert_eq!(name(&symbols, 0xffffffffc0000000), pair("helper", "[nf_tables]"));
        assert_eq!(name(&symbols, 0xffffffffc000017f), pair("worker", "[nf_tables]"));
        assert_eq!(name(&symbols, 0xffffffffc0100010), pair("bpf_prog_6deef7357e7b4530_egress", "[bpf]"));
    }

    #[test]
    fn addresses_outside_of_code_have_no_name() {
        let symbols = KernelSymbols::parse(SAMPLE.as_bytes()).unwrap();
        for address in [0, 0xffffffff80ffffff, 0xffffffff81000300, 0xffffffff81400010, 0xffffffff82000040, 0xffffffffc0000180] {
            assert_eq!(name(&symbols, address), None, "{address:#x}");
        }
        assert_eq!(name(&symbols, 0xffffffffc0100000 + LAST_REACH), None, "the last symbol has a bounded reach");
    }

    #[test]
    fn hidden_addresses_are_told_from_an_empty_file() {
        let hidden = "0000000000000000 T _text\n0000000000000000 t helper\t[mod]\n";
        assert_eq!(KernelSymbols::parse(hidden.as_bytes()).err(), Some(Reason::KernelAddressesHidden));
        assert_eq!(KernelSymbols::parse(&b""[..]).err(), Some(Reason::NoSymbols));
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        let odd = b"zzz\n\nffffffff81000000\nffffffff81000000 T\nffffffff81000010 T ok\n\xff\xff \xff\n";
        let symbols = KernelSymbols::parse(&odd[..]).unwrap();
        assert_eq!(name(&symbols, 0xffffffff81000010), pair("ok", "kernel"));
        assert_eq!(symbols.len(), 2);
    }

    #[test]
    fn the_running_kernel_is_read_in_tens_of_milliseconds_and_a_few_megabytes() {
        for _ in 0..5 {
            let start = std::time::Instant::now();
            let mut text = Vec::new();
            File::open("/proc/kallsyms").unwrap().read_to_end(&mut text).unwrap();
            let read = start.elapsed();
            let symbols = KernelSymbols::parse(&text[..]).expect("this test needs root: kernel addresses are hidden");
            let parsed = start.elapsed() - read;
            println!("read {read:?}, parsed {parsed:?}, {} symbols, {} KiB", symbols.len(), symbols.memory() / 1024);
            assert!(symbols.memory() < text.len() + (1 << 20));
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        assert_eq!(KernelSymbols::parse(std::io::repeat(b'a')).err(), Some(Reason::Malformed));
    }
}
