//! The queue of samples that wait until their process is read.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::remapped::AtSample;
use crate::profile::UserId;

/// Most bytes of waiting samples: of all users, of root, and of any other user.
const MAX_BYTES: usize = 16 << 20;
const MAX_BYTES_OF_ROOT: usize = 8 << 20;
const MAX_BYTES_OF_USER: usize = 1 << 20;

/// A waiting sample.
pub(super) struct Parked {
    pub(super) record: Box<[u8]>,
    pub(super) tgid: u32,
    pub(super) user: UserId,
    pub(super) then: AtSample,
    pub(super) until: u64,
}

/// The waiting samples, in the order in which they came.
#[derive(Default)]
pub(super) struct Parking {
    pub(super) samples: VecDeque<Parked>,
    bytes: usize,
    of_user: FxHashMap<UserId, usize>,
    /// Number of samples that waited without result or found no room to wait.
    pub(super) in_vain: u64,
    /// See [`Unread::cut`](super::reading::Unread::cut).
    pub(super) cut: u64,
}

impl Parking {
    /// Yields the processes of the waiting samples, with repetitions.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.samples.iter().map(|parked| parked.tgid)
    }

    pub(super) fn push(&mut self, parked: Parked) -> bool {
        let (bytes, limit) = (parked.cost(), if parked.user == UserId(0) { MAX_BYTES_OF_ROOT } else { MAX_BYTES_OF_USER });
        let of_user = self.of_user.entry(parked.user).or_default();
        if *of_user + bytes > limit || self.bytes + bytes > MAX_BYTES {
            return false;
        }
        *of_user += bytes;
        self.bytes += bytes;
        self.samples.push_back(parked);
        true
    }

    /// Takes out all samples. The caller pushes back the samples that still have to wait.
    pub(super) fn take(&mut self) -> VecDeque<Parked> {
        self.bytes = 0;
        self.of_user.clear();
        std::mem::take(&mut self.samples)
    }
}

impl Parked {
    fn cost(&self) -> usize {
        self.record.len() + size_of::<Parked>() + 16
    }
}
