//! Profiles of V8: `.cpuprofile` of Node and Chrome, and the same data in the events of a trace of Chrome.
//!
//! A profile is a tree of calls. Samples name its nodes, each with the microseconds since the sample before. A sample lasts until the next
//! one. Files without samples have counts in the nodes.

use rustc_hash::FxHashMap;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::formats::reading::DEEPEST;
use crate::profile::{FrameKind, Language, StackId, Unit};

use crate::formats::stacks::{Place, Stacks};

/// The content of a `.cpuprofile`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Profile {
    #[serde(default)]
    nodes: Vec<Node>,
    /// The tree, in files of Node before 10 and of Chrome before 57.
    head: Option<OldNode>,
    #[serde(default)]
    samples: Vec<u64>,
    #[serde(default)]
    time_deltas: Vec<f64>,
    /// When each sample was taken, in such old files.
    #[serde(default)]
    timestamps: Vec<f64>,
    #[serde(default)]
    start_time: f64,
    #[serde(default)]
    end_time: f64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: u64,
    #[serde(default)]
    call_frame: CallFrame,
    #[serde(default)]
    hit_count: f64,
    #[serde(default)]
    children: Vec<u64>,
    parent: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CallFrame {
    function_name: String,
    url: String,
    /// From 0.
    line_number: Option<f64>,
    column_number: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldNode {
    id: u64,
    #[serde(default)]
    function_name: String,
    #[serde(default)]
    url: String,
    /// From 1.
    line_number: Option<f64>,
    #[serde(default)]
    hit_count: f64,
    #[serde(default)]
    children: Vec<OldNode>,
}

/// A trace of Chrome.
#[derive(Deserialize)]
pub(super) struct Trace {
    #[serde(rename = "traceEvents")]
    pub(super) events: Vec<Event>,
}

/// An event of a trace. Only events with a name, a profile or a part of a profile are used.
#[derive(Deserialize)]
pub(super) struct Event {
    #[serde(default)]
    name: String,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    tid: Option<u32>,
    #[serde(default, deserialize_with = "or_nothing")]
    id: Option<Id>,
    #[serde(default, deserialize_with = "or_nothing")]
    args: Option<Arguments>,
}

#[derive(Deserialize, Clone, PartialEq, Eq, Hash)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Arguments {
    #[serde(deserialize_with = "or_nothing")]
    name: Option<String>,
    #[serde(deserialize_with = "or_nothing")]
    data: Option<Data>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Data {
    start_time: Option<f64>,
    cpu_profile: Option<Chunk>,
    time_deltas: Option<Vec<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Chunk {
    nodes: Vec<Node>,
    samples: Vec<u64>,
}

const TIME: (Unit, &str) = (Unit::Nanoseconds, "time");
const HITS: (Unit, &str) = (Unit::Samples, "samples");

/// A tree of calls with its samples, as it comes together.
#[derive(Default)]
struct Gathered {
    nodes: Vec<Node>,
    samples: Vec<u64>,
    deltas: Vec<f64>,
    start: f64,
    end: f64,
    thread: (u32, u32),
}

/// Reads a file of one profile.
pub(super) fn read(profile: Profile, stacks: &mut Stacks<'_, '_>) {
    let Profile { mut nodes, head, samples, mut time_deltas, timestamps, start_time, end_time } = profile;
    let (mut start, mut end) = (start_time, end_time);
    if let Some(head) = head {
        flatten(head, &mut nodes);
    }
    if time_deltas.is_empty() && !timestamps.is_empty() {
        start = timestamps.first().copied().unwrap_or_default();
        end = timestamps.last().copied().unwrap_or_default();
        time_deltas = std::iter::once(0.0).chain(timestamps.windows(2).map(difference)).collect();
    }
    let gathered = Gathered { nodes, samples, deltas: time_deltas, start, end, thread: (1, 1) };
    add(&gathered, "[file]", "[file]", stacks);
}

fn difference(pair: &[f64]) -> f64 {
    match pair {
        [first, second] => second - first,
        _ => 0.0,
    }
}

/// Makes a list of nodes from a tree.
fn flatten(head: OldNode, nodes: &mut Vec<Node>) {
    let mut waiting = vec![head];
    while let Some(OldNode { id, function_name, url, line_number, hit_count, children }) = waiting.pop() {
        let call_frame = CallFrame { function_name, url, line_number: line_number.map(|line| line - 1.0), column_number: None };
        let ids = children.iter().map(|child| child.id).collect();
        nodes.push(Node { id, call_frame, hit_count, children: ids, parent: None });
        waiting.extend(children);
    }
}

/// Reads the profiles in a trace. Each has a thread.
pub(super) fn read_events(events: Vec<Event>, stacks: &mut Stacks<'_, '_>) {
    let mut names: FxHashMap<(u32, u32), String> = FxHashMap::default();
    let mut processes: FxHashMap<u32, String> = FxHashMap::default();
    let mut profiles: Vec<Gathered> = Vec::new();
    let mut known: FxHashMap<(u32, Option<Id>), usize> = FxHashMap::default();
    for Event { name, pid, tid, id, args } in events {
        let (pid, tid) = (pid.unwrap_or(0), tid.unwrap_or(0));
        let args = args.unwrap_or_default();
        match &*name {
            "thread_name" => drop(args.name.and_then(|name| names.insert((pid, tid), name))),
            "process_name" => drop(args.name.and_then(|name| processes.insert(pid, name))),
            "Profile" | "ProfileChunk" => {
                let at = *known.entry((pid, id)).or_insert_with(|| {
                    profiles.push(Gathered { thread: (pid, tid), ..Gathered::default() });
                    profiles.len() - 1
                });
                let (Some(profile), Some(data)) = (profiles.get_mut(at), args.data) else { continue };
                if name == "Profile" {
                    profile.thread = (pid, tid);
                }
                profile.start = data.start_time.unwrap_or(profile.start);
                profile.deltas.extend(data.time_deltas.unwrap_or_default());
                if let Some(Chunk { nodes, samples }) = data.cpu_profile {
                    profile.nodes.extend(nodes);
                    profile.samples.extend(samples);
                }
            }
            _ => {}
        }
    }
    for profile in &profiles {
        let (pid, _) = profile.thread;
        let process = processes.get(&pid).map_or("[file]", |name| name);
        let thread = names.get(&profile.thread).map_or("[file]", |name| name);
        add(profile, process, thread, stacks);
    }
}

/// Adds the samples of a profile.
fn add(profile: &Gathered, process: &str, name: &str, stacks: &mut Stacks<'_, '_>) {
    let Gathered { nodes, samples, deltas, start, end, thread: (pid, tid) } = profile;
    let thread = stacks.thread(*pid, *tid, process, name);
    let stack_of = stacks_of(nodes, stacks);
    if samples.is_empty() {
        for node in nodes {
            let stack = stack_of.get(&node.id).copied().unwrap_or_default();
            stacks.add(thread, stack, None, node.hit_count, HITS);
        }
        return;
    }
    // Chunks of a trace may have been lost.
    let mut missing = 0u64;
    let unknown = stacks.frame("[unknown]", Place::default(), FrameKind::Unknown);
    let unknown = stacks.stack(std::iter::once(unknown));
    let mut at = *start;
    for (index, id) in samples.iter().enumerate() {
        let stack = stack_of.get(id).copied().unwrap_or_else(|| {
            missing += 1;
            unknown
        });
        at += deltas.get(index).copied().unwrap_or(0.0);
        // The last sample lasts until the end, or as long as the one before it.
        let until_end = Some(end - at).filter(|rest| *rest > 0.0).or(deltas.get(index).copied());
        let lasts = deltas.get(index + 1).copied().or(until_end).unwrap_or(0.0);
        stacks.add(thread, stack, Some((at * 1e3).max(0.0) as u64), lasts * 1e3, TIME);
    }
    if missing > 0 {
        stacks.remarks.push(format!("{missing} samples are in calls that the file does not have"));
    }
}

/// Returns the stack of each node. Callers may come after their callees.
fn stacks_of(nodes: &[Node], stacks: &mut Stacks<'_, '_>) -> FxHashMap<u64, StackId> {
    let mut callees: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
    let by_id: FxHashMap<u64, &Node> = nodes.iter().map(|node| (node.id, node)).collect();
    let mut is_callee: FxHashMap<u64, ()> = FxHashMap::default();
    for node in nodes {
        for child in &node.children {
            callees.entry(node.id).or_default().push(*child);
            is_callee.insert(*child, ());
        }
        if let Some(parent) = node.parent.filter(|parent| by_id.contains_key(parent)) {
            callees.entry(parent).or_default().push(node.id);
            is_callee.insert(node.id, ());
        }
    }
    let root = stacks.stack(std::iter::empty());
    let mut found: FxHashMap<u64, StackId> = FxHashMap::default();
    let mut waiting: Vec<(u64, StackId, usize)> =
        nodes.iter().filter(|node| !is_callee.contains_key(&node.id)).map(|node| (node.id, root, 0)).collect();
    while let Some((id, caller, depth)) = waiting.pop() {
        let Some(node) = by_id.get(&id).filter(|_| depth < DEEPEST && !found.contains_key(&id)) else { continue };
        let CallFrame { function_name, url, line_number, column_number } = &node.call_frame;
        let stack = if function_name == "(root)" {
            caller
        } else {
            // `(program)`, `(idle)` and `(garbage collector)` are no functions.
            let kind = if function_name.starts_with('(') { FrameKind::Unknown } else { FrameKind::Script(Language::JavaScript) };
            let name = if function_name.is_empty() { "(anonymous)" } else { function_name };
            let number =
                |number: &Option<f64>| number.filter(|number| (0.0..1e9).contains(number)).map(|number| number as u32 + 1);
            let (line, column) = (number(line_number), number(column_number));
            let frame = stacks.frame(
                name,
                Place { file: url.strip_prefix("file://").unwrap_or(url), function: line, column, line },
                kind,
            );
            stacks.child(caller, frame)
        };
        found.insert(id, stack);
        waiting.extend(callees.get(&id).into_iter().flatten().map(|callee| (*callee, stack, depth + 1)));
    }
    found
}

/// Reads a value of the expected kind, or skips any other.
fn or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<T> {
        It(T),
        Other(IgnoredAny),
    }
    Ok(match Either::deserialize(from)? {
        Either::It(value) => Some(value),
        Either::Other(_) => None,
    })
}
