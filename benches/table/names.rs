//! Names of addresses, beside llvm-symbolizer and binutils' addr2line.

use super::*;

/// Number of distinct addresses to name.
const ADDRESSES: usize = 1_000_000;
/// Time limit of another tool. flametop's target is a fifth of it.
const PATIENCE_SECONDS: u32 = 100;

/// A million addresses of one object with debug information: BENCH_DEBUG_FILE, or this program itself.
pub(crate) fn names(table: &mut Table) {
    let file = std::env::var("BENCH_DEBUG_FILE").unwrap_or_else(|_| FLAMETOP.to_owned());
    let megabytes = std::fs::metadata(&file).map_or(0, |meta| meta.len() >> 20);
    let name = Path::new(&file).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((start, size)) = text_of(&file) else {
        table.failed(&format!("names in {name}"));
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("addresses");
    // Odd steps through the text: each address once.
    let count = ADDRESSES.min(usize::try_from(size).unwrap_or(usize::MAX));
    let step = 0x9e37_79b1 | 1;
    let mut addresses: Vec<u64> = (0..count as u64).map(|number| start + number * step % size).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let count = addresses.len();
    // In no order, like samples.
    let shuffled = (0..count).map(|number| addresses[number * 7919 % count]);
    let text: String = shuffled.map(|address| format!("{address:#x}\n")).collect();
    std::fs::write(&list, text).unwrap();
    let list = list.to_string_lossy().into_owned();
    let (file, tools) = (
        quoted(&file),
        [
            ("flametop", format!("{} names", quoted(FLAMETOP)), Some(20.0)),
            ("llvm-symbolizer", "llvm-symbolizer --inlines --obj".to_owned(), None),
            ("addr2line", "addr2line -f -i -C -e".to_owned(), None),
        ],
    );
    for (program, command, target) in tools {
        let script = format!("exec timeout {PATIENCE_SECONDS} {command} {file} < {}", quoted(&list));
        let usage = run("sh", &["-c", &script]);
        table.add(Line {
            what: format!("names of {count} distinct addresses in no order, {name} of {megabytes} MB"),
            program,
            figure: usage.map_or(format!("not done in {PATIENCE_SECONDS} s, or it is not there"), |usage| {
                format!("CPU {:.2} s, peak {:.0} MB, mapped pages with it", usage.cpu, usage.peak_mb)
            }),
            target: target.map_or(String::new(), |target| format!("{target} s")),
            held: target.map(|target: f64| usage.is_some_and(|usage| usage.cpu <= target)),
        });
    }
    let begin = Instant::now();
    let script = format!("exec {} names {file} {:x}", quoted(FLAMETOP), start + size / 2);
    let done = run("sh", &["-c", &script]).is_some();
    let after = begin.elapsed().as_secs_f64();
    table.add(Line {
        what: format!("the functions at one address, {name} of {megabytes} MB"),
        program: "flametop",
        figure: format!("{after:.2} s after the start"),
        target: "2 s".to_owned(),
        held: Some(done && after <= 2.0),
    });
}

pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Address and size of `.text`.
fn text_of(file: &str) -> Option<(u64, u64)> {
    let output = Command::new("readelf").args(["-SW", file]).output().ok()?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = listing.lines().find(|line| line.split_whitespace().any(|word| word == ".text"))?;
    let fields: Vec<&str> = line.split_once(".text")?.1.split_whitespace().collect();
    let number = |at: usize| u64::from_str_radix(fields.get(at)?, 16).ok();
    Some((number(1)?, number(3)?))
}
