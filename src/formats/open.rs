//! Opens a file of any format that can be read. The content decides, not the ending.

use std::io::Read;

use super::FormatError;
use super::packed::unpack;
use super::reading::{Destination, Opened};
use super::table::{Entry, FORMATS, Foreign};

/// Reads a file of any format, plain or compressed by gzip, zstd or xz. It is of the first format in [`FORMATS`] that recognizes it.
///
/// # Errors
///
/// Fails if the input cannot be read, is of a format that cannot be opened, or is damaged. Samples that were read before the error may
/// stay in the tables.
pub fn open(input: impl Read, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let mut unpacked = unpack(input).map_err(FormatError::Read)?;
    if unpacked.head.is_empty() {
        return Err(FormatError::EmptyFile);
    }
    if let Some(Foreign { what, advice, .. }) = Foreign::of(&unpacked.head) {
        return Err(FormatError::OtherFormat { what, advice });
    }
    let is_it = |entry: &&Entry| entry.read.is_some() && (entry.recognizes)(&unpacked.head);
    let read = FORMATS.iter().find(is_it).and_then(|entry| entry.read).ok_or(FormatError::NoStacks { lines: 0 })?;
    let opened = read(&mut *unpacked.content, into)?;
    into.profile.stacks.freeze();
    into.before.iter_mut().for_each(|before| before.stacks.freeze());
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::reading::ThisMachine;
    use crate::profile::{Capabilities, Names, Processes, Profile};

    fn opened(bytes: &[u8]) -> Result<Opened, FormatError> {
        let (names, mut profile) = (Names::default(), Profile::fixed(Capabilities::STACKS));
        open(
            bytes,
            &mut Destination {
                names: &names,
                processes: &Processes::default(),
                profile: &mut profile,
                before: None,
                machine: ThisMachine::default(),
            },
        )
    }

    #[test]
    fn other_formats_are_named() {
        let error = opened(b"BZh91AY").unwrap_err();
        assert!(error.to_string().starts_with("this is bzip2-compressed data"), "{error}");
        let bpftrace = opened(b"@[\n    vfs_read+1\n    ksys_read+167\n, cat]: 120\n").unwrap_err();
        assert!(bpftrace.to_string().starts_with("this is output of bpftrace, which cannot be opened; fold it"), "{bpftrace}");
        let callgrind = opened(b"events: Instructions\n\nfl=a.c\nfn=main\n16 20\n16 400\n").unwrap_err();
        assert!(callgrind.to_string().starts_with("this is a profile of Callgrind"), "{callgrind}");
        assert!(matches!(opened(b""), Err(FormatError::EmptyFile)));
        assert!(matches!(opened(b"no stacks at all"), Err(FormatError::NoStacks { .. })));
    }

    #[test]
    fn any_other_file_is_read_as_folded_stacks() {
        assert_eq!(opened(b"main;f 1\nnonsense\n").unwrap().remarks, ["1 lines are not stacks (first: line 2)"]);
        assert!(opened(b"main;f 1 2\n").unwrap().is_difference);
        assert!(matches!(opened(b"main;f 0\n"), Err(FormatError::NoSamples)));
    }
}
