//! Response times of keys.

use super::*;

/// Response times of keys.
///
/// After each key one byte is sent to a `cat` in a separate terminal. The machine decides the time of that echo, not the measured
/// program: it shows how reliable a figure from a busy machine is. Meanwhile the measuring threads have priority over all others,
/// as if they were the terminal of another machine.
pub(crate) struct Times {
    known: Vec<f64>,
    unanswered: usize,
    echo: Terminal,
    echoes: Vec<f64>,
    pid: u32,
    cpu: f64,
}

impl Times {
    pub(crate) fn start(terminal: &Terminal) -> Times {
        let echo = Terminal::spawn("sh", &["-c", "stty raw -echo; exec cat"], LARGE.0, LARGE.1, &[]);
        std::thread::sleep(Duration::from_millis(500));
        give_own_threads_priority(-20);
        let (pid, cpu) = (terminal.pid(), usage_of(terminal.pid()).cpu);
        Times { known: Vec::new(), unanswered: 0, echo, echoes: Vec::new(), pid, cpu }
    }

    pub(crate) fn press(&mut self, terminal: &Terminal, key: &[u8], answered: impl Fn() -> bool) {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let begin = Instant::now();
        terminal.send(key);
        match time_until(terminal, begin, answered) {
            Some(time) => self.known.push(milliseconds(time)),
            None => self.unanswered += 1,
        }
        let (begin, before) = (Instant::now(), self.echo.written());
        self.echo.send(b"x");
        let echoed = time_until(&self.echo, begin, || self.echo.written() > before);
        self.echoes.extend(echoed.map(milliseconds));
    }

    pub(crate) fn line(mut self, what: String, program: &'static str) -> Line {
        give_own_threads_priority(0);
        let cpu = (usage_of(self.pid).cpu - self.cpu) * 1000.0 / KEYS as f64;
        let at = |times: &mut Vec<f64>, share: usize| {
            times.sort_by(f64::total_cmp);
            let last = times.len().saturating_sub(1);
            times.get((times.len() * share / 100).min(last)).copied().unwrap_or(f64::INFINITY)
        };
        let (p50, p99) = (at(&mut self.known, 50), at(&mut self.known, 99));
        let (echo50, echo99) = (at(&mut self.echoes, 50), at(&mut self.echoes, 99));
        let unanswered = if self.unanswered > 0 { format!(", {} of {KEYS} unanswered", self.unanswered) } else { String::new() };
        let ours = program == "flametop";
        Line {
            what,
            program,
            figure: format!(
                "p50 {p50:.1} ms, p99 {p99:.1} ms{unanswered}; CPU {cpu:.1} ms a key; echo p50 {echo50:.1}, p99 {echo99:.1}"
            ),
            target: if ours { format!("p99 {KEY_TARGET} ms") } else { String::new() },
            held: ours.then_some(p99 <= KEY_TARGET && self.unanswered == 0),
        }
    }
}

/// Sets the nice value of this process's threads. Only root may set less than 0; other users measure without it.
fn give_own_threads_priority(nice: i32) {
    for entry in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::setpriority_process(Some(id), nice);
        }
    }
}
