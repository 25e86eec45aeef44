//! What the collecting thread and the workers share.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::cache::Cache;
use super::store::Inner;
use crate::locks;

pub(super) struct SharedTables {
    pub(super) inner: Mutex<Inner>,
    pub(super) work: Condvar,
    pub(super) cache: Option<Cache>,
}

impl SharedTables {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        locks::lock(&self.inner)
    }
}
