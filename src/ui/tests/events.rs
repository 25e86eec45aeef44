//! Tests events instead of the clock: choosing from a list, showing, ending.

use super::*;
use crate::profile::{EventSource, EventStatus, Unit};

fn row(source: u8, name: &str, events: u64) -> EventStatus {
    EventStatus {
        source: EventSource(source),
        name: name.to_owned(),
        how: "fentry".into(),
        places: 1,
        events,
        stacks: 10,
        ..Default::default()
    }
}

fn attach(name: &str, is_agreed: bool) -> EventCommand {
    EventCommand::Attach { name: name.to_owned(), is_agreed }
}

/// Ticks of the clock, and twelve calls of `vfs_read` from source 1.
fn with_events() -> Bench {
    let mut bench = Bench::new();
    {
        let names = Arc::clone(&bench.app.scene.names);
        let mut profile = bench.profile.write().unwrap();
        let process = names.labels.intern("cat", "", FrameKind::Process);
        let thread = Thread { tgid: Tgid(30), tid: Tid(30), process, name: process, ..Thread::default() };
        let frames: Vec<_> = ["ksys_read", "vfs_read"]
            .map(|name| names.intern_named(names.labels.intern(name, "kernel", FrameKind::Kernel)))
            .to_vec();
        let sample = Sample { time: Timestamp(6 * SECOND), weight: 12, source: EventSource(1), ..Sample::default() };
        profile.record(thread, frames, sample);
    }
    let status = Status { clock: true, source: "cpu-clock 20 Hz".to_owned(), ..bench.app.scene.status.clone() };
    bench.send(Event::Status(Box::new(status)));
    bench.keys("r");
    bench
}

fn orders(bench: &mut Bench) -> Vec<EventCommand> {
    let of = |effect| match effect {
        Effect::Events(order) => Some(order),
        _ => None,
    };
    bench.others.drain(..).filter_map(of).collect()
}

#[test]
fn an_event_that_is_refused_is_told_so_before_it_is_chosen() {
    let mut bench = with_events();
    bench.keys("Evfs");
    let why = Some("this kernel has no such thing".into());
    let name = |name: &str, refused| EventName { name: name.to_owned(), help: "function of the kernel", refused };
    bench.send(Event::EventNames([name("vfs_read", why), name("vfs_write", None)].into()));
    let screen = bench.screen(120, 24);
    let line = |name: &str| screen.lines().find(|line| line.contains(name)).unwrap();
    assert!(line("vfs_read").contains("refused: this kernel has no such thing"), "{screen}");
    assert!(line("vfs_write").contains("function of the kernel"), "{screen}");
}

#[test]
fn an_event_is_found_attached_shown_and_ended() {
    let mut bench = with_events();
    bench.keys("E");
    assert_eq!(orders(&mut bench), [EventCommand::List]);
    assert!(bench.screen(120, 24).contains("cpu-clock 20 Hz"));
    // Keys are typed before the names have arrived.
    bench.keys("vfrd");
    let name = |name: &str| EventName { name: name.to_owned(), help: "function of the kernel", refused: None };
    bench.send(Event::EventNames(["vfs_write", "vfs_read", "tcp_sendmsg"].map(name).to_vec().into()));
    let screen = bench.screen(120, 24);
    assert!(
        screen.contains("vfs_read") && screen.contains("vfrd  event name as typed") && !screen.contains("tcp_sendmsg"),
        "{screen}"
    );
    bench.key(KeyCode::Enter);
    assert_eq!(orders(&mut bench), [attach("vfs_read", false)]);
    assert!(bench.screen(120, 24).contains("attaching to vfs_read"));

    bench.send(Event::Attached("vfs_read".to_owned(), Ok(EventSource(1))));
    let status = Status { events: [row(1, "vfs_read", 12)].into(), ..bench.app.scene.status.clone() };
    bench.profile.write().unwrap().events = Arc::clone(&status.events);
    bench.send(Event::Status(Box::new(status)));
    assert_eq!(bench.app.scene.snapshot.tree.total(), 12);
    let screen = bench.screen(160, 24);
    assert!(screen.contains("vfs_read (fentry)") && screen.contains("12 events"), "{screen}");
    bench.keys("3");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("cat") && !screen.contains("nginx") && screen.contains("ev/s"), "{screen}");
    bench.keys("5");
    assert!(bench.screen(120, 40).contains("12  vfs_read (fentry), 10 stacks"), "{}", bench.screen(120, 40));

    // The clock still runs meanwhile, and is shown again.
    bench.keys("1Ecpu");
    bench.key(KeyCode::Enter);
    assert!(bench.app.scene.snapshot.tree.total() >= 100 && bench.screen(160, 24).contains("cpu-clock 20 Hz"));
    bench.keys("Evfs_read");
    bench.key(KeyCode::Enter);
    bench.keys("Evfs_read");
    bench.key(KeyCode::Delete);
    assert_eq!(orders(&mut bench), [EventCommand::Detach(EventSource(1))]);
    assert!(bench.app.overlay.is_none() && bench.screen(160, 24).contains("cpu-clock 20 Hz"));
    // Its samples are still there, under its name.
    let status = Status { events: [].into(), ..bench.app.scene.status.clone() };
    bench.send(Event::Status(Box::new(status)));
    bench.app.show_source(EventSource(1));
    assert!(bench.screen(160, 24).contains("vfs_read (detached)"), "{}", bench.screen(160, 24));
}

#[test]
fn what_is_not_in_the_list_is_taken_as_it_is_written_and_may_fail() {
    let mut bench = with_events();
    bench.keys("Euprobe:libc:malloc");
    bench.key(KeyCode::Enter);
    assert_eq!(orders(&mut bench).pop(), Some(attach("uprobe:libc:malloc", false)));
    let failed = NotAttached::Failed("it did not work, for a reason".to_owned());
    bench.send(Event::Attached("uprobe:libc:malloc".to_owned(), Err(failed)));
    assert!(bench.screen(120, 24).contains("it did not work, for a reason"));
    assert_eq!(bench.app.scene.query().source, None);
}

#[test]
fn a_costly_event_says_what_it_costs_before_it_is_attached() {
    let mut bench = with_events();
    let name = "uprobe:libc:malloc";
    let costly = || Event::Attached(name.to_owned(), Err(NotAttached::Costly { per_second: 515_000, cpus: 0.92 }));
    bench.send(costly());
    for (columns, answers) in [(120, "y yes  any other key no"), (80, "y / n")] {
        let screen = bench.screen(columns, 24);
        let question = format!("uprobe:libc:malloc costs programs 0.9 CPUs (515,000 events/s). Attach? {answers}");
        assert!(screen.contains(&question), "{screen}");
    }
    bench.keys("n");
    assert_eq!(orders(&mut bench), []);
    bench.send(costly());
    bench.keys("y");
    assert_eq!(orders(&mut bench), [attach(name, true)]);
}

#[test]
fn what_probes_cost_the_programs_is_beside_what_flametop_costs() {
    let mut bench = with_events();
    let first = |bench: &mut Bench| bench.screen(120, 24).lines().next().unwrap().to_owned();
    assert!(!first(&mut bench).contains("probes"));
    let status = Status { probes_cpu: 92.4, own_cpu: 0.7, ..bench.app.scene.status.clone() };
    bench.send(Event::Status(Box::new(status)));
    assert!(first(&mut bench).contains("probes ≈ 92.4 %  flametop 0.7 %"), "{}", first(&mut bench));
    bench.profile.write().unwrap().events = vec![EventStatus { cost: 18_000_000, ..row(1, "vfs_read", 10_000) }].into();
    bench.keys("5");
    let screen = bench.screen(132, 60);
    assert!(screen.contains("1.8 µs  about, is what each event costs its program"), "{screen}");
}

#[test]
fn a_file_has_no_events() {
    let mut bench = Bench::new();
    bench.become_a_file();
    bench.keys("E");
    assert!(bench.app.overlay.is_none() && orders(&mut bench).is_empty());
}

#[test]
fn what_was_passed_over_is_on_the_page_of_health() {
    let mut bench = with_events();
    let told = |bench: &mut Bench, event: EventStatus| {
        bench.profile.write().unwrap().events = vec![event].into();
        bench.keys("51");
        bench.keys("5");
        bench.screen(132, 60)
    };
    let event = row(1, "vfs_read", 12);
    let screen = told(&mut bench, event.clone());
    assert!(screen.contains("12  vfs_read (fentry), 10 stacks") && !screen.contains("events came while"), "{screen}");
    let screen = told(&mut bench, EventStatus { missed: 7, ..event.clone() });
    assert!(screen.contains("7  events came while another stack was taken"), "{screen}");
    let screen = told(&mut bench, EventStatus { unsure: 7, ..event.clone() });
    assert!(screen.contains("7  more events, of any process"), "{screen}");
    let screen = told(&mut bench, EventStatus { waited: Some(1_500_000_000), unknown: 7, ..event });
    assert!(screen.contains("12  vfs_read (fentry), 1.50 s together, 10 stacks"), "{screen}");
    assert!(screen.contains("7  more waits, not counted: their threads could not be followed"), "{screen}");
}

#[test]
fn what_was_left_out_of_flametop_itself_is_on_the_page_of_health() {
    let mut bench = with_events();
    bench.profile.write().unwrap().events = vec![EventStatus { own: 1585, ..row(1, "vfs_read", 79) }].into();
    bench.send(Event::Status(Box::new(Status { own_left_out: 12, ..bench.app.scene.status.clone() })));
    bench.keys("5");
    let screen = bench.screen(132, 60);
    assert!(screen.contains("12  samples of flametop itself; --self shows them"), "{screen}");
    assert!(screen.contains("79  vfs_read (fentry), 10 stacks"), "{screen}");
    assert!(screen.contains("1,585  events of flametop itself, not counted; --self shows them"), "{screen}");
}

#[test]
fn idle_threads_of_waits_are_a_chip_that_can_be_taken_away() {
    let mut bench = Bench::new();
    {
        let names = Arc::clone(&bench.app.scene.names);
        let mut profile = bench.profile.write().unwrap();
        profile.set_unit(EventSource(1), Unit::Nanoseconds);
        let mut wait = |tid, path: &[(&str, FrameKind)], from: u64| {
            let process = names.labels.intern("server", "", FrameKind::Process);
            let thread = Thread { tgid: Tgid(40), tid: Tid(tid), process, name: process, ..Thread::default() };
            let frames: Vec<_> =
                path.iter().map(|(name, kind)| names.intern_named(names.labels.intern(name, "", *kind))).collect();
            let time = Timestamp(7 * SECOND);
            let sample = Sample { time, weight: time.0 - from, source: EventSource(1), ..Sample::default() };
            profile.record(thread, frames, sample);
        };
        for tid in 41..44 {
            wait(tid, &[("park", FrameKind::User), ("[lock]", FrameKind::Wait)], 0);
        }
        wait(44, &[("fetch", FrameKind::User), ("[disk]", FrameKind::Wait)], 4 * SECOND);
    }
    let status = Status { clock: true, ..bench.app.scene.status.clone() };
    bench.send(Event::Status(Box::new(status)));
    bench.app.scene.query.source = Some(EventSource(1));
    bench.app.scene.query.without_idle = true;
    bench.keys("r");
    let screen = bench.screen(120, 24);
    assert!(screen.contains(" 3 idle threads hidden × ") && screen.contains("fetch") && !screen.contains("park"), "{screen}");
    bench.keys("Z");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("idle threads are shown") && screen.contains("park") && !screen.contains("hidden"), "{screen}");
    bench.keys("Z");
    let screen = bench.screen(120, 24);
    let (row, line) = screen.lines().enumerate().find(|(_, line)| line.contains("3 idle threads hidden")).expect("a chip");
    let column = line.split("3 idle").next().unwrap().chars().count();
    bench.click(u16::try_from(column).unwrap(), u16::try_from(row).unwrap());
    let screen = bench.screen(120, 24);
    assert!(screen.contains("park") && !screen.contains("hidden"), "{screen}");
}
