//! Names from `readelf` and `llvm-symbolizer`, for comparison with ours.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a tool of the system; a missing one fails the test with a sentence.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("this test needs {:?}: {error}", command.get_program()));
    assert!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[derive(Clone, Debug)]
struct Symbol {
    address: u64,
    size: u64,
    name: String,
}

/// Symbols, code sections and executable segments of one file.
pub(crate) struct Oracle {
    symbols: Vec<Symbol>,
    longest: u64,
    pub(crate) sections: Vec<(u64, u64)>,
    segments: Vec<(u64, u64, u64)>,
    pub(crate) build_id: Option<Vec<u8>>,
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

impl Oracle {
    pub(crate) fn of(file: &Path) -> Oracle {
        let sections = run(Command::new("readelf").arg("-SW").arg(file));
        let sections: Vec<(u64, u64)> = sections
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split_once(']')?.1.split_whitespace().collect();
                fields.get(6)?.contains('X').then_some((hex(fields[2])?, hex(fields[4])?))
            })
            .collect();
        let segments = run(Command::new("readelf").arg("-lW").arg(file));
        let segments = segments
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let executable = fields.first() == Some(&"LOAD") && fields[6..fields.len() - 1].concat().contains('E');
                executable.then(|| (hex(fields[1]).unwrap(), hex(fields[2]).unwrap(), hex(fields[4]).unwrap()))
            })
            .collect();
        let notes = run(Command::new("readelf").arg("-nW").arg(file));
        let build_id =
            notes.split("Build ID: ").nth(1).and_then(|rest| rest.split_whitespace().next()).map(|id| {
                (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()).collect::<Vec<u8>>()
            });
        let listed = |file: &Path| -> Vec<Symbol> {
            let listing = run(Command::new("readelf").arg("-sW").arg(file));
            let in_code = |symbol: &Symbol| sections.iter().any(|(start, size)| (*start..start + size).contains(&symbol.address));
            listing.lines().filter_map(symbol).filter(in_code).collect()
        };
        let mut symbols = listed(file);
        if let Some(debug) = build_id.as_deref().and_then(debug_file) {
            symbols.extend(listed(&debug));
        }
        for mut stub in stubs(file) {
            let section = sections.iter().find(|(start, size)| (*start..start + size).contains(&stub.address));
            stub.size = stub.size.min(section.map_or(0, |(start, size)| start + size - stub.address));
            symbols.push(stub);
        }
        symbols.sort_by_key(|symbol| symbol.address);
        let longest = symbols.iter().map(|symbol| symbol.size).max().unwrap_or(0);
        Oracle { symbols, longest, sections, segments, build_id }
    }

    /// The offset in the file of an address.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|(_, start, size)| (*start..start + size).contains(&address))?;
        Some(address - segment.1 + segment.0)
    }

    /// An address in `main`.
    pub(crate) fn main(&self) -> u64 {
        self.edges().into_iter().find(|at| self.names(*at).contains("main")).unwrap()
    }

    /// All names of the innermost function around an address; empty if there is none. It searches backward through all symbols,
    /// without the optimisations of the code under test.
    pub(crate) fn names(&self, address: u64) -> BTreeSet<&str> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let before = || self.symbols[..after].iter().rev();
        let near = before().take_while(|symbol| symbol.address + self.longest >= address);
        let sized = near.clone().find(|symbol| symbol.size > 0 && address - symbol.address < symbol.size);
        let start = match sized {
            Some(symbol) => symbol.address,
            None => {
                // A symbol without size, if it is the last one before the address and nothing with a size holds it.
                let Some(last) = before().next() else { return BTreeSet::new() };
                let alike = || self.symbols[..after].iter().filter(|symbol| symbol.address == last.address);
                let inside = before().take_while(|symbol| symbol.address + self.longest >= last.address);
                let covered = inside.clone().any(|symbol| symbol.size > 0 && last.address - symbol.address < symbol.size);
                let section = self.sections.iter().find(|(start, size)| (*start..start + size).contains(&last.address));
                let beyond = section.is_none_or(|(start, size)| address >= start + size);
                if alike().any(|symbol| symbol.size > 0) || covered || beyond {
                    return BTreeSet::new();
                }
                last.address
            }
        };
        let alike = self.symbols.iter().skip(self.symbols.partition_point(|symbol| symbol.address < start));
        let alike = alike.take_while(|symbol| symbol.address == start);
        alike.filter(|symbol| sized.is_none() || address - start < symbol.size).map(|symbol| &*symbol.name).collect()
    }

    /// First, middle and last byte of each function and the byte after it.
    pub(crate) fn edges(&self) -> Vec<u64> {
        let edges = self.symbols.iter().flat_map(|symbol| {
            let Symbol { address, size, .. } = *symbol;
            [address, address + size / 2, (address + size).saturating_sub(1), address + size]
        });
        edges.collect()
    }

    /// `count` addresses spread over all code, the same in each run.
    pub(crate) fn random(&self, count: usize) -> Vec<u64> {
        let total: u64 = self.sections.iter().map(|(_, size)| size).sum();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut at = state % total;
            for (start, size) in &self.sections {
                if at < *size {
                    return start + at;
                }
                at -= size;
            }
            0
        };
        (0..count).map(|_| next()).collect()
    }
}

/// The file with an object's debug information, where distributions install it.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let digits: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = digits.split_at_checked(2)?;
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"))).filter(|path| path.exists())
}

/// Stubs as `objdump` finds them: `0000000000001030 <read@plt>:`.
fn stubs(file: &Path) -> Vec<Symbol> {
    // On a file without stubs objdump fails, as the section is missing.
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn", "-j", ".plt", "-j", ".plt.got", "-j", ".plt.sec"]).arg(file);
    let output = objdump.output().expect("this test needs objdump (binutils)");
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let begun: Vec<(u64, Option<&str>)> = listing
        .lines()
        .filter_map(|line| {
            let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
            Some((hex(address)?, Some(name).filter(|name| name.ends_with("@plt") && !name.contains("*ABS*"))))
        })
        .collect();
    let next = begun.iter().skip(1).map(|(address, _)| *address).chain([u64::MAX]);
    let stub = |((address, name), next): (&(u64, Option<&str>), u64)| {
        let size = next.saturating_sub(*address).min(16);
        let name = name.map(|name| name.split_once('@').unwrap().0.to_owned() + "@plt");
        Some(Symbol { address: *address, size, name: name? })
    };
    begun.iter().zip(next).filter_map(stub).collect()
}

/// A line of `readelf -sW`: number, value, size, type, binding, visibility, section, name.
fn symbol(line: &str) -> Option<Symbol> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let kind = *fields.get(3)?;
    let defined = fields.get(6)?.parse::<u32>().is_ok();
    if !matches!(kind, "FUNC" | "IFUNC" | "NOTYPE") || !defined {
        return None;
    }
    let size = fields[2].strip_prefix("0x").map_or_else(|| fields[2].parse().ok(), hex)?;
    Some(Symbol { address: hex(fields[1])?, size, name: (*fields.get(7)?).to_owned() })
}

/// Names that `llvm-symbolizer` gives these addresses, as linkage names; `None` where it knows nothing.
pub(crate) fn llvm(file: &Path, addresses: &[u64]) -> Vec<Option<String>> {
    let outermost = |calls: Vec<Call>| calls.into_iter().next_back().map(|(name, ..)| name).filter(|name| name != "??");
    ask_llvm(file, addresses).into_iter().map(outermost).collect()
}

/// A function at an address: its linkage name, the last part of its file's path, and the line, 0 where there is none.
pub(crate) type Call = (String, String, u32);

/// All functions at each of these addresses, innermost first, as `llvm-symbolizer` finds them.
pub(crate) fn ask_llvm(file: &Path, addresses: &[u64]) -> Vec<Vec<Call>> {
    let mut child = Command::new("llvm-symbolizer")
        .args(["--functions=linkage", "--inlines", "--no-demangle", "--obj"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs llvm-symbolizer (Debian's package llvm)");
    let mut input = child.stdin.take().unwrap();
    let questions: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(questions.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = text.split("\n\n").map(str::trim).filter(|answer| !answer.is_empty());
    let call = |pair: &[&str]| {
        // FILE:LINE:COLUMN
        let mut place = pair[1].rsplitn(3, ':');
        let line = place.nth(1).and_then(|line| line.parse().ok()).unwrap_or(0);
        let file = place.next().and_then(|path| path.rsplit('/').next()).unwrap_or("??");
        (pair[0].to_owned(), file.to_owned(), line)
    };
    answers.map(|answer| answer.lines().collect::<Vec<_>>().chunks_exact(2).map(call).collect()).collect()
}
