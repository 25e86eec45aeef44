//! Inputs for the fuzzer: files with one section of a real file, and seeds from files of this machine.

use std::io::BufRead as _;
use std::path::Path;

use flametop::unwind::ReadAt;
use object::{Object as _, ObjectSection as _};

/// Sections that the converter reads.
pub const SECTIONS: [&str; 7] = [".eh_frame", ".debug_frame", ".gopclntab", ".gnu_debugdata", ".plt", ".eh_frame_hdr", CODE];
/// Code without unwind information.
const CODE: &str = ".text";

/// The section's offset in the file. Headers are before it.
const SECTION_AT: u64 = 0x1000;
/// Largest size of the code. The code is all zeros.
const LONGEST_CODE: u32 = 1 << 20;
const LONGEST_SECTION: usize = 1 << 16;
const HEADER: usize = 22;

/// An ELF file with one section and some code, made of an input:
///
/// ```text
/// kind u8 │ flags u8 │ address of the section u64 │ address of the code u64 │ its size u32 │ the section …
/// ```
///
/// Flags: 1: arm64. 2: no section headers, but a program header for `.eh_frame_hdr`. 4: the section is compressed.
pub struct Wrapped<'a> {
    headers: Vec<u8>,
    section: &'a [u8],
    length: u64,
}

/// Makes an input from a section.
pub fn wrap(kind: u8, arm64: bool, address: u64, code: (u64, u64), section: &[u8]) -> Vec<u8> {
    let mut input = vec![kind, u8::from(arm64)];
    input.extend(address.to_le_bytes());
    input.extend(code.0.to_le_bytes());
    input.extend(u32::try_from(code.1).unwrap_or(u32::MAX).to_le_bytes());
    input.extend(section);
    input
}

impl<'a> Wrapped<'a> {
    /// Makes the file that an input describes.
    pub fn read(input: &'a [u8]) -> Option<Wrapped<'a>> {
        let (header, section) = input.split_at_checked(HEADER)?;
        let section = section.get(..LONGEST_SECTION).unwrap_or(section);
        let kind = usize::from(header[0]) % SECTIONS.len();
        let flags = header[1];
        let address = u64::from_le_bytes(header[2..10].try_into().ok()?);
        let code = u64::from_le_bytes(header[10..18].try_into().ok()?);
        let code_size = u64::from(u32::from_le_bytes(header[18..22].try_into().ok()?).min(LONGEST_CODE));
        let code_at = SECTION_AT + (section.len() as u64).next_multiple_of(0x1000);

        let mut headers = Vec::new();
        let names = b"\0.shstrtab\0.text\0";
        let sections = if flags & 2 == 0 { 4u16 } else { 0 };
        // ELF header
        headers.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        headers.extend(3u16.to_le_bytes());
        headers.extend((if flags & 1 == 0 { 62u16 } else { 183 }).to_le_bytes());
        headers.extend(1u32.to_le_bytes());
        headers.extend(code.to_le_bytes());
        headers.extend(64u64.to_le_bytes());
        headers.extend((64 + 2 * 56u64).to_le_bytes());
        headers.extend(0u32.to_le_bytes());
        for word in [64u16, 56, 2, 64, sections, if sections > 0 { 3 } else { 0 }] {
            headers.extend(word.to_le_bytes());
        }
        // Program headers: the code; the section
        let mut program = |kind: u32, flags: u32, offset: u64, address: u64, size: u64| {
            headers.extend(kind.to_le_bytes());
            headers.extend(flags.to_le_bytes());
            for word in [offset, address, address, size, size, 1] {
                headers.extend(word.to_le_bytes());
            }
        };
        program(1, 5, code_at, code, code_size);
        let is_code = SECTIONS[kind] == CODE;
        let readable = if is_code { 5 } else { 4 };
        program(if flags & 2 == 0 || is_code { 1 } else { 0x6474_e550 }, readable, SECTION_AT, address, section.len() as u64);
        // Section headers: none, the section, the code, names
        let names_at = 64 + 2 * 56 + 4 * 64;
        let mut entry = |name: u32, kind: u32, flags: u64, address: u64, offset: u64, size: u64| {
            headers.extend(name.to_le_bytes());
            headers.extend(kind.to_le_bytes());
            for word in [flags, address, offset, size, 0, 1, 0] {
                headers.extend(word.to_le_bytes());
            }
        };
        let compressed = if flags & 4 == 0 { 0 } else { 0x800 };
        entry(0, 0, 0, 0, 0, 0);
        entry(names.len() as u32, 1, 2 | compressed | u64::from(is_code) << 2, address, SECTION_AT, section.len() as u64);
        entry(11, 1, 6, code, code_at, code_size);
        entry(1, 3, 0, 0, names_at, (names.len() + SECTIONS[kind].len() + 1) as u64);
        // sh_link and sh_info together are the fifth word above: 0.
        headers.extend(names);
        headers.extend(SECTIONS[kind].as_bytes());
        headers.push(0);
        Some(Wrapped { headers, section, length: code_at + code_size })
    }
}

impl ReadAt for Wrapped<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length) {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buffer.fill(0);
        for (start, bytes) in [(0, self.headers.as_slice()), (SECTION_AT, self.section)] {
            let end = start + bytes.len() as u64;
            let (from, to) = (offset.max(start), (offset + buffer.len() as u64).min(end));
            if from < to {
                let source = &bytes[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }
}

/// Small files become seeds unchanged. Sections of every file become seeds, cut to a size that can be mutated many times a second.
const LARGEST_FILE: usize = 40 << 10;
const LARGEST_SEED: usize = 6 << 10;

/// Makes seeds and ends the program if `FLAMETOP_SEEDS` is set.
pub fn make_seeds() {
    let Some(directory) = std::env::var_os("FLAMETOP_SEEDS") else { return };
    std::fs::create_dir_all(&directory).expect("the directory of seeds can be made");
    let (mut count, mut number) = (0, 0);
    for path in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(file) = object::File::parse(&*bytes) else { continue };
        number += 1;
        let mut write = |name: &str, bytes: &[u8]| {
            count += 1;
            let seed = Path::new(&directory).join(format!("{number:04}-{}", name.trim_start_matches('.')));
            std::fs::write(seed, bytes).expect("a seed can be written");
        };
        if bytes.len() <= LARGEST_FILE {
            write("file", &bytes);
        }
        let arm64 = file.architecture() == object::Architecture::Aarch64;
        let code = file.section_by_name(".text").map_or((0x1000, 0x1000), |text| (text.address(), text.size()));
        for (kind, name) in SECTIONS.iter().enumerate() {
            let Some(section) = file.section_by_name(name) else { continue };
            // A packed section is taken whole and stays packed. Other sections are cut: their beginning describes the rest.
            let data = section.data().unwrap_or_default();
            let data = if *name == ".gnu_debugdata" { data } else { data.get(..LARGEST_SEED).unwrap_or(data) };
            if !data.is_empty() && data.len() <= LARGEST_FILE {
                write(name, &wrap(kind as u8, arm64, section.address(), code, data));
            }
        }
    }
    eprintln!("{count} seeds from {number} files");
    std::process::exit(0);
}
