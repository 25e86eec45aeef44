//! Stacks at events: counts are exact, stacks have their callers, and a refused event says why.
//!
//! `tests/vm` tests features that this kernel may not offer (fentry and kprobes, on the build machines).

use super::*;

/// The counts that `record` prints for an event: events, and stacks taken.
#[track_caller]
fn counted(output: &Output) -> (u64, u64) {
    let words = words(output);
    let line = words.lines().find(|line| line.contains(" events, stacks of ")).unwrap_or_else(|| panic!("{words}"));
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty()).unwrap().parse().unwrap();
    let (before, stacks) = line.split_once(" events, stacks of ").unwrap();
    (before.rsplit(' ').next().unwrap().parse().unwrap(), number(stacks))
}

/// Records an event of a program; its counts and the lines of the file.
#[track_caller]
fn record(place: &Place, event: &str, program: &Program, args: &[&str]) -> ((u64, u64), Vec<Line>) {
    let path = program.path.to_str().unwrap().to_owned();
    let output = place.record(&[&["-e", event, "-o", "x.folded", "--force", "--", &path], args].concat());
    assert!(output.status.success(), "{}", words(&output));
    let text = std::fs::read_to_string(place.path("x.folded")).expect("the file is there and is UTF-8");
    (counted(&output), lines(&text))
}

fn weight(lines: &[Line], part: &str) -> u64 {
    lines.iter().filter(|line| line.text().contains(part)).map(|line| line.count).sum()
}

#[test]
fn calls_are_all_counted_and_shared_out_among_their_callers() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let event = format!("uprobe:{}:counted", program.path.display());
    let ((events, stacks), lines) = record(&place, &event, &program, &["calls", "400000"]);
    assert_eq!(events, 400_000);
    assert!(stacks >= 200, "{stacks} stacks");
    let (often, seldom) = (weight(&lines, ";often;counted"), weight(&lines, ";seldom;counted"));
    let all = weight(&lines, "");
    // Events after the last stack are in no stack.
    assert!(all <= events && all * 10 >= events * 9, "{all} of {events}");
    // The first stacks lack the program's unwind table.
    assert!((often + seldom) * 10 >= all * 9, "{often} and {seldom} of {all}:\n{}", listing(&lines));
    let share = seldom as f64 / (often + seldom) as f64;
    assert!((0.15..0.35).contains(&share), "a quarter was called by `seldom`, not {share}");
}

/// `record` says how much CPU time the program lost to the probe. The program measures it, too.
#[test]
fn what_a_probe_costs_its_program_is_told() {
    const CALLS: u64 = 200_000;
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let path = program.path.to_str().unwrap();
    // Nanoseconds of CPU of one round, as the program has measured it.
    let measured = |output: &Output| -> f64 { String::from_utf8_lossy(&output.stdout).trim().parse().unwrap() };
    let calls = CALLS.to_string();
    let free = measured(&Command::new(path).args(["calls", &calls]).output().unwrap());
    for event in ["uprobe", "uretprobe"] {
        let event = format!("{event}:{path}:counted");
        let ratio = || {
            let output = place.record(&["-e", &event, "-o", "x.folded", "--force", "--", path, "calls", &calls]);
            let words = words(&output);
            let told = words.split_once("they cost the programs about ").and_then(|(_, rest)| rest.split_once(" s of CPU"));
            let told: f64 = told.unwrap_or_else(|| panic!("{words}")).0.parse().unwrap();
            let lost = (measured(&output) - free) * CALLS as f64 / 1e9;
            println!("{event}: {told} s told, {lost:.2} s lost");
            told / lost
        };
        // On a virtual machine, all traps take 1.3 to 2.6 times as long for some seconds at a time: while flametop measures one, or
        // while the program runs.
        assert!((0..5).any(|_| (0.7..1.3).contains(&ratio())), "{event}: see the five costs above");
    }
}

#[test]
fn a_return_has_the_function_that_was_left_and_its_caller() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let event = format!("uretprobe:{}:counted", program.path.display());
    let ((events, _), lines) = record(&place, &event, &program, &["calls", "100000"]);
    assert_eq!(events, 100_000);
    assert_chain(&lines, "events", "main;often;counted");
    assert_chain(&lines, "events", "main;seldom;counted");
}

#[test]
fn functions_are_meant_by_their_readable_names() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    for name in ["shop::Till::sell", "*Till::se*", "/Till.*sell/"] {
        let event = format!("uprobe:{}:{name}", program.path.display());
        let ((events, _), lines) = record(&place, &event, &program, &["calls", "20000"]);
        assert_eq!(events, 20_000, "{name}");
        assert!(weight(&lines, "shop::Till::sell") > 0, "{}", listing(&lines));
    }
}

#[test]
fn tracepoints_and_counters_are_counted() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let ((forks, stacks), lines) = record(&place, "sched:sched_process_fork", &program, &["forks", "500"]);
    assert_eq!(forks, 500);
    assert!(stacks <= forks && weight(&lines, "main") > 0, "{}", listing(&lines));
    let ((faults, _), lines) = record(&place, "page-faults", &program, &["pages", "50000"]);
    assert!((50_000..55_000).contains(&faults), "{faults} page faults");
    assert!(weight(&lines, "main") > 40_000, "{}", listing(&lines));
}

#[test]
fn of_a_storm_few_stacks_are_taken_and_all_events_counted() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let path = program.path.to_str().unwrap();
    let args = ["-e", "syscalls:sys_enter_getppid", "--event-stacks", "100", "-o", "x.folded", "--", path, "parents", "2000000"];
    let began = std::time::Instant::now();
    let output = place.record(&args);
    let tenths = 1 + began.elapsed().as_millis() as u64 / 100;
    assert!(output.status.success(), "{}", words(&output));
    let (calls, stacks) = counted(&output);
    assert_eq!(calls, 2_000_000);
    // Ten stacks in a tenth of a second, and half as many each time that the period doubles. It doubles seventeen times, until
    // one period covers all calls. The program may run on two CPUs in turn.
    let most = tenths * (10 + 17 * 6) * 2;
    assert!((10..most).contains(&stacks), "{stacks} stacks, not up to {most}");
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    assert!(weight(&lines, "") <= calls && weight(&lines, "") * 10 >= calls * 8, "{} of {calls}", weight(&lines, ""));
}

/// flametop runs by a link with another name: other flametops may run on this machine, and they are not left out.
#[test]
fn flametop_itself_is_shown_only_if_it_is_asked_for() {
    let place = Place::new();
    let link = place.path("itself");
    std::os::unix::fs::symlink(FLAMETOP, &link).unwrap();
    let record = |args: &[&str]| {
        let mut command = Command::new(&link);
        command.args(["record", "-d", "1", "-o", "x.folded", "--force"]).args(args).current_dir(place.0.path());
        let output = to_its_end(&mut command);
        assert!(output.status.success(), "{}", words(&output));
        let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
        (words(&output), lines.iter().any(|line| line.process() == "itself"))
    };
    // The threads that wait for timers and signals do so by this call.
    let wait = if cfg!(target_arch = "x86_64") { "syscalls:sys_enter_epoll_wait" } else { "syscalls:sys_enter_epoll_pwait" };
    let both = ["-F", "4999", "-e", "cpu", "-e", wait];
    let (words, is_there) = record(&both);
    assert!(!is_there, "{words}");
    for told in
        [" samples of flametop itself left out (--self shows them)", " more in flametop itself not counted: --self shows them"]
    {
        assert!(words.contains(told), "{words}");
    }
    for events in [&both[..], &["-e", wait]] {
        let (words, is_there) = record(&[events, &["--self"]].concat());
        assert!(is_there && !words.contains("flametop itself"), "{events:?}: {words}");
    }
}

#[test]
fn several_events_are_counted_each_for_itself_and_the_clock_goes_on_beside_them() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let path = program.path.to_str().unwrap().to_owned();
    let args =
        ["-e", "page-faults", "-e", "cpu", "-e", "sched:sched_process_fork", "-o", "x.folded", "--", &path, "forks", "2000"];
    let output = place.record(&args);
    assert!(output.status.success(), "{}", words(&output));
    let words = words(&output);
    assert!(words.contains("sched:sched_process_fork: 2000 events"), "{words}");
    assert!(words.contains("page-faults: "), "{words}");
    assert!(words.contains("x.folded, of page-faults only"), "{words}");
}

/// The clock may tick while the BPF program at an event walks a stack. Then the clock's program walks the same stack on the same
/// CPU. (This happens at uprobes and at fentry. At other events the kernel skips such a tick: `bpf_prog_active`.)
#[test]
fn a_tick_in_the_middle_of_a_walk_at_an_event_leaves_both_stacks_right() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let path = program.path.to_str().unwrap();
    let event = format!("uprobe:{path}:counted");
    let whole = format!(";main{};", ";deeper".repeat(60));
    for events in [[&*event, "cpu"], ["cpu", &*event]] {
        let [first, second] = events;
        let args = ["-e", first, "-e", second, "-F", "4999", "--event-stacks", "100000", "-o", "x.folded", "--force"];
        let output = place.record(&[&args[..], &["--", path, "deep", "60000"]].concat());
        assert!(output.status.success(), "{}", words(&output));
        let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
        // Until there is a table, a stack has only its innermost frame.
        let reached: Vec<&Line> = lines.iter().filter(|line| line.text().contains(";main;deeper;")).collect();
        let called: Vec<&&Line> = reached.iter().filter(|line| line.text().contains(";often;counted")).collect();
        let wrong: Vec<&&&Line> = called.iter().filter(|line| !line.text().contains(&format!("{whole}often;counted"))).collect();
        assert!(wrong.is_empty(), "{first}: {wrong:#?}");
        let total = |lines: &[&&Line]| lines.iter().map(|line| line.count).sum::<u64>();
        assert!(total(&called) >= 200, "{first}: {}\n{}", total(&called), listing(&lines));
        if first == "cpu" {
            let met: Vec<&&Line> = called.iter().copied().filter(|line| line.text().contains("walk_step")).collect();
            assert!(total(&met) >= 20, "{} ticks met a walk\n{}", total(&met), listing(&lines));
        }
    }
}

/// On x86_64 the trap leaves pc behind the breakpoint while the kernel searches for the breakpoint's owner. The instruction that
/// pushes the frame pointer has not run then.
#[test]
fn a_tick_while_a_breakpoint_is_handled_finds_the_callers() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let path = program.path.to_str().unwrap();
    let event = format!("uprobe:{path}:framed");
    let args = ["-e", "cpu", "-e", &event, "-F", "4999", "-o", "x.folded", "--", path, "framed", "200000"];
    let output = place.record(&args);
    assert!(output.status.success(), "{}", words(&output));
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    let trapped = |whole: bool| {
        let is_it = |line: &&Line| line.text().contains(";framed;asm_exc_int3") && line.text().contains(";main;framed;") == whole;
        lines.iter().filter(is_it).map(|line| line.count).sum::<u64>()
    };
    if cfg!(target_arch = "x86_64") {
        // The first stacks lack the program's unwind table. In some the kernel has already pushed the instruction's operand, and
        // not yet moved pc.
        assert!(trapped(true) >= 100 && trapped(false) * 4 <= trapped(true), "{}", listing(&lines));
    }
    assert!(weight(&lines, ";main;framed") >= 100, "{}", listing(&lines));
}

/// A uretprobe replaces the return address of each call on the stack: here of 60 nested calls.
#[test]
fn stacks_go_on_where_returns_are_watched() {
    let (place, program) = (Place::new(), Program::build("events.cpp"));
    let path = program.path.to_str().unwrap();
    let event = format!("uretprobe:{path}:deeper");
    let args = ["-e", "cpu", "-e", &event, "-F", "997", "-o", "x.folded", "--", path, "deep", "600000000"];
    let output = place.record(&args);
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains(": 60 events"), "{}", words(&output));
    let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
    // Until there is a table, a stack has only its innermost frame, and its caller where the code proves it. The stack is not
    // copied: only the kernel knows the return addresses.
    let early = weight(&lines, "events;deeper;often");
    let (whole, deep) = (format!(";main{}", ";deeper".repeat(60)), weight(&lines, "deeper;") - early);
    // The summary omits reasons below one sample in a thousand.
    let omitted = 1 + lines.iter().map(|line| line.count).sum::<u64>() / 1000;
    assert!(early <= omitted + incomplete(&words(&output), UserEnd::NoTable), "{early} are not told: {}", words(&output));
    assert!(early < 50 && deep >= 200 && weight(&lines, &whole) * 100 >= deep * 99, "{early}, {deep}\n{}", listing(&lines));
}

/// In `runtime.execute` the thread already belongs to its next goroutine. It still runs on its own stack: the last goroutine has
/// switched to it by `morestack`. Joining that stack with the next goroutine's would make a stack that never existed.
#[test]
fn a_thread_of_go_s_between_two_goroutines_is_in_neither() {
    let text = include_str!("../programs/turns.go");
    let place = Place::new();
    let program = Program::made("turns", &("go", text), |output| {
        let input = output.with_file_name("turns.go");
        std::fs::write(&input, text)?;
        assert!(go_build(Command::new("go"), false, output, &input).status()?.success(), "turns.go does not compile");
        Ok(())
    });
    let path = program.path.to_str().unwrap();
    let event = format!("uprobe:{path}:runtime.casgstatus");
    // A goroutine that follows itself has the same frames as the last time, up to `morestack`.
    for goroutines in [&[][..], &["one"]] {
        // Without preemption signals: all goroutines leave by `morestack`.
        let args = ["-e", &event, "-o", "x.folded", "--force", "--", "env", "GODEBUG=asyncpreemptoff=1", path];
        let output = place.record(&[&args, goroutines].concat());
        assert!(output.status.success(), "{}", words(&output));
        let lines = lines(&std::fs::read_to_string(place.path("x.folded")).unwrap());
        let between: Vec<&Line> =
            lines.iter().filter(|line| line.text().contains(";runtime.execute;runtime.casgstatus")).collect();
        let left = |line: &&&Line| line.text().contains("turns;runtime.morestack");
        assert!(between.iter().filter(left).map(|line| line.count).sum::<u64>() >= 20, "{}", listing(&lines));
        assert!(between.iter().all(|line| !line.text().contains("goexit")), "{}", listing(&lines));
        // While the thread still belongs to the last goroutine, the callers are there, to that goroutine's root.
        let leaving = |line: &&Line| line.text().contains(";runtime.gopreempt_m;runtime.goschedImpl;runtime.casgstatus");
        let leaving: Vec<&Line> = lines.iter().filter(leaving).collect();
        let all: u64 = leaving.iter().map(|line| line.count).sum();
        // The first stacks are walked in a copy of the thread's own stack, and end where the goroutine's stack begins.
        let early = leaving.iter().filter(|line| line.text().contains("turns;runtime.morestack"));
        let early: u64 = early.map(|line| line.count).sum();
        // The summary omits reasons below one sample in a thousand.
        assert!(early <= 1 + incomplete(&words(&output), UserEnd::Dump), "{early} are not told: {}", words(&output));
        assert!(all >= 20 && early * 20 <= all, "{early} of {all}: {}", listing(&lines));
        let is_whole =
            |line: &&Line| line.text().contains("turns;runtime.goexit") || line.text().contains("turns;runtime.morestack");
        assert!(leaving.iter().all(is_whole), "{}", listing(&lines));
    }
}

#[test]
fn what_is_no_event_says_why_and_leaves_nothing_behind() {
    let place = Place::new();
    let program = Program::build("events.cpp");
    let path = program.path.to_str().unwrap();
    let refuses = |event: &str, parts: &[&str]| place.refuses(&["-e", event, "-o", "x.folded", "--", path, "forks", "1"], parts);
    refuses("vfs_raed", &["vfs_raed", "is it vfs_read"]);
    refuses("fentry:no_such_function_at_all", &["no such function"]);
    refuses("kprobe.multi:/./", &["functions"]);
    refuses("tracepoint:sched:sched_swich", &["no such tracepoint", "sched:sched_switch"]);
    refuses("tracepoint:../../etc:passwd", &["is not an event"]);
    refuses(&format!("uprobe:{path}:conuted"), &["no such function", "is it counted"]);
    refuses("uprobe:libc:mallco", &["is it malloc"]);
    refuses("uprobe:/no/such/file:f", &["there is no file"]);
    refuses("magic:", &["is not an event"]);
    let output = place.record(&["-e", "page-faults", "-e", "vfs_raed", "-o", "x.folded", "-d", "1"]);
    assert!(!output.status.success());
}
