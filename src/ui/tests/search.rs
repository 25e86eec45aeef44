//! Searching, and going from match to match.

use super::*;

#[test]
fn a_search_tells_its_share_while_it_is_typed_and_esc_takes_it_back() {
    let mut bench = Bench::new();
    bench.keys("/memcpy");
    let found = bench.app.scene.snapshot.search.clone().unwrap();
    assert_eq!((found.weight, found.nodes), (50, 2));
    assert!(bench.screen(100, 24).contains("50.0 % of samples"));
    bench.key(KeyCode::Enter);
    bench.keys("n");
    assert_eq!(bench.cursor(), "nginx;_start;main;worker;send;memcpy");
    bench.keys("n");
    assert_eq!(bench.cursor(), "postgres;_start;main;exec;scan;memcpy");
    bench.keys("N");
    assert_eq!(bench.cursor(), "nginx;_start;main;worker;send;memcpy");
    bench.keys("/xx");
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.scene.search.as_ref().map(|pattern| pattern.source()), Some("memcpy"));
    bench.keys("/(");
    assert!(bench.screen(100, 24).contains("unclosed group"));
}

#[test]
fn the_next_match_is_found_before_the_search_is_answered() {
    let mut bench = Bench::new();
    bench.keys("/memcpy");
    // From here on, requests are not answered.
    for code in [KeyCode::Enter, KeyCode::Char('n')] {
        bench.app.scene.snapshot = Arc::new(Snapshot { search: None, ..(*bench.app.scene.snapshot).clone() });
        bench.app.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    assert!(bench.cursor().ends_with(";memcpy"), "{}", bench.cursor());
}

/// Two processes with 2,000 samples, and three frames of one sample each that match `/needle/`.
fn with_needles() -> Bench {
    Bench::of(&[
        (10, "nginx", "_start;main;worker;parse", 1000),
        (10, "nginx", "_start;main;log;rare;needle", 1),
        (20, "postgres", "_start;main;exec;sort", 999),
        (20, "postgres", "_start;main;exec;needle;deeper_needle", 1),
    ])
}

#[test]
fn a_search_reaches_every_frame_that_it_counted() {
    let mut bench = with_needles();
    bench.keys("/needle");
    assert_eq!(bench.app.scene.snapshot.search.as_ref().unwrap().nodes, 3);
    bench.key(KeyCode::Enter);
    let mut seen = vec![bench.cursor()];
    for number in [2, 3] {
        assert!(
            bench
                .screen(100, 24)
                .contains(&format!("match {} of 3, heaviest first; too narrow without this zoom, Esc goes back", number - 1))
        );
        bench.keys("n");
        seen.push(bench.cursor());
    }
    seen.sort();
    let postgres = "postgres;_start;main;exec;needle";
    assert_eq!(seen, ["nginx;_start;main;log;rare;needle", postgres, "postgres;_start;main;exec;needle;deeper_needle"]);
    bench.keys("N");
    bench.keys("n");
    let screen = bench.screen(100, 24);
    assert!(screen.contains("match 3 of 3"), "{screen}");
    bench.keys("n");
    assert_eq!(bench.app.scene.message.as_ref().unwrap().text.split(',').next(), Some("match 1 of 3"));
    // One key leads back to where the search began, however many matches were visited.
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.views.flame.zoom, Place::default());
}

#[test]
fn a_match_is_shown_with_as_many_of_its_callers_as_its_width_allows() {
    let mut bench = with_needles();
    bench.keys("/^needle$");
    bench.key(KeyCode::Enter);
    let cursor = bench.cursor();
    let screen = bench.screen(100, 24);
    let zoom = bench.app.views.flame.zoom.path.len();
    match &*cursor {
        // `log` has one sample, its caller a thousand.
        "nginx;_start;main;log;rare;needle" => assert_eq!(zoom, 4, "{screen}"),
        "postgres;_start;main;exec;needle" => assert_eq!(zoom, 5, "{screen}"),
        _ => panic!("{cursor}"),
    }
    assert!(screen.contains("needle"), "{screen}");
}

#[test]
fn a_search_stays_in_the_zoomed_box_while_it_has_matches() {
    let mut bench = Bench::new();
    bench.keys("/^postgres$");
    bench.key(KeyCode::Enter);
    bench.key(KeyCode::Enter);
    bench.keys("/memcpy");
    bench.key(KeyCode::Enter);
    for _ in 0..3 {
        assert_eq!(bench.cursor(), "postgres;_start;main;exec;scan;memcpy");
        bench.keys("n");
    }
    // Of a name that the box does not have, the matches elsewhere are shown, and the box is the place to go back to.
    bench.keys("/parse");
    bench.key(KeyCode::Enter);
    assert_eq!((&*bench.cursor(), bench.app.views.flame.zoom.path.len()), ("nginx;_start;main;worker;parse", 0));
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.views.flame.zoom.path.len(), 1);
}

#[test]
fn a_name_that_the_table_does_not_have_is_found_in_the_graph() {
    let mut bench = Bench::new();
    bench.keys("2/^nginx$");
    bench.key(KeyCode::Enter);
    assert_eq!((bench.app.scene.view, &*bench.cursor()), (View::Flame, "nginx"));
    bench.keys("2/nowhere");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.view, View::Functions);
    assert!(bench.screen(100, 24).contains("no match of /nowhere/ in view"));
}

#[test]
fn a_search_waits_for_the_first_picture() {
    let mut bench = Bench::new();
    let picture = std::mem::take(&mut bench.app.scene.snapshot);
    for code in "/memcpy".chars().map(KeyCode::Char).chain([KeyCode::Enter]) {
        bench.app.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    assert!(bench.screen(100, 24).contains("counting …; the first match of /memcpy/ will be shown"));
    bench.app.update(Event::Snapshot(picture));
    assert!(bench.cursor().ends_with(";memcpy"), "{}", bench.cursor());
    assert!(bench.screen(100, 24).contains("match 1 of 2"));
}
