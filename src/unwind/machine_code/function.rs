//! Analysis of one function: finds the facts at each of its instructions by following all ways through it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::abi::Abi;
use super::flow::Flow;
use super::jumps::Jumps;
use super::known::{Evidence, Known};
use super::machine::{Decoder, Instruction, Stepper};
use super::outcome::{Budget, Outcome, POPS, Row, STACK};
use super::plain::Plain;
use super::state::{CFA, MachineState, Value};
use super::text::Text;

/// Most entries of a jump table.
const MOST_JUMPS: usize = 1024;
/// Most restarts of a function, each because a call was found not to return.
const MOST_TURNS: usize = 64;
/// Most visits to the instructions of one function, for each instruction that it has.
const MOST_VISITS: u64 = 24;

/// How a block is reached from another block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Jump,
    Fall,
    /// Past that call, which may not return.
    Call(u64),
}

struct Block {
    input: MachineState,
    end: u64,
    rows: Vec<Row>,
    /// The call before it, if no other way leads here.
    after: Option<u64>,
    /// It begins with padding, and continues behind it.
    is_padded: bool,
    /// Next blocks in this function, and whether each is behind a call.
    next: Vec<(u64, bool)>,
    /// Whether it leaves the function for its caller; whether it surely ends, not by a call that may return.
    leaves: bool,
    ends: bool,
}

/// Why a function is begun again.
enum Again {
    /// That call does not return.
    Ends(u64),
    /// The assumed begin of a thread returns.
    NoThread,
    Failed(&'static str),
}

pub(crate) struct Function<'a, 't> {
    text: &'a Text<'t>,
    known: &'a Known<'a>,
    start: u64,
    /// Whether it is the program's first code.
    is_root: bool,
    follow_threads: bool,
    ends: HashSet<u64>,
    /// Calls and the functions that they call.
    targets: HashMap<u64, u64>,
    blocks: BTreeMap<u64, Block>,
    waiting: BTreeSet<u64>,
    /// The block that is followed.
    current: u64,
    visits: u64,
    instructions: u64,
    outcome: Outcome,
    thread_calls: bool,
    has_thread: bool,
}

/// Follows the function at `start`. `budget` is shared by all functions, and decreases.
pub(crate) fn follow(
    text: &Text<'_>,
    known: &Known<'_>,
    start: u64,
    is_root: bool,
    budget: &mut Budget<'_>,
    stepper: &mut Stepper,
    plain: &mut Plain,
) -> Outcome {
    if !is_root && let Some(outcome) = plain.follow(text, known, start, budget) {
        return outcome;
    }
    let mut function = Function {
        text,
        known,
        start,
        is_root,
        follow_threads: true,
        ends: HashSet::new(),
        targets: HashMap::new(),
        blocks: BTreeMap::new(),
        waiting: BTreeSet::new(),
        current: start,
        visits: 0,
        instructions: 0,
        outcome: Outcome::default(),
        thread_calls: false,
        has_thread: false,
    };
    for _ in 0..MOST_TURNS {
        let result = function.turn(budget, stepper);
        match result {
            Ok(()) => return function.finish(),
            Err(Again::Ends(call)) => {
                function.ends.insert(call);
            }
            Err(Again::NoThread) => function.follow_threads = false,
            Err(Again::Failed(why)) => {
                function.outcome.failed = Some(why);
                return function.finish();
            }
        }
    }
    function.outcome.failed = Some("too many calls that do not return");
    function.finish()
}

impl Function<'_, '_> {
    fn turn(&mut self, budget: &mut Budget<'_>, stepper: &mut Stepper) -> Result<(), Again> {
        self.blocks.clear();
        self.waiting.clear();
        (self.visits, self.instructions) = (0, 0);
        (self.thread_calls, self.has_thread) = (false, false);
        self.outcome = Outcome::default();
        let mut input = MachineState::at_entry(Abi::of(self.text.arch));
        input.root = self.is_root;
        self.begin(self.start, input, None);
        while let Some(start) = self.waiting.pop_first() {
            self.block(start, budget, stepper)?;
        }
        // Padding aligns the code behind it. If no other way leads there, that code is no part of this function.
        if let Some(call) = self.blocks.values().find_map(|block| block.after.filter(|_| block.is_padded)) {
            return Err(Again::Ends(call));
        }
        if self.has_thread && !self.thread_calls {
            return Err(Again::NoThread);
        }
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        self.cut_dead_ends();
        let blocks = std::mem::take(&mut self.blocks);
        self.outcome.rows = blocks.into_values().flat_map(|block| block.rows).collect();
        for list in [&mut self.outcome.calls, &mut self.outcome.tails, &mut self.outcome.references, &mut self.outcome.inside] {
            list.sort_unstable();
            list.dedup();
        }
        self.outcome
    }

    fn begin(&mut self, start: u64, input: MachineState, after: Option<u64>) {
        // A block that ran through this address must now end here.
        if let Some((before, block)) = self.blocks.range(..start).next_back()
            && block.end > start
        {
            self.waiting.insert(*before);
        }
        self.blocks.insert(
            start,
            Block { input, end: start, rows: Vec::new(), after, is_padded: false, next: Vec::new(), leaves: false, ends: false },
        );
        self.waiting.insert(start);
    }

    fn block(&mut self, start: u64, budget: &mut Budget<'_>, stepper: &mut Stepper) -> Result<(), Again> {
        let failed = |why| Err(Again::Failed(why));
        let Some(block) = self.blocks.get_mut(&start) else { return Ok(()) };
        block.next.clear();
        (block.is_padded, block.leaves, block.ends) = (false, false, false);
        let (mut state, after, is_new) = (block.input.clone(), block.after, block.end == start);
        self.current = start;
        let mut stop = self.next_begin(start);
        let Some(code) = self.text.from(start) else { return failed("leaves the code") };
        let mut decoder = Decoder::new(self.text.arch, code, start);
        let mut rows: Vec<Row> = Vec::new();
        // Only padding so far, behind a call that may not return.
        let mut idle = after;
        let mut is_padded = false;
        loop {
            let at = decoder.address();
            while stop < at {
                stop = self.next_begin(stop);
            }
            if at == stop || at != start && !decoder.can_decode() {
                self.close(start, at, rows);
                return self.edge(at, &state, idle.map_or(Way::Fall, Way::Call));
            }
            let Some(instruction) = decoder.decode() else {
                self.close(start, at, rows);
                // The bytes behind a call that does not return may be anything.
                return if after.is_some() { Ok(()) } else { failed("no instruction") };
            };
            if !instruction.is_padding() {
                is_padded |= idle.is_some() && at != start;
                idle = None;
            }
            self.count(is_new, budget)?;
            let facts = state.facts();
            match rows.last_mut() {
                Some(row) if row.facts == facts => row.end = decoder.address(),
                _ => rows.push(Row { start: at, end: decoder.address(), facts }),
            }
            self.outcome
                .references
                .extend(instruction.reference(&state, self.text.is_fixed).filter(|target| self.text.contains(*target)));
            let flow = stepper.step(&instruction, &mut state);
            if flow == Flow::Next {
                continue;
            }
            let next = decoder.address();
            self.close(start, next, rows);
            if let Some(block) = self.blocks.get_mut(&start) {
                block.is_padded = is_padded;
            }
            return self.leave(&instruction, flow, state, next);
        }
    }

    /// Returns where the next block or function behind an address begins.
    fn next_begin(&self, address: u64) -> u64 {
        let behind = (Excluded(address), Unbounded);
        let block = self.blocks.range(behind).next().map(|(start, _)| *start);
        let function = self.known.starts.range(behind).next().map(|(start, _)| *start);
        block.into_iter().chain(function).min().unwrap_or(u64::MAX)
    }

    /// Counts a visit to an instruction; fails if the budget is used up. `is_new`: its block was not followed before.
    fn count(&mut self, is_new: bool, budget: &mut Budget<'_>) -> Result<(), Again> {
        self.visits += 1;
        self.instructions += u64::from(is_new);
        if self.visits > 64 + MOST_VISITS * self.instructions || !budget.take() {
            return Err(Again::Failed("takes too long"));
        }
        Ok(())
    }

    fn close(&mut self, start: u64, end: u64, rows: Vec<Row>) {
        if let Some(block) = self.blocks.get_mut(&start) {
            block.end = end;
            block.rows = rows;
        }
    }

    /// Follows the ways that leave the last instruction of a block.
    fn leave(&mut self, instruction: &Instruction, flow: Flow, mut state: MachineState, next: u64) -> Result<(), Again> {
        match flow {
            Flow::Next => Ok(()),
            Flow::End => {
                self.ends();
                Ok(())
            }
            Flow::Jump(target) => self.edge(target, &state, Way::Jump),
            Flow::Branch(target) => {
                let follow = self.follow_threads;
                let (mut taken, mut not) = instruction.branches(&state);
                for state in [&mut taken, &mut not].into_iter().filter(|other| other.root && !state.root) {
                    state.root = follow;
                    self.has_thread |= follow;
                }
                self.edge(target, &taken, Way::Jump)?;
                self.edge(next, &not, Way::Fall)
            }
            Flow::Call(target) => {
                self.thread_calls |= state.root;
                self.outcome.calls.extend(target);
                self.outcome.is_crooked |= matches!(state.stack_pointer(), Value::Stack(CFA, top) if top % 16 != 0);
                let call = instruction.address();
                target.map(|target| self.targets.insert(call, target));
                if target.is_some_and(|target| self.known.is_endless(target)) {
                    self.ends();
                    return Ok(());
                }
                if self.ends.contains(&call) {
                    self.is_silent(call);
                    return Ok(());
                }
                let changed = target.map_or(0, |target| self.known.changed(target));
                state.after_call(changed);
                if changed & STACK != 0 {
                    state.lose_stack();
                }
                self.edge(next, &state, Way::Call(call))
            }
            Flow::Return => {
                if instruction.pops() {
                    return Err(Again::Failed(POPS));
                }
                self.returned(&state, "returns with a frame")
            }
            Flow::Indirect => match instruction.table(&state) {
                Some(jumps) => self.jumps(jumps, &state),
                None if instruction.returns_by_register(&state) => self.returns(&state),
                None => {
                    // In the middle of a function this may be a jump by a table, so it proves nothing.
                    let proof = self.outcome.proof;
                    self.returned(&state, "jumps anywhere")?;
                    self.outcome.proof = proof;
                    self.outcome.jumps = true;
                    Ok(())
                }
            },
        }
    }

    /// Handles a return, or a jump to another function that will return.
    fn returned(&mut self, state: &MachineState, otherwise: &'static str) -> Result<(), Again> {
        if state.root {
            return if self.is_root { Err(Again::Failed("the first code returns")) } else { Err(Again::NoThread) };
        }
        if state.stack_pointer() == Value::Foreign {
            // To another stack.
            self.leaves();
            return Ok(());
        }
        if state.is_at_entry() { self.returns(state) } else { Err(Again::Failed(otherwise)) }
    }

    fn returns(&mut self, state: &MachineState) -> Result<(), Again> {
        self.leaves();
        self.outcome.proof = true;
        self.outcome.returns = true;
        self.outcome.changed |= state.changed();
        Ok(())
    }

    fn is_silent(&mut self, call: u64) {
        self.outcome.silent.extend(self.targets.get(&call).map(|target| (call, *target)));
    }

    fn leaves(&mut self) {
        if let Some(block) = self.blocks.get_mut(&self.current) {
            (block.leaves, block.ends) = (true, true);
        }
    }

    fn ends(&mut self) {
        if let Some(block) = self.blocks.get_mut(&self.current) {
            block.ends = true;
        }
    }

    /// Removes blocks that are only behind calls and lead nowhere. Such a call may never return, and the code behind it may
    /// belong to another function. In a function that returns, these are all blocks that do not lead to its return; that is code
    /// that runs once in a process, if at all. In a function that does not return, they are the blocks that lead neither to a
    /// known end nor round in a circle.
    fn cut_dead_ends(&mut self) {
        let returns = self.outcome.returns || !self.outcome.tails.is_empty();
        let mut before: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut left: HashMap<u64, usize> = HashMap::new();
        for (start, block) in &self.blocks {
            block.next.iter().for_each(|(next, _)| before.entry(*next).or_default().push(*start));
            left.insert(*start, block.next.len() + usize::from(if returns { block.leaves } else { block.ends }));
        }
        let mut ends: Vec<u64> = left.iter().filter(|(_, count)| **count == 0).map(|(start, _)| *start).collect();
        let mut dead: HashSet<u64> = HashSet::new();
        while let Some(end) = ends.pop() {
            dead.insert(end);
            for block in before.get(&end).into_iter().flatten() {
                let Some(count) = left.get_mut(block) else { continue };
                *count = count.saturating_sub(1);
                if *count == 0 {
                    ends.push(*block);
                }
            }
        }
        let mut kept: HashSet<u64> = HashSet::new();
        let mut waiting = vec![self.start];
        while let Some(start) = waiting.pop() {
            if kept.insert(start)
                && let Some(block) = self.blocks.get(&start)
            {
                // A thread's first code ends so.
                let is_kept = |next: &u64| block.input.root || !dead.contains(next);
                waiting.extend(block.next.iter().filter(|(next, called)| !called || is_kept(next)).map(|(next, _)| *next));
            }
        }
        self.blocks.retain(|start, _| kept.contains(start));
    }

    /// Follows a way to `target`.
    fn edge(&mut self, target: u64, state: &MachineState, way: Way) -> Result<(), Again> {
        if !self.text.contains(target) {
            return self.outside(target, state, way);
        }
        if let Some(evidence) = self.known.starts.get(&target).copied().filter(|_| target != self.start) {
            if let Way::Call(call) = way {
                self.is_silent(call);
                return Ok(());
            }
            if evidence > Evidence::Part && state.is_at_entry() && !state.root {
                self.outcome.proof |= evidence > Evidence::Gap;
                self.leaves();
                self.outcome.tails.push(target);
                self.outcome.changed |= state.changed();
                return Ok(());
            }
            if evidence == Evidence::Called {
                return Err(Again::Failed("jumps into a function, with a frame"));
            }
            if evidence > Evidence::Part {
                self.outcome.inside.push(target);
            }
        }
        let after = if let Way::Call(call) = way { Some(call) } else { None };
        if let Some(block) = self.blocks.get_mut(&self.current) {
            block.next.push((target, after.is_some()));
        }
        let Some(block) = self.blocks.get_mut(&target) else {
            self.begin(target, state.clone(), after);
            return Ok(());
        };
        if block.input.contradicts(state) {
            // The same code with two sizes of the frame: no compiler makes that. So one of the two ways does not exist: the one
            // behind a call, because the call does not return.
            if let Some(call) = after.or(block.after) {
                return Err(Again::Ends(call));
            }
            if state.root != block.input.root {
                return if self.is_root { Err(Again::Failed("two roots")) } else { Err(Again::NoThread) };
            }
        }
        block.after = block.after.filter(|call| after == Some(*call));
        if block.input.join(state) {
            self.waiting.insert(target);
        }
        Ok(())
    }

    /// Follows a way to code that has unwind information, or to something that is no code.
    fn outside(&mut self, target: u64, state: &MachineState, way: Way) -> Result<(), Again> {
        match way {
            Way::Call(call) => {
                self.is_silent(call);
                Ok(())
            }
            // The code there is analysed separately, as if it had been called.
            Way::Jump if self.known.others.contains(target) => {
                self.returned(state, "jumps to code that is analysed alone, with a frame")?;
                self.outcome.tails.push(target);
                Ok(())
            }
            // May lead into a part of the same function that was put elsewhere.
            Way::Jump => {
                self.leaves();
                self.outcome.returns = true;
                if state.is_at_entry() && !state.root {
                    self.outcome.proof = true;
                    self.outcome.changed |= state.changed();
                }
                Ok(())
            }
            Way::Fall => self.returned(state, "falls out of the code"),
        }
    }

    /// Follows the ways of a jump table: as many entries as lead into this code.
    fn jumps(&mut self, jumps: Jumps, state: &MachineState) -> Result<(), Again> {
        // The next table may follow directly: without a length the end of this one is unknown.
        let limit = state.limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit <= MOST_JUMPS);
        let Some(limit) = limit else { return Err(Again::Failed("jumps by a table without a length")) };
        let targets = self.text.jumps(jumps, limit);
        let end = self.known.starts.range(self.start + 1..).find(|(_, evidence)| **evidence >= Evidence::Symbol);
        let range = self.start..end.map_or(u64::MAX, |(end, _)| *end);
        let mut any = false;
        for target in targets.into_iter().take_while(|target| range.contains(target) && self.text.contains(*target)) {
            any = true;
            self.edge(target, state, Way::Jump)?;
        }
        if any { Ok(()) } else { Err(Again::Failed("jumps by a table that is none")) }
    }
}
