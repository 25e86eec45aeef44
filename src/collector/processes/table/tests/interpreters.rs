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
        world.table.apply_answer(Answer { question, found: Reply::Mappings(Some(list)), time: world.time });
    };
    read(&mut world);
    assert_eq!(questions(&mut world), 1);
    // The same mappings, read again, do not start the readings again.
    let state = world.table.states.get_mut(&NOBODY).unwrap();
    (state.scripts.is_reading, state.scripts.readings) = (false, u32::MAX);
    world.time += 10 * SECOND;
    world.event(Event::Lost(1));
    read(&mut world);
    assert_eq!(questions(&mut world), 0);
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
