//! Opens files of profiles, of all formats. No name may have control characters, and what was opened must be the same after it was recorded
//! and opened again.
#![no_main]

use std::sync::Arc;

use flametop::formats::recording::Recorder;
use flametop::formats::{About, Destination, Opened, Sink, ThisMachine};
use flametop::profile::{Capabilities, LabelId, Names, Processes, Profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((names, processes, profile, opened)) = opened(bytes) else { return };
    let labels = (0..names.labels.len()).filter_map(|label| names.labels.get(LabelId(label as u32)));
    for label in labels {
        assert!(is_clean(&label.name) && is_clean(&label.object), "{label:?}");
    }
    assert!(opened.remarks.iter().all(|remark| is_clean(remark)), "{:?}", opened.remarks);
    let mut recorder = Recorder::new();
    let mut recording = Vec::new();
    while recorder.take_some(&profile, &names, &mut |_| true) {
        recording.extend(recorder.bytes());
    }
    recorder.tell(&opened.about.map_or_else(About::default, |about| *about), &processes);
    recorder.end().expect("it has samples");
    recording.extend(recorder.bytes());
    let (_, _, again, _) = self::opened(&recording).expect("a recording opens");
    assert_eq!(sum(&again), sum(&profile));
});

fn opened(bytes: &[u8]) -> Option<(Arc<Names>, Processes, Profile, Opened)> {
    let (names, processes) = (Arc::new(Names::default()), Processes::default());
    let mut profile = Profile::fixed(Capabilities::STACKS);
    let machine = ThisMachine::default();
    let mut into = Destination { names: &names, processes: &processes, profile: &mut profile, before: None, machine };
    let opened = flametop::formats::open(bytes, &mut into).ok()?;
    assert!(!profile.samples.is_empty(), "a file without samples is refused");
    Some((names, processes, profile, opened))
}

/// Returns the number of samples, and their weight.
fn sum(profile: &Profile) -> (u64, u128) {
    let samples = profile.samples.slices_from(0).flatten();
    samples.fold((0, 0), |(count, weight), sample| (count + 1, weight + u128::from(sample.weight)))
}

fn is_clean(text: &str) -> bool {
    !text.chars().any(char::is_control)
}
