//! Parses texts from outside: folded stacks, the configuration, a command's output, the answer of debuginfod-find. The first byte chooses.
//! It must not panic or overflow, and no result may have characters that a terminal must not get.
#![no_main]

use flametop::formats::folded;
use flametop::profile::{Capabilities, Names, Profile};
use flametop::session::{lines_of_output, mistake_in_configuration};
use flametop::symbolize::path_in_answer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind {
        b'o' => {
            let lines = lines_of_output(bytes);
            assert!(lines.iter().all(|line| !line.contains(char::is_control)));
            return;
        }
        b'd' => {
            let path = path_in_answer(bytes);
            return assert!(path.is_none_or(|path| path.is_absolute() && bytes.starts_with(path.as_os_str().as_encoded_bytes())));
        }
        kind if kind & 1 == 1 => {
            let mistake = mistake_in_configuration(&String::from_utf8_lossy(bytes));
            return assert!(mistake.is_none_or(|why| !why.contains(char::is_control)));
        }
        _ => {}
    }
    let (names, mut profile) = (Names::default(), Profile::fixed(Capabilities::STACKS));
    let Ok(report) = folded::read(bytes, &names, &mut profile, None) else { return };
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
