//! Colours: what the terminal can show, whether it is light or dark, and which colour a frame has.
//!
//! Kind decides the hue, the object shifts it, the function's name shifts its lightness, so that neighbours differ. Nothing is
//! told by colour alone: kinds also have a mark, the cursor is reversed, matches are underlined.

use std::hash::{Hash, Hasher};

use ratatui::style::{Color, Modifier, Style};

use crate::profile::{FrameKind, Label};

/// How many colours the terminal shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Depth {
    /// None: NO_COLOR, or a terminal that has none.
    None,
    /// The sixteen of every terminal.
    Sixteen,
    /// The 256 of xterm.
    Indexed,
    /// 24 bits.
    True,
}

impl Depth {
    /// From the environment, as most programs read it.
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

/// What a box's colour tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ColourMode {
    /// What kind of code it is.
    #[default]
    Kind,
    /// How much of the time is its own.
    Own,
}

/// Everything about how things look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Theme {
    /// How many colours there are.
    pub depth: Depth,
    /// Dark background.
    pub dark: bool,
    /// Only characters that every terminal has.
    pub ascii: bool,
    /// What colour tells.
    pub mode: ColourMode,
}

impl Default for Theme {
    fn default() -> Self {
        Theme { depth: Depth::True, dark: true, ascii: false, mode: ColourMode::Kind }
    }
}

/// The base of a kind: hue in degrees, saturation.
fn base(kind: FrameKind) -> (f32, f32) {
    match kind {
        FrameKind::Process => (215.0, 0.16),
        FrameKind::User => (27.0, 0.68),
        FrameKind::Kernel => (196.0, 0.44),
        FrameKind::Inlined => (48.0, 0.52),
        FrameKind::Jit => (110.0, 0.36),
        FrameKind::Unknown => (0.0, 0.0),
    }
}

fn small_hash(value: &str) -> u32 {
    let mut hasher = rustc_hash::FxHasher::default();
    value.hash(&mut hasher);
    let wide = hasher.finish();
    (wide ^ wide >> 32) as u32
}

/// A box's colour before it is fitted to what the terminal shows.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Hsl(f32, f32, f32);

impl Hsl {
    fn rgb(self) -> (u8, u8, u8) {
        let Hsl(hue, saturation, lightness) = self;
        let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * saturation;
        let section = hue.rem_euclid(360.0) / 60.0;
        let second = chroma * (1.0 - (section % 2.0 - 1.0).abs());
        let (r, g, b) = match section as u32 {
            0 => (chroma, second, 0.0),
            1 => (second, chroma, 0.0),
            2 => (0.0, chroma, second),
            3 => (0.0, second, chroma),
            4 => (second, 0.0, chroma),
            _ => (chroma, 0.0, second),
        };
        let low = lightness - chroma / 2.0;
        let byte = |value: f32| ((value + low).clamp(0.0, 1.0) * 255.0).round() as u8;
        (byte(r), byte(g), byte(b))
    }
}

/// The nearest of xterm's 6×6×6 cube or its greys.
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

/// The 16-colour background of a kind, one of two so that neighbours can differ.
fn sixteen(kind: FrameKind, second: bool) -> Color {
    let (a, b) = match kind {
        FrameKind::Process => (Color::Gray, Color::White),
        FrameKind::User => (Color::Yellow, Color::LightYellow),
        FrameKind::Kernel => (Color::Cyan, Color::LightCyan),
        FrameKind::Inlined => (Color::LightYellow, Color::Yellow),
        FrameKind::Jit => (Color::Green, Color::LightGreen),
        FrameKind::Unknown => (Color::Gray, Color::White),
    };
    if second { b } else { a }
}

/// How a box looks: its ground and what is written on it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BoxColours {
    /// Background; `Reset` without colours.
    pub ground: Color,
    /// Text.
    pub ink: Color,
}

impl Theme {
    /// Whether eighths of a column can be drawn.
    pub fn fractional(&self) -> bool {
        !self.ascii && self.depth >= Depth::Indexed
    }

    /// The colours of a frame's box. `shift` tells neighbours of one colour apart; `faded` is for frames on the way to the
    /// zoomed one; `own` is the share of a frame's weight that is its own.
    pub fn frame(&self, label: Option<&Label>, shift: bool, faded: bool, own: f64) -> BoxColours {
        let kind = label.map_or(FrameKind::Process, |label| label.kind);
        match self.depth {
            Depth::None => return BoxColours { ground: Color::Reset, ink: Color::Reset },
            Depth::Sixteen => {
                let ground = if faded { Color::DarkGray } else { sixteen(kind, shift) };
                let ground = if self.mode == ColourMode::Own && !faded { own_sixteen(own) } else { ground };
                return BoxColours { ground, ink: if faded { Color::White } else { Color::Black } };
            }
            Depth::Indexed | Depth::True => {}
        }
        let (mut hue, mut saturation) = base(kind);
        let mut lightness = if self.dark { 0.63 } else { 0.76 };
        if self.mode == ColourMode::Own {
            (hue, saturation) = (50.0 - 46.0 * own as f32, 0.15 + 0.65 * own as f32);
        } else if let Some(label) = label {
            let name = small_hash(&label.name);
            hue += (small_hash(&label.object) % 21) as f32 - 10.0 + (name % 17) as f32 - 8.0;
            lightness += ((name / 17 % 9) as f32 - 4.0) * 0.018;
        }
        if shift {
            lightness -= 0.06;
        }
        if faded {
            saturation *= 0.35;
            lightness = if self.dark { 0.34 } else { 0.86 };
        }
        let rgb = Hsl(hue, saturation, lightness).rgb();
        let luminance = 0.299 * f32::from(rgb.0) + 0.587 * f32::from(rgb.1) + 0.114 * f32::from(rgb.2);
        let ink = if luminance > 120.0 { (20, 20, 24) } else { (240, 240, 240) };
        BoxColours { ground: self.rgb(rgb), ink: self.rgb(ink) }
    }

    fn rgb(&self, (r, g, b): (u8, u8, u8)) -> Color {
        match self.depth {
            Depth::True => Color::Rgb(r, g, b),
            _ => Color::Indexed(indexed((r, g, b))),
        }
    }

    /// Text of less weight: hints, units, provisional names.
    pub fn dim(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::DIM),
            Depth::Sixteen => Style::new().fg(Color::DarkGray),
            _ if self.dark => Style::new().fg(self.rgb((140, 145, 155))),
            _ => Style::new().fg(self.rgb((110, 115, 125))),
        }
    }

    /// Headings and figures that are to be seen first.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Something is wrong or was lost.
    pub fn warning(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new().fg(if self.dark { Color::LightRed } else { Color::Red }).add_modifier(Modifier::BOLD),
        }
    }

    /// All is well.
    pub fn good(&self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            _ => Style::new().fg(Color::Green),
        }
    }

    /// Keys in hints and help.
    pub fn key(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::BOLD),
            Depth::Sixteen => Style::new().fg(Color::Cyan),
            _ if self.dark => Style::new().fg(self.rgb((120, 190, 220))),
            _ => Style::new().fg(self.rgb((0, 95, 135))),
        }
    }

    /// The row or box under the cursor.
    pub fn selected(&self) -> Style {
        match self.depth {
            Depth::None | Depth::Sixteen => Style::new().add_modifier(Modifier::REVERSED),
            _ if self.dark => Style::new().bg(self.rgb((245, 245, 250))).fg(self.rgb((15, 15, 20))),
            _ => Style::new().bg(self.rgb((30, 34, 42))).fg(self.rgb((250, 250, 250))),
        }
    }

    /// Boxes and rows that a search found.
    pub fn found(&self, colours: BoxColours) -> Style {
        let marked = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        match self.depth {
            Depth::None => marked.bg(colours.ground).fg(colours.ink),
            Depth::Sixteen => marked.bg(Color::Magenta).fg(Color::White),
            _ => marked.bg(self.rgb((190, 80, 200))).fg(self.rgb((255, 255, 255))),
        }
    }

    /// A chip: an active filter.
    pub fn chip(&self) -> Style {
        match self.depth {
            Depth::None => Style::new().add_modifier(Modifier::REVERSED),
            Depth::Sixteen => Style::new().bg(Color::Blue).fg(Color::White),
            _ if self.dark => Style::new().bg(self.rgb((50, 70, 110))).fg(self.rgb((225, 232, 245))),
            _ => Style::new().bg(self.rgb((205, 218, 240))).fg(self.rgb((20, 35, 70))),
        }
    }

    /// The colour of the time strip and of bars.
    pub fn bar(&self) -> Style {
        match self.depth {
            Depth::None => Style::new(),
            Depth::Sixteen => Style::new().fg(Color::Yellow),
            _ => Style::new().fg(self.rgb(if self.dark { (214, 140, 70) } else { (170, 90, 20) })),
        }
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
        for kind in
            [FrameKind::User, FrameKind::Kernel, FrameKind::Inlined, FrameKind::Jit, FrameKind::Unknown, FrameKind::Process]
        {
            for name in ["a", "main", "tokio::runtime", "x86_64"] {
                let label = labels.get(labels.intern(name, name, kind));
                for (dark, shift, faded) in [(true, false, false), (true, true, true), (false, true, false), (false, false, true)]
                {
                    let theme = Theme { dark, ..Theme::default() };
                    let colours = theme.frame(label, shift, faded, 0.3);
                    let (Color::Rgb(r, g, b), Color::Rgb(x, y, z)) = (colours.ground, colours.ink) else { panic!() };
                    let light = |r: u8, g: u8, b: u8| 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b);
                    assert!((light(r, g, b) - light(x, y, z)).abs() > 90.0, "{name} {kind:?} {colours:?}");
                }
            }
        }
    }
}
