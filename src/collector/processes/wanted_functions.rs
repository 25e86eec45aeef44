//! Asks for the functions of samples.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::functions::Runtime;
use super::interpreter::CodeKey;
use super::reader::{Question, What};
use super::scripts::{FunctionReads, MAX_ASKED};
use super::state::ProcessState;
use crate::collector::wire::script::{Script, ScriptFrame};
use crate::profile::UserId;

/// Returns whether the names of all functions of a sample are known. Asks for the missing names.
pub(super) fn knows_functions(
    state: &mut ProcessState,
    script: Script<'_>,
    (tgid, user, now): (u32, UserId, u64),
    questions: &mut Vec<Question>,
    reads: &mut FunctionReads,
) -> bool {
    let scripts = &mut state.scripts;
    let is_new = |function: &ScriptFrame| !scripts.places.contains_key(function);
    let key = |function: ScriptFrame| Some((function.code, function.check)).filter(|key| !scripts.functions.contains(key));
    let of_chains = || script.functions().filter(is_new).filter_map(key);
    let in_frames = || script.in_frames().map(|(_, function)| function).filter(is_new).filter_map(key);
    // One question at a time. Its answer brings this sample back here. The next question is about the functions of all samples that wait.
    if !scripts.asked.is_empty() {
        let room = |next: &FxHashSet<CodeKey>| MAX_ASKED.saturating_sub(next.len());
        let [python, javascript] = [
            of_chains().take(room(&scripts.next_asked[0])).collect::<Vec<_>>(),
            in_frames().take(room(&scripts.next_asked[1])).collect(),
        ];
        scripts.next_asked[0].extend(python);
        scripts.next_asked[1].extend(javascript);
        return false;
    }
    // Unknown functions stay unread. A hostile program has new ones in each sample.
    if reads.is_used_up(user, now) {
        return true;
    }
    let (has_python, has_javascript) = (of_chains().next().is_some(), in_frames().next().is_some());
    let known = &scripts.functions;
    let of_all = |next: &mut FxHashSet<CodeKey>| next.drain().filter(|key| !known.contains(key)).collect::<Vec<_>>();
    // Functions of one runtime at a time.
    let (runtime, mut unknown) = match (scripts.layout, scripts.engine.as_ref()) {
        (Some(layout), _) if has_python => {
            let mut unknown: Vec<_> = of_chains().collect();
            unknown.extend(of_all(&mut scripts.next_asked[0]));
            (Runtime::Python(Box::new(layout)), unknown)
        }
        (_, Some((engine, _))) if has_javascript => {
            let mut unknown: Vec<_> = in_frames().collect();
            unknown.extend(of_all(&mut scripts.next_asked[1]));
            (Runtime::JavaScript(Arc::clone(engine), scripts.sources.clone()), unknown)
        }
        _ => return true,
    };
    unknown.sort_unstable();
    unknown.dedup();
    unknown.truncate(MAX_ASKED);
    let allowed = reads.take(user, unknown.len(), now);
    unknown.truncate(allowed);
    state.scripts.asked.extend(&unknown);
    let what = What::Functions(runtime, unknown);
    questions.push(Question { tgid, life: state.life, user, what });
    false
}
