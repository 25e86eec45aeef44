//! Chromium without a window: prints documents, takes screenshots.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Starting a cold Chromium on a busy machine takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the browser when the test is over, however it ends.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs Chromium with these words until it ends. Returns what it prints.
fn chromium(words: &[&str], file: &Path, profile: &Path) -> String {
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(words)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command.spawn().expect("this test needs the program `chromium`: install Debian's package of that name");
    let mut browser = Browser(child);
    let mut pipe = browser.0.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut printed = String::new();
        pipe.read_to_string(&mut printed).map(|_| printed)
    });
    let deadline = Instant::now() + PATIENCE;
    while browser.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "Chromium has not finished after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
    reader.join().unwrap().unwrap()
}

/// The document after `SCRIPT` has run, as Chromium prints it.
pub(super) fn dump(svg: &Path, profile: &Path) -> String {
    chromium(&["--virtual-time-budget=3000", "--dump-dom"], svg, profile)
}

/// The pages of the document on paper.
pub(super) fn pages(file: &Path, directory: &Path) -> usize {
    let pdf = directory.join("printed.pdf");
    let words = [&format!("--print-to-pdf={}", pdf.display()), "--no-pdf-header-footer", "--virtual-time-budget=3000"];
    chromium(&words, file, &directory.join("browser"));
    let bytes = fs::read(&pdf).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.match_indices("/Type /Page").filter(|(at, found)| !text[at + found.len()..].starts_with('s')).count()
}

pub(super) fn seen_in(dom: &str) -> Vec<(String, String)> {
    let seen = dom.split("data-seen=\"").nth(1).and_then(|rest| rest.split('"').next());
    let seen = seen.unwrap_or_else(|| panic!("the script has not run; the document is:\n{dom}"));
    seen.split('|').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The document of a copy of the file that has this script, too.
pub(super) fn with_script(svg: &Path, script: &str, directory: &Path) -> String {
    let saved = fs::read_to_string(svg).unwrap();
    let end = saved.rfind("</svg>").unwrap();
    let copy = directory.join("copy.svg");
    fs::write(&copy, format!("{}{script}{}", &saved[..end], &saved[end..])).unwrap();
    dump(&copy, &directory.join("browser"))
}

/// Reads colours of pixels in a screenshot.
pub(super) struct Screenshot {
    width: usize,
    bytes: Vec<u8>,
    channels: usize,
}

impl Screenshot {
    pub(super) fn take(file: &Path, words: &[&str], directory: &Path) -> Screenshot {
        let png = directory.join("screenshot.png");
        let size = format!("--window-size={WIDTH},400");
        let target = format!("--screenshot={}", png.display());
        chromium(&[words, &[&size, &target, "--virtual-time-budget=3000"]].concat(), file, &directory.join("browser"));
        let mut reader = png::Decoder::new(std::io::BufReader::new(fs::File::open(&png).unwrap())).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let about = reader.next_frame(&mut bytes).unwrap();
        fs::remove_file(&png).unwrap();
        Screenshot { width: about.width as usize, bytes, channels: about.color_type.samples() }
    }

    pub(super) fn at(&self, x: f64, y: f64) -> (u8, u8, u8) {
        let from = (y as usize * self.width + x as usize) * self.channels;
        (self.bytes[from], self.bytes[from + 1], self.bytes[from + 2])
    }
}

/// Pixels of the window. The boxes have 20 pixels less.
pub(super) const WIDTH: usize = 1220;

/// Undoes `encodeURIComponent`.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
        bytes.push(if byte == b'%' { hex(rest.next().unwrap()) << 4 | hex(rest.next().unwrap()) } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}
