//! A file that grows while the program runs.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::create;
use super::error::{SaveError, failure};
use super::person::give_to_caller_of_sudo;
use super::place::{Overwrite, Place};
use super::stream::stream_of;

/// A file that has its name from the start, so that what was written stays, whatever happens to the program.
#[derive(Debug)]
pub struct Growing {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Growing {
    /// Begins a file, as private as those of [`save`](super::save), or opens a stream. An existing file is replaced at once.
    pub fn begin(path: &Path, overwrite: Overwrite) -> Result<Growing, SaveError> {
        let failed = |source: io::Error| failure(path, source);
        let begun = |file| Growing { file, path: path.to_owned(), bytes: 0 };
        if stream_of(path).is_some() {
            return Ok(begun(create(path)?));
        }
        let place = Place::open(path, overwrite)?;
        let (temporary, file) = place.create_beside().map_err(failed)?;
        give_to_caller_of_sudo(&file);
        if let Err(error) = place.take(&temporary, overwrite) {
            temporary.remove();
            return Err(failed(error));
        }
        Ok(begun(file))
    }

    /// Returns the number of bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes bytes, all of them in one write if the system takes them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        self.file.write_all(bytes).map_err(|source| failure(&self.path, source))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file survive a failure of the machine.
    pub fn finish(&self) -> Result<(), SaveError> {
        match self.file.sync_all() {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput && error.kind() != io::ErrorKind::Unsupported => {
                Err(failure(&self.path, error))
            }
            _ => Ok(()),
        }
    }
}
