//! What the collecting thread and the workers share.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::cache::Cache;
use super::store::Inner;
use crate::locks;

pub(super) struct SharedTables {
    pub(super) inner: Mutex<Inner>,
    /// Told of each job, and of the end. Only idle workers wait for it: each telling wakes one of them.
    pub(super) work: Condvar,
    /// Told of the end. Workers wait here in the middle of a conversion, until its user has time.
    pub(super) time: Condvar,
    pub(super) cache: Option<Cache>,
}

impl SharedTables {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        locks::lock(&self.inner)
    }
}
