//! The files that processes map.

use super::*;

#[test]
fn files_are_told_while_a_process_maps_them() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/lib/a.so", 1);
    world.map(NOBODY, 0x20000, "/lib/b.so", 2);
    let told = |world: &World| {
        let files: Vec<Identity> = world.table.mapped_files().collect();
        [1, 2].map(|id| files.contains(&Identity::BuildId(BuildId::new(&[id; 20]).unwrap())))
    };
    assert_eq!(told(&world), [true, true]);
    world.exec(NOBODY, "other");
    world.map(NOBODY, 0x10000, "/lib/b.so", 2);
    // Enough files for a sweep.
    for number in 0..10_000 {
        world.map(NOBODY, 0x30000, &format!("/other/{number}"), 3);
    }
    world.table.tidy_files();
    assert_eq!(told(&world), [false, true]);
}

#[test]
fn a_library_mapped_over_another_is_seen_at_once() {
    let mut world = World::new();
    world.exec(NOBODY, "prog");
    world.map(NOBODY, 0x10000, "/lib/old.so", 1);
    assert_eq!(world.sample(NOBODY, "prog", &[0x10010], 0).0[0].0, "/lib/old.so");
    world.map(NOBODY, 0x10000, "/lib/new.so", 2);
    assert_eq!(world.sample(NOBODY, "prog", &[0x10010], 0).0[0].0, "/lib/new.so");
}
