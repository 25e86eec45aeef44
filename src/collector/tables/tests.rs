//! Tests of tables in real maps, for libraries that this process has mapped. They need root, and fail without it.

use crate::collector::processes::proc;
use crate::collector::sources::walk::Walk;
use crate::collector::sys::machine;
use crate::collector::tables::store::SILENCE;
use crate::collector::wire::perf_records::Inode;
use crate::collector::wire::records::ObjectKey;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::make::Work;
use super::queue::{Job, Sought};
use super::served::{FileFor, For};
use super::shares::RECENTLY;
use super::store::TableState;
use super::*;
use crate::collector::sources::clock::{Sampler, Settings};
use crate::collector::sys::machine::now;
use crate::collector::{Batch, Collector, CollectorOptions, Targets};
use crate::object::open;
use crate::profile::{Processes, Tgid, UserEnd, UserId};
use crate::unwind::Control;

fn sampler() -> Sampler {
    let settings = Settings {
        walk: Walk::Tables,
        limit_walks: true,
        frequency: 1,
        include_idle: false,
        include_self: false,
        filter: false,
        follow_forks: false,
        ring_bytes: 4096,
    };
    Sampler::load(settings).expect("this test needs root")
}

/// Returns the kernel's key of a file.
fn key_of(path: &Path) -> ObjectKey {
    let file = File::open(path).unwrap();
    let about = file.metadata().unwrap();
    let modified = (about.mtime(), u32::try_from(about.mtime_nsec()).unwrap());
    let generation = machine::inode_generation(&file).map_or(0, |generation| identity::content(generation, modified));
    let device = rustix::fs::major(about.dev()) << 20 | rustix::fs::minor(about.dev());
    ObjectKey { inode: about.ino(), device, generation }
}

/// Returns the wish of a sample in a file that our own process has unmapped since.
fn wish_for(path: &Path, user: UserId) -> Wish {
    Wish { time: 0, tgid: std::process::id(), start: 0, end: 0, key: key_of(path), user, files: open::own_files() }
}

/// Returns the wish of a sample in our own libc, and libc's path.
fn wish_for_libc() -> (Wish, Arc<str>) {
    let mapped = proc::own_maps().into_iter().find(|mapped| mapped.path.contains("/libc")).expect("libc is mapped");
    let wish = Wish { start: mapped.start, end: mapped.end, ..wish_for(Path::new(&mapped.path), UserId(0)) };
    (wish, mapped.path.into())
}

/// Makes a copy of libc that is not the host's file, with its last byte changed by `change`.
fn copy_of_libc(directory: &Path, name: &str, change: u8) -> Arc<str> {
    let mut bytes = std::fs::read(&*wish_for_libc().1).unwrap();
    *bytes.last_mut().unwrap() ^= change;
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().into()
}

fn wait_for(tables: &Tables, what: impl Fn(&TablesStatus) -> bool) -> TablesStatus {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = tables.status();
        if what(&status) {
            return status;
        }
        assert!(Instant::now() < until, "{status:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Each job wakes one idle worker. It never wakes a worker in the middle of a conversion, which would leave the job without a worker.
#[test]
fn a_conversion_that_waits_for_time_takes_no_other_job() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let bytes = std::fs::read("/usr/bin/true").unwrap();
    let (wish, _) = wish_for_libc();
    let long = Job {
        sought: Sought::Sampled(wish.key),
        tgid: wish.tgid,
        user: wish.user,
        files: wish.files,
        mapping: (0, 0),
        path: None,
        lately: Vec::new(),
        link: Arc::default(),
    };
    std::thread::scope(|scope| {
        for _ in 1..WORKERS {
            let (shared, long) = (&*tables.shared, &long);
            // 1.5 s of CPU time at once: it has to wait for two seconds.
            scope.spawn(move || Work::begin(shared, long, wish.key, UserId(0)).charge(Duration::from_millis(1500)));
        }
        let until = Instant::now() + Duration::from_secs(60);
        while tables.shared.lock().throttled < WORKERS - 1 {
            assert!(Instant::now() < until, "they must wait");
            std::thread::sleep(Duration::from_millis(1));
        }
        for number in 0..20 {
            let path = directory.path().join(format!("{number}"));
            std::fs::write(&path, [&bytes[..], &[number]].concat()).unwrap();
            let path: Arc<str> = path.to_str().unwrap().into();
            tables.wish(&wish_for(Path::new(&*path), UserId(7)), || (Some(path.clone()), Vec::new()));
            wait_for(&tables, |status| status.waiting == 0);
        }
        assert_eq!(tables.shared.lock().throttled, WORKERS - 1, "they waited all the time");
    });
}

#[test]
fn code_that_nobody_waits_for_is_analysed_slowly_and_only_while_its_file_is_in_use() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let (wish, path) = wish_for_libc();
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    wait_for(&tables, |status| status.ready == 2);
    let job = |key, tgid| Job {
        sought: Sought::Sampled(key),
        tgid,
        user: wish.user,
        files: wish.files,
        mapping: (0, 0),
        path: None,
        lately: Vec::new(),
        link: Arc::default(),
    };
    let spent = Duration::from_millis(600);
    let own = job(wish.key, wish.tgid);
    assert!(Work::begin(&tables.shared, &own, wish.key, UserId(0)).charge(spent), "a sample waits for it: it need not wait");
    let of_others = Work::begin(&tables.shared, &own, wish.key, UserId(7));
    of_others.goes_on_with(false);
    assert!(
        of_others.charge(spent) && tables.shared.lock().throttled == 0,
        "the worker that may wait for other users stays free"
    );
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let work = Work::begin(&tables.shared, &own, wish.key, UserId(0));
            work.goes_on_with(false);
            work.charge(spent)
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waits.is_finished() && tables.shared.lock().throttled == 1);
        // A sample that needs other code of the file.
        tables.shared.lock().hint(wish.key, 0x1000);
        let begun = Instant::now();
        assert!(waits.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(1));
    });
    const NOBODY: u32 = 5_000_000;
    let is_used = |key, tgid| Work::begin(&tables.shared, &job(key, tgid), key, UserId(0)).is_used();
    let other = ObjectKey { inode: 1, device: 1, generation: 1 };
    assert_eq!([is_used(other, wish.tgid), is_used(wish.key, NOBODY), is_used(other, NOBODY)], [true, true, false]);
}

#[test]
fn files_of_the_same_bytes_share_a_table_which_goes_when_there_is_no_room_and_comes_again() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let directory = tempfile::tempdir().unwrap();
    // The vDSO's table.
    assert_eq!(tables.status().ready, 1);
    let (wish, path) = wish_for_libc();
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    // A second wish for the table while it is made changes nothing.
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    let one = wait_for(&tables, |status| status.ready == 2 && status.waiting == 0);
    assert!(one.rows > 10_000 && one.bytes > 40_000 && one.segment_bytes == 2 << 20, "{one:?}");

    // A copy with libc's build id and length gets another table, because it is not the host's file. A copy with equal bytes shares it.
    let copies = [("a", 0), ("b", 0), ("c", 1)].map(|(name, change)| copy_of_libc(directory.path(), name, change));
    for (copy, ready) in copies.iter().zip([3, 3, 4]) {
        tables.wish(&wish_for(Path::new(&**copy), UserId(7)), || (Some(copy.clone()), Vec::new()));
        let status = wait_for(&tables, |status| status.waiting == 0);
        assert_eq!(status.ready, ready, "{copy}");
    }

    // The kernel's walk has not used any table yet, so all tables except the vDSO's may be evicted.
    let before = tables.status();
    tables.shared.lock().most_bytes = 1000;
    tables.tidy(now().0 + (u64::from(2 * RECENTLY) << 30));
    let evicted = tables.status();
    assert_eq!((evicted.ready, evicted.evicted), (1, 3));
    tables.shared.lock().most_bytes = KERNEL_MEMORY;
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    let again = wait_for(&tables, |status| status.ready == 2);
    // The room of the evicted table is not reused yet, because a BPF program may still be reading there.
    assert!(again.bytes > before.bytes, "{again:?}");
}

#[test]
fn files_that_no_process_maps_go_after_a_minute_and_tables_when_nothing_leads_to_them() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let copies = ["a", "b", "c"].map(|name| copy_of_libc(directory.path(), name, 0));
    let wishes = copies.each_ref().map(|copy| wish_for(Path::new(&**copy), UserId(7)));
    for (wish, copy) in wishes.iter().zip(&copies) {
        tables.wish(wish, || (Some(copy.clone()), Vec::new()));
        wait_for(&tables, |status| status.waiting == 0);
    }
    let begun = now().0;
    let known_after = |seconds: u64, mapped: &[usize]| {
        let mapped = mapped.iter().map(|number| {
            let about = std::fs::metadata(&*copies[*number]).unwrap();
            let inode = Inode { device: about.dev(), number: about.ino(), generation: None };
            Identity::Inode(inode)
        });
        tables.forget_unused(begun + (seconds << 30), mapped);
        tables.tidy(begun);
        let inner = tables.shared.lock();
        let known = wishes.each_ref().map(|wish| matches!(inner.states.get(&FileFor::all(wish.key)), Some(TableState::Done(_))));
        (known, inner.status().ready)
    };
    assert_eq!(known_after(50, &[]), ([true; 3], 2), "not yet");
    assert_eq!(known_after(100, &[0]), ([true, false, true], 2), "what is mapped stays, and what came last");
    assert_eq!(known_after(1000, &[0]), ([true, false, true], 2));
    // A file that was forgotten comes again, without a new table.
    tables.wish(&wishes[1], || (Some(copies[1].clone()), Vec::new()));
    wait_for(&tables, |status| status.waiting == 0);
    assert_eq!(known_after(0, &[]), ([true; 3], 2));
    assert_eq!(known_after(1000, &[]), ([false; 3], 1), "the vDSO's stays");
    tables.wish(&wishes[0], || (Some(copies[0].clone()), Vec::new()));
    wait_for(&tables, |status| status.ready == 2);
}

#[test]
fn a_file_that_is_not_the_one_that_was_sampled_is_not_taken_for_it() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let (wish, path) = wish_for_libc();
    let keys = [
        ObjectKey { inode: wish.key.inode + (1 << 32), ..wish.key },
        ObjectKey { device: wish.key.device + 1, ..wish.key },
        ObjectKey { generation: wish.key.generation ^ 1, ..wish.key },
    ];
    for key in keys {
        tables.wish(&Wish { key, ..wish }, || (Some(path.clone()), Vec::new()));
        let status = wait_for(&tables, |status| status.waiting == 0);
        assert_eq!((status.ready, status.without), (1, 0), "{key:?}");
    }
}

#[test]
fn a_user_who_floods_takes_half_of_the_room_and_root_has_the_rest() {
    let sampler = sampler();
    // Room for four segments.
    let tables = sampler.tables(None, 4 * u64::from(kernel::SEGMENT_BYTES)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut most = 0;
    for number in 0..=40u8 {
        let copy = copy_of_libc(directory.path(), &format!("libc-{number}"), number);
        tables.wish(&wish_for(Path::new(&*copy), UserId(7)), || (Some(copy.clone()), Vec::new()));
        let status = wait_for(&tables, |status| status.waiting == 0);
        tables.tidy(now().0);
        most = most.max(status.segment_bytes);
        assert!(status.bytes <= status.bound / 2 + 100_000, "{status:?}");
    }
    let flooded = tables.status();
    assert!(flooded.ready < 40 && flooded.evicted + flooded.waiting_for_room as u64 > 0, "{flooded:?}");
    let (wish, path) = wish_for_libc();
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    let status = wait_for(&tables, |status| status.waiting == 0);
    assert!(tables.objects().iter().any(|object| object.path == path), "{status:?}");
    assert!(most <= 4 * u64::from(kernel::SEGMENT_BYTES));
}

#[test]
fn what_one_user_is_refused_or_waits_for_another_gets() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let (wish, path) = wish_for_libc();
    let users = [UserId(7), UserId(8), UserId(0)];
    let known = || users.map(|user| tables.shared.lock().has_object(wish.key, user));
    tables.shared.lock().refuse(wish.key, UserId(7), path.clone(), "it is a test".to_owned());
    // Its job waits in a line that is not served.
    tables.shared.lock().ask(wish.key, UserId(8));
    assert_eq!(known(), [true, false, false]);
    assert!(!tables.shared.lock().is_wanted(&Wish { user: UserId(8), ..wish }));
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    let status = wait_for(&tables, |status| status.ready == 2);
    assert_eq!((known(), status.without), ([true; 3], 1));
    // A table that serves a user alone is no other's.
    let own = ObjectKey { inode: 1, ..wish.key };
    let of_user =
        store::Finished { users: For::User(UserId(7)), ..store::Finished::of_root(own, "a test".into(), table_of_vdso()) };
    tables.shared.lock().finish(of_user);
    let rule_for = |user| tables.rules().rule(own, user, 0);
    assert!(rule_for(UserId(7)) != RuleAt::NotYet && rule_for(UserId(8)) == RuleAt::NotYet);
}

#[test]
fn fifty_thousand_objects_in_a_row_leave_room_for_the_next() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let finish = |number: u64, user: UserId| {
        let key = ObjectKey { inode: 1 + number, device: 1, generation: 0 };
        let nothing = store::Finished::of_root(key, "a test".into(), Err("it is a test".to_owned()));
        tables.shared.lock().finish(store::Finished { user, asked_by: user, ..nothing });
    };
    for user in [UserId(7), UserId(0)] {
        for number in 0..50_000 {
            finish(u64::from(user.0) << 32 | number, user);
            if number % 500 == 0 {
                tables.shared.lock().forget_the_grace();
                tables.tidy(now().0);
            }
        }
        let inner = tables.shared.lock();
        assert!(inner.states.len() <= 40_000, "{} files are remembered", inner.states.len());
        drop(inner);
        assert!(tables.objects().len() < 14_000);
        let (wish, path) = wish_for_libc();
        tables.wish(&wish, || (Some(path.clone()), Vec::new()));
        wait_for(&tables, |status| status.waiting == 0);
        let names: BTreeSet<Arc<str>> = tables.objects().into_iter().map(|object| object.path).collect();
        assert!(names.contains(&path));
    }
    // Nothing is evicted in between. Users other than root run out of places, root does not.
    for number in 0..9000 {
        finish(1 << 40 | number, UserId(8));
    }
    let (wish, path) = wish_for_libc();
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    wait_for(&tables, |status| status.waiting == 0);
    assert!(tables.objects().iter().any(|object| object.path == path));
}

#[test]
fn a_file_has_its_path_also_where_the_event_that_tells_it_comes_later() {
    let (wish, path) = wish_for_libc();
    let job = |path| Job {
        sought: Sought::Sampled(wish.key),
        tgid: std::process::id(),
        user: UserId(0),
        files: wish.files,
        mapping: (wish.start, wish.end),
        path,
        // Files that other processes have mapped meanwhile.
        lately: vec!["/usr/bin/other".into()],
        link: Arc::default(),
    };
    let title_of = |job: Job| {
        // A thread that may never come back has a clone of the job.
        let _ = identity::find(&job.clone());
        job.title()
    };
    assert_eq!(title_of(job(None)), path);
    assert_eq!(&*title_of(job(Some("/told".into()))), "/told");
    assert_eq!(&*title_of(Job { tgid: u32::MAX, ..job(None) }), "a file of process 4294967295");
}

#[test]
fn a_file_that_did_not_answer_is_asked_again_later() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let (wish, path) = wish_for_libc();
    let (moment, seconds) = (Instant::now(), machine::coarse(now()));
    tables.shared.lock().refuse(wish.key, UserId(0), path.clone(), "its file system does not answer".to_owned());
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    tables.shared.lock().tidy(seconds, moment + SILENCE - Duration::from_secs(1));
    let status = tables.status();
    assert_eq!((status.ready, status.without, status.waiting), (1, 1, 0));
    assert!(matches!(&tables.objects()[1].state, ObjectState::Without(why) if why.contains("does not answer")));
    tables.shared.lock().tidy(seconds, moment + SILENCE + Duration::from_secs(1));
    assert_eq!(tables.status().without, 0);
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    let status = wait_for(&tables, |status| status.ready == 2);
    assert_eq!((status.without, status.evicted), (0, 0));
    assert_eq!(tables.objects().len(), 2);
}

/// Samples until `without_fault` samples in a row had a table for each frame.
fn walk_on(collector: &mut Collector, without_fault: usize) {
    let (mut batch, mut faultless) = (Batch::default(), 0);
    let until = Instant::now() + Duration::from_secs(60);
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
    // The program first runs sin, so the rules of sin are in a cache. After a signal it runs cos, which is also in libm but has no cached
    // rules. It is a separate process, so that its mappings never change and its cached mappings stay valid.
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
    tables.shared.lock().most_bytes = KERNEL_MEMORY;
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
    let copy = copy_of_libc(directory.path(), "a", 0);
    let (libc, path) = wish_for_libc();
    for (wish, path) in [(libc, path), (wish_for(Path::new(&*copy), UserId(7)), copy)] {
        let mut rows = Vec::new();
        for from_cache in [0, 1] {
            let sampler = sampler();
            let tables = sampler.tables(cache(), KERNEL_MEMORY).unwrap();
            tables.wish(&wish, || (Some(path.clone()), Vec::new()));
            let status = wait_for(&tables, |status| status.ready == 2);
            assert_eq!(status.from_cache, from_cache);
            rows.push((status.rows, status.bytes));
        }
        assert_eq!(rows[0], rows[1]);
    }
}

#[test]
fn what_cannot_be_had_is_tried_again_later_and_what_has_nothing_is_not() {
    let sampler = sampler();
    let tables = sampler.tables(None, KERNEL_MEMORY).unwrap();
    let (mut wish, path) = wish_for_libc();
    // The mapped file is not the file that the kernel named. The process may have started another program meanwhile.
    wish.key.inode += 1;
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    wait_for(&tables, |status| status.waiting == 0);
    assert!(matches!(tables.shared.lock().states.get(&FileFor::user(wish.key, wish.user)), Some(TableState::Later(_))));
    assert_eq!(tables.status().ready + tables.status().without, 1);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"\x7fELF, no more").unwrap();
    let path: Arc<str> = file.path().to_str().unwrap().into();
    let wish = wish_for(file.path(), UserId(0));
    tables.wish(&wish, || (Some(path.clone()), Vec::new()));
    wait_for(&tables, |status| status.without == 1);
    let without = tables.objects().into_iter().find(|object| object.path == path).unwrap();
    assert_eq!(without.state, ObjectState::Without("not an ELF file".to_string()));
}
