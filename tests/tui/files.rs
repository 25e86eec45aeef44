//! `flametop view`: what it opens, what it refuses, and what `w` writes.

use super::*;

/// Runs `view` in a terminal; it must end with one sentence that has all these `parts`.
#[track_caller]
fn refuses(program: &str, args: &[&str], parts: &[&str]) {
    let mut terminal = Terminal::spawn(program, args, 24, 200, &[]);
    let status = terminal.wait_exit_within(SOON);
    let screen = terminal.screen();
    assert!(!status.success() && screen.starts_with("flametop: "), "{status:?} {screen}");
    for part in parts {
        assert!(screen.contains(part), "{part:?} is not in: {screen}");
    }
    assert!(screen.trim_end().lines().count() <= 2, "not one sentence: {screen}");
    terminal.assert_restored();
}

#[test]
fn what_cannot_be_shown_is_refused_with_a_sentence() {
    let shop = Shop::new();
    let with = |name: &str, bytes: &[u8]| {
        let path = shop.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let view = |path: &str, parts: &[&str]| refuses(common::FLAMETOP, &["view", path], parts);
    view("no/such.folded", &["no/such.folded", "No such file"]);
    view(&with("empty", b""), &["empty"]);
    view(&with("prose.txt", b"It was a dark\nand stormy night.\n"), &["prose.txt"]);
    view(&with("cut.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0"), &["cut.gz", "failed to read"]);
    view(&with("perf.data", b"PERFILE2\0\0\0\0\0\0\0\0"), &["its header is cut"]);
    refuses(
        common::FLAMETOP,
        &["view", &with("a.folded", b"a;b 1\n"), "-b", shop.0.path().to_str().unwrap()],
        &["is a directory"],
    );
    // Nowhere to draw.
    let output = common::flametop(&["view", shop.path("shop.folded").to_str().unwrap()]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("not a terminal"), "{words}");
}

#[test]
fn standard_input_and_other_encodings_are_read() {
    let shop = Shop::new();
    let utf16: Vec<u8> = std::iter::once(0xfeff).chain(SHOP.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    std::fs::write(shop.path("utf16.folded"), utf16).unwrap();
    std::fs::write(shop.path("mixed.folded"), format!("{SHOP}no count here\n")).unwrap();
    let path = |name: &str| shop.path(name).to_str().unwrap().to_owned();
    let open = |name: &str| {
        let terminal = Terminal::start(&["view", &path(name)], 24, 80, &[]);
        terminal.wait_for(|screen| screen.contains("all 1,000") && screen.contains("serve"), SOON);
        terminal
    };
    quit(open("utf16.folded"));
    let packed = std::process::Command::new("gzip").args(["-k", &path("shop.folded")]).status();
    assert!(packed.unwrap().success());
    quit(open("shop.folded.gz"));
    let mixed = open("mixed.folded");
    mixed.wait_for_text("line 17", SOON);
    quit(mixed);
    // Keys come from the terminal although standard input is the file.
    let script = format!("cat '{}' | '{}' view -", path("shop.folded"), common::FLAMETOP);
    let piped = Terminal::spawn("sh", &["-c", &script], 24, 80, &[]);
    piped.wait_for(|screen| screen.contains("standard input") && screen.contains("all 1,000"), SOON);
    prompt(&piped, KEEP, "serve");
    piped.wait_for_text("all 810", SOON);
    quit(piped);
}

#[test]
fn profiles_of_a_directory_are_listed_opened_and_compared() {
    let shop = Shop::new();
    std::fs::write(shop.path("before.folded"), SHOP.replace("escape_html 310", "escape_html 210")).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    std::fs::File::options().write(true).open(shop.path("before.folded")).unwrap().set_modified(long_ago).unwrap();
    std::fs::write(shop.path("notes.txt"), "no profile at all\n").unwrap();
    // It looks like a profile until it is opened.
    std::fs::write(shop.path("x.data"), b"PERFILE2\0\0\0\0\0\0\0\0").unwrap();
    let mut terminal = Terminal::start(&["view", shop.0.path().to_str().unwrap()], 24, 100, &[]);
    let screen = terminal.wait_for_text("3 files", SOON);
    let rows: Vec<&str> = screen.lines().skip(3).take(3).map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert!(rows.contains(&"shop.folded") && rows.contains(&"x.data") && rows[2] == "before.folded", "{screen}");
    let row_of = |name: &str| rows.iter().position(|row| *row == name).unwrap();
    // The last one is the baseline.
    terminal.keys("Gb");
    terminal.wait_for_text("compared with before.folded", SOON);
    terminal.keys(&"k".repeat(2 - row_of("shop.folded")));
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains("Δ to 900 samples") && screen.contains("all 1,000"), SOON);
    terminal.keys("q");
    terminal.wait_for_text("compared with before.folded", SOON);
    terminal.keys(&"k".repeat(2));
    terminal.keys(&"j".repeat(row_of("x.data")));
    terminal.keys("Enter");
    terminal.wait_for_text("x.data: this perf.data makes no sense: its header is cut", SOON);
    terminal.keys("q");
    assert!(terminal.wait_exit().success());
    terminal.assert_restored();
    // So does Ctrl-C while a file is being opened: nobody writes to the baseline.
    let pipe = shop.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let baseline = ["-b", pipe.to_str().unwrap()];
    let mut terminal = Terminal::start(&[&["view", shop.0.path().to_str().unwrap()], &baseline[..]].concat(), 24, 100, &[]);
    terminal.wait_for_text("3 files", SOON);
    terminal.keys("G");
    terminal.keys("Enter");
    terminal.wait_for(|screen| screen.contains("pipe: 0 MB, ") && screen.contains("(Ctrl-C ends)"), SOON);
    terminal.keys("Ctrl-c");
    assert_eq!(terminal.wait_exit_within(SOON).exit_code(), 130);
    terminal.assert_restored();
    // A signal ends the view of a file, not only that file.
    let mut terminal = Terminal::start(&["view", shop.0.path().to_str().unwrap()], 24, 100, &[]);
    terminal.wait_for_text("3 files", SOON);
    terminal.keys("G");
    terminal.keys("Enter");
    terminal.wait_for_text("all 900", SOON);
    terminal.signal(rustix::process::Signal::TERM);
    assert!(terminal.wait_exit().success());
    terminal.assert_restored();
}

#[test]
fn a_saved_difference_is_a_difference_again() {
    let shop = Shop::new();
    let (path, again) = (shop.path("two.folded"), shop.path("again.folded"));
    let text = "a;b 12 31\na;c 5 5\nd 0 9\n";
    std::fs::write(&path, text).unwrap();
    let terminal = Terminal::start(&["view", path.to_str().unwrap()], 24, 100, &[]);
    terminal.wait_for(|screen| screen.contains("Δ to 17 samples") && screen.contains("all 45"), SOON);
    terminal.wait_for(|screen| !screen.contains("b 12"), SOON);
    prompt(&terminal, SAVE, again.to_str().unwrap());
    terminal.wait_for_text("saved", SOON);
    quit(terminal);
    assert_eq!(std::fs::read_to_string(&again).unwrap(), text);
}

#[test]
fn counts_below_one_are_all_there() {
    let shop = Shop::new();
    let path = shop.path("seconds.folded");
    std::fs::write(&path, "foo;bar 0.156\nfoo;a;bar 0.98\nfoo;b;bar 0.343\nfoo;c;bar 0.888\n").unwrap();
    let terminal = Terminal::start(&["view", path.to_str().unwrap()], 24, 100, &[]);
    let screen = terminal.wait_for(|screen| screen.contains("2,367"), SOON);
    assert!(screen.contains("counts have fractions and were multiplied by 1000"), "{screen}");
    quit(terminal);
}

#[test]
fn what_is_seen_is_saved_and_no_file_is_replaced_without_asking() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 132, &[]);
    prompt(&terminal, KEEP, "render");
    terminal.wait_for_text("all 430", SOON);
    let (svg, html, folded) = (shop.path("seen.svg"), shop.path("seen.html"), shop.path("seen.folded"));
    for path in [&svg, &html, &folded] {
        prompt(&terminal, SAVE, path.to_str().unwrap());
        terminal.wait_for(|screen| screen.contains("saved "), SOON);
        terminal.keys("j");
    }
    let text = std::fs::read_to_string(&svg).unwrap();
    assert!(text.contains("<svg") && text.contains("escape_html") && text.contains("keep /render/"));
    assert!(!text.contains("parse_headers") && text.contains("inverted = false"), "callers are at the bottom");
    let text = std::fs::read_to_string(&html).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.contains("escape_html") && !text.contains("parse_headers"));
    let text = std::fs::read_to_string(&folded).unwrap();
    let total: u64 = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(total, 430, "{text}");
    std::fs::write(&folded, "mine").unwrap();
    // It asks before it replaces a file: n keeps the file, y replaces it.
    prompt(&terminal, SAVE, folded.to_str().unwrap());
    terminal.wait_for_text("Overwrite", SOON);
    terminal.keys("n");
    terminal.wait_for_text("not saved", SOON);
    assert_eq!(std::fs::read_to_string(&folded).unwrap(), "mine");
    prompt(&terminal, SAVE, folded.to_str().unwrap());
    terminal.wait_for_text("Overwrite", SOON);
    terminal.keys("y");
    terminal.wait_for_text("saved ", SOON);
    assert_eq!(std::fs::read_to_string(&folded).unwrap(), text);
    // If a file cannot be saved, the program says so and continues.
    for (path, words) in [("x.png", ".svg"), ("/no/such/x.svg", "no directory"), ("/dev/full", "No space left")] {
        prompt(&terminal, SAVE, path);
        terminal.wait_for_text(words, SOON);
        terminal.keys("j");
    }
    let mut files: Vec<_> = std::fs::read_dir(shop.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["seen.folded", "seen.html", "seen.svg", "shop.folded"]);
    quit(terminal);
}

#[test]
fn a_file_without_facts_about_its_run_has_the_time_from_its_first_sample_to_its_last() {
    let shop = Shop::new();
    let path = shop.path("x.speedscope.json");
    let samples: Vec<&str> = vec!["[0]"; 8];
    let profile = format!(
        r#"{{"type":"sampled","name":"p","unit":"seconds","startValue":3,"endValue":11,"samples":[{}],"weights":[1,1,1,1,1,1,1,1]}}"#,
        samples.join(",")
    );
    std::fs::write(&path, format!(r#"{{"shared":{{"frames":[{{"name":"work"}}]}},"profiles":[{profile}]}}"#)).unwrap();
    let view = Terminal::start(&["view", path.to_str().unwrap()], 24, 132, &[]);
    let screen = view.wait_for_text("work", SOON);
    assert!(screen.lines().next().is_some_and(|header| header.contains(" recorded 00:07 ")), "{screen}");
    quit(view);
}
