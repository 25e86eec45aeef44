//! Tables in real maps: of libraries that this very process has mapped. Needs root; fails without.

use std::process::Command;

use super::*;
use crate::collector::perf::now;
use crate::collector::sampler::{Sampler, Settings};
use crate::collector::{Batch, Collector, CollectorOptions, Targets, Walk};
use crate::profile::{Processes, Tgid, UserEnd};

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
fn a_file_that_did_not_answer_is_asked_again_later() {
    let sampler = sampler();
    let tables = sampler.tables(None).unwrap();
    let (wish, path) = wish_for_libc(7);
    let later = Instant::now() + SILENCE;
    tables.shared.lock().silent(wish.key, path.clone(), later);
    tables.wish(&wish, || vec![path.clone()]);
    tables.shared.lock().forget_silent(later - Duration::from_secs(1));
    let status = tables.status();
    assert_eq!((status.ready, status.without, status.waiting), (1, 1, 0));
    assert!(matches!(&tables.objects()[1].state, ObjectState::Without(why) if why.contains("does not answer")));
    tables.shared.lock().forget_silent(later);
    assert_eq!(tables.status().without, 0);
    tables.wish(&wish, || vec![path.clone()]);
    let status = wait_for(&tables, |status| status.ready == 2);
    assert_eq!((status.without, status.evicted), (0, 0));
    assert_eq!(tables.objects().len(), 2);
}

/// Until so many samples in a row had a table for each frame.
fn walk_on(collector: &mut Collector, without_fault: usize) {
    let (mut batch, mut faultless) = (Batch::default(), 0);
    let until = Instant::now() + Duration::from_secs(20);
    while faultless < without_fault {
        assert!(Instant::now() < until, "{faultless} of {without_fault}, {:?}", collector.tables());
        collector.wait(Duration::from_millis(100));
        collector.drain(&mut batch).unwrap();
        for sample in &batch.samples {
            faultless = if sample.user_end == UserEnd::NoTable { 0 } else { faultless + 1 };
        }
    }
}

#[test]
fn a_table_that_was_taken_out_comes_again_for_a_program_that_goes_on() {
    // First in sin, whose rules are in a cache then, and after a signal in cos, which is beside it in libm and of which none is. A process
    // of its own: nobody changes its mappings, so what is kept of them stays.
    // The alarm ends it if this test fails.
    let code = "alarm 60; $SIG{USR1} = sub { $later = 1 }; for (;;) { $x = $later ? cos($i++) : sin($i++) }";
    let mut program = Command::new("perl").args(["-e", code]).spawn().expect("perl is there");
    let targets = Targets::Processes(vec![Tgid(program.id())]);
    let options = CollectorOptions { frequency: 997, targets, cache_tables: false, ..Default::default() };
    let mut collector = Collector::start(options, Arc::default(), Arc::new(Processes::default())).expect("this test needs root");
    walk_on(&mut collector, 300);
    let tables = collector.tables.as_ref().unwrap();
    let before = tables.status();
    tables.shared.lock().most_bytes = 1000;
    tables.tidy(now().0 + (u64::from(2 * RECENTLY) << 30));
    tables.shared.lock().most_bytes = MOST_BYTES;
    assert!(tables.status().evicted >= 1 && tables.status().ready < before.ready, "{before:?}, {:?}", tables.status());
    let pid = rustix::process::Pid::from_raw(program.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    walk_on(&mut collector, 2000);
    assert!(
        collector.objects().iter().any(|object| object.path.contains("/libm") && matches!(object.state, ObjectState::Ready(_)))
    );
    program.kill().unwrap();
    program.wait().unwrap();
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
