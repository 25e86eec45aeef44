//! Compares rules from code with unwind information, where both exist; and tests code that was written for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::cpu_time;
use crate::object::headers::Arch;
use crate::unwind::convert::Evidence as Tables;
use crate::unwind::debug_frame_files::{Nowhere, OnDisk};
use crate::unwind::table::rule::{Cfa, Fp, Frame, Ra, Reg, Rule};

/// The result of a comparison with unwind information.
#[derive(Default, Debug)]
pub(crate) struct Compared {
    /// Rows of code that unwind information covers. A row counts again wherever its unwind information changes.
    rows: u64,
    pub(crate) equal: u64,
    /// Unwind information or code says less: nothing, or a rule by a register that is unknown to the other.
    pub(crate) silent: u64,
    /// Unwind information is wrong: a function in assembly has one row, though it pushes.
    untold: u64,
    pub(crate) different: Vec<String>,
    pub(crate) functions: usize,
    pub(crate) proved: usize,
    bytes: u64,
    known: u64,
    failures: BTreeMap<&'static str, usize>,
}

/// Follows all code of a file as if it had no unwind information, and compares the result with that information.
pub(crate) fn compare(path: &Path) -> Compared {
    let bytes = std::fs::read(path).unwrap();
    let image = bytes.as_slice();
    let (_, evidence) = Tables::read(image, &OnDisk::of(path)).unwrap();
    let table = evidence.table(image);
    let elf = &evidence.elf;
    let is_stubs = |range: &Range<u64>| {
        let mut stubs = evidence.blocks.iter().filter(|block| block.source != "entry");
        stubs.any(|block| range.contains(&block.start)) && range.end - range.start < 1 << 16
    };
    let code: Vec<Range<u64>> = elf.code().into_iter().filter(|range| !is_stubs(range)).collect();
    let found = of_ranges(elf, image, &code, false);
    let mut compared = Compared { functions: found.functions.len(), ..Compared::default() };
    compared.bytes = code.iter().map(|range| range.end - range.start).sum();
    compared.known = found.blocks.iter().map(|block| block.end - block.start).sum();
    for (_, failed) in &found.functions {
        match failed {
            None => compared.proved += 1,
            Some(why) => *compared.failures.entry(why).or_default() += 1,
        }
    }
    let address_of = |row: &crate::unwind::table::rows::Row| table.base + u64::from(row.offset);
    for (function, row) in &found.rows {
        let Some(facts) = row.facts else { continue };
        let from = table.rows.partition_point(|other| address_of(other) <= row.start);
        let others = table.rows[from..].iter().map(address_of).take_while(|address| *address < row.end);
        for address in [row.start].into_iter().chain(others) {
            let rule = table.lookup(address).rule(table.arch).unwrap();
            let agrees = match (rule, facts.rule) {
                (Rule::Frame(theirs), Rule::Frame(ours)) => agree(&theirs, &ours, &facts),
                (Rule::Root, Rule::Root) => Some(true),
                (Rule::Root, _) | (Rule::Frame(_), Rule::Root) => Some(false),
                // Unwind information says nothing about this code, or only one of both has a frame.
                (Rule::Gap | Rule::Invalid(_) | Rule::Plt { .. } | Rule::Signal, _) | (Rule::Frame(_), _) => None,
            };
            compared.rows += u64::from(rule != Rule::Gap);
            match agrees {
                Some(true) => compared.equal += 1,
                None => compared.silent += u64::from(rule != Rule::Gap),
                Some(false) if is_untold(&table, *function, address) => compared.untold += 1,
                Some(false) => {
                    compared.different.push(format!("{address:#x} of {function:#x}: {rule:?}\n        by code {facts:?}"))
                }
            }
        }
    }
    compared
}

/// Returns whether unwind information and code agree about a place; `None` if they do not give the same facts.
fn agree(theirs: &Frame, ours: &Frame, facts: &state::Facts) -> Option<bool> {
    let same = match theirs.cfa {
        Cfa::Register(register, size) if register == facts.arch.sp() => facts.sp? == -size,
        Cfa::Register(register, size) if register == facts.arch.fp() => facts.fp? == -size,
        other if other == ours.cfa => true,
        _ => return None,
    };
    // On arm64 it may be in its register and on the stack.
    let is_link = theirs.ra == Ra::Register(Reg(30));
    let same_return = facts.arch == Arch::X86_64 || theirs.ra == ours.ra || facts.link && is_link;
    if !same || !same_return {
        return Some(false);
    }
    match theirs.fp {
        // Parts of assembly use the frame pointer as they like, and unwind information does not say so.
        _ if ours.fp == Fp::Undefined => None,
        Fp::Unchanged => Some(facts.kept),
        Fp::AtCfa(offset) => Some(facts.saved == Some(offset) || facts.kept && facts.saved.is_none()),
        other => Some(other == ours.fp),
    }
}

/// Returns whether one row covers all code from a function's begin to an address.
fn is_untold(table: &Table, function: u64, address: u64) -> bool {
    let at = |address: u64| table.rows.partition_point(|row| table.base + u64::from(row.offset) <= address);
    let at_entry = if table.arch == Arch::X86_64 { Cfa::Register(Reg(7), 8) } else { Cfa::Register(Reg(31), 0) };
    let Some(Rule::Frame(frame)) = table.lookup(address).rule(table.arch) else { return false };
    at(function) == at(address) && frame.cfa == at_entry
}

pub(crate) fn print(path: &Path, compared: &Compared, took: Duration) {
    println!(
        "{}: {} rows compared: {} equal, {} silent, {} untold, {} different; {} of {} functions proved, {:.1} % of {} KiB; {took:.2?}\n    {:?}",
        path.display(),
        compared.rows,
        compared.equal,
        compared.silent,
        compared.untold,
        compared.different.len(),
        compared.proved,
        compared.functions,
        100.0 * compared.known as f64 / compared.bytes.max(1) as f64,
        compared.bytes >> 10,
        compared.failures,
    );
    compared.different.iter().take(10).for_each(|different| println!("    {different}"));
}

/// C and its library, with assembly: only such code lacks unwind information. Landing pads of C++ and Rust cannot be compared:
/// the unwinder enters them.
#[test]
fn code_says_what_unwind_information_says() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from);
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libc.so") || name.starts_with("libm.so") || name.starts_with("ld-linux")
    };
    let mut files: Vec<PathBuf> = mapped.filter(named).collect();
    let programs = ["sh", "bash", "readelf"].map(|name| Path::new("/usr/bin").join(name));
    files.extend(programs.iter().filter_map(|path| std::fs::canonicalize(path).ok()));
    files.sort();
    files.dedup();
    assert!(files.len() >= 3, "{files:?}");
    for path in files {
        let begin = std::time::Instant::now();
        let compared = compare(&path);
        print(&path, &compared, begin.elapsed());
        assert_eq!(compared.different, Vec::<String>::new(), "{}", path.display());
        assert!(compared.equal > 500 && compared.untold < 100 && compared.silent < 100, "{}: {compared:?}", path.display());
        assert!(compared.proved as f64 > compared.functions as f64 * 0.8, "{}: {compared:?}", path.display());
    }
}

/// `OBJECTS="FILE …" cargo test --release --lib code_says_of -- --ignored --nocapture`
#[test]
#[ignore = "for looking at chosen files"]
fn code_says_of_these_files() {
    for path in std::env::var("OBJECTS").unwrap_or_default().split_whitespace() {
        let begin = std::time::Instant::now();
        let compared = compare(Path::new(path));
        print(Path::new(path), &compared, begin.elapsed());
    }
}

/// Prints the rules found in the gaps of real files. Run it like the test above, with `gaps_of`.
#[test]
#[ignore = "for looking at chosen files"]
fn gaps_of_these_files() {
    for path in std::env::var("OBJECTS").unwrap_or_default().split_whitespace() {
        let bytes = std::fs::read(path).unwrap();
        let (_, evidence) = Tables::read(bytes.as_slice(), &Nowhere).unwrap();
        let mut table = evidence.table(bytes.as_slice());
        let begin = std::time::Instant::now();
        let found = find(&evidence.elf, bytes.as_slice(), &table);
        let took = begin.elapsed();
        let size = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let before = gaps(&table, &evidence.elf.code());
        table.fill(&found.blocks);
        let after = gaps(&table, &evidence.elf.code());
        let failed: Vec<_> = found.functions.iter().filter(|(_, failed)| failed.is_some()).collect();
        println!("{path}: {} of {} bytes remain; {} functions; {took:.2?}", size(&after), size(&before), found.functions.len());
        failed.iter().take(10).for_each(|(start, why)| println!("    {start:#x}: {}", why.unwrap_or_default()));
        let long = after.iter().filter(|range| range.end - range.start > 63).take(10);
        long.for_each(|range| println!("    gap {range:#x?}"));
    }
}

/// A library of assembly without unwind information, and where its functions are.
struct Assembled {
    table: Table,
    symbols: BTreeMap<String, u64>,
}

impl Assembled {
    fn new(code: &str) -> Assembled {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (directory.path().join("code.s"), directory.path().join("code.so"));
        std::fs::write(&source, format!(".text\n{code}\n.section .note.GNU-stack,\"\",@progbits\n")).unwrap();
        let flags = ["-shared", "-nostdlib", "-Wl,--hash-style=gnu"];
        let built = Command::new("gcc").args(flags).arg("-o").arg(&library).arg(&source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let names = Command::new("nm").arg(&library).output().unwrap();
        let names = String::from_utf8_lossy(&names.stdout).into_owned();
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?.to_owned(), address))
        };
        let bytes = std::fs::read(&library).unwrap();
        let (table, _) = Tables::read(bytes.as_slice(), &Nowhere).unwrap();
        Assembled { table, symbols: names.lines().filter_map(symbol).collect() }
    }

    /// Returns the rule at a label, or `behind` bytes after it.
    fn at(&self, label: &str, behind: u64) -> Rule {
        self.table.lookup(self.symbols[label] + behind).rule(Arch::X86_64).unwrap()
    }

    fn cfa(&self, label: &str, behind: u64) -> (Cfa, Fp) {
        match self.at(label, behind) {
            Rule::Frame(frame) => {
                assert_eq!(frame.ra, Ra::AtCfa(-8));
                (frame.cfa, frame.fp)
            }
            other => panic!("{label}+{behind}: {other:?}"),
        }
    }
}

const fn rsp(size: i32) -> Cfa {
    Cfa::Register(Reg(7), size)
}

const fn rbp(size: i32) -> Cfa {
    Cfa::Register(Reg(6), size)
}

fn function(name: &str) -> String {
    format!(".globl {name}\n.type {name}, @function\n{name}:\n")
}

#[test]
fn pushes_calls_and_branches_are_followed() {
    let code = Assembled::new(&format!(
        "{}push %rbp\n mov %rdi, %rbp\n sub $32, %rsp\n test %edi, %edi\n je 1f\n call other\nafter: nop\n1: add $32, %rsp\n pop %rbp\nlast: ret\n\
         {}lock orl $0, (%rsp)\n ret\n",
        function("first"),
        function("other")
    ));
    assert_eq!(code.cfa("first", 0), (rsp(8), Fp::Unchanged));
    assert_eq!(code.cfa("first", 1), (rsp(16), Fp::Unchanged));
    // From here on, rbp has another value.
    assert_eq!(code.cfa("first", 4), (rsp(16), Fp::AtCfa(-16)));
    assert_eq!(code.cfa("after", 0), (rsp(48), Fp::AtCfa(-16)));
    assert_eq!(code.cfa("last", 0), (rsp(8), Fp::Unchanged));
    // A barrier does not change the return address.
    assert_eq!(code.cfa("other", 5), (rsp(8), Fp::Unchanged));
}

#[test]
fn a_frame_pointer_finds_the_frame_whatever_the_stack_pointer_does() {
    let code = Assembled::new(&format!(
        "{}push %rbp\n mov %rsp, %rbp\nmade: and $-64, %rsp\n sub %rdi, %rsp\nbody: lea -8(%rbp), %rsp\n pop %rbx\n pop %rbp\nlast: ret\n",
        function("first")
    ));
    for (label, cfa) in [("made", rbp(16)), ("body", rbp(16)), ("last", rsp(8))] {
        assert_eq!(code.at(label, 0) != Rule::Gap, label != "none");
        let fp = if label == "last" { Fp::Unchanged } else { Fp::AtCfa(-16) };
        assert_eq!(code.cfa(label, 0), (cfa, fp), "{label}");
    }
}

#[test]
fn what_contradicts_itself_stays_a_gap() {
    let code = Assembled::new(&format!(
        "{}push %rbx\n ret\n.balign 16\n{}test %edi, %edi\n je 1f\n push %rbx\n1: nop\n ret\n.balign 16\n{}push %rbx\n jmp *%rax\n.balign 16\n{}ret\n",
        function("no_pop"),
        function("two_sizes"),
        function("anywhere"),
        function("right"),
    ));
    for label in ["no_pop", "two_sizes", "anywhere"] {
        assert_eq!(code.at(label, 0), Rule::Gap, "{label}");
        assert_eq!(code.at(label, 1), Rule::Gap, "{label}");
    }
    assert_eq!(code.cfa("right", 0), (rsp(8), Fp::Unchanged));
}

#[test]
fn calls_that_do_not_return_have_what_they_like_behind_them() {
    // `ends` never returns; behind its call is a part of `first` that has no frame yet.
    let code = Assembled::new(&format!(
        "{}test %edi, %edi\n jne 1f\n push %rbx\n call ends\n1: mov %edi, %eax\nlast: ret\n.balign 16\n{}push %rax\n hlt\n",
        function("first"),
        function("ends"),
    ));
    assert_eq!(code.cfa("last", 0), (rsp(8), Fp::Unchanged));
    assert_eq!(code.cfa("ends", 1), (rsp(16), Fp::Unchanged));
}

#[test]
fn where_functions_go_on_by_jumps_nothing_is_believed() {
    // Haskell's convention: the address of the next code is at the top of a separate stack, and rbp points there. Then a function
    // of C in the same object.
    let jumps = |count: usize| -> String {
        let one = |number| format!("{}mov 8(%rbp), %rbx\n add $16, %rbp\n jmp *(%rbp)\n", function(&format!("h{number}")));
        (0..count).map(one).collect::<String>() + &function("right") + "push %rbx\n pop %rbx\n ret\n"
    };
    let some = Assembled::new(&jumps(FEW_JUMPS / 2));
    assert_eq!(some.cfa("right", 1), (rsp(16), Fp::Unchanged));
    let many = Assembled::new(&jumps(2 * FEW_JUMPS));
    assert_eq!(many.at("right", 1), Rule::Gap);
    assert_eq!(many.at("h7", 0), Rule::Gap);
}

#[test]
fn tables_of_jumps_are_followed_as_far_as_they_go() {
    let code = Assembled::new(&format!(
        "{}push %rbx\n cmp $2, %edi\n ja 3f\n mov %edi, %eax\n lea table(%rip), %rdx\n movslq (%rdx,%rax,4), %rax\n add %rdx, %rax\n jmp *%rax\n\
         one: nop\n pop %rbx\n ret\ntwo: nop\n nop\n pop %rbx\n ret\n3: pop %rbx\n ret\n\
         .section .rodata\n.balign 4\ntable: .long one - table, two - table, one - table, 0x11\n.text\n",
        function("first")
    ));
    assert_eq!(code.cfa("one", 0), (rsp(16), Fp::Unchanged));
    assert_eq!(code.cfa("two", 1), (rsp(16), Fp::Unchanged));
}

/// musl 1.2.5, src/thread/x86_64/clone.s:
///
/// ```text
///  0: xor eax, eax       10: mov r10, [rsp+8]    25: test eax, eax    2f: mov edi, eax
///  2: mov al, 56         15: mov r9, r11         27: jne 38           31: xor eax, eax
///  4: mov r11, rdi       18: and rsi, -16        29: xor ebp, ebp     33: mov al, 60
///  7: mov rdi, rdx       1c: sub rsi, 8          2b: pop rdi          35: syscall
///  a: mov rdx, r8        20: mov [rsi], rcx      2c: call r9          37: hlt
///  d: mov r8, r9         23: syscall                                  38: ret
/// ```
#[test]
fn nobody_called_what_a_new_thread_runs_first() {
    let code = Assembled::new(&format!(
        "{}xor %eax, %eax\n mov $56, %al\n mov %rdi, %r11\n mov %rdx, %rdi\n mov %r8, %rdx\n mov %r9, %r8\n mov 8(%rsp), %r10\n mov %r11, %r9\n\
         and $-16, %rsi\n sub $8, %rsi\n mov %rcx, (%rsi)\n syscall\n test %eax, %eax\n jne 1f\n xor %ebp, %ebp\n pop %rdi\n call *%r9\n\
         mov %eax, %edi\n xor %eax, %eax\n mov $60, %al\n syscall\n hlt\n1: ret\n.balign 16\n\
         {}mov $56, %eax\n syscall\n test %eax, %eax\n je 1f\n ret\n1: nop\n ret\n",
        function("clone"),
        function("fork"),
    ));
    assert_eq!([0, 0x25, 0x27, 0x38].map(|at| code.cfa("clone", at)), [(rsp(8), Fp::Unchanged); 4]);
    // A return address is looked up at the call's last byte.
    assert_eq!([0x29, 0x2b, 0x2e, 0x35].map(|at| code.at("clone", at)), [Rule::Root; 4]);
    // A fork's child, which comes back, is no root.
    assert_eq!([0, 11, 12, 13].map(|at| code.cfa("fork", at)), [(rsp(8), Fp::Unchanged); 4]);
}

/// musl, src/process/x86_64/vfork.s: the child would overwrite the return address.
#[test]
fn a_return_address_in_a_register_is_found_there() {
    let code = Assembled::new(&format!("{}pop %rdx\n mov $58, %eax\n syscall\n push %rdx\nlast: ret\n", function("vfork")));
    let Rule::Frame(frame) = code.at("vfork", 3) else { panic!("{:?}", code.at("vfork", 3)) };
    assert_eq!((frame.cfa, frame.ra), (rsp(0), Ra::Register(Reg(1))));
    assert_eq!(code.cfa("last", 0), (rsp(8), Fp::Unchanged));
}

#[test]
fn any_code_is_followed_in_time_in_proportion_to_it() {
    // Each byte begins another instruction, and branches lead everywhere.
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let code: Vec<u8> = (0..1 << 18)
        .map(|_| {
            random = random.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            [0x74, 0xe8, 0x50, 0x58, 0xc3, 0x00, 0xff, 0xeb, (random >> 40) as u8][(random >> 56) as usize % 9]
        })
        .collect();
    let bytes = crate::unwind::tests::elf_with_code(&code);
    let begin = cpu_time::of_this_thread();
    crate::unwind::convert(bytes.as_slice(), &Nowhere).unwrap();
    assert!(cpu_time::since(begin) < Duration::from_secs(5), "{:?}", cpu_time::since(begin));
}
