//! Names of the kernel's functions: lists them, finds those that match a pattern, and suggests similar names.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use super::spec::NamePattern;
use super::tracefs::TraceFs;

/// Number of names that are suggested for a missing name.
const OFFERED: usize = 4;
/// Least similarity of a suggested name: 1 means equal. The measure is that of Jaro and Winkler, which favours equal beginnings.
const ALIKE: f64 = 0.85;

/// The kernel's functions, in alphabetical order, each once.
#[derive(Default)]
pub struct KernelFunctions {
    names: Vec<String>,
}

impl KernelFunctions {
    /// Reads the functions that can be traced. If the kernel does not tell which can, reads all functions.
    ///
    /// # Errors
    ///
    /// If neither list can be read.
    pub fn read() -> io::Result<KernelFunctions> {
        let traceable = TraceFs::open().and_then(|tracing| tracing.functions());
        match traceable {
            Ok(names) if !names.is_empty() => Ok(KernelFunctions::of(names)),
            _ => KernelFunctions::symbols(),
        }
    }

    /// Reads all functions of the kernel, whether they can be traced or not.
    pub(super) fn symbols() -> io::Result<KernelFunctions> {
        Ok(KernelFunctions::of(symbols()?))
    }

    /// Tells whether a function has this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }

    fn of(mut names: Vec<String>) -> KernelFunctions {
        names.sort_unstable();
        names.dedup();
        KernelFunctions { names }
    }

    /// Returns the names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the functions that match a pattern.
    pub(super) fn matching(&self, pattern: &NamePattern) -> Vec<String> {
        self.names.iter().filter(|name| pattern.matches(name)).cloned().collect()
    }

    /// Returns the functions whose names resemble this name, the most similar first.
    pub(super) fn near(&self, name: &str) -> Vec<String> {
        nearest(name, self.names.iter().map(String::as_str))
    }
}

/// Returns the candidates that resemble a name, the most similar first.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = name.to_ascii_lowercase();
    let alike = |candidate: &str| strsim::jaro_winkler(&wanted, &candidate.to_ascii_lowercase());
    let mut near: Vec<(f64, &str)> =
        candidates.map(|candidate| (alike(candidate), candidate)).filter(|(like, _)| *like >= ALIKE).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup_by(|a, b| a.1 == b.1);
    near.into_iter().take(OFFERED).map(|(_, name)| name.to_owned()).collect()
}

/// Reads the symbols of code in `/proc/kallsyms`, including modules.
fn symbols() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for line in BufReader::new(File::open("/proc/kallsyms")?).lines() {
        let line = line?;
        let mut fields = line.split_ascii_whitespace();
        if let (Some(_), Some("t" | "T"), Some(name)) = (fields.next(), fields.next(), fields.next())
            && fields.next() != Some("[bpf]")
            && !name.starts_with("__pfx_")
            && !name.starts_with("__cfi_")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_much_alike_are_offered() {
        let functions = KernelFunctions::of(["vfs_read", "vfs_readv", "vfs_write", "tcp_sendmsg"].map(str::to_owned).to_vec());
        assert_eq!(functions.near("vfs_raed").get(..2), Some(["vfs_read", "vfs_readv"].map(str::to_owned).as_slice()));
        assert_eq!(functions.near("VFS_READ").first().map(String::as_str), Some("vfs_read"));
        assert!(functions.near("quite_another_thing").is_empty());
        assert_eq!(functions.matching(&NamePattern::Exact("vfs_read".to_owned())), ["vfs_read"]);
    }

    #[test]
    fn this_kernels_functions_are_known() {
        let functions = KernelFunctions::read().expect("this test needs root");
        assert!(functions.names().binary_search(&"vfs_read".to_owned()).is_ok());
        assert!(functions.names().len() > 5000);
    }
}
