//! Questions about the interpreters of processes.

use super::*;
use crate::collector::processes::reader::What;

/// Takes the questions about interpreters that wait to be sent.
fn questions(world: &mut World) -> usize {
    let questions = std::mem::take(&mut world.table.questions);
    questions.iter().filter(|question| matches!(question.what, What::Interpreter(_))).count()
}

#[test]
fn a_mapping_whose_event_was_lost_leads_to_the_interpreter() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/lib/ld.so", 1);
    world.table.want_interpreter(NOBODY, world.time);
    assert_eq!(questions(&mut world), 0);
    world.event(Event::Lost(1));
    let identity = Identity::BuildId(BuildId::new(&[2; 20]).unwrap());
    let mapped = Mapped { start: 0x20000, end: 0x21000, offset: 0, identity, path: "/bin/python3.12".into() };
    let read = |world: &mut World| {
        let life = world.table.states[&NOBODY].life;
        let question = Question { tgid: NOBODY, life, user: UNKNOWN_USER, what: What::Mappings };
        let list = MappedList { mapped: vec![mapped.clone()], cut: false };
        world.table.apply_answer(Answer { question, found: Reply::Mappings(Some(list)), time: world.time, cpu: Duration::ZERO });
    };
    read(&mut world);
    assert_eq!(questions(&mut world), 1);
    // The same mappings, read again, do not start the readings again.
    let state = world.table.states.get_mut(&NOBODY).unwrap();
    (state.scripts.is_reading, state.scripts.next) = (false, u64::MAX);
    world.time += 10 * SECOND;
    world.event(Event::Lost(1));
    read(&mut world);
    assert_eq!(questions(&mut world), 0);
}

/// A sample in the midst of execve finds no file, and a sample before dlopen finds only others.
#[test]
fn a_file_mapped_after_a_sample_leads_to_the_interpreter() {
    for path in ["/bin/python3.12", "/lib/libpython3.12.so.1.0"] {
        let mut world = World::new();
        world.exec(NOBODY, "prog");
        world.table.want_interpreter(NOBODY, world.time);
        world.map(NOBODY, 0x10000, "/lib/ld.so", 1);
        world.table.want_interpreter(NOBODY, world.time);
        assert_eq!(questions(&mut world), 0, "{path}");
        world.map(NOBODY, 0x20000, path, 2);
        world.table.want_interpreter(NOBODY, world.time);
        assert_eq!(questions(&mut world), 1, "{path}");
    }
}

#[test]
fn an_interpreter_that_starts_late_is_found_by_few_readings() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/lib/libpython3.12.so.1.0", 1);
    let mut readings = |seconds: u64| {
        let samples = seconds * 100;
        let of_sample = |_| {
            world.time += SECOND / 100;
            world.table.want_interpreter(NOBODY, world.time);
            let asked = questions(&mut world);
            if asked > 0 {
                world.table.told_interpreter(NOBODY, None);
            }
            asked
        };
        (0..samples).map(of_sample).sum::<usize>()
    };
    assert_eq!(readings(1), 6);
    assert_eq!(readings(60), 6);
    // Then one about every 20 s.
    assert_eq!(readings(600), 30);
}

#[test]
fn a_question_without_room_does_not_count_as_a_reading() {
    let mut world = World::new();
    world.exec(NOBODY, "python3.12");
    world.map(NOBODY, 0x10000, "/bin/python3.12", 1);
    for _ in 0..100 {
        world.time += SECOND;
        world.table.want_interpreter(NOBODY, world.time);
        assert_eq!(questions(&mut world), 1);
        world.table.interpreter_not_asked(NOBODY);
    }
}

#[test]
fn a_process_whose_user_has_no_reads_left_is_asked_about_after_a_pause() {
    let mut world = World::new();
    let user = UserId(1000);
    world.exec(NOBODY, "python3.12");
    world.table.set_user(NOBODY, user);
    world.map(NOBODY, 0x10000, "/bin/python3.12", 1);
    while world.table.reads.take(user, 1000, world.time) > 0 {}
    let begun = world.time;
    world.table.want_interpreter(NOBODY, begun);
    assert_eq!(questions(&mut world), 0);
    // Now the user has reads again, but the pause is not over. A process that maps such files again and again does not end it.
    world.time = begun + SECOND / 20;
    world.table.want_interpreter(NOBODY, world.time);
    world.map(NOBODY, 0x30000, "/bin/python3.13", 2);
    world.table.want_interpreter(NOBODY, world.time);
    assert_eq!(questions(&mut world), 0);
    world.table.want_interpreter(NOBODY, begun + SECOND / 10);
    assert_eq!(questions(&mut world), 1);
}
