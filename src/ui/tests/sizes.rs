//! Compares whole pictures of each view with those in `tests/screens`, from the smallest usable screen to the widest.

use super::*;
use crate::profile::{Clock, Process, Processes, UserId};

/// Returns a machine of two CPUs that has run for six seconds.
fn machine() -> Bench {
    let mut bench = Bench::new();
    let clock = Clock { period: SECOND / 20, cpus: 2, since: Timestamp(SECOND), until: None };
    bench.profile.write().unwrap().set_clock(clock);
    let processes = Processes::default();
    for (tgid, user, command) in
        [(10, 33, "/usr/sbin/nginx -g daemon off;"), (20, 26, "/usr/lib/postgresql/16/bin/postgres -D /data")]
    {
        let process =
            Process { command_line: command.into(), user: Some(UserId(user)), parent: Tgid(1), threads: tgid / 5, exited: None };
        processes.insert(Tgid(tgid), process);
    }
    bench.engine = Engine::new(Arc::clone(&bench.app.scene.names), Arc::new(processes), Arc::clone(&bench.profile));
    let status = Status {
        frequency: 20,
        cpus: 2,
        online: [0, 2].into(),
        live: true,
        clock: true,
        host: "shop".to_owned(),
        source: "cpu-clock 20 Hz".to_owned(),
        elapsed: 6,
        wall: Some(0),
        own_cpu: 0.4,
        own_memory: 21 << 20,
        own_mapped: 12 << 20,
        own_heap: Some(Heap { resident: 7 << 20, in_use: 6 << 20 }),
        users: Arc::new([(UserId(33), "www-data".into()), (UserId(26), "postgres".into())].into_iter().collect()),
        ..Status::default()
    };
    bench.send(Event::Status(Box::new(status)));
    bench
}

#[test]
fn each_view_is_of_use_on_a_screen_of_any_size() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../../tests/screens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (columns, rows) in [(40, 10), (60, 15), (80, 24), (100, 30), (132, 36), (160, 45), (200, 60)] {
        let mut bench = machine();
        let mut pictures = String::new();
        // Each view; then the function under the cursor with its callers and callees, and a comparison of processes.
        for keys in ["1", "2", "3", "4", "5", "2jjjs", "3bd"] {
            bench.screen(columns, rows);
            bench.keys(keys);
            let screen = bench.screen(columns, rows);
            pictures.push_str(&format!("keys {keys}\n"));
            for line in screen.lines() {
                pictures.push_str(&format!("{}\n", line.trim_matches('"').trim_end()));
            }
            bench.keys(if keys == "2jjjs" { "s" } else { "" });
        }
        settings.bind(|| insta::assert_snapshot!(format!("live_{columns}x{rows}"), pictures));
    }
}
