//! The state that the collecting thread and the workers share.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::cache::Cache;
use super::store::Inner;
use crate::locks;

pub(super) struct SharedTables {
    pub(super) inner: Mutex<Inner>,
    /// Signalled for each job, and at the end. Only idle workers wait for it, because a signal wakes one waiter.
    pub(super) work: Condvar,
    /// Signalled at the end. Workers wait for it in the middle of a conversion while its user has no time left.
    pub(super) time: Condvar,
    pub(super) cache: Option<Cache>,
}

impl SharedTables {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        locks::lock(&self.inner)
    }
}
