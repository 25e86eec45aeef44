//! The colours of boxes as classes of style sheets, for light and dark backgrounds.
//!
//! Some readers know no style sheets, and some drop a whole sheet for one custom property, or take the rules of a media query that does
//! not apply. So light colours are attributes as well, the light sheet is plain, and the dark one is in `@supports`, which such readers pass
//! over. Checked with Inkscape 1.2, librsvg 2.54 and Batik 1.16.

use rustc_hash::FxHashMap;

use crate::palette::Hsl;

/// A colour on a light and on a dark background, each with the colour of its text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Colours {
    light: (u8, u8, u8),
    light_ink: (u8, u8, u8),
    dark: (u8, u8, u8),
    dark_ink: (u8, u8, u8),
}

impl Colours {
    pub(super) fn of(on: impl Fn(bool) -> Hsl) -> Colours {
        let (light, dark) = (on(false), on(true));
        Colours { light: light.rgb(), light_ink: light.ink(), dark: dark.rgb(), dark_ink: dark.ink() }
    }
}

/// Classes of boxes with the same colours.
#[derive(Default)]
pub(super) struct Classes {
    numbers: FxHashMap<Colours, usize>,
    colours: Vec<Colours>,
}

impl Classes {
    /// Returns the number of the class with these colours. A box with the number 12 is in the class `c12`.
    pub(super) fn number(&mut self, colours: Colours) -> usize {
        *self.numbers.entry(colours).or_insert_with(|| {
            self.colours.push(colours);
            self.colours.len() - 1
        })
    }

    /// Returns the colours of a class on a light background: of its boxes, and of their texts.
    pub(super) fn light(&self, class: usize) -> (String, String) {
        self.colours.get(class).map(|colours| (hex(colours.light), hex(colours.light_ink))).unwrap_or_default()
    }

    /// Returns the rules of the classes on a light background.
    pub(super) fn light_rules(&self) -> String {
        let rule = |(number, colours): (usize, &Colours)| {
            let (fill, ink) = (hex(colours.light), hex(colours.light_ink));
            format!(".c{number}{{fill:{fill}}}.c{number} text{{fill:{ink}}}\n")
        };
        self.colours.iter().enumerate().map(rule).collect()
    }

    /// Returns the rules of the classes on a dark background. Narrow boxes are strokes, which take `color`.
    pub(super) fn dark_rules(&self) -> String {
        let rule = |(number, colours): (usize, &Colours)| {
            let (fill, ink) = (hex(colours.dark), hex(colours.dark_ink));
            format!(".c{number}{{fill:{fill};color:{fill}}}.c{number} text{{fill:{ink}}}\n")
        };
        self.colours.iter().enumerate().map(rule).collect()
    }
}

/// Returns a colour in the form of a style sheet: `#8090a0`.
fn hex((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
