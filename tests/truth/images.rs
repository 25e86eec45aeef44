//! ELF files as the tests read them: function names, begins and ends of functions, and the code at an address. It does not use
//! flametop's own code, which is under test.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use super::grammar::Place;

/// One file.
pub(crate) struct Image {
    bytes: Vec<u8>,
    /// File offsets of segments, and the address of each.
    segments: Vec<(Range<u64>, u64)>,
    /// Functions by their begin: end (equal to the begin if the file gives none) and names.
    symbols: BTreeMap<u64, (u64, Vec<String>)>,
    /// Functions by unwind information, which stripped libraries still have.
    functions: BTreeMap<u64, u64>,
    stubs: Vec<Range<u64>>,
    entry: u64,
    kind: Option<&'static str>,
    /// Compiled by Go.
    is_go: bool,
    /// For arm64; else x86_64.
    is_arm64: bool,
}

/// Code in glibc's and musl's clone after the call of a thread's first function: `mov eax, edi; mov 60, eax; syscall`.
const AFTER_THREAD: [&[u8]; 3] = [
    &[0x48, 0x89, 0xc7, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05],
    &[0x89, 0xc7, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05],
    &[0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05],
];

/// The same on arm64: `mov x8, #93; svc #0`.
const AFTER_THREAD_ARM64: [&[u8]; 1] = [&[0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

/// `mov 15, rax; syscall` and the same in 32 bits: where handlers of signals return to.
const RESTORERS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// On arm64 that is in the vDSO, but for musl: `mov x8, #139; svc #0`.
const RESTORERS_ARM64: [&[u8]; 1] = [&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

/// Kind of a system library, by its file's name; `None` for files that the tests have built.
fn kind_of(path: &Path) -> Option<&'static str> {
    let kinds = [
        ("ld-linux", "ld"),
        ("ld-musl", "ld"),
        ("libc.so", "libc"),
        ("libc-", "libc"),
        ("libpthread", "libc"),
        ("libm.so", "libc"),
        ("libdl", "libc"),
        ("libstdc++", "stdc++"),
        ("libgcc_s", "gcc"),
    ];
    let name = path.file_name()?.to_str()?;
    kinds.iter().find(|(start, _)| name.starts_with(start)).map(|(_, kind)| *kind)
}

/// A function's name as in the sources: demangled, and without additions of compilers.
fn plain(name: &str) -> String {
    let name = in_short(&format!("{:#}", rustc_demangle::demangle(name)));
    for added in [".cold", ".part.", ".constprop.", ".isra.", ".abi0", ".llvm."] {
        if let Some(at) = name.find(added) {
            return name[..at].to_owned();
        }
    }
    name
}

/// A name of Rust in the form that compilers gave it up to 1.96: without types of generic functions, and closures without numbers.
fn in_short(name: &str) -> String {
    let (mut short, mut depth, mut rest) = (String::new(), 0usize, name);
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if depth == 0 && rest.starts_with("::<") || depth > 0 && first == '<' {
            depth += 1;
            taken = if depth == 1 { 3 } else { 1 };
        } else if depth > 0 {
            // An arrow is in the type of a function.
            let is_arrow = rest.starts_with("->");
            depth -= usize::from(first == '>' && !is_arrow);
            taken = if is_arrow { 2 } else { taken };
        } else if let Some(end) = rest.strip_prefix("{closure#").and_then(|number| number.find('}')) {
            short.push_str("{{closure}}");
            taken = "{closure#".len() + end + 1;
        } else {
            short.push(first);
        }
        rest = &rest[taken..];
    }
    short
}

impl Image {
    pub(crate) fn read(path: &Path) -> Option<Image> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (offset..offset + size, segment.address())
        });
        let segments = segments.collect();
        let mut symbols: BTreeMap<u64, (u64, Vec<String>)> = BTreeMap::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let is_code =
                symbol.kind() == object::SymbolKind::Text || symbol.size() == 0 && symbol.kind() == object::SymbolKind::Unknown;
            let in_code = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
            // "$x" and "$d" mark code and data on arm64.
            if let Some(name) = symbol.name().ok().filter(|name| !name.is_empty() && !name.starts_with('$'))
                && is_code
                && in_code.is_some_and(|section| section.kind() == object::SectionKind::Text)
            {
                let (end, names) = symbols.entry(symbol.address()).or_default();
                *end = (*end).max(symbol.address() + symbol.size());
                let name = plain(name);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let sections = file.sections().filter(|section| section.name().is_ok_and(|name| name.contains("plt")));
        let stubs = sections.filter(|section| section.kind() == object::SectionKind::Text);
        let stubs = stubs.map(|section| section.address()..section.address() + section.size()).collect();
        let functions = described_functions(&file);
        let entry = file.entry();
        let is_go = file.section_by_name(".gopclntab").is_some();
        let is_arm64 = file.architecture() == object::Architecture::Aarch64;
        Some(Image { is_go, is_arm64, segments, symbols, functions, stubs, entry, kind: kind_of(path), bytes })
    }

    /// The address, as the file's symbols have it, of a place in the file.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let (range, address) = self.segments.iter().find(|(range, _)| range.contains(&offset))?;
        Some(offset - range.start + address)
    }

    /// Up to `most` bytes at an address.
    pub(crate) fn bytes_at(&self, address: u64, most: usize) -> &[u8] {
        let found = self.segments.iter().find(|(range, start)| (*start..start + (range.end - range.start)).contains(&address));
        let Some((range, start)) = found else { return &[] };
        let from = (address - start + range.start) as usize;
        let to = (range.end as usize).min(from + most).min(self.bytes.len());
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// The names of the function at an address; of none if it is in no function.
    pub(crate) fn names(&self, address: u64) -> Vec<String> {
        // Functions without a size reach to the next function.
        let Some((_, (end, names))) = self.symbols.range(..=address).next_back() else { return Vec::new() };
        let start = self.symbols.range(..=address).next_back().map_or(0, |(start, _)| *start);
        if address < *end || *end <= start {
            return names.clone();
        }
        // A function that begins earlier and is larger, for example an outer function.
        let around = self.symbols.range(..start).rev().take(4).find(|(_, (end, _))| address < *end);
        around.map(|(_, (_, names))| names.clone()).unwrap_or_default()
    }

    /// Beginning and end of the function at an address.
    pub(crate) fn function(&self, address: u64) -> Option<Range<u64>> {
        let described = self.functions.range(..=address).next_back().map(|(start, end)| *start..*end);
        let named = || {
            let (start, (end, _)) = self.symbols.range(..=address).next_back()?;
            // musl's _fini has no size: it reaches as far as the next, as in `names`.
            let next = || self.symbols.range(start + 1..).next().map_or(*start, |(next, _)| *next);
            Some(*start..if *end > *start { *end } else { next() })
        };
        described.filter(|range| range.contains(&address)).or_else(|| named().filter(|range| range.contains(&address)))
    }

    pub(crate) fn in_stub(&self, address: u64) -> bool {
        self.stubs.iter().any(|range| range.contains(&address))
    }

    fn after_thread(&self) -> &'static [&'static [u8]] {
        if self.is_arm64 { &AFTER_THREAD_ARM64 } else { &AFTER_THREAD }
    }

    /// Whether handlers of signals return to this address, or it is one of the two instructions that are there.
    pub(crate) fn is_restorer(&self, address: u64) -> bool {
        let restorers: &[&[u8]] = if self.is_arm64 { &RESTORERS_ARM64 } else { &RESTORERS };
        let begins = |address| restorers.iter().any(|code| self.bytes_at(address, 16).starts_with(code));
        (0..=9).any(|behind| address.checked_sub(behind).is_some_and(begins))
    }

    /// Whether it is near the end of a function that ends by `pop rcx; jmp *rcx`; on arm64 in one that has `add sp, sp, xN; br xM`,
    /// which is not at its end.
    pub(crate) fn jumps_to_handler(&self, address: u64) -> bool {
        if self.is_arm64 {
            let Some(function) = self.function(address) else { return false };
            let code = self.instructions(&function);
            return has_jump_to_handler(&code);
        }
        memchr::memmem::find(self.bytes_at(address.saturating_sub(1), 160), &[0x59, 0xff, 0xe1]).is_some()
    }

    /// On arm64, whether the jump of [`Image::jumps_to_handler`] is among the next 24 instructions. This holds behind the call of
    /// `uw_install_context_1` (Debian's `_Unwind_Resume` has 23 instructions left there), and not behind the calls before it. In gcc 16
    /// there are 9 more, which unwind the CPU's own stack of return addresses: they begin with `chkfeat`.
    pub(crate) fn jumps_to_handler_soon(&self, address: u64) -> bool {
        const CHKFEAT: u32 = 0xd503_251f;
        let soon = self.instructions(&(address..address + 4 * 25));
        let most = if soon.contains(&CHKFEAT) { 34 } else { 25 };
        self.is_arm64 && has_jump_to_handler(&self.instructions(&(address..address + 4 * most)))
    }

    /// Whether an address is within three instructions behind a system call, in a function that then calls a thread's first function.
    pub(crate) fn is_behind_clone(&self, address: u64) -> bool {
        let before = self.bytes_at(address.saturating_sub(8), 8);
        let after = self.bytes_at(address, 80);
        let call: &[u8] = if self.is_arm64 { &[0x01, 0, 0, 0xd4] } else { &[0x0f, 0x05] };
        memchr::memmem::find(before, call).is_some()
            && self.after_thread().iter().any(|code| memchr::memmem::find(after, code).is_some())
    }

    /// Returns the location of a frame: `address` is the instruction or the return address, and `lookup` is inside its function.
    pub(crate) fn place(&self, address: u64, lookup: u64) -> Place {
        if self.in_stub(lookup) && self.kind.is_none() {
            return Place::Plt;
        }
        let after = self.bytes_at(address, 80);
        let names = self.names(lookup);
        let is_clone = self.kind == Some("libc")
            || self.kind.is_none() && names.iter().any(|name| name.contains("clone") || name == "thread_start");
        if is_clone && lookup < address && self.after_thread().iter().any(|code| after.starts_with(code)) {
            return Place::Library("clone");
        }
        // A leaf just before that: the thread that starts another, or the new thread.
        if is_clone && lookup == address && self.after_thread().iter().any(|code| memchr::memmem::find(after, code).is_some()) {
            return Place::Library("clone|libc");
        }
        match self.kind {
            // `_start` of glibc 2.43 on arm64 has 160 bytes.
            Some("ld") if (self.entry..self.entry + 160).contains(&lookup) => Place::Library("ldentry"),
            Some(kind) => Place::Library(kind),
            None => Place::Built(names),
        }
    }
}

/// Functions that `.eh_frame` describes, read by gimli: only where they begin and end.
fn described_functions(file: &object::File<'_>) -> BTreeMap<u64, u64> {
    use gimli::UnwindSection as _;
    let mut functions = BTreeMap::new();
    let Some(section) = file.section_by_name(".eh_frame") else { return functions };
    let data = section.uncompressed_data().unwrap_or_default();
    let frames = gimli::EhFrame::new(&data, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(|section, bases, offset| section.cie_from_offset(bases, offset))
        {
            functions.insert(fde.initial_address(), fde.end_address());
        }
    }
    functions
}

/// `add sp, sp, xN; br xM`
fn has_jump_to_handler(code: &[u32]) -> bool {
    code.windows(2).any(|pair| pair[0] & 0xffe0_ffff == 0x8b20_63ff && pair[1] & 0xffff_fc1f == 0xd61f_0000)
}

/// How the instruction before a return address calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// To this function.
    To(u64),
    /// To the address in a register or in memory.
    Anywhere,
    /// It is no call.
    None,
}

impl Image {
    /// The instructions of arm64 in a range.
    fn instructions(&self, range: &Range<u64>) -> Vec<u32> {
        let bytes = self.bytes_at(range.start, (range.end - range.start) as usize);
        bytes.chunks_exact(4).filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?))).collect()
    }

    /// The call that returns to this address.
    pub(crate) fn call_before(&self, address: u64) -> Call {
        if self.is_arm64 {
            let Some(code) = self.instructions(&(address.saturating_sub(4)..address)).first().copied() else {
                return Call::Anywhere;
            };
            return match code {
                // bl
                code if code & 0xfc00_0000 == 0x9400_0000 => Call::To(branch(address - 4, code, 0, 26)),
                // blr, blraa and its kind
                code if code & 0xfeff_f000 == 0xd63f_0000 => Call::Anywhere,
                _ => Call::None,
            };
        }
        let from = address.saturating_sub(8);
        let code = self.bytes_at(from, (address - from) as usize);
        if code.len() < 8 {
            return Call::Anywhere;
        }
        if let [0xe8, displacement @ ..] = &code[3..]
            && let Ok(displacement) = <[u8; 4]>::try_from(displacement)
        {
            let target = address.wrapping_add_signed(i64::from(i32::from_le_bytes(displacement)));
            // A byte of a longer call may look like a call; its target is then outside of all code.
            if self.function(target).is_some() || self.in_stub(target) {
                return Call::To(target);
            }
        }
        // ff /2: by how many bytes come behind opcode and ModRM.
        let indirect = |length: usize| {
            let [0xff, form, rest @ ..] = &code[8 - length..] else { return false };
            if form >> 3 & 7 != 2 {
                return false;
            }
            let (mode, register) = (form >> 6, form & 7);
            let index = usize::from(mode != 3 && register == 4);
            let displacement = match mode {
                0 if register == 5 || index == 1 && rest.first().is_some_and(|index| index & 7 == 5) => 4,
                0 | 3 => 0,
                1 => 1,
                _ => 4,
            };
            rest.len() == index + displacement
        };
        if (2..=7).any(indirect) || code[3] == 0xe8 { Call::Anywhere } else { Call::None }
    }

    /// Whether a call of `target` can lead to a frame at `callee` in this file: it is in that function, or in one that is jumped
    /// to from there. Unknown ways (stubs, jumps by register) count as leading anywhere.
    pub(crate) fn leads(&self, target: u64, callee: u64) -> bool {
        let mut seen: Vec<Range<u64>> = Vec::new();
        let mut waiting = vec![target];
        while let Some(target) = waiting.pop() {
            if self.in_stub(target) {
                return true;
            }
            let Some(function) = self.function(target) else { return true };
            if function.contains(&callee) {
                return true;
            }
            if seen.contains(&function) || seen.len() > 200 {
                continue;
            }
            seen.push(function.clone());
            if self.is_arm64 {
                match self.jumps_of_arm64(&function) {
                    Some(jumps) => waiting.extend(jumps),
                    None => return true,
                }
            }
            let code = self.bytes_at(function.start, (function.end - function.start) as usize);
            for (at, window) in code.windows(2).enumerate().filter(|_| !self.is_arm64) {
                let long = |skip: usize| {
                    let displacement = code.get(at + skip..at + skip + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                    let next = function.start + (at + skip + 4) as u64;
                    displacement.map(|displacement| next.wrapping_add_signed(i64::from(i32::from_le_bytes(displacement))))
                };
                let jump = match window {
                    [0xe9, _] => long(1),
                    [0x0f, 0x80..=0x8f] => long(2),
                    [0xff, form] if form >> 3 & 7 == 4 && (!self.is_go || code_is_short(&function)) => return true,
                    _ => None,
                };
                waiting.extend(
                    jump.filter(|jump| !function.contains(jump) && self.function(*jump).is_some() || self.in_stub(*jump)),
                );
            }
            // Falls through into its neighbour, as assembly does. The code between may have no description (clone3's system call).
            if self.function(callee).is_none() && (function.end..function.end + 16).contains(&callee) {
                return true;
            }
            let neighbour = self.functions.range(function.end..function.end + 16).next();
            waiting.extend(neighbour.map(|(start, _)| *start));
        }
        false
    }

    /// Where a function of arm64 jumps to outside of itself; `None` if to anywhere.
    fn jumps_of_arm64(&self, function: &Range<u64>) -> Option<Vec<u64>> {
        let code = self.instructions(function);
        let mut jumps = Vec::new();
        for (at, code) in (function.start..).step_by(4).zip(&code) {
            let jump = match code {
                // b
                code if code & 0xfc00_0000 == 0x1400_0000 => branch(at, *code, 0, 26),
                // b.cond, cbz, cbnz
                code if code & 0xff00_0010 == 0x5400_0000 || code & 0x7e00_0000 == 0x3400_0000 => branch(at, *code, 5, 19),
                // tbz, tbnz
                code if code & 0x7e00_0000 == 0x3600_0000 => branch(at, *code, 5, 14),
                // br, braa and its kind
                code if code & 0xfeff_f000 == 0xd61f_0000 && (!self.is_go || code_is_short(function)) => return None,
                _ => continue,
            };
            jumps.push(jump);
        }
        jumps.retain(|jump| !function.contains(jump) && self.function(*jump).is_some() || self.in_stub(*jump));
        Some(jumps)
    }
}

/// Go's dispatchers by a table are short; longer functions of it jump through registers within themselves.
fn code_is_short(function: &Range<u64>) -> bool {
    function.end - function.start < 200
}

/// Where an instruction of arm64 branches to: a displacement in words, of that many bits from that one on.
fn branch(at: u64, code: u32, lowest: u32, bits: u32) -> u64 {
    let field = (code >> lowest) << (32 - bits);
    at.wrapping_add_signed(i64::from(field.cast_signed() >> (32 - bits)) * 4)
}

#[test]
fn branches_of_arm64_lead_forward_and_back() {
    assert_eq!(branch(0x1000, 0x9400_0004, 0, 26), 0x1010);
    // bl of the instruction before: ffffffff words.
    assert_eq!(branch(0x1000, 0x97ff_ffff, 0, 26), 0xffc);
    // b.eq 22298 at 22278, from libc.
    assert_eq!(branch(0x22278, 0x5400_0100, 5, 19), 0x22298);
    // cbz x4, 179b0 at 179a4, from libgcc.
    assert_eq!(branch(0x179a4, 0xb400_0064, 5, 19), 0x179b0);
    assert_eq!(branch(0x1000, 0x3607_ffe0, 5, 14), 0xffc);
}

#[test]
fn names_of_rust_are_compared_in_one_form() {
    for (name, short) in [
        ("truth_closures::apply::<fn(u64) -> Vec<u8>, {closure#1}>", "truth_closures::apply"),
        ("truth_closures::sorts::{closure#12}", "truth_closures::sorts::{{closure}}"),
        ("truth_closures::sorts::{{closure}}", "truth_closures::sorts::{{closure}}"),
        ("<a::Guard as core::ops::Drop>::drop", "<a::Guard as core::ops::Drop>::drop"),
        ("std::rt::lang_start::<()>::{closure#0}", "std::rt::lang_start::{{closure}}"),
        ("operator<<", "operator<<"),
    ] {
        assert_eq!(in_short(name), short);
    }
}
