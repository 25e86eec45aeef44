//! Packages that wait for an engine.

use std::collections::VecDeque;

/// A package, ready to be sent.
#[derive(Debug)]
pub(super) struct Parcel {
    /// The compressed body.
    pub(super) body: Box<[u8]>,
    pub(super) samples: u64,
}

/// Most bytes that wait, with what each parcel costs in tables.
pub(super) const MOST: usize = 30 << 20;
/// Bytes of a parcel besides its body.
const EACH: usize = 64;

/// Parcels in the order in which they came. If there are too many, the oldest go.
#[derive(Default)]
pub(super) struct Outbox {
    parcels: VecDeque<Parcel>,
    bytes: usize,
}

impl Outbox {
    /// Puts a parcel behind the others. Returns those that have to go.
    pub(super) fn put(&mut self, parcel: Parcel) -> Vec<Parcel> {
        self.bytes += parcel.body.len() + EACH;
        self.parcels.push_back(parcel);
        let mut gone = Vec::new();
        while self.bytes > MOST {
            gone.extend(self.take());
        }
        gone
    }

    /// Takes the oldest parcel.
    pub(super) fn take(&mut self) -> Option<Parcel> {
        let parcel = self.parcels.pop_front()?;
        self.bytes -= parcel.body.len() + EACH;
        Some(parcel)
    }

    /// Puts back the parcel that was taken last. Returns it if there is no room.
    pub(super) fn put_back(&mut self, parcel: Parcel) -> Option<Parcel> {
        if self.bytes + parcel.body.len() + EACH > MOST {
            return Some(parcel);
        }
        self.bytes += parcel.body.len() + EACH;
        self.parcels.push_front(parcel);
        None
    }

    /// Returns how many parcels wait, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.parcels.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_parcels_give_way() {
        let parcel = |samples| Parcel { body: vec![0; 1 << 20].into(), samples };
        let mut outbox = Outbox::default();
        let gone: Vec<u64> = (0..40).flat_map(|number| outbox.put(parcel(number))).map(|parcel| parcel.samples).collect();
        let (count, bytes) = outbox.size();
        assert_eq!(gone, (0..40 - count as u64).collect::<Vec<_>>());
        assert!(bytes <= MOST && count == 29, "{count} {bytes}");
        let oldest = outbox.take().unwrap();
        assert_eq!(oldest.samples, gone.len() as u64);
        assert!(outbox.put_back(oldest).is_none());
        assert_eq!(outbox.size(), (count, bytes));
        let oldest = outbox.take().unwrap();
        assert!(outbox.put(parcel(40)).is_empty() && outbox.put_back(oldest).is_some());
    }
}
