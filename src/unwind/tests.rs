//! Whole objects: real ones against gimli and readelf, built ones for each source, damaged ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::convert::Evidence;
use super::sections::Elf;
use super::table::rule::{Cfa, Fp, Frame, Ra, Rbx, Reg};
use super::*;
use crate::cpu_time;
use crate::object::open::Root;
use crate::profile::UserId;

/// Programs that are on every machine where the tests run, and our own: C, assembly, and Rust.
fn some_files() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let code = maps.lines().filter(|line| line.contains("r-xp")).filter_map(|line| line.split_whitespace().nth(5));
    let mut files: Vec<PathBuf> = code.filter(|path| path.starts_with('/')).map(PathBuf::from).collect();
    for name in ["gcc", "readelf", "sh"] {
        files.extend(["/usr/bin", "/bin"].iter().map(|directory| Path::new(directory).join(name)).find(|path| path.exists()));
    }
    files.sort();
    files.dedup();
    files
}

fn evidence(path: &Path) -> (Table, Paged, Evidence) {
    let image = std::fs::read(path).unwrap();
    let (table, evidence) = Evidence::read(image.as_slice(), &OnDisk::of(path)).unwrap();
    (table.clone(), Paged::new(&table), evidence)
}

#[test]
fn the_tables_of_this_machines_programs_say_what_gimli_reads() {
    let files = some_files();
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let (table, paged, evidence) = evidence(&path);
        let verdict = check::gimli_check::check(&evidence, &table, &paged);
        assert_eq!(verdict.wrong, 0, "{}: {:#?}", path.display(), verdict.examples);
        assert!(verdict.rows > 100, "{}: {verdict:?}", path.display());
        assert!(verdict.ruled as f64 >= verdict.rows as f64 * 0.999, "{}: {verdict:?}", path.display());
    }
}

/// Every program and library below /usr; about a minute.
#[test]
#[ignore = "reads all programs of the machine"]
fn the_tables_of_all_programs_say_what_gimli_reads() {
    let mut waiting = vec![PathBuf::from("/usr")];
    let (mut files, mut rows, mut ruled, mut merged, mut bytes) = (0, 0, 0, 0, 0);
    while let Some(path) = waiting.pop() {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            continue;
        }
        match check_file(&path) {
            Ok(checked) => {
                assert_eq!(checked.verdict.wrong, 0, "{}: {:#?}", path.display(), checked.verdict.examples);
                files += 1;
                rows += checked.verdict.rows;
                ruled += checked.verdict.ruled;
                merged += checked.rows;
                bytes += checked.kernel_bytes;
            }
            Err(Unreadable::NotElf | Unreadable::NotOurs | Unreadable::Io(_)) => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    println!("{files} files, {rows} rows, {ruled} with a rule; {:.2} bytes a row", bytes as f64 / merged as f64);
    assert!(files > 100 && ruled as f64 >= rows as f64 * 0.9999);
    assert!(bytes as f64 <= merged as f64 * 5.0);
}

#[test]
fn the_oracle_notices_any_rule_that_is_changed() {
    let (mut table, paged, evidence) = evidence(&std::fs::canonicalize("/proc/self/exe").unwrap());
    // The rule of most rows, in each of its parts.
    let mut uses = vec![0; table.rules.len()];
    table.rows.iter().for_each(|row| uses[usize::from(row.rule)] += 1);
    let is_frame = |place: usize| matches!(table.rules[place].rule(table.arch), Some(Rule::Frame(_)));
    let most = (0..uses.len()).filter(|place| is_frame(*place)).max_by_key(|place| uses[*place]).unwrap();
    let Some(Rule::Frame(frame)) = table.rules[most].rule(table.arch) else { panic!() };
    let changes = [
        Rule::Gap,
        Rule::Root,
        Rule::Signal,
        Rule::Plt { pushed: 11 },
        Rule::Frame(Frame { cfa: Cfa::Register(Reg(7), 800), ..frame }),
        Rule::Frame(Frame { cfa: Cfa::Deref(Reg(7), 8, 0), ..frame }),
        Rule::Frame(Frame { ra: Ra::Register(Reg(0)), ..frame }),
        Rule::Frame(Frame { fp: Fp::Undefined, ..frame }),
        Rule::Frame(Frame { fp: Fp::AtCfa(-800), ..frame }),
        Rule::Frame(Frame { rbx: Rbx::AtCfa(-80), ..frame }),
        Rule::Frame(Frame { interrupted: true, ..frame }),
    ];
    for change in changes {
        table.rules[most] = Packed::new(change, table.arch).unwrap();
        assert!(check::gimli_check::check(&evidence, &table, &paged).wrong > 0, "{change:?}");
    }
}

/// Compares with a reader that is neither ours nor gimli's: the rows that `readelf --debug-dump=frames-interp` prints.
#[test]
fn the_tables_say_what_readelf_prints() {
    for path in some_files() {
        let (table, _, _) = evidence(&path);
        let compared = by_readelf(&path, &table);
        assert!(compared > 50, "{}: {compared}", path.display());
    }
}

/// Compares all rows whose CFA, rbp and return address readelf prints in full. Returns how many there were.
fn by_readelf(path: &Path, table: &Table) -> usize {
    let printed = Command::new("readelf").arg("-wF").arg(path).env("LC_ALL", "C").output().expect("readelf (binutils) is needed");
    let printed = String::from_utf8_lossy(&printed.stdout);
    let (mut compared, mut columns, mut rows) = (0, Vec::new(), Vec::new());
    let mut signal = false;
    for line in printed.lines().chain([""]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, _, _, "CIE", augmentation, ..] => signal = augmentation.contains('S'),
            ["LOC", names @ ..] => columns = names.iter().map(|name| (*name).to_owned()).collect(),
            [address, values @ ..] if values.len() == columns.len() && !columns.is_empty() && address.len() == 16 => {
                let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
                rows.push((u64::from_str_radix(address, 16).unwrap(), values));
            }
            _ => {
                for (number, (address, values)) in rows.iter().enumerate() {
                    // A row of length zero does not count.
                    if rows.get(number + 1).is_some_and(|(next, _)| next == address) || signal {
                        continue;
                    }
                    let value = |name| columns.iter().position(|column| column == name).map_or("u", |at| values[at].as_str());
                    compared += usize::from(compare(table, *address, value("CFA"), value("ra"), value("rbp")));
                }
                rows.clear();
                columns.clear();
            }
        }
    }
    compared
}

fn compare(table: &Table, address: u64, cfa: &str, ra: &str, rbp: &str) -> bool {
    let rule = table.lookup(address).rule(table.arch);
    if table.base > address || cfa == "exp" || cfa == "vexp" || !matches!(ra, "c-8" | "u") || rule == Some(Rule::Gap) {
        return false;
    }
    if ra == "u" {
        assert_eq!(rule, Some(Rule::Root), "{address:#x}");
        return true;
    }
    let (register, size) = cfa.split_at(3);
    let number = match register {
        "rsp" => 7,
        "rbp" => 6,
        _ => return false,
    };
    let Ok(size) = size.parse::<i32>() else { return false };
    let offset = rbp.strip_prefix('c').and_then(|offset| offset.parse::<i32>().ok());
    let fp = match (rbp, offset) {
        ("u" | "s", _) => Fp::Unchanged,
        (_, Some(offset)) if number == 7 && size + offset < 0 => Fp::Unchanged,
        (_, Some(offset)) => Fp::AtCfa(offset),
        _ => return false,
    };
    let Some(Rule::Frame(frame)) = rule else {
        // The caller's stack pointer is not the CFA: readelf prints that in another column.
        assert_eq!(rule, Some(Rule::Invalid(table::rule::Invalid::StackPointer)), "{address:#x}");
        return false;
    };
    let expected = (Cfa::Register(Reg(number), size), Ra::AtCfa(-8), fp);
    assert_eq!((frame.cfa, frame.ra, frame.fp), expected, "{address:#x}");
    true
}

/// Builds a C library without `.eh_frame`, and changes it.
struct Built {
    directory: tempfile::TempDir,
}

impl Built {
    fn new(options: &[&str]) -> Built {
        let built = Built { directory: tempfile::tempdir().unwrap() };
        let source =
            "int g(int *); int f(int n) { int a[40]; a[0] = n; return g(a) + 1; } int h(int n) { return f(n) + f(n + 1); }";
        std::fs::write(built.path("lib.c"), source).unwrap();
        let quiet = ["-O2", "-g", "-fPIC", "-shared", "-nostdlib", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
        built.run("gcc", &[&quiet[..], options, &["-Wl,--build-id", "-o", "lib.so", "lib.c"]].concat());
        built
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let ran = Command::new(program).args(arguments).current_dir(self.directory.path()).output();
        let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// Returns the sources of the library's table, which is compared with gimli's.
    fn sources(&self, beside: &dyn Beside) -> Vec<&'static str> {
        let image = std::fs::read(self.path("lib.so")).unwrap();
        let (table, evidence) = Evidence::read(image.as_slice(), beside).unwrap();
        let verdict = check::gimli_check::check(&evidence, &table, &Paged::new(&table));
        assert_eq!(verdict.wrong, 0, "{verdict:#?}");
        assert!(table.report.sources.iter().all(|source| *source == ".plt" || *source == ".eh_frame") || verdict.rows >= 3);
        table.report.sources
    }
}

#[test]
fn debug_frame_is_read_plain_and_compressed() {
    for compression in ["none", "zlib", "zstd"] {
        let built = Built::new(&[]);
        built.run("objcopy", &[&format!("--compress-debug-sections={compression}"), "lib.so"]);
        let sources = built.sources(&Nowhere);
        assert!(sources.contains(&".debug_frame"), "{compression}: {sources:?}");
    }
}

#[test]
fn debug_frame_is_found_in_separate_files_that_prove_to_be_the_objects() {
    let built = Built::new(&[]);
    built.run("objcopy", &["--only-keep-debug", "lib.so", "lib.debug"]);
    built.run("strip", &["--strip-debug", "lib.so"]);
    let without = built.sources(&OnDisk::of(&built.path("lib.so")));
    assert!(!without.iter().any(|source| source.contains("file")), "{without:?}");
    // By build id, under a separate root.
    let id = crate::object::build_id::of_image(std::fs::read(built.path("lib.so")).unwrap().as_slice()).unwrap();
    let digits = id.to_string();
    let (first, rest) = digits.split_at(2);
    let place = built.path(&format!("usr/lib/debug/.build-id/{first}"));
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(built.path("lib.debug"), place.join(format!("{rest}.debug"))).unwrap();
    let under = OnDisk::under(UserId(0), Root::Under(built.directory.path().to_owned()), None, Some(id));
    assert!(built.sources(&under).contains(&"build-id file"));
    // The same name, for a file of another library.
    let other = Built::new(&["-DOTHER", "-O1"]);
    std::fs::copy(other.path("lib.so"), place.join(format!("{rest}.debug"))).unwrap();
    assert!(!built.sources(&under).contains(&"build-id file"));
    // By link, and with a file that was changed since.
    built.run("objcopy", &["--add-gnu-debuglink=lib.debug", "lib.so"]);
    let beside = OnDisk::under(UserId(0), Root::Own, Some(built.directory.path().to_owned()), None);
    assert!(built.sources(&beside).contains(&"debuglink file"));
    let mut bytes = std::fs::read(built.path("lib.debug")).unwrap();
    bytes.push(0);
    std::fs::write(built.path("lib.debug"), bytes).unwrap();
    assert!(!built.sources(&beside).contains(&"debuglink file"));
}

#[test]
fn debug_frame_is_found_in_gnu_debugdata() {
    let built = Built::new(&[]);
    built.run("objcopy", &["--only-keep-debug", "lib.so", "mini"]);
    built.run("xz", &["mini"]);
    built.run("strip", &["--strip-debug", "lib.so"]);
    built.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "lib.so"]);
    assert!(built.sources(&Nowhere).contains(&".gnu_debugdata"));
}

#[test]
fn a_file_without_section_headers_has_the_same_table() {
    let path = std::fs::canonicalize("/proc/self/exe").unwrap();
    let mut image = std::fs::read(path).unwrap();
    let whole = convert(image.as_slice(), &Nowhere).unwrap();
    let elf = Elf::read(image.as_slice()).unwrap();
    image[40..48].fill(0);
    image[60..64].fill(0);
    let stripped = convert(image.as_slice(), &Nowhere).unwrap();
    assert_eq!(stripped.report.sources.first(), Some(&".eh_frame_hdr"));
    // Code that is known by its bytes is found in sections by their names; all other code has the same rules. A row begins at the
    // end of these sections, too.
    let by_bytes = [".plt", ".plt.got", ".plt.sec", ".iplt", ".init", ".fini"].map(|name| elf.section(name));
    for row in &whole.rows {
        let address = whole.base + u64::from(row.offset);
        let known =
            by_bytes.iter().flatten().any(|section| (section.address..=section.address + section.size).contains(&address));
        assert!(known || whole.lookup(address) == stripped.lookup(address), "{address:#x}");
    }
}

#[test]
fn the_vdso_of_this_kernel_has_a_table() {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("there is a vDSO");
    let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
    let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
    let mut image = vec![0; (end - start) as usize];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();
    let table = convert(image.as_slice(), &Nowhere).unwrap();
    assert!(table.rows.len() > 5, "{:?}", table.report);
}

/// xorshift64*: the same damage on each run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}

#[test]
fn damaged_files_cost_neither_the_program_nor_much_time() {
    let path = std::fs::canonicalize("/bin/true").unwrap_or_else(|_| PathBuf::from("/bin/sh"));
    let whole = std::fs::read(path).unwrap();
    let elf = Elf::read(whole.as_slice()).unwrap();
    let section = elf.section(".eh_frame").unwrap();
    let eh_frame = section.offset as usize..(section.offset + section.size) as usize;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let begun = cpu_time::of_this_thread();
    let (mut runs, mut slowest) = (0, Duration::ZERO);
    while cpu_time::since(begun) < Duration::from_secs(5) {
        let mut image = whole.clone();
        let places = match random.next(4) {
            0 => 0..64 + 13 * 56,
            1 => image.len() - 40 * 64..image.len(),
            _ => eh_frame.clone(),
        };
        for _ in 0..1 + random.next(8) {
            let at = places.start + random.next(places.len());
            image[at] = match random.next(3) {
                0 => 0xff,
                1 => image[at] ^ 1 << random.next(8),
                _ => random.next(256) as u8,
            };
        }
        if random.next(8) == 0 {
            image.truncate(random.next(whole.len()));
        }
        let begin = cpu_time::of_this_thread();
        if let Ok((table, evidence)) = Evidence::read(image.as_slice(), &Nowhere) {
            let paged = Paged::new(&table);
            assert!(table.rows.len() <= image.len() && paged.bytes() <= 8 * image.len());
            // gimli must survive this, too: unwind-check runs it on any file.
            check::gimli_check::check(&evidence, &table, &paged);
        }
        slowest = slowest.max(cpu_time::since(begin));
        runs += 1;
    }
    assert!(runs > 500, "{runs}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// An ELF file for `machine` with 64 KiB of code at 0x10000 and this `.eh_frame` at 0x100000.
fn elf_with(machine: u16, eh_frame: &[u8]) -> Vec<u8> {
    let (code, frame_at) = (0x1_0000usize, 0x2_0000usize);
    let mut image = vec![0; frame_at];
    image[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    image[16..18].copy_from_slice(&3u16.to_le_bytes());
    image[18..20].copy_from_slice(&machine.to_le_bytes());
    image[32..40].copy_from_slice(&64u64.to_le_bytes());
    let sections = (frame_at + eh_frame.len()) as u64;
    image[40..48].copy_from_slice(&sections.to_le_bytes());
    for (at, value) in [(54, 56u16), (56, 1), (58, 64), (60, 3), (62, 2)] {
        image[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    let program = [1 | 5 << 32, code as u64, 0x1_0000, 0x1_0000, 0x1_0000, 0x1_0000, 0x1000];
    program.iter().enumerate().for_each(|(at, word)| image[64 + 8 * at..72 + 8 * at].copy_from_slice(&u64::to_le_bytes(*word)));
    image.extend_from_slice(eh_frame);
    let names = b"\0.eh_frame\0.names\0";
    let section = |name: u32, address: u64, offset: u64, size: u64| {
        let kind = u64::from(name) | 1 << 32;
        [kind, 2, address, offset, size, 0, 1, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
    };
    image.extend([0; 64]);
    image.extend(section(1, 0x10_0000, frame_at as u64, eh_frame.len() as u64));
    image.extend(section(11, 0, sections + 192, names.len() as u64));
    image.extend_from_slice(names);
    image
}

/// An ELF file for x86_64 with this code at 0x10000, and without a description of it.
pub(crate) fn elf_with_code(code: &[u8]) -> Vec<u8> {
    elf_of(62, code)
}

/// An ELF file for any machine with this code at 0x10000, and without a description of it.
pub(crate) fn elf_of(machine: u16, code: &[u8]) -> Vec<u8> {
    let mut image = elf_with(machine, &[]);
    image.truncate(0x1_0000);
    // No sections; one segment.
    image[40..48].fill(0);
    image[60..64].fill(0);
    for at in [64 + 32, 64 + 40] {
        image[at..at + 8].copy_from_slice(&(code.len() as u64).to_le_bytes());
    }
    image.extend_from_slice(code);
    image
}

/// An entry with its length in front, padded to 4 bytes with nops.
fn entry(content: &[u8]) -> Vec<u8> {
    let padded = content.len().next_multiple_of(4);
    let mut entry = (padded as u32).to_le_bytes().to_vec();
    entry.extend_from_slice(content);
    entry.resize(4 + padded, 0);
    entry
}

/// A CIE for absolute addresses of 4 bytes; `instructions` are run first.
fn cie(augmentation: &str, ra: u8, instructions: &[u8]) -> Vec<u8> {
    let mut content = vec![0, 0, 0, 0, 1];
    content.extend_from_slice(augmentation.as_bytes());
    // Code by 1, data by −8, one byte of augmentation: pointers are udata4.
    content.extend_from_slice(&[0, 1, 0x78, ra, 1, 3]);
    content.extend_from_slice(instructions);
    entry(&content)
}

/// An FDE of the CIE at the section's begin.
fn fde(section: &[u8], start: u32, length: u32, instructions: &[u8]) -> Vec<u8> {
    let mut content = (section.len() as u32 + 4).to_le_bytes().to_vec();
    content.extend_from_slice(&start.to_le_bytes());
    content.extend_from_slice(&length.to_le_bytes());
    content.push(0);
    content.extend_from_slice(instructions);
    entry(&content)
}

fn rule_at(table: &Table, address: u64) -> Rule {
    table.lookup(address).rule(table.arch).unwrap()
}

#[test]
fn a_bad_description_costs_its_own_function_only() {
    use super::table::rule::Invalid;
    // CFA = rsp + 8, return address at CFA − 8.
    let mut section = cie("zR", 16, &[0x0c, 7, 8, 0x90, 1]);
    for (start, instructions) in [
        (0x1_0000, &[0x44, 0x0e, 16][..]),
        // From byte 4 on: an unknown instruction.
        (0x1_0040, &[0x44, 0x3f, 0x44, 0x0e, 32]),
        // Restores a state that was never remembered.
        (0x1_0080, &[0x44, 0x0b]),
        // Remembers ten states, and restores them.
        (0x1_00c0, &[10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 0x44, 0x0e, 64, 11, 11, 11, 11, 11, 11, 11, 11, 11, 0x44, 11]),
        // Cut in an operand.
        (0x1_0100, &[0x44, 0x0f, 0x7f]),
        (0x1_0140, &[0x44, 0x0e, 24]),
    ] {
        section.extend(fde(&section, start, 0x40, instructions));
    }
    let image = elf_with(62, &section);
    let (table, evidence) = Evidence::read(image.as_slice(), &Nowhere).unwrap();
    let size = |address| match rule_at(&table, address) {
        Rule::Frame(Frame { cfa: Cfa::Register(Reg(7), size), .. }) => size,
        other => panic!("{address:#x}: {other:?}"),
    };
    assert_eq!([0x1_0000, 0x1_0004, 0x1_0040, 0x1_0080, 0x1_0100, 0x1_0144].map(size), [8, 16, 8, 8, 8, 24]);
    assert_eq!([0x1_00c3, 0x1_00c4, 0x1_00c8].map(size), [8, 8, 8]);
    assert_eq!(rule_at(&table, 0x1_0044), Rule::Invalid(Invalid::Instruction));
    assert_eq!(rule_at(&table, 0x1_0084), Rule::Invalid(Invalid::StateStack));
    assert_eq!(rule_at(&table, 0x1_0104), Rule::Invalid(Invalid::Malformed));
    assert_eq!(rule_at(&table, 0x1_0180), Rule::Gap);
    assert_eq!((table.report.fdes, table.report.fdes_in_error), (6, 3));
    let verdict = check::gimli_check::check(&evidence, &table, &Paged::new(&table));
    assert_eq!(verdict.wrong, 0, "{verdict:#?}");
}

#[test]
fn signed_return_addresses_of_arm64_are_where_unsigned_ones_are() {
    for augmentation in ["zRB", "zRG", "zRBG", "zR"] {
        // CFA = sp; paciasp; stp x29, x30, [sp, -32]!
        let mut section = cie(augmentation, 30, &[0x0c, 31, 0]);
        section.extend(fde(&section, 0x1_0000, 0x40, &[0x44, 0x2d, 0x44, 0x0e, 32, 0x9d, 4, 0x9e, 3]));
        let image = elf_with(183, &section);
        let (table, evidence) = Evidence::read(image.as_slice(), &Nowhere).unwrap();
        let frame = |size, ra, fp| {
            Rule::Frame(Frame { cfa: Cfa::Register(Reg(31), size), ra, fp, rbx: Rbx::Unknown, interrupted: false, skips: false })
        };
        assert_eq!(rule_at(&table, 0x1_0004), frame(0, Ra::Register(Reg(30)), Fp::Unchanged), "{augmentation}");
        assert_eq!(rule_at(&table, 0x1_0008), frame(32, Ra::AtCfa(-24), Fp::AtCfa(-32)), "{augmentation}");
        let verdict = check::gimli_check::check(&evidence, &table, &Paged::new(&table));
        assert_eq!((verdict.wrong, verdict.rows), (0, 3), "{augmentation}: {verdict:#?}");
    }
}

#[test]
fn overlapping_descriptions_are_counted_and_the_first_wins() {
    let mut section = cie("zR", 16, &[0x0c, 7, 8, 0x90, 1]);
    for (start, length, size) in
        [(0x1_0000, 0x40, 16), (0x1_0020, 0x40, 24), (0x1_0000, 0x10, 32), (0x5000, 0x10, 40), (0, 0x40, 48)]
    {
        section.extend(fde(&section, start, length, &[0x0e, size]));
    }
    let image = elf_with(62, &section);
    let (table, evidence) = Evidence::read(image.as_slice(), &Nowhere).unwrap();
    assert_eq!((table.report.overlapping, table.report.discarded), (2, 2));
    assert!(matches!(rule_at(&table, 0x1_003f), Rule::Frame(Frame { cfa: Cfa::Register(_, 16), .. })));
    assert!(matches!(rule_at(&table, 0x1_0040), Rule::Frame(Frame { cfa: Cfa::Register(_, 24), .. })));
    assert_eq!(rule_at(&table, 0x1_0060), Rule::Gap);
    assert_eq!(check::gimli_check::check(&evidence, &table, &Paged::new(&table)).wrong, 0);
}

#[test]
fn what_is_made_to_take_long_does_not() {
    let begin = cpu_time::of_this_thread();
    // A CIE of 1 MiB of instructions, for 60,000 descriptions; and a description that remembers a million states.
    let mut slow = cie("zR", 16, &vec![0x0a; 1000].into_iter().chain(vec![0; 1 << 20]).collect::<Vec<u8>>());
    for number in 0..60_000 {
        slow.extend(fde(&slow, 0x1_0000 + number, 1, &[]));
    }
    slow.extend(fde(&slow, 0x1_ff00, 0x100, &vec![0x0a; 1 << 20]));
    let table = convert(elf_with(62, &slow).as_slice(), &Nowhere).unwrap();
    assert_eq!(table.report.fdes, 60_001);
    // Pointers into the midst of other entries: none is a CIE.
    let mut crossed = cie("zR", 16, &[]);
    for number in 1..60_000u32 {
        let mut entry = fde(&crossed, 0x1_0000, 1, &[]);
        entry[4..8].copy_from_slice(&number.to_le_bytes());
        crossed.extend(entry);
    }
    convert(elf_with(62, &crossed).as_slice(), &Nowhere).unwrap();
    assert!(cpu_time::since(begin) < Duration::from_secs(5), "{:?}", cpu_time::since(begin));
}
