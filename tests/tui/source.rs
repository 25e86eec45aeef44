//! A function's source and instructions, of programs that run.

use super::*;
use common::root_or_fail;

/// A program that spends all its time on one line, in a function that another function calls.
const HOT: &str = r#"#include <stdlib.h>
volatile unsigned long sum;
static unsigned long step(unsigned long x)
{
	return x * 1000003 + 1; /* inlined */
}
__attribute__((noinline)) void hot_loop(unsigned long times)
{
	while (times--) sum = step(sum) ^ times; /* the hot line */
	sum++;
}
int main(void)
{
	for (;;)
		hot_loop(100000000);
}
"#;

/// A directory with `hot.c` and the program made of it.
fn build(flags: &[&str]) -> tempfile::TempDir {
    build_of(HOT, flags)
}

fn build_of(source: &str, flags: &[&str]) -> tempfile::TempDir {
    root_or_fail();
    let directory = tempfile::tempdir().expect("no directory for temporary files");
    std::fs::write(directory.path().join("hot.c"), source).expect("a file can be written");
    let gcc = std::process::Command::new("gcc").current_dir(&directory).args(flags).args(["-O2", "-o", "hot", "hot.c"]).output();
    let gcc = gcc.expect("gcc is needed by this test");
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    directory
}

fn watch(directory: &tempfile::TempDir) -> Terminal {
    let program = directory.path().join("hot");
    Terminal::start(&["-F", "997", "--", program.to_str().unwrap()], 30, 120, &[])
}

/// Self and total of the row that contains `text`, in per cent: its first two figures.
fn shares(screen: &str, text: &str) -> (f64, f64) {
    let row = screen.lines().find(|line| line.contains(text)).unwrap_or_default();
    let mut figures = row.split_whitespace().map(|word| word.parse::<f64>().unwrap_or(0.0));
    (figures.next().unwrap_or(0.0), figures.next().unwrap_or(0.0))
}

/// Searches for a function, once it is on the screen, and puts the cursor on it.
fn select(terminal: &Terminal, name: &str) {
    let has_it = |line: &str| line.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == name);
    terminal.wait_for(|screen| screen.lines().skip(2).take_while(|line| !line.contains("── output")).any(has_it), SOON);
    prompt(terminal, SEARCH, &format!("^{name}$"));
    terminal.wait_for(|screen| detail(screen).starts_with(&format!(" {name} ")), SOON);
}

#[test]
fn the_hot_line_has_nearly_all_of_the_weight() {
    let directory = build(&["-g", "-fno-inline"]);
    let terminal = watch(&directory);
    select(&terminal, "step");
    // The hot line is shown without a key.
    terminal.wait_for(|screen| detail(screen).contains("/hot.c:"), SOON);
    select(&terminal, "hot_loop");
    terminal.keys("o");
    let hot = |screen: &str| {
        let (own, total) = shares(screen, "the hot line");
        own > 10.0 && total > 95.0
    };
    let screen = terminal.wait_for(hot, SOON);
    assert!(screen.contains("hot_loop  hot") && screen.contains("/hot.c:9") && screen.contains("int main(void)"), "{screen}");
    terminal.keys("Tab");
    terminal.wait_for_text("call step", SOON);
    terminal.keys("Esc");
    terminal.wait_for(|screen| !screen.contains("call step") && detail(screen).starts_with(" hot_loop "), SOON);
    quit(terminal);
}

#[test]
fn an_inlined_function_is_read_where_it_was_written() {
    let directory = build(&["-g"]);
    let terminal = watch(&directory);
    // Names from debug information come a moment after the names of symbols.
    select(&terminal, "step");
    terminal.wait_for(|screen| detail(screen).starts_with(" step (inl) "), SOON);
    terminal.keys("o");
    terminal.wait_for(|screen| shares(screen, "/* inlined */").0 > 95.0, SOON);
    terminal.keys("o I");
    terminal.wait_for(|screen| screen.contains("no inlined") && !screen.lines().take(20).any(|line| line.contains("step")), SOON);
    quit(terminal);
}

#[test]
fn without_source_the_instructions_are_shown_even_of_a_stripped_program() {
    let directory = build(&["-g"]);
    let terminal = {
        let strip = std::process::Command::new("strip").arg(directory.path().join("hot")).status();
        assert!(strip.expect("strip (binutils) is needed by this test").success());
        watch(&directory)
    };
    // The first function in the table has the most time.
    terminal.keys("2");
    terminal.wait_for(|screen| screen.lines().nth(3).is_some_and(|line| line.contains("hot+0x")), SOON);
    terminal.keys("g");
    terminal.wait_for(|screen| detail(screen).starts_with(" hot+0x"), SOON);
    terminal.keys("o");
    let screen = terminal.wait_for_text("imul", SOON);
    assert!(screen.contains("no source: hot has no debug information"), "{screen}");
    terminal.wait_for(
        |screen| {
            let weights = screen.lines().skip_while(|line| !line.contains("self %")).skip(1).map(|line| shares(line, "").0);
            weights.sum::<f64>() > 95.0
        },
        SOON,
    );
    quit(terminal);
}

#[test]
fn a_source_that_is_not_there_any_more_leaves_the_instructions() {
    let directory = build(&["-g", "-fno-inline"]);
    std::fs::remove_file(directory.path().join("hot.c")).expect("it was written");
    let terminal = watch(&directory);
    select(&terminal, "hot_loop");
    terminal.keys("o");
    let screen = terminal.wait_for_text("call step", SOON);
    assert!(screen.contains("hot.c was not found; the compiler recorded this path"), "{screen}");
    quit(terminal);
}

#[test]
fn a_program_cannot_have_its_watcher_show_what_its_user_may_not_read() {
    use std::os::unix::fs::PermissionsExt;
    // Its debug information says that it was made of the passwords.
    let directory = build_of(&format!("#line 1 \"/etc/shadow\"\n{HOT}"), &["-g", "-fno-inline"]);
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).expect("the directory is ours");
    let program = directory.path().join("hot");
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let arguments = [&["-F", "997", "--"], &nobody[..], &[program.to_str().unwrap()]].concat();
    let terminal = Terminal::start(&arguments, 30, 160, &[]);
    select(&terminal, "hot_loop");
    terminal.keys("o");
    let screen = terminal.wait_for_text("call step", SOON);
    assert!(screen.contains("/etc/shadow is readable only by its owner"), "{screen}");
    terminal.keys("Tab");
    let screen = terminal.wait_for_text("Tab goes back", SOON);
    assert!(!screen.contains("root:"), "{screen}");
    quit(terminal);
}

/// LLVM writes a jitdump of what it compiles, with lines.
#[test]
fn code_made_at_run_time_has_its_lines_and_its_source() {
    root_or_fail();
    let directory = tempfile::tempdir().expect("no directory for temporary files");
    // A few instructions may get no tick at all: where ticks land depends on where in memory they are. So `step` takes longer here.
    let source = HOT.replace("return x * 1000003 + 1;", "for (int i = 0; i < 16; i++) x = x * 1000003 + 1; return x;");
    assert_ne!(source, HOT);
    std::fs::write(directory.path().join("hot.c"), source).expect("a file can be written");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut clang = std::process::Command::new(clang);
    let compiled = clang.current_dir(&directory).args(["-g", "-O1", "-fno-inline", "-emit-llvm", "-c", "hot.c"]).output();
    let compiled = compiled.expect("clang is needed by this test");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let bitcode = directory.path().join("hot.bc");
    let home = format!("JITDUMPDIR={}", directory.path().display());
    let command = ["-F", "997", "--", "env", &home, "lli", "-jit-kind=mcjit", bitcode.to_str().unwrap()];
    let terminal = Terminal::start(&command, 30, 120, &[]);
    select(&terminal, "step");
    terminal.wait_for(|screen| detail(screen).contains("/hot.c:5"), SOON);
    select(&terminal, "hot_loop");
    terminal.keys("o");
    terminal.wait_for(|screen| shares(screen, "the hot line").1 > 80.0, SOON);
    terminal.keys("Tab");
    terminal.wait_for(|screen| screen.contains("[jit]  memory of lli") && screen.contains("movabs $0x"), SOON);
}

#[test]
fn a_function_of_python_has_its_lines_and_its_source() {
    root_or_fail();
    let directory = tempfile::tempdir().expect("no directory for temporary files");
    let source = "def hot(times):\n    total = 0\n    for number in range(times):\n        total += number  # the hot line\n    return total\n\nwhile True: hot(1000000)\n";
    std::fs::write(directory.path().join("hot.py"), source).expect("a file can be written");
    // The path is relative: from 3.9 on `python3 hot.py` would make it absolute.
    let run = "exec(compile(open('hot.py').read(), 'hot.py', 'exec'))";
    let command = format!("cd {} && exec python3 -c \"{run}\"", directory.path().display());
    let terminal = Terminal::start(&["-F", "997", "--", "sh", "-c", &command], 30, 120, &[]);
    select(&terminal, "hot");
    terminal.wait_for(|screen| detail(screen).contains("/hot.py:4"), SOON);
    terminal.keys("o");
    terminal.wait_for(|screen| shares(screen, "the hot line").1 > 30.0, SOON);
    terminal.keys("Tab");
    let screen = terminal.wait_for_text("no instructions: an interpreter runs this function", SOON);
    assert!(screen.contains("hot.py"), "{screen}");
    quit(terminal);
}
