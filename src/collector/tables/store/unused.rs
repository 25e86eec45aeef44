//! Forgets files and tables that nothing needs any longer, though there would be room for them.
//!
//! A machine that builds programs, or starts containers, runs new files all the time. Without this, their tables would stay until the
//! kernel's memory for tables, or the places for files in its maps, are used up.

use std::time::Duration;

use super::Inner;
use crate::collector::wire::perf_records::Identity;

/// Time since the last use after which a table goes if no process maps its file: a minute. In units of 2^30 ns, as all times here.
const UNUSED: u32 = 56;
/// Tables that took long to make stay for ten minutes.
const UNUSED_COSTLY: u32 = 559;
/// A table took long to make if it took this much CPU time.
const COSTLY: Duration = Duration::from_millis(20);

impl Inner {
    /// Forgets files that no process maps. Also forgets tables if only such files led to them. To be called each ten seconds.
    ///
    /// `mapped` are the files that processes map; `now` is in units of 2^30 ns of `CLOCK_MONOTONIC`.
    ///
    /// A table stays for a minute after its last use, and so does the file that led to it last: the program may start again. A file that
    /// is forgotten by mistake is requested again by its next sample.
    pub(in crate::collector::tables) fn forget_unused(&mut self, now: u32, mapped: impl Iterator<Item = Identity>) {
        let mapped = self.files.keys_among(mapped);
        let uses = self.kernel.uses();
        let is_over = |since: u32, patience: u32| now.saturating_sub(since) >= patience;
        let (mut unused, mut gone) = (Vec::new(), Vec::new());
        // The first is the vDSO's. A worker still works on partial ones.
        for (number, object) in self.objects.iter_mut().skip(1).filter(|(_, object)| !object.is_partial) {
            let used = uses.get(object.placed.slot()).copied().unwrap_or(0).max(object.since);
            let patience = if object.cost >= COSTLY { UNUSED_COSTLY } else { UNUSED };
            let is_mapped = object.keys.iter().any(|named| mapped.contains(&named.file.key));
            if !is_mapped && is_over(used, patience) {
                unused.push(*number);
                continue;
            }
            // If several files of a user have the same build id, only one of them is in `mapped`.
            let newest = object.keys.back().map(|named| named.file.key);
            object.keys.retain(|named| {
                let stays = !is_over(named.since, UNUSED) || Some(named.file.key) == newest || mapped.contains(&named.file.key);
                if !stays {
                    gone.push(*named);
                }
                stays
            });
        }
        for named in gone {
            self.forget_name(named);
        }
        for number in unused {
            self.take_out(number, false);
        }
    }
}
