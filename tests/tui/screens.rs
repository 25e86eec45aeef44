//! Whole pictures of a fixed file, compared with those in `tests/screens`.
//!
//! After an intended change of the screen: `INSTA_UPDATE=always cargo test --test tui screens`, then check the difference.

use super::*;

/// Compares the screen with `tests/screens/<name>.snap`, once `sign` recognises the wanted state.
///
/// A terminal may be read in the middle of a picture. So this waits until the screen equals the file. If it never does, or if
/// there is no file, it takes the screen when the output has stopped.
#[track_caller]
fn compare(name: &str, terminal: &Terminal, sign: impl Fn(&str) -> bool) {
    terminal.wait_for(sign, SOON);
    let file = format!("{}/tests/screens/{name}.snap", env!("CARGO_MANIFEST_DIR"));
    let known = std::fs::read_to_string(file).unwrap_or_default();
    let known = known.splitn(3, "---\n").last().unwrap_or_default().trim_end();
    let end = std::time::Instant::now() + SOON / 4;
    let mut screen = terminal.screen();
    while screen.trim_end() != known && std::time::Instant::now() < end {
        let written = terminal.written();
        if !terminal.wait_for_output(written, Duration::from_millis(500)) {
            break;
        }
        screen = terminal.screen();
    }
    let screen = terminal.screen();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../screens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, screen));
}

const SIZES: [(&str, u16, u16); 2] = [("80x24", 24, 80), ("132x36", 36, 132)];

#[test]
fn the_flame_graph() {
    let shop = Shop::new();
    for (size, rows, cols) in SIZES {
        compare(&format!("flame_{size}"), &shop.view(&[], rows, cols, &[]), |_| true);
        let ascii = shop.view(&["--ascii", "--color", "never"], rows, cols, &[]);
        compare(&format!("flame_{size}_ascii"), &ascii, |_| true);
    }
}

#[test]
fn without_colours_kinds_have_marks_and_boxes_edges() {
    compare("flame_132x36_no_color", &Shop::new().view(&[], 36, 132, &[("NO_COLOR", "1")]), |_| true);
}

#[test]
fn beside_another_file() {
    let shop = Shop::new();
    // The baseline has `compile` where the file has `render`: all boxes below these names are gone or new.
    let other: String = SHOP.lines().map(|line| line.replace("render", "compile") + "\n").collect();
    let baseline = shop.path("before.folded");
    std::fs::write(&baseline, other).unwrap();
    let baseline = ["--baseline", baseline.to_str().unwrap()];
    compare("difference_132x36", &shop.view(&baseline, 36, 132, &[]), |screen| screen.contains("Δ to"));
    let plain = shop.view(&[&baseline[..], &["--ascii", "--color", "never"]].concat(), 24, 80, &[]);
    compare("difference_80x24_ascii", &plain, |_| true);
    let terminal = shop.view(&baseline, 24, 80, &[]);
    terminal.keys("2");
    compare("difference_80x24_functions", &terminal, |screen| screen.contains("points"));
}

#[test]
fn zoomed_into_a_frame() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    prompt(&terminal, SEARCH, "^render$");
    terminal.keys("n Enter / Ctrl-u Enter");
    compare("zoomed_80x24", &terminal, |screen| {
        detail(screen).contains(" render ") && screen.contains("to_writer") && !screen.contains("parse_headers")
    });
}

#[test]
fn searched() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    prompt(&terminal, SEARCH, "^(recv|send)$");
    terminal.keys("n");
    compare("searched_80x24", &terminal, |screen| detail(screen).contains("16.0 %") && detail(screen).contains("recv"));
}

#[test]
fn filtered() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    prompt(&terminal, KEEP, "serve");
    prompt(&terminal, DROP, "tcp_");
    compare("filtered_80x24", &terminal, |screen| screen.contains("all 650"));
}

#[test]
fn upside_down_and_bottom_up() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    terminal.keys("i");
    compare("root_at_bottom_80x24", &terminal, |screen| screen.lines().nth(21).is_some_and(|line| line.contains("all 1,000")));
    // The innermost functions are right below the root.
    let turned = |screen: &str| {
        screen.lines().skip_while(|line| !line.starts_with("all ")).nth(1).is_some_and(|line| line.contains("escape_html"))
    };
    terminal.keys("i u");
    terminal.wait_for(turned, SOON);
    terminal.keys("j");
    compare("bottom_up_80x24", &terminal, |screen| detail(screen).contains("escape_html"));
}

#[test]
fn functions_with_callers_and_callees() {
    let shop = Shop::new();
    for (size, rows, cols) in SIZES {
        let terminal = shop.view(&[], rows, cols, &[]);
        terminal.keys("2");
        compare(&format!("functions_{size}"), &terminal, |screen| screen.contains("escape_html") && screen.contains("self ▼"));
        prompt(&terminal, SEARCH, "render");
        terminal.keys("n Enter");
        compare(&format!("functions_open_{size}"), &terminal, |screen| screen.contains("called by") && screen.contains("calls"));
    }
}

#[test]
fn help() {
    let shop = Shop::new();
    for (size, rows, cols) in SIZES {
        let terminal = shop.view(&[], rows, cols, &[]);
        terminal.keys("?");
        compare(&format!("help_{size}"), &terminal, |screen| screen.contains("Esc closes"));
    }
}

#[test]
fn narrow_frames_are_gathered_and_can_be_entered() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    let (row, column) = position(&terminal, "+4");
    terminal.click(row, column);
    terminal.wait_for(|screen| detail(screen).contains("narrow"), SOON);
    terminal.keys("Enter");
    let entered = |screen: &str| ["tiny1", "tiny2", "tiny3", "tiny4"].iter().all(|name| screen.contains(name));
    compare("gathered_entered_80x24", &terminal, entered);
    terminal.keys("Esc");
    terminal.wait_for(|screen| screen.contains("serve"), SOON);
}
