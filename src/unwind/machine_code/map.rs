//! Combines the facts that functions give about each byte of code.

use crate::unwind::table::block::Block;
use rustc_hash::FxHashMap;

use super::machine::padding;
use super::outcome::Outcome;
use super::state::Facts;
use super::text::{Places, Text};
use crate::unwind::table::packed::Packed;

/// Longest padding, in bytes, that has the rule before it: nothing runs there.
const PADDING: usize = 63;

const NOTHING: u16 = 0;
/// Two functions share the code and disagree.
const DISPUTED: u16 = u16::MAX;

/// A number for each byte: it tells the rule that holds there.
pub(crate) struct Map {
    places: Places,
    numbers: Vec<u16>,
    rules: Vec<Packed>,
    known: FxHashMap<Packed, u16>,
    rbx: bool,
    /// Numbers of the facts that were used last: most functions have the same few.
    recent: Vec<(Facts, u16)>,
    oldest: usize,
}

const RECENT: usize = 8;

impl Map {
    pub(crate) fn new(text: &Text<'_>, rbx: bool) -> Map {
        let size = text.pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        Map {
            places: text.places(),
            numbers: vec![NOTHING; size],
            rules: Vec::new(),
            known: FxHashMap::default(),
            rbx,
            recent: Vec::new(),
            oldest: 0,
        }
    }

    fn number_of(&mut self, facts: Option<Facts>) -> u16 {
        let Some(facts) = facts else { return self.number(Packed::GAP) };
        if let Some((_, number)) = self.recent.iter().find(|(recent, _)| *recent == facts) {
            return *number;
        }
        let number = self.number(facts.packed(self.rbx).unwrap_or(Packed::GAP));
        let next = self.recent.len();
        if next < RECENT {
            self.recent.push((facts, number));
        } else {
            self.oldest = (self.oldest + 1) % RECENT;
            self.recent.iter_mut().skip(self.oldest).take(1).for_each(|recent| *recent = (facts, number));
        }
        number
    }

    fn number(&mut self, rule: Packed) -> u16 {
        if let Some(number) = self.known.get(&rule) {
            return *number;
        }
        self.rules.push(rule);
        let number = u16::try_from(self.rules.len()).unwrap_or(DISPUTED);
        self.known.insert(rule, number);
        number
    }

    /// Calls `row` for each row of a function, with the row's bytes and the number of its rule.
    fn each(&mut self, outcome: &Outcome, mut row: impl FnMut(&mut [u16], u16)) {
        for found in &outcome.rows {
            let (number, place) = (self.number_of(found.facts), self.places.of(found.start));
            let end = place.saturating_add((found.end - found.start) as usize);
            if let Some(bytes) = self.numbers.get_mut(place..end) {
                row(bytes, number);
            }
        }
    }

    /// Returns whether a function agrees with all functions before it.
    pub(crate) fn fits(&mut self, outcome: &Outcome) -> bool {
        let mut fits = true;
        self.each(outcome, |bytes, number| fits &= bytes.iter().all(|before| *before == NOTHING || *before == number));
        fits
    }

    pub(crate) fn paint(&mut self, outcome: &Outcome) {
        self.each(outcome, |bytes, number| {
            for byte in bytes {
                *byte = if *byte == NOTHING || *byte == number { number } else { DISPUTED };
            }
        });
    }

    /// Returns how many bytes from an address on, at most `most`, have facts.
    pub(crate) fn painted(&self, address: u64, most: usize) -> usize {
        let place = self.places.of(address);
        let bytes = self.numbers.get(place..place.saturating_add(most)).unwrap_or_default();
        bytes.iter().take_while(|number| **number != NOTHING).count()
    }

    /// Returns whether functions contradict each other somewhere in a row.
    #[cfg(test)]
    pub(crate) fn is_disputed(&self, row: &super::outcome::Row) -> bool {
        let place = self.places.of(row.start);
        let bytes = self.numbers.get(place..place.saturating_add((row.end - row.start) as usize));
        bytes.unwrap_or_default().contains(&DISPUTED)
    }

    /// Returns the code with known rules. Padding up to the next function has the rule before it.
    pub(crate) fn blocks(&mut self, text: &Text<'_>) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for (start, bytes) in &text.pieces {
            let place = self.places.of(*start);
            let Some(numbers) = self.numbers.get(place..place.saturating_add(bytes.len())) else { continue };
            let mut at = 0;
            let mut open: Option<Block> = None;
            while let Some(first) = numbers.get(at).copied() {
                let count = numbers.iter().skip(at).take_while(|number| **number == first).count();
                let address = start + at as u64;
                let rule = usize::from(first).checked_sub(1).and_then(|number| self.rules.get(number)).copied();
                let rule = rule.filter(|rule| *rule != Packed::GAP);
                let fills = || {
                    let rest = bytes.get(at..at + count).unwrap_or_default();
                    first == NOTHING && count <= PADDING && padding(text.arch, rest) == count
                };
                match (rule, &mut open) {
                    (Some(rule), Some(block)) => block.rows.push((address, rule)),
                    (Some(rule), None) => {
                        open = Some(Block {
                            source: "code",
                            wins: false,
                            start: address,
                            end: address,
                            rows: vec![(address, rule)],
                        });
                    }
                    (None, Some(_)) if fills() => {}
                    (None, _) => blocks.extend(open.take()),
                }
                at += count;
                if let Some(block) = &mut open {
                    block.end = start + at as u64;
                }
            }
            blocks.extend(open);
        }
        // Rows that equal the row before are merged with it.
        for block in &mut blocks {
            block.rows.dedup_by_key(|(_, rule)| *rule);
        }
        blocks
    }
}
