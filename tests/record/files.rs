//! Output files: their content, their owner, and runs that are refused.

use super::common::TinyDisk;
use super::*;
use flametop::palette::Palette;
use flametop::profile::{FrameKind, UserEnd};

#[test]
fn standard_output_takes_folded_stacks_and_nothing_else() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "-"]);
    assert!(output.status.success(), "{}", words(&output));
    assert_chain(&lines(&String::from_utf8(output.stdout).unwrap()), "chain", "main;outer;middle;inner");
    assert_eq!(place.files(), [""; 0]);
}

/// The table of names in a picture.
#[track_caller]
fn table_of_picture(text: &str) -> serde_json::Value {
    let table =
        text.split(r#"<script type="application/json" id="names">"#).nth(1).and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(table.expect("no table of names")).unwrap()
}

/// Number of the first line of `text` after a line with `before` that has `wanted`.
fn line_after(text: &str, before: &str, wanted: &str) -> u64 {
    let lines = text.lines().enumerate().skip_while(|(_, line)| !line.contains(before));
    lines.skip(1).find(|(_, line)| line.contains(wanted)).expect("the source has it").0 as u64 + 1
}

#[test]
fn pictures_tell_the_line_where_a_function_is_hottest() {
    let place = Place::new();
    let program = Program::build_with("chain.c", &["-g"]);
    let chain = program.run(&[]);
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/chain.c")).unwrap();
    for name in ["x.svg", "x.html"] {
        let output = place.record(&["-F", "499", "-p", &chain.pid_text(), "-d", "2", "-o", name]);
        assert!(output.status.success(), "{}", words(&output));
        let table = table_of_picture(&std::fs::read_to_string(place.path(name)).unwrap());
        let line = |function: &str| {
            let names = table["names"].as_array().unwrap();
            let name = names.iter().find(|name| name[0] == function).unwrap_or_else(|| panic!("{function} is not in {table}"));
            let file = name[3].as_u64().and_then(|place| table["files"][place as usize - 1].as_str());
            assert!(file.is_some_and(|file| file.ends_with("chain.c")), "{name} {table}");
            name[4].as_u64().unwrap()
        };
        let loop_of_inner = line_after(&source, "long inner(", "for (");
        assert!((loop_of_inner..loop_of_inner + 3).contains(&line("inner")), "line {} of {loop_of_inner}", line("inner"));
        // A function that only calls has the line of its call.
        assert_eq!(line("middle"), line_after(&source, "long middle(", "inner(rounds)"));
    }
}

#[test]
fn fetching_debug_files_needs_servers_and_the_program_for_it() {
    let place = Place::new();
    let run = |urls: &str| {
        let mut command = place.command(&["--debuginfod", "-d", "1", "-o", "x.folded"]);
        let output = to_its_end(command.env("DEBUGINFOD_URLS", urls).env("PATH", "/nowhere"));
        assert!(!output.status.success());
        words(&output)
    };
    assert!(run("").contains("needs DEBUGINFOD_URLS, which is not set"), "{}", run(""));
    let said = run("https://example.invalid");
    assert!(said.contains("needs the program debuginfod-find, which was not found; install the package debuginfod"), "{said}");
    assert_eq!(place.files(), [""; 0]);
}

/// A server of debug files, on the loopback; ended when it is dropped.
struct Server {
    child: std::process::Child,
    url: String,
}

impl Server {
    /// Starts a server of the debug files in a directory. It serves them once it has read the directory.
    fn start(directory: &Path) -> Server {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Command::new("debuginfod");
        server.args(["-p", &free.to_string(), "-d", ":memory:", "-t", "1", "-F"]).arg(directory);
        let server = server.env_remove("DEBUGINFOD_URLS").stdout(Stdio::null()).stderr(Stdio::null());
        let child = server.spawn().expect("debuginfod (of the package of that name) is needed by this test");
        Server { child, url: format!("http://127.0.0.1:{free}/") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn names_and_inlined_calls_come_from_a_server_of_debug_files() {
    const SOURCE: &str = "\
static inline __attribute__((always_inline)) void spin(volatile unsigned long *x) { for (int i = 0; i < 1000; i++) *x += i; }
static __attribute__((noinline)) void nowhere_else(volatile unsigned long *x) { spin(x); *x = 0; }
int main(void) { volatile unsigned long x = 0; for (long i = 0; i < 1000000000; i++) nowhere_else(&x); return 0; }
";
    let place = Place::new();
    let at = |name: &str| place.path(name).to_str().unwrap().to_owned();
    std::fs::write(at("prog.c"), SOURCE).unwrap();
    std::fs::create_dir(at("debug")).unwrap();
    let debug = at("debug/prog.debug");
    for command in [
        &["gcc", "-g", "-O1", "-Wl,--build-id", "-o", &at("prog"), &at("prog.c")][..],
        &["objcopy", "--only-keep-debug", &at("prog"), &debug],
        &["strip", &at("prog")],
    ] {
        assert!(Command::new(command[0]).args(&command[1..]).status().unwrap().success(), "{command:?}");
    }
    let server = Server::start(&place.path("debug"));
    let id = Command::new("readelf").args(["-n", &debug]).output().unwrap();
    let id = String::from_utf8(id.stdout).unwrap();
    let id = id.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let client = |command: &mut Command, cache: &str| {
        command.env("DEBUGINFOD_URLS", &server.url).env("DEBUGINFOD_CACHE_PATH", at(cache));
    };
    // It takes a moment until it has read the directory.
    let begin = std::time::Instant::now();
    loop {
        let mut find = Command::new("debuginfod-find");
        client(find.args(["debuginfo", &id]), &format!("probe{}", begin.elapsed().as_millis()));
        let found = find.output().expect("debuginfod-find (of the package debuginfod) is needed by this test");
        if found.status.success() {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", String::from_utf8_lossy(&found.stderr));
        std::thread::sleep(Duration::from_millis(200));
    }
    let recorded = |more: &[&str]| {
        let mut command = place.command(&["-F", "997", "-d", "2", "-o", "x.folded", "--force"]);
        client(command.args(more).args(["--", &at("prog")]), "cache");
        let output = to_its_end(&mut command);
        assert!(output.status.success(), "{}", words(&output));
        lines(&std::fs::read_to_string(place.path("x.folded")).unwrap())
    };
    let without = recorded(&[]);
    assert!(!listing(&without).contains("nowhere_else"), "only if it is asked for:\n{}", listing(&without));
    let with = recorded(&["--debuginfod"]);
    assert_chain(&with, "prog", "main;nowhere_else;spin_[i]");
}

#[test]
fn an_svg_is_well_formed_and_has_the_names() {
    let place = Place::new();
    let names = Program::build("names.cpp").run(&[]);
    let output = place.record(&["-F", "997", "-p", &names.pid_text(), "-d", "2", "-o", "x.SVG"]);
    assert!(output.status.success(), "{}", words(&output));
    let text = std::fs::read_to_string(place.path("x.SVG")).unwrap();
    let names = names_of(&text);
    assert!(names.iter().any(|name| name.starts_with("shop::weigh<double, ")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("Market<int, shop::Fair>::trade")), "{names:?}");
    let titles = titles_of(&text);
    assert!(titles.iter().any(|title| title.starts_with("shop::weigh (")), "{titles:?}");
}

/// The whole names in an SVG, which its script reads.
#[track_caller]
fn names_of(text: &str) -> Vec<String> {
    let table = table_of_picture(text);
    let whole = |name: &serde_json::Value| name[2].as_str().or(name[0].as_str()).unwrap().to_owned();
    table["names"].as_array().unwrap().iter().map(whole).collect()
}

/// The titles in an SVG, which must be well-formed XML.
#[track_caller]
fn titles_of(text: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(text);
    let (mut depth, mut within, mut titles) = (0, false, Vec::new());
    loop {
        use quick_xml::events::Event;
        match reader.read_event().expect("well-formed XML") {
            Event::Start(tag) => {
                depth += 1;
                within = tag.name().as_ref() == b"title";
                if within {
                    titles.push(String::new());
                }
            }
            Event::End(_) => {
                depth -= 1;
                within = false;
            }
            Event::Text(piece) if within => titles.last_mut().unwrap().push_str(&piece.decode().unwrap()),
            Event::GeneralRef(entity) if within => titles.last_mut().unwrap().push_str(match &*entity.decode().unwrap() {
                "lt" => "<",
                "gt" => ">",
                "amp" => "&",
                "quot" => "\"",
                "apos" => "'",
                other => panic!("an unknown entity: {other}"),
            }),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "tags that are not closed");
    titles
}

#[test]
fn why_stacks_are_incomplete_is_told_if_they_are() {
    let place = Place::new();
    let program = Program::build_with("chain.c", &["-fomit-frame-pointer"]).run(&[]);
    let record = |how: &str| {
        let output =
            place.record(&["-p", &program.pid_text(), "-d", "1", "-o", "x.folded", "--force", "-F", "997", "--unwind", how]);
        assert!(output.status.success(), "{}", words(&output));
        words(&output)
    };
    // Without frame pointers nothing leads from function to function.
    let words = record("fp");
    let reasons: Vec<&str> = words.lines().filter_map(|line| line.strip_prefix("incomplete: ")).collect();
    assert!((1..=3).contains(&reasons.len()), "{words}");
    let known: Vec<&str> = UserEnd::ALL.iter().map(|end| end.explain().0).collect();
    assert!(reasons.iter().all(|reason| known.iter().any(|known| reason.ends_with(&format!(" %), {known}")))), "{words}");
    // Its table is there from the second time on.
    record("tables");
    let words = record("tables");
    assert!(!words.contains(" 100.0 % of user stacks complete") || !words.contains("incomplete: "), "{words}");
}

#[test]
fn a_file_that_is_there_is_replaced_only_when_told_to() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    std::fs::write(place.path("x.folded"), "mine").unwrap();
    let args = ["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "x.folded"];
    place.refuses(&args, &["x.folded", "exists already", "--force"]);
    assert_eq!(std::fs::read_to_string(place.path("x.folded")).unwrap(), "mine");
    let output = place.record(&[&args[..], &["--force"]].concat());
    assert!(output.status.success(), "{}", words(&output));
    assert!(std::fs::read_to_string(place.path("x.folded")).unwrap().contains("inner"));
}

#[test]
fn without_a_file_the_picture_gets_a_name_and_is_told() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "1", "--icicle", "--palette", "colour-blind"]);
    assert!(output.status.success(), "{}", words(&output));
    let files = place.files();
    let [name] = &files[..] else { panic!("{files:?}") };
    assert!(name.starts_with(&format!("flametop-pid-{}-20", chain.pid_text())) && name.ends_with(".svg"), "{name}");
    assert!(words(&output).contains(&format!("samples written to {name}, ")), "{}", words(&output));
    let text = std::fs::read_to_string(place.path(name)).unwrap();
    assert!(text.contains("inverted = true"), "callers are at the top");
    let (r, g, b) = Palette::ColourBlind.kind(false, FrameKind::User).rgb();
    assert!(text.contains(&format!("{{fill:#{r:02x}{g:02x}{b:02x}}}")), "the legend's colour of user code");
    let title = format!(">flametop: chain ({}) on ", chain.pid_text());
    assert!(text.contains(&title), "{title} is not in {:?}", text.split("id=\"title\"").last().and_then(|rest| rest.get(..200)));

    let output = to_its_end(place.command(&["-F", "997", "--"]).args([
        "/bin/sh",
        "-c",
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done",
    ]));
    assert!(output.status.success(), "{}", words(&output));
    let named = place.files().into_iter().find(|name| name.starts_with("flametop-sh-20")).expect("a picture of sh");
    let text = std::fs::read_to_string(place.path(&named)).unwrap();
    assert!(text.contains("inverted = false") && text.contains("flametop: /bin/sh -c"), "callers are at the bottom");
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence_and_leaves_nothing_behind() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let pid = chain.pid_text();
    std::fs::create_dir(place.path("there.svg")).unwrap();
    // A process that has ended: its number is not reused for a while.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let gone = gone.id().to_string();
    place.refuses(&["-p", &gone, "-d", "1", "-o", "x.svg"], &[&gone, "no process"]);
    place.refuses(&["-d", "1", "-o", "x.png"], &["x.png", ".svg", ".folded"]);
    place.refuses(&["-d", "1", "-o", "x"], &[".svg", ".folded"]);
    place.refuses(&["-o", "x.svg", "--", "no-such-command-anywhere"], &["no-such-command-anywhere", "no such command"]);
    place.refuses(&["-o", "x.svg", "--", "./there.svg"], &["./there.svg"]);
    place.refuses(&["-F", "997", "-p", &pid, "-d", "2", "-o", "/dev/full"], &["/dev/full", "No space left"]);
    // These two errors are reported before sampling starts, not after an hour of recording.
    let long = Duration::from_secs(20);
    let begin = std::time::Instant::now();
    place.refuses(&["-p", &pid, "-d", "40", "-o", "there.svg"], &["there.svg", "is a directory"]);
    place.refuses(&["-p", &pid, "-d", "40", "-o", "no/such/x.svg"], &["no/such", "no directory"]);
    assert!(begin.elapsed() < long, "it was found out only after recording");
}

#[test]
fn a_target_that_never_runs_is_said_so() {
    let place = Place::new();
    let mut sleeper = Command::new("sleep").arg("30").spawn().unwrap();
    // It sleeps without end once it is in its system call; its work before that may or may not be sampled.
    let asleep = || std::fs::read_to_string(format!("/proc/{}/wchan", sleeper.id())).unwrap_or_default().contains("nanosleep");
    let end = std::time::Instant::now() + SOON;
    while !asleep() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    place.refuses(&["-p", &sleeper.id().to_string(), "-d", "0.5", "-o", "x.svg"], &["no samples", "x.svg"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    std::fs::create_dir(place.path("disk")).unwrap();
    let disk = TinyDisk::mount(&place.path("disk"));
    let full = std::fs::write(disk.0.join("filler"), vec![0; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    for name in ["x.svg", "x.folded"] {
        let path = disk.0.join(name);
        let output = place.record(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", path.to_str().unwrap()]);
        assert_refusal(&output, &[name, "No space left", "make room"]);
    }
    let left: Vec<_> = std::fs::read_dir(&disk.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["filler"]);
}

#[test]
fn the_file_belongs_to_whoever_called_sudo() {
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let mut command = place.command(&["-F", "997", "-p", &chain.pid_text(), "-d", "2", "-o", "x.svg"]);
    let output = to_its_end(command.env("SUDO_UID", "65534").env("SUDO_GID", "65533"));
    assert!(output.status.success(), "{}", words(&output));
    let file = std::fs::metadata(place.path("x.svg")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65534, 65533, 0o600));
}

#[test]
fn without_the_right_to_load_bpf_programs_it_says_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // User `nobody` may not read the home directory in which this was built.
    let program = place.path("flametop");
    std::fs::copy(FLAMETOP, &program).unwrap();
    std::fs::set_permissions(place.0.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let before = place.files();
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&program);
        to_its_end(command.args(args).current_dir(place.0.path()).uid(65534).gid(65534))
    };
    let advice = ["sudo", "CAP_BPF", "CAP_PERFMON"];
    assert_refusal(&nobody(&["record", "-d", "1", "-o", "x.svg"]), &advice);
    assert_refusal(&nobody(&["record", "-o", "x.svg", "--", "true"]), &advice);
    let doctor = nobody(&["doctor"]);
    assert!(!doctor.status.success());
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("MISSING"), "{doctor:?}");
    assert_eq!(place.files(), before);
}

#[test]
fn a_hostile_program_does_no_harm_to_files() {
    let place = Place::new();
    let long = "n".repeat(10_000);
    let evil = Program::build("hostile.c").patched(b"harmless", b"\x1b[2J;<\n&");
    let long_named = Program::build_with("hostile.c", &[&format!("-DHOSTILE_NAME={long}")]);
    let running = [evil.run(&[]), long_named.run(&[])];
    let pids = format!("{},{}", running[0].pid(), running[1].pid());
    // `lines` looks at each line: no control character, a count at the end.
    let found = place.folded(&["-p", &pids, "-d", "2"]);
    // `;` in a process's or a function's name must not make extra frames.
    assert!(found.iter().all(|line| line.frames.iter().all(|frame| !frame.is_empty() && frame != "<" && frame != "\n&")));
    assert!(found.iter().any(|line| line.process().contains("evil")), "{}", listing(&found));
    assert!(found.iter().any(|line| line.text().contains("nnnnnnnn")), "the long name is missing");
    let output = place.record(&["-F", "997", "-p", &pids, "-d", "1", "-o", "x.svg"]);
    assert!(output.status.success(), "{}", words(&output));
    let text = std::fs::read_to_string(place.path("x.svg")).unwrap();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t' && c != '\r'), "a control character in the SVG");
    assert!(titles_of(&text).iter().any(|title| title.contains("evil")));
    assert!(names_of(&text).iter().any(|name| name.contains("nnnnnnnn")), "the long name is missing");
    assert!(!words(&output).contains('\x1b'));
}

#[test]
fn whoever_reads_no_more_of_a_report_gets_no_sentence() {
    let script = format!("{{ '{FLAMETOP}' doctor; echo status $? >&2; }} | true");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "status 141\n");
}

#[test]
fn inlined_functions_are_marked_or_left_out() {
    const INLINING: &str = r#"
        volatile unsigned long sum;
        static inline __attribute__((always_inline)) void step(unsigned long x) { sum = sum * 1000003 + x; }
        __attribute__((noinline)) void work(void) { for (unsigned long x = 0; x < 100000000; x++) step(x); sum++; }
        int main(void) { for (;;) work(); }
    "#;
    let place = Place::new();
    let program = Program::build_text("inlining.c", INLINING, &[]);
    let record = |more: &[&str]| {
        let lines = place.folded(&[&["-d", "2"], more, &["--", program.path.to_str().unwrap()]].concat());
        let ends = |end: &str| lines.iter().filter(|line| line.text().ends_with(end)).map(|line| line.count).sum::<u64>();
        (ends("main;work;step_[i]"), ends("main;work"))
    };
    let ((inlined, own), (none, folded)) = (record(&[]), record(&["--no-inline"]));
    assert!(inlined > own && none == 0 && folded > 0, "{inlined} and {own}, {none} and {folded}");
}

#[test]
fn the_number_of_a_thread_is_told_from_that_of_a_process() {
    let place = Place::new();
    let threads = Program::build("threads.c").run(&[]);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", threads.pid())).unwrap();
    let names = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let thread = names.into_iter().find(|name| *name != threads.pid_text()).expect("it has several threads");
    let said = format!("{thread} is a thread of process {}", threads.pid());
    place.refuses(&["-p", &thread, "-d", "1", "-o", "x.folded"], &[&said]);
}

#[test]
fn pipes_are_written_to_and_sockets_are_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let place = Place::new();
    let chain = Program::build("chain.c").run(&[]);
    let pipe = place.path("p.folded");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let record = |args: &[&str]| place.record(&[&["-F", "499", "-d", "1", "-p", &chain.pid_text()][..], args].concat());
    // Without a reader it says so at once, and waits for one at its end.
    let start = || {
        let mut command = place.command(&["-F", "499", "-d", "1", "-p", &chain.pid_text(), "-o", "p.folded", "--force"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let late = start();
    std::thread::sleep(Duration::from_secs(3));
    assert_chain(&lines(&std::fs::read_to_string(&pipe).unwrap()), "chain", "main;outer;middle;inner");
    let output = late.wait_with_output().unwrap();
    let said = words(&output);
    assert!(output.status.success() && said.contains("the pipe `p.folded` has no reader yet"), "{said}");
    // A signal ends that wait.
    let unread = start();
    std::thread::sleep(Duration::from_secs(3));
    terminal::kill(unread.id(), rustix::process::Signal::TERM);
    let since = std::time::Instant::now();
    let output = unread.wait_with_output().unwrap();
    assert!(!output.status.success() && words(&output).contains("start a reader"), "{}", words(&output));
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    // A reader that is there first is kept all the time.
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    std::thread::sleep(Duration::from_millis(200));
    let output = record(&["-o", "p.folded", "--force"]);
    assert!(output.status.success() && !words(&output).contains("has no reader"), "{}", words(&output));
    assert_chain(&lines(&reader.join().unwrap()), "chain", "main;outer;middle;inner");
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "the pipe is still there");
    let socket = place.path("s.folded");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    place.refuses(&["-d", "1", "-o", "s.folded", "--force"], &["is a socket and cannot be replaced"]);
    // A pipe that another user has put there.
    std::os::unix::fs::chown(&pipe, Some(65534), None).unwrap();
    place.refuses(&["-d", "1", "-o", "p.folded", "--force"], &["is a pipe and cannot be replaced"]);
}
