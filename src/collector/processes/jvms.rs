//! The JVM of a process. Its code heaps are read soon after the JVM has made them.
//!
//! ```text
//! libjvm.so is mapped ─► What::CodeHeaps ─┬─► none yet: again, each time after twice the pause
//!                                         └─► struct jvm into the map `jvms`     BPF walks through its code from now on
//! ```

use std::sync::Arc;

use super::jvm_memory::Jvm;
use super::pauses::Pauses;
use super::reader::What;
use crate::runtimes::hotspot::Layout;

/// The JVM of a process, if it has one.
#[derive(Clone, Default, Debug)]
pub(super) enum JvmOfProcess {
    /// The process has none.
    #[default]
    None,
    /// Its code heaps are not known. Its library is mapped at `start`.
    Begins { layout: Arc<Layout>, start: u64, is_asked: bool, pauses: Pauses },
    /// They are known.
    Runs(Arc<Jvm>),
}

impl JvmOfProcess {
    /// Notes that the process has mapped the library of a JVM.
    pub(super) fn begins(&mut self, layout: Arc<Layout>, start: u64) {
        if matches!(self, JvmOfProcess::None) {
            *self = JvmOfProcess::Begins { layout, start, is_asked: false, pauses: Pauses::default() };
        }
    }

    pub(super) fn is_some(&self) -> bool {
        !matches!(self, JvmOfProcess::None)
    }

    pub(super) fn runs(&self) -> Option<&Arc<Jvm>> {
        if let JvmOfProcess::Runs(jvm) = self { Some(jvm) } else { None }
    }

    /// Notes that the question found no room. A later sample asks again.
    pub(super) fn not_asked(&mut self) {
        if let JvmOfProcess::Begins { is_asked, .. } = self {
            *is_asked = false;
        }
    }

    /// Returns the question that is due.
    pub(super) fn question(&mut self, now: u64) -> Option<What> {
        let JvmOfProcess::Begins { layout, start, is_asked, pauses } = self else { return None };
        if *is_asked || !pauses.is_over(now) {
            return None;
        }
        *is_asked = true;
        pauses.begin(now);
        Some(What::CodeHeaps(Arc::clone(layout), *start))
    }
}
