//! Runs a program in a pseudo-terminal, types keys, and saves the screen as an SVG picture or as text.
//!
//! ```text
//! cargo run --example screenshot -- --wait 3s --keys 'j j Enter /' --output screen.svg -- flametop
//! ```
//!
//! The SVG is self-contained and exact. Block elements and lines are drawn as rectangles on the grid of cells, so that
//! bars meet as they do in a terminal. Each run of text has its width set, so it does not depend on the font.

// A tool for developers: it reports errors by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::time::Duration;

use clap::Parser;

#[allow(dead_code)] // made for tests; a picture needs a part of it
#[path = "../tests/common/terminal.rs"]
mod terminal;

use terminal::Terminal;

/// Saves the screen of a terminal program.
#[derive(Parser)]
struct Options {
    /// Rows of the terminal
    #[arg(long, default_value_t = 36)]
    rows: u16,
    /// Columns of the terminal
    #[arg(long, default_value_t = 132)]
    cols: u16,
    /// How long to wait before the first key: 3s, 500ms
    #[arg(long, default_value = "1s", value_parser = duration)]
    wait: Duration,
    /// Before that, wait until this text is on the screen (30 seconds at most)
    #[arg(long)]
    until: Option<String>,
    /// Keys, separated by blanks: names (Up, Enter, Ctrl-C, …), text, or pause:500ms
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    keys: String,
    /// How long to wait after the last key
    #[arg(long, default_value = "500ms", value_parser = duration)]
    settle: Duration,
    /// Environment of the program: NAME=VALUE; an empty value removes a name
    #[arg(long)]
    env: Vec<String>,
    /// Title in the picture's frame; without it there is no frame
    #[arg(long)]
    title: Option<String>,
    /// Dark text on a light ground
    #[arg(long)]
    light: bool,
    /// Save text in place of a picture
    #[arg(long)]
    text: bool,
    /// Where to save; standard output when absent
    #[arg(short, long)]
    output: Option<std::path::PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a duration such as 3s or 500ms"))?;
    match unit {
        "ms" => Ok(Duration::from_secs_f64(number / 1000.0)),
        "s" => Ok(Duration::from_secs_f64(number)),
        _ => Err(format!("{text:?} has no unit: write s or ms")),
    }
}

fn main() {
    let options = Options::parse();
    let mut env = vec![("COLORTERM", "truecolor"), ("COLORFGBG", "")];
    env.extend(options.env.iter().map(|pair| pair.split_once('=').expect("--env takes NAME=VALUE")));
    let command: Vec<&str> = options.command.iter().map(String::as_str).collect();
    let (program, args) = command.split_first().expect("clap requires a command");

    let (light, dark): (&[u8], &[u8]) = (b"rgb:ffff/ffff/ffff\x1b\\", b"rgb:1616/1818/1d1d\x1b\\");
    let (ink, ground) = if options.light { (dark, light) } else { (light, dark) };
    let (ink, ground) = ([b"\x1b]10;", ink].concat(), [b"\x1b]11;", ground].concat());
    let answers: [(&[u8], &[u8]); 2] = [(b"\x1b]10;?", &ink), (b"\x1b]11;?", &ground)];
    let terminal = Terminal::spawn_answering(program, args, (options.rows, options.cols), &env, &answers);
    if let Some(text) = &options.until {
        terminal.wait_for_text(text, Duration::from_secs(30));
    }
    std::thread::sleep(options.wait);
    for key in options.keys.split_whitespace() {
        match key.strip_prefix("pause:") {
            Some(length) => std::thread::sleep(duration(length).unwrap()),
            None => terminal.keys(key),
        }
    }
    std::thread::sleep(options.settle);

    let picture = if options.text {
        terminal.screen() + "\n"
    } else {
        let theme = if options.light { Theme::LIGHT } else { Theme::DARK };
        terminal.with_screen(|screen| svg(screen, &theme, options.title.as_deref()))
    };
    match &options.output {
        Some(path) => std::fs::write(path, picture).unwrap_or_else(|error| panic!("failed to write {}: {error}", path.display())),
        None => print!("{picture}"),
    }
    // Ends the program with the signal of a closed window, so that a profiler can unload its BPF programs.
    terminal.signal(rustix::process::Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
}

/// Pixels of a cell. The font size makes the usual 0.6 em advance of monospace fonts one cell wide.
const WIDTH: f32 = 9.0;
const HEIGHT: f32 = 18.0;
const FONT_SIZE: f32 = 15.0;
const BASELINE: f32 = 13.5;

type Rgb = (u8, u8, u8);

struct Theme {
    text: Rgb,
    ground: Rgb,
    frame: Rgb,
    /// The sixteen colours that a terminal's user chooses.
    named: [Rgb; 16],
}

impl Theme {
    const DARK: Self = Self {
        text: (0xd4, 0xd7, 0xdd),
        ground: (0x16, 0x18, 0x1d),
        frame: (0x2a, 0x2e, 0x37),
        named: [
            (0x2a, 0x2e, 0x37),
            (0xe0, 0x6c, 0x75),
            (0x8c, 0xc2, 0x65),
            (0xd9, 0xb3, 0x60),
            (0x61, 0xa5, 0xe8),
            (0xc6, 0x78, 0xdd),
            (0x4f, 0xb6, 0xc2),
            (0xc8, 0xcc, 0xd4),
            (0x6b, 0x72, 0x80),
            (0xf2, 0x8b, 0x92),
            (0xa9, 0xd9, 0x87),
            (0xf0, 0xcf, 0x85),
            (0x8a, 0xbe, 0xf5),
            (0xd9, 0x9b, 0xec),
            (0x7d, 0xd0, 0xda),
            (0xff, 0xff, 0xff),
        ],
    };
    const LIGHT: Self = Self {
        text: (0x24, 0x29, 0x2f),
        ground: (0xff, 0xff, 0xff),
        frame: (0xe2, 0xe5, 0xe9),
        named: [
            (0x24, 0x29, 0x2f),
            (0xb3, 0x1d, 0x28),
            (0x22, 0x7a, 0x36),
            (0x8a, 0x60, 0x00),
            (0x05, 0x50, 0xae),
            (0x82, 0x30, 0xb5),
            (0x13, 0x6b, 0x78),
            (0x9a, 0xa0, 0xa8),
            (0x6e, 0x77, 0x81),
            (0xd1, 0x3c, 0x46),
            (0x2f, 0x9a, 0x48),
            (0xb0, 0x80, 0x10),
            (0x2a, 0x78, 0xd6),
            (0xa0, 0x52, 0xd0),
            (0x22, 0x8f, 0x9e),
            (0xf6, 0xf8, 0xfa),
        ],
    };

    fn rgb(&self, colour: vt100::Color, default: Rgb) -> Rgb {
        match colour {
            vt100::Color::Default => default,
            vt100::Color::Rgb(r, g, b) => (r, g, b),
            vt100::Color::Idx(index @ 0..=15) => self.named[usize::from(index)],
            // xterm's cube of 6 × 6 × 6, whose steps are 0, 95, 135, 175, 215, 255, and its 24 greys from 8 to 238.
            vt100::Color::Idx(index @ 16..=231) => {
                let step = |digit: u8| if digit == 0 { 0 } else { 55 + 40 * digit };
                let index = index - 16;
                (step(index / 36), step(index / 6 % 6), step(index % 6))
            }
            vt100::Color::Idx(index) => {
                let grey = 8 + 10 * (index - 232);
                (grey, grey, grey)
            }
        }
    }
}

/// How a cell is drawn. Adjacent equal cells of a row become one run.
#[derive(Clone, Copy, PartialEq)]
struct Style {
    text: Rgb,
    ground: Rgb,
    bold: bool,
    italic: bool,
    underline: bool,
}

fn style_of(cell: &vt100::Cell, theme: &Theme) -> Style {
    let mut text = theme.rgb(cell.fgcolor(), theme.text);
    let mut ground = theme.rgb(cell.bgcolor(), theme.ground);
    if cell.inverse() {
        std::mem::swap(&mut text, &mut ground);
    }
    if cell.dim() {
        let half = |a: u8, b: u8| ((u16::from(a) * 3 + u16::from(b) * 2) / 5) as u8;
        text = (half(text.0, ground.0), half(text.1, ground.1), half(text.2, ground.2));
    }
    Style { text, ground, bold: cell.bold(), italic: cell.italic(), underline: cell.underline() }
}

fn svg(screen: &vt100::Screen, theme: &Theme, title: Option<&str>) -> String {
    let (rows, cols) = screen.size();
    let (width, height) = (f32::from(cols) * WIDTH, f32::from(rows) * HEIGHT);
    let margin = 10.0;
    let bar = if title.is_some() { 28.0 } else { margin };
    let (whole_width, whole_height) = (width + 2.0 * margin, height + bar + margin);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" width=\"{whole_width}\" \
         height=\"{whole_height}\" font-family=\"'DejaVu Sans Mono',ui-monospace,Menlo,Consolas,monospace\" \
         font-size=\"{FONT_SIZE}\">\n<style>text{{white-space:pre}}</style>\n"
    );
    let _ = writeln!(out, "<rect width=\"{whole_width}\" height=\"{whole_height}\" rx=\"6\" fill=\"{}\"/>", hex(theme.ground));
    if let Some(title) = title {
        let _ = writeln!(
            out,
            "<path d=\"M0 22V6a6 6 0 0 1 6-6h{}a6 6 0 0 1 6 6v16z\" fill=\"{}\"/>\n<text x=\"{}\" y=\"16\" text-anchor=\"middle\" \
             font-size=\"13\" fill=\"{}\">{}</text>",
            whole_width - 12.0,
            hex(theme.frame),
            whole_width / 2.0,
            hex(theme.text),
            escaped(title)
        );
    }
    let _ = writeln!(out, "<g transform=\"translate({margin} {bar})\" shape-rendering=\"crispEdges\">");
    for row in 0..rows {
        draw_row(&mut out, screen, theme, row, cols);
    }
    if !screen.hide_cursor() {
        let (row, col) = screen.cursor_position();
        rect(&mut out, f32::from(col) * WIDTH, f32::from(row) * HEIGHT, WIDTH, HEIGHT, theme.text, 0.5);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn draw_row(out: &mut String, screen: &vt100::Screen, theme: &Theme, row: u16, cols: u16) {
    let y = f32::from(row) * HEIGHT;
    let cells: Vec<(u16, &vt100::Cell, Style)> =
        (0..cols).filter_map(|col| screen.cell(row, col).map(|cell| (col, cell, style_of(cell, theme)))).collect();

    // Draw all backgrounds of a row first: a letter may reach into the next cell.
    for run in cells.chunk_by(|a, b| a.2.ground == b.2.ground) {
        let ground = run[0].2.ground;
        if ground != theme.ground {
            rect(out, f32::from(run[0].0) * WIDTH, y, run.len() as f32 * WIDTH, HEIGHT, ground, 1.0);
        }
    }
    let mut text = Run::default();
    for (col, cell, style) in &cells {
        if cell.is_wide_continuation() {
            continue;
        }
        let glyph = if cell.has_contents() { cell.contents() } else { " " };
        let shapes = glyph.chars().next().and_then(shapes_of).filter(|_| glyph.chars().count() == 1);
        if let Some(shapes) = shapes {
            text.finish(out, y);
            for (left, top, right, bottom, opacity) in shapes {
                let x = (f32::from(*col) + left) * WIDTH;
                rect(out, x, y + top * HEIGHT, (right - left) * WIDTH, (bottom - top) * HEIGHT, style.text, opacity);
            }
            continue;
        }
        let cells_wide = if cell.is_wide() { 2 } else { 1 };
        text.push(out, y, *col, cells_wide, glyph, *style);
    }
    text.finish(out, y);
}

/// Neighbouring cells of text with one style.
#[derive(Default)]
struct Run {
    start: u16,
    cells: u16,
    text: String,
    style: Option<Style>,
}

impl Run {
    fn push(&mut self, out: &mut String, y: f32, col: u16, cells: u16, glyph: &str, style: Style) {
        let joins =
            self.style.is_some_and(|own| Style { ground: style.ground, ..own } == style) && self.start + self.cells == col;
        // A wide letter is a separate run, so that its neighbours do not share its width.
        if !joins || cells > 1 {
            self.finish(out, y);
            self.start = col;
            self.style = Some(style);
        }
        self.cells += cells;
        self.text.push_str(glyph);
        if cells > 1 {
            self.finish(out, y);
        }
    }

    fn finish(&mut self, out: &mut String, y: f32) {
        let run = std::mem::take(self);
        let Some(style) = run.style else { return };
        let x = f32::from(run.start) * WIDTH;
        if style.underline {
            rect(out, x, y + HEIGHT - 2.5, f32::from(run.cells) * WIDTH, 1.0, style.text, 1.0);
        }
        // Blanks at both ends need no drawing.
        let text = run.text.trim_end_matches(' ');
        let leading = text.len() - text.trim_start_matches(' ').len();
        let trailing = run.text.len() - text.len();
        let text = text.trim_start_matches(' ');
        if text.is_empty() {
            return;
        }
        let cells = f32::from(run.cells) - leading as f32 - trailing as f32;
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" textLength=\"{}\" fill=\"{}\"",
            x + leading as f32 * WIDTH,
            y + BASELINE,
            cells * WIDTH,
            hex(style.text)
        );
        if style.bold {
            out.push_str(" font-weight=\"bold\"");
        }
        if style.italic {
            out.push_str(" font-style=\"italic\"");
        }
        let _ = writeln!(out, ">{}</text>", escaped(text));
    }
}

/// Left, top, right, bottom in parts of a cell, and opacity.
type Shape = (f32, f32, f32, f32, f32);

/// Glyphs that are geometry: block elements (U+2580…U+2595) and light lines (U+2500…U+253C).
fn shapes_of(glyph: char) -> Option<Vec<Shape>> {
    let code = glyph as u32;
    let eighths = |count: u32| count as f32 / 8.0;
    let block = match code {
        0x2580 => (0.0, 0.0, 1.0, 0.5, 1.0),
        0x2581..=0x2588 => (0.0, 1.0 - eighths(code - 0x2580), 1.0, 1.0, 1.0),
        0x2589..=0x258f => (0.0, 0.0, eighths(0x2590 - code), 1.0, 1.0),
        0x2590 => (0.5, 0.0, 1.0, 1.0, 1.0),
        0x2591..=0x2593 => (0.0, 0.0, 1.0, 1.0, (code - 0x2590) as f32 / 4.0),
        0x2594 => (0.0, 0.0, 1.0, 0.125, 1.0),
        0x2595 => (0.875, 0.0, 1.0, 1.0, 1.0),
        _ => return lines_of(glyph),
    };
    Some(vec![block])
}

fn lines_of(glyph: char) -> Option<Vec<Shape>> {
    // Arms to the left, right, top and bottom.
    let (left, right, top, bottom) = match glyph {
        '─' => (true, true, false, false),
        '│' => (false, false, true, true),
        '┌' | '╭' => (false, true, false, true),
        '┐' | '╮' => (true, false, false, true),
        '└' | '╰' => (false, true, true, false),
        '┘' | '╯' => (true, false, true, false),
        '├' => (false, true, true, true),
        '┤' => (true, false, true, true),
        '┬' => (true, true, false, true),
        '┴' => (true, true, true, false),
        '┼' => (true, true, true, true),
        _ => return None,
    };
    // One pixel, from the cell's middle pixel outwards.
    let (x, y) = (4.0 / WIDTH, 8.0 / HEIGHT);
    let (x_end, y_end) = (5.0 / WIDTH, 9.0 / HEIGHT);
    let mut shapes = Vec::new();
    if left || right {
        shapes.push((if left { 0.0 } else { x }, y, if right { 1.0 } else { x_end }, y_end, 1.0));
    }
    if top || bottom {
        shapes.push((x, if top { 0.0 } else { y }, x_end, if bottom { 1.0 } else { y_end }, 1.0));
    }
    Some(shapes)
}

fn rect(out: &mut String, x: f32, y: f32, width: f32, height: f32, colour: Rgb, opacity: f32) {
    let _ = write!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{}\"", hex(colour));
    if opacity < 1.0 {
        let _ = write!(out, " opacity=\"{opacity}\"");
    }
    out.push_str("/>\n");
}

fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// XML knows no control characters, not even escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
