//! The symbolizer against real files and outside oracles.
//!
//! Needs gcc, g++, binutils, llvm-symbolizer-14, node and rustc, and root for the tests of mapped files and the kernel. If
//! something is missing, the test fails with a sentence.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agreement;
mod bench;
mod dwarf;
mod jit;
mod listing;
mod oracle;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agreement::{compare, readable, real_objects};
use bench::{Bench, C, CPP, build};
use flametop::object::open::own_files;
use flametop::profile::{Frame, FrameId, FrameKind, KernelAddress, NameRequest, Names, ObjectId, ProcessAddress, Tgid, UserId};
use flametop::symbolize::{Reason, Resolver, Symbolizer};
use oracle::{Oracle, run};

#[test]
fn programs_of_all_kinds_get_the_names_that_readelf_gives_them() {
    let directory = tempfile::tempdir().unwrap();
    let kinds: [(&str, &str, &[&str]); 9] = [
        ("pie", C, &["-pie", "-fPIE"]),
        ("non-pie", C, &["-no-pie"]),
        ("static", C, &["-static"]),
        ("static-pie", C, &["-static-pie", "-fPIE"]),
        ("lib.so", C, &["-shared", "-fPIC"]),
        ("stripped.so", C, &["-shared", "-fPIC", "-s"]),
        ("one-segment", C, &["-no-pie", "-Wl,-z,noseparate-code"]),
        ("cpp", CPP, &["-std=c++17"]),
        ("cpp-stripped.so", CPP, &["-std=c++17", "-shared", "-fPIC", "-s"]),
    ];
    for (name, source, options) in kinds {
        let file = build(directory.path(), name, source, options);
        let oracle = Oracle::of(&file);
        let addresses = [oracle.edges(), oracle.random(2000)].concat();
        let agreement = compare(&file, &oracle, &addresses);
        assert!(agreement.same >= 20, "{name}: {agreement:?}");
        assert!(agreement.wrong.is_empty() && agreement.missed.is_empty(), "{name}: {agreement:?}");
    }
}

#[test]
fn aliases_assembly_and_calls_that_never_return_have_the_name_a_reader_expects() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", C, &["-no-pie"]);
    let oracle = Oracle::of(&file);
    let listing = run(Command::new("nm").arg(&file));
    let address = |name: &str| {
        let line = listing.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let bench = Bench::new();
    let object = bench.object(&file, oracle.build_id.as_deref());
    let expect = |address: u64, is_return, name: &str| {
        let frame = bench.frame(object, oracle.offset(address).unwrap(), is_return);
        bench.name(&[frame], std::process::id(), 0..0);
        assert_eq!(bench.named(frame).name, name, "{address:#x}");
    };
    expect(address("public_one"), false, "public_one");
    expect(address("asm_without_size") + 3, false, "asm_without_size");
    expect(address("asm_next"), false, "asm_next");
    expect(address("asm_label"), false, "asm_sized");
    // The call of abort is the last instruction of `dies`: its return address is in the next function.
    let listed = run(Command::new("readelf").arg("-sW").arg(&file));
    let size: u64 =
        listed.lines().find(|line| line.ends_with(" dies")).unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    expect(address("dies") + size, true, "dies");
}

/// An unnamed function is one box, and its name is an address that `addr2line` accepts.
#[test]
fn a_function_without_a_name_is_called_by_the_elf_address_of_its_begin() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [("linked", "-no-pie"), ("moved", "-pie")] {
        let file = build(directory.path(), name, C, &[options]);
        let listing = run(Command::new("nm").arg("-S").arg(&file));
        run(Command::new("strip").arg(&file));
        let oracle = Oracle::of(&file);
        let bench = Bench::new();
        let object = bench.object(&file, oracle.build_id.as_deref());
        for function in ["public_one", "main", "dies"] {
            let line = listing.lines().find(|line| line.ends_with(&format!(" {function}"))).unwrap();
            let mut numbers = line.split(' ').map(|number| u64::from_str_radix(number, 16).unwrap_or_default());
            let (start, size) = (numbers.next().unwrap(), numbers.next().unwrap());
            let expected = format!("{name}+{start:#x}");
            // The last is a return address behind the function, of a call that is its last instruction.
            for (at, is_return) in [(0, false), (size / 2, false), (size - 1, false), (size, true)] {
                let frame = bench.frame(object, oracle.offset(start + at).unwrap(), is_return);
                bench.name(&[frame], std::process::id(), 0..0);
                assert_eq!(bench.named(frame).name, expected, "{function} + {at:#x}");
            }
        }
    }
}

/// A sleeping program, and the addresses of its executable's code.
struct Sleeper(Child);

impl Sleeper {
    fn start(command: &mut Command) -> Sleeper {
        let child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        Sleeper(child)
    }

    /// Range and offset of the executable mapping of a path, and the line's inode.
    fn mapping(&self, name: &str) -> (std::ops::Range<u64>, u64) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains(" r-xp ") && line.contains(name))
            .unwrap_or_else(|| panic!("{name} is not in {maps}"));
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        (hex(start)..hex(end), hex(fields[2]))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_deleted_program_that_still_runs_is_read_through_its_mapping() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "deleted-prog", C, &["-pie", "-fPIE"]);
    let oracle = Oracle::of(&file);
    let main = oracle.main();
    for by_build_id in [true, false] {
        let bench = Bench::new();
        let object = bench.object(&file, oracle.build_id.as_deref().filter(|_| by_build_id));
        let copy = directory.path().join("kept");
        std::fs::copy(&file, &copy).unwrap();
        let sleeper = Sleeper::start(Command::new(&file).arg("wait"));
        let (range, _) = sleeper.mapping("deleted-prog");
        std::fs::remove_file(&file).unwrap();
        let frame = bench.frame(object, oracle.offset(main).unwrap(), false);
        bench.name(&[frame], sleeper.0.id(), range);
        assert_eq!(bench.named(frame).name, "main", "needs root: {:?}", bench.symbolizer.problems());
        drop(sleeper);
        std::fs::rename(&copy, &file).unwrap();
    }
}

#[test]
fn a_program_in_another_root_is_found_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog-in-root", C, &["-static"]);
    let oracle = Oracle::of(&file);
    let main = oracle.main();
    let sleeper = Sleeper::start(Command::new("chroot").arg(directory.path()).args(["/prog-in-root", "wait"]));
    let bench = Bench::new();
    let object = bench.object(Path::new("/prog-in-root"), oracle.build_id.as_deref());
    let frame = bench.frame(object, oracle.offset(main).unwrap(), false);
    bench.name(&[frame], sleeper.0.id(), 0..0);
    assert_eq!(bench.named(frame).name, "main", "chroot needs root: {:?}", bench.symbolizer.problems());
}

#[test]
fn a_file_that_was_replaced_gives_no_names_but_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", C, &["-pie", "-fPIE"]);
    let oracle = Oracle::of(&file);
    let bench = Bench::new();
    let by_build_id = bench.object(&file, oracle.build_id.as_deref());
    let by_inode = bench.object(&file, None);
    std::fs::rename(&file, directory.path().join("old")).unwrap();
    build(directory.path(), "prog", &C.replace("* 3", "* 30 + a"), &["-pie", "-fPIE"]);
    for object in [by_build_id, by_inode] {
        let offsets: Vec<u64> = oracle.edges().iter().filter_map(|at| oracle.offset(*at)).collect();
        let found = bench.names_at(object, &offsets);
        assert!(
            found.iter().all(|named| named.kind == FrameKind::Unknown && named.name.starts_with("prog+0x") && !named.provisional)
        );
        let problem = bench.problem(object).unwrap();
        assert_eq!((problem.reason, problem.named), (Reason::Replaced, 0));
        assert!(problem.unnamed > 10 && !problem.reason.remedy().is_empty());
    }
}

#[test]
fn a_file_written_to_in_place_is_not_trusted_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", C, &["-pie", "-fPIE"]);
    let oracle = Oracle::of(&file);
    let bench = Bench::new();
    let object = bench.object(&file, oracle.build_id.as_deref());
    let main = oracle.main();
    let offset = oracle.offset(main).unwrap();
    assert_eq!(bench.names_at(object, &[offset])[0].name, "main");
    let other = build(directory.path(), "other", CPP, &[]);
    std::fs::write(&file, std::fs::read(other).unwrap()).unwrap();
    let after = bench.names_at(object, &[offset + 1]);
    assert_eq!(after[0].kind, FrameKind::Unknown, "{after:?}");
    assert_eq!(bench.problem(object).unwrap().reason, Reason::Replaced);
}

#[test]
fn names_with_escapes_come_out_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", C, &["-no-pie"]);
    run(Command::new("objcopy")
        .arg("--redefine-sym")
        .arg("public_one=evil\u{1b}[31m\u{202e}name\n")
        .arg("--strip-symbol=__alias_one")
        .arg("--strip-symbol=alias_one_too")
        .arg(&file));
    let listing = run(Command::new("nm").arg(&file));
    let line = listing.lines().find(|line| line.contains("evil")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let oracle = Oracle::of(&file);
    let bench = Bench::new();
    let object = bench.object(&file, oracle.build_id.as_deref());
    assert_eq!(bench.names_at(object, &[oracle.offset(address).unwrap()])[0].name, "evil·[31m·name·");
}

#[test]
fn fifos_devices_and_noise_end_with_a_reason_and_do_not_hold_up_others() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    let fifo = directory.path().join("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    let noise = directory.path().join("noise");
    std::fs::write(&noise, b"\x7fELF\x02\x01\x01 and then nothing that makes sense, for as long as it takes to fill a header")
        .unwrap();
    let cases = [
        (fifo.as_path(), Reason::NotRegular),
        (Path::new("/dev/zero"), Reason::NotRegular),
        (&noise, Reason::Malformed),
        (Path::new("/no/such"), Reason::NotFound),
    ];
    for (path, reason) in cases {
        let object = bench.object(path, None);
        let named = &bench.names_at(object, &[0x1000])[0];
        assert_eq!((named.kind, named.provisional), (FrameKind::Unknown, false));
        let found = bench.problem(object).unwrap().reason;
        assert_eq!(found, reason, "{}", path.display());
    }
}

#[test]
fn a_file_that_never_was_is_told_from_one_that_is_gone() {
    let nothing = Resolver::open(Path::new("/no/such"), None).err().unwrap();
    assert_eq!((nothing, nothing.to_string().as_str()), (Reason::NoSuchFile, "there is no such file"));
}

#[test]
fn kernel_addresses_have_the_names_of_kallsyms() {
    let text = std::fs::read_to_string("/proc/kallsyms").expect("this test needs /proc/kallsyms");
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        let code = matches!(fields.next()?, "t" | "T");
        code.then_some((address, fields.next()?, fields.next().unwrap_or("kernel")))
    });
    let mut symbols: Vec<(u64, &str, &str)> = lines.collect();
    assert!(symbols.iter().any(|symbol| symbol.0 != 0), "this test needs root: kernel addresses are hidden");
    symbols.sort_unstable();
    let bench = Bench::new();
    let picked: Vec<u64> = symbols
        .windows(2)
        .step_by(23)
        .filter(|pair| pair[1].0 > pair[0].0 + 1 && !pair[0].1.starts_with('_'))
        .map(|pair| pair[0].0)
        .collect();
    let frames: Vec<_> = picked.iter().map(|address| bench.frame(ObjectId::KERNEL, address + 1, false)).collect();
    let start = Instant::now();
    bench.name(&frames, 0, 0..0);
    println!("kernel: {} frames in {:?}, {} KiB", frames.len(), start.elapsed(), bench.symbolizer.usage().kernel / 1024);
    for (address, frame) in picked.iter().zip(&frames) {
        let named = bench.named(*frame);
        let expected: Vec<_> = symbols.iter().filter(|symbol| symbol.0 == *address).map(|symbol| readable(symbol.1)).collect();
        let owner = symbols.iter().find(|symbol| symbol.0 == *address).unwrap().2;
        let end = named.kind == FrameKind::Kernel
            && named.name.starts_with("kernel+")
            && expected.iter().any(|name| name.ends_with("etext"));
        assert!(end || expected.contains(&named.name) && named.object == owner, "{address:#x} {named:?} {expected:?}");
        assert_eq!((named.kind, named.provisional), (FrameKind::Kernel, false));
    }
    assert!(frames.len() > 1000);
    let nowhere = bench.frame(ObjectId::KERNEL, 0xffff_8000_0000_1000, false);
    bench.name(&[nowhere], 0, 0..0);
    assert_eq!(bench.named(nowhere).name, "kernel+0xffff800000001000");
    assert_eq!(bench.problem(ObjectId::KERNEL).map(|problem| problem.reason), Some(Reason::NoSymbolThere));
}

#[test]
fn the_vdso_is_named_from_our_own_image() {
    let bench = Bench::new();
    let offsets: Vec<u64> = (0..0x2000).step_by(16).collect();
    let found = bench.names_at(ObjectId::VDSO, &offsets);
    assert!(found.iter().any(|named| named.name.contains("clock_gettime") && named.object == "[vdso]"), "{found:?}");
}

#[test]
fn file_and_line_are_those_of_addr2line() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", CPP, &["-g", "-std=c++17"]);
    let oracle = Oracle::of(&file);
    let bench = Bench::new();
    let object = bench.object(&file, oracle.build_id.as_deref());
    let mut known = 0;
    for address in oracle.edges().into_iter().filter(|at| oracle.offset(*at).is_some()) {
        let frame = bench.frame(object, oracle.offset(address).unwrap(), false);
        bench.name(&[frame], std::process::id(), 0..0);
        let expected = run(Command::new("addr2line").arg("-e").arg(&file).arg(format!("{address:#x}")));
        let expected = expected.trim().split(" (").next().unwrap();
        match bench.locate(frame) {
            Some((file, line)) => {
                assert_eq!(format!("{file}:{line}"), expected, "{address:#x}");
                known += 1;
            }
            None => assert!(expected.ends_with('?') || expected.ends_with(":0"), "{address:#x} {expected}"),
        }
    }
    assert!(known > 20, "{known}");
}

#[test]
fn a_process_that_ended_is_named_from_the_path_when_the_build_id_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "short", C, &["-pie", "-fPIE"]);
    let oracle = Oracle::of(&file);
    let main = oracle.main();
    let bench = Bench::new();
    let gone = {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let object = bench.object(&file, oracle.build_id.as_deref());
    let frame = bench.frame(object, oracle.offset(main).unwrap(), false);
    bench.name(&[frame], gone, 0x1000..0x2000);
    assert_eq!(bench.named(frame).name, "main");
    let missing = bench.object(&directory.path().join("gone"), Some(b"12345678"));
    let frame = bench.frame(missing, 0x1000, false);
    bench.name(&[frame], gone, 0x1000..0x2000);
    assert_eq!(bench.problem(missing).unwrap().reason, Reason::ProcessGone);
}

#[test]
fn requests_from_many_threads_are_all_done_and_tables_stay_small() {
    let bench = Bench::new();
    let files = real_objects();
    let oracles: Vec<Oracle> = files.iter().map(|file| Oracle::of(file)).collect();
    let objects: Vec<ObjectId> =
        files.iter().zip(&oracles).map(|(file, oracle)| bench.object(file, oracle.build_id.as_deref())).collect();
    let offsets: Vec<Vec<u64>> =
        oracles.iter().map(|oracle| oracle.random(2000).into_iter().filter_map(|at| oracle.offset(at)).collect()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (bench, objects, offsets) = (&bench, &objects, &offsets);
            scope.spawn(move || {
                for index in 0..1000 {
                    let object = (index + thread as usize) % objects.len();
                    let Some(offset) = offsets[object].get(index) else { continue };
                    let frame = bench.frame(objects[object], offset ^ thread, index % 2 == 0);
                    bench.symbolizer.request([request(frame)]);
                    let kernel = bench.frame(ObjectId::KERNEL, 0xffff_ffff_8100_0000 + index as u64 * 4096 + thread, false);
                    bench.symbolizer.request([request(kernel)]);
                }
            });
        }
    });
    bench.name(&[], 0, 0..0);
    for frame in 0..bench.names.frames.len() as u32 {
        assert!(!bench.named(FrameId(frame)).provisional);
    }
    let counts = bench.symbolizer.counts();
    assert!(counts.named > 3000, "{counts:?}");
    let usage = bench.symbolizer.usage();
    // Where libc's debug information is installed, it is held as well.
    assert!(usage.tables <= 48 << 20 && (4..=6).contains(&usage.files), "{usage:?}");
}

fn request(frame: FrameId) -> NameRequest {
    NameRequest {
        frame,
        tgid: Tgid(std::process::id()),
        user: UserId(0),
        files: own_files(),
        mapping: ProcessAddress(0)..ProcessAddress(0),
    }
}

#[test]
fn dropping_the_symbolizer_in_the_middle_of_work_ends_it() {
    assert_ends_within(Duration::from_secs(2), || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let names = Arc::new(Names::default());
        let symbolizer = Symbolizer::start(Arc::clone(&names), runtime.handle().clone());
        for address in 0..50_000 {
            let address = KernelAddress(0xffff_ffff_8100_0000 + address * 64);
            let frame = names.intern_frame(Frame::Kernel { address, is_return: false });
            symbolizer.kernel_symbols_changed();
            symbolizer.request([request(frame.0)]);
        }
        drop(symbolizer);
        let start = Instant::now();
        drop(runtime);
        start.elapsed()
    });
}

/// Asserts that an end takes less than `limit` once in five times. Other programs may take the CPUs meanwhile.
#[track_caller]
fn assert_ends_within(limit: Duration, mut end: impl FnMut() -> Duration) {
    let least = (0..5).map(|_| end()).min();
    assert!(least.is_some_and(|least| least < limit), "{least:?}");
}

#[test]
fn only_the_newest_question_for_a_line_must_be_answered() {
    let directory = tempfile::tempdir().unwrap();
    let file = build(directory.path(), "prog", C, &["-g", "-no-pie"]);
    let oracle = Oracle::of(&file);
    let bench = Bench::new();
    let object = bench.object(&file, oracle.build_id.as_deref());
    let main = oracle.main();
    let frame = bench.frame(object, oracle.offset(main).unwrap(), false);
    let older: Vec<_> = (0..100).map(|_| bench.symbolizer.locate(frame)).collect();
    let (file, line) = bench.locate(frame).unwrap();
    assert!(file.ends_with("prog.c") && line > 10, "{file}:{line}");
    drop(older);
}
