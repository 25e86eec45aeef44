//! Cost of an event: a storm of events runs with and without a flametop that takes stacks at them. The share of BPF in the difference is
//! the kernel's figure. (`tests/vm/costs` measures the same on other kernels, and sources of events that this kernel does not offer.)

use super::unwind::bpf_of_samples;
use super::*;

/// Number of runs. The median is printed.
const RUNS: usize = 5;

/// Storms: a description, the event for flametop's `-e`, and the arguments that make the program cause the event that often.
fn storms(program: &str) -> Vec<(&'static str, String, [&'static str; 2])> {
    let call = if cfg!(target_arch = "x86_64") { "__x64_sys_getppid" } else { "__arm64_sys_getppid" };
    let parents = ["parents", "3000000"];
    let calls = ["calls", "300000"];
    let mut storms = vec![("a system call, its tracepoint", "syscalls:sys_enter_getppid".to_owned(), parents)];
    // A call without arguments has two names. The kernel's types contain only this one.
    for how in ["fentry", "fexit"] {
        storms.push(("a system call, its function", format!("{how}:__do_sys_getppid"), parents));
    }
    for how in ["kprobe.multi", "kretprobe.multi", "kprobe", "kretprobe"] {
        storms.push(("a system call, its function", format!("{how}:{call}"), parents));
    }
    storms.push(("a call in a program", format!("uprobe:{program}:counted"), calls));
    storms.push(("a call in a program", format!("uretprobe:{program}:counted"), calls));
    storms.push(("a page fault", "page-faults".to_owned(), ["pages", "300000"]));
    storms
}

/// Nanoseconds of one event, as measured by the program itself.
fn nanoseconds(output: &std::process::Output) -> Option<f64> {
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().parse().ok())?
}

fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

/// Runs flametop to its end. Returns its output, and the nanoseconds per run of the one of its BPF programs that ran longest in all.
fn watch(args: &[&str]) -> Option<(std::process::Output, f64)> {
    let child = Command::new(FLAMETOP).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    let (pid, done) = (child.id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Its BPF programs disappear when it ends.
        let looks = scope.spawn(|| {
            let mut last = (0, 0);
            while !done.load(Ordering::Relaxed) {
                last = bpf_of_samples(pid).unwrap_or(last);
                std::thread::sleep(Duration::from_millis(20));
            }
            last
        });
        let output = child.wait_with_output();
        done.store(true, Ordering::Relaxed);
        let (time, runs) = looks.join().ok()?;
        Some((output.ok()?, time as f64 / runs.max(1) as f64))
    })
}

pub(crate) fn events(table: &mut Table) {
    let _counted = BpfStats::switch_on();
    let program = Program::build("events.cpp").path.to_string_lossy().into_owned();
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("x.folded").to_string_lossy().into_owned();
    for (what, event, args) in storms(&program) {
        let (mut alone, mut watched, mut bpf, mut said) = (Vec::new(), Vec::new(), Vec::new(), String::new());
        for _ in 0..RUNS {
            // Side by side, because the machine's speed changes.
            alone.extend(Command::new(&program).args(args).output().ok().and_then(|output| nanoseconds(&output)));
            let flametop = ["record", "-e", &event, "-o", &output, "--force", "--", &program];
            if let Some((run, each)) = watch(&[&flametop[..], &args].concat()) {
                said = String::from_utf8_lossy(&run.stderr).into_owned();
                watched.extend(nanoseconds(&run));
                bpf.push(each);
            }
        }
        let short = event.replace(&program, "FILE");
        let counted =
            said.lines().find_map(|line| line.split_once(": ").filter(|(_, rest)| rest.contains(" events, stacks of ")));
        let (alone, watched, bpf, counted) = match (median(alone), median(watched), median(bpf), counted) {
            (Some(alone), Some(watched), Some(bpf), Some((_, counted))) => (alone, watched, bpf, counted.to_owned()),
            _ => {
                let why = said.lines().next().unwrap_or("it failed").replace(&program, "FILE");
                table.add(Line {
                    what: format!("{what}, -e {short}"),
                    program: "flametop",
                    figure: format!("not here: {why}"),
                    target: String::new(),
                    held: None,
                });
                continue;
            }
        };
        let exact = counted.starts_with(&format!("{} events", args[1])) || event == "page-faults";
        table.add(Line {
            what: format!("{what}, -e {short}"),
            program: "flametop",
            figure: format!(
                "{:.0} ns an event more, of which {bpf:.0} are BPF, {:.2} times as long ({alone:.0} ns alone); {counted}",
                watched - alone,
                watched / alone
            ),
            target: "no count lost".to_owned(),
            held: Some(exact),
        });
    }
}
