//! Attacks with unwind tables: forged for another file, larger than their files, and too many to hold.

use std::io::Write;

use object::{Object, ObjectSection};

use super::common::kernel::cpu_of;
use super::*;

/// Number of a program's whole samples, with `main` and `sort_it` below the library's functions, and of all its samples.
fn sorted(lines: &[Line], name: &str) -> (u64, u64) {
    let of_it = lines.iter().filter(|line| line.frames[0] == name);
    of_it.fold((0, 0), |(whole, all), line| {
        let has = |wanted: &str| line.frames.iter().any(|frame| frame == wanted);
        (
            whole + if has("_start") && has("main") && (has("sort_it") || !has("compare")) { line.count } else { 0 },
            all + line.count,
        )
    })
}

/// Root's program that sorts by a library in its own directory. No other program maps the library. Libc would be mapped by other
/// programs before an attacker comes.
fn sorter() -> Program {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/attack");
    let texts = ["sorting.c", "sorter.c"].map(|name| std::fs::read_to_string(sources.join(name)).unwrap());
    let directory = Program::made("sorter", &texts, |output| {
        std::fs::create_dir(output)?;
        let library = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-Wl,--build-id", "-o", "libsorting.so"];
        let program = ["-O1", "-g", "-fno-inline", "-L.", "-Wl,-rpath,$ORIGIN", "-o", "sorter"];
        for (args, source, more) in [(&library[..], "sorting.c", None), (&program[..], "sorter.c", Some("-lsorting"))] {
            let status = Command::new("gcc").args(args).arg(sources.join(source)).args(more).current_dir(output).status()?;
            assert!(status.success(), "gcc failed on {source}");
        }
        Ok(())
    });
    Program { path: directory.path.join("sorter") }
}

/// Changes all unwind rules of an ELF file: each CFA is 80 bytes further up, and nothing changes within a function.
fn poison(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let section = elf.section_by_name(".eh_frame").expect("it has unwind information").file_range().unwrap();
    let (mut at, end) = (section.0 as usize, (section.0 + section.1) as usize);
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut cies, mut fdes) = (0, 0);
    while at + 8 < end && word(&bytes, at) != 0 {
        let next = at + 4 + word(&bytes, at);
        if word(&bytes, at + 4) == 0 {
            let cfa = bytes[at..next].windows(3).position(|rule| rule == [0x0c, 7, 8]);
            cfa.into_iter().for_each(|place| bytes[at + place + 2] = 0x58);
            cies += usize::from(cfa.is_some());
        } else {
            // Its augmentation's length is behind begin and length of the code.
            let augmentation = usize::from(bytes[at + 16]);
            bytes[at + 17 + augmentation..next].fill(0);
            fdes += 1;
        }
        at = next;
    }
    assert!(cies > 0 && fdes > 1, "{cies} CIEs and {fdes} FDEs were changed");
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_copy_of_a_library_with_other_rules_counts_for_itself_alone() {
    let _alone = alone();
    let lair = Lair::new();
    let sorter = sorter();
    poison(&lair.copy(&sorter.path.with_file_name("libsorting.so"), "libsorting.so"));
    let cache = tempfile::tempdir().unwrap();
    // The attacked run. The attackers start first: if the library's table could be made from their file, it would be.
    let poisoned = lair.copy(&sorter.path, "poisoned");
    let start = |_| {
        let mut command = Command::new(&poisoned);
        command.env("LD_LIBRARY_PATH", lair.path()).stdout(Stdio::null()).uid(NOBODY).gid(NOBODY);
        Running { child: command.spawn().unwrap() }
    };
    let attackers: Vec<Running> = (0..4).map(start).collect();
    // Only the last seconds of each run count: on a busy machine the tables take some seconds.
    let recording = Recording::start_with_cache(cache.path(), &["-F", "499", "-d", "10", "--window", "5s"]);
    std::thread::sleep(Duration::from_millis(1500));
    let witness = sorter.run(&[]);
    let (lines, _) = recording.end(Duration::from_secs(10));
    let (whole, all) = sorted(&lines, "sorter");
    println!("attacked run: {whole} of {all} samples of the witness are whole");
    drop(attackers);
    // The attackers are gone, but their data may still be in the cache.
    let recording = Recording::start_with_cache(cache.path(), &["-F", "499", "-d", "9", "--window", "5s"]);
    let (later, _) = recording.end(Duration::from_secs(9));
    drop(witness);
    let (whole_later, all_later) = sorted(&later, "sorter");
    println!("next run: {whole_later} of {all_later} samples of the witness are whole");
    for (whole, all) in [(whole, all), (whole_later, all_later)] {
        assert!(all >= 20, "{all} samples only");
        let stacks: Vec<&Line> = lines.iter().chain(&later).filter(|line| line.frames[0] == "sorter").collect();
        assert!(whole * 100 >= all * 97, "{whole} of {all}: {stacks:#?}");
    }
}

/// Where the code of [`small_with_large_table`] is.
const TEXT: usize = 64 << 10;

/// An ELF file of 28 KB on its disk whose unwind information, unpacked, is 4.19 million rows: 16.9 MB in the kernel.
fn small_with_large_table(path: &Path, number: u64) {
    const ROWS: usize = 4 << 20;
    let size = (ROWS * 4) as u64;
    let mut frames: Vec<u8> = Vec::new();
    // A CIE: version 1, no augmentation, code 1, data -8, return address 16; CFA is rsp + 8, the return address at CFA - 8.
    let cie = [1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
    frames.extend((cie.len() as u32 + 4).to_le_bytes());
    frames.extend(u32::MAX.to_le_bytes());
    frames.extend(cie);
    // An FDE about all of the text: advance by 4, and another CFA, each time.
    let rows: Vec<u8> = (0..ROWS - 1).flat_map(|row| [0x44, 0x0e, if row % 2 == 0 { 16 } else { 8 }]).collect();
    let rows = &rows[..rows.len() / 8 * 8 + 4];
    frames.extend((rows.len() as u32 + 20).to_le_bytes());
    frames.extend(0u32.to_le_bytes());
    frames.extend((TEXT as u64).to_le_bytes());
    frames.extend(size.to_le_bytes());
    frames.extend(rows);
    let mut packed = Vec::new();
    for word in [1u64, frames.len() as u64, 1] {
        packed.extend(word.to_le_bytes());
    }
    let mut encoder = flate2::write::ZlibEncoder::new(packed, flate2::Compression::best());
    encoder.write_all(&frames).unwrap();
    let packed = encoder.finish().unwrap();
    let names = b"\0.text\0.debug_frame\0.names\0";
    let (names_at, packed_at) = (512u64, 1024u64);
    assert!(packed.len() < TEXT - 2048, "{} bytes", packed.len());
    let sections_at = (packed_at + packed.len() as u64).next_multiple_of(64);
    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    [3u16, 62].iter().for_each(|half| file.extend(half.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    [0u64, 64, sections_at].iter().for_each(|word| file.extend(word.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    [64u16, 56, 1, 64, 4, 3].iter().for_each(|half| file.extend(half.to_le_bytes()));
    [1u32, 5].iter().for_each(|word| file.extend(word.to_le_bytes()));
    let text = TEXT as u64;
    [text, text, text, size, size, 4096].iter().for_each(|word| file.extend(word.to_le_bytes()));
    // So that all files differ.
    file.extend(number.to_le_bytes());
    file.resize(names_at as usize, 0);
    file.extend(names);
    file.resize(packed_at as usize, 0);
    file.extend(&packed);
    file.resize(sections_at as usize, 0);
    let sections: [(u32, u32, u64, u64, u64, u64); 4] = [
        (0, 0, 0, 0, 0, 0),
        (1, 1, 6, text, text, size),
        (7, 1, 0x800, 0, packed_at, packed.len() as u64),
        (20, 3, 0, 0, names_at, names.len() as u64),
    ];
    for (name, kind, flags, address, offset, size) in sections {
        [name, kind].iter().for_each(|word| file.extend(word.to_le_bytes()));
        [flags, address, offset, size, 0, 1, 0].iter().for_each(|word| file.extend(word.to_le_bytes()));
    }
    file.resize(TEXT, 0);
    file.extend([0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3]);
    let output = std::fs::File::create(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&output, &file, 0).unwrap();
    output.set_len(text + size).unwrap();
}

/// Descriptors of a process, and bytes of its maps of segments.
fn held_by(pid: u32) -> (usize, u64) {
    let entries =
        std::fs::read_dir(format!("/proc/{pid}/fdinfo")).map(|entries| entries.flatten().collect()).unwrap_or(Vec::new());
    let is_segment = |text: &str| text.lines().any(|line| line.starts_with("value_size:") && line.ends_with("\t2097152"));
    let segments = entries.iter().filter(|entry| std::fs::read_to_string(entry.path()).is_ok_and(|text| is_segment(&text)));
    // While it is loaded, the map of maps also has one inner map as its template.
    (entries.len(), segments.count() as u64 * 2_097_152)
}

#[test]
fn small_files_with_large_tables_take_neither_the_kernels_memory_nor_a_cpu() {
    let _alone = alone();
    let lair = Lair::new();
    for number in 0..70 {
        let path = lair.path().join(number.to_string());
        small_with_large_table(&path, number);
        rustix::fs::chown(&path, owner(), None).unwrap();
    }
    let program = attacker("tables.c", &[]);
    let seconds = 20;
    let recording = Recording::start(&["-F", "499", "-d", &seconds.to_string()]);
    let attack = lair.start(&program.path, &["70", "25000", &TEXT.to_string()]);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(8));
    let witness = Witness::start("beside_tables");
    let (mut descriptors, mut segments, mut cpu) = (0, 0, Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let held = held_by(recording.pid());
        (descriptors, segments) = (descriptors.max(held.0), segments.max(held.1));
        cpu = cpu.max(cpu_of(recording.pid()));
        std::thread::sleep(Duration::from_millis(100));
    }
    let (lines, _) = recording.end(Duration::from_secs(2));
    drop((attack, witness));
    println!("{} MB of segments, {descriptors} descriptors, {cpu:?} of CPU in {seconds} s", segments / 1_000_000);
    Witness::assert_seen("beside_tables", &lines);
    assert!(segments > 0 && segments <= 384_000_000, "{segments} bytes of segments");
    assert!(descriptors < 400, "{descriptors} descriptors");
    // A quarter of the time for tables, 3 s at once, and 4 s for the other work of an unoptimised recording.
    assert!(cpu < Duration::from_secs(seconds / 4 + 3 + 4), "{cpu:?} of CPU");
}

/// Runs code of 50,000 new files, as on a machine that builds programs and runs their tests for days.
#[test]
#[ignore = "takes two minutes: 50,000 files, each of which runs long enough to be sampled"]
fn fifty_thousand_files_leave_room_for_the_next_program() {
    let _alone = alone();
    let lair = Lair::new();
    let program = attacker("tables.c", &[]);
    let seconds = 240;
    let recording = Recording::start(&["-F", "1999", "-d", &seconds.to_string()]);
    let begun = Instant::now();
    let attack = lair.start(&program.path, &["50000", "1400", "0", "make"]);
    while !lair.path().join("done").exists() {
        assert!(begun.elapsed() < Duration::from_secs(seconds - 10), "the attack takes too long");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("50,000 files after {:?}", begun.elapsed());
    let witness = Witness::start("after_many");
    std::thread::sleep(Duration::from_secs(5));
    common::terminal::kill(recording.pid(), rustix::process::Signal::INT);
    let (lines, _) = recording.end(Duration::ZERO);
    drop((attack, witness));
    Witness::assert_seen("after_many", &lines);
}

/// Each process has memory that may be the code of a file, as thousands of its program headers say.
#[test]
#[cfg(target_arch = "x86_64")]
fn files_with_thousands_of_segments_take_no_cpu() {
    let _alone = alone();
    let lair = Lair::new();
    let program = attacker("segments.c", &[]);
    let recording = Recording::start(&["-F", "499", "-d", "10"]);
    recording.wait_for_clocks();
    let attack = lair.start(&program.path, &["30", "8"]);
    std::thread::sleep(Duration::from_secs(1));
    let witness = Witness::start("beside-segments");
    let before = cpu_of(recording.pid());
    std::thread::sleep(Duration::from_secs(7));
    let cpu = cpu_of(recording.pid()) - before;
    let (lines, said) = recording.end(Duration::from_secs(2));
    drop((attack, witness));
    let of_them: u64 = lines.iter().filter(|line| line.frames[0] == "segments").map(|line| line.count).sum();
    println!("{of_them} samples of the attackers, {cpu:?} of CPU in 7 s: {said}");
    assert!(of_them > 100, "{of_them} samples of the attackers: {said}");
    Witness::assert_seen("beside-segments", &lines);
    assert!(cpu < Duration::from_millis(800), "{cpu:?} of CPU");
}
