//! Tests the source of a function, opened over a view.

use super::*;
use crate::profile::FileOffset;
use crate::profile::{Frame, FrameId, LabelId, Listing, Object, ObjectKind, Row, Rows, SourceLocation, UserId};

/// `main` calls `hot`, whose samples are at three addresses: 60, 30 and 10 of them. A listing has ten lines and six instructions.
struct Reading {
    bench: Bench,
    hot: LabelId,
    frames: [FrameId; 3],
}

impl Reading {
    fn new() -> Reading {
        let mut bench = Bench::new();
        let names = Arc::clone(&bench.app.scene.names);
        let (kind, path) = (ObjectKind::Elf, "/bin/prog".into());
        let object = names.objects.intern(Object { kind, path, build_id: None, file: Some((1, 2)), ..Default::default() });
        let hot = names.labels.intern("ns::hot(int)", "prog", FrameKind::User);
        let frames = [0x10, 0x14, 0x18].map(|address| {
            let frame = names.intern_frame(Frame::File { object, offset: FileOffset(address), is_return: false }).0;
            names.name_frame(frame, &[hot]);
            frame
        });
        let profile = Arc::new(RwLock::new(Profile::new(Limits::default())));
        bench.engine = Engine::new(names, Arc::default(), Arc::clone(&profile));
        bench.profile = profile;
        let mut reading = Reading { bench, hot, frames };
        for (at, count) in [(0, 60), (1, 30), (2, 10)] {
            reading.sample(at, count);
        }
        reading.answer();
        reading.bench.keys(">");
        reading
    }

    fn sample(&mut self, at: usize, count: u64) {
        let names = &self.bench.app.scene.names;
        let process = names.labels.intern("prog", "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(7), tid: Tid(7), process, name: process, ..Thread::default() };
        let main = names.intern_named(names.labels.intern("main", "prog", FrameKind::User));
        for _ in 0..count {
            let sample = Sample { time: Timestamp(SECOND), user_end: UserEnd::Root, ..Sample::default() };
            self.bench.profile.write().unwrap().record(thread, [main, self.frames[at]], sample);
        }
    }

    /// Delivers the next picture.
    fn answer(&mut self) {
        self.answer_at(7 * SECOND);
    }

    fn answer_at(&mut self, now: u64) {
        let snapshot = self.snapshot(now);
        self.bench.send(Event::Snapshot(Arc::new(snapshot)));
    }

    fn snapshot(&mut self, now: u64) -> Snapshot {
        let request = self.bench.asked.last().unwrap().clone();
        self.bench.engine.answer(&request, Timestamp(now))
    }

    /// Adds samples at a new address, in place of the third address.
    fn new_address(&mut self, address: u64) -> FrameId {
        let names = Arc::clone(&self.bench.app.scene.names);
        let object = names.frames.get(self.frames[0]).unwrap().object();
        let new = names.intern_frame(Frame::File { object, offset: FileOffset(address), is_return: false }).0;
        names.name_frame(new, &[self.hot]);
        let old = std::mem::replace(&mut self.frames[2], new);
        self.sample(2, 200);
        old
    }

    /// Returns the requests about code since the last call.
    fn asked(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.bench.code)
    }

    fn listing(&self, has_source: bool) -> Listing {
        let row = |place: u64, text: String| Row { place, text: text.into() };
        let lines = (1..=10).map(|line| row(line, format!("line {line} of the source"))).collect();
        let codes = (0..6).map(|at| row(0x1010 + 4 * at, format!("op{at} %rax"))).collect();
        let row_of = |rows: [usize; 3]| self.frames.into_iter().zip(rows).collect();
        let source = Rows { file: "/src/hot.c".into(), note: String::new(), rows: lines, row_of: row_of([6, 6, 3]) };
        let code = Rows { file: "/bin/prog".into(), note: String::new(), rows: codes, row_of: row_of([0, 1, 2]) };
        let source = if has_source { Ok(source) } else { Err("no source: /src/hot.c was not found".to_owned()) };
        Listing {
            label: self.hot,
            by: self.frames[0],
            source,
            code: Ok(code),
            user: None,
            known: self.frames.into_iter().collect(),
        }
    }

    fn open(&mut self) {
        self.asked();
        self.bench.keys("o");
        let listing = self.listing(true);
        self.bench.send(Event::Listing(self.hot, Ok(Arc::new(listing))));
    }

    fn row(&mut self, text: &str) -> String {
        let screen = self.bench.screen(120, 24);
        screen.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}\n{screen}")).to_owned()
    }
}

#[test]
fn o_opens_the_source_at_its_hottest_line() {
    let mut reading = Reading::new();
    assert_eq!(reading.bench.cursor(), "prog;main;ns::hot(int)");
    reading.asked();
    reading.bench.keys("o");
    assert_eq!(reading.bench.asked.last().unwrap().addresses_of, Some(reading.hot));
    let asked = reading.asked();
    let [Effect::List(addresses, None)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((addresses.label, addresses.own, addresses.frames.len()), (reading.hot, 100, 3));
    assert!(reading.bench.screen(120, 24).contains("reading …"));
    let listing = Arc::new(reading.listing(true));
    reading.bench.send(Event::Listing(LabelId(0), Ok(Arc::clone(&listing))));
    assert!(reading.bench.app.source.as_ref().unwrap().listing.is_none(), "of another function");
    reading.bench.send(Event::Listing(reading.hot, Ok(listing)));
    let line = reading.row("line 7 of the source");
    assert!(line.contains("   90.0    90.0  █████████    ") && line.contains("    7  line 7"), "{line}");
    assert!(reading.row("line 4 of").contains("10.0    10.0"));
    assert!(reading.row("line 5 of").trim_start_matches('"').starts_with(&" ".repeat(26)));
    let screen = reading.bench.screen(120, 24);
    assert!(screen.contains("ns::hot(int)  prog  /src/hot.c:7  self 100 %  total 100 % of all"), "{screen}");
    assert!(screen.contains("n next hot row  Tab instructions  o closes"), "{screen}");
    // Other users have a program with such a function, too.
    let listing = Listing { user: Some(UserId(1000)), ..reading.listing(true) };
    reading.bench.send(Event::Listing(reading.hot, Ok(Arc::new(listing))));
    let screen = reading.bench.screen(120, 24);
    assert!(screen.contains("prog  /src/hot.c:7  of user 1000  self 100 %"), "{screen}");
    assert!(screen.contains(" here: self 4.50 s (90.0 %)  total 4.50 s (90.0 %) of 5.00 s of CPU  ns::hot(int)"), "{screen}");
    // Moves to hot lines and back; the first follows the last.
    let at = |reading: &Reading| reading.bench.app.source.as_ref().unwrap().place.at;
    reading.bench.keys("n");
    assert_eq!(at(&reading), 3);
    reading.bench.keys("n");
    assert_eq!(at(&reading), 6);
    reading.bench.keys("N");
    assert_eq!(at(&reading), 3);
    reading.bench.keys("jj");
    assert_eq!(at(&reading), 5);
    reading.bench.keys("g");
    assert_eq!(at(&reading), 0);
    reading.bench.keys("l");
    assert!(reading.row("7").contains("7  f the source") || reading.row("he source").contains("he source"));
    let before = reading.bench.app.views.flame.zoom.clone();
    reading.bench.key(KeyCode::Esc);
    assert!(reading.bench.app.source.is_none() && reading.bench.app.views.flame.zoom == before);
    reading.bench.keys("oo");
    assert!(reading.bench.app.source.is_none());
}

#[test]
fn instructions_are_shown_where_there_is_no_source_and_by_a_key() {
    let mut reading = Reading::new();
    reading.open();
    reading.bench.key(KeyCode::Tab);
    let line = reading.row("op0 %rax");
    assert!(line.contains("60.0    60.0") && line.contains("1010  op0"), "{line}");
    assert!(reading.bench.screen(120, 24).contains("Tab source"));
    reading.bench.key(KeyCode::Tab);
    reading.row("line 7 of");
    reading.bench.key(KeyCode::Esc);
    reading.bench.keys("o");
    let listing = Arc::new(reading.listing(false));
    reading.bench.send(Event::Listing(reading.hot, Ok(listing)));
    let screen = reading.bench.screen(120, 24);
    assert!(screen.contains("no source: /src/hot.c was not found") && screen.contains("op5"), "{screen}");
    reading.bench.key(KeyCode::Tab);
    let screen = reading.bench.screen(120, 24);
    assert!(screen.contains("was not found  Tab goes back") && !screen.contains("op5"), "{screen}");
    reading.bench.keys("nj>g");
    // If nothing can be read, one sentence says so.
    reading.bench.keys("oo");
    reading.bench.send(Event::Listing(reading.hot, Err("this code was made at run time".to_owned())));
    assert!(reading.bench.screen(80, 24).contains("this code was made at run time"));
}

#[test]
fn weights_follow_the_samples_and_new_addresses_are_asked_for() {
    let mut reading = Reading::new();
    reading.open();
    reading.asked();
    reading.sample(2, 100);
    reading.answer();
    assert!(reading.row("line 4 of").contains("55.0    55.0"));
    assert!(reading.asked().is_empty(), "all addresses are known");
    let old = reading.new_address(0x1c);
    reading.answer_at(8 * SECOND - 1);
    assert!(reading.asked().is_empty(), "it was read less than a second ago");
    reading.answer_at(8 * SECOND);
    let asked = reading.asked();
    let [Effect::List(addresses, by)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((addresses.frames.len(), *by), (4, Some(reading.frames[0])), "of the function that is being read");
    let screen = reading.bench.screen(120, 24);
    assert!(screen.contains("50.0 % are elsewhere"), "{screen}");
    reading.answer();
    assert!(reading.asked().is_empty(), "while the answer is on its way, nothing is asked");
    let mut listing = reading.listing(true);
    listing.known.insert(old);
    reading.bench.keys("j");
    reading.bench.send(Event::Listing(reading.hot, Ok(Arc::new(listing))));
    assert!(reading.row("line 4 of").contains("50.0    50.0"));
    assert_eq!(reading.bench.app.source.as_ref().unwrap().place.at, 7, "the cursor stays");
    // Filters and time ranges apply.
    reading.bench.keys("&nowhere");
    reading.bench.key(KeyCode::Enter);
    assert!(!reading.row("line 4 of").contains("50.0"));
}

#[test]
fn what_cannot_be_read_again_stays_as_it_was() {
    let mut reading = Reading::new();
    reading.open();
    for (second, has_listing, address) in [(9, true, 0x1c), (11, false, 0x20), (13, true, 0x24)] {
        reading.asked();
        reading.new_address(address);
        reading.answer_at(second * SECOND);
        assert!(matches!(reading.asked().as_slice(), [Effect::List(..)]));
        let mut listing = reading.listing(false);
        listing.code = Err("no instructions: the file cannot be found any more".to_owned());
        let listing = if has_listing { Ok(Arc::new(listing)) } else { Err("gone".to_owned()) };
        reading.bench.send(Event::Listing(reading.hot, listing));
        assert!(reading.asked().is_empty(), "not before a second has passed");
        if !has_listing {
            reading.answer_at((second + 1) * SECOND);
            assert!(reading.asked().is_empty(), "the same once more");
        }
        reading.row("line 7 of the source");
        reading.bench.key(KeyCode::Tab);
        reading.row("op0 %rax");
        reading.bench.key(KeyCode::Tab);
    }
}

#[test]
fn keys_do_nothing_to_the_view_that_the_source_hides() {
    let mut reading = Reading::new();
    reading.open();
    let state = |reading: &Reading| {
        let app = &reading.bench.app;
        (
            app.scene.query(),
            app.views.flame.root_on_top,
            app.views.flame.order,
            app.views.flame.chains,
            app.views.flame.cursor.clone(),
            app.source.is_some(),
        )
    };
    let before = state(&reading);
    for key in ["r", "u", "e", "i", "a", "S"] {
        reading.bench.keys(key);
        assert_eq!(state(&reading), before, "{key}");
    }
}

#[test]
fn gathered_callees_have_no_source() {
    let mut reading = Reading::new();
    reading.bench.app.views.flame.cursor.rest = true;
    reading.bench.keys("o");
    assert!(reading.bench.app.source.is_none());
    assert!(reading.bench.screen(120, 24).contains("these are several narrow callees"));
}

#[test]
fn no_function_has_more_than_all_samples() {
    let mut reading = Reading::new();
    reading.open();
    let mut snapshot = reading.snapshot(7 * SECOND);
    let mut addresses = (*snapshot.addresses.clone().unwrap()).clone();
    (addresses.own, addresses.total) = (120, 130);
    snapshot.addresses = Some(Arc::new(addresses));
    reading.bench.send(Event::Snapshot(Arc::new(snapshot)));
    reading.row("self 100 %  total 100 % of all");
}

#[test]
fn the_table_of_functions_and_the_mouse_know_the_source_too() {
    let mut reading = Reading::new();
    reading.bench.keys("2");
    reading.open();
    reading.row("line 7 of");
    let body = reading.bench.app.scene.areas().body;
    reading.bench.click(10, body.y + 2 + 1);
    assert_eq!(reading.bench.app.source.as_ref().unwrap().place.at, 1);
    reading.bench.click(10, body.y);
    reading.bench.mouse(MouseEventKind::ScrollDown, 10, body.y + 5);
    assert_eq!(reading.bench.app.source.as_ref().unwrap().place.at, 4);
    reading.bench.keys("y");
    assert!(matches!(reading.bench.others.last(), Some(Effect::Copy(text)) if text == "line 5 of the source"));
    reading.bench.keys("s");
    assert!(reading.bench.app.source.is_none() && reading.bench.app.views.functions.open == Some(reading.hot));
    reading.bench.keys("o");
    reading.bench.keys("1");
    assert!(reading.bench.app.source.is_none() && reading.bench.app.scene.view == View::Flame);
}

#[test]
fn what_has_no_source_is_told_in_one_sentence() {
    let mut reading = Reading::new();
    reading.bench.keys("gj");
    assert_eq!(reading.bench.cursor(), "prog");
    reading.bench.keys("o");
    assert!(reading.bench.screen(120, 24).contains("select a function to see its source"));
    reading.bench.become_a_file();
    reading.bench.keys("jo");
    assert!(reading.bench.screen(120, 24).contains("this file has only names"));
    assert!(reading.bench.app.source.is_none());
}

#[test]
fn the_detail_line_tells_where_the_function_is_hottest() {
    let mut reading = Reading::new();
    let asked = reading.asked();
    let Some(Effect::Locate(label, frames)) = asked.last() else { panic!("{asked:?}") };
    assert_eq!((*label, frames.contains(&reading.frames[0])), (reading.hot, true));
    let place = |line| SourceLocation { file: "/src/hot.c".into(), line };
    reading.bench.send(Event::Located(LabelId(0), vec![(reading.frames[0], place(1))]));
    assert!(!reading.bench.screen(160, 24).contains("/src/hot.c"), "of another function");
    reading.bench.send(Event::Located(reading.hot, vec![(reading.frames[0], place(7))]));
    let screen = reading.bench.screen(160, 24);
    assert!(screen.lines().rev().nth(1).unwrap().contains("% of prog)  /src/hot.c:7"), "{screen}");
    reading.bench.keys("k");
    assert!(!reading.bench.screen(160, 24).contains("/src/hot.c"), "that is another function's");
    reading.bench.keys("j2");
    reading.bench.send(Event::Located(reading.hot, vec![(reading.frames[0], place(7))]));
    let screen = reading.bench.screen(160, 24);
    assert!(screen.contains("ns::hot(int)  prog  self ") && screen.contains("%)  /src/hot.c:7"), "{screen}");
}

#[test]
fn a_frozen_picture_stays_when_the_cursor_moves_and_its_samples_are_gone() {
    let mut reading = Reading::new();
    reading.bench.keys(" ");
    let weight = reading.bench.app.scene.snapshot.weight();
    assert_eq!(weight, 100);
    let empty = Arc::new(RwLock::new(Profile::new(Limits::default())));
    reading.bench.engine = Engine::new(Arc::clone(&reading.bench.app.scene.names), Arc::default(), empty);
    reading.bench.keys("k");
    assert_eq!(reading.bench.cursor(), "prog;main");
    let main = reading.bench.app.selected_label();
    assert_eq!(reading.bench.asked.last().unwrap().addresses_of, main);
    let snapshot = &reading.bench.app.scene.snapshot;
    assert_eq!(
        (snapshot.weight(), snapshot.addresses.as_ref().map(|found| (found.label, found.total))),
        (100, Some((main.unwrap(), 0)))
    );
}

#[test]
fn a_frozen_picture_takes_addresses_that_are_counted_later() {
    let mut reading = Reading::new();
    reading.bench.keys(" o");
    reading.asked();
    let with = reading.snapshot(7 * SECOND);
    let without = |weight: u64| {
        let tree = if weight > 0 { Arc::clone(&with.tree) } else { Arc::default() };
        Event::Snapshot(Arc::new(Snapshot { tree, addresses: None, ..with.clone() }))
    };
    reading.bench.send(without(100));
    assert!(reading.bench.app.scene.snapshot.addresses.is_none());
    reading.bench.send(without(0));
    assert_eq!((reading.bench.app.scene.snapshot.weight(), reading.bench.app.scene.snapshot.addresses.is_none()), (100, true));
    reading.bench.send(Event::Snapshot(Arc::new(Snapshot { tree: Arc::default(), ..with.clone() })));
    let snapshot = &reading.bench.app.scene.snapshot;
    assert_eq!((snapshot.weight(), snapshot.addresses.as_ref().map(|addresses| addresses.total)), (100, Some(100)));
}
