//! Colours, characters and sizes.

use super::*;
use common::terminal::find;

/// Whether a parameter list names a colour: 30–49, 58, 90–107 but for the defaults 39 and 49.
fn is_colour(parameters: &str) -> bool {
    parameters
        .split([';', ':'])
        .filter_map(|number| number.parse::<u16>().ok())
        .any(|number| matches!(number, 30..=38 | 40..=48 | 58 | 90..=107))
}

/// Every view and overlay once.
fn wander(terminal: &Terminal) {
    for (keys, sign) in
        [("j j l", "serve"), ("2", "function  "), ("5", "Cost of flametop"), ("?", "Esc closes"), ("Esc 1", "all 1,000")]
    {
        terminal.keys(keys);
        terminal.wait_for_text(sign, SOON);
    }
    prompt(terminal, SEARCH, "render");
    prompt(terminal, KEEP, "serve");
    terminal.wait_for_text("all 810", SOON);
}

#[test]
fn no_color_means_none() {
    let shop = Shop::new();
    for (args, env) in [(&[][..], &[("NO_COLOR", "1")][..]), (&["--color", "never"], &[]), (&[], &[("TERM", "vt100")])] {
        let terminal = shop.view(args, 24, 80, env);
        wander(&terminal);
        let raw = terminal.raw();
        let found: Vec<String> = sgr(&raw).into_iter().filter(|parameters| is_colour(parameters)).collect();
        assert!(found.is_empty(), "{args:?} {env:?}: colours {found:?}");
        quit(terminal);
    }
}

/// The parameters of `CSI … m`.
fn sgr(raw: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(raw);
    let of = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
        rest[end..].starts_with('m').then(|| rest[..end].to_owned())
    };
    text.split("\x1b[").skip(1).filter_map(of).collect()
}

/// The colours behind what is on the screen.
fn grounds(terminal: &Terminal) -> Vec<vt100::Color> {
    let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
    terminal.with_screen(|screen| cells.map(|(row, column)| screen.cell(row, column).unwrap().bgcolor()).collect())
}

#[test]
fn the_palette_is_for_the_background_that_the_terminal_answers() {
    let shop = Shop::new();
    type Answers = &'static [(&'static [u8], &'static [u8])];
    const LIGHT: Answers =
        &[(b"\x1b]10;?", b"\x1b]10;rgb:0000/0000/0000\x1b\\"), (b"\x1b]11;?", b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\")];
    const DARK: Answers = &[(b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x07"), (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x07")];
    let seen = |args: &[&str], env: &[(&str, &str)], answers: Answers| {
        let terminal = shop.view_answering(args, (24, 80), env, answers);
        let seen = grounds(&terminal);
        quit(terminal);
        seen
    };
    let light = seen(&["--theme", "light"], &[], &[]);
    let dark = seen(&["--theme", "dark"], &[], &[]);
    assert_ne!(light, dark);
    assert_eq!(seen(&[], &[("COLORFGBG", "")], LIGHT), light);
    assert_eq!(seen(&[], &[("COLORFGBG", "")], DARK), dark);
    assert_eq!(seen(&[], &[("COLORFGBG", "0;15")], DARK), light, "it is told already");
    assert_eq!(seen(&[], &[("COLORFGBG", "")], &[]), dark, "nobody says anything");
    assert_eq!(seen(&["--theme", "dark"], &[], LIGHT), dark, "an option counts more");
}

#[test]
fn as_many_colours_as_the_terminal_has() {
    let shop = Shop::new();
    type Environment = &'static [(&'static str, &'static str)];
    let cases: [(&[&str], Environment, bool, bool); 5] = [
        (&[], &[("TERM", "xterm-256color")], true, false),
        (&[], &[("COLORTERM", "truecolor")], false, true),
        (&["--color", "true"], &[], false, true),
        (&["--color", "256"], &[("COLORTERM", "truecolor")], true, false),
        (&["--color", "16"], &[("COLORTERM", "truecolor")], false, false),
    ];
    for (args, env, indexed, rgb) in cases {
        let terminal = shop.view(args, 24, 80, env);
        let (mut small, mut cube, mut full) = (false, false, false);
        terminal.with_screen(|screen| {
            for (row, column) in (0..24).flat_map(|row| (0..80).map(move |column| (row, column))) {
                match screen.cell(row, column).unwrap().bgcolor() {
                    vt100::Color::Idx(0..16) => small = true,
                    vt100::Color::Idx(_) => cube = true,
                    vt100::Color::Rgb(..) => full = true,
                    vt100::Color::Default => {}
                }
            }
        });
        assert_eq!((cube, full), (indexed, rgb), "{args:?} {env:?}");
        assert!(small || cube || full, "{args:?} {env:?}: no colours at all");
        quit(terminal);
    }
}

#[test]
fn ascii_means_ascii() {
    let shop = Shop::new();
    std::fs::write(shop.path("shop.folded"), SHOP.replace("escape_html", "flüchten…→名前")).unwrap();
    for (args, env) in [(&["--ascii"][..], &[][..]), (&[], &[("LANG", "C")])] {
        let terminal = shop.view(args, 36, 132, env);
        wander(&terminal);
        terminal.keys("p");
        terminal.wait_quiet(Duration::from_millis(100), SOON);
        let raw = terminal.raw();
        let other: String = String::from_utf8_lossy(&raw).chars().filter(|c| !c.is_ascii()).collect();
        assert!(other.is_empty(), "{args:?} {env:?}: {other:?}");
        terminal.keys("Esc");
        terminal.wait_for(|screen| !screen.contains("type to narrow"), SOON);
        quit(terminal);
    }
}

#[test]
fn any_size_is_survived() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 24, 80, &[]);
    let sizes = [(1, 1), (1, 200), (50, 1), (2, 2), (3, 10), (4, 7), (5, 20), (8, 30), (9, 79), (300, 500), (1, 1), (24, 80)];
    // Every view, with every overlay: each must survive each size.
    let states = ["1", "2", "2 j Enter", "3", "5", "1 ?", "Esc p", "Esc /", "Esc w", "Esc i", "a", "u", "r"];
    for keys in states {
        terminal.keys(keys);
        for (rows, cols) in sizes {
            let before = terminal.written();
            terminal.resize(rows, cols);
            let end = || String::from_utf8_lossy(&terminal.raw()).chars().rev().take(6000).collect::<Vec<_>>();
            let text = || end().into_iter().rev().collect::<String>();
            assert!(terminal.wait_for_output(before, SOON), "{keys:?}: nothing was drawn at {cols}×{rows}: {:?}", text());
        }
    }
    terminal.wait_for(|screen| screen.contains("all 1,000"), SOON);
    // If a key and a change of the size come at the same moment, crossterm 0.29 reports the key only with the next key. It
    // forgets that the key is ready when it handles the signal first (event/source/unix/mio.rs).
    terminal.wait_quiet(Duration::from_millis(300), SOON);
    quit(terminal);
}

#[test]
fn each_picture_is_shown_when_it_is_complete() {
    let shop = Shop::new();
    let mut terminal = shop.view(&[], 24, 80, &[]);
    terminal.keys("j j l 2 1 q");
    terminal.wait_exit_within(SOON);
    terminal.assert_restored();
    let raw = terminal.raw();
    assert!(find(&raw, b"\x1b[22;0t") < find(&raw, b"\x1b]0;flametop"), "the title is kept before it is set");
    // All drawing is between the two marks.
    let text = String::from_utf8_lossy(&raw).into_owned();
    let pictures: Vec<&str> = text.split("\x1b[?2026h").skip(1).collect();
    assert!(pictures.len() >= 5, "{} pictures", pictures.len());
    for picture in &pictures[..pictures.len() - 1] {
        let (drawn, after) = picture.split_once("\x1b[?2026l").expect("a picture that is never shown");
        assert!(after.is_empty(), "drawn outside of a picture: {after:?}");
        assert!(!drawn.contains("\x1b[?2026"), "{drawn:?}");
    }
}

#[test]
fn a_terminal_of_one_cell_can_be_started_in_and_left() {
    let shop = Shop::new();
    let terminal = shop.view(&[], 1, 1, &[]);
    assert!(terminal.wait_for_output(0, SOON));
    terminal.keys("? Esc / x Esc 2 j");
    quit(terminal);
}

#[test]
fn names_in_a_file_never_reach_the_terminal_raw() {
    let shop = Shop::new();
    let long = "n".repeat(10_000);
    let evil = "web;\x1b]0;owned\x07;\x1b[2J\x1b[31m\u{9b}31mevil;rtl\u{202e}serve;car\rriage 900\n";
    std::fs::write(shop.path("shop.folded"), format!("{evil}web;serve;{long} 100\n")).unwrap();
    let terminal = shop.view(&[], 24, 80, &[]);
    terminal.keys("j j j j");
    terminal.keys("2");
    terminal.wait_for_text("self ▼", SOON);
    terminal.keys("j 1");
    prompt(&terminal, SEARCH, "nnnn");
    terminal.keys("n");
    terminal.wait_for(|screen| detail(screen).contains("nnnn"), SOON);
    let raw = terminal.raw();
    for forbidden in [&b"owned\x07"[..], b"\x1b]0;owned", b"\x1b[2J\x1b[31m", b"\xc2\x9b", "\u{202e}".as_bytes()] {
        assert!(find(&raw, forbidden).is_none(), "{:?} reached the terminal", String::from_utf8_lossy(forbidden));
    }
    quit(terminal);
}

#[test]
fn keys_and_colours_come_from_the_configuration_file() {
    let shop = Shop::new();
    let home = shop.path("home");
    std::fs::create_dir_all(home.join("flametop")).unwrap();
    let file = home.join("flametop/config.toml");
    std::fs::write(&file, "palette = 'colour-blind'\ncolor = 'true'\n[keys]\nquit = ['Z', 'F10']\nsearch = []\n").unwrap();
    let terminal = shop.view(&[], 40, 132, &[("XDG_CONFIG_HOME", home.to_str().unwrap())]);
    let hints = |screen: &str| screen.lines().last().unwrap_or_default().to_owned();
    let screen = terminal.wait_for(|screen| hints(screen).contains("Z quit"), SOON);
    assert!(!hints(&screen).contains("search"), "{screen}");
    // Vermilion for user code, where the standard colours have a paler brown.
    let (row, column) = position(&terminal, "serve");
    let ground = terminal.with_screen(|screen| screen.cell(row, column).unwrap().bgcolor());
    assert!(matches!(ground, vt100::Color::Rgb(200..=255, 100..=150, 0..=60)), "{ground:?}");
    terminal.keys("? /");
    terminal.text("quit");
    terminal.wait_for(|screen| screen.lines().any(|line| line.contains("Z F10 Ctrl-C") && line.contains("quit")), SOON);
    terminal.keys("Esc Esc q F10");
    let mut terminal = terminal;
    assert!(terminal.wait_exit_within(SOON).success());
    terminal.assert_restored();
    // The option wins; errors in the file are reported before the screen is taken.
    std::fs::write(&file, "\n[keys]\nqiut = 'Z'\n").unwrap();
    for command in [vec!["view", "-", "--config", file.to_str().unwrap()], vec!["--config", file.to_str().unwrap()]] {
        let mut terminal = Terminal::start(&command, 24, 250, &[]);
        assert!(!terminal.wait_exit_within(SOON).success());
        let screen = terminal.screen();
        assert!(screen.contains("config.toml, line 3: unknown action `qiut`; did you mean `quit`?"), "{screen}");
        assert!(find(&terminal.raw(), b"\x1b[?1049h").is_none(), "{screen}");
    }
}
