//! The state machine and the drawing, driven without a terminal.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::profile::{
    CgroupId, Cpu, Direction, Engine, FilterMode, FrameKind, Limits, Names, Profile, Query, Sample, Tgid, Thread, Tid, TimeRange,
    Timestamp, UserEnd,
};

const SECOND: u64 = 1_000_000_000;

fn between(from: u64, to: u64) -> Span {
    Span::Between(Timestamp(from * SECOND), Timestamp(to * SECOND))
}

/// A program with samples of two processes, and the engine that answers it.
struct Bench {
    app: App,
    engine: Engine,
    asked: Vec<Request>,
    others: Vec<Effect>,
}

impl Bench {
    fn new() -> Bench {
        let names = Arc::new(Names::default());
        let mut profile = Profile::new(Limits::default());
        let stacks: [(u32, &str, &str, u64); 5] = [
            (10, "nginx", "_start;main;worker;parse", 40),
            (10, "nginx", "_start;main;worker;send;memcpy", 20),
            (10, "nginx", "_start;main;log", 5),
            (20, "postgres", "_start;main;exec;scan;memcpy", 30),
            (20, "postgres", "_start;main;exec;sort", 5),
        ];
        let mut time = 0;
        for (tgid, process, path, count) in stacks {
            let process = names.labels.intern(process, "", FrameKind::Process);
            let thread = Thread { tgid: Tgid(tgid), tid: Tid(tgid), process, name: process };
            for _ in 0..count {
                time += SECOND / 20;
                let label = |name| names.labels.intern(name, "prog", FrameKind::User);
                let frames: Vec<_> = path.split(';').map(|name| names.intern_named(label(name))).collect();
                let user_end = UserEnd::FramePointerEnd;
                // Processes in cgroups of their number, on CPUs 0 and 2.
                let (cgroup, cpu) = (profile.cgroup(CgroupId(u64::from(tgid))), Cpu(u16::from(tgid == 20) * 2));
                let sample = Sample { time: Timestamp(SECOND + time), weight: 1, cgroup, cpu, user_end, ..Sample::default() };
                profile.record(thread, frames, sample);
            }
        }
        let engine = Engine::new(Arc::clone(&names), Arc::default(), Arc::new(RwLock::new(profile)));
        let mut app = App::new(names, Theme::default(), Query::default(), || "out".to_owned());
        app.status = Status { frequency: 20, cpus: 1, live: true, host: "here".to_owned(), ..Status::default() };
        let mut bench = Bench { app, engine, asked: Vec::new(), others: Vec::new() };
        bench.send(Event::Resize(80, 24));
        bench
    }

    /// Sends an event; what is asked for is answered at once.
    fn send(&mut self, event: Event) {
        for effect in self.app.update(event) {
            match effect {
                Effect::Ask(request) => {
                    let snapshot = self.engine.answer(&request, Timestamp(7 * SECOND));
                    self.asked.push(request);
                    self.send(Event::Snapshot(Arc::new(snapshot)));
                }
                other => self.others.push(other),
            }
        }
    }

    fn key(&mut self, code: KeyCode) {
        self.send(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    fn keys(&mut self, text: &str) {
        text.chars().for_each(|c| self.key(KeyCode::Char(c)));
    }

    fn click(&mut self, column: u16, row: u16) {
        self.mouse(MouseEventKind::Down(MouseButton::Left), column, row);
    }

    fn mouse(&mut self, kind: MouseEventKind, column: u16, row: u16) {
        self.send(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
    }

    fn cursor(&self) -> String {
        self.app.flame.cursor.path.iter().map(|label| self.app.names.labels.name(*label)).collect::<Vec<_>>().join(";")
    }

    fn screen(&mut self, columns: u16, rows: u16) -> String {
        self.send(Event::Resize(columns, rows));
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(&self.app, frame)).unwrap();
        terminal.backend().to_string()
    }
}

#[test]
fn the_cursor_goes_to_the_widest_callee_and_to_neighbours() {
    let mut bench = Bench::new();
    bench.keys("j");
    assert_eq!(bench.cursor(), "nginx");
    bench.keys("jjjj");
    assert_eq!(bench.cursor(), "nginx;_start;main;worker;parse");
    bench.keys("l");
    assert_eq!(bench.cursor(), "nginx;_start;main;worker;send");
    bench.keys("l");
    assert_eq!(bench.cursor(), "postgres;_start;main;exec;scan", "on over the edge of the process");
    bench.keys("k");
    assert_eq!(bench.cursor(), "postgres;_start;main;exec");
    bench.keys("g");
    assert_eq!(bench.cursor(), "");
    bench.keys(">");
    assert_eq!(bench.cursor(), "nginx;_start;main;worker;parse");
}

#[test]
fn with_the_root_at_the_bottom_up_is_away_from_it() {
    let mut bench = Bench::new();
    bench.keys("ik");
    assert_eq!(bench.cursor(), "nginx");
    bench.keys("j");
    assert_eq!(bench.cursor(), "");
}

#[test]
fn zooming_has_a_history_and_esc_never_quits() {
    let mut bench = Bench::new();
    bench.keys("jj");
    bench.key(KeyCode::Enter);
    bench.keys("jj");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.flame.zoom.path.len(), 4);
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.flame.zoom.path.len(), 2);
    for _ in 0..10 {
        bench.key(KeyCode::Esc);
    }
    assert_eq!(bench.app.flame.zoom, Place::default());
    assert!(bench.others.is_empty(), "{:?}", bench.others);
    bench.keys("q");
    assert!(matches!(bench.others.as_slice(), [Effect::Quit]));
}

#[test]
fn a_search_tells_its_share_while_it_is_typed_and_esc_takes_it_back() {
    let mut bench = Bench::new();
    bench.keys("/memcpy");
    let found = bench.app.snapshot.search.clone().unwrap();
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
    assert_eq!(bench.app.search.as_ref().map(|pattern| pattern.source()), Some("memcpy"));
    bench.keys("/(");
    assert!(bench.screen(100, 24).contains("unclosed group"));
}

#[test]
fn the_next_match_is_found_before_the_search_is_answered() {
    let mut bench = Bench::new();
    bench.keys("/memcpy");
    // Nobody answers from here on.
    for code in [KeyCode::Enter, KeyCode::Char('n')] {
        bench.app.snapshot = Arc::new(Snapshot { search: None, ..(*bench.app.snapshot).clone() });
        bench.app.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    assert!(bench.cursor().ends_with(";memcpy"), "{}", bench.cursor());
}

#[test]
fn filters_are_chips_that_can_be_taken_away() {
    let mut bench = Bench::new();
    bench.keys("&memcpy");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.snapshot.tree.total(), 50);
    bench.keys("!postgres");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.snapshot.tree.total(), 20);
    assert_eq!(bench.app.filters().iter().map(|filter| filter.mode).collect::<Vec<_>>(), [FilterMode::Keep, FilterMode::Drop]);
    let screen = bench.screen(120, 24);
    assert!(screen.contains("keep /memcpy/ ×") && screen.contains("drop /postgres/ ×"), "{screen}");
    bench.keys("x");
    assert_eq!(bench.app.snapshot.tree.total(), 50);
    bench.keys("X");
    assert_eq!(bench.app.snapshot.tree.total(), 100);
}

#[test]
fn a_filter_for_the_selected_frame_is_proposed() {
    let mut bench = Bench::new();
    bench.keys("jjjj&");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.filters()[0].pattern.source(), "^worker$");
    assert_eq!(bench.app.snapshot.tree.total(), 60);
}

#[test]
fn p_and_enter_drill_into_the_process_under_the_cursor() {
    let mut bench = Bench::new();
    bench.keys("jl");
    assert_eq!(bench.cursor(), "postgres");
    bench.keys("p");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.target().tgids, [Tgid(20)]);
    assert_eq!(bench.app.snapshot.tree.total(), 35);
    bench.keys("pnginx");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.target().tgids, [Tgid(10)]);
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.snapshot.tree.total(), 100);
}

#[test]
fn a_cgroup_is_chosen_by_its_path_or_by_its_number() {
    let mut bench = Bench::new();
    let path = (CgroupId(20), Arc::from("/system.slice/database.service"));
    bench.app.status.cgroups = Arc::new([path].into_iter().collect());
    bench.keys("G");
    let screen = bench.screen(100, 24);
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains('│') && line.contains(" % ")).collect();
    assert!(rows[0].contains("10") && rows[0].contains("65.0 %") && rows[0].contains("no path is known"), "{screen}");
    assert!(rows[1].contains("35.0 %") && rows[1].contains("database.service  /system.slice/database.service"), "{screen}");
    bench.keys("slcdb");
    bench.key(KeyCode::Enter);
    assert_eq!((bench.app.target().cgroup, bench.app.snapshot.tree.total()), (Some(CgroupId(20)), 35));
    assert!(bench.screen(120, 24).contains(" cgroup database.service × "), "{}", bench.screen(120, 24));
    bench.keys("G10");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.snapshot.tree.total(), 65);
    bench.keys("G");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.snapshot.tree.total(), 100, "all of them are on top");
}

#[test]
fn cpus_to_choose_from_are_those_that_are_on_or_were() {
    let mut bench = Bench::new();
    bench.app.status.online = [0, 5].into();
    bench.keys("C");
    let screen = bench.screen(100, 24);
    let shares = ["0  65.0 %", "2  35.0 %", "5   0.0 %"];
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains(" CPU ") && line.contains('%')).collect();
    assert!(rows.len() == 3 && rows.iter().zip(shares).all(|(row, share)| row.contains(share)), "{screen}");
    assert!(rows[1].contains("off") && !rows[0].contains("off"), "{screen}");
    bench.keys("2");
    bench.key(KeyCode::Enter);
    assert_eq!((bench.app.target().cpu, bench.app.snapshot.tree.total()), (Some(Cpu(2)), 35));
    bench.keys("x");
    assert_eq!(bench.app.snapshot.tree.total(), 100);
}

#[test]
fn the_cursor_stays_on_its_frame_while_the_tree_changes_under_it() {
    let mut bench = Bench::new();
    bench.keys("jl");
    bench.keys("&memcpy");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.cursor(), "postgres");
    bench.keys("!");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.cursor(), "", "what is gone is left for its nearest caller");
}

#[test]
fn a_frame_that_became_too_narrow_is_still_where_the_cursor_is() {
    let mut bench = Bench::new();
    bench.keys("jjjjh");
    assert_eq!(bench.cursor(), "nginx;_start;main;log");
    bench.send(Event::Resize(9, 24));
    bench.keys("j");
    assert_eq!(bench.cursor(), "nginx;_start;main;log", "nothing is below it");
    bench.keys("k");
    assert_eq!(bench.cursor(), "nginx;_start;main");
    bench.keys("j");
    assert_eq!(bench.cursor(), "nginx;_start;main;worker");
}

#[test]
fn freezing_holds_the_time_and_nothing_else() {
    let mut bench = Bench::new();
    bench.keys(" ");
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::Between(Timestamp(0), Timestamp(7 * SECOND)));
    bench.keys("&parse");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.snapshot.tree.total(), 40);
    bench.keys(" ");
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::All);
}

#[test]
fn a_range_of_time_can_be_moved_and_widened() {
    let mut bench = Bench::new();
    bench.keys("[");
    let Span::Between(from, to) = bench.app.span else { panic!("{:?}", bench.app.span) };
    assert!(bench.app.snapshot.tree.total() <= 100 && from < to);
    bench.keys("{{");
    let narrow = bench.app.snapshot.tree.total();
    assert!(narrow < 100 && narrow > 0, "{narrow}");
    bench.keys("}}}}");
    assert!(bench.app.snapshot.tree.total() > narrow);
    bench.keys("c");
    assert_eq!((bench.app.span, bench.app.snapshot.tree.total()), (Span::All, 100));
}

#[test]
fn what_follows_is_compared_with_what_was_marked() {
    let mut bench = Bench::new();
    bench.keys("d");
    assert!(bench.screen(80, 24).contains("b marks what is seen"));
    bench.keys("b");
    assert!(bench.screen(100, 24).contains("100 samples are the baseline now; d shows how what follows differs"));
    bench.keys("d");
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::Between(Timestamp(7 * SECOND), Timestamp(u64::MAX)));
    // Since then nothing was sampled; of the five seconds there are, the last has only postgres.
    assert!(bench.screen(120, 24).contains("difference to 100 samples"));
    bench.keys("m");
    let difference = bench.app.snapshot.difference.clone().unwrap();
    assert_eq!(difference.whole().before, 100);
    bench.keys("c");
    bench.app.span = Span::Between(Timestamp(5 * SECOND), Timestamp(7 * SECOND));
    bench.keys("g");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("+65.0") && screen.contains("-65.0"), "postgres has grown, nginx is gone\n{screen}");
    bench.keys("jl");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("was 35 (35.0 %)") && screen.contains("now 21 (100 %)"), "{screen}");
    bench.keys("2");
    let screen = bench.screen(120, 24);
    let line = |name: &str| screen.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("parse").contains("-40.0") && line("sort").contains("+18.8"), "{screen}");
    // The chip is taken away with a click, and all is as it was.
    bench.keys("1");
    let screen = bench.screen(120, 24);
    let column = screen.lines().nth(1).unwrap().chars().collect::<String>().find("difference").unwrap();
    bench.click(u16::try_from(screen.lines().nth(1).unwrap()[..column].chars().count()).unwrap(), 1);
    assert!(!bench.app.compare.on && bench.app.snapshot.difference.is_none());
}

#[test]
fn a_marked_process_is_seen_beside_another_one() {
    let mut bench = Bench::new();
    bench.app.aim(vec![Tgid(10)], None);
    bench.keys("b");
    bench.app.aim(vec![Tgid(20)], None);
    bench.keys("d");
    bench.app.span = Span::Last(100);
    bench.keys("g");
    let difference = bench.app.snapshot.difference.clone().unwrap();
    assert_eq!((difference.whole().now, difference.whole().before), (35, 65));
    // Of a baseline that was marked without a target, what is chosen now is shown of both.
    bench.keys("Xdb");
    bench.app.aim(vec![Tgid(20)], None);
    bench.keys("d");
    let difference = bench.app.snapshot.difference.clone().unwrap();
    assert_eq!((difference.whole().now, difference.whole().before), (35, 35));
    bench.keys("u");
    assert_eq!(bench.app.snapshot.difference.as_ref().unwrap().whole().before, 35, "bottom-up as well");
    bench.keys("w");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.last() else { panic!("{:?}", bench.others) };
    assert!(order.difference.is_some() && order.title.contains("difference"));
    bench.key(KeyCode::Esc);
    bench.key(KeyCode::Esc);
    assert!(!bench.app.compare.on, "Esc leaves it after the target");
}

#[test]
fn time_is_selected_on_its_map() {
    let mut bench = Bench::new();
    bench.keys("4");
    let screen = bench.screen(80, 24);
    assert!(screen.contains("a column is a second, a row 20 ms of it") || screen.contains("a row 40 ms of it"), "{screen}");
    // 20 samples a second; the last is of second 6. Two seconds back from there, and to the end of the row.
    bench.key(KeyCode::Left);
    bench.key(KeyCode::Left);
    bench.key(KeyCode::Enter);
    bench.key(KeyCode::Right);
    assert!(bench.screen(80, 24).contains("shows what ran in these"), "{}", bench.screen(80, 24));
    bench.key(KeyCode::Enter);
    let Span::Between(from, to) = bench.app.span else { panic!("{:?}", bench.app.span) };
    let width = to.since(from);
    assert_eq!((bench.app.view, from.0 / SECOND), (View::Flame, 4));
    assert!((SECOND..SECOND + SECOND / 20).contains(&width), "{width}");
    assert!((20..=21).contains(&bench.app.snapshot.tree.total()), "{}", bench.app.snapshot.tree.total());
    assert!(bench.screen(120, 24).contains("s selected"));
    // With the mouse: pressed, moved, let go.
    bench.keys("c4");
    let left = MouseButton::Left;
    bench.mouse(MouseEventKind::Down(left), 10, 6);
    bench.mouse(MouseEventKind::Drag(left), 14, 9);
    bench.mouse(MouseEventKind::Up(left), 14, 9);
    assert!(matches!(bench.app.span, Span::Between(..)) && bench.app.view == View::Flame);
    // A click alone selects nothing; Esc leaves what was begun.
    bench.keys("c4");
    bench.click(10, 6);
    bench.mouse(MouseEventKind::Up(left), 10, 6);
    assert_eq!((bench.app.span, bench.app.view), (Span::All, View::Time));
    bench.key(KeyCode::Enter);
    bench.key(KeyCode::Esc);
    assert!(bench.app.time_map.anchor.is_none() && bench.app.view == View::Time);
}

#[test]
fn a_file_tells_no_time() {
    let mut bench = Bench::new();
    let profile = Arc::new(RwLock::new(Profile::new(Limits::NONE)));
    bench.engine = Engine::new(Arc::clone(&bench.app.names), Arc::default(), profile);
    bench.app.status.frequency = 0;
    bench.keys("4");
    assert!(bench.screen(80, 24).contains("a file of folded stacks does not tell when") && bench.app.snapshot.heat.is_none());
    bench.key(KeyCode::Enter);
    bench.keys("mz");
    assert_eq!((bench.app.span, bench.app.frozen), (Span::All, None));
}

#[test]
fn the_past_fades_when_asked_to() {
    let mut bench = Bench::new();
    bench.keys("mmm");
    assert_eq!(bench.app.span, Span::Fading(10));
    let screen = bench.screen(100, 24);
    assert!(screen.contains("fading, half in 10 s"), "{screen}");
    // Samples of one to six seconds ago, of 100.
    let samples = bench.app.snapshot.samples();
    assert!((70..90).contains(&samples), "{samples}");
    assert!(screen.contains("postgres 3"), "later than nginx: more than a third is left of 35\n{screen}");
    bench.keys("w");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.last() else { panic!("{:?}", bench.others) };
    assert_eq!(order.tree.total() / order.unit, samples);
}

#[test]
fn functions_open_to_their_callers_and_callees() {
    let mut bench = Bench::new();
    bench.keys("2");
    assert!(bench.asked.last().unwrap().functions.is_some());
    let screen = bench.screen(120, 30);
    let first = screen.lines().find(|line| line.contains("parse") || line.contains("memcpy")).unwrap().to_owned();
    assert!(first.contains("50") && first.contains("memcpy"), "the most self time comes first: {first}");
    bench.key(KeyCode::Enter);
    let screen = bench.screen(120, 30);
    assert!(screen.contains("called by") && screen.contains("calls"), "{screen}");
    let callers: Vec<&str> = screen.lines().skip_while(|line| !line.contains("called by")).skip(1).take(2).collect();
    assert!(callers[0].contains("scan") && callers[1].contains("send"), "{callers:?}");
    bench.keys("jj");
    bench.key(KeyCode::Enter);
    assert!(bench.screen(120, 30).contains("exec"), "a caller opens to its own callers");
}

#[test]
fn a_process_is_entered_from_the_table_of_processes() {
    let mut bench = Bench::new();
    bench.keys("3");
    let screen = bench.screen(100, 24);
    assert!(screen.contains("nginx") && screen.contains("postgres"), "{screen}");
    bench.keys("S>");
    bench.key(KeyCode::Enter);
    assert_eq!((bench.app.view, bench.app.target().tgids.as_slice()), (View::Flame, &[Tgid(20)][..]));
}

#[test]
fn bottom_up_begins_with_what_ran() {
    let mut bench = Bench::new();
    bench.keys("uj");
    assert_eq!(bench.app.direction(), Direction::BottomUp);
    assert_eq!(bench.cursor(), "memcpy");
}

#[test]
fn saving_asks_before_it_overwrites() {
    let mut bench = Bench::new();
    bench.keys("jw");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.pop() else { panic!() };
    assert_eq!((order.path.clone(), order.overwrite), (PathBuf::from("out.svg"), false));
    bench.send(Event::Saved(Saved::Exists(order.path.clone())));
    assert!(bench.screen(80, 24).contains("out.svg exists. Overwrite it?"));
    bench.keys("y");
    assert!(matches!(bench.others.pop(), Some(Effect::Save(order)) if order.overwrite));
    bench.send(Event::Saved(Saved::Failed("no room on the disk".to_owned())));
    assert!(bench.screen(80, 24).contains("no room on the disk"));
    bench.keys("w");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.pop() else { panic!() };
    bench.send(Event::Saved(Saved::Exists(order.path)));
    bench.keys("n");
    assert!(bench.others.is_empty());
}

#[test]
fn a_click_selects_and_another_one_zooms() {
    let mut bench = Bench::new();
    let body = bench.app.areas().body;
    bench.click(2, body.y + 1);
    assert_eq!(bench.cursor(), "nginx");
    assert_eq!(bench.app.flame.zoom, Place::default());
    bench.click(2, body.y + 1);
    assert_eq!(bench.app.flame.zoom.path.len(), 1);
}

#[test]
fn a_drag_over_the_time_strip_selects_from_where_it_began_to_where_it_is() {
    let mut bench = Bench::new();
    let time = bench.app.areas().time;
    let left = MouseButton::Left;
    // Samples are in the seconds 1 to 6, a column each.
    bench.click(time.x + 2, time.y);
    assert_eq!((bench.app.span, bench.app.snapshot.tree.total()), (between(2, 3), 20));
    bench.mouse(MouseEventKind::Drag(left), time.x + 4, time.y);
    assert_eq!((bench.app.span, bench.app.snapshot.tree.total()), (between(2, 5), 60));
    bench.mouse(MouseEventKind::Drag(left), time.x + 3, time.y + 5);
    assert_eq!(bench.app.span, between(2, 4), "back again, and off the strip");
    bench.mouse(MouseEventKind::Drag(left), 0, time.y);
    assert_eq!(bench.app.span, between(1, 3), "to the other side");
    bench.mouse(MouseEventKind::Up(left), 0, time.y);
    bench.mouse(MouseEventKind::Drag(left), time.x + 4, time.y);
    assert_eq!(bench.app.span, between(1, 3), "the button was let go");
    bench.keys("c");
    let body = bench.app.areas().body;
    bench.click(2, body.y + 1);
    bench.mouse(MouseEventKind::Drag(left), time.x + 4, time.y);
    assert_eq!(bench.app.span, Span::All, "what begins elsewhere selects no time");
}

#[test]
fn help_lists_every_key_of_the_table() {
    let mut bench = Bench::new();
    bench.keys("?");
    let screen = bench.screen(100, 120);
    for binding in BINDINGS {
        assert!(screen.contains(binding.help), "{}", binding.help);
    }
    bench.keys("/freeze");
    let screen = bench.screen(100, 40);
    assert!(screen.contains("freeze the picture") && !screen.contains("next match"), "{screen}");
}

#[test]
fn without_colours_and_in_ascii_nothing_else_is_drawn() {
    let mut bench = Bench::new();
    bench.app.theme = Theme { depth: Depth::None, ascii: true, ..Theme::default() };
    for keys in ["", "/memcpy\n", "?", "2", "3", "5", "p", "&parse\n", "w"] {
        bench.key(KeyCode::Esc);
        bench.key(KeyCode::Esc);
        for c in keys.chars() {
            bench.key(if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) });
        }
        let mut terminal = Terminal::new(TestBackend::new(90, 30)).unwrap();
        terminal.draw(|frame| draw(&bench.app, frame)).unwrap();
        for cell in terminal.backend().buffer().content() {
            assert!(cell.symbol().is_ascii(), "{:?} after {keys}", cell.symbol());
            let plain = ratatui::style::Color::Reset;
            assert!(cell.fg == plain && cell.bg == plain, "{cell:?} after {keys}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Whatever is pressed, at whatever size, nothing breaks and nothing quits but the keys that do.
    #[test]
    fn any_keys_at_any_size_do_no_harm(
        keys in prop::collection::vec(prop_oneof![
            12 => prop::sample::select("hjklgG<>fBrnN#*&!xXpTCmceuisSaveOyw/?125 3[]{}z".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
            2 => Just(KeyCode::Enter),
            2 => Just(KeyCode::Esc),
            1 => Just(KeyCode::Tab),
            1 => Just(KeyCode::Backspace),
            1 => Just(KeyCode::Left),
            1 => Just(KeyCode::PageDown),
        ], 0..60),
        sizes in prop::collection::vec((1u16..140, 1u16..50), 1..5),
        clicks in prop::collection::vec((0u16..140, 0u16..50), 0..4),
    ) {
        let mut bench = Bench::new();
        for (index, key) in keys.into_iter().enumerate() {
            bench.key(key);
            if index % 7 == 0 {
                let (columns, rows) = sizes[index / 7 % sizes.len()];
                bench.screen(columns, rows);
                for (column, row) in &clicks {
                    bench.click(*column, *row);
                }
            }
        }
        for (columns, rows) in [(1, 1), (2, 3), (5, 5), (300, 2), (3, 80)].into_iter().chain(sizes) {
            bench.screen(columns, rows);
        }
        prop_assert!(!bench.others.iter().any(|effect| matches!(effect, Effect::Quit)));
    }
}
