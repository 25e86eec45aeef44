//! The screen as a user sees it: in a real terminal, driven by real keys.
//!
//! `screens` compares whole pictures of a fixed file with those in `tests/screens`; `live`, `command` and `ending` look at a
//! running machine, so they assert what must be there and not where; `looks` and `hostile` read the raw bytes. Needs root but for
//! `screens` and `looks`, and gcc. If something is missing, the test fails with a sentence. Tests never wait for a time to pass,
//! only for text on the screen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod command;
mod ending;
mod files;
mod hostile;
mod live;
mod looks;
mod recording;
mod screens;
mod shell;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use common::Terminal;

/// Limit for text that should appear soon: a machine that also builds may be slow.
const SOON: Duration = Duration::from_secs(60);

/// Weights are such that at 80 columns some frames are wide, some narrow, and some gathered.
const SHOP: &str = "\
web;main;serve;read_request;parse_headers 220
web;main;serve;read_request;recv;entry_SYSCALL_64_[k];tcp_recvmsg_[k] 80
web;main;serve;render;Template<Page, Html>::expand(Page const&, int);escape_html 310
web;main;serve;render;Template<Page, Html>::expand(Page const&, int) 45
web;main;serve;render;json::ser::to_writer 75
web;main;serve;write_reply;send;entry_SYSCALL_64_[k];tcp_sendmsg_[k];__alloc_skb_[k] 60
web;main;serve;write_reply;send;entry_SYSCALL_64_[k];tcp_sendmsg_[k] 20
db;main;query;plan 30
db;main;query;btree::search;compare_keys_[i] 80
db;main;query;btree::search 20
db;main;vacuum 10
js;node::Start;~handler_[j] 15
tiny1;a 9
tiny2;b 9
tiny3;c 9
tiny4;d 8
";

/// A directory with `shop.folded` in it.
struct Shop(tempfile::TempDir);

impl Shop {
    fn new() -> Shop {
        let directory = tempfile::tempdir().expect("no directory for temporary files");
        std::fs::write(directory.path().join("shop.folded"), SHOP).expect("a file can be written");
        Shop(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn view(&self, args: &[&str], rows: u16, cols: u16, env: &[(&str, &str)]) -> Terminal {
        self.view_answering(args, (rows, cols), env, &[])
    }

    /// In a terminal that answers these questions.
    fn view_answering(
        &self,
        args: &[&str],
        (rows, cols): (u16, u16),
        env: &[(&str, &str)],
        answers: &[(&[u8], &[u8])],
    ) -> Terminal {
        let file = self.path("shop.folded");
        let args = [&["view", file.to_str().unwrap()], args].concat();
        let terminal = Terminal::spawn_answering(env!("CARGO_BIN_EXE_flametop"), &args, (rows, cols), env, answers);
        if rows >= 10 && cols >= 40 {
            terminal.wait_for(|screen| screen.contains("serve") && screen.contains("1,000"), SOON);
        }
        terminal
    }
}

/// A prompt's key, and what the prompt says.
type Prompt = (&'static str, &'static str);
const SEARCH: Prompt = ("/", "search /");
const KEEP: Prompt = ("&", "keep stacks with /");
const DROP: Prompt = ("!", "drop stacks with /");
const SAVE: Prompt = ("w", "save to (");

/// Types a line into a prompt, over its proposal.
#[track_caller]
fn prompt(terminal: &Terminal, (key, label): Prompt, text: &str) {
    terminal.keys(key);
    terminal.wait_for_text(label, SOON);
    terminal.keys("Right Ctrl-u");
    terminal.text(text);
    terminal.keys("Enter");
    terminal.wait_for(|screen| !screen.contains(label), SOON);
}

/// Row and column, from 0, of the first `text` on the screen.
#[track_caller]
fn position(terminal: &Terminal, text: &str) -> (u16, u16) {
    let screen = terminal.wait_for_text(text, SOON);
    let (row, line) = screen.lines().enumerate().find(|(_, line)| line.contains(text)).unwrap();
    let column = line[..line.find(text).unwrap()].chars().count();
    (u16::try_from(row).unwrap(), u16::try_from(column).unwrap())
}

/// The last-but-one line: the frame under the cursor.
fn detail(screen: &str) -> &str {
    screen.lines().rev().nth(1).unwrap_or_default()
}

/// Sends a signal to another running program.
fn signal(program: &common::Running, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(program.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The program ends at `q` and leaves the terminal as it was.
#[track_caller]
fn quit(mut terminal: Terminal) {
    terminal.keys("q");
    let status = terminal.wait_exit_within(SOON);
    assert!(status.success(), "{status:?}\n{}", terminal.screen());
    terminal.assert_restored();
}
