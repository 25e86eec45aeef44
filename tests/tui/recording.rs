//! A recording looks as the run did.

use super::*;
use crate::common::{Program, root_or_fail};

/// The lines of a view without the first two, which tell where the samples come from, and the last two.
fn body(terminal: &Terminal, view: &str) -> Vec<String> {
    terminal.keys(view);
    terminal.keys("Home");
    let shown = |screen: &str| screen.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let mut before = Vec::new();
    // The next picture may still be of the view before.
    for _ in 0..600 {
        std::thread::sleep(Duration::from_millis(100));
        let now = shown(&terminal.screen());
        if now == before {
            break;
        }
        before = now;
    }
    before.truncate(before.len().saturating_sub(2));
    before
}

#[test]
fn a_run_that_was_saved_opens_in_all_views_as_it_was() {
    root_or_fail();
    let shop = Shop::new();
    let (file, words) = (shop.path("run.flametop"), shop.path("words"));
    let [chain, threads] = ["chain.c", "threads.c"].map(|name| Program::build(name).path);
    // One of them takes much more than the other. Rows that differ by chance keep the order that they had before.
    let script = format!("'{}' 4 & '{}' 1 & wait", chain.display(), threads.display());
    let args = ["-F", "499", "--output", words.to_str().unwrap(), "--", "sh", "-c", &script];
    let live = Terminal::start(&args, 36, 132, &[]);
    live.wait_for(|screen| screen.contains("exit 0 after") && screen.contains("inner"), SOON);
    prompt(&live, SAVE, file.to_str().unwrap());
    live.wait_for_text("saved", SOON);
    live.keys("Esc");
    // After the end of its command, time stands still on the screen: longer than the last seconds that a column is about.
    std::thread::sleep(Duration::from_secs(4));
    let view = Terminal::start(&["view", file.to_str().unwrap()], 36, 132, &[]);
    view.wait_for(|screen| screen.contains("run.flametop of ") && screen.contains("inner"), SOON);
    assert!(view.screen().lines().next().unwrap().contains("sh and children"), "{}", view.screen());
    let strip = |terminal: &Terminal| terminal.screen().lines().nth(1).unwrap().to_owned();
    assert_eq!(strip(&view), strip(&live));
    for (name, key) in [("flame", "1"), ("functions", "2"), ("processes", "3"), ("time", "4")] {
        let [was, is] = [&live, &view].map(|terminal| body(terminal, key));
        assert!(was.iter().any(|line| !line.trim().is_empty()), "{name}: {}", live.screen());
        assert_eq!(is, was, "{name}:\n{}\n{}", live.screen(), view.screen());
    }
    quit(live);
    quit(view);
}
