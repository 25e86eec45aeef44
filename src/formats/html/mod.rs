//! A self-contained page for a browser: the flame graph of [`svg`](super::svg), a table of its functions, and facts about the
//! sampling.
//!
//! ```text
//! tree ─┬─► svg: the picture in its parts ─────────────────┐
//!       └─► functions: weights of each, in the same table ─┴─► one style sheet, one table of data, one script
//! ```
//!
//! The page's policy (`Content-Security-Policy`) names the style sheet and the script by their hashes. Nothing else in the page can
//! run, whatever the name of a function contains, and nothing is fetched.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quick_xml::escape::escape;
use sha2::{Digest, Sha256};

use super::svg::{Drawn, SvgOptions, draw, in_markup, printable};
use super::{FormatError, Part};
use crate::profile::FunctionTable;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Most functions in a table. Functions with little self weight are left out.
const MAX_FUNCTIONS: usize = 10_000;

/// Writes a page for a node and everything below it. `out` should be buffered. A tree without weight is an error.
pub fn write(part: Part<'_>, options: &SvgOptions, out: &mut dyn Write) -> Result<Drawn, FormatError> {
    let mut functions = FunctionTable::below(part.tree, part.root, part.difference, part.labels).rows;
    let all = functions.len();
    functions.truncate(MAX_FUNCTIONS);
    // The page has its own title.
    let bare = SvgOptions { title: String::new(), subtitle: None, ..options.clone() };
    let (mut picture, drawn) = draw(&part, &functions, &bare)?;
    picture.table.insert("all".to_owned(), all.into());
    let style = format!("{}{}{STYLE}", picture.style, picture.dark_style);
    let script = format!("{}{SCRIPT}", picture.script);
    let title = escape(printable(&options.title)).into_owned();
    let facts: Vec<String> = options.subtitle.clone().into_iter().chain(drawn.cut()).collect();
    let facts = escape(printable(&facts.join(" · "))).into_owned();
    write!(
        out,
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>{title}</title><style>{style}</style></head><body>
<header><div><h1>{title}</h1><p>{facts}</p></div>
<input id="find" type="search" placeholder="find functions" aria-label="find functions" spellcheck="false"></header>
<div id="picture">{}"#,
        hash(&style),
        hash(&script),
        picture.tag,
    )?;
    out.write_all(&picture.body)?;
    write!(
        out,
        r#"</div>
<section><p id="count"></p><div id="scroll"><table><thead><tr id="heads"></tr></thead><tbody id="rows"></tbody></table></div></section>
<script type="application/json" id="names">{}</script>
<script>{script}</script></body></html>
"#,
        in_markup(&picture.table),
    )?;
    out.flush()?;
    Ok(drawn)
}

/// Returns the hash of a script or a style sheet, as a policy names it.
fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{CallTree, FrameKind, LabelTable, TreeBuilder};

    #[test]
    fn a_page_names_its_script_and_style_by_hash_and_has_each_function() {
        let labels = LabelTable::default();
        let mut builder = TreeBuilder::new();
        let process = builder.child(CallTree::ROOT, labels.intern("sh", "", FrameKind::Process));
        let main = builder.child(process, labels.intern("</script>", "a\"b", FrameKind::User));
        let again = builder.child(main, labels.intern("</script>", "a\"b", FrameKind::User));
        builder.add(main, 3);
        builder.add(again, 4);
        let tree = builder.finish();
        let part = Part { tree: &tree, difference: None, labels: &labels, root: CallTree::ROOT };
        let options = SvgOptions { title: "<b>".to_owned(), subtitle: Some("\"&".to_owned()), ..SvgOptions::default() };
        let mut out = Vec::new();
        write(part, &options, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains("<h1>&lt;b&gt;</h1><p>&quot;&amp;</p>"), "{page}");
        let between = |from: &str, to: &str| page.split(from).nth(1).and_then(|rest| rest.split(to).next()).unwrap().to_owned();
        for (text, policy) in [(between("<style>", "</style>"), "style-src"), (between("<script>", "</script>"), "script-src")] {
            assert!(page.contains(&format!("{policy} '{}'", hash(&text))), "{policy}");
        }
        assert_eq!(page.matches("<script").count(), 2, "the data and the script");
        assert!(page.len() < 64_000, "{} bytes without data", page.len());
        assert!(!page.contains("onload="));
        let table: serde_json::Value = serde_json::from_str(&between(r#"id="names">"#, "</script>")).unwrap();
        // The process is not a function, and recursion counts once.
        assert_eq!(table["functions"].as_array().unwrap().len(), 1);
        let row = &table["functions"][0];
        assert_eq!((&row[2], &row[3], &table["all"]), (&7.into(), &7.into(), &1.into()));
        assert_eq!(table["names"][row[0].as_u64().unwrap() as usize][0], "</script>");
    }
}
