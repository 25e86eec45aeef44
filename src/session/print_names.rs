//! `flametop names`: prints the functions at addresses of a file.

use std::io::{self, BufRead, BufWriter, Write};

use anyhow::{Context, Result, bail};

use crate::cli::NamesOf;
use crate::profile::{ElfAddress, sanitize};
use crate::symbolize::{Detail, Function, Resolver};

/// Prints the functions at each address, innermost first, and an empty line after each address. A function takes two lines: its name, and
/// its file and line; `??` stands for what is not known. Without addresses as arguments, reads them from the standard input, one a line.
pub(super) fn run(options: &NamesOf) -> Result<()> {
    let detail = (!options.mangled).then(Detail::default);
    let shown = options.file.display();
    let mut resolver = Resolver::open(&options.file, detail).with_context(|| format!("failed to read {shown}"))?;
    if let Some(problem) = resolver.problem() {
        eprintln!("flametop: {shown}: {problem}; functions are named by their symbols only");
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let mut one = |text: &str| -> Result<()> {
        let Some(address) = parse(text) else {
            bail!("`{text}` is not an address: write a hexadecimal number such as 0x1234");
        };
        let functions = resolver.resolve(ElfAddress(address)).with_context(|| format!("failed to read {shown}"))?;
        print(&functions, &mut out)?;
        Ok(())
    };
    if options.addresses.is_empty() {
        for line in io::stdin().lock().lines() {
            let line = line.context("failed to read addresses from the standard input")?;
            if !line.trim().is_empty() {
                one(line.trim())?;
            }
        }
    } else {
        options.addresses.iter().try_for_each(|text| one(text))?;
    }
    out.flush().context("failed to write to the standard output")
}

/// Parses a hexadecimal number, with or without 0x. The highest number is refused: the end of a range is the number after its last address.
fn parse(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    u64::from_str_radix(digits, 16).ok().filter(|address| *address < u64::MAX)
}

fn print(functions: &[Function], out: &mut impl Write) -> io::Result<()> {
    for function in functions {
        let name = if function.name.is_empty() { "??" } else { &function.name };
        writeln!(out, "{}", sanitize(name))?;
        match &function.location {
            Some(place) => writeln!(out, "{}:{}", place.file, place.line)?,
            None => writeln!(out, "??:0")?,
        }
    }
    if functions.is_empty() {
        writeln!(out, "??\n??:0")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal() {
        assert_eq!(
            [parse("0x10"), parse("ff"), parse("0X1"), parse("main"), parse("")],
            [Some(16), Some(255), Some(1), None, None]
        );
        assert_eq!(parse("ffffffffffffffff"), None);
    }

    #[test]
    fn functions_are_told_innermost_first() {
        let mut out = Vec::new();
        let function = |name: &str| Function { name: name.to_owned(), location: None };
        print(&[function("inner\x1b"), function("")], &mut out).unwrap();
        print(&[], &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "inner·\n??:0\n??\n??:0\n\n??\n??:0\n\n");
    }
}
