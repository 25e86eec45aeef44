//! speedscope's format (<https://www.speedscope.app/file-format-schema.json>): a list of frames, and profiles that refer to it.
//!
//! A profile is a list of stacks with weights, or of frames that open and close at values of a clock. Each profile is a thread here.

use std::io::Write;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::formats::options::SaveOptions;
use crate::formats::{FormatError, Part};
use crate::profile::{Begin, CallTree, FrameId, FrameKind, LabelId, NodeId, Unit};

use crate::formats::reading::DEEPEST;

use crate::formats::stacks::{Place, Stacks};

#[derive(Deserialize)]
pub(super) struct Document {
    #[serde(default)]
    shared: Shared,
    profiles: Vec<Profile>,
    name: Option<String>,
}

#[derive(Deserialize, Default)]
struct Shared {
    #[serde(default)]
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    name: String,
    file: Option<String>,
    line: Option<f64>,
    col: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    name: Option<String>,
    unit: Option<String>,
    #[serde(default)]
    start_value: f64,
    #[serde(default)]
    end_value: f64,
    #[serde(default)]
    samples: Vec<Vec<u32>>,
    #[serde(default)]
    weights: Vec<f64>,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    frame: u32,
    at: f64,
}

/// Returns the unit, its name as a source, and the value of 1 in it.
fn unit_of(word: &str) -> ((Unit, &'static str), f64) {
    match word {
        "nanoseconds" => ((Unit::Nanoseconds, "time"), 1.0),
        "microseconds" => ((Unit::Nanoseconds, "time"), 1e3),
        "milliseconds" => ((Unit::Nanoseconds, "time"), 1e6),
        "seconds" => ((Unit::Nanoseconds, "time"), 1e9),
        "bytes" => ((Unit::Bytes, "bytes"), 1.0),
        _ => ((Unit::Samples, "samples"), 1.0),
    }
}

fn nonsense(what: String) -> FormatError {
    FormatError::Json { what }
}

pub(super) fn read(document: Document, stacks: &mut Stacks<'_, '_>) -> Result<(), FormatError> {
    let Document { shared, profiles, name } = document;
    let line = |line: Option<f64>| line.filter(|line| (1.0..1e9).contains(line)).map(|line| line as u32);
    let frames: Vec<FrameId> = shared
        .frames
        .iter()
        .map(|frame| {
            let (column, line) = (line(frame.col), line(frame.line));
            let place = Place { file: frame.file.as_deref().unwrap_or_default(), function: line, column, line };
            stacks.frame(&frame.name, place, FrameKind::User)
        })
        .collect();
    let process = name.as_deref().filter(|name| !name.is_empty()).unwrap_or("[file]");
    for (number, profile) in (1u32..).zip(&profiles) {
        let thread = stacks.thread(1, number, process, profile.name.as_deref().unwrap_or("[file]"));
        let (unit, one) = unit_of(profile.unit.as_deref().unwrap_or_default());
        let has_time = unit.0 == Unit::Nanoseconds;
        let time = |value: f64| has_time.then_some((value * one).max(0.0) as u64);
        let frame = |number: u32| {
            let found = usize::try_from(number).ok().and_then(|number| frames.get(number)).copied();
            found.ok_or_else(|| nonsense(format!("its profile has the frame {number} of {}", frames.len())))
        };
        let mut at = profile.start_value;
        for (index, sample) in profile.samples.iter().enumerate() {
            let path = sample.iter().map(|number| frame(*number)).collect::<Result<Vec<_>, _>>()?;
            let weight = profile.weights.get(index).copied().unwrap_or(1.0);
            let stack = stacks.stack(path.into_iter());
            stacks.add(thread, stack, time(at), weight * one, unit);
            at += weight.max(0.0);
        }
        let mut open: Vec<u32> = Vec::new();
        // The stack while a frame is open, for each open frame.
        let mut path = vec![stacks.stack(std::iter::empty())];
        let last = |path: &[_]| path.last().copied().unwrap_or_default();
        for event in &profile.events {
            if !open.is_empty() {
                stacks.add(thread, last(&path), time(at), (event.at - at) * one, unit);
            }
            at = event.at;
            match &*event.kind {
                "O" if open.len() < DEEPEST => {
                    let stack = stacks.child(last(&path), frame(event.frame)?);
                    open.push(event.frame);
                    path.push(stack);
                }
                "C" if open.last() == Some(&event.frame) => {
                    open.pop();
                    path.pop();
                }
                kind => {
                    let what = format!("at {} the frame {} has an event {kind} that does not fit", event.at, event.frame);
                    return Err(nonsense(what));
                }
            }
        }
        if !open.is_empty() {
            stacks.add(thread, last(&path), time(at), (profile.end_value - at) * one, unit);
            stacks.remarks.push(format!("{} frames do not close", open.len()));
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: &'a str,
    shared: WrittenShared<'a>,
    profiles: [WrittenProfile<'a>; 1],
}

#[derive(Serialize)]
struct WrittenShared<'a> {
    frames: Vec<WrittenFrame<'a>>,
}

#[derive(Serialize)]
struct WrittenFrame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    col: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenProfile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes a part of a tree: a stack for each node where samples end. In a comparison, the weights are those of now.
pub(in crate::formats) fn write(part: Part<'_>, options: &SaveOptions, out: &mut dyn Write) -> Result<(), FormatError> {
    let Part { tree, difference, labels, root } = part;
    let whole = difference.map_or(tree.node(root).total, |difference| difference.node(root).total.now);
    if whole == 0 {
        return Err(FormatError::NothingToSave);
    }
    let (unit, one) = match (options.unit, options.frequency) {
        (Unit::Samples, hz @ 1..) => ("nanoseconds", 1_000_000_000 / u64::from(hz)),
        (Unit::Samples | Unit::Events, _) => ("none", 1),
        (Unit::Nanoseconds, _) => ("nanoseconds", 1),
        (Unit::Bytes, _) => ("bytes", 1),
    };
    let mut frames = Vec::new();
    let mut numbers: FxHashMap<LabelId, u32> = FxHashMap::default();
    let mut frame = |label: LabelId| {
        *numbers.entry(label).or_insert_with(|| {
            let (name, object) = labels.words(label);
            frames.push(match Begin::parse(object) {
                Some(Begin { file, line, column }) => WrittenFrame { name, file, line: Some(line), col: column },
                None => WrittenFrame { name, file: object, line: None, col: None },
            });
            u32::try_from(frames.len() - 1).unwrap_or(u32::MAX)
        })
    };
    let mut above: Vec<NodeId> = tree.ancestors(root).filter(|node| *node != CallTree::ROOT).collect();
    above.reverse();
    let mut path: Vec<u32> = above.into_iter().map(|node| frame(tree.node(node).label)).collect();
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    let base = path.len();
    let mut waiting: Vec<(NodeId, usize)> = vec![(root, 0)];
    while let Some((node, depth)) = waiting.pop() {
        if node != root {
            path.truncate(base + depth - 1);
            path.push(frame(tree.node(node).label));
        }
        let own = difference.map_or(tree.node(node).own, |difference| difference.node(node).own.now);
        if own > 0 {
            samples.push(path.clone());
            weights.push(own.saturating_mul(one));
        }
        waiting.extend(tree.children(node).map(|child| (child, depth + 1)));
    }
    let name = &*options.picture.title;
    let end_value = weights.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight));
    let written = Written {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("flametop@{}", env!("CARGO_PKG_VERSION")),
        name,
        shared: WrittenShared { frames },
        profiles: [WrittenProfile { kind: "sampled", name, unit, start_value: 0, end_value, samples, weights }],
    };
    serde_json::to_writer(&mut *out, &written).map_err(std::io::Error::from)?;
    Ok(out.flush()?)
}
