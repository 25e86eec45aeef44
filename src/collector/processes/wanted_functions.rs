//! Asks for the functions of samples.

use super::functions::Runtime;
use super::mappings::{FileIndex, Mappings};
use super::reader::{Question, What};
use super::scripts::{FunctionReads, MAX_ASKED, Running};
use super::state::ProcessState;
use super::v8_memory::Asked;
use crate::collector::wire::records::Record;
use crate::collector::wire::script::Script;

/// Questions about instructions that count as one read of a function. (`a_false_engine…` of `tests/attack/names.rs` measures the cost of a
/// hostile program.)
const INSTRUCTIONS_OF_A_READ: usize = 8;

/// Returns whether the names of all functions of a sample are known. Asks for the missing names.
pub(super) fn knows_functions(
    state: &mut ProcessState,
    (record, script): (&Record, Script<'_>),
    questions: &mut Vec<Question>,
    reads: &mut FunctionReads,
) -> bool {
    let (tgid, user, now) = (record.tgid, record.uid, record.time);
    let (scripts, mappings) = (&mut state.scripts, &state.mappings);
    scripts.forget_old_calls(now);
    let of_chains = script.functions().map(Running::interpreted).flat_map(|running| scripts.unknown(running));
    let in_frames = running(mappings, record, script).flat_map(|running| scripts.unknown(running));
    let (of_chains, in_frames): (Vec<Asked>, Vec<Asked>) = (of_chains.collect(), in_frames.collect());
    if of_chains.is_empty() && in_frames.is_empty() {
        return true;
    }
    // One question at a time. Its answer brings this sample back here. The next question is about the functions of all samples that wait.
    if !scripts.asked.is_empty() {
        for (next, asked) in scripts.next_asked.iter_mut().zip([of_chains, in_frames]) {
            let room = MAX_ASKED.saturating_sub(next.len());
            next.extend(asked.into_iter().take(room));
        }
        return false;
    }
    // Unknown functions stay unread. A hostile program has new ones in each sample.
    if reads.is_used_up(user, now) {
        return true;
    }
    // Functions of one runtime at a time.
    let (runtime, mut unknown, of_others) = match (scripts.layout, scripts.engine.clone()) {
        (Some(layout), _) if !of_chains.is_empty() => {
            (Runtime::Python(Box::new(layout)), of_chains, std::mem::take(&mut scripts.next_asked[0]))
        }
        (_, Some((engine, _))) if !in_frames.is_empty() => {
            (Runtime::JavaScript(engine, scripts.heap.clone()), in_frames, std::mem::take(&mut scripts.next_asked[1]))
        }
        _ => return true,
    };
    unknown.extend(of_others.into_iter().filter(|asked| !scripts.is_answered(asked)));
    unknown.sort_unstable();
    unknown.dedup();
    unknown.truncate(MAX_ASKED);
    let cost = |(_, instruction): &Asked| if *instruction > 0 { 1 } else { INSTRUCTIONS_OF_A_READ };
    let wanted = unknown.iter().map(cost).sum::<usize>().div_ceil(INSTRUCTIONS_OF_A_READ);
    let mut left = INSTRUCTIONS_OF_A_READ * reads.take(user, wanted, now);
    unknown.retain(|asked| {
        let rest = left.checked_sub(cost(asked));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    state.scripts.asked.extend(&unknown);
    let what = What::Functions(runtime, unknown);
    questions.push(Question { tgid, life: state.life, user, what });
    false
}

/// Returns what runs in the native frames of a sample.
fn running(mappings: &Mappings, record: &Record, script: Script<'_>) -> impl Iterator<Item = Running> {
    let mut frames = record.user().enumerate();
    script.in_frames().filter_map(move |(number, function)| {
        let (_, frame) = frames.find(|(at, _)| *at == number)?;
        let mapping = mappings.find(frame.address.saturating_sub(u64::from(frame.is_return)));
        Some(match mapping.is_some_and(|mapping| mapping.file == FileIndex::ANONYMOUS) {
            true => Running::compiled(function, frame),
            false => Running::interpreted(function),
        })
    })
}
