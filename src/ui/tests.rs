//! Tests the state machine and the drawing without a terminal.

mod compare;
mod events;
mod names;
mod orientation;
mod search;
mod sizes;
mod source;
mod time;

use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::profile::{
    Capabilities, CgroupId, Cpu, Direction, Engine, FilterMode, FrameKind, Limits, Names, Profile, Query, Renewals, Sample, Tgid,
    Thread, Tid, TimeRange, Timestamp, Unit, UserEnd,
};

const SECOND: u64 = 1_000_000_000;

/// A program with samples of two processes, and the engine that answers it.
struct Bench {
    app: App,
    engine: Engine,
    profile: Arc<RwLock<Profile>>,
    asked: Vec<Request>,
    others: Vec<Effect>,
    /// Requests about code, which are not answered.
    code: Vec<Effect>,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(&[
            (10, "nginx", "_start;main;worker;parse", 40),
            (10, "nginx", "_start;main;worker;send;memcpy", 20),
            (10, "nginx", "_start;main;log", 5),
            (20, "postgres", "_start;main;exec;scan;memcpy", 30),
            (20, "postgres", "_start;main;exec;sort", 5),
        ])
    }

    /// `stacks`: process, its name, its stack from the root, and the number of its samples.
    fn of(stacks: &[(u32, &str, &str, u64)]) -> Bench {
        let names = Arc::new(Names::default());
        let mut profile = Profile::beside(&names, Limits::default());
        let mut time = 0;
        for &(tgid, process, path, count) in stacks {
            let process = names.labels.intern(process, "", FrameKind::Process);
            // Each process is in a cgroup with its number, on CPUs 0 and 2.
            let cgroup = CgroupId(u64::from(tgid));
            let thread = Thread { tgid: Tgid(tgid), tid: Tid(tgid), process, name: process, cgroup };
            for _ in 0..count {
                time += SECOND / 20;
                let label = |name| names.labels.intern(name, "prog", FrameKind::User);
                let frames: Vec<_> = path.split(';').map(|name| names.intern_named(label(name))).collect();
                let user_end = UserEnd::FramePointerEnd;
                let cpu = Cpu(u16::from(tgid == 20) * 2);
                let sample = Sample { time: Timestamp(SECOND + time), cpu, user_end, ..Sample::default() };
                profile.record(thread, frames, sample);
            }
        }
        let profile = Arc::new(RwLock::new(profile));
        let engine = Engine::new(Arc::clone(&names), Arc::default(), Arc::clone(&profile));
        let mut app = App::new(
            names,
            Theme::default(),
            Query::default(),
            Capabilities::LIVE,
            SaveOffer { name: || "out.svg".to_owned(), endings: vec![".svg".to_owned(), ".folded".to_owned()] },
        );
        app.scene.status = Status { frequency: 20, cpus: 1, live: true, host: "here".to_owned(), ..Status::default() };
        let mut bench = Bench { app, engine, profile, asked: Vec::new(), others: Vec::new(), code: Vec::new() };
        bench.send(Event::Resize(80, 24));
        bench
    }

    /// Sends an event and answers its requests at once.
    fn send(&mut self, event: Event) {
        for effect in self.app.update(event) {
            match effect {
                Effect::Ask(request) => {
                    let snapshot = self.engine.answer(&request, Timestamp(7 * SECOND));
                    self.asked.push(*request);
                    self.send(Event::Snapshot(Arc::new(snapshot)));
                }
                code @ (Effect::List(..) | Effect::Locate(..)) => self.code.push(code),
                other => self.others.push(other),
            }
        }
    }

    /// Makes the samples those of a file of folded stacks.
    fn become_a_file(&mut self) {
        self.profile.write().unwrap().set_capabilities(Capabilities::STACKS);
        self.app.scene.status = Status { host: "a.folded".to_owned(), ..Status::default() };
        self.app.asked = None;
        self.send(Event::Resize(80, 24));
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
        self.app
            .views
            .flame
            .cursor
            .path
            .iter()
            .map(|label| self.app.scene.names.labels.name(*label))
            .collect::<Vec<_>>()
            .join(";")
    }

    fn screen(&mut self, columns: u16, rows: u16) -> String {
        self.send(Event::Resize(columns, rows));
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(&self.app, frame)).unwrap();
        terminal.backend().to_string()
    }
}

#[test]
fn lost_are_samples_and_not_other_events() {
    let mut bench = Bench::new();
    let losses = crate::profile::Losses { events_lost: 9746, malformed: 3, ..Default::default() };
    let snapshot = Arc::new(Snapshot { losses, ..(*bench.app.scene.snapshot).clone() });
    bench.send(Event::Snapshot(Arc::clone(&snapshot)));
    let screen = bench.screen(120, 24);
    assert!(screen.lines().next().unwrap().contains("lost 0"), "{screen}");
    let losses = crate::profile::Losses { ring_full: 12, ..losses };
    bench.send(Event::Snapshot(Arc::new(Snapshot { losses, ..(*snapshot).clone() })));
    assert!(bench.screen(120, 24).lines().next().unwrap().contains("lost 12"));
    bench.keys("5");
    bench.send(Event::Snapshot(Arc::new(Snapshot { losses, ..(*snapshot).clone() })));
    assert!(bench.screen(120, 40).contains("9,746  process events lost"), "{}", bench.screen(120, 40));
}

#[test]
fn processes_of_another_order_begin_at_the_top() {
    let mut bench = Bench::new();
    bench.keys("3>");
    assert_eq!(bench.app.views.processes.position.at, 1);
    bench.keys("S");
    assert_eq!(bench.app.views.processes.position, position::Position::default());
    bench.keys(">m");
    assert_eq!(bench.app.views.processes.position, position::Position::default(), "another time");
    for keys in ["b>d", ">%"] {
        bench.keys(keys);
        assert_eq!(bench.app.views.processes.position, position::Position::default(), "compared in another way");
    }
    bench.keys("d");
    // A row that moves takes the cursor with it.
    bench.keys(">");
    let snapshot = Arc::clone(&bench.app.scene.snapshot);
    bench.send(Event::Snapshot(snapshot));
    assert_eq!(bench.app.views.processes.position.at, 1);
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
    assert_eq!(bench.app.views.flame.zoom.path.len(), 4);
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.views.flame.zoom.path.len(), 2);
    for _ in 0..10 {
        bench.key(KeyCode::Esc);
    }
    assert_eq!(bench.app.views.flame.zoom, Place::default());
    assert!(bench.others.is_empty(), "{:?}", bench.others);
    bench.keys("q");
    assert!(matches!(bench.others.as_slice(), [Effect::Quit]));
}

#[test]
fn filters_are_chips_that_can_be_taken_away() {
    let mut bench = Bench::new();
    bench.keys("&memcpy");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 50);
    bench.keys("!postgres");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 20);
    assert_eq!(
        bench.app.scene.filters().iter().map(|filter| filter.mode).collect::<Vec<_>>(),
        [FilterMode::Keep, FilterMode::Drop]
    );
    let screen = bench.screen(120, 24);
    assert!(screen.contains("keep /memcpy/ ×") && screen.contains("drop /postgres/ ×"), "{screen}");
    bench.keys("x");
    assert_eq!(bench.app.scene.snapshot.tree.total(), 50);
    bench.keys("X");
    assert_eq!(bench.app.scene.snapshot.tree.total(), 100);
}

#[test]
fn a_filter_for_the_selected_frame_is_proposed() {
    let mut bench = Bench::new();
    bench.keys("jjjj&");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.filters()[0].pattern.source(), "^worker$");
    assert_eq!(bench.app.scene.snapshot.tree.total(), 60);
}

#[test]
fn p_and_enter_drill_into_the_process_under_the_cursor() {
    let mut bench = Bench::new();
    bench.keys("jl");
    assert_eq!(bench.cursor(), "postgres");
    bench.keys("p");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.target().tgids, [Tgid(20)]);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 35);
    bench.keys("pnginx");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.target().tgids, [Tgid(10)]);
    bench.key(KeyCode::Esc);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 100);
}

#[test]
fn a_cgroup_is_chosen_by_its_path_or_by_its_number() {
    let mut bench = Bench::new();
    let path = (CgroupId(20), Arc::from("/system.slice/database.service"));
    bench.app.scene.status.cgroups = Arc::new([path].into_iter().collect());
    bench.keys("H");
    let screen = bench.screen(100, 24);
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains('│') && line.contains(" % ")).collect();
    assert!(rows[0].contains("10") && rows[0].contains("65.0 %") && rows[0].contains("path unknown"), "{screen}");
    assert!(rows[1].contains("35.0 %") && rows[1].contains("database.service  /system.slice/database.service"), "{screen}");
    bench.keys("slcdb");
    bench.key(KeyCode::Enter);
    assert_eq!((bench.app.scene.target().cgroup, bench.app.scene.snapshot.tree.total()), (Some(CgroupId(20)), 35));
    assert!(bench.screen(120, 24).contains(" cgroup database.service × "), "{}", bench.screen(120, 24));
    bench.keys("H10");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 65);
    bench.keys("H");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.tree.total(), 100, "all of them are on top");
}

#[test]
fn containers_have_their_names() {
    let mut bench = Bench::new();
    let id = "3f4a0b1c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccdde";
    let paths = [(CgroupId(20), format!("/system.slice/docker-{id}.scope")), (CgroupId(10), format!("/kubepods/pod/{id}"))];
    bench.app.scene.status.cgroups = Arc::new(paths.into_iter().map(|(cgroup, path)| (cgroup, path.into())).collect());
    bench.app.scene.status.containers = Arc::new([(CgroupId(20), "shop/api-7f9c/server".into())].into_iter().collect());
    bench.keys("H");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("container 3f4a0b1c2d3e ") && screen.contains("container shop/api-7f9c/server "), "{screen}");
    bench.keys("server");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.target().cgroup, Some(CgroupId(20)));
    let screen = bench.screen(120, 24);
    assert!(screen.contains(" container shop/api-7f9c/server ·") && screen.contains(" container shop/api-7f9c… × "), "{screen}");
    bench.keys("3");
    let screen = bench.screen(140, 24);
    let row = screen.lines().find(|line| line.contains("postgres")).unwrap();
    assert!(
        screen.contains(" container ") && row.contains(" server ") && screen.contains("container shop/api-7f9c/server"),
        "{screen}"
    );
    assert!(!bench.screen(110, 24).lines().nth(3).unwrap().contains("container"), "{}", bench.screen(110, 24));
}

#[test]
fn cpus_to_choose_from_are_those_that_are_on_or_were() {
    let mut bench = Bench::new();
    bench.app.scene.status.online = [0, 5].into();
    bench.keys("C");
    let screen = bench.screen(100, 24);
    let shares = ["0  65.0 %", "2  35.0 %", "5   0.0 %"];
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains(" CPU ") && line.contains('%')).collect();
    assert!(rows.len() == 3 && rows.iter().zip(shares).all(|(row, share)| row.contains(share)), "{screen}");
    assert!(rows[1].contains("off") && !rows[0].contains("off"), "{screen}");
    bench.keys("2");
    bench.key(KeyCode::Enter);
    assert_eq!((bench.app.scene.target().cpu, bench.app.scene.snapshot.tree.total()), (Some(Cpu(2)), 35));
    bench.keys("x");
    assert_eq!(bench.app.scene.snapshot.tree.total(), 100);
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
fn the_reader_stays_where_they_are_when_names_are_renewed() {
    let mut bench = Bench::new();
    bench.keys("jjj");
    bench.key(KeyCode::Enter);
    bench.keys("jj");
    let place = |bench: &Bench| (bench.cursor(), bench.app.views.flame.zoom.path.len());
    let before = (place(&bench), bench.screen(100, 24));
    assert_eq!(before.0, ("nginx;_start;main;worker;parse".to_owned(), 3));
    bench.keys("2");
    bench.key(KeyCode::Enter);
    let functions = bench.screen(100, 24);
    assert!(functions.contains("called by"), "{functions}");
    let names = Arc::clone(&bench.app.scene.names);
    assert!(Renewals::at_once(&bench.profile).is_some());
    let again = |bench: &mut Bench| {
        let request = bench.asked.last().unwrap().clone();
        let snapshot = bench.engine.answer(&request, Timestamp(7 * SECOND));
        bench.send(Event::Snapshot(Arc::new(snapshot)));
    };
    again(&mut bench);
    assert!(!Arc::ptr_eq(&bench.app.scene.names, &names));
    assert_eq!(bench.screen(100, 24), functions);
    bench.keys("1");
    assert_eq!((place(&bench), bench.screen(100, 24)), before);
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
    assert_eq!((bench.app.scene.view, bench.app.scene.target().tgids.as_slice()), (View::Flame, &[Tgid(20)][..]));
}

#[test]
fn bottom_up_begins_with_what_ran() {
    let mut bench = Bench::new();
    bench.keys("uj");
    assert_eq!(bench.app.scene.direction(), Direction::BottomUp);
    assert_eq!(bench.cursor(), "memcpy");
}

#[test]
fn actions_are_found_by_name_and_keys_without_one_say_so() {
    let mut bench = Bench::new();
    bench.keys(":by weight");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("order by name or weight"), "{screen}");
    for _ in 0.."by weight".len() {
        bench.key(KeyCode::Backspace);
    }
    bench.keys("bottom up");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.direction(), Direction::BottomUp);
    // This action opens a prompt.
    bench.keys(":keep");
    bench.key(KeyCode::Enter);
    assert!(bench.screen(80, 24).contains("keep stacks with /"), "{}", bench.screen(80, 24));
    bench.key(KeyCode::Esc);
    bench.keys("Q");
    assert!(bench.screen(80, 24).contains("Q does nothing; ? lists the keys, : all actions"), "{}", bench.screen(80, 24));
    for (key, words) in
        [("i", "callers are at the bottom"), ("a", "call chains share a row"), ("v", "colours show the self weight")]
    {
        bench.keys(key);
        assert!(bench.screen(80, 24).contains(words), "{words}: {}", bench.screen(80, 24));
    }
}

#[test]
fn weights_are_cpu_time_and_cpus_and_of_events_counts() {
    let mut bench = Bench::new();
    let snapshot = Snapshot { seconds: Some(4.0), ..(*bench.app.scene.snapshot).clone() };
    let snapshot = Arc::new(snapshot);
    bench.send(Event::Snapshot(Arc::clone(&snapshot)));
    // 100 samples at 20 Hz in four seconds, 65 of them of nginx.
    let screen = bench.screen(100, 24);
    assert!(screen.contains("all 5.00 s of CPU  1.25 of 1 CPU ") && screen.contains("nginx 0.81 CPUs  65.0 %"), "{screen}");
    assert!(screen.contains("worker"), "{screen}");
    bench.app.scene.query.source = Some(crate::profile::EventSource(1));
    bench.screen(100, 24);
    bench.send(Event::Snapshot(Arc::new(Snapshot { unit: Unit::Events, ..(*snapshot).clone() })));
    let screen = bench.screen(100, 24);
    assert!(screen.contains("all 100 events ") && screen.contains("nginx 65  65.0 %"), "{screen}");
}

#[test]
fn times_and_bytes_have_their_units() {
    let mut bench = Bench::new();
    for (unit, all, columns) in [
        (Unit::Nanoseconds, "all 100 ns ", "time %"),
        (Unit::Bytes, "all 100 B ", "B/s"),
        (Unit::Events, "all 100 events ", "ev/s"),
    ] {
        bench.keys("1");
        bench.send(Event::Snapshot(Arc::new(Snapshot { unit, ..(*bench.app.scene.snapshot).clone() })));
        assert!(bench.screen(100, 24).contains(all), "{unit:?}: {}", bench.screen(100, 24));
        bench.keys("3");
        bench.send(Event::Snapshot(Arc::new(Snapshot { unit, ..(*bench.app.scene.snapshot).clone() })));
        assert!(bench.screen(100, 24).contains(columns), "{unit:?}: {}", bench.screen(100, 24));
    }
}

#[test]
fn tab_changes_the_ending_of_a_file() {
    let mut bench = Bench::new();
    bench.keys("w");
    for name in ["out.folded", "out.svg", "out.folded"] {
        bench.key(KeyCode::Tab);
        assert!(bench.screen(80, 24).contains(&format!(".folded): {name}")), "{}", bench.screen(80, 24));
    }
    // Typed characters stay; an unknown ending is a part of the name.
    bench.keys(".x");
    bench.key(KeyCode::Tab);
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.pop() else { panic!() };
    assert_eq!(order.path, PathBuf::from("out.folded.x.svg"));
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
    bench.send(Event::Saved(Saved::Exists(order.path.clone())));
    bench.keys("n");
    assert!(bench.others.is_empty());
    // The message names the frames that were left out.
    let cut = Some("frames below level 700 are not drawn".to_owned());
    bench.send(Event::Saved(Saved::Done { path: order.path, bytes: 5_000, cut }));
    let screen = bench.screen(80, 24);
    assert!(screen.contains("saved out.svg (5000 B); frames below level 700 are not drawn"), "{screen}");
}

#[test]
fn a_click_selects_and_another_one_zooms() {
    let mut bench = Bench::new();
    let body = bench.app.scene.areas().body;
    bench.click(2, body.y + 1);
    assert_eq!(bench.cursor(), "nginx");
    assert_eq!(bench.app.views.flame.zoom, Place::default());
    bench.click(2, body.y + 1);
    assert_eq!(bench.app.views.flame.zoom.path.len(), 1);
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
    bench.app.scene.theme = Theme { depth: Depth::None, ascii: true, ..Theme::default() };
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

/// Returns all keys that are characters, except the quit keys.
fn letters() -> Vec<char> {
    let others = BINDINGS.iter().filter(|binding| binding.action != Action::Quit);
    let keys = others.flat_map(|binding| binding.keys);
    keys.filter_map(|key| key.chars().next().filter(|_| key.chars().count() == 1)).chain([' ']).collect()
}

impl Bench {
    /// Does something. A quit that was chosen in a list of actions is forgotten.
    fn may_quit_by_a_list(&mut self, does: impl FnOnce(&mut Bench)) {
        let has_list = matches!(self.app.overlay, Some(overlay::Overlay::Picker(_)));
        does(self);
        if has_list {
            self.others.retain(|effect| !matches!(effect, Effect::Quit));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Any keys at any size: nothing breaks, and only the quit keys and the list of all actions quit.
    #[test]
    fn any_keys_at_any_size_do_no_harm(
        keys in prop::collection::vec(prop_oneof![
            12 => prop::sample::select(letters()).prop_map(KeyCode::Char),
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
            bench.may_quit_by_a_list(|bench| bench.key(key));
            if index % 7 == 0 {
                let (columns, rows) = sizes[index / 7 % sizes.len()];
                bench.screen(columns, rows);
                for (column, row) in &clicks {
                    bench.may_quit_by_a_list(|bench| bench.click(*column, *row));
                }
            }
        }
        for (columns, rows) in [(1, 1), (2, 3), (5, 5), (300, 2), (3, 80)].into_iter().chain(sizes) {
            bench.screen(columns, rows);
        }
        prop_assert!(!bench.others.iter().any(|effect| matches!(effect, Effect::Quit)));
    }
}
