//! Finds functions of one file by name, for callers that trace their calls.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::demangle::{Detail, demangle};
use super::index;
use crate::object::object_files::Images;
use crate::object::reason::Reason;
use crate::profile::{ElfAddress, FileOffset, Object, ObjectKind};

/// A function of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionPlace {
    /// Its name as the linker has it.
    pub symbol: String,
    /// Where its code begins in the file.
    pub offset: FileOffset,
    /// Whether it only selects the function that is called instead (`GNU_IFUNC`). The dynamic linker calls such a function once.
    pub chooses: bool,
}

impl FunctionPlace {
    /// Returns its name as people write it: C++ without parameters, Rust without its hash.
    pub fn name(&self) -> String {
        demangle(self.symbol.as_bytes(), Detail::Short).into_owned()
    }
}

fn images_of(path: &Path) -> Result<Images, Reason> {
    let path = std::fs::canonicalize(path)?;
    let meta = path.metadata()?;
    let file = Some((meta.dev(), meta.ino()));
    let object =
        Object { kind: ObjectKind::Elf, path: path.to_string_lossy().into(), build_id: None, file, ..Default::default() };
    Images::open(&object, &[], None)
}

/// Returns the functions in all tables of a file and of its debug files. One function may have several names.
///
/// # Errors
///
/// The file cannot be read, or is no ELF file.
pub fn functions_of(path: &Path) -> Result<Vec<FunctionPlace>, Reason> {
    let images = images_of(path)?;
    let mut functions = Vec::new();
    for symbol in index::functions(&images)? {
        let Some(offset) = images.own.file_offset(ElfAddress(symbol.address)) else { continue };
        if let Some(name) = symbol.name.read(&images)? {
            let symbol_name = String::from_utf8_lossy(&name).into_owned();
            functions.push(FunctionPlace { symbol: symbol_name, offset, chooses: symbol.chooses });
        }
    }
    functions.sort_by(|a, b| (a.offset.0, &a.symbol).cmp(&(b.offset.0, &b.symbol)));
    functions.dedup();
    Ok(functions)
}

/// Returns the first bytes of the code at each of these places in a file.
pub fn code_at(path: &Path, offsets: &[FileOffset]) -> Result<Vec<[u8; 4]>, Reason> {
    let images = images_of(path)?;
    let read = |offset: &FileOffset| {
        let bytes = images.own.source.read(offset.0, 4, 4)?;
        Ok(<[u8; 4]>::try_from(&*bytes).unwrap_or_default())
    };
    offsets.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_functions_are_where_they_run() {
        let functions = functions_of(Path::new("/proc/self/exe")).unwrap();
        let own = functions.iter().find(|function| function.name().ends_with("functions::functions_of")).unwrap();
        // The mapping that holds a function says where its file's bytes are.
        let address = functions_of as *const () as usize as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let offset = maps.lines().find_map(|line| {
            let mut fields = line.split_whitespace();
            let (from, to) = fields.next()?.split_once('-')?;
            let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
            let begins = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
            (from..to).contains(&address).then(|| address - from + begins)
        });
        assert_eq!(Some(own.offset.0), offset);
    }

    #[test]
    fn a_function_has_all_its_names() {
        let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"];
        let libc = libc.iter().find(|path| Path::new(path).exists()).expect("this test needs glibc");
        let functions = functions_of(Path::new(libc)).unwrap();
        let of = |name: &str| functions.iter().find(|function| function.symbol.split('@').next() == Some(name));
        assert_eq!(of("malloc").unwrap().offset, of("__libc_malloc").unwrap().offset);
        assert!(of("memcpy").unwrap().chooses && !of("malloc").unwrap().chooses);
    }
}
