//! Tests orientation: rows beyond the edges, shares of the machine, the way back, and the descriptions of frames and failures.

use ratatui::style::Modifier;

use super::*;

#[test]
fn rows_below_the_screen_are_told_with_what_is_hot_there() {
    let mut bench = Bench::new();
    let screen = bench.screen(100, 9);
    // Header, detail and keys take four lines. Five of seven rows are visible.
    assert!(screen.contains(" ▼ 2 rows more, hottest parse 40.0 %   a folds chains "), "{screen}");
    // The edges of boxes below do not show through it, at any position.
    for columns in 56..76 {
        bench.screen(columns, 10);
        let mut terminal = Terminal::new(TestBackend::new(columns, 10)).unwrap();
        terminal.draw(|frame| draw(&bench.app, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let chip = bench.app.scene.theme.chip().bg.unwrap();
        let is_reversed = |cell: &&ratatui::buffer::Cell| cell.bg == chip && cell.modifier.contains(Modifier::REVERSED);
        let reversed = buffer.content().iter().filter(is_reversed).count();
        assert_eq!(reversed, 0, "on {columns} columns");
    }
    bench.keys("i");
    let screen = bench.screen(100, 9);
    assert!(screen.lines().nth(2).unwrap().contains(" ▲ 2 rows more, hottest parse 40.0 %"), "{screen}");
    assert!(!bench.screen(100, 24).contains("rows more"));
}

#[test]
fn widths_may_be_shares_of_the_machine() {
    let mut bench = Bench::new();
    bench.keys("M");
    assert!(bench.screen(100, 24).contains("only for CPU time"), "{}", bench.screen(100, 24));
    // 100 samples of a twentieth of a second are five seconds. One CPU has six.
    let clock = crate::profile::Clock { period: SECOND / 20, cpus: 1, since: Timestamp(SECOND), until: None };
    bench.profile.write().unwrap().set_clock(clock);
    // The same again, after another request.
    bench.keys("IIM");
    let screen = bench.screen(100, 24);
    assert!(screen.lines().nth(2).unwrap().contains("idle 16.7 %"), "{screen}");
    assert!(screen.contains("widths are shares of the machine"));
    // A zoomed frame has the whole width again.
    bench.keys("jl");
    bench.key(KeyCode::Enter);
    assert!(!bench.screen(100, 24).contains("idle"));
    bench.key(KeyCode::Esc);
    assert!(bench.screen(100, 24).contains("idle"));
    bench.keys("M");
    assert!(!bench.screen(100, 24).contains("idle"));
}

#[test]
fn failures_can_be_read_again_in_view_5() {
    let mut bench = Bench::new();
    bench.send(Event::Saved(Saved::Failed("failed to write out.svg: no room".to_owned())));
    bench.keys("5");
    let screen = bench.screen(100, 40);
    assert!(screen.contains("Recent failures") && screen.contains("  failed to write out.svg: no room"), "{screen}");
}

#[test]
fn a_function_without_a_name_tells_why() {
    let mut bench = Bench::new();
    let label = bench.app.scene.names.labels.intern("prog+0x12", "prog", FrameKind::Unknown);
    let frame = bench.app.scene.names.intern_named(label);
    let process = bench.app.scene.names.labels.intern("nginx", "", FrameKind::Process);
    let thread = Thread { tgid: Tgid(10), tid: Tid(10), process, name: process, ..Thread::default() };
    let sample = Sample { time: Timestamp(6 * SECOND), weight: 20, ..Sample::default() };
    bench.profile.write().unwrap().record(thread, [frame], sample);
    let problem = Problem {
        path: "/usr/bin/prog".to_owned(),
        reason: "it has no symbols".to_owned(),
        unnamed: 1,
        remedy: "install prog-dbg".to_owned(),
    };
    bench.app.scene.status.problems = vec![problem];
    bench.keys("g");
    bench.keys("/prog.0x12");
    bench.key(KeyCode::Enter);
    let screen = bench.screen(160, 24);
    assert!(screen.contains("it has no symbols; install prog-dbg"), "{screen}");
    bench.keys("2n");
    let screen = bench.screen(160, 24);
    assert!(screen.contains("it has no symbols; install prog-dbg"), "{screen}");
}

#[test]
fn from_callers_and_callees_there_is_a_way_back() {
    let mut bench = Bench::new();
    bench.keys("/^parse$");
    bench.key(KeyCode::Enter);
    bench.keys("n");
    let cursor = bench.app.cursor().clone();
    for back in [KeyCode::Char('s'), KeyCode::Esc] {
        bench.keys("s");
        let screen = bench.screen(120, 24);
        assert!(bench.app.scene.view == View::Functions && screen.contains("called by, % of its total"), "{screen}");
        assert!(screen.lines().any(|line| line.contains("100 %") && line.contains("  ▸ ▌worker")), "{screen}");
        bench.key(back);
        assert_eq!((bench.app.scene.view, bench.app.cursor()), (View::Flame, &cursor));
        assert!(bench.app.views.functions.open.is_none());
    }
    // A view that was chosen directly is not a way back: `s` opens there.
    bench.keys("s12s");
    assert!(bench.app.scene.view == View::Functions && bench.app.views.functions.open.is_some());
    bench.key(KeyCode::Esc);
    assert!(bench.app.scene.view == View::Functions && bench.app.views.functions.open.is_none());
}

#[test]
fn the_pointer_tells_all_about_a_row_of_a_table() {
    let mut bench = Bench::new();
    bench.keys("2");
    let body = bench.app.scene.areas().body;
    let hovered = |bench: &mut Bench| {
        let screen = bench.screen(120, 24);
        screen.lines().nth(usize::from(body.bottom()) - 1).unwrap().trim_matches(['"', ' ']).to_owned()
    };
    assert_eq!(hovered(&mut bench), "");
    // The first row has the cursor. The line below the view describes it.
    bench.mouse(MouseEventKind::Moved, 30, body.y + 1);
    assert_eq!(hovered(&mut bench), "");
    bench.mouse(MouseEventKind::Moved, 30, body.y + 2);
    let row = bench.screen(120, 24).lines().nth(usize::from(body.y) + 2).unwrap().to_owned();
    let words = hovered(&mut bench);
    let name = words.split_whitespace().next().unwrap();
    assert!(row.contains(name) && words.contains("  self ") && words.contains("  total "), "{words}\n{row}");
    bench.keys("3");
    assert_eq!(hovered(&mut bench), "", "a key takes it away");
    bench.mouse(MouseEventKind::Moved, 30, body.y + 2);
    assert!(hovered(&mut bench).contains(" % of the samples shown"), "{}", hovered(&mut bench));
    bench.mouse(MouseEventKind::Moved, 30, body.y + 9);
    assert_eq!(hovered(&mut bench), "", "there is no row");
}

#[test]
fn beside_a_wide_table_the_open_function_has_flame_graphs_of_callers_and_callees() {
    let mut bench = Bench::new();
    bench.keys("2");
    bench.keys("/^worker$");
    bench.key(KeyCode::Enter);
    bench.keys("s");
    let narrow = bench.screen(110, 24);
    assert!(!narrow.contains("▲ callers"), "{narrow}");
    let screen = bench.screen(132, 24);
    // The place of a name in the graphs, by its last occurrence in a line.
    let place = |screen: &str, name: &str| {
        let found = |(y, line): (usize, &str)| {
            let line = line.trim_start_matches('"');
            let at = line.rfind(name).filter(|at| line[..*at].chars().count() > 55)?;
            Some((line[..at].chars().count() as u16, y as u16))
        };
        screen.lines().enumerate().find_map(found).unwrap_or_else(|| panic!("no {name} in\n{screen}"))
    };
    let (main, worker, parse) = (place(&screen, "main"), place(&screen, "worker 3.00 s of CPU"), place(&screen, "parse"));
    assert!(main.1 + 1 == worker.1 && worker.1 + 1 == parse.1, "{screen}");
    assert!(screen.contains("▲ callers") && parse.0 == worker.0, "{screen}");
    bench.mouse(MouseEventKind::Moved, parse.0, parse.1);
    assert!(bench.screen(132, 24).contains(" parse  is called for 2.00 s (66.7 %) "), "{}", bench.screen(132, 24));
    // A click opens the path to it in the table, a second click opens the function.
    let start = place(&screen, "_start");
    bench.click(start.0, start.1);
    let label = |bench: &Bench, label: Option<LabelId>| label.map(|label| bench.app.scene.names.labels.name(label).to_owned());
    let under = bench.app.views.functions.label_under_cursor(&bench.app.scene.snapshot);
    assert_eq!(label(&bench, under).as_deref(), Some("_start"));
    assert_eq!(label(&bench, bench.app.views.functions.open).as_deref(), Some("worker"));
    bench.click(start.0, start.1);
    assert_eq!(label(&bench, bench.app.views.functions.open).as_deref(), Some("_start"));
    bench.keys("g");
    let screen = bench.screen(132, 24);
    assert!(place(&screen, "_start 5.00 s of CPU").1 + 1 == place(&screen, "main").1, "{screen}");
}

#[test]
fn health_tells_how_many_stacks_are_complete_why_others_are_not_and_what_has_none() {
    let mut bench = Bench::new();
    let names = Arc::clone(&bench.app.scene.names);
    let mut profile = Profile::new(Limits::default());
    let frame = names.intern_named(names.labels.intern("main", "prog", FrameKind::User));
    for (user_end, count) in
        [(UserEnd::Root, 7), (UserEnd::Gap, 2), (UserEnd::Cut, 1), (UserEnd::NoMemory, 4), (UserEnd::KernelThread, 3)]
    {
        for _ in 0..count {
            profile.record(Thread::default(), [frame], Sample { time: Timestamp(SECOND), user_end, ..Sample::default() });
        }
    }
    bench.engine = Engine::new(names, Arc::default(), Arc::new(RwLock::new(profile)));
    bench.keys("2");
    bench.keys("5");
    let screen = bench.screen(120, 40);
    let lines: Vec<&str> = screen.lines().map(|line| line.trim_matches('"').trim()).collect();
    let at = |words: &str| lines.iter().position(|line| *line == words).unwrap_or_else(|| panic!("no {words} in\n{screen}"));
    let rows = [
        "7   70.0 %  complete: they reach the start of the program or thread",
        "2   20.0 %  code without usable unwind information",
        "1   10.0 %  deeper than the limit, cut at the root side",
        "Without a user stack:",
        "3           kernel threads",
        "4           exiting: the process's memory was gone",
    ];
    let places = rows.map(at);
    assert!(places.is_sorted(), "{screen}");
    // Such a small number of samples causes no warning.
    assert!(screen.contains("stacks 70.0 % complete"), "{screen}");
}

#[test]
fn the_end_of_the_help_is_a_key_away_and_on_wide_screens_there_are_two_lists() {
    let mut bench = Bench::new();
    bench.screen(100, 24);
    bench.keys("?");
    let first = bench.screen(100, 24);
    assert!(first.contains(" 1–") && first.contains("Move") && !first.contains("Colours"), "{first}");
    bench.key(KeyCode::End);
    let last = bench.screen(100, 24);
    assert!(last.contains("Colours") && !last.contains(" Move "), "{last}");
    bench.key(KeyCode::Down);
    assert_eq!(bench.screen(100, 24), last, "no further");
    bench.key(KeyCode::Home);
    assert_eq!(bench.screen(100, 24), first);
    let wide = bench.screen(180, 50);
    let line = wide.lines().find(|line| line.contains(" h Left ")).unwrap();
    assert!(line.matches("  ").count() > 2 && wide.contains("Colours") && wide.contains("Move"), "{wide}");
}

#[test]
fn the_cursor_is_on_the_same_process_when_its_table_comes_back() {
    let mut bench = Bench::new();
    bench.keys("3j");
    let selected = |bench: &Bench| bench.app.views.processes.selected(&bench.app.scene.snapshot, &bench.app.scene.names);
    let before = selected(&bench);
    assert!(before.is_some());
    bench.keys("1");
    // Meanwhile another process is the busiest: the rows change places.
    let names = Arc::clone(&bench.app.scene.names);
    let process = names.labels.intern("make", "", FrameKind::Process);
    let frame = names.intern_named(names.labels.intern("main", "make", FrameKind::User));
    let thread = Thread { tgid: Tgid(30), tid: Tid(30), process, name: process, ..Thread::default() };
    for _ in 0..500 {
        let sample = Sample { time: Timestamp(6 * SECOND + 1), user_end: UserEnd::Root, ..Sample::default() };
        bench.profile.write().unwrap().record(thread, [frame], sample);
    }
    bench.keys("g3");
    assert!(bench.screen(120, 24).contains("make"));
    assert_eq!(selected(&bench), before);
}
