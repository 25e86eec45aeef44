//! Files that a user gives us: folded stacks, and with an odd first byte the configuration. No panic, no overflow, and messages that a
//! terminal can be given.
#![no_main]

use flametop::formats::folded;
use flametop::profile::{Limits, Names, Profile};
use flametop::session::mistake_in_configuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind & 1 == 1 {
        let mistake = mistake_in_configuration(&String::from_utf8_lossy(bytes));
        assert!(mistake.is_none_or(|why| !why.contains(char::is_control)));
        return;
    }
    let (names, mut profile) = (Names::default(), Profile::new(Limits::NONE));
    let Ok(report) = folded::read(bytes, &names, &mut profile) else { return };
    let samples: Vec<u64> = profile.samples.slices_from(0).flatten().map(|sample| sample.weight).collect();
    assert!(samples.len() as u64 <= report.stacks && report.stacks <= report.lines);
    assert_eq!(samples.iter().sum::<u64>(), report.total);
    for sample in profile.samples.slices_from(0).flatten() {
        for frame in profile.stacks.frames(sample.stack) {
            names.labels_of(frame, |label| {
                assert!(names.labels.get(label).is_some_and(|label| !label.name.contains(char::is_control)));
            });
        }
    }
});
