//! Attacks on flametop's reading about processes: a process holds its memory lock, maps files without end, or maps memory without end.

use std::collections::BTreeMap;

use rustix::process::Signal;

use super::common::Terminal;
use super::common::kernel::{cpu_of, cpu_told_by};
use super::*;

/// Resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

/// Makes a FUSE device in the attacker's directory. Where udev runs, everybody may open /dev/fuse.
fn make_device(lair: &Lair) {
    let device = rustix::fs::makedev(10, 229);
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let node = lair.path().join("device");
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::CharacterDevice, mode, device)
        .expect("NOT TESTED: no mknod");
    rustix::fs::chmod(&node, mode).unwrap();
}

/// A program that holds its own memory lock.
fn holder(lair: &Lair) -> Running {
    make_device(lair);
    await_lock(lair.start(&attacker("fuse.c", &[]).path, &["40"]))
}

/// Programs that hold their own memory locks. Each runs from another file, so that each needs a table and names.
fn holders(lair: &Lair, count: u8) -> Vec<Running> {
    make_device(lair);
    let program = std::fs::read(attacker("fuse.c", &[]).path).unwrap();
    let start = |number: u8| {
        let path = lair.path().join(format!("holder-{number}"));
        std::fs::write(&path, [program.as_slice(), &[number]].concat()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        await_lock(lair.run(&path, &["600"]))
    };
    (0..count).map(start).collect()
}

fn await_lock(holder: Running) -> Running {
    // It holds its lock: a process that reads its arguments waits. (Since Linux 6.17 its mappings can be read without that lock.)
    let (tell, told) = std::sync::mpsc::channel();
    let arguments = format!("/proc/{}/cmdline", holder.pid());
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (tell, arguments) = (tell.clone(), arguments.clone());
        std::thread::spawn(move || tell.send(std::fs::read(arguments).is_ok()));
        match told.recv_timeout(Duration::from_secs(1)) {
            Err(_) => return holder,
            Ok(there) => assert!(there && Instant::now() < until, "NOT TESTED: the lock is not held (see what it said)"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_process_that_holds_its_memory_lock_holds_up_nobody() {
    let _alone = alone();
    let lair = Lair::new();
    let holder = holder(&lair);
    let recording = Recording::start(&["-F", "499", "-d", "8"]);
    std::thread::sleep(Duration::from_millis(1500));
    let witness = Witness::start("witness-lock");
    let (lines, said) = recording.end(Duration::from_millis(6500));
    drop((witness, holder));
    Witness::assert_seen("witness-lock", &lines);
    let of_it: u64 = lines.iter().filter(|line| line.frames[0] == "holder").map(|line| line.count).sum();
    assert!(of_it > 100, "{of_it} samples of the holder: {said}");
}

#[test]
fn a_recording_beside_a_held_lock_ends_at_the_first_signal() {
    let _alone = alone();
    let lair = Lair::new();
    let holder = holder(&lair);
    let recording = Recording::start(&["-F", "499"]);
    std::thread::sleep(Duration::from_millis(2500));
    common::terminal::kill(recording.pid(), Signal::TERM);
    let (lines, _) = recording.end(Duration::ZERO);
    drop(holder);
    assert!(lines.iter().any(|line| line.frames[0] == "holder"));
}

/// Limit for the end of a run beside an attacker.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Records beside programs that hold their locks, for each of these times: once until a signal, and once with `-d`.
#[track_caller]
fn assert_ends(times: impl Iterator<Item = Duration>) {
    let lair = Lair::new();
    let holders = holders(&lair, 6);
    let (mut ends, mut missing) = (Vec::new(), Vec::new());
    for (time, is_signal) in times.flat_map(|time| [(time, true), (time, false)]) {
        let seconds = format!("{:.3}", time.as_secs_f64());
        let args: &[&str] = if is_signal { &["-F", "499"] } else { &["-F", "499", "-d", &seconds] };
        let recording = Recording::start_with_priority(args);
        let since = recording.wait_for_clocks() + time;
        std::thread::sleep(since.saturating_duration_since(Instant::now()));
        if is_signal {
            common::terminal::kill(recording.pid(), Signal::TERM);
        }
        let (lines, said) = recording.end(Duration::from_millis(300));
        ends.push((since.elapsed(), time, is_signal));
        if !lines.iter().any(|line| line.frames[0] == "holder") {
            missing.push(format!("{time:?}: {said}"));
        }
    }
    drop(holders);
    ends.sort_unstable();
    println!("ends, shortest first: {ends:?}");
    assert!(missing.is_empty(), "no samples of the holders: {missing:#?}");
    assert!(ends.last().is_some_and(|(longest, ..)| *longest <= END_WITHIN), "{ends:?}");
}

#[test]
fn recordings_beside_held_locks_end_within_two_seconds() {
    let _alone = alone();
    assert_ends([400, 1600, 2700].into_iter().map(Duration::from_millis));
}

#[test]
#[ignore = "fifty recordings take three minutes"]
fn fifty_recordings_beside_held_locks_end_within_two_seconds() {
    let _alone = alone();
    assert_ends((0..25).map(|number| Duration::from_millis(300 + number * 237)));
}

#[test]
fn recordings_beside_nobody_end_within_half_a_second() {
    let _alone = alone();
    let witness = Witness::start("witness-end");
    let mut ends = Vec::new();
    for time in [1000, 2000, 3000].map(Duration::from_millis) {
        let recording = Recording::start_with_priority(&["-F", "499"]);
        let since = recording.wait_for_clocks() + time;
        std::thread::sleep(since.saturating_duration_since(Instant::now()));
        common::terminal::kill(recording.pid(), Signal::TERM);
        let (lines, _) = recording.end(Duration::ZERO);
        ends.push(since.elapsed());
        Witness::assert_seen("witness-end", &lines);
    }
    drop(witness);
    println!("ends: {ends:?}");
    assert!(ends.iter().all(|end| *end <= Duration::from_millis(500)), "{ends:?}");
}

/// Programs whose locks are held for 4.3 s again and again while they run new files: of `users` users, two each.
pub(crate) fn late_answerers(users: u32) -> Vec<(Running, Lair)> {
    let program = attacker("fuse.c", &[]).path;
    let start = |number: u32| {
        let lair = Lair::new();
        make_device(&lair);
        let program = lair.copy(&program, "holder");
        let running = lair.run_as(100_000 + number / 2, &program, &["60", "late"]);
        (running, lair)
    };
    (0..users * 2).map(start).collect()
}

/// A user namespace of uid 100000, with `count` subordinate user numbers as newuidmap(1) assigns them.
fn namespace_with_numbers(count: u32) -> Running {
    let mut command = Command::new("unshare");
    command.args(["--user", "sleep", "120"]).stdin(Stdio::null()).uid(100_000).gid(100_000);
    let namespace = Running { child: command.spawn().expect("unshare (util-linux) is needed by this test") };
    let until = Instant::now() + Duration::from_secs(60);
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    while of(&namespace.pid_text()) == of("self") {
        assert!(Instant::now() < until, "NOT TESTED: an ordinary user cannot make a user namespace here");
        std::thread::sleep(Duration::from_millis(10));
    }
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{map}", namespace.pid()), format!("0 200000 {count}")).unwrap();
    }
    namespace
}

/// Starts [`late_answerers`], each with a different user number of one user.
fn late_answerers_of_one(namespace: &Running, count: u32) -> Vec<(Running, Lair)> {
    let program = attacker("fuse.c", &[]).path;
    let start = |number: u32| {
        let lair = Lair::new();
        make_device(&lair);
        let program = lair.copy(&program, "holder");
        rustix::fs::chown(lair.path(), Some(rustix::process::Uid::from_raw(200_000 + number)), None).unwrap();
        let mut command = Command::new("nsenter");
        command.args([
            "--user",
            "--target",
            &namespace.pid_text(),
            "--setuid",
            &number.to_string(),
            "--setgid",
            &number.to_string(),
        ]);
        command.arg("--").arg(program).args(["60", "late"]).current_dir(lair.path()).stdin(Stdio::null()).stdout(Stdio::null());
        (Running { child: command.spawn().expect("nsenter (util-linux) is needed by this test") }, lair)
    };
    (1..=count).map(start).collect()
}

/// CPU time of the thread that drains the rings.
fn cpu_of_draining(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let mut paths = threads.map(|thread| thread.unwrap().path());
    let is_it = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == "flametop-drain");
    cpu_told_by(&paths.find(is_it).expect("it has this thread"))
}

/// Starts a new witness of this name beside these attackers. Returns the number of its samples, how many are whole and named, and how
/// long the end took.
pub(crate) fn beside_late_answers<Started>(
    attackers: Vec<(Running, Lair)>,
    name: &str,
    start: impl FnOnce() -> Started,
) -> (u64, u64, Duration) {
    const TIME: Duration = Duration::from_secs(8);
    let count = attackers.len();
    // Time until each holds its lock.
    std::thread::sleep(Duration::from_secs(3));
    let recording = Recording::start(&["-F", "499", "-d", &TIME.as_secs().to_string()]);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let witness = start();
    std::thread::sleep(TIME.saturating_sub(begun.elapsed() + Duration::from_millis(200)));
    let draining = cpu_of_draining(recording.pid());
    std::thread::sleep(TIME.saturating_sub(begun.elapsed()));
    recording.raise_priority();
    let since = Instant::now();
    let (lines, said) = recording.end(Duration::ZERO);
    let took = since.elapsed();
    drop(witness);
    let of_them: u64 = lines.iter().filter(|line| line.frames[0] == "holder").map(|line| line.count).sum();
    drop(attackers);
    let (all, whole) = Witness::count(name, &lines);
    println!(
        "beside {count} attackers: {whole} of {all} whole and named, {of_them} samples of them, ended {took:?} after its time, the draining \
         thread took {draining:?} of CPU in {TIME:?}; {said}"
    );
    assert!(of_them > 100, "{of_them} samples of the attackers: {said}");
    assert!(draining < TIME / 5, "the draining thread took {draining:?}");
    (all, whole, took)
}

#[test]
fn answers_that_come_late_take_tables_and_names_from_nobody() {
    let _alone = alone();
    for users in [1, 8] {
        let name = format!("witness-late-{users}");
        assert_unharmed(beside_late_answers(late_answerers(users), &name, || Witness::start_unseen(&name)), 200);
    }
}

/// A user with subordinate user numbers is one user, however many of them he uses.
#[test]
fn a_user_with_many_numbers_takes_tables_and_names_from_nobody() {
    let _alone = alone();
    let namespace = namespace_with_numbers(1000);
    let name = "witness-numbers";
    let attackers = late_answerers_of_one(&namespace, 32);
    assert_unharmed(beside_late_answers(attackers, name, || Witness::start_unseen(name)), 60);
}

#[track_caller]
pub(crate) fn assert_unharmed((all, whole, took): (u64, u64, Duration), least: u64) {
    assert!(all > least, "{all} samples of the witness");
    // The first moments of a new program pass before its table is there.
    assert!(whole * 100 >= all * 99, "{whole} of {all}");
    assert!(took <= END_WITHIN, "{took:?}");
}

/// Maps files with long names, one after the other, and asserts that flametop's memory hardly grows and that the next program has its names.
#[track_caller]
fn assert_mapped_files_are_let_go(args: &[&str]) {
    let lair = Lair::new();
    let recording = Recording::start(&["-F", "99", "-d", "22", "--memory", "64M"]);
    let attacker = lair.start(&attacker("files.c", &[]).path, args);
    // Memory is measured in a recording of the attacker alone: to name other programs takes tens of megabytes, and gives them back.
    let measured = Recording::start(&["-F", "99", "-d", "22", "--memory", "64M", "-p", &attacker.pid_text()]);
    std::thread::sleep(Duration::from_secs(4));
    let mut sizes = vec![resident(measured.pid())];
    for _ in 0..9 {
        std::thread::sleep(Duration::from_secs(1));
        sizes.push(resident(measured.pid()));
    }
    let witness = Witness::start("witness-files");
    std::thread::sleep(Duration::from_secs(4));
    let (lines, _) = recording.end(Duration::from_secs(1));
    let (_, said) = measured.end(Duration::from_secs(1));
    drop((attacker, witness));
    println!("bytes: {sizes:?}; {said}");
    // Without the fix memory grew by 4.7 MB a second.
    let grown = sizes[sizes.len() - 1].saturating_sub(sizes[0]);
    assert!(grown < 4_500_000, "bytes after each second: {sizes:?}; {said}");
    Witness::assert_seen("witness-files", &lines);
}

#[test]
#[ignore = "half a minute, of one kind with `files_that_are_never_mapped_over_are_bounded`"]
fn files_that_were_mapped_once_are_let_go() {
    let _alone = alone();
    assert_mapped_files_are_let_go(&["20"]);
}

#[test]
fn files_that_are_never_mapped_over_are_bounded() {
    let _alone = alone();
    assert_mapped_files_are_let_go(&["20", "apart"]);
}

/// Executable mappings of files, one after the other, at falling addresses.
#[test]
fn nine_thousand_mappings_a_second_cost_nobody_a_frame() {
    let _alone = alone();
    let (per_second, witness) = (9000, "witness-9000");
    let lair = Lair::new();
    let recording = Recording::start(&["-F", "499", "-d", "12"]);
    std::thread::sleep(Duration::from_secs(2));
    let attacker = lair.start(&attacker("mappings.c", &[]).path, &["20", "rate", &per_second.to_string()]);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let witness_runs = Witness::start(witness);
    let before = cpu_of(recording.pid());
    std::thread::sleep(Duration::from_secs(4));
    let cpu = cpu_of(recording.pid()).saturating_sub(before);
    let counts = std::fs::read_to_string(lair.path().join("count")).unwrap_or_default();
    let took = begun.elapsed();
    let (lines, said) = recording.end(Duration::from_secs(3));
    drop((attacker, witness_runs));
    let made: u64 = counts.lines().last().and_then(|count| count.parse().ok()).unwrap_or_default();
    println!("{} mappings a second; {cpu:?} of CPU in 4 s; {said}", made * 1000 / took.as_millis() as u64);
    assert!(made * 1000 > per_second * 4 / 5 * took.as_millis() as u64, "the attack has not taken place: {made} in {took:?}");
    Witness::assert_seen(witness, &lines);
    assert!(lines.iter().any(|line| line.frames[0] == "mappings"), "the attacker is seen as well");
}

/// Makes as many executable mappings as two CPUs can. Events are lost, but a program that begins meanwhile still has all its names.
#[test]
fn a_flood_of_mappings_takes_no_name_from_a_new_program() {
    let _alone = alone();
    let lairs = [Lair::new(), Lair::new()];
    let recording = Recording::start(&["-F", "499", "-d", "9"]);
    std::thread::sleep(Duration::from_millis(500));
    let program = attacker("mappings.c", &[]);
    let attacks = lairs.each_ref().map(|lair| lair.start(&program.path, &["20", "rate", "1000000000"]));
    std::thread::sleep(Duration::from_secs(4));
    let witness = Witness::start_unseen("after_mappings");
    let (lines, said) = recording.end(Duration::from_secs(9));
    drop((attacks, witness));
    println!("{said}");
    names::assert_named("after_mappings", &lines);
}

/// Bytes read so far by each thread that asks about processes; the highest count seen. (Other threads read programs of any size.)
#[derive(Default)]
struct ReadAboutProcesses(BTreeMap<PathBuf, u64>);

impl ReadAboutProcesses {
    fn look(&mut self, pid: u32) {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten().map(|thread| thread.path());
        let asks =
            |thread: &PathBuf| std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("processes-"));
        for thread in threads.filter(asks) {
            let text = std::fs::read_to_string(thread.join("io")).unwrap_or_default();
            let read = text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap_or(0);
            self.0.entry(thread).and_modify(|most| *most = read.max(*most)).or_insert(read);
        }
    }

    fn bytes(&self) -> u64 {
        self.0.values().sum()
    }
}

#[test]
fn a_list_of_65530_mappings_with_long_paths_is_read_in_part() {
    let _alone = alone();
    let lair = Lair::new();
    // The limit (vm.max_map_count), minus the mappings of its own program and libraries: a list of 240 MB.
    let mut attacker = lair.start(&attacker("mappings.c", &[]).path, &["60", "many", "65480"]);
    let begun = Instant::now();
    while !lair.path().join("done").exists() {
        assert!(attacker.child.try_wait().unwrap().is_none(), "NOT TESTED: vm.max_map_count is less than 65530");
        assert!(begun.elapsed() < Duration::from_secs(20), "the attack takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
    let recording = Recording::start(&["-F", "499", "-d", "11"]);
    std::thread::sleep(Duration::from_secs(4));
    let before = resident(recording.pid());
    common::terminal::kill(attacker.pid(), Signal::CONT);
    let mut read = ReadAboutProcesses::default();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        read.look(recording.pid());
    }
    let witness = Witness::start("witness-list");
    std::thread::sleep(Duration::from_millis(2500));
    read.look(recording.pid());
    let after = resident(recording.pid());
    let (lines, said) = recording.end(Duration::from_secs(3));
    drop((attacker, witness));
    let (memory, read) = (after.saturating_sub(before), read.bytes());
    println!("{} MB more in memory, {} MB read; {said}", memory / 1_000_000, read / 1_000_000);
    // The list is 240 MB, and 16 MiB of it are read; the lists of other processes take the rest. If a thread ends between two
    // looks, its last bytes are not counted: 14 MB were seen, too. To read it all takes a third of a second and would be seen.
    assert!(read < 24_000_000, "{read} bytes were read: {said}");
    // 38 to 48 MB were measured; 33 and 34 with only ten mappings: these are symbols of programs that run meanwhile, such as this
    // test. So the list takes 5 to 15 MB: the paths that fit into one user's share of the memory for files. All paths would be
    // 240 MB.
    assert!(memory < 80_000_000, "{memory} bytes more in memory: {said}");
    assert!(said.contains("cut at 16 MB"), "that the list was cut is not said: {said}");
    Witness::assert_seen("witness-list", &lines);
    assert!(lines.iter().any(|line| line.frames[0] == "mappings"), "the attack has not taken place: {said}");
}

#[test]
fn the_live_view_ends_beside_a_held_lock() {
    let _alone = alone();
    let lair = Lair::new();
    let holder = holder(&lair);
    let mut terminal = Terminal::start(&["-F", "499"], 36, 132, &[]);
    // It is on the screen: so it was sampled, and flametop has asked about it.
    terminal.wait_for_text("live", Duration::from_secs(60));
    terminal.wait_for_text("holder", Duration::from_secs(60));
    terminal.keys("q");
    terminal.wait_exit_within(SOON);
    terminal.assert_restored();
    drop(holder);
}

#[test]
fn a_second_signal_beside_a_held_lock_saves_what_is_there() {
    let _alone = alone();
    for signal in [Signal::INT, Signal::TERM] {
        let lair = Lair::new();
        let holder = holder(&lair);
        let recording = Recording::start(&["-F", "499"]);
        std::thread::sleep(Duration::from_millis(2500));
        common::terminal::kill(recording.pid(), signal);
        // Signals within 100 ms count as one.
        std::thread::sleep(Duration::from_millis(150));
        common::terminal::kill(recording.pid(), signal);
        let (lines, said) = recording.end(Duration::ZERO);
        drop(holder);
        assert_has("holder", &lines, &said);
    }
}

/// The command and the holder that it starts ignore the request to end. That delays the end for five seconds.
#[test]
fn a_second_signal_ends_a_command_that_holds_its_lock_and_saves() {
    let _alone = alone();
    for signal in [Signal::INT, Signal::TERM] {
        let lair = Lair::new();
        make_device(&lair);
        lair.copy(&attacker("fuse.c", &[]).path, "fuse");
        // Children inherit ignored signals.
        let script = format!("trap '' INT TERM HUP; cd {} && ./fuse 40 & while :; do :; done", lair.path().display());
        let recording = Recording::start(&["-F", "499", "--user", "65534", "--", "sh", "-c", &script]);
        std::thread::sleep(Duration::from_secs(3));
        common::terminal::kill(recording.pid(), signal);
        std::thread::sleep(Duration::from_millis(1500));
        let is_there = std::fs::read_to_string(format!("/proc/{}/cmdline", recording.pid())).is_ok_and(|line| !line.is_empty());
        assert!(is_there, "nothing has held up the end");
        common::terminal::kill(recording.pid(), signal);
        let begun = Instant::now();
        let (lines, said) = recording.end(Duration::ZERO);
        println!("ended {:?} after the second signal", begun.elapsed());
        ["holder", "sh"].into_iter().for_each(|name| assert_has(name, &lines, &said));
    }
}

#[track_caller]
fn assert_has(name: &str, lines: &[Line], said: &str) {
    let samples: u64 = lines.iter().filter(|line| line.frames[0] == name).map(|line| line.count).sum();
    assert!(samples > 100, "{samples} samples of {name}: {said}");
}
