//! The baseline: samples of an earlier moment, kept beside the store so that later samples can be compared with them.
//!
//! It is a separate profile: the samples that were shown when the reader marked them. Samples of one thread, stack and CPU are counted
//! together, without their times. So the baseline outlives the window, and its size depends on the number of distinct samples. It answers
//! every question that the store answers: another order, another process, another filter.

use std::sync::{Arc, RwLock};

use rustc_hash::FxHashMap;

use super::builder::ViewBuilder;
use super::query::Query;
use crate::locks;
use crate::profile::ids::{StackId, ThreadIndex};
use crate::profile::names::table::Names;
use crate::profile::store::capabilities::Capabilities;
use crate::profile::store::profile::Profile;
use crate::profile::store::samples::{SLICE, Sample};

/// Error: the names of a profile changed while it was read. The caller begins again with the new names.
#[derive(Debug)]
pub(crate) struct OtherNames;

/// Copies the samples that `query` shows into a separate profile, even if the store changes meanwhile. Returns `None` if the copy would
/// take more than `limit` bytes.
pub(crate) fn excerpt(
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
            // All ids have changed: nothing can be added to the copy, so it begins again.
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
    let mut excerpt = Profile::fixed(Capabilities { time: false, ..locks::read(profile).capabilities() });
    let mut threads: FxHashMap<ThreadIndex, ThreadIndex> = FxHashMap::default();
    let mut stacks: FxHashMap<StackId, StackId> = FxHashMap::default();
    let mut samples: FxHashMap<(ThreadIndex, StackId, u16, u8, u8), Sample> = FxHashMap::default();
    let mut next = 0;
    let mut epoch = None;
    loop {
        let profile = locks::read(profile);
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
            excerpt.set_unit(sample.source, profile.unit(sample.source));
            let Some(thread) = profile.threads.get(sample.thread) else { continue };
            let thread = *threads.entry(sample.thread).or_insert_with(|| excerpt.threads.intern(thread));
            let stack = *stacks.entry(sample.stack).or_insert_with(|| {
                let mut frames: Vec<_> = profile.stacks.frames(sample.stack).collect();
                frames.reverse();
                excerpt.stacks.intern(frames)
            });
            let key = (thread, stack, sample.cpu.0, sample.user_end as u8, sample.source.0);
            let none_yet = Sample { thread, stack, weight: 0, observations: 0, time: Default::default(), ..*sample };
            let sum = samples.entry(key).or_insert(none_yet);
            sum.weight = sum.weight.saturating_add(sample.weight);
            sum.observations = sum.observations.saturating_add(sample.observations);
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
