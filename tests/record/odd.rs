//! Programs that are odd: where their code lies, what their symbols say.

use super::*;

/// The samples of `chain` of all.
fn share(lines: &[Line], chain: &str) -> (u64, u64) {
    let count = |line: &&Line| line.count;
    let of_chain = lines.iter().filter(|line| line.text().contains(chain)).map(|line| line.count).sum();
    (of_chain, lines.iter().map(|line| count(&line)).sum())
}

/// A copy of a program in memory has its names, without a build id as well, whoever was there first.
#[test]
fn a_program_in_memory_is_a_program() {
    let place = Place::new();
    let runner = Program::build("odd/memfd.c");
    for flags in [&["-Wl,--build-id=none"][..], &["-Wl,--build-id"]] {
        let chain = Program::build_with("chain.c", flags);
        let chain = chain.path.to_str().unwrap();
        let running = runner.run(&[chain]);
        let there = place.folded(&["-p", &running.pid_text(), "-d", "2"]);
        drop(running);
        let command = [&["-d", "2", "--"][..], &[runner.path.to_str().unwrap(), chain]].concat();
        let started = place.folded(&command);
        for (lines, case) in [(there, "was there before"), (started, "starts")] {
            let (chain, all) = share(&lines, "main;outer;middle;inner");
            assert!(all > 100 && chain * 100 >= all * 95, "{flags:?}, {case}: {chain} of {all}:\n{}", listing(&lines));
        }
    }
}

/// A label without a size names no function behind it: those begin where the unwind information says so.
#[test]
fn a_label_without_a_size_names_no_other_function() {
    let place = Place::new();
    let label = r#"__asm__(".text\n.globl begin\nbegin: ret\n");"#;
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/chain.c")).unwrap();
    // Functions stay behind the label, and only what is exported has a symbol.
    let text = [label, &text.replace("unsigned long inner(unsigned", "static unsigned long inner(unsigned")].concat();
    let chain = Program::build_text("labelled/chain.c", &text, &["-fno-toplevel-reorder", "-rdynamic", "-s"]).run(&[]);
    let lines = place.folded(&["-p", &chain.pid_text(), "-d", "2"]);
    let (named, all) = share(&lines, "begin");
    assert!(all > 100 && named == 0, "{named} of {all}:\n{}", listing(&lines));
    assert!(listing(&lines).contains("main;outer;middle;chain+0x"), "{}", listing(&lines));
}

/// Starts a program from an overlay that nobody sees but its own mount namespace.
fn run_on_overlay(program: &Program, unshare: &[&str]) -> (TempDir, Running) {
    let place = tempfile::tempdir().unwrap();
    let directory = program.path.parent().unwrap();
    let script = r#"set -e; cd "$1"; mkdir upper merged; mount -t tmpfs tmpfs upper; mkdir upper/files upper/work
        mount -t overlay overlay -o "lowerdir=$2,upperdir=upper/files,workdir=upper/work" merged; exec "merged/$3""#;
    let mut command = Command::new("unshare");
    command.args(unshare).args(["--mount", "sh", "-c", script, "overlay"]);
    command.arg(place.path()).arg(directory).arg(program.path.file_name().unwrap());
    let running = Program::run_command(command);
    (place, running)
}

/// Containers beside a flametop that is in a container have overlays that it does not see.
#[test]
fn an_overlay_of_another_mount_namespace_is_trusted_if_root_has_mounted_it() {
    let place = Place::new();
    let program = Program::build_with("chain.c", &["-fomit-frame-pointer", "-DKEEP_NO_FRAME"]);
    let (_files, running) = run_on_overlay(&program, &[]);
    let lines = place.folded(&["-p", &running.pid_text(), "-d", "2"]);
    let (chain, all) = share(&lines, "_start;__libc_start_main;");
    assert!(all > 100 && chain * 100 >= all * 95, "{chain} of {all}:\n{}", listing(&lines));
}

/// The files of one that a user has mounted may be any: their unwind information is not used. That is the reason that is told.
#[test]
fn an_overlay_that_a_user_may_have_mounted_is_told() {
    let place = Place::new();
    let program = Program::build_with("chain.c", &["-fomit-frame-pointer", "-DKEEP_NO_FRAME"]);
    let (_files, running) = run_on_overlay(&program, &["--user", "--map-root-user"]);
    let output = place.record(&["-p", &running.pid_text(), "-d", "2", "-F", "997", "-o", "x.folded"]);
    let said = words(&output);
    assert!(output.status.success() && said.contains("on an overlay that a user has mounted"), "{said}");
}

/// A program may copy its code to anonymous memory at the same addresses (node --use-largepages). It is still the file's code.
#[test]
fn code_that_was_copied_to_anonymous_memory_is_its_files() {
    let place = Place::new();
    let program = Program::build_with("odd/moved.c", &["-fomit-frame-pointer"]);
    let running = program.run(&[]);
    let there = place.folded(&["-p", &running.pid_text(), "-d", "3"]);
    drop(running);
    let started = place.folded(&["-d", "3", "--", program.path.to_str().unwrap()]);
    for (lines, case) in [(there, "was there before"), (started, "starts")] {
        let (whole, all) = share(&lines, "_start;__libc_start_main");
        let (named, _) = share(&lines, "main;outer;inner");
        assert!(all > 100 && whole * 100 >= all * 95, "{case}: {whole} of {all}:\n{}", listing(&lines));
        assert!(named * 100 >= all * 95, "{case}: {named} of {all}:\n{}", listing(&lines));
    }
}

/// A copy of such a process has the same code, from its first sample on.
#[test]
fn copied_code_is_its_files_in_a_copy_of_the_process() {
    let place = Place::new();
    let program = Program::build_with("odd/moved.c", &["-fomit-frame-pointer"]);
    let lines = place.folded(&["-d", "5", "--", program.path.to_str().unwrap(), "fork"]);
    let (whole, all) = share(&lines, "_start;__libc_start_main;__libc_start_call_main;main;outer;inner");
    assert!(all > 500 && whole * 100 >= all * 98, "{whole} of {all}:\n{}", listing(&lines));
}

/// Memory between two mappings of a file that has other bytes is not the file's code.
#[test]
fn other_code_in_the_place_of_a_file_is_not_its() {
    let place = Place::new();
    let running = Program::build_with("odd/moved.c", &["-fomit-frame-pointer"]).run(&["other"]);
    let lines = place.folded(&["-p", &running.pid_text(), "-d", "2"]);
    let (anonymous, all) = share(&lines, "[anon]");
    assert!(all > 100 && anonymous * 100 >= all * 95, "{anonymous} of {all}:\n{}", listing(&lines));
}

/// A guess looks at the call before the return address. If that code has left memory, flametop has it read, and the next guess succeeds.
#[test]
fn code_that_left_memory_is_brought_back_for_a_guess() {
    let place = Place::new();
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-g0"];
    let running = Program::build_with("odd/reclaimed.c", &flags).run(&[]);
    let lines = place.folded(&["-p", &running.pid_text(), "-d", "3"]);
    let (whole, all) = share(&lines, "main;outer;middle;inner");
    assert!(all > 100 && whole * 100 >= all * 95, "{whole} of {all}:\n{}", listing(&lines));
}
