//! Writes a file of any format.

use std::io::Write;

use super::folded::{self, FoldedOptions};
use super::svg::{self, SvgOptions};
use super::{Format, FormatError, Part, html};

/// Writes a file of a format. Returns a description of omitted parts, as half a sentence.
///
/// `out` should be buffered. A tree without weight is an error.
pub fn write(
    format: Format,
    part: Part<'_>,
    picture: &SvgOptions,
    folded: FoldedOptions,
    out: &mut dyn Write,
) -> Result<Option<String>, FormatError> {
    let Part { tree, difference, labels, root } = part;
    match (format, difference) {
        (Format::Svg, _) => svg::write(part, picture, out).map(|drawn| drawn.cut()),
        (Format::Html, _) => html::write(part, picture, out).map(|drawn| drawn.cut()),
        (Format::Folded, None) => folded::write(tree, labels, root, folded, out).map(|_| None),
        (Format::Folded, Some(difference)) => folded::write_difference(tree, difference, labels, root, folded, out).map(|_| None),
    }
}
