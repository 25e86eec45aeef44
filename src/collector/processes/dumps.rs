//! The queue of samples that wait for unwind tables.

use crate::collector::tables::MappedRequest;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::mappings::Mappings;
use super::remapped::AtSample;
use crate::collector::wire::records::StackDump;
use crate::profile::UserId;
use crate::unwind::walk::{Walked, WalkedFrame};

/// Most bytes of waiting samples: of all users, of root, and of any other user.
const MAX_BYTES: usize = 32 << 20;
pub(super) const MAX_BYTES_OF_ROOT: usize = 24 << 20;
const MAX_BYTES_OF_USER: usize = 8 << 20;
/// Bytes of a stack that are kept when room is short.
const SHORT: usize = 16 << 10;

/// Counts of samples that met code without a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DumpCounts {
    /// Samples with a copy of their stack.
    pub dumped: u64,
    /// Samples with a copy whose walk in the copy reached a root.
    pub whole: u64,
    /// Samples with a copy whose table did not come in time.
    pub late: u64,
    /// Samples without a copy: too many copies were being made just then, or too many samples waited.
    pub refused: u64,
}

/// A sample that waits.
pub(super) struct Waiting {
    pub(super) record: Box<[u8]>,
    pub(super) dump: StackDump,
    pub(super) tgid: u32,
    pub(super) user: UserId,
    pub(super) then: AtSample,
    /// The mappings that its process had when the sample was taken, if they are known.
    pub(super) mappings: Option<Mappings>,
    /// The frames that the last try found, up to code without a table. The next try begins there.
    pub(super) so_far: Option<Box<Walked>>,
    pub(super) until: u64,
}

impl Waiting {
    pub(super) fn cost(&self) -> usize {
        let frames =
            self.so_far.as_ref().map_or(0, |walked| size_of::<Walked>() + walked.frames.capacity() * size_of::<WalkedFrame>());
        self.record.len() + self.dump.stack_bytes() + frames + size_of::<Waiting>() + 32
    }
}

/// The waiting samples, in the order in which they came.
#[derive(Default)]
pub(super) struct Dumped {
    pub(super) samples: VecDeque<Box<Waiting>>,
    pub(super) bytes: usize,
    pub(super) of_user: FxHashMap<UserId, usize>,
    pub(super) counts: DumpCounts,
    /// Requests for tables that the kernel's walk has not requested.
    pub(super) requests: Vec<MappedRequest>,
    /// The version of the tables when the samples were last tried. `None`: they are to be tried in any case.
    pub(super) version: Option<u64>,
    /// Whether each dump is walked in addition to the kernel's walk, to compare the two: [`Walk::Dumped`](super::super::Walk::Dumped).
    pub(super) compares: bool,
}

impl Dumped {
    pub(super) fn push(&mut self, mut waiting: Box<Waiting>) -> Result<(), Box<Waiting>> {
        let limit = if waiting.user == UserId(0) { MAX_BYTES_OF_ROOT } else { MAX_BYTES_OF_USER };
        let of_user = self.of_user.entry(waiting.user).or_default();
        // Long copies may take three quarters of each limit.
        let is_tight = |bytes: usize| (*of_user + bytes) * 4 > limit * 3 || (self.bytes + bytes) * 4 > MAX_BYTES * 3;
        if waiting.dump.stack_bytes() > SHORT && is_tight(waiting.cost()) {
            waiting.dump.shorten(SHORT);
        }
        let bytes = waiting.cost();
        if *of_user + bytes > limit || self.bytes + bytes > MAX_BYTES {
            return Err(waiting);
        }
        *of_user += bytes;
        self.bytes += bytes;
        self.samples.push_back(waiting);
        Ok(())
    }

    /// Takes out all samples. The caller pushes back the samples that still have to wait.
    pub(super) fn take(&mut self) -> VecDeque<Box<Waiting>> {
        self.bytes = 0;
        self.of_user.clear();
        std::mem::take(&mut self.samples)
    }

    /// Yields the mappings that processes had when their samples were taken.
    pub(super) fn mappings(&self) -> impl Iterator<Item = &Mappings> {
        self.samples.iter().filter_map(|waiting| waiting.mappings.as_ref())
    }

    /// Yields the processes of the waiting samples, with repetitions.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.samples.iter().map(|waiting| waiting.tgid)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.bytes
    }

    /// Whether samples wait.
    pub(super) fn is_any(&self) -> bool {
        !self.samples.is_empty()
    }
}
