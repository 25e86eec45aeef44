//! The colours of boxes, before they are adapted to a terminal or a picture. The screen and saved pictures use the same colours.
//!
//! The kind decides the hue, the object shifts it, and the function's name shifts hue and lightness, so that neighbours differ.

use std::hash::{Hash, Hasher};

use crate::profile::{Change, FrameKind, Label, Language};

/// A set of colours for the kinds of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Palette {
    /// Warm for user code, as flame graphs are.
    #[default]
    Standard,
    /// Based on Okabe and Ito's eight colours (Color Universal Design, 2008), which people with any kind of colour vision can
    /// distinguish. Kinds also differ in lightness.
    ColourBlind,
}

impl Palette {
    /// Returns the colour of a kind, on a dark or a light background.
    pub fn kind(self, dark: bool, kind: FrameKind) -> Hsl {
        match self {
            Palette::Standard => standard_base(kind, dark),
            Palette::ColourBlind => colour_blind_base(kind, dark),
        }
    }

    /// Returns the colour of a frame's box, on a dark or a light background. Without a label it is the colour of the root.
    pub fn frame(self, dark: bool, label: Option<&Label>) -> Hsl {
        let kind = label.map_or(FrameKind::Process, |label| label.kind);
        // Limits how far objects and names may shift the hue: less where the hue itself has to be recognized.
        let (Hsl(hue, saturation, lightness), shifts) = match self {
            Palette::Standard => (self.kind(dark, kind), 1.0),
            Palette::ColourBlind => (self.kind(dark, kind), 0.25),
        };
        let Some(label) = label else { return Hsl(hue, saturation, lightness) };
        let name = small_hash(&label.name);
        Hsl(
            hue + shifts * ((small_hash(&label.object) % 21) as f32 - 10.0 + (name % 17) as f32 - 8.0),
            saturation,
            lightness + f32::max(shifts, 0.5) * ((name / 17 % 9) as f32 - 4.0) * 0.018,
        )
    }

    /// Returns the colour of the box of a changed frame: grey if the change may be chance.
    pub fn change(self, dark: bool, change: Change) -> Hsl {
        let strength = if change.chance { 0.0 } else { change.relative.abs().sqrt().clamp(0.35, 1.0) as f32 };
        let hue = match (change.by > 0.0, self) {
            (true, Palette::Standard) => 4.0,
            (true, Palette::ColourBlind) => 28.0,
            (false, _) => 212.0,
        };
        let (still, full) = if dark { (0.62, 0.58) } else { (0.86, 0.68) };
        Hsl(hue, 0.85 * strength, still + (full - still) * strength)
    }
}

/// Returns the colour of a kind, on a dark or a light background.
fn standard_base(kind: FrameKind, dark: bool) -> Hsl {
    let (hue, saturation) = match kind {
        FrameKind::Process => (215.0, 0.16),
        FrameKind::User => (27.0, 0.68),
        FrameKind::Kernel => (196.0, 0.44),
        FrameKind::Inlined => (48.0, 0.52),
        FrameKind::Jit => (110.0, 0.36),
        FrameKind::Script(Language::Python) => (275.0, 0.40),
        FrameKind::Script(Language::JavaScript) => (335.0, 0.46),
        FrameKind::Script(Language::Java) => (158.0, 0.42),
        FrameKind::Wait => (240.0, 0.55),
        FrameKind::Unknown => (0.0, 0.0),
    };
    Hsl(hue, saturation, if dark { 0.63 } else { 0.76 })
}

/// Returns hue, saturation and lightness of a kind, on a dark or a light background. The colours are near Okabe and Ito's
/// vermilion, blue, yellow and bluish green. They were moved until the least difference between two kinds was 20 (CIE 1976; unmoved
/// it was 7). That difference is over all names and four kinds of colour vision.
fn colour_blind_base(kind: FrameKind, dark: bool) -> Hsl {
    let (hue, saturation, lightness) = match (kind, dark) {
        (FrameKind::Process, true) => (215.0, 0.16, 0.63),
        (FrameKind::User, true) => (28.0, 0.75, 0.50),
        (FrameKind::Kernel, true) => (208.0, 0.80, 0.58),
        (FrameKind::Inlined, true) => (57.0, 0.85, 0.62),
        (FrameKind::Jit, true) => (162.0, 0.85, 0.66),
        (FrameKind::Script(Language::Python), true) => (262.0, 0.70, 0.46),
        (FrameKind::Script(Language::JavaScript), true) => (5.0, 0.70, 0.29),
        (FrameKind::Script(Language::Java), true) => (290.0, 0.70, 0.22),
        (FrameKind::Wait, true) => (30.0, 0.30, 0.53),
        (FrameKind::Unknown, true) => (0.0, 0.0, 0.45),
        (FrameKind::Process, false) => (215.0, 0.16, 0.76),
        (FrameKind::User, false) => (28.0, 0.68, 0.60),
        (FrameKind::Kernel, false) => (208.0, 0.65, 0.62),
        (FrameKind::Inlined, false) => (58.0, 0.90, 0.66),
        (FrameKind::Jit, false) => (170.0, 0.85, 0.84),
        (FrameKind::Script(Language::Python), false) => (262.0, 0.60, 0.52),
        (FrameKind::Script(Language::JavaScript), false) => (5.0, 0.70, 0.32),
        (FrameKind::Script(Language::Java), false) => (310.0, 0.45, 0.24),
        (FrameKind::Wait, false) => (250.0, 0.90, 0.20),
        (FrameKind::Unknown, false) => (0.0, 0.0, 0.55),
    };
    Hsl(hue, saturation, lightness)
}

fn small_hash(value: &str) -> u32 {
    let mut hasher = rustc_hash::FxHasher::default();
    value.hash(&mut hasher);
    let wide = hasher.finish();
    (wide ^ wide >> 32) as u32
}

/// A colour: hue in degrees, saturation and lightness from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hsl(pub f32, pub f32, pub f32);

impl Hsl {
    /// Converts the colour to red, green and blue.
    pub fn rgb(self) -> (u8, u8, u8) {
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

    /// Rounds to the nearest of fewer colours: steps of 5 degrees and of 3 % of lightness.
    pub fn in_steps(self) -> Hsl {
        let Hsl(hue, saturation, lightness) = self;
        let step = |value: f32, step: f32| (value / step).round() * step;
        Hsl(step(hue, 5.0), saturation, step(lightness, 0.03))
    }

    /// Returns the colour of text on a box of this colour.
    pub fn ink(self) -> (u8, u8, u8) {
        let (red, green, blue) = self.rgb();
        let luminance = 0.299 * f32::from(red) + 0.587 * f32::from(green) + 0.114 * f32::from(blue);
        if luminance > 120.0 { (20, 20, 24) } else { (240, 240, 240) }
    }
}
