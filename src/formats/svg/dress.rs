//! Adds names, a legend, and colours for light and dark backgrounds to inferno's picture.
//!
//! inferno's picture has a number on each box (see [`super::boxes`]). inferno's positions of boxes, its zoom and its search stay.
//! Boxes too narrow for a name become paths ([`super::narrow`]), and names stand in a table ([`super::names`]). The result has a
//! fifth of the size of inferno's own picture. `script.js` restores the boxes before inferno's script begins. Without scripts, the
//! picture is the same but has short names only.
//!
//! The result is in parts, because an SVG file and an HTML page assemble them differently.

use std::io::{self, Write};

use quick_xml::Reader;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesStart, Event};
use serde_json::{Map, Value, json};

use super::boxes::{BoxOf, Boxes};
use super::classes::{Classes, Colours};
use super::names::{NameTable, in_markup};
use super::narrow::NarrowBoxes;
use super::options::SvgOptions;
use crate::formats::FormatError;
use crate::profile::{Comparison, FrameKind, FunctionRow, LabelTable, Sides};

const STYLE: &str = include_str!("style.css");
const DARK_STYLE: &str = include_str!("dark.css");
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
/// Boxes narrower than this become part of a path, in per cent of the picture. It equals six pixels, where no name fits.
const NARROW: f64 = 0.5;

/// A picture before names and colours are added.
pub(super) struct Picture<'a> {
    pub(super) boxes: &'a Boxes,
    pub(super) labels: &'a LabelTable,
    pub(super) options: &'a SvgOptions,
    pub(super) comparison: Option<Comparison>,
    /// The weight of everything.
    pub(super) whole: Sides,
}

impl Picture<'_> {
    /// Returns the colours of a box.
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

    /// Returns the box of everything.
    pub(super) fn root(&self) -> BoxOf {
        BoxOf { label: None, own: Sides::default(), total: self.whole }
    }

    /// Returns the kinds of boxes that occur.
    fn kinds(&self) -> Vec<FrameKind> {
        let labels = self.boxes.boxes.iter().filter_map(|of| self.labels.get(of.label?));
        let mut found: Vec<FrameKind> = labels.map(|label| label.kind).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A picture in its parts.
pub(in crate::formats) struct Dressed {
    /// The declaration and the document type.
    prolog: Vec<u8>,
    /// The first tag, `<svg …>`, without event handlers.
    pub(in crate::formats) tag: String,
    /// The style sheet, for a light background.
    pub(in crate::formats) style: String,
    /// A second sheet, for a dark one. See [`super::classes`].
    pub(in crate::formats) dark_style: String,
    /// The table of names and figures as JSON; [`in_markup`] makes it text for SVG and HTML.
    pub(in crate::formats) table: Map<String, Value>,
    /// inferno's script and `script.js`.
    pub(in crate::formats) script: String,
    /// The boxes and texts, with the end of the element.
    pub(in crate::formats) body: Vec<u8>,
}

impl Dressed {
    /// Writes an SVG file.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.prolog)?;
        let tag = self.tag.strip_suffix('>').unwrap_or(&self.tag);
        write!(out, r#"{tag} onload="init(evt)"><style type="text/css">{}</style>"#, self.style)?;
        write!(out, r#"<style type="text/css">{}</style>"#, self.dark_style)?;
        write!(out, r#"<script type="application/json" id="names">{}</script>"#, in_markup(&self.table))?;
        write!(out, r#"<script type="text/ecmascript"><![CDATA[{}]]></script>"#, self.script)?;
        out.write_all(&self.body)?;
        out.flush()
    }
}

/// Adds names and colours to inferno's picture `raw`. The table gets these functions, too.
pub(super) fn dress(raw: &[u8], picture: &Picture<'_>, functions: &[FunctionRow]) -> Result<Dressed, FormatError> {
    let mut reader = Reader::from_reader(raw);
    let mut writer = quick_xml::Writer::new(Vec::new());
    let mut classes = Classes::default();
    let root = classes.number(picture.colours(&picture.root()));
    let labels = picture.boxes.boxes.iter().map(|of| of.label).chain(functions.iter().map(|row| Some(row.label)));
    let names = NameTable::of(labels, picture.labels, picture.options);
    let is_compared = picture.comparison.is_some();
    let mut narrow = NarrowBoxes::default();
    let of_boxes: Vec<usize> = picture.boxes.boxes.iter().map(|of| classes.number(picture.colours(of))).collect();
    let (mut prolog, mut first_tag, mut style, mut script) = (Vec::new(), String::new(), String::new(), String::new());
    let mut elements_named_svg = 0;
    let mut height = 0;
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Eof => break,
            Event::Start(tag) if tag.name().as_ref() == b"svg" => {
                elements_named_svg += 1;
                if elements_named_svg == 1 {
                    prolog = std::mem::take(writer.get_mut());
                    writer.write_event(Event::Start(taller(&tag, &mut height)))?;
                    first_tag = String::from_utf8_lossy(&std::mem::take(writer.get_mut())).into_owned();
                } else {
                    writer.write_event(Event::Start(tag))?;
                }
            }
            Event::Start(tag) if tag.name().as_ref() == b"style" => style += &text_of(&mut reader, b"style")?,
            Event::Start(tag) if tag.name().as_ref() == b"script" => script += &text_of(&mut reader, b"script")?,
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
                    let name = of.map_or("all", |of| names.short(of));
                    let look = Look { class, colours: classes.light(class), fit: picture.options.fit };
                    group.write(name, &look, &reference, writer.get_mut())?;
                }
            }
            Event::Empty(tag) if tag.name().as_ref() == b"rect" => {
                write!(
                    writer.get_mut(),
                    r##"<rect id="ground" fill="#ffffff" width="100%" height="{}"/>"##,
                    height + LEGEND_HEIGHT
                )?;
            }
            Event::End(tag) if tag.name().as_ref() == b"svg" => {
                elements_named_svg -= 1;
                if elements_named_svg == 0 {
                    // The first one ends.
                    let out = writer.get_mut();
                    write!(out, r#"<svg id="narrow" x="{SIDE}" width="{}" height="{height}" "#, USUAL_WIDTH as u64 - 2 * SIDE)?;
                    write!(out, r#"viewBox="0 -7.5 {} {height}" preserveAspectRatio="none" "#, picture.whole.now)?;
                    out.write_all(br#"fill="none" stroke-width="15">"#)?;
                    narrow.write(|class| classes.light(class).0, out)?;
                    out.write_all(b"</svg>")?;
                    write_legend(picture, &mut classes, height, out)?;
                }
                writer.write_event(Event::End(tag))?;
            }
            other => writer.write_event(other)?,
        }
    }
    let mut table = names.table(picture.whole, is_compared, &picture.options.count_name);
    // A search does not find narrower boxes, because they are not drawn.
    if picture.boxes.narrowest > 1 {
        table.insert("narrowest".to_owned(), picture.boxes.narrowest.into());
    }
    if !functions.is_empty() {
        let (kinds, rows) = functions_of(picture, functions, &names, &mut classes);
        table.insert("kinds".to_owned(), kinds);
        table.insert("functions".to_owned(), rows);
    }
    style += STYLE;
    style += &classes.light_rules();
    let dark = classes.dark_rules();
    let dark_style = format!("@supports (--a: 0) {{\n@media (prefers-color-scheme: dark) {{{DARK_STYLE}{dark}}}\n}}\n");
    script += SCRIPT;
    Ok(Dressed { prolog, tag: first_tag, style, dark_style, table, script, body: writer.into_inner() })
}

/// Returns the functions of a table. The first value has their kinds, each `[words, class]`. The second one has rows `[name, kind,
/// own, total]`; in a comparison the own weight and the total before follow. Kinds and names are positions in their lists.
fn functions_of(picture: &Picture<'_>, functions: &[FunctionRow], names: &NameTable, classes: &mut Classes) -> (Value, Value) {
    let mut kinds: Vec<FrameKind> = Vec::new();
    let mut rows = Vec::with_capacity(functions.len());
    for row in functions {
        let kind = picture.labels.get(row.label).map_or(FrameKind::Unknown, |label| label.kind);
        let place = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        let name = names.number(Some(row.label));
        rows.push(match picture.comparison {
            Some(_) => json!([name, place, row.own.now, row.total.now, row.own.before, row.total.before]),
            None => json!([name, place, row.own.now, row.total.now]),
        });
    }
    let palette = picture.options.palette;
    let kinds = kinds.into_iter().map(|kind| {
        let class = classes.number(Colours::of(|dark| palette.kind(dark, kind)));
        json!([kind.describe(), class])
    });
    (kinds.collect(), rows.into())
}

/// Returns the text of an element, up to its end.
fn text_of(reader: &mut Reader<&[u8]>, element: &[u8]) -> Result<String, FormatError> {
    let mut text = String::new();
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Text(piece) => text += &String::from_utf8_lossy(&piece),
            Event::CData(piece) => text += &String::from_utf8_lossy(&piece),
            Event::End(tag) if tag.name().as_ref() == element => return Ok(text),
            Event::Eof => return Err(broken(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
            _ => {}
        }
    }
}

/// Converts an error of the XML parser. It does not occur: inferno writes valid XML.
fn broken(error: quick_xml::Error) -> FormatError {
    FormatError::Write(io::Error::other(error))
}

/// Returns the picture's element with room for the legend. `height` excludes that room.
fn taller<'a>(tag: &BytesStart<'a>, height: &mut u64) -> BytesStart<'a> {
    let mut new = BytesStart::new("svg");
    for attribute in tag.attributes().flatten() {
        let value = String::from_utf8_lossy(&attribute.value);
        let value = match attribute.key.as_ref() {
            b"onload" => continue,
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
    /// `fg:x` and `fg:w`: position and width in weights.
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

/// How boxes of a class look.
struct Look {
    class: usize,
    /// The colours of the box and of its text.
    colours: (String, String),
    fit: fn(&str, usize) -> String,
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

    fn write(&self, name: &str, look: &Look, reference: &str, out: &mut dyn Write) -> io::Result<()> {
        let figures = self.title.split_once(' ').map_or("", |(_, figures)| figures);
        let characters = (self.rect.width / 100.0 * USUAL_WIDTH - 3.0) / (FONT_SIZE as f64 * CHARACTER_WIDTH);
        let Rect { x, width, y, start, weight } = &self.rect;
        let Look { class, colours: (fill, ink), fit } = look;
        write!(
            out,
            r#"<g class="c{class}" fill="{fill}" b="{reference}"><title>{} {figures}</title><rect x="{x}" y="{y}" width="{width:.4}%" height="15" fg:x="{start}" fg:w="{weight}"/>"#,
            partial_escape(name),
        )?;
        let label = fit(name, characters as usize);
        if !label.is_empty() {
            write!(out, r#"<text{} fill="{ink}">{}</text>"#, self.place, partial_escape(&*label))?;
        }
        out.write_all(b"</g>")
    }
}

/// Writes the legend of colours.
fn write_legend(picture: &Picture<'_>, classes: &mut Classes, top: u64, out: &mut dyn Write) -> io::Result<()> {
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
    let mut x = SIDE;
    for (colours, words) in entries {
        let (class, y) = (classes.number(colours), top + 2);
        let fill = classes.light(class).0;
        write!(out, r#"<rect class="c{class}" fill="{fill}" x="{x}" y="{y}" width="14" height="14"/>"#)?;
        write!(out, r#"<text x="{}" y="{}">{words}</text>"#, x + 20, top + 13)?;
        x += 20 + (words.chars().count() as f64 * FONT_SIZE as f64 * CHARACTER_WIDTH) as u64 + 20;
    }
    write!(out, "</g>")
}
