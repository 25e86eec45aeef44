//! Tables in real maps: of libraries that this very process has mapped. Needs root; fails without.

use super::*;
use crate::collector::Walk;
use crate::collector::sampler::{Sampler, Settings};

fn sampler() -> Sampler {
    let settings =
        Settings { walk: Walk::Tables, frequency: 1, include_idle: false, filter: false, follow_forks: false, ring_bytes: 4096 };
    Sampler::load(settings).expect("this test needs root")
}

/// What a sample in our own libc would wish for, as if its content were of that generation.
fn wish_for_libc(generation: u32) -> (Wish, Arc<str>) {
    let own = std::process::id();
    let mapped = proc::maps(own).unwrap().into_iter().find(|mapped| mapped.path.contains("/libc")).expect("libc is mapped");
    let inode = std::fs::metadata(&mapped.path).unwrap().ino();
    let key = ObjectKey { inode, device: 1, generation };
    (Wish { tgid: own, start: mapped.start, end: mapped.end, key }, mapped.path.into())
}

fn wait_for(tables: &Tables, what: impl Fn(&TablesStatus) -> bool) -> TablesStatus {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let status = tables.status();
        if what(&status) {
            return status;
        }
        assert!(Instant::now() < until, "{status:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn files_of_one_build_id_share_a_table_which_goes_when_there_is_no_room_and_comes_again() {
    let sampler = sampler();
    let tables = sampler.tables(None).unwrap();
    // The vDSO's.
    assert_eq!(tables.status().ready, 1);
    let (wish, path) = wish_for_libc(7);
    tables.wish(&wish, || vec![path.clone()]);
    // Asked for again while it is made: once is enough.
    tables.wish(&wish, || vec![path.clone()]);
    let one = wait_for(&tables, |status| status.ready == 2 && status.waiting == 0);
    assert!(one.rows > 10_000 && one.bytes > 40_000 && one.segment_bytes == 2 << 20, "{one:?}");

    let (other, _) = wish_for_libc(8);
    tables.wish(&other, || vec![path.clone()]);
    let shared = wait_for(&tables, |status| status.waiting == 0);
    assert_eq!((shared.ready, shared.bytes), (2, one.bytes));
    assert_eq!(tables.objects().iter().filter(|object| object.path == path).count(), 1);

    // Nothing was looked into yet, by this kernel's walk, so all but the vDSO's may go.
    tables.shared.lock().most_bytes = 1000;
    tables.tidy(1 << 40);
    let evicted = tables.status();
    assert_eq!((evicted.ready, evicted.evicted), (1, 1));
    tables.shared.lock().most_bytes = MOST_BYTES;
    tables.wish(&wish, || vec![path.clone()]);
    let again = wait_for(&tables, |status| status.ready == 2);
    // The room that it had is not used again so soon: a program may still be reading there.
    assert!(again.bytes > one.bytes, "{again:?}");
}

#[test]
fn a_table_is_found_on_disk_the_second_time() {
    let directory = tempfile::tempdir().unwrap();
    let cache = || Cache::at(directory.path().join("flametop/unwind"));
    let (wish, path) = wish_for_libc(7);
    let mut rows = Vec::new();
    for from_cache in [0, 1] {
        let sampler = sampler();
        let tables = sampler.tables(cache()).unwrap();
        tables.wish(&wish, || vec![path.clone()]);
        let status = wait_for(&tables, |status| status.ready == 2);
        assert_eq!(status.from_cache, from_cache);
        rows.push((status.rows, status.bytes));
    }
    assert_eq!(rows[0], rows[1]);
}

#[test]
fn what_cannot_be_had_is_tried_again_later_and_what_has_nothing_is_not() {
    let sampler = sampler();
    let tables = sampler.tables(None).unwrap();
    let (mut wish, path) = wish_for_libc(7);
    // Another file is there than the kernel says: perhaps the process went on to another program meanwhile.
    wish.key.inode += 1;
    tables.wish(&wish, || vec![path.clone()]);
    wait_for(&tables, |status| status.waiting == 0);
    assert!(matches!(tables.shared.lock().states.get(&wish.key), Some(State::Later(_))));
    assert_eq!(tables.status().ready + tables.status().without, 1);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"\x7fELF, no more").unwrap();
    let path: Arc<str> = file.path().to_str().unwrap().into();
    let inode = file.as_file().metadata().unwrap().ino();
    let wish = Wish { start: 0, end: 0, key: ObjectKey { inode, device: 1, generation: 1 }, ..wish };
    tables.wish(&wish, || vec![path.clone()]);
    wait_for(&tables, |status| status.without == 1);
    let without = tables.objects().into_iter().find(|object| object.path == path).unwrap();
    assert_eq!(without.state, ObjectState::Without("not an ELF file".to_string()));
}
