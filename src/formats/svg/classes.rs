//! The colours of boxes as classes of a style sheet, for light and dark backgrounds.

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

    /// Returns the colour of a class on a light background.
    pub(super) fn light(&self, class: usize) -> String {
        self.colours.get(class).map_or_else(String::new, |colours| hex(colours.light))
    }

    /// Returns the rules of the classes.
    pub(super) fn rules(&self) -> String {
        let rule = |(number, colours): (usize, &Colours)| {
            let [light, dark, ink, dark_ink] = [colours.light, colours.dark, colours.light_ink, colours.dark_ink].map(hex);
            format!(".c{number}{{fill:{light};--d:{dark};--i:{ink};--j:{dark_ink}}}\n")
        };
        self.colours.iter().enumerate().map(rule).collect()
    }
}

/// Returns a colour in the form of a style sheet: `#8090a0`.
fn hex((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
