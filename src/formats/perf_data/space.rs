//! The mappings of each process.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rustc_hash::FxBuildHasher;

use crate::profile::{FrameId, ObjectId};

/// Most mappings that are copied because processes fork, each of some 50 bytes. Few are: a child that runs another program has none of them.
const MOST_COPIES: usize = 1 << 20;

/// What code of a mapping is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    /// That of a file.
    Of(ObjectId),
    /// One frame for all of it.
    Frame(FrameId),
}

/// A mapping from its first address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapping {
    pub(super) end: u64,
    /// The offset in the file of its first byte.
    pub(super) offset: u64,
    pub(super) code: Code,
}

/// The mappings of a process, by their first addresses.
type Space = BTreeMap<u64, Mapping>;

/// The mappings of all processes.
#[derive(Default)]
pub(super) struct Spaces {
    by_process: HashMap<u32, Rc<Space>, FxBuildHasher>,
    copies: usize,
    /// Processes whose mappings were not copied, because there are too many.
    pub(super) without: u64,
}

impl Spaces {
    /// A new process has the mappings of its parent.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        match self.by_process.get(&parent) {
            Some(space) => drop(self.by_process.insert(child, Rc::clone(space))),
            None => drop(self.by_process.remove(&child)),
        }
    }

    /// A process that runs another program has none of its mappings.
    pub(super) fn exec(&mut self, process: u32) {
        self.by_process.remove(&process);
    }

    /// Maps addresses. What was mapped there before is gone.
    pub(super) fn map(&mut self, process: u32, start: u64, mapping: Mapping) {
        if start >= mapping.end {
            return;
        }
        let space = self.by_process.entry(process).or_default();
        if Rc::strong_count(space) > 1 {
            if self.copies + space.len() > MOST_COPIES {
                self.without += 1;
                *space = Rc::default();
            }
            self.copies += space.len();
        }
        insert(Rc::make_mut(space), start, mapping);
    }

    /// Returns the mapping of an address, and the address's offset in it.
    pub(super) fn find(&self, process: u32, address: u64) -> Option<(Mapping, u64)> {
        let (start, mapping) = self.by_process.get(&process)?.range(..=address).next_back()?;
        (address < mapping.end).then(|| (*mapping, mapping.offset.wrapping_add(address - start)))
    }
}

fn insert(space: &mut Space, start: u64, mapping: Mapping) {
    // At most one mapping reaches over an end of the new one: what is outside stays.
    let before =
        space.range(..start).next_back().map(|(start, before)| (*start, *before)).filter(|(_, before)| before.end > start);
    let last =
        space.range(..mapping.end).next_back().map(|(start, last)| (*start, *last)).filter(|(_, last)| last.end > mapping.end);
    if let Some((_, before)) = before.and_then(|(at, _)| space.get_mut(&at).map(|before| (at, before))) {
        before.end = start;
    }
    while let Some(inside) = space.range(start..mapping.end).next().map(|(start, _)| *start) {
        space.remove(&inside);
    }
    if let Some((at, last)) = last {
        let offset = last.offset.wrapping_add(mapping.end - at);
        space.insert(mapping.end, Mapping { offset, ..last });
    }
    space.insert(start, mapping);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(end: u64, object: u32) -> Mapping {
        Mapping { end, offset: 0x1000, code: Code::Of(ObjectId(object)) }
    }

    fn found(spaces: &Spaces, process: u32, address: u64) -> Option<(Code, u64)> {
        spaces.find(process, address).map(|(mapping, offset)| (mapping.code, offset))
    }

    #[test]
    fn a_later_mapping_hides_what_it_covers_and_nothing_else() {
        let mut spaces = Spaces::default();
        spaces.map(1, 100, mapping(200, 1));
        spaces.map(1, 130, mapping(150, 2));
        let code = |number| Code::Of(ObjectId(number));
        assert_eq!(found(&spaces, 1, 129), Some((code(1), 0x1000 + 29)));
        assert_eq!(found(&spaces, 1, 130), Some((code(2), 0x1000)));
        assert_eq!(found(&spaces, 1, 150), Some((code(1), 0x1000 + 50)));
        assert_eq!((found(&spaces, 1, 200), found(&spaces, 1, 99), found(&spaces, 2, 130)), (None, None, None));
        spaces.map(1, 90, mapping(300, 3));
        for address in [90, 129, 140, 299] {
            assert_eq!(found(&spaces, 1, address), Some((code(3), 0x1000 + address - 90)));
        }
    }

    #[test]
    fn a_child_has_the_mappings_of_its_parent_until_it_changes_them() {
        let mut spaces = Spaces::default();
        spaces.map(1, 100, mapping(200, 1));
        spaces.fork(1, 2);
        spaces.map(2, 100, mapping(200, 2));
        let code = |number| Some((Code::Of(ObjectId(number)), 0x1000));
        assert_eq!((found(&spaces, 1, 100), found(&spaces, 2, 100)), (code(1), code(2)));
        spaces.exec(2);
        spaces.fork(7, 1);
        assert_eq!((found(&spaces, 1, 100), found(&spaces, 2, 100)), (None, None));
    }
}
