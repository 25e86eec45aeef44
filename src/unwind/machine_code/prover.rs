//! Follows the functions of some code until nothing more is learned, and combines their facts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::function::follow;
use super::known::{Evidence, Known};
use super::machine::{Stepper, clears_frame_pointer, padding, run_length};
use super::map::Map;
use super::outcome::{Budget, Findings, Outcome, POPS, STACK};
use super::plain::Plain;
use super::text::Text;
use crate::unwind::control::Control;

/// Most visits to instructions: for each byte, and in total. Debian's musl takes 0.55 for each byte.
const VISITS_A_BYTE: u64 = 4;
const MOST_VISITS: u64 = 16 << 20;

/// How often new facts about called functions are applied to their callers.
const MOST_ROUNDS: usize = 6;

/// If this many calls of a function have nothing behind them, the function does not return.
const MOST_SILENT: usize = 2;

/// This many functions may take arguments off the stack: OpenSSL has 3 that seem to.
const FEW_POPS: usize = 8;

/// This many functions may never return and end with a jump to an unknown address: functions that end with a virtual call do.
pub(crate) const FEW_JUMPS: usize = 32;

/// The caller does not want to continue.
#[derive(Debug)]
pub(crate) struct Stopped;

/// The facts about some code.
#[derive(Default)]
pub(crate) struct Proved {
    pub(crate) found: Findings,
    /// Functions in this code that do not keep the registers that they ought to: see [`Known::changes`].
    pub(crate) changes: Vec<(u64, u16)>,
    /// Functions in other code that proved functions here call or jump to.
    pub(crate) called: Vec<u64>,
    pub(crate) signs: Signs,
}

/// Signs that code keeps to other conventions than C's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Signs {
    functions: usize,
    /// Functions that take arguments off the stack.
    pops: usize,
    /// Functions that never return and end with a jump to an unknown address.
    jumps: usize,
}

impl Signs {
    /// Returns whether calls here treat the stack differently from C's. V8's callees take their arguments off it, and an indirect
    /// call does not tell its callee. Haskell's code is reached by jumps, and has no return address.
    pub(crate) fn are_foreign(self) -> bool {
        self.pop() || self.jumps > FEW_JUMPS && self.jumps > self.functions / 8
    }

    fn pop(self) -> bool {
        self.pops > FEW_POPS && self.pops > self.functions / 32
    }

    pub(crate) fn add(&mut self, other: Signs) {
        self.functions += other.functions;
        self.pops += other.pops;
        self.jumps += other.jumps;
    }
}

pub(crate) struct Prover<'p> {
    text: &'p Text<'p>,
    known: Known<'p>,
    done: BTreeMap<u64, Outcome>,
    queue: Vec<u64>,
    /// For each function, the calls of it that have nothing behind them to come back to: `abort` in a library, called through a
    /// stub.
    silent: FxHashMap<u64, FxHashSet<u64>>,
    /// Functions in `done` that were added last.
    fresh: Vec<u64>,
    /// Known begins of functions that were added last.
    started: Vec<u64>,
    budget: Budget<'p>,
    pops: FxHashSet<u64>,
    jumps: FxHashSet<u64>,
    is_foreign: bool,
    stepper: Stepper,
    plain: Plain,
    root: u64,
}

impl<'p> Prover<'p> {
    pub(crate) fn new(text: &'p Text<'p>, known: Known<'p>, root: u64, control: &'p dyn Control) -> Prover<'p> {
        let visits = (text.size() * VISITS_A_BYTE + 4096).min(MOST_VISITS);
        let mut prover = Prover {
            text,
            known,
            done: BTreeMap::new(),
            queue: Vec::new(),
            silent: FxHashMap::default(),
            fresh: Vec::new(),
            started: Vec::new(),
            budget: Budget::new(visits, control),
            pops: FxHashSet::default(),
            jumps: FxHashSet::default(),
            is_foreign: false,
            stepper: Stepper::new(),
            plain: Plain::new(),
            root,
        };
        if prover.is_root(root) {
            prover.start(root, Evidence::Symbol);
        }
        prover
    }

    /// Follows the known begins of functions, then the remaining code.
    pub(crate) fn prove(mut self, rbx: bool) -> Result<Proved, Stopped> {
        self.rounds();
        // Decided only here, not as soon as there are many: virtual functions that end by calling another one may be followed
        // first.
        self.is_foreign |= self.signs().are_foreign();
        if !self.is_foreign {
            self.budget.limit(self.text.size());
            self.sweep(rbx);
            self.rounds();
            self.is_foreign |= self.signs().are_foreign();
        }
        match (self.budget.is_stopped(), self.is_foreign) {
            (true, _) => Err(Stopped),
            (_, true) => Ok(Proved { signs: self.signs(), ..Proved::default() }),
            _ => Ok(self.proved(rbx)),
        }
    }

    fn signs(&self) -> Signs {
        Signs { functions: self.done.len(), pops: self.pops.len(), jumps: self.jumps.len() }
    }

    /// Notes that a function may begin there.
    pub(crate) fn start(&mut self, address: u64, evidence: Evidence) {
        if !self.text.contains(address) {
            return;
        }
        let known = match self.known.starts.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                self.started.push(address);
                place.insert(evidence)
            }
        };
        if *known == Evidence::Part && evidence < Evidence::Called {
            return;
        }
        *known = evidence.max(*known);
        if !self.done.contains_key(&address) {
            self.queue.push(address);
        }
    }

    /// Returns whether the program's first code marks its frame as the outermost.
    fn is_root(&self, address: u64) -> bool {
        let code = self.text.from(address).filter(|_| address == self.root);
        code.is_some_and(|code| clears_frame_pointer(self.text.arch, code))
    }

    /// Follows all functions that wait.
    fn drain(&mut self) {
        while let Some(start) = self.queue.pop() {
            if self.is_foreign || self.budget.is_stopped() {
                return;
            }
            let is_function = self.known.starts.get(&start).is_some_and(|evidence| *evidence > Evidence::Part);
            if is_function && !self.done.contains_key(&start) {
                self.follow(start);
            }
        }
    }

    fn follow(&mut self, start: u64) {
        let evidence = self.known.starts.get(&start).copied().unwrap_or(Evidence::Part);
        let is_root = self.is_root(start);
        let mut outcome = follow(self.text, &self.known, start, is_root, &mut self.budget, &mut self.stepper, &mut self.plain);
        let is_sure = match evidence {
            Evidence::Called | Evidence::Symbol => true,
            Evidence::Taken => !outcome.is_crooked,
            Evidence::Part => false,
            Evidence::Gap => !outcome.is_crooked && outcome.proof && outcome.changed == 0 && outcome.inside.is_empty(),
        };
        if outcome.failed.is_none() && !is_sure {
            outcome.failed = Some("nothing says that it is a function");
        }
        let proved = outcome.failed.is_none();
        for inside in outcome.inside.iter().filter(|_| proved) {
            self.known.starts.insert(*inside, Evidence::Part);
            self.done.remove(inside);
        }
        for target in &outcome.calls {
            if evidence > Evidence::Gap || proved {
                self.start(*target, if proved { Evidence::Called } else { Evidence::Taken });
            }
        }
        let own = |address: &u64| outcome.rows.iter().any(|row| (row.start..row.end).contains(address));
        for target in outcome.references.iter().filter(|target| proved && !own(target)) {
            self.start(*target, Evidence::Taken);
        }
        for (call, target) in &outcome.silent {
            let calls = self.silent.entry(*target).or_default();
            calls.insert(*call);
            // Noted at once, not in the next round: otherwise all its callers would be begun again. A function in this code is
            // followed itself, and that will tell.
            if calls.len() >= MOST_SILENT && !self.text.contains(*target) {
                self.known.endless.insert(*target);
            }
        }
        // A place that is only tried may be data.
        if outcome.failed == Some(POPS) && evidence > Evidence::Gap {
            self.pops.insert(start);
            self.is_foreign |= self.signs().pop();
        }
        if proved && outcome.jumps && !outcome.proof {
            self.jumps.insert(start);
        }
        self.fresh.push(start);
        self.done.insert(start, outcome);
    }

    /// Follows functions. Follows them again if their callees turned out not to do what callees do.
    fn rounds(&mut self) {
        self.drain();
        for _ in 0..MOST_ROUNDS {
            if self.is_foreign || self.budget.is_stopped() {
                return;
            }
            let (endless, changes) = self.learned();
            // Functions with new facts.
            let mut news: FxHashSet<u64> = endless.symmetric_difference(&self.known.endless).copied().collect();
            news.extend(
                changes.iter().filter(|(start, changed)| self.known.changes.get(start) != Some(changed)).map(|(start, _)| *start),
            );
            news.extend(self.known.changes.keys().filter(|start| !changes.contains_key(start)));
            // Also functions that continued into code which turned out to be another function.
            let starts = self.known.starts.iter().filter(|(_, evidence)| **evidence > Evidence::Gap);
            let starts: Vec<u64> = starts.map(|(start, _)| *start).collect();
            let others = |start: &u64, outcome: &Outcome| {
                let (Some(first), Some(last)) = (outcome.rows.first(), outcome.rows.last()) else { return false };
                let from = starts.partition_point(|start| *start < first.start);
                let inside = starts.iter().skip(from).take_while(|other| **other < last.end);
                inside.filter(|other| *other != start && !outcome.inside.contains(other)).any(|other| {
                    let row = outcome.rows.partition_point(|row| row.end <= *other);
                    outcome.rows.get(row).is_some_and(|row| row.start <= *other)
                })
            };
            let calls_news = |outcome: &Outcome| !news.is_empty() && outcome.calls.iter().any(|target| news.contains(target));
            let again = self.done.iter().filter(|(start, outcome)| calls_news(outcome) || others(start, outcome));
            let again: Vec<u64> = again.map(|(start, _)| *start).collect();
            (self.known.endless, self.known.changes) = (endless, changes);
            if again.is_empty() {
                break;
            }
            for start in again {
                self.done.remove(&start);
                self.queue.push(start);
            }
            self.drain();
        }
    }

    /// Returns the functions that never return, and the registers that each returning function changes.
    fn learned(&self) -> (FxHashSet<u64>, FxHashMap<u64, u16>) {
        let proved = || self.done.iter().filter(|(_, outcome)| outcome.failed.is_none());
        let mut endless: FxHashSet<u64> = proved().filter(|(_, outcome)| !outcome.returns).map(|(start, _)| *start).collect();
        endless.extend(self.silent_now());
        let mut changes: FxHashMap<u64, u16> =
            proved().filter(|(_, outcome)| outcome.changed != 0).map(|(start, outcome)| (*start, outcome.changed)).collect();
        let pops = self.done.iter().filter(|(_, outcome)| outcome.failed == Some(POPS));
        changes.extend(pops.map(|(start, _)| (*start, STACK)));
        let others = self.known.others;
        // A function also returns if a function that it ends by jumping to returns. Repeated as often as such jumps follow each
        // other.
        loop {
            let mut more = false;
            for (start, outcome) in proved().filter(|(_, outcome)| !outcome.tails.is_empty()) {
                if endless.contains(start)
                    && outcome.tails.iter().any(|tail| !endless.contains(tail) && !others.endless.contains(tail))
                {
                    endless.remove(start);
                    more = true;
                }
                let before = changes.get(start).copied().unwrap_or(0);
                let after = outcome
                    .tails
                    .iter()
                    .filter_map(|tail| changes.get(tail).or_else(|| others.changes.get(tail)))
                    .fold(before, |mask, tail| mask | tail);
                if after != before {
                    changes.insert(*start, after);
                    more = true;
                }
            }
            if !more {
                return (endless, changes);
            }
        }
    }

    /// Returns the functions that are called often enough with nothing behind the calls, by the latest outcomes.
    fn silent_now(&self) -> impl Iterator<Item = u64> {
        let mut calls: Vec<(u64, u64)> =
            self.done.values().flat_map(|outcome| &outcome.silent).map(|(call, target)| (*target, *call)).collect();
        calls.sort_unstable();
        calls.dedup();
        let mut counts: FxHashMap<u64, usize> = FxHashMap::default();
        calls.iter().for_each(|(target, _)| *counts.entry(*target).or_default() += 1);
        counts.retain(|target, count| *count >= MOST_SILENT && !self.returns(*target));
        // Functions elsewhere count as soon as enough such calls were seen.
        let elsewhere = self.silent.iter().filter(|(target, calls)| calls.len() >= MOST_SILENT && !self.text.contains(**target));
        counts.extend(elsewhere.map(|(target, calls)| (*target, calls.len())));
        counts.into_keys()
    }

    /// Returns whether a function was seen to return.
    fn returns(&self, start: u64) -> bool {
        self.done.get(&start).is_some_and(|outcome| outcome.failed.is_none() && outcome.returns)
    }

    /// Tries the remaining code, from the end of each piece of code that was followed.
    fn sweep(&mut self, rbx: bool) {
        let text = self.text;
        let mut map = Map::new(text, rbx);
        for outcome in self.done.values().filter(|outcome| outcome.failed.is_none()) {
            map.paint(outcome);
        }
        for (start, bytes) in &text.pieces {
            let mut at = 0;
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                let address = start + at as u64;
                let known = map.painted(address, rest.len());
                if known > 0 {
                    at += known;
                    continue;
                }
                let filled = padding(text.arch, rest);
                if filled > 0 {
                    at += filled;
                    continue;
                }
                if !self.try_gap(address, &mut map) {
                    at += run_length(text.arch, rest);
                }
            }
        }
    }

    /// Returns whether a function begins there although no evidence says so.
    fn try_gap(&mut self, address: u64, map: &mut Map) -> bool {
        if self.known.starts.contains_key(&address) {
            return false;
        }
        self.fresh.clear();
        self.started.clear();
        self.start(address, Evidence::Gap);
        self.queue.pop();
        self.follow(address);
        let mut fits =
            |prover: &Prover<'_>| prover.done.get(&address).is_some_and(|outcome| outcome.failed.is_none() && map.fits(outcome));
        // Its callees are followed only if it fits.
        if !fits(self) {
            self.queue.clear();
            self.done.remove(&address);
            for start in std::mem::take(&mut self.started) {
                self.known.starts.remove(&start);
            }
            return false;
        }
        self.drain();
        let fits = fits(self);
        // Includes its callees that were unknown before.
        for start in std::mem::take(&mut self.fresh) {
            match self.done.get(&start) {
                Some(outcome) if fits && outcome.failed.is_none() => map.paint(outcome),
                Some(_) if !fits => {
                    self.known.starts.remove(&start);
                    self.done.remove(&start);
                }
                _ => {}
            }
        }
        fits && map.painted(address, 1) > 0
    }

    fn proved(self, rbx: bool) -> Proved {
        let signs = self.signs();
        let mut map = Map::new(self.text, rbx);
        let proved = || self.done.values().filter(|outcome| outcome.failed.is_none());
        proved().for_each(|outcome| map.paint(outcome));
        let blocks = map.blocks(self.text);
        let mut called: Vec<u64> = proved()
            .flat_map(|outcome| outcome.calls.iter().chain(&outcome.tails))
            .copied()
            .filter(|target| !self.text.contains(*target))
            .collect();
        called.sort_unstable();
        called.dedup();
        called.shrink_to_fit();
        let changes = self.known.changes.iter().map(|(start, changed)| (*start, *changed));
        let changes = changes.filter(|(start, _)| self.text.contains(*start)).collect();
        #[cfg(test)]
        let found = {
            let functions = self.done.iter().map(|(start, outcome)| (*start, outcome.failed)).collect();
            let proved = self.done.into_iter().filter(|(_, outcome)| outcome.failed.is_none());
            let mut rows: Vec<(u64, super::outcome::Row)> =
                proved.flat_map(|(start, outcome)| outcome.rows.into_iter().map(move |row| (start, row))).collect();
            rows.retain(|(_, row)| !map.is_disputed(row));
            rows.sort_by_key(|(_, row)| row.start);
            Findings { blocks, rows, functions }
        };
        #[cfg(not(test))]
        let found = Findings { blocks };
        Proved { found, changes, called, signs }
    }
}
