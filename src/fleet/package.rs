//! What the sampling process hands to the sender.
//!
//! ```text
//! package = length of the body u32, samples u32, missed u32, body        all numbers are little-endian
//! ```

use std::io::{self, ErrorKind, Read, Write};

/// Most bytes of a body: what engines take by default.
pub const LARGEST: usize = 4 << 20;

/// A request, and what is in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Package {
    /// Samples in the body.
    pub samples: u32,
    /// Samples that were lost since the package before, because they could not be handed over.
    pub missed: u32,
    /// The body of the request, not compressed. Empty if there are no samples.
    pub body: Vec<u8>,
}

impl Package {
    /// Writes the package.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written, or is larger than [`LARGEST`].
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.body.len()).ok().filter(|_| self.body.len() <= LARGEST);
        let length = length.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the package is too large"))?;
        let mut head = [0; 12];
        for (place, number) in head.chunks_exact_mut(4).zip([length, self.samples, self.missed]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out.write_all(&head)?;
        out.write_all(&self.body)?;
        out.flush()
    }

    /// Reads a package. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be read, or are no package.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Package>> {
        let mut head = [0; 12];
        let mut have = 0;
        while let Some(rest) = head.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match from.read(rest) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut numbers = head.chunks_exact(4).map(|bytes| bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
        let mut number = || numbers.next().unwrap_or(0);
        let (length, samples, missed) = (number() as usize, number(), number());
        if length > LARGEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "the package is too large"));
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Package { samples, missed, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_as_they_were_written() {
        let all =
            [Package { samples: 7, missed: 0, body: b"body".to_vec() }, Package { samples: 0, missed: 9, body: Vec::new() }];
        let mut bytes = Vec::new();
        all.iter().for_each(|package| package.write(&mut bytes).unwrap());
        let mut rest = &bytes[..];
        let read: Vec<Package> = std::iter::from_fn(|| Package::read(&mut rest).unwrap()).collect();
        assert_eq!(read, all);
        assert!(Package::read(&mut &bytes[..5]).is_err() && Package::read(&mut &bytes[..14]).is_err());
        assert!(Package::read(&mut &[0xff; 12][..]).is_err());
        assert!(Package { body: vec![0; LARGEST + 1], ..Package::default() }.write(&mut Vec::new()).is_err());
    }
}
