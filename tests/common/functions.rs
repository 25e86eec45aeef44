//! Samples of programs whose functions a runtime runs.

use std::collections::HashSet;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use flametop::collector::{Batch, Collector, CollectorOptions, Targets};
use flametop::profile::{Frame, FrameId, FrameKind, Language, Names, Tgid, UserEnd};

/// A function of a stack: its name, its file, and the line that runs.
pub(crate) type Function = (String, String, u32);

/// The functions of a sample, innermost first, and whether its stack is whole.
pub(crate) struct Sample {
    pub(crate) functions: Vec<Function>,
    pub(crate) is_whole: bool,
}

/// Samples a program until it ends.
pub(crate) fn sampled(running: &mut Child, frequency: u32, language: Language) -> Vec<Sample> {
    let targets = Targets::Processes(vec![Tgid(running.id())]);
    let options = CollectorOptions { frequency, targets, limit_walks: false, ..Default::default() };
    let names = Arc::new(Names::default());
    let mut collector = Collector::start(options, Arc::clone(&names), Default::default()).expect("this test needs root");
    let function = |frame: &FrameId| match names.frames.get(*frame)? {
        Frame::Script { object, label, line } => {
            Some((names.labels.name(label).to_owned(), names.objects.get(object)?.path.to_string(), line))
        }
        Frame::Named(label) => {
            let label = names.labels.get(label)?;
            let is_function = label.kind == FrameKind::Script(language);
            is_function.then(|| (label.name.to_string(), String::new(), 0))
        }
        _ => None,
    };
    let (mut batch, mut samples, mut has_ended) = (Batch::default(), Vec::new(), false);
    let (mut shown, mut asked) = (HashSet::new(), HashSet::new());
    while !has_ended {
        has_ended = running.try_wait().unwrap().is_some();
        std::thread::sleep(Duration::from_millis(100));
        collector.drain(&mut batch).unwrap();
        shown.extend(batch.frames.iter().copied());
        asked.extend(batch.wanted.iter().map(|request| request.frame));
        for sample in &batch.samples {
            let functions = batch.frames[sample.frames.clone()].iter().rev().filter_map(function).collect();
            samples.push((sample.time, Sample { functions, is_whole: sample.user_end == UserEnd::Root }));
        }
    }
    // Code that runs a known function needs no other name: view 5 would say that its name is missing. A JVM's code runs before the JVM is known.
    let is_made = |frame: &&FrameId| matches!(names.frames.get(**frame), Some(Frame::Process { .. }));
    let in_vain = asked.difference(&shown).filter(is_made).count();
    assert!(in_vain == 0 || language == Language::Java, "{in_vain} of {} frames", shown.len());
    // Some waited for answers.
    samples.sort_by_key(|(time, _)| *time);
    samples.into_iter().map(|(_, sample)| sample).collect()
}
