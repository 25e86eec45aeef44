//! Tests the selected time: frozen, selected by keys, on the strip and on the map, fading.

use super::*;

fn between(from: u64, to: u64) -> Span {
    Span::Between(Timestamp(from * SECOND), Timestamp(to * SECOND))
}

#[test]
fn freezing_holds_the_time_and_nothing_else() {
    let mut bench = Bench::new();
    bench.keys(" ");
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::Between(Timestamp(0), Timestamp(7 * SECOND)));
    bench.keys("&parse");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 40);
    bench.keys(" ");
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::All);
}

#[test]
fn a_range_of_time_can_be_moved_and_widened() {
    let mut bench = Bench::new();
    bench.keys("[");
    let Span::Between(from, to) = bench.app.scene.span else { panic!("{:?}", bench.app.scene.span) };
    assert!(bench.app.scene.snapshot.tree.total() <= 100 && from < to);
    bench.keys("{{");
    let narrow = bench.app.scene.snapshot.tree.total();
    assert!(narrow < 100 && narrow > 0, "{narrow}");
    bench.keys("}}}}");
    assert!(bench.app.scene.snapshot.tree.total() > narrow);
    bench.keys("c");
    assert_eq!((bench.app.scene.span, bench.app.scene.snapshot.tree.total()), (Span::All, 100));
}

#[test]
fn time_is_selected_on_its_map() {
    let mut bench = Bench::new();
    bench.keys("4");
    let screen = bench.screen(80, 24);
    assert!(screen.contains("one column is 1 s, from top to bottom; one row is 40 ms"), "{screen}");
    // 20 samples a second; the last one is in second 6. Selects two seconds back from there, to the end of the row.
    bench.key(KeyCode::Left);
    bench.key(KeyCode::Left);
    bench.key(KeyCode::Enter);
    bench.key(KeyCode::Right);
    assert!(bench.screen(80, 24).contains("shows this range"), "{}", bench.screen(80, 24));
    bench.key(KeyCode::Enter);
    let Span::Between(from, to) = bench.app.scene.span else { panic!("{:?}", bench.app.scene.span) };
    let width = to.since(from);
    assert_eq!((bench.app.scene.view, from.0 / SECOND), (View::Flame, 4));
    assert!((SECOND..SECOND + SECOND / 20).contains(&width), "{width}");
    assert!((20..=21).contains(&bench.app.scene.snapshot.tree.total()), "{}", bench.app.scene.snapshot.tree.total());
    assert!(bench.screen(120, 24).contains("s selected"));
    // The mouse: press, move, release.
    bench.keys("c4");
    let left = MouseButton::Left;
    bench.mouse(MouseEventKind::Down(left), 10, 6);
    bench.mouse(MouseEventKind::Drag(left), 14, 9);
    bench.mouse(MouseEventKind::Up(left), 14, 9);
    assert!(matches!(bench.app.scene.span, Span::Between(..)) && bench.app.scene.view == View::Flame);
    // A click alone selects nothing. Esc discards a begun selection.
    bench.keys("c4");
    bench.click(10, 6);
    bench.mouse(MouseEventKind::Up(left), 10, 6);
    assert_eq!((bench.app.scene.span, bench.app.scene.view), (Span::All, View::Time));
    bench.key(KeyCode::Enter);
    bench.key(KeyCode::Esc);
    assert!(bench.app.views.time.anchor.is_none() && bench.app.scene.view == View::Time);
    // A selection begun with a key does not end when the mouse's button is released.
    bench.key(KeyCode::Enter);
    bench.key(KeyCode::Left);
    bench.mouse(MouseEventKind::Up(left), 10, 6);
    assert!(bench.app.views.time.anchor.is_some() && bench.app.scene.view == View::Time);
}

#[test]
fn cpus_of_a_number_that_is_not_known_are_not_shown() {
    let mut bench = Bench::new();
    (bench.app.scene.status.cpus, bench.app.scene.status.live) = (0, false);
    for key in ["1", "2", "3", "4", "5"] {
        bench.keys(key);
        let screen = bench.screen(140, 24);
        assert!(!screen.contains("of 0 CPU") && !screen.contains(" 0 CPUs"), "{screen}");
    }
    bench.keys("4");
    assert!(bench.screen(140, 24).contains("█ most"), "{}", bench.screen(140, 24));
    assert!(bench.app.scene.facts().contains(&"20 Hz".to_owned()), "{:?}", bench.app.scene.facts());
}

#[test]
fn a_file_tells_no_time() {
    let mut bench = Bench::new();
    bench.become_a_file();
    bench.keys("4");
    assert!(bench.screen(80, 24).contains("the samples of this file have no times") && bench.app.scene.snapshot.heat.is_none());
    bench.key(KeyCode::Enter);
    bench.keys("mz");
    assert_eq!((bench.app.scene.span, bench.app.scene.frozen), (Span::All, None));
}

#[test]
fn a_live_view_is_no_file_before_the_first_status() {
    let mut bench = Bench::new();
    bench.app.scene.status = Status::default();
    for (key, title) in [("H", "all cgroups"), ("C", "all CPUs")] {
        bench.keys(key);
        assert!(bench.screen(80, 24).contains(title), "{key}: {}", bench.screen(80, 24));
        bench.key(KeyCode::Esc);
    }
}

#[test]
fn the_past_fades_when_asked_to() {
    let mut bench = Bench::new();
    bench.keys("mmm");
    assert_eq!(bench.app.scene.span, Span::Fading(10));
    let screen = bench.screen(100, 24);
    assert!(screen.contains("fading, half 10 s"), "{screen}");
    // Samples of one to six seconds ago, of 100.
    let samples = bench.app.scene.snapshot.amount();
    assert!((70..90).contains(&samples), "{samples}");
    assert!(
        screen.contains("postgres 1.5"),
        "later than nginx: more than a third is left of 35 samples, which are 1.75 s\n{screen}"
    );
    bench.keys("w");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.last() else { panic!("{:?}", bench.others) };
    assert_eq!(order.tree.total() / order.one, samples);
}

#[test]
fn a_drag_over_the_time_strip_selects_from_where_it_began_to_where_it_is() {
    let mut bench = Bench::new();
    let time = bench.app.scene.areas().time;
    let left = MouseButton::Left;
    // Samples are in the seconds 1 to 6, a column each.
    let screen = bench.screen(80, 24);
    let strip = screen.lines().nth(1).unwrap().chars().position(|c| "▁▂▃▄▅▆▇█".contains(c)).unwrap() as u16 - 1;
    bench.click(strip + 1, time.y);
    assert_eq!((bench.app.scene.span, bench.app.scene.snapshot.tree.total()), (between(2, 3), 20));
    bench.mouse(MouseEventKind::Drag(left), strip + 3, time.y);
    assert_eq!((bench.app.scene.span, bench.app.scene.snapshot.tree.total()), (between(2, 5), 60));
    bench.mouse(MouseEventKind::Drag(left), strip + 2, time.y + 5);
    assert_eq!(bench.app.scene.span, between(2, 4), "back again, and off the strip");
    bench.mouse(MouseEventKind::Drag(left), 0, time.y);
    assert_eq!(bench.app.scene.span, between(1, 3), "to the other side");
    bench.mouse(MouseEventKind::Up(left), 0, time.y);
    bench.mouse(MouseEventKind::Drag(left), strip + 3, time.y);
    assert_eq!(bench.app.scene.span, between(1, 3), "the button was let go");
    bench.keys("c");
    let body = bench.app.scene.areas().body;
    bench.click(2, body.y + 1);
    bench.mouse(MouseEventKind::Drag(left), strip + 3, time.y);
    assert_eq!(bench.app.scene.span, Span::All, "what begins elsewhere selects no time");
}

#[test]
fn the_range_is_a_chip_with_clock_times() {
    let mut bench = Bench::new();
    let chip = |bench: &mut Bench| bench.screen(132, 24).lines().nth(1).unwrap().to_owned();
    bench.app.scene.begin_with(Span::Last(60));
    bench.keys("g");
    assert!(chip(&mut bench).contains("│ last 60 s   ") && !chip(&mut bench).contains('×'), "{}", chip(&mut bench));
    // A click switches to the next usual time, and removes another time.
    let line = chip(&mut bench);
    let column = line[..line.find("last 60 s").unwrap()].chars().count() as u16 - 1;
    bench.click(column, 1);
    assert!(chip(&mut bench).contains(" last 10 s × "), "{}", chip(&mut bench));
    bench.click(column, 1);
    assert_eq!(bench.app.scene.span, Span::Last(60));
    // Sampling's clock began at 23:59:57 local time.
    bench.app.scene.status.wall = Some((24 * 60 * 60 - 3) * SECOND as i64);
    bench.app.scene.span = between(2, 5);
    assert!(chip(&mut bench).contains(" 23:59:59–00:00:02 × "), "{}", chip(&mut bench));
    bench.app.scene.span = Span::Between(Timestamp(4 * SECOND + SECOND / 2), Timestamp(5 * SECOND));
    assert!(chip(&mut bench).contains(" 00:00:01, 0.50 s × "), "{}", chip(&mut bench));
    // Esc returns to the usual time.
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.scene.span, Span::Last(60));
}

#[test]
fn the_use_of_now_is_not_that_of_the_time_shown() {
    let mut bench = Bench::new();
    let line = |bench: &mut Bench| bench.screen(132, 24).lines().nth(1).unwrap().to_owned();
    assert!(line(&mut bench).contains("now 0.1 of 1 CPU "), "{}", line(&mut bench));
    bench.key(KeyCode::Char(' '));
    assert!(line(&mut bench).contains("was 0.1 of 1 CPU "), "{}", line(&mut bench));
    // After the end there is no such moment.
    bench.app.scene.status.live = false;
    assert!(!line(&mut bench).contains("CPU"), "{}", line(&mut bench));
}

#[test]
fn a_selected_time_is_compared_with_the_time_before_it() {
    let mut bench = Bench::new();
    bench.app.scene.begin_with(Span::Last(60));
    bench.app.scene.span = between(5, 7);
    bench.keys("d");
    let baseline = bench.app.scene.compare.baseline.clone().unwrap();
    // Six times two seconds, as far as there are samples.
    let first = bench.app.scene.snapshot.span.unwrap().0;
    assert_eq!(baseline.query.range, TimeRange::Between(first, Timestamp(5 * SECOND)));
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::Between(Timestamp(5 * SECOND), Timestamp(7 * SECOND)));
    bench.keys("d");
    assert!(bench.app.scene.compare.baseline.is_none() && bench.app.scene.span == between(5, 7));
    // Seconds that begin with the first sample have nothing before them.
    bench.app.scene.span = between(1, 3);
    bench.keys("d");
    assert!(bench.screen(132, 24).contains("no samples before the selected time; b marks a baseline"));
}
