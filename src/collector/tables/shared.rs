//! What the collecting thread and the workers share.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::cache::Cache;
use super::store::Inner;
use crate::locks;

/// Threads that make tables. Three, on one processor too: analysing the code of a large program takes seconds, and the next program does not
/// wait for it.
pub(super) const WORKERS: usize = 3;

pub(super) struct Shared {
    pub(super) inner: Mutex<Inner>,
    pub(super) work: Condvar,
    pub(super) cache: Option<Cache>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        locks::lock(&self.inner)
    }
}
