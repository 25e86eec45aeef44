//! Colours: the terminal's abilities, its background, and the colour of each frame.
//!
//! Boxes have the colours of [`crate::palette`]. Colour is never the only sign: kinds also have a mark, the cursor is reversed,
//! matches are underlined.

use ratatui::style::{Color, Modifier, Style};

use crate::palette::{Hsl, Palette};
use crate::profile::{Change, FrameKind, Label, Language};

/// Number of colours that the terminal shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Depth {
    /// None: `NO_COLOR` is set, or the terminal has no colours.
    None,
    /// The sixteen colours of every terminal.
    Sixteen,
    /// The 256 colours of xterm.
    Indexed,
    /// 24 bits.
    True,
}

impl Depth {
    /// Reads the depth from the environment, as most programs do.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Depth {
        let set = |name: &str| get(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        if set("NO_COLOR").is_some() || term == "dumb" || term.starts_with("vt") {
            Depth::None
        } else if set("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit") || term.contains("direct") {
            Depth::True
        } else if term.contains("256color") || term.contains("kitty") || term.contains("alacritty") {
            Depth::Indexed
        } else {
            Depth::Sixteen
        }
    }
}

/// Meaning of a box's colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ColourMode {
    /// The kind of code.
    #[default]
    Kind,
    /// The own share of the box's time.
    Own,
}

/// All settings of looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Theme {
    /// Number of colours.
    pub depth: Depth,
    /// Whether the background is dark.
    pub dark: bool,
    /// Whether only ASCII characters are used, which every terminal has.
    pub ascii: bool,
    /// Meaning of a box's colour.
    pub mode: ColourMode,
    /// The set of colours.
    pub palette: Palette,
}

impl Default for Theme {
    fn default() -> Self {
        Theme { depth: Depth::True, dark: true, ascii: false, mode: ColourMode::Kind, palette: Palette::Standard }
    }
}

/// Returns the nearest colour of xterm's 6×6×6 cube or its greys.
fn indexed((r, g, b): (u8, u8, u8)) -> u8 {
    const LEVELS: [i32; 6] = [0, 95, 135, 175, 215, 255];
    let nearest =
        |value: u8| LEVELS.iter().enumerate().min_by_key(|(_, level)| (*level - i32::from(value)).abs()).map_or(0, |(at, _)| at);
    let (ri, gi, bi) = (nearest(r), nearest(g), nearest(b));
    let distance = |x: i32, y: i32, z: i32| (x - i32::from(r)).pow(2) + (y - i32::from(g)).pow(2) + (z - i32::from(b)).pow(2);
    let cube = distance(LEVELS[ri], LEVELS[gi], LEVELS[bi]);
    let grey = ((i32::from(r) + i32::from(g) + i32::from(b)) / 3 - 8).clamp(0, 230) / 10;
    let level = 8 + grey * 10;
    let index = if distance(level, level, level) < cube { 232 + grey } else { 16 + 36 * ri as i32 + 6 * gi as i32 + bi as i32 };
    u8::try_from(index).unwrap_or(16)
}

/// Returns the 16-colour background of a kind. There are two, so that neighbours can differ.
fn sixteen(palette: Palette, kind: FrameKind, second: bool) -> Color {
    let (a, b) = match kind {
        FrameKind::Kernel if palette == Palette::ColourBlind => (Color::LightBlue, Color::LightCyan),
        FrameKind::Jit if palette == Palette::ColourBlind => (Color::Magenta, Color::LightMagenta),
        FrameKind::Script(Language::Python) if palette == Palette::ColourBlind => (Color::LightRed, Color::Red),
        FrameKind::Script(Language::JavaScript) if palette == Palette::ColourBlind => (Color::LightGreen, Color::Green),
        FrameKind::Script(Language::Java) if palette == Palette::ColourBlind => (Color::Cyan, Color::LightCyan),
        FrameKind::Inlined if palette == Palette::ColourBlind => (Color::LightYellow, Color::Yellow),
        FrameKind::Process => (Color::Gray, Color::White),
        FrameKind::User => (Color::Yellow, Color::LightYellow),
        FrameKind::Kernel => (Color::Cyan, Color::LightCyan),
        FrameKind::Inlined => (Color::LightRed, Color::Red),
        FrameKind::Jit => (Color::Green, Color::LightGreen),
        FrameKind::Script(Language::Python) => (Color::Magenta, Color::LightMagenta),
        FrameKind::Script(Language::JavaScript) => (Color::LightBlue, Color::LightCyan),
        FrameKind::Script(Language::Java) => (Color::LightGreen, Color::Green),
        FrameKind::Wait => (Color::Blue, Color::LightBlue),
        FrameKind::Unknown => (Color::Gray, Color::White),
    };
    if second { b } else { a }
}

/// The colours of a box: background and text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BoxColours {
    /// Background; `Reset` without colours.
    pub ground: Color,
    /// Text.
    pub ink: Color,
}

impl Theme {
    /// Returns whether eighths of a column can be drawn.
    pub fn fractional(&self) -> bool {
        !self.ascii && self.depth >= Depth::Indexed
    }

    /// Returns the colours of a frame's box. `shift` separates neighbours of one colour. `faded` is for frames on the path to the
    /// zoomed one. `own` is the part of a frame's weight that is its own.
    pub fn frame(&self, label: Option<&Label>, shift: bool, faded: bool, own: f64) -> BoxColours {
        let kind = label.map_or(FrameKind::Process, |label| label.kind);
        match self.depth {
            Depth::None => return BoxColours { ground: Color::Reset, ink: Color::Reset },
            Depth::Sixteen => {
                let ground = if faded { Color::DarkGray } else { sixteen(self.palette, kind, shift) };
                let ground = if self.mode == ColourMode::Own && !faded { own_sixteen(own) } else { ground };
                return BoxColours { ground, ink: if faded { Color::White } else { Color::Black } };
            }
            Depth::Indexed | Depth::True => {}
        }
        let Hsl(hue, mut saturation, mut lightness) = match self.mode {
            ColourMode::Own => own_colour(self.palette, self.dark, own as f32),
            ColourMode::Kind => self.palette.frame(self.dark, label),
        };
        if shift {
            lightness -= 0.06;
        }
        if faded {
            saturation *= 0.35;
            lightness = if self.dark { 0.34 } else { 0.86 };
        }
        self.boxed(Hsl(hue, saturation, lightness))
    }

    /// Returns the colours of a changed frame's box.
    pub fn change(&self, change: Change, shift: bool, faded: bool) -> BoxColours {
        let change = Change { chance: change.chance || faded, ..change };
        match self.depth {
            Depth::None => return BoxColours { ground: Color::Reset, ink: Color::Reset },
            Depth::Sixteen => {
                let ground = match (change.chance, change.by > 0.0) {
                    (true, _) if faded => Color::DarkGray,
                    (true, _) if shift => Color::White,
                    (true, _) => Color::Gray,
                    (false, true) if self.palette == Palette::ColourBlind => Color::Yellow,
                    (false, true) => Color::LightRed,
                    (false, false) => Color::LightBlue,
                };
                return BoxColours { ground, ink: if faded { Color::White } else { Color::Black } };
            }
            Depth::Indexed | Depth::True => {}
        }
        let Hsl(hue, saturation, mut lightness) = self.palette.change(self.dark, change);
        if shift {
            lightness -= 0.06;
        }
        if faded {
            lightness = if self.dark { 0.34 } else { 0.9 };
        }
        self.boxed(Hsl(hue, saturation, lightness))
    }

    /// Returns names for the looks of three kinds of boxes: grown, shrunk, and changed perhaps by chance.
    pub fn names_of_changes(&self) -> (&'static str, &'static str, &'static str) {
        match (self.depth, self.palette) {
            (Depth::None, _) => ("+", "-", "unmarked"),
            (Depth::Sixteen, Palette::ColourBlind) => ("yellow", "blue", "grey"),
            (_, Palette::ColourBlind) => ("orange", "blue", "grey"),
            (_, Palette::Standard) => ("red", "blue", "grey"),
        }
    }

    /// Returns the style of figures that have changed.
    pub fn changed(&self, change: Change) -> Style {
        match self.depth {
            _ if change.chance => self.dim(),
            Depth::None => self.strong(),
            _ => Style::new().fg(self.change(change, false, false).ground).add_modifier(Modifier::BOLD),
        }
    }

    fn boxed(&self, colour: Hsl) -> BoxColours {
        BoxColours { ground: self.rgb(colour.rgb()), ink: self.rgb(colour.ink()) }
    }

    fn rgb(&self, (r, g, b): (u8, u8, u8)) -> Color {
        match self.depth {
            Depth::True => Color::Rgb(r, g, b),
            _ => Color::Indexed(indexed((r, g, b))),
        }
    }

    /// Returns the colour of a cell of the map of time. It depends on how busy the time was, whether it is selected, and whether it
    /// is in the range of the other views.
    pub fn heat(&self, busy: f64, selected: bool, looked_at: bool) -> Color {
        let busy = busy as f32;
        let colour = match (selected, self.dark) {
            (true, true) => Hsl(205.0, 0.75, 0.35 + 0.45 * busy),
            (true, false) => Hsl(205.0, 0.75, 0.8 - 0.45 * busy),
            (false, true) => Hsl(48.0 - 40.0 * busy, if looked_at { 0.85 } else { 0.1 }, 0.1 + 0.48 * busy),
            (false, false) => Hsl(48.0 - 40.0 * busy, if looked_at { 0.85 } else { 0.1 }, 0.97 - 0.45 * busy),
        };
        self.rgb(colour.rgb())
    }

    /// Returns the style of less important text: hints, units, provisional names.
    pub fn dim(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::DIM),
            Depth::Sixteen => Style::new().fg(Color::DarkGray),
            _ if self.dark => Style::new().fg(self.rgb((140, 145, 155))),
            _ => Style::new().fg(self.rgb((110, 115, 125))),
        }
    }

    /// Returns the style of headings and important figures.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of errors and losses.
    pub fn warning(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::BOLD),
            Depth::Indexed | Depth::True if self.palette == Palette::ColourBlind => {
                // Vermilion for warnings, blue for good news: red and green are hard to distinguish.
                Style::new().fg(self.rgb(if self.dark { (240, 120, 30) } else { (170, 70, 0) })).add_modifier(Modifier::BOLD)
            }
            _ => Style::new().fg(if self.dark { Color::LightRed } else { Color::Red }).add_modifier(Modifier::BOLD),
        }
    }

    /// Returns the style of good results.
    pub fn good(&self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            Depth::Indexed | Depth::True if self.palette == Palette::ColourBlind => {
                Style::new().fg(self.rgb(if self.dark { (86, 180, 233) } else { (0, 114, 178) }))
            }
            _ if self.palette == Palette::ColourBlind => Style::new().fg(Color::Blue),
            _ => Style::new().fg(Color::Green),
        }
    }

    /// Returns the style of keys in hints and help.
    pub fn key(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::BOLD),
            Depth::Sixteen => Style::new().fg(Color::Cyan),
            _ if self.dark => Style::new().fg(self.rgb((120, 190, 220))),
            _ => Style::new().fg(self.rgb((0, 95, 135))),
        }
    }

    /// Returns the style of the row or box under the cursor.
    pub fn selected(&self) -> Style {
        match self.depth {
            Depth::None | Depth::Sixteen => Style::new().add_modifier(Modifier::REVERSED),
            _ if self.dark => Style::new().bg(self.rgb((245, 245, 250))).fg(self.rgb((15, 15, 20))),
            _ => Style::new().bg(self.rgb((30, 34, 42))).fg(self.rgb((250, 250, 250))),
        }
    }

    /// Returns the style of boxes and rows that a search found.
    pub fn found(&self, colours: BoxColours) -> Style {
        let marked = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        match self.depth {
            Depth::None => marked.bg(colours.ground).fg(colours.ink),
            Depth::Sixteen => marked.bg(Color::Magenta).fg(Color::White),
            _ => marked.bg(self.rgb((190, 80, 200))).fg(self.rgb((255, 255, 255))),
        }
    }

    /// Returns the style of a chip.
    pub fn chip(&self) -> Style {
        // The chip lies over boxes, whose edges may be reversed cells.
        let plain = Style::new().remove_modifier(Modifier::all());
        match self.depth {
            Depth::None => plain.add_modifier(Modifier::REVERSED),
            Depth::Sixteen => plain.bg(Color::Blue).fg(Color::White),
            _ if self.dark => plain.bg(self.rgb((50, 70, 110))).fg(self.rgb((225, 232, 245))),
            _ => plain.bg(self.rgb((205, 218, 240))).fg(self.rgb((20, 35, 70))),
        }
    }

    /// Returns the colour of the time strip and of bars.
    pub fn bar(&self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            Depth::Sixteen => Style::new().fg(Color::Yellow),
            _ => Style::new().fg(self.rgb(if self.dark { (214, 140, 70) } else { (170, 90, 20) })),
        }
    }
}

/// Returns the colour of a frame's own share.
fn own_colour(palette: Palette, dark: bool, own: f32) -> Hsl {
    match palette {
        Palette::Standard => Hsl(50.0 - 46.0 * own, 0.15 + 0.65 * own, if dark { 0.63 } else { 0.76 }),
        // Lightness shows it as well: some people see yellow to red as one colour.
        Palette::ColourBlind => Hsl(41.0, 0.1 + 0.85 * own, if dark { 0.42 + 0.25 * own } else { 0.88 - 0.3 * own }),
    }
}

fn own_sixteen(own: f64) -> Color {
    match own {
        own if own > 0.5 => Color::Red,
        own if own > 0.1 => Color::Yellow,
        _ => Color::Gray,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(variables: &[(&str, &str)]) -> Depth {
        Depth::from_environment(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_says_how_many_colours_there_are() {
        assert_eq!(depth(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), Depth::True);
        assert_eq!(depth(&[("TERM", "xterm-256color")]), Depth::Indexed);
        assert_eq!(depth(&[("TERM", "linux")]), Depth::Sixteen);
        assert_eq!(depth(&[("TERM", "xterm-256color"), ("NO_COLOR", "1")]), Depth::None);
        assert_eq!(depth(&[("TERM", "xterm-256color"), ("NO_COLOR", "")]), Depth::Indexed);
        assert_eq!(depth(&[("TERM", "vt100")]), Depth::None);
    }

    #[test]
    fn colours_come_near_in_the_256_of_xterm() {
        assert_eq!(indexed((255, 0, 0)), 196);
        assert_eq!(indexed((0, 0, 0)), 16);
        assert_eq!(indexed((128, 128, 128)), 244);
    }

    #[test]
    fn text_can_be_read_on_every_box() {
        let labels = crate::profile::LabelTable::default();
        for kind in FrameKind::ALL {
            for name in ["a", "main", "tokio::runtime", "x86_64"] {
                let label = labels.get(labels.intern(name, name, kind));
                for (dark, shift, faded) in [(true, false, false), (true, true, true), (false, true, false), (false, false, true)]
                {
                    let palette = if name == "main" { Palette::ColourBlind } else { Palette::Standard };
                    let theme = Theme { dark, palette, ..Theme::default() };
                    let colours = theme.frame(label, shift, faded, 0.3);
                    let (Color::Rgb(r, g, b), Color::Rgb(x, y, z)) = (colours.ground, colours.ink) else { panic!() };
                    let light = |r: u8, g: u8, b: u8| 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b);
                    assert!((light(r, g, b) - light(x, y, z)).abs() > 90.0, "{name} {kind:?} {colours:?}");
                }
            }
        }
    }

    /// Returns a colour as seen with this colour vision, in CIE L*a*b* (D65). Source: Machado, Oliveira and Fernandes 2009,
    /// severity 1.
    fn seen((r, g, b): (u8, u8, u8), vision: &[[f32; 3]; 3]) -> [f32; 3] {
        let linear = [r, g, b].map(|value| {
            let value = f32::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        let times = |matrix: &[[f32; 3]; 3], v: [f32; 3]| matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2]);
        let rgb = times(vision, linear).map(|value| value.clamp(0.0, 1.0));
        const XYZ: [[f32; 3]; 3] = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
        let [x, y, z] = times(&XYZ, rgb);
        let [x, y, z] = [x / 0.9505, y, z / 1.089].map(|t| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn kinds_differ_for_every_kind_of_colour_vision() {
        let visions = [
            ("usual", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
            ("without red", [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
            ("without green", [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]),
            ("without blue", [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]),
        ];
        let kinds = FrameKind::ALL.into_iter().filter(|kind| *kind != FrameKind::Process).collect::<Vec<_>>();
        let labels = crate::profile::LabelTable::default();
        for dark in [true, false] {
            let theme = Theme { dark, palette: Palette::ColourBlind, ..Theme::default() };
            // Names and objects shift colours: some colours of each kind are compared with some of every other kind.
            let colours = |kind| {
                ["main", "parse", "x86_64", "tokio::runtime", "memcpy"].map(|name| {
                    let colours = theme.frame(labels.get(labels.intern(name, name, kind)), false, false, 0.0);
                    let Color::Rgb(r, g, b) = colours.ground else { panic!() };
                    (r, g, b)
                })
            };
            for (vision, matrix) in &visions {
                for (index, a) in kinds.iter().enumerate() {
                    for b in &kinds[..index] {
                        let pairs = colours(*a).into_iter().flat_map(|one| colours(*b).map(|other| (one, other)));
                        let nearest = pairs.map(|(one, other)| {
                            let (one, other) = (seen(one, matrix), seen(other, matrix));
                            one.iter().zip(other).map(|(x, y)| (x - y).powi(2)).sum::<f32>().sqrt()
                        });
                        let nearest = nearest.fold(f32::MAX, f32::min);
                        // A difference of 2.3 is just noticeable side by side.
                        assert!(nearest > 18.0, "{a:?} and {b:?} {vision}, dark {dark}: {nearest}");
                    }
                }
            }
        }
    }
}
