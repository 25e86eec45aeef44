//! A load that stays the same gives a picture that stays the same: rows of tables keep their places.
//!
//! It runs alone, because other tests would change the load. Needs root and gcc; fails without, never skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{Program, Running, Terminal, alone};

const SOON: Duration = Duration::from_secs(60);

/// Number of pictures that are compared, and the time from one to the next.
const PICTURES: usize = 40;
const APART: Duration = Duration::from_millis(250);

/// Pictures in the three seconds over which view 3 averages CPU use.
const OF_THREE_SECONDS: usize = 12;

/// Largest difference between the CPU times of two programs in three seconds that counts as the same load: 4 %.
const SAME: Duration = Duration::from_millis(120);

/// A program that keeps a CPU busy in a function of this name.
fn burning(function: &str) -> Running {
    let text = format!(
        "#include <stdio.h>\n#include <unistd.h>\nvolatile unsigned long sum;\n\
         __attribute__((noinline)) void {function}(void) {{ for (unsigned long i = 0; i < 100000000; i++) sum += i; }}\n\
         int main(void) {{ alarm(300); puts(\"ready\"); fflush(stdout); for (;;) {{ {function}(); sum++; }} }}\n"
    );
    Program::build_text(&format!("{function}.c"), &text, &[]).run(&[])
}

/// Whether both programs had the same CPU time in all stretches of three seconds, and a CPU each: samples of a program that shares its CPU
/// with others vary by chance.
fn is_steady(times: &[(Duration, Duration)]) -> bool {
    times.windows(OF_THREE_SECONDS + 1).all(|window| {
        let (first, last) = (window[0], window[OF_THREE_SECONDS]);
        let (one, other) = (last.0 - first.0, last.1 - first.1);
        one.abs_diff(other) <= SAME && one.min(other) >= APART * OF_THREE_SECONDS as u32 - 2 * SAME
    })
}

#[test]
fn equal_programs_keep_their_places_in_the_tables() {
    let _alone = alone();
    let programs = [burning("first_fire"), burning("other_fire")];
    let pids = format!("{},{}", programs[0].pid(), programs[1].pid());
    for (view, heading) in [("2", "self ▼"), ("3", "CPU % ▼")] {
        let mut terminal = Terminal::start(&["-F", "99", "-p", &pids], 36, 132, &[]);
        terminal.keys(view);
        terminal.wait_for(|screen| screen.contains("live 00:05") && screen.contains(heading), SOON);
        let order = |screen: &str| -> String {
            let found = |line: &str| ["first_fire", "other_fire"].into_iter().find(|name| line.contains(name));
            let rows = screen.lines().skip_while(|line| !line.contains(heading)).skip(1).take(2);
            rows.filter_map(found).collect::<Vec<_>>().join(" ")
        };
        // A machine that does something else meanwhile says nothing about the tables.
        let steady = (0..8).find_map(|_| {
            let (mut seen, mut times) = (Vec::new(), Vec::new());
            for _ in 0..PICTURES {
                std::thread::sleep(APART);
                let screen = terminal.screen();
                assert_eq!(order(&screen).split(' ').count(), 2, "{screen}");
                seen.push(order(&screen));
                times.push((programs[0].cpu_time(), programs[1].cpu_time()));
            }
            is_steady(&times).then_some(seen)
        });
        let Some(seen) = steady else {
            return println!(
                "NOT TESTED: in 80 seconds, two busy programs never had a CPU each for ten: the machine is too busy"
            );
        };
        let changes = seen.windows(2).filter(|two| two[0] != two[1]).count();
        assert_eq!(changes, 0, "view {view}: {seen:#?}");
        terminal.keys("q");
        assert!(terminal.wait_exit_within(SOON).success());
    }
}
