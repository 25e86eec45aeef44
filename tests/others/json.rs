//! Profiles in JSON.

use flametop::profile::{FrameKind, Language, Tgid, Tid};

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
    let expected = "(idle) 40000\nrun_[s] 20000\nrun_[s];(anonymous)_[s] 30000\n";
    assert_eq!(file.folded(), expected);
    let anonymous = file.names.labels.intern("(anonymous)", "/srv/app.js:12", FrameKind::Script(Language::JavaScript));
    assert!(file.tree().nodes().iter().any(|node| node.label == anonymous));
    let times: Vec<u64> = file.profile.samples.slices_from(0).flatten().map(|sample| sample.time.0).collect();
    assert_eq!(times, [1_010_000, 1_030_000, 1_060_000]);
    // Without samples there are the counts of the nodes.
    let counts = CPUPROFILE.replace("[2,3,3,4]", "[]").replace("[10,20,30,0]", "[]");
    assert_eq!(File::open(counts.as_bytes()).folded(), "run_[s] 1\nrun_[s];(anonymous)_[s] 2\n");
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
    assert_eq!(file.folded(), "[unknown] 4000\na_[s] 7000\na_[s];b_[s] 4000\n");
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
    assert!(says(&SAMPLED[..SAMPLED.len() - 20]).contains("at line 4 column"), "{}", says(&SAMPLED[..SAMPLED.len() - 20]));
    assert!(says(&SAMPLED.replace("[0,1]", "[0,7]")).contains("the frame 7 of 2"));
    assert!(says(&SAMPLED.replace(r#""C","frame":1"#, r#""C","frame":0"#)).contains("an event C that does not fit"));
    assert_eq!(says("[]"), "the file has no samples");
}

#[test]
fn what_is_written_for_speedscope_reads_back() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("x.folded"), "main;parse;read_[k] 5\nmain;parse 2\nmain;run (/srv/a.py:7)_[p] 1\nmain;t (/srv/b.js:1:30)_[s] 1\nmain;t (/srv/b.js:1:9)_[s] 1\n").unwrap();
    for args in [["x.folded", "x.speedscope.json"], ["x.speedscope.json", "y.folded"]] {
        convert::converted(place.path(), &args);
    }
    let back = std::fs::read_to_string(path("y.folded")).unwrap();
    assert_eq!(
        sorted(&back),
        "main;parse 2\nmain;parse;read 5\nmain;run (/srv/a.py:7) 1\nmain;t (/srv/b.js:1:30) 1\nmain;t (/srv/b.js:1:9) 1\n"
    );
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(path("x.speedscope.json")).unwrap()).unwrap();
    assert_eq!(written["$schema"], "https://www.speedscope.app/file-format-schema.json");
    assert_eq!((&written["profiles"][0]["unit"], &written["profiles"][0]["endValue"]), (&"none".into(), &10.into()));
}

#[test]
fn files_of_other_projects_have_their_totals() {
    let totals =
        [("simple.speedscope", 14), ("simple-sampled.speedscope", 14_000_000_000), ("two-sampled.speedscope", 28_000_000_000)];
    let more = [("chrome65-simple", 36_317_000), ("node10-example", 45_920_000), ("firefox61-gecko-recursion", 15)];
    for path in data("speedscope").into_iter().chain(data("cpuprofile")).chain(data("firefox")) {
        let file = File::open(&std::fs::read(&path).unwrap());
        let name = path.file_stem().unwrap().to_str().unwrap();
        let known = totals.iter().chain(&more).find(|(of, _)| *of == name);
        assert!(file.tree().total() > 0 && known.is_none_or(|(_, total)| *total == file.tree().total()), "{name}");
    }
}

#[test]
fn nothing_in_a_document_makes_the_reader_stumble() {
    let texts = [SAMPLED, CPUPROFILE, &processed(55), &processed(75)];
    let pieces: Vec<&[u8]> = texts.iter().flat_map(|text| text.split_inclusive(',')).map(str::as_bytes).collect();
    stumble(&pieces);
    for text in texts {
        for cut in 0..text.len() {
            let _ = File::try_open(&text.as_bytes()[..cut]);
        }
    }
}

/// A processed profile: of version 55, whose threads have their tables, and of version 75, whose tables have flags.
fn processed(version: u32) -> String {
    let old = version < 60;
    let (callers, flags, functions, sources) = match old {
        true => (r#""prefix":[null,0,1,0]"#, "", r#""fileName":[null,2,null,null]"#, ""),
        false => (
            r#""prefixOffset":[0,1,1,3]"#,
            r#""flags":[4,20,5,4],"#,
            r#""source":[0,0,0,0],"flags":[4,24,4,4]"#,
            r#""sources":{"length":1,"id":[null],"filename":[2]},"#,
        ),
    };
    let tables = format!(
        r#""stackTable":{{"length":4,"frame":[0,1,2,3],{callers}}},
"frameTable":{{"length":4,"func":[0,1,2,3],"category":[0,2,0,1],"line":[null,42,null,null],{flags}"inlineDepth":[0,0,1,0]}},
"funcTable":{{"length":4,"name":[0,1,3,5],"lineNumber":[null,40,null,null],"resource":[0,-1,0,-1],{functions}}},
"resourceTable":{{"length":1,"name":[4],"lib":[0],"host":[null],"type":[1]}},{sources}
"stringArray":["main","run","/srv/app.py","leaf","libc.so.6","sys_read"]"#
    );
    let samples = r#""samples":{"length":4,"stack":[2,null,3,1],"time":[1,2,3.5,4],"weight":[2,1,1,3],"weightType":"samples"}"#;
    let thread = format!(r#""name":"worker","processName":"shop","pid":"12.1","tid":13,{samples}"#);
    let meta = format!(
        r#""meta":{{"interval":10,"startTime":1700000000000,"preprocessedProfileVersion":{version},
"categories":[{{"name":"User"}},{{"name":"Kernel"}},{{"name":"Python"}}]}}"#
    );
    match old {
        true => format!(r#"{{{meta},"threads":[{{{thread},{tables}}}]}}"#),
        false => format!(r#"{{{meta},"shared":{{{tables}}},"threads":[{{{thread}}}]}}"#),
    }
}

#[test]
fn profiles_of_firefox_have_threads_times_weights_and_kinds() {
    for version in [55, 75] {
        let file = File::open(processed(version).as_bytes());
        assert_eq!(file.folded(), "shop;main;run_[p] 3\nshop;main;run_[p];leaf_[i] 2\nshop;main;sys_read_[k] 1\n", "{version}");
        let row = file.profile.threads.rows()[0];
        assert_eq!((row.tgid, row.tid, file.names.labels.name(row.name)), (Tgid(12), Tid(13), "worker"));
        let times: Vec<u64> = file.profile.samples.slices_from(0).flatten().map(|sample| sample.time.0).collect();
        assert_eq!(times, [1_000_000, 3_500_000, 4_000_000]);
        let about = file.opened.about.as_ref().unwrap();
        assert_eq!((about.frequency, about.utc), (100, Some(1_700_000_000_000_000_000)));
        for (name, object, kind) in [
            ("main", "libc.so.6", FrameKind::User),
            ("run", "/srv/app.py:40", FrameKind::Script(Language::Python)),
            ("leaf", "libc.so.6", FrameKind::Inlined),
        ] {
            let label = file.names.labels.intern(name, object, kind);
            assert!(file.tree().nodes().iter().any(|node| node.label == label), "{version}: {name}");
        }
    }
}

#[test]
fn an_interval_without_a_meaning_is_no_frequency() {
    for (interval, frequency) in [("10", 100), ("0.02", 50_000), ("1e-9", 0), ("-1", 0), ("0", 0), ("1e300", 0)] {
        let text = processed(55).replacen("\"interval\":10", &format!("\"interval\":{interval}"), 1);
        let about = File::open(text.as_bytes()).opened.about.unwrap();
        assert_eq!(about.frequency, frequency, "{interval}");
    }
}

#[test]
fn profiles_of_the_browser_itself_have_texts_as_frames() {
    let table = |columns: &str, rows: &str| {
        let schema: Vec<String> = columns.split(' ').enumerate().map(|(at, name)| format!("\"{name}\":{at}")).collect();
        format!(r#"{{"schema":{{{}}},"data":{rows}}}"#, schema.join(","))
    };
    let text = format!(
        r#"{{"meta":{{"version":12,"interval":1}},"libs":[],"threads":[{{"name":"GeckoMain","processType":"tab","pid":5,"tid":6,
"samples":{},"stackTable":{},"frameTable":{},"stringTable":["(root)","draw (app.js:12:5)"]}}],"processes":[]}}"#,
        table("stack time eventDelay", "[[1,0.5,0],[1,1.5,0],[0,2.5],[null,3.5]]"),
        table("prefix frame", "[[null,0],[0,1]]"),
        table("location relevantForJS line category", "[[0],[1,true,14]]"),
    );
    for text in [text.clone(), format!(r#"{{"label":"","profile":{text}}}"#)] {
        let file = File::open(text.as_bytes());
        assert_eq!(file.folded(), "tab;(root) 1\ntab;(root);draw_[s] 2\n");
    }
}

#[test]
fn profiles_of_firefox_that_contradict_themselves_are_refused() {
    let whole = processed(55);
    for (from, to, words) in [
        (r#""frame":[0,1,2,3]"#, r#""frame":[0,1,2,9]"#, "the stack 3 has a frame that is not there"),
        (r#""prefix":[null,0,1,0]"#, r#""prefix":[null,0,2,0]"#, "the caller of the stack 2 does not come before it"),
        (r#""func":[0,1,2,3]"#, r#""func":[0,1,2,7]"#, "the frame 3 has a function that is not there"),
        (r#""stack":[2,null,3,1]"#, r#""stack":[4]"#, "a sample of the thread `worker` has a stack that is not there"),
    ] {
        let said = File::try_open(whole.replace(from, to).as_bytes()).err().expect(from).to_string();
        assert!(said.contains(words), "{said}");
    }
}
