//! Times the formats on a file of folded stacks, and prints the peak memory.
//!
//! ```text
//! cargo run --release --example measure_formats -- /tmp/1m.folded
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::sync::Arc;
use std::time::Instant;

use flametop::formats::{Part, folded, html, svg};
use flametop::profile::{CallTree, Capabilities, Grouping, Names, Profile, Progress, Query, Timestamp, ViewBuilder};

fn most_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("?");
    line.trim().to_owned()
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give a file of folded stacks")?;
    let only_read = std::env::args().nth(2).is_some_and(|word| word == "read");
    let names = Arc::new(Names::default());
    let mut profile = Profile::fixed(Capabilities::STACKS);
    let step = |what: &str, since: Instant| println!("{what:<14} {:>8.1?}  most memory {}", since.elapsed(), most_memory());

    let start = Instant::now();
    let report = folded::read(File::open(&path)?, &names, &mut profile, None)?;
    step("read", start);
    println!("{report}; total {}; {} nodes, {} names", report.total, profile.stacks.len(), names.labels.len());
    if only_read {
        return Ok(());
    }
    let start = Instant::now();
    profile.stacks.freeze();
    step("freeze", start);
    let start = Instant::now();
    let mut view = ViewBuilder::new(Arc::clone(&names), Query { grouping: Grouping::None, ..Query::default() });
    while view.update(&profile, Timestamp(0), usize::MAX) == Progress::More {}
    let tree = view.take_tree();
    drop(view);
    step("tree", start);
    let start = Instant::now();
    let mut out = BufWriter::new(File::create("/tmp/measure.svg")?);
    let part = Part { tree: &tree, difference: None, labels: &names.labels, root: CallTree::ROOT };
    let drawn = svg::write(part, &svg::SvgOptions::default(), &mut out)?;
    drop(out);
    step("svg", start);
    println!("{drawn:?}, {} bytes", fs::metadata("/tmp/measure.svg")?.len());
    let start = Instant::now();
    let mut out = BufWriter::new(File::create("/tmp/measure.html")?);
    html::write(part, &svg::SvgOptions::default(), &mut out)?;
    drop(out);
    step("html", start);
    println!("{} bytes", fs::metadata("/tmp/measure.html")?.len());
    let start = Instant::now();
    let mut out = BufWriter::new(io::sink());
    folded::write(&tree, &names.labels, CallTree::ROOT, folded::FoldedOptions::default(), &mut out)?;
    step("write folded", start);
    Ok(())
}
