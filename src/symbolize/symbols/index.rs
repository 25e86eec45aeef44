//! Maps addresses to symbols: a sorted table of non-overlapping intervals. Entries are 16 bytes; names stay in the file.
//!
//! # Which symbols count
//!
//! - Symbols of type `FUNC` and `GNU_IFUNC`, and untyped ones (assembly). They must be defined, have a name, and lie in a section of code.
//! - Stubs of the procedure linkage table.
//! - In stripped Go programs, the functions of Go's own table.
//!
//! # Which symbol an address has
//!
//! 1. A symbol with a size holds `[value, value + size)`, cut at the end of its section. An address past that has no name.
//! 2. If two of them overlap, the one that starts later wins. The outer one continues after the end of the inner one:
//!
//!    ```text
//!    outer  ├──────────────────────┤
//!    inner        ├───────┤
//!    table  outer │ inner │ outer  │ none
//!    ```
//! 3. A symbol without a size (assembly that lacks `.size`) holds what no symbol with a size holds, up to the next symbol or the end of its
//!    section. It also ends with its function in the unwind information, or at the next function there: that function's symbol may have
//!    been stripped. A label inside a function names nothing.
//! 4. If several symbols have one address, the best is kept. The longest is best. If sizes are equal, `FUNC` comes before `IFUNC` and
//!    `IFUNC` before untyped. Then exported (global or weak) comes before local, and then `.symtab` before `.dynsym`. Then the fewest
//!    leading underscores win (`read` before `__read`), not counting the `_Z` and `_R` of mangled names. Then the shortest name wins, and
//!    last the first in alphabetical order.

use std::ops::Range;

use crate::object::elf::{Image, TableKind};
use crate::object::headers::SYMBOL;
use crate::object::numbers::{u16_at, u32_at, u64_at};
use crate::object::object_files::{Images, Origin};
use crate::object::plt;
use crate::object::reason::Reason;
use crate::profile::ElfAddress;

/// Most symbols read from one table. node has 110,000, the Rust compiler's library 165,000.
const MAX_SCANNED: u64 = 8_000_000;
/// Most code symbols kept of one object: 32 MB while the table is made.
const MAX_KEPT: usize = 2_000_000;
/// Symbols read at once.
const CHUNK: usize = 4096;
/// Most searches for the end of a symbol without a size. A search takes about 20 reads.
const MAX_ENDS: u32 = 16_384;
/// Most names read to choose among aliases, one `pread` each. After that the order in the file decides.
const MAX_NAME_READS: u32 = 200_000;

/// User space lies below 2^56 (x86-64 with five levels has that, arm64 2^52), and the kernel as far below 2^64. So the top byte repeats the
/// bit below it, and is free for the rank.
const ADDRESS_BITS: u32 = 56;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// The top three bits of a name say which table it is from. No table of names has half a gigabyte.
const ORIGIN_SHIFT: u32 = 29;
const PLACE: u32 = (1 << ORIGIN_SHIFT) - 1;

const IFUNC_RANK: u8 = 4;
const UNTYPED_RANK: u8 = 8;
const LOCAL_RANK: u8 = 2;
const DYNAMIC_RANK: u8 = 1;

/// A symbol while the table is made. `key` is the address with the rank in its top byte; lower ranks are better.
#[derive(Clone, Copy)]
struct Candidate {
    key: u64,
    size: u32,
    name: u32,
}

const _: () = assert!(size_of::<Candidate>() == 16);

impl Candidate {
    fn address(self) -> u64 {
        full(self.key)
    }

    fn rank(self) -> u8 {
        (self.key >> ADDRESS_BITS) as u8
    }

    fn same_but_for_the_name(self, other: Candidate) -> bool {
        (self.key, self.size) == (other.key, other.size)
    }

    /// Whether it may be a mapping symbol of arm64 or RISC-V (`$x`, `$d`), a local label, or one of annobin's notes.
    fn may_be_a_mark(self) -> bool {
        self.size == 0 && self.rank() & (UNTYPED_RANK | LOCAL_RANK) == UNTYPED_RANK | LOCAL_RANK
    }
}

/// Returns the full address for its lowest 56 bits.
fn full(bits: u64) -> u64 {
    (bits << (64 - ADDRESS_BITS)).cast_signed().wrapping_shr(64 - ADDRESS_BITS).cast_unsigned()
}

/// Location of a name in the file. It is equal for all addresses of one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NameRef(u32);

impl NameRef {
    /// Reads the name's bytes from the file.
    pub(crate) fn read(self, images: &Images) -> Result<Option<Vec<u8>>, Reason> {
        images.name(Origin::from_number(self.0 >> ORIGIN_SHIFT), self.0 & PLACE)
    }
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    start: u64,
    length: u32,
    name: u32,
}

const _: () = assert!(size_of::<Interval>() == 16);

/// The finished table.
#[derive(Debug, Default)]
pub(crate) struct SymbolIndex {
    intervals: Box<[Interval]>,
}

impl SymbolIndex {
    /// Reads the symbol tables of an object. An object without symbols gives an empty table.
    pub(crate) fn build(images: &Images) -> Result<SymbolIndex, Reason> {
        let mut candidates = Vec::new();
        for origin in images.origins() {
            collect(images, origin, &mut candidates)?;
        }
        for stub in plt::stubs(&images.own)? {
            candidates.extend(made(&images.own, Origin::Stub, stub.address, stub.size.into(), stub.name));
        }
        for function in images.go_functions()? {
            let size = function.end - function.start;
            candidates.extend(made(&images.own, Origin::Go, function.start, size, function.name));
        }
        if candidates.len() > MAX_KEPT {
            return Err(Reason::TooLarge);
        }
        candidates.sort_unstable_by_key(|symbol| (symbol.address(), std::cmp::Reverse(symbol.size), symbol.rank(), symbol.name));
        let mut sweep = Sweep::new(images, candidates.len());
        for group in candidates.chunk_by(|a, b| a.address() == b.address()) {
            sweep.take(group)?;
        }
        Ok(SymbolIndex { intervals: sweep.finish() })
    }

    /// Returns the symbol that holds an address.
    pub(crate) fn find(&self, address: ElfAddress) -> Option<NameRef> {
        self.interval(address).map(|(_, name)| name)
    }

    /// Returns the symbol that holds an address, with the range around the address that it holds without a gap.
    pub(crate) fn interval(&self, address: ElfAddress) -> Option<(Range<u64>, NameRef)> {
        let after = self.intervals.partition_point(|interval| interval.start <= address.0);
        let interval = self.intervals.get(after.checked_sub(1)?)?;
        let end = interval.start + u64::from(interval.length);
        (address.0 < end).then_some((interval.start..end, NameRef(interval.name)))
    }

    /// Returns the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.intervals.len() * size_of::<Interval>()
    }

    /// Returns the number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.intervals.len()
    }
}

/// A function's symbol.
pub(crate) struct FunctionSymbol {
    /// Its first instruction.
    pub(crate) address: u64,
    /// Its name.
    pub(crate) name: NameRef,
    /// Whether it only selects the function that is called in its place.
    pub(crate) chooses: bool,
}

/// Returns all symbols of functions, and the functions of stripped Go programs, without stubs and untyped symbols.
pub(crate) fn functions(images: &Images) -> Result<Vec<FunctionSymbol>, Reason> {
    let mut candidates = Vec::new();
    for origin in images.origins() {
        collect(images, origin, &mut candidates)?;
    }
    for function in images.go_functions()? {
        let size = function.end - function.start;
        candidates.extend(made(&images.own, Origin::Go, function.start, size, function.name));
    }
    let typed = candidates.into_iter().filter(|symbol| symbol.rank() & UNTYPED_RANK == 0);
    let symbol = |symbol: Candidate| {
        let chooses = symbol.rank() & IFUNC_RANK != 0;
        FunctionSymbol { address: symbol.address(), name: NameRef(symbol.name), chooses }
    };
    Ok(typed.map(symbol).collect())
}

/// Appends the code symbols of one table.
fn collect(images: &Images, origin: Origin, into: &mut Vec<Candidate>) -> Result<(), Reason> {
    let (Some(image), kind) = images.table(origin) else { return Ok(()) };
    let Some(table) = image.table(kind) else { return Ok(()) };
    if table.count > MAX_SCANNED {
        return Err(Reason::TooLarge);
    }
    let mut next = 0;
    while next < table.count {
        let count = (table.count - next).min(CHUNK as u64);
        let bytes = image.source.read(
            table.offset.saturating_add(next * SYMBOL as u64),
            count * SYMBOL as u64,
            (CHUNK * SYMBOL) as u64,
        )?;
        into.extend(bytes.chunks_exact(SYMBOL).filter_map(|symbol| candidate(&images.own, origin, symbol)));
        if into.len() > MAX_KEPT {
            return Err(Reason::TooLarge);
        }
        next += count;
    }
    Ok(())
}

/// Reads a symbol: `st_name` u32, `st_info` u8 (binding << 4 | type), `st_other` u8, `st_shndx` u16, `st_value` u64, `st_size` u64.
///
/// The sections of code are taken from the object itself: a debug file has the headers of its sections but not their contents.
fn candidate(own: &Image, origin: Origin, symbol: &[u8]) -> Option<Candidate> {
    const UNDEFINED: u16 = 0;
    const FIRST_SPECIAL: u16 = 0xff00;
    const EXTENDED: u16 = 0xffff;
    let name = u32_at(symbol, 0)?;
    let info = *symbol.get(4)?;
    let section = u16_at(symbol, 6)?;
    let (address, size) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
    let mut rank = match info & 0xf {
        2 => 0,
        10 => IFUNC_RANK,
        0 => UNTYPED_RANK,
        _ => return None,
    };
    if info >> 4 == 0 {
        rank |= LOCAL_RANK;
    }
    if origin.kind() == TableKind::Dynamic {
        rank |= DYNAMIC_RANK;
    }
    let place = name | origin.number() << ORIGIN_SHIFT;
    let defined = section != UNDEFINED && (section < FIRST_SPECIAL || section == EXTENDED);
    if !defined || name == 0 || name > PLACE || address != full(address) {
        return None;
    }
    let room = own.code_around(address)?.end - address;
    let size = u32::try_from(size.min(room)).unwrap_or(u32::MAX);
    Some(Candidate { key: address & ADDRESS | u64::from(rank) << ADDRESS_BITS, size, name: place })
}

/// Makes a candidate of a function that is not from a symbol table.
fn made(own: &Image, origin: Origin, address: u64, size: u64, name: u32) -> Option<Candidate> {
    let room = own.code_around(address)?.end - address;
    let size = u32::try_from(size.min(room)).unwrap_or(u32::MAX);
    (name <= PLACE && address <= ADDRESS).then_some(Candidate {
        key: address,
        size,
        name: name | origin.number() << ORIGIN_SHIFT,
    })
}

/// A symbol that has begun and not ended.
struct Open {
    end: u64,
    name: u32,
    sized: bool,
}

/// Goes through the symbols in order of address and writes the intervals.
struct Sweep<'a> {
    images: &'a Images,
    open: Vec<Open>,
    /// All intervals before this address are written.
    done: u64,
    intervals: Vec<Interval>,
    name_reads: u32,
    ends: u32,
}

impl<'a> Sweep<'a> {
    fn new(images: &'a Images, count: usize) -> Sweep<'a> {
        Sweep { images, open: Vec::new(), done: 0, intervals: Vec::with_capacity(count), name_reads: 0, ends: 0 }
    }

    /// Takes the symbols of one address. The best comes first, except that names are not compared yet.
    fn take(&mut self, group: &[Candidate]) -> Result<(), Reason> {
        let Some(first) = group.first() else { return Ok(()) };
        let address = first.address();
        self.close_until(address);
        if first.size == 0 && self.open.last().is_some_and(|open| open.sized) {
            return Ok(());
        }
        let Some(chosen) = self.choose(group)? else { return Ok(()) };
        if let Some(around) = self.open.pop() {
            self.write(around.name, address);
            if around.sized {
                self.open.push(around);
            }
        }
        self.done = address;
        let end = match chosen.size {
            0 => self.end_of_label(address),
            size => address + u64::from(size),
        };
        self.open.push(Open { end, name: chosen.name, sized: chosen.size > 0 });
        Ok(())
    }

    /// Returns where a symbol without a size ends, if no other begins before that.
    fn end_of_label(&mut self, address: u64) -> u64 {
        let section = self.images.own.code_around(address).map_or(address, |code| code.end);
        self.ends += 1;
        let function = if self.ends <= MAX_ENDS { self.images.own.end_of_code_at(ElfAddress(address)) } else { None };
        function.map_or(section, |end| end.min(section))
    }

    fn close_until(&mut self, address: u64) {
        while let Some(open) = self.open.pop_if(|open| open.end <= address) {
            self.write(open.name, open.end);
        }
    }

    /// Gives the unwritten addresses before `end` to `name`.
    fn write(&mut self, name: u32, end: u64) {
        if end > self.done {
            let length = u32::try_from(end - self.done).unwrap_or(u32::MAX);
            self.intervals.push(Interval { start: self.done, length, name });
            self.done = end;
        }
    }

    /// Chooses the symbol with the best name among those that are equal otherwise.
    fn choose(&mut self, group: &[Candidate]) -> Result<Option<Candidate>, Reason> {
        let mut best: Option<(Candidate, Option<Vec<u8>>)> = None;
        for (index, symbol) in group.iter().enumerate() {
            if let Some((chosen, chosen_name)) = &mut best {
                if !symbol.same_but_for_the_name(*chosen) {
                    break;
                }
                if chosen_name.is_none() {
                    *chosen_name = self.name(*chosen)?;
                }
                let Some(name) = self.name(*symbol)? else { continue };
                if chosen_name.as_ref().is_none_or(|chosen| preference(&name) < preference(chosen)) {
                    best = Some((*symbol, Some(name)));
                }
            } else if symbol.may_be_a_mark() {
                let name = self.name(*symbol)?.filter(|name| !is_mark(name));
                if name.is_some() {
                    best = Some((*symbol, name));
                }
            } else if index + 1 == group.len() {
                return Ok(Some(*symbol));
            } else {
                best = Some((*symbol, None));
            }
        }
        Ok(best.map(|(symbol, _)| symbol))
    }

    fn name(&mut self, symbol: Candidate) -> Result<Option<Vec<u8>>, Reason> {
        if self.name_reads >= MAX_NAME_READS {
            return Ok(None);
        }
        self.name_reads += 1;
        NameRef(symbol.name).read(self.images)
    }

    fn finish(mut self) -> Box<[Interval]> {
        self.close_until(u64::MAX);
        self.intervals.into_boxed_slice()
    }
}

/// Returns a sort key; lower is better: fewest leading underscores, shortest, first in the alphabet.
pub(crate) fn preference(name: &[u8]) -> (usize, usize, &[u8]) {
    let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    let underscores = if mangled { 0 } else { name.iter().take_while(|byte| **byte == b'_').count() };
    (underscores, name.len(), name)
}

fn is_mark(name: &[u8]) -> bool {
    name.is_empty()
        || name.starts_with(b"$")
        || name.starts_with(b".L")
        || name.starts_with(b".annobin")
        || name.starts_with(b".Lannobin")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::bytes::Source;

    const CODE: u64 = 0x1000;
    const FUNC: u8 = 2;
    const GLOBAL: u8 = 1 << 4;

    /// Name, `st_info`, address, size.
    type Symbol = (&'static str, u8, u64, u64);

    /// Builds an ELF file with one segment and code section, [0x1000, 0x2000), and these symbols in `.symtab`.
    fn images(symbols: &[Symbol]) -> Images {
        let mut strings = vec![0];
        let mut table = vec![0; SYMBOL];
        for (name, info, address, size) in symbols {
            table.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
            table.extend([*info, 0, 1, 0]);
            table.extend(address.to_le_bytes());
            table.extend(size.to_le_bytes());
            strings.extend(name.bytes().chain([0]));
        }
        let (table_at, strings_at) = (64 + 56, 64 + 56 + table.len());
        let sections_at = strings_at + strings.len();
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[32] = 64;
        bytes[40..48].copy_from_slice(&(sections_at as u64).to_le_bytes());
        (bytes[54], bytes[56], bytes[58], bytes[60]) = (56, 1, 64, 4);
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        bytes.extend(numbers(&[1 | 5 << 32, 0, CODE, 0, 0x1000, 0x1000, 0]));
        bytes.extend(&table);
        bytes.extend(&strings);
        bytes.extend([0; 64]);
        bytes.extend(numbers(&[1 << 32, 6, CODE, 0, 0x1000, 0, 0, 0]));
        bytes.extend(numbers(&[2 << 32, 0, 0, table_at as u64, table.len() as u64, 3, 0, SYMBOL as u64]));
        bytes.extend(numbers(&[3 << 32, 0, 0, strings_at as u64, strings.len() as u64, 0, 0, 0]));
        Images::alone(Image::read(Source::Memory(bytes.into())).unwrap())
    }

    fn names<const N: usize>(symbols: &[Symbol], addresses: [u64; N]) -> [String; N] {
        let images = images(symbols);
        let index = SymbolIndex::build(&images).unwrap();
        addresses.map(|address| match index.find(ElfAddress(address)) {
            Some(name) => String::from_utf8(name.read(&images).unwrap().unwrap()).unwrap(),
            None => "-".to_owned(),
        })
    }

    #[test]
    fn an_address_past_the_end_of_its_function_has_no_name() {
        let symbols = [("a", FUNC, CODE, 0x10), ("b", FUNC, CODE + 0x20, 0x10)];
        assert_eq!(
            names(&symbols, [CODE - 1, CODE, CODE + 0xf, CODE + 0x10, CODE + 0x20, CODE + 0x30]),
            ["-", "a", "a", "-", "b", "-"]
        );
    }

    #[test]
    fn an_outer_function_goes_on_after_an_inner_one() {
        let symbols = [("outer", FUNC, CODE, 0x40), ("inner", FUNC, CODE + 0x10, 0x10), ("late", FUNC, CODE + 0x30, 0x20)];
        let found = names(&symbols, [CODE, CODE + 0x10, CODE + 0x20, CODE + 0x30, CODE + 0x4f, CODE + 0x50]);
        assert_eq!(found, ["outer", "inner", "outer", "late", "late", "-"]);
    }

    #[test]
    fn a_symbol_without_size_reaches_to_the_next_one_or_the_end_of_its_section() {
        let symbols = [
            ("asm1", 0, CODE, 0),
            ("asm2", 0, CODE + 0x10, 0),
            ("sized", FUNC, CODE + 0x20, 0x10),
            ("tail", FUNC, CODE + 0x40, 0),
        ];
        let found =
            names(&symbols, [CODE + 0xf, CODE + 0x1f, CODE + 0x2f, CODE + 0x30, CODE + 0x40, CODE + 0xfff, CODE + 0x1000]);
        assert_eq!(found, ["asm1", "asm2", "sized", "-", "tail", "tail", "-"]);
    }

    #[test]
    fn a_label_inside_a_function_and_mapping_symbols_name_nothing() {
        let symbols = [
            ("f", FUNC, CODE, 0x20),
            ("label", GLOBAL, CODE + 8, 0),
            ("$x", 0, CODE + 0x30, 0),
            (".annobin_a", 0, CODE + 0x40, 0),
        ];
        assert_eq!(names(&symbols, [CODE + 8, CODE + 0x30, CODE + 0x40]), ["f", "-", "-"]);
    }

    #[test]
    fn a_mapping_symbol_does_not_end_the_symbol_before_it() {
        let symbols = [("asm", 0, CODE, 0), ("$d", 0, CODE + 8, 0)];
        assert_eq!(names(&symbols, [CODE + 8]), ["asm"]);
    }

    #[test]
    fn of_aliases_the_longest_then_typed_then_exported_then_plainest_wins() {
        let best = |symbols: &[Symbol]| {
            let [name] = names(symbols, [CODE]);
            let mut turned = symbols.to_vec();
            turned.reverse();
            let [other] = names(&turned, [CODE]);
            assert_eq!(other, name, "the order in the file does not matter");
            name
        };
        assert_eq!(best(&[("short", GLOBAL | FUNC, CODE, 4), ("long", FUNC, CODE, 8)]), "long");
        assert_eq!(best(&[("untyped", GLOBAL, CODE, 4), ("typed", FUNC, CODE, 4)]), "typed");
        assert_eq!(best(&[("ifunc", GLOBAL | 10, CODE, 4), ("func", FUNC, CODE, 4)]), "func");
        assert_eq!(best(&[("local", FUNC, CODE, 4), ("exported", GLOBAL | FUNC, CODE, 4)]), "exported");
        assert_eq!(best(&[("__read", GLOBAL | FUNC, CODE, 4), ("read", GLOBAL << 1 | FUNC, CODE, 4)]), "read");
        assert_eq!(best(&[("bb", FUNC, CODE, 4), ("aaa", FUNC, CODE, 4), ("ab", FUNC, CODE, 4)]), "ab");
    }

    #[test]
    fn data_undefined_and_foreign_symbols_name_nothing() {
        let object = 1;
        let symbols =
            [("data", object, CODE, 8), ("far", FUNC, 0x9000, 8), ("below", FUNC, 0, 0x2000), ("high", FUNC, u64::MAX, u64::MAX)];
        assert_eq!(names(&symbols, [CODE, 0x9000, 0, u64::MAX]), ["-", "-", "-", "-"]);
    }

    #[test]
    fn a_size_that_reaches_past_the_section_is_cut() {
        assert_eq!(names(&[("f", FUNC, CODE, u64::MAX)], [CODE + 0xfff, CODE + 0x1000]), ["f", "-"]);
    }

    #[test]
    fn the_vdso_of_this_kernel_has_names_within_its_own_segment() {
        let images = Images::alone(crate::object::vdso::read().unwrap());
        let index = SymbolIndex::build(&images).unwrap();
        assert!(index.len() >= 4, "{index:?}");
        assert!(images.own.build_id().is_some());
        let mut names = Vec::new();
        for offset in 0..images.own.source.length() {
            let symbol = images.own.elf_address(crate::profile::FileOffset(offset)).and_then(|address| index.find(address));
            let Some(name) = symbol.and_then(|symbol| symbol.read(&images).unwrap()) else { continue };
            let name = String::from_utf8(name).unwrap();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        assert!(names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
    }
}
