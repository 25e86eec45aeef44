//! Dresses what inferno has drawn: names, tooltips, colours for light and dark, and a legend.
//!
//! inferno's picture has a number on each box (see [`super::boxes`]). inferno's places of boxes, its zoom and its search stay.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use quick_xml::Reader;
use quick_xml::escape::{escape, partial_escape};
use quick_xml::events::{BytesStart, Event};
use rustc_hash::FxHashMap;

use super::boxes::{BoxOf, Boxes};
use super::options::{SvgOptions, printable};
use crate::formats::FormatError;
use crate::palette::Hsl;
use crate::profile::{Comparison, FrameKind, LabelTable, Sides};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Pixels below the boxes for the legend.
const LEGEND_HEIGHT: u64 = 24;
pub(super) const FONT_SIZE: usize = 12;
/// Width of a character as a part of its height.
pub(super) const CHARACTER_WIDTH: f64 = 0.6;
/// Pixels of the picture's width that labels are fitted to, until a browser knows its own.
const USUAL_WIDTH: f64 = 1200.0;

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

    /// The name of a box's function.
    fn name(&self, of: &BoxOf) -> String {
        match of.label.map(|label| self.labels.get(label)) {
            Some(Some(label)) if !label.name.trim().is_empty() => printable(&label.name),
            Some(Some(_)) => "[unknown]".to_owned(),
            Some(None) => "?".to_owned(),
            None => "[too narrow to draw]".to_owned(),
        }
    }

    /// Lines of a tooltip below the first.
    fn more(&self, of: &BoxOf) -> String {
        let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let mut more = format!("\nself {} {}, {:.2}%", of.own.now, self.options.count_name, share(of.own.now, self.whole.now));
        if self.comparison.is_some() {
            let (now, before) = (share(of.total.now, self.whole.now), share(of.total.before, self.whole.before));
            let _ = write!(more, "\n{now:.2}% now, {before:.2}% before");
        }
        if let Some(label) = of.label.and_then(|label| self.labels.get(label)).filter(|label| !label.object.is_empty()) {
            let _ = write!(more, "\n{}", printable(&label.object));
        }
        more
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
                group.write(picture, of, class, writer.get_mut())?;
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
                let script = format!("</script><script type=\"text/ecmascript\"><![CDATA[{SCRIPT}]]></script>");
                writer.get_mut().write_all(script.as_bytes())?;
            }
            Event::End(tag) if tag.name().as_ref() == b"svg" => {
                elements_named_svg -= 1;
                writer.write_event(Event::End(tag))?;
                if elements_named_svg == 1 {
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

    /// Their rules. Light colours of boxes are attributes, for programs without style sheets.
    fn rules(&self) -> String {
        let rule = |(number, colours): (usize, &Colours)| {
            format!(".c{number}{{--d:{};--i:{};--j:{}}}\n", hex(colours.dark), hex(colours.light_ink), hex(colours.dark_ink))
        };
        self.colours.iter().enumerate().map(rule).collect()
    }
}

/// A box as inferno writes it.
struct Group {
    /// `12 (34 samples, 5.67%)`.
    title: String,
    /// `rect x="…" …`
    rect: String,
    /// Per cent of the picture.
    width: f64,
    /// The place of its text: ` x="…" y="…"`.
    place: String,
}

impl Group {
    fn read(reader: &mut Reader<&[u8]>) -> Result<Group, FormatError> {
        let mut group = Group { title: String::new(), rect: String::new(), width: 0.0, place: String::new() };
        let mut in_title = false;
        loop {
            match reader.read_event().map_err(broken)? {
                Event::Start(tag) if tag.name().as_ref() == b"title" => in_title = true,
                Event::Text(text) if in_title => group.title.push_str(&String::from_utf8_lossy(&text)),
                Event::End(tag) if tag.name().as_ref() == b"title" => in_title = false,
                Event::Empty(tag) if tag.name().as_ref() == b"rect" => {
                    group.rect = String::from_utf8_lossy(&tag).into_owned();
                    let width = tag.attributes().flatten().find(|attribute| attribute.key.as_ref() == b"width");
                    let width = width.map(|attribute| String::from_utf8_lossy(&attribute.value).into_owned());
                    group.width = width.and_then(|width| width.trim_end_matches('%').parse().ok()).unwrap_or(0.0);
                }
                Event::Start(tag) if tag.name().as_ref() == b"text" => {
                    group.place = String::from_utf8_lossy(tag.attributes_raw()).into_owned();
                }
                Event::End(tag) if tag.name().as_ref() == b"g" => return Ok(group),
                Event::Eof => return Err(broken(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
                _ => {}
            }
        }
    }

    fn write(&self, picture: &Picture<'_>, of: Option<&BoxOf>, class: usize, out: &mut dyn Write) -> io::Result<()> {
        let (name, more) = of.map_or(("all".to_owned(), String::new()), |of| (picture.name(of), picture.more(of)));
        let short = (picture.options.short)(&name);
        let figures = self.title.split_once(' ').map_or("", |(_, figures)| figures);
        let label = match &short {
            Cow::Owned(short) => format!(r#" n="{}""#, escape(short.as_str())),
            Cow::Borrowed(_) => String::new(),
        };
        let characters = (self.width / 100.0 * USUAL_WIDTH - 3.0) / (FONT_SIZE as f64 * CHARACTER_WIDTH);
        write!(
            out,
            r#"<g class="c{class}"{label}><title>{} {figures}{}</title><{}/><text{}>{}</text></g>"#,
            partial_escape(name.as_str()),
            partial_escape(more.as_str()),
            self.rect,
            self.place,
            partial_escape(&*fitted(&short, characters as usize)),
        )
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
