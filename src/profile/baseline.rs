//! The baseline: what was seen at one moment, kept beside the store so that what follows can be compared with it.
//!
//! It is a profile of its own: the samples that were shown when the reader marked them, samples of one thread, stack, CPU and
//! cgroup counted together, without their times. So it outlives the window, costs what was distinct in it, and every question
//! that the store answers (another order, another process, another filter) it answers as well.

use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;

use super::frame::Names;
use super::ids::{StackId, ThreadIndex};
use super::query::{Query, TimeRange};
use super::samples::{Limits, Profile, SLICE, Sample};
use super::view::ViewBuilder;

/// What the reader has marked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Mark {
    /// Tells one mark from the next; 0 is the baseline that a file gave.
    pub number: u64,
    /// What was shown then. Its range does not move.
    pub query: Query,
}

impl Mark {
    /// The question to the baseline that goes with `query` to the store.
    ///
    /// What is chosen within what was marked is asked of both sides. Otherwise the baseline is shown as it was marked: whoever
    /// marks process A and then looks at process B wants to see A beside B, not nothing.
    pub fn query_beside(&self, query: &Query) -> Query {
        let within = query.target.is_within(&self.query.target);
        let filtered_more = self.query.filters.iter().all(|filter| query.filters.contains(filter));
        Query {
            range: TimeRange::All,
            target: if within { query.target.clone() } else { self.query.target.clone() },
            // Another kind of event is no more than a baseline: as one process is to another.
            source: self.query.source,
            filters: if filtered_more { query.filters.clone() } else { Vec::new() },
            direction: query.direction,
            grouping: query.grouping,
            fold_inlined: query.fold_inlined,
        }
    }
}

/// The names of a profile have changed while it was looked at: all begins again with the new ones.
#[derive(Debug)]
pub(super) struct OtherNames;

/// Copies what `query` shows into a profile of its own, whatever the store does meanwhile. `None` if that is more than `limit`
/// bytes.
pub(super) fn excerpt(
    names: &Arc<Names>,
    query: &Query,
    profile: &RwLock<Profile>,
    limit: usize,
) -> Result<Option<Profile>, OtherNames> {
    loop {
        match try_excerpt(names, query, profile, limit) {
            Copied::All(excerpt) => return Ok(Some(*excerpt)),
            Copied::TooMuch => return Ok(None),
            Copied::Renamed => return Err(OtherNames),
            // All ids have changed: what was copied cannot be added to.
            Copied::Compacted => {}
        }
    }
}

enum Copied {
    All(Box<Profile>),
    TooMuch,
    Compacted,
    Renamed,
}

fn try_excerpt(names: &Arc<Names>, query: &Query, profile: &RwLock<Profile>, limit: usize) -> Copied {
    let mut filter = ViewBuilder::new(Arc::clone(names), query.clone());
    let mut excerpt = Profile::new(Limits::NONE);
    let mut threads: FxHashMap<ThreadIndex, ThreadIndex> = FxHashMap::default();
    let mut stacks: FxHashMap<StackId, StackId> = FxHashMap::default();
    let mut samples: FxHashMap<(ThreadIndex, StackId, u32, u16, u8, u8), Sample> = FxHashMap::default();
    let mut next = 0;
    let mut epoch = None;
    loop {
        let profile = profile.read().unwrap_or_else(PoisonError::into_inner);
        if !profile.is_named_by(names) {
            return Copied::Renamed;
        }
        if *epoch.get_or_insert(profile.epoch()) != profile.epoch() {
            return Copied::Compacted;
        }
        next = next.max(profile.samples.first());
        for sample in profile.samples.slices_from(next).flatten().take(SLICE) {
            next += 1;
            if !filter.shows(&profile, sample) {
                continue;
            }
            let Some(thread) = profile.threads.get(sample.thread) else { continue };
            let thread = *threads.entry(sample.thread).or_insert_with(|| excerpt.threads.intern(thread));
            let stack = *stacks.entry(sample.stack).or_insert_with(|| {
                let mut frames: Vec<_> = profile.stacks.frames(sample.stack).collect();
                frames.reverse();
                excerpt.stacks.intern(frames)
            });
            let cgroup = profile.cgroups.get(sample.cgroup as usize).map_or(0, |id| excerpt.cgroup(*id));
            let key = (thread, stack, cgroup, sample.cpu.0, sample.user_end as u8, sample.source.0);
            let none_yet = Sample { thread, stack, cgroup, weight: 0, time: Default::default(), ..*sample };
            samples.entry(key).or_insert(none_yet).weight += sample.weight;
        }
        if excerpt.memory() + samples.len() * size_of::<Sample>() > limit {
            return Copied::TooMuch;
        }
        if next >= profile.samples.end() {
            break;
        }
    }
    for sample in samples.into_values() {
        excerpt.samples.push(sample);
    }
    excerpt.stacks.freeze();
    Copied::All(Box::new(excerpt))
}
