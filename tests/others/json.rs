//! Profiles in JSON.

use flametop::profile::{FrameKind, Tgid, Tid};

use super::*;

const SAMPLED: &str = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"main","file":"/src/a.py","line":3},
{"name":"leaf"}]},"name":"shop","profiles":[{"type":"sampled","name":"first","unit":"milliseconds","startValue":10,"endValue":14,
"samples":[[0],[0,1],[]],"weights":[1.5,2,0.5]},{"type":"evented","name":"second","unit":"seconds","startValue":0,"endValue":9,
"events":[{"type":"O","frame":0,"at":0},{"type":"O","frame":1,"at":0.001},{"type":"C","frame":1,"at":0.004},{"type":"O","frame":1,"at":0.005}]}]}"#;

const CPUPROFILE: &str = r#"{"nodes":[{"id":1,"callFrame":{"functionName":"(root)","scriptId":"0","url":"","lineNumber":-1,"columnNumber":-1},
"hitCount":0,"children":[2,4]},{"id":3,"callFrame":{"functionName":"","url":"file:///srv/app.js","lineNumber":11},"hitCount":2},
{"id":2,"callFrame":{"functionName":"run","url":"file:///srv/app.js","lineNumber":4},"hitCount":1,"children":[3]},
{"id":4,"callFrame":{"functionName":"(idle)"}}],"startTime":1000,"endTime":1100,"samples":[2,3,3,4],"timeDeltas":[10,20,30,0]}"#;

#[test]
fn stacks_of_speedscope_have_threads_times_and_units() {
    let file = File::open(SAMPLED.as_bytes());
    // main has 1.5 ms in the first profile, and 1 ms twice in the second; leaf has 2 ms, 3 ms, and the rest up to 9 s.
    assert_eq!(file.folded(), "shop 500000\nshop;main 3500000\nshop;main;leaf 9000000000\n");
    assert_eq!(file.opened.remarks, ["2 frames do not close"]);
    let capabilities = file.profile.capabilities();
    assert!(capabilities.time && capabilities.threads && !capabilities.cpus && !capabilities.events, "{capabilities:?}");
    assert_eq!(file.profile.unit(EventSource(1)), Unit::Nanoseconds);
    let first: Vec<_> = file.profile.threads.rows().iter().map(|row| (row.tgid, row.tid)).collect();
    assert_eq!(first, [(Tgid(1), Tid(1)), (Tgid(1), Tid(2))]);
    let names: Vec<_> = file.profile.threads.rows().iter().map(|row| file.names.labels.name(row.name)).collect();
    assert_eq!(names, ["first", "second"]);
}

#[test]
fn samples_of_v8_last_until_the_next_one() {
    let file = File::open(CPUPROFILE.as_bytes());
    let expected = "(idle) 40000\nrun_[j] 20000\nrun_[j];(anonymous)_[j] 30000\n";
    assert_eq!(file.folded(), expected);
    let anonymous = file.names.labels.intern("(anonymous)", "app.js:12", FrameKind::Jit);
    assert!(file.tree().nodes().iter().any(|node| node.label == anonymous));
    let times: Vec<u64> = file.profile.samples.slices_from(0).flatten().map(|sample| sample.time.0).collect();
    assert_eq!(times, [1_010_000, 1_030_000, 1_060_000]);
    // Without samples there are the counts of the nodes.
    let counts = CPUPROFILE.replace("[2,3,3,4]", "[]").replace("[10,20,30,0]", "[]");
    assert_eq!(File::open(counts.as_bytes()).folded(), "run_[j] 1\nrun_[j];(anonymous)_[j] 2\n");
}

#[test]
fn a_trace_of_chrome_has_the_profiles_of_its_threads() {
    let trace = r#"{"traceEvents":[
{"name":"thread_name","ph":"M","pid":7,"tid":8,"args":{"name":"Main"}},{"name":"process_name","ph":"M","pid":7,"tid":0,"args":{"name":"Renderer"}},
{"name":"odd","args":"__stripped__"},{"name":"odd","args":{"name":5,"data":[1]}},
{"name":"Profile","ph":"P","pid":7,"tid":8,"id":"0x1","args":{"data":{"startTime":100}}},
{"name":"ProfileChunk","ph":"P","pid":7,"tid":9,"id":"0x1","args":{"data":{"cpuProfile":{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"}},
{"id":2,"parent":1,"callFrame":{"functionName":"a"}}],"samples":[2]},"timeDeltas":[5]}}},
{"name":"ProfileChunk","ph":"P","pid":7,"tid":9,"id":"0x1","args":{"data":{"cpuProfile":{"nodes":[{"id":3,"parent":2,"callFrame":{"functionName":"b"}}],
"samples":[3,99]},"timeDeltas":[7,4]}}}]}"#;
    let file = File::open(trace.as_bytes());
    assert_eq!(file.folded(), "[unknown] 4000\na_[j] 7000\na_[j];b_[j] 4000\n");
    assert_eq!(file.opened.remarks, ["1 samples are in calls that the file does not have"]);
    let row = file.profile.threads.rows()[0];
    let names = (file.names.labels.name(row.process), file.names.labels.name(row.name));
    assert_eq!((row.tgid, row.tid, names), (Tgid(7), Tid(8), ("Renderer", "Main")));
    // A list of events is a trace as well.
    let list = trace.strip_prefix(r#"{"traceEvents":"#).unwrap().strip_suffix('}').unwrap();
    assert_eq!(File::open(list.as_bytes()).folded(), file.folded());
}

#[test]
fn other_documents_are_refused_in_a_sentence_with_the_place() {
    let says = |text: &str| File::try_open(text.as_bytes()).err().unwrap().to_string();
    assert!(says(r#"{"endValue": 14}"#).starts_with("this is JSON of another kind, which cannot be opened; give "));
    assert!(says(r#"{"meta": {}, "threads": []}"#).starts_with("this is a profile of Firefox's profiler"));
    assert!(says(&SAMPLED[..SAMPLED.len() - 20]).contains("at line 4 column"), "{}", says(&SAMPLED[..SAMPLED.len() - 20]));
    assert!(says(&SAMPLED.replace("[0,1]", "[0,7]")).contains("the frame 7 of 2"));
    assert!(says(&SAMPLED.replace(r#""C","frame":1"#, r#""C","frame":0"#)).contains("an event C that does not fit"));
    assert_eq!(says("[]"), "the file has no samples");
}

#[test]
fn what_is_written_for_speedscope_reads_back() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("x.folded"), "main;parse;read_[k] 5\nmain;parse 2\nmain;run (/srv/a.py:7)_[p] 1\n").unwrap();
    for args in [["x.folded", "x.speedscope.json"], ["x.speedscope.json", "y.folded"]] {
        convert::converted(place.path(), &args);
    }
    let back = std::fs::read_to_string(path("y.folded")).unwrap();
    assert_eq!(sorted(&back), "main;parse 2\nmain;parse;read 5\nmain;run (/srv/a.py:7) 1\n");
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(path("x.speedscope.json")).unwrap()).unwrap();
    assert_eq!(written["$schema"], "https://www.speedscope.app/file-format-schema.json");
    assert_eq!((&written["profiles"][0]["unit"], &written["profiles"][0]["endValue"]), (&"none".into(), &8.into()));
}

#[test]
fn files_of_other_projects_have_their_totals() {
    let totals =
        [("simple.speedscope", 14), ("simple-sampled.speedscope", 14_000_000_000), ("two-sampled.speedscope", 28_000_000_000)];
    let more = [("chrome65-simple", 36_317_000), ("node10-example", 45_920_000)];
    for path in data("speedscope").into_iter().chain(data("cpuprofile")) {
        let file = File::open(&std::fs::read(&path).unwrap());
        let name = path.file_stem().unwrap().to_str().unwrap();
        let known = totals.iter().chain(&more).find(|(of, _)| *of == name);
        assert!(file.tree().total() > 0 && known.is_none_or(|(_, total)| *total == file.tree().total()), "{name}");
    }
}

#[test]
fn nothing_in_a_document_makes_the_reader_stumble() {
    let pieces: Vec<&[u8]> = SAMPLED.split_inclusive(',').chain(CPUPROFILE.split_inclusive(',')).map(str::as_bytes).collect();
    stumble(&pieces);
    for text in [SAMPLED, CPUPROFILE] {
        for cut in 0..text.len() {
            let _ = File::try_open(&text.as_bytes()[..cut]);
        }
    }
}
