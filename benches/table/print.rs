//! The printed table: figures, targets, and whether each target is met.

use super::*;

pub(crate) fn cost(what: &str, program: &'static str, usage: Option<Usage>, target: Option<(f64, f64)>) -> Line {
    let share = |time: f64| time / seconds() as f64 * 100.0;
    let figure = usage.map_or("not measured: it is not there, or it failed".to_owned(), |usage| {
        let bpf = if usage.bpf > 0.0 { format!(" and {:.2} % BPF", share(usage.bpf)) } else { String::new() };
        format!("{:.2} %{bpf}, peak {:.0} MB", share(usage.cpu), usage.peak_mb)
    });
    Line {
        what: what.to_owned(),
        program,
        figure,
        target: target.map_or(String::new(), |(cpu, memory)| format!("{cpu} %, {memory} MB")),
        held: target.zip(usage).map(|((cpu, memory), usage)| share(usage.cpu + usage.bpf) <= cpu && usage.peak_mb <= memory),
    }
}

pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) program: &'static str,
    pub(crate) figure: String,
    pub(crate) target: String,
    pub(crate) held: Option<bool>,
}

#[derive(Default)]
pub(crate) struct Table {
    lines: Vec<Line>,
    /// Tables with other columns, with their titles.
    grids: Vec<(String, Vec<Vec<String>>)>,
}

impl Table {
    pub(crate) fn add(&mut self, line: Line) {
        eprintln!("  {}  {}  {}", line.what, line.program, line.figure);
        self.lines.push(line);
    }

    pub(crate) fn failed(&mut self, what: &str) {
        let figure = "not measured: an example could not be built or failed".to_owned();
        self.add(Line { what: what.to_owned(), program: "", figure, target: String::new(), held: None });
    }

    /// Adds a table with other columns. The first row is its head.
    pub(crate) fn grid(&mut self, title: &str, rows: Vec<Vec<String>>) {
        self.grids.push((title.to_owned(), rows));
    }

    pub(crate) fn print(&self) {
        let machine = rustix::system::uname();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        println!("\nflametop {}, Linux {}, {cpus} CPUs\n", env!("CARGO_PKG_VERSION"), machine.release().to_string_lossy());
        let mut rows = vec![["what", "program", "figure", "target", ""].map(str::to_owned)];
        rows.push(["-", "-", "-", "-", "-"].map(str::to_owned));
        rows.extend(self.lines.iter().map(|line| {
            let held = line.held.map_or("", |held| if held { "ok" } else { "miss" });
            [line.what.clone(), line.program.to_owned(), line.figure.clone(), line.target.clone(), held.to_owned()]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(width);
        for [what, program, figure, target, held] in &rows {
            println!("| {what:a$} | {program:b$} | {figure:c$} | {target:d$} | {held:e$} |");
        }
        for (title, rows) in &self.grids {
            println!("\n{title}:\n");
            for (number, row) in rows.iter().enumerate() {
                println!("| {} |", row.join(" | "));
                if number == 0 {
                    println!("|{}", " - |".repeat(row.len()));
                }
            }
        }
    }
}
