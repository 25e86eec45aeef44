//! The methods of an instruction of compiled code: those that the compiler inlined there, and the method itself.
//!
//! ```text
//! PcDesc  { distance of an instruction, place of a scope }, …                 in order, the first and the last without a meaning
//! scope   number of the caller's scope, number of the method in the metadata, place in its bytecode + 1
//! ```
//!
//! There is a PcDesc where each call and each safepoint ends. With `-XX:+DebugNonSafepoints`, which agents of profilers turn on, there is one where
//! each run of instructions of a scope ends. An oop map is made for each call and each safepoint: code with more PcDescs is of this kind.

use super::code_cache::Blob;
use super::layout::{Layout, Scopes};
use super::numbers::Numbers;
use crate::runtimes::Memory;

/// Bytes of PcDescs and of scopes that are read.
const MAX_BYTES: u64 = 1 << 20;
/// Three numbers of at most five bytes.
const BYTES_OF_A_SCOPE: u64 = 15;
/// Most methods that are inlined in each other.
const MAX_DEPTH: usize = 64;

/// A method that runs, and its instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The address of the Method.
    pub method: u64,
    /// The place in its bytecode, if it is known.
    pub place: Option<u16>,
}

impl Blob {
    /// Returns the methods that run at a return address or an interrupted instruction of compiled code, those that were inlined first. Without
    /// `-XX:+DebugNonSafepoints`, an instruction nearly never has an entry: then it is only known that the method itself runs.
    pub fn calls(&self, memory: &impl Memory, layout: &Layout, address: u64, is_return: bool) -> Option<Vec<Call>> {
        let own = Call { method: layout.method.of(memory, self.address)?, place: None };
        Some(
            self.inlined(memory, layout, address, is_return)
                .filter(|calls| calls.last().is_some_and(|call| call.method == own.method))
                .unwrap_or_else(|| vec![own]),
        )
    }

    /// Returns the number that tells this compiled code from later code in its place.
    pub fn check(&self, memory: &impl Memory, layout: &Layout) -> Option<u32> {
        layout.compile_id.of(memory, self.address).map(|id| id as u32)
    }

    fn inlined(&self, memory: &impl Memory, layout: &Layout, address: u64, is_return: bool) -> Option<Vec<Call>> {
        let Places { pcs, scopes, metadata } = Places::of(memory, layout, self.address)?;
        let distance = address.checked_sub(self.begin)?;
        let count = (pcs.1.checked_sub(pcs.0)?).checked_div(layout.pc_desc_size)?;
        let has_all = !is_return && self.has_all_instructions(memory, layout, count);
        // The end of a call, or the first end of a run that is behind the instruction's begin.
        let end = distance.checked_add(u64::from(has_all))?;
        let (mut low, mut high) = (0, count);
        // The first one whose distance is not less.
        while low < high {
            let middle = low + (high - low) / 2;
            let at = pcs.0.checked_add(middle.checked_mul(layout.pc_desc_size)?)?;
            let found = layout.pc_desc_pc.of(memory, at)? as u32 as i32;
            if i64::from(found) < end as i64 { low = middle + 1 } else { high = middle }
        }
        let at = pcs.0.checked_add(low.min(count.checked_sub(1)?).checked_mul(layout.pc_desc_size)?)?;
        if layout.pc_desc_pc.of(memory, at)? != distance && !has_all {
            return None;
        }
        let mut scope = layout.pc_desc_scope.of(memory, at)?;
        let mut calls = Vec::new();
        while scope != 0 && calls.len() < MAX_DEPTH {
            let begin = scopes.0.checked_add(scope)?;
            let bytes = memory.bytes(begin, scopes.1.checked_sub(begin)?.min(BYTES_OF_A_SCOPE), BYTES_OF_A_SCOPE)?;
            let mut numbers = Numbers::of(&bytes, layout.version);
            let (caller, method, place) = (numbers.unsigned()?, numbers.unsigned()?, numbers.unsigned()?);
            let method = memory.u64(metadata.checked_add(8 * u64::from(method.checked_sub(1)?))?)?;
            calls.push(Call { method, place: place.checked_sub(1).and_then(|place| u16::try_from(place).ok()) });
            // Callers come before.
            scope = Some(u64::from(caller)).filter(|caller| *caller < scope)?;
        }
        (scope == 0).then_some(calls)
    }

    /// Whether its PcDescs are of all instructions and not of calls and safepoints alone. `count`: how many it has.
    fn has_all_instructions(&self, memory: &impl Memory, layout: &Layout, count: u64) -> bool {
        let safepoints = layout.oop_maps.and_then(|(maps, number)| match maps.of(memory, self.address)? {
            0 => Some(0),
            maps => number.of(memory, maps),
        });
        safepoints.is_some_and(|safepoints| count > safepoints.saturating_add(2))
    }
}

/// Where the debug information of an nmethod is: begin and end of PcDescs and of scopes, and the metadata.
struct Places {
    pcs: (u64, u64),
    scopes: (u64, u64),
    metadata: u64,
}

impl Places {
    fn of(memory: &impl Memory, layout: &Layout, nmethod: u64) -> Option<Places> {
        let of = |field: super::tables::Field| field.distance(memory, nmethod);
        let behind = |begin: u64, distance: u64| begin.checked_add(distance).filter(|_| distance < MAX_BYTES);
        let places = match layout.scopes? {
            Scopes::Inside { pcs, end, data, metadata } => {
                let begin = behind(nmethod, of(pcs)?)?;
                let pcs = (begin, behind(nmethod, of(end)?)?);
                Places { pcs, scopes: (of(data)?, begin), metadata: behind(nmethod, of(metadata)?)? }
            }
            Scopes::Outside { block, size, pcs, data, mutable, relocations } => {
                let block = of(block)?;
                let scopes = behind(block, of(data)?)?;
                Places {
                    pcs: (behind(block, of(pcs)?)?, scopes),
                    scopes: (scopes, behind(block, of(size)?)?),
                    metadata: behind(of(mutable)?, of(relocations)?)?,
                }
            }
        };
        Some(places)
    }
}
