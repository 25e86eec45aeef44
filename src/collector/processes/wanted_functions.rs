//! Asks for the functions of samples.

use std::sync::Arc;

use super::functions::Runtime;
use super::mappings::{FileIndex, Mappings};
use super::reader::{Question, What};
use super::scripts::{FunctionReads, MAX_ASKED, Running};
use super::state::ProcessState;
use super::v8_memory::Asked;
use crate::collector::wire::records::Record;
use crate::collector::wire::script::{Of, Script};

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
    let in_frames = |is_wanted: fn(Of) -> bool| {
        let running = running(mappings, record, script).filter(move |running| is_wanted(running.of));
        running.flat_map(|running| scripts.unknown(running)).collect::<Vec<Asked>>()
    };
    let unknown = [of_chains.collect(), in_frames(|of| of == Of::Function), in_frames(|of| of != Of::Function)];
    if unknown.iter().all(Vec::is_empty) {
        return true;
    }
    // One question at a time. Its answer brings this sample back here. The next question is about the functions of all samples that wait.
    if !scripts.asked.is_empty() {
        for (next, asked) in scripts.next_asked.iter_mut().zip(unknown) {
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
    let python = scripts.layout.map(|layout| Runtime::Python(Box::new(layout)));
    let javascript = scripts.engine.as_ref().map(|(engine, _)| Runtime::JavaScript(Arc::clone(engine), scripts.heap.clone()));
    let java = scripts.jvm.runs().map(|jvm| Runtime::Java(Arc::clone(jvm)));
    let runtimes = [python, javascript, java].into_iter().zip(unknown).zip(&mut scripts.next_asked);
    let one = runtimes
        .filter(|((_, unknown), _)| !unknown.is_empty())
        .find_map(|((runtime, unknown), next)| runtime.map(|runtime| (runtime, unknown, std::mem::take(next))));
    let Some((runtime, mut unknown, of_others)) = one else { return true };
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
    script.in_frames().filter_map(move |(number, of, function)| {
        let (_, frame) = frames.find(|(at, _)| *at == number)?;
        let mapping = || mappings.find(frame.address.saturating_sub(u64::from(frame.is_return)));
        Some(match of {
            Of::Compiled | Of::Interpreted | Of::Stub => Running::in_jvm(of, function, frame),
            Of::Function if mapping().is_some_and(|mapping| mapping.file == FileIndex::ANONYMOUS) => {
                Running::compiled(function, frame)
            }
            Of::Function => Running::interpreted(function),
            Of::Frozen => return None,
        })
    })
}
