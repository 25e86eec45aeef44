//! Dresses what inferno has drawn: names, colours for light and dark, a legend.
//!
//! inferno's picture has a number on each box (see [`super::boxes`]). inferno's places of boxes, its zoom and its search stay. Boxes too
//! narrow for a name become paths ([`super::narrow`]), and names stand in a table ([`super::names`]): that is a fifth of inferno's size.
//! `script.js` puts it all together again before inferno's script begins. Without scripts, the picture is the same but has short names only.

use std::borrow::Cow;
use std::io::{self, Write};

use quick_xml::Reader;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesStart, Event};
use rustc_hash::FxHashMap;

use super::boxes::{BoxOf, Boxes};
use super::names::NameTable;
use super::narrow::NarrowBoxes;
use super::options::SvgOptions;
use crate::formats::FormatError;
use crate::palette::Hsl;
use crate::profile::{Comparison, FrameKind, LabelTable, Sides};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Pixels left and right of the boxes.
const SIDE: u64 = 10;
/// Pixels below the boxes for the legend.
const LEGEND_HEIGHT: u64 = 24;
pub(super) const FONT_SIZE: usize = 12;
/// Width of a character as a part of its height.
pub(super) const CHARACTER_WIDTH: f64 = 0.6;
/// Pixels of the picture's width that labels are fitted to, until a browser knows its own.
const USUAL_WIDTH: f64 = 1200.0;
/// Per cent of the picture below which a box is part of a path: six pixels, on which no name fits.
const NARROW: f64 = 0.5;

/// All that the dress needs to know of a picture.
pub(super) struct Picture<'a> {
    pub(super) boxes: &'a Boxes,
    pub(super) labels: &'a LabelTable,
    pub(super) options: &'a SvgOptions,
    pub(super) comparison: Option<Comparison>,
    /// The weight of everything.
    pub(super) whole: Sides,
}

/// A colour on light and dark ground, each with the one of text on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Colours {
    pub(super) light: (u8, u8, u8),
    light_ink: (u8, u8, u8),
    dark: (u8, u8, u8),
    dark_ink: (u8, u8, u8),
}

impl Colours {
    fn of(on: impl Fn(bool) -> Hsl) -> Colours {
        let (light, dark) = (on(false), on(true));
        Colours { light: light.rgb(), light_ink: light.ink(), dark: dark.rgb(), dark_ink: dark.ink() }
    }
}

impl Picture<'_> {
    /// The colours of a box.
    pub(super) fn colours(&self, of: &BoxOf) -> Colours {
        let palette = self.options.palette;
        match &self.comparison {
            Some(comparison) => {
                let change = comparison.change(of.total);
                Colours::of(|dark| palette.change(dark, change).in_steps())
            }
            None => {
                let label = of.label.and_then(|label| self.labels.get(label));
                Colours::of(|dark| palette.frame(dark, label).in_steps())
            }
        }
    }

    /// The box of everything.
    pub(super) fn root(&self) -> BoxOf {
        BoxOf { label: None, own: Sides::default(), total: self.whole }
    }

    /// The kinds of boxes that occur.
    fn kinds(&self) -> Vec<FrameKind> {
        let labels = self.boxes.boxes.iter().filter_map(|of| self.labels.get(of.label?));
        let mut found: Vec<FrameKind> = labels.map(|label| label.kind).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Writes inferno's picture `raw` in its dress.
pub(super) fn dress(raw: &[u8], picture: &Picture<'_>, out: &mut dyn Write) -> Result<(), FormatError> {
    let mut reader = Reader::from_reader(raw);
    let mut writer = quick_xml::Writer::new(out);
    let mut classes = Classes::default();
    // The classes are known once all boxes are looked at, and stand before them.
    let root = classes.number(picture.colours(&picture.root()));
    let names = NameTable::of(&picture.boxes.boxes, picture.labels, picture.options);
    let is_compared = picture.comparison.is_some();
    let mut narrow = NarrowBoxes::default();
    let of_boxes: Vec<usize> = picture.boxes.boxes.iter().map(|of| classes.number(picture.colours(of))).collect();
    let mut elements_named_svg = 0;
    let mut height = 0;
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Eof => return Ok(writer.get_mut().flush()?),
            Event::Start(tag) if tag.name().as_ref() == b"svg" => {
                elements_named_svg += 1;
                let tag = if elements_named_svg == 1 { taller(&tag, &mut height) } else { tag };
                writer.write_event(Event::Start(tag))?;
            }
            Event::Start(tag) if tag.name().as_ref() == b"g" => {
                let group = Group::read(&mut reader)?;
                let number = group.title.split_once(' ').and_then(|(number, _)| number.parse::<usize>().ok());
                let of = number.and_then(|number| picture.boxes.boxes.get(number));
                let class = number.and_then(|number| of_boxes.get(number)).copied().unwrap_or(root);
                let reference = of.map_or_else(String::new, |of| names.reference(of, is_compared));
                if of.is_some() && group.rect.width < NARROW {
                    let Rect { y, start, weight, .. } = group.rect;
                    narrow.push(class, y, start, weight, reference);
                } else {
                    group.write(of.map_or("all", |of| names.short(of)), class, &reference, writer.get_mut())?;
                }
            }
            Event::Empty(tag) if tag.name().as_ref() == b"rect" => {
                let ground = format!(r#"<rect id="ground" width="100%" height="{}"/>"#, height + LEGEND_HEIGHT);
                writer.get_mut().write_all(ground.as_bytes())?;
            }
            Event::End(tag) if tag.name().as_ref() == b"style" => {
                let rules = format!("{STYLE}{}</style>", classes.rules());
                writer.get_mut().write_all(rules.as_bytes())?;
            }
            Event::End(tag) if tag.name().as_ref() == b"script" => {
                let unit = &picture.options.count_name;
                let table = names.json(picture.whole, is_compared, unit);
                let script = format!(
                    "</script><script type=\"application/json\" id=\"names\">{table}</script>\
                     <script type=\"text/ecmascript\"><![CDATA[{SCRIPT}]]></script>"
                );
                writer.get_mut().write_all(script.as_bytes())?;
            }
            Event::End(tag) if tag.name().as_ref() == b"svg" => {
                elements_named_svg -= 1;
                writer.write_event(Event::End(tag))?;
                if elements_named_svg == 1 {
                    let whole = picture.whole.now;
                    write!(
                        writer.get_mut(),
                        r#"<svg id="narrow" x="{SIDE}" width="{}" height="{height}" "#,
                        USUAL_WIDTH as u64 - 2 * SIDE
                    )?;
                    write!(writer.get_mut(), r#"viewBox="0 -7.5 {whole} {height}" preserveAspectRatio="none">"#)?;
                    narrow.write(|class| classes.light(class), writer.get_mut())?;
                    writer.get_mut().write_all(b"</svg>")?;
                    write_legend(picture, height, writer.get_mut())?;
                }
            }
            other => writer.write_event(other)?,
        }
    }
}

/// A colour of a style sheet: `#8090a0`.
fn hex((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// inferno writes XML that can be read.
fn broken(error: quick_xml::Error) -> FormatError {
    FormatError::Write(io::Error::other(error))
}

/// The picture's element with room for the legend. `height` is without it.
fn taller<'a>(tag: &BytesStart<'a>, height: &mut u64) -> BytesStart<'a> {
    let mut new = BytesStart::new("svg");
    for attribute in tag.attributes().flatten() {
        let value = String::from_utf8_lossy(&attribute.value);
        let value = match attribute.key.as_ref() {
            b"height" => {
                *height = value.parse().unwrap_or(0);
                (*height + LEGEND_HEIGHT).to_string().into()
            }
            b"viewBox" => {
                let (before, height) = value.rsplit_once(' ').unwrap_or(("", "0"));
                format!("{before} {}", height.parse::<u64>().unwrap_or(0) + LEGEND_HEIGHT).into()
            }
            _ => value,
        };
        new.push_attribute((&*String::from_utf8_lossy(attribute.key.as_ref()), &*value));
    }
    new
}

/// Classes of boxes with the same colours.
#[derive(Default)]
struct Classes {
    numbers: FxHashMap<Colours, usize>,
    colours: Vec<Colours>,
}

impl Classes {
    fn number(&mut self, colours: Colours) -> usize {
        *self.numbers.entry(colours).or_insert_with(|| {
            self.colours.push(colours);
            self.colours.len() - 1
        })
    }

    /// The colour of a class on light ground.
    fn light(&self, class: usize) -> String {
        self.colours.get(class).map_or_else(String::new, |colours| hex(colours.light))
    }

    /// Their rules.
    fn rules(&self) -> String {
        let rule = |(number, colours): (usize, &Colours)| {
            let [light, dark, ink, dark_ink] = [colours.light, colours.dark, colours.light_ink, colours.dark_ink].map(hex);
            format!(".c{number}{{fill:{light};--d:{dark};--i:{ink};--j:{dark_ink}}}\n")
        };
        self.colours.iter().enumerate().map(rule).collect()
    }
}

/// A box as inferno writes it.
#[derive(Default)]
struct Group {
    /// `12 (34 samples, 5.67%)`.
    title: String,
    rect: Rect,
    /// The place of its text: ` x="…" y="…"`.
    place: String,
}

/// A rectangle as inferno writes it: `<rect x="1.2000%" y="37" width="12.0000%" height="15" fill="…" fg:x="12" fg:w="120"/>`.
#[derive(Default)]
struct Rect {
    /// Per cent of the picture.
    x: String,
    width: f64,
    /// Pixels.
    y: u64,
    /// `fg:x` and `fg:w`: the same in weights.
    start: u64,
    weight: u64,
}

impl Rect {
    fn read(tag: &BytesStart<'_>) -> Rect {
        let mut rect = Rect::default();
        for attribute in tag.attributes().flatten() {
            let value = String::from_utf8_lossy(&attribute.value);
            let number = || value.parse().unwrap_or(0);
            match attribute.key.as_ref() {
                b"x" => rect.x = value.into_owned(),
                b"width" => rect.width = value.trim_end_matches('%').parse().unwrap_or(0.0),
                b"y" => rect.y = number(),
                b"fg:x" => rect.start = number(),
                b"fg:w" => rect.weight = number(),
                _ => {}
            }
        }
        rect
    }
}

impl Group {
    fn read(reader: &mut Reader<&[u8]>) -> Result<Group, FormatError> {
        let mut group = Group::default();
        let mut in_title = false;
        loop {
            match reader.read_event().map_err(broken)? {
                Event::Start(tag) if tag.name().as_ref() == b"title" => in_title = true,
                Event::Text(text) if in_title => group.title.push_str(&String::from_utf8_lossy(&text)),
                Event::End(tag) if tag.name().as_ref() == b"title" => in_title = false,
                Event::Empty(tag) if tag.name().as_ref() == b"rect" => group.rect = Rect::read(&tag),
                Event::Start(tag) if tag.name().as_ref() == b"text" => {
                    group.place = String::from_utf8_lossy(tag.attributes_raw()).into_owned();
                }
                Event::End(tag) if tag.name().as_ref() == b"g" => return Ok(group),
                Event::Eof => return Err(broken(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
                _ => {}
            }
        }
    }

    fn write(&self, name: &str, class: usize, reference: &str, out: &mut dyn Write) -> io::Result<()> {
        let figures = self.title.split_once(' ').map_or("", |(_, figures)| figures);
        let characters = (self.rect.width / 100.0 * USUAL_WIDTH - 3.0) / (FONT_SIZE as f64 * CHARACTER_WIDTH);
        let Rect { x, width, y, start, weight } = &self.rect;
        write!(
            out,
            r#"<g class="c{class}" b="{reference}"><title>{} {figures}</title><rect x="{x}" y="{y}" width="{width:.4}%" height="15" fg:x="{start}" fg:w="{weight}"/>"#,
            partial_escape(name),
        )?;
        let label = fitted(name, characters as usize);
        if !label.is_empty() {
            write!(out, "<text{}>{}</text>", self.place, partial_escape(&*label))?;
        }
        out.write_all(b"</g>")
    }
}

/// A name that fits into so many characters: its end, as on the screen.
fn fitted(name: &str, characters: usize) -> Cow<'_, str> {
    if characters < 2 {
        return "".into();
    }
    let count = name.chars().count();
    if count <= characters {
        return name.into();
    }
    let from = name.char_indices().nth(count + 1 - characters).map_or(name.len(), |(at, _)| at);
    format!("…{}", name.get(from..).unwrap_or_default()).into()
}

/// Writes which colour stands for what.
fn write_legend(picture: &Picture<'_>, top: u64, out: &mut dyn Write) -> io::Result<()> {
    let palette = picture.options.palette;
    let entries: Vec<(Colours, &str)> = match &picture.comparison {
        Some(_) => {
            let changes = [(1.0, false, "more than before"), (-1.0, false, "less than before"), (0.0, true, "may be chance")];
            let change = |by: f64, chance: bool| crate::profile::Change { by, relative: by, chance };
            changes.map(|(by, chance, words)| (Colours::of(|dark| palette.change(dark, change(by, chance))), words)).into()
        }
        None => {
            let of_kind = |kind: FrameKind| (Colours::of(|dark| palette.kind(dark, kind)), kind.describe());
            picture.kinds().into_iter().map(of_kind).collect()
        }
    };
    write!(out, r#"<g id="legend">"#)?;
    let mut x = 10;
    for (colours, words) in entries {
        let (light, dark) = (hex(colours.light), hex(colours.dark));
        write!(
            out,
            r#"<rect x="{x}" y="{}" width="14" height="14" fill="{light}" style="--d:{dark}"/><text x="{}" y="{}">{words}</text>"#,
            top + 2,
            x + 20,
            top + 13,
        )?;
        x += 20 + (words.chars().count() as f64 * FONT_SIZE as f64 * CHARACTER_WIDTH) as u64 + 20;
    }
    write!(out, "</g>")
}
