//! Writes samples as a processed profile of version 60, with tables that all threads share.
//!
//! Rows of the tables are made when a sample needs them, and are found again by their content. So ids of the store may be renewed while
//! samples are taken. The file is made at the end, because its tables come first.

use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::CATEGORIES;
use crate::formats::FormatError;
use crate::formats::about::About;
use crate::formats::sink::{Cursor, Numbers, Sink};
use crate::profile::{
    Begin, Folding, Frame, FrameId, FrameKind, LabelId, Names, Processes, Profile, Sample, StackId, Thread, ThreadIndex, Unit,
};

/// The version whose tables are written.
const VERSION: u32 = 60;

/// Frames that are left out: readers could not fold them.
const FOLDING: Folding = Folding { inlined: false, interpreter: true, recursion: false };

/// Writes a profile: see the module.
#[derive(Default)]
pub(in crate::formats) struct FirefoxWriter {
    cursor: Cursor,
    names: Option<Arc<Names>>,
    /// Rows by the ids of the store.
    stacks: Numbers,
    threads: Numbers,
    /// The rows of a frame's functions, outermost first.
    frames: FxHashMap<FrameId, Box<[u32]>>,
    tables: Tables,
    rows: FxHashMap<(Thread, Arc<str>, Arc<str>), u32>,
    samples: Vec<OfThread>,
    unit: Option<Unit>,
    about: About,
    out: Vec<u8>,
    /// Frames of a stack that are to be written, innermost first.
    path: Vec<(StackId, FrameId)>,
}

/// The samples of a thread.
struct OfThread {
    tgid: u32,
    tid: u32,
    process: Arc<str>,
    name: Arc<str>,
    stacks: Vec<Option<u32>>,
    times: Vec<u64>,
    weights: Vec<u64>,
}

/// The tables of the file. A row is found again by its content.
#[derive(Default)]
struct Tables {
    texts: FxHashMap<Arc<str>, u32>,
    text: Vec<Arc<str>>,
    sources: FxHashMap<u32, u32>,
    source: Vec<u32>,
    resources: FxHashMap<u32, i64>,
    resource: Vec<u32>,
    functions: FxHashMap<Function, u32>,
    function: Vec<Function>,
    frames: FxHashMap<Row, u32>,
    frame: Vec<Row>,
    stacks: FxHashMap<(Option<u32>, u32), u32>,
    stack: Vec<(Option<u32>, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Function {
    name: u32,
    source: Option<u32>,
    /// The object that holds its code. −1: none.
    resource: i64,
    line: Option<u32>,
    column: Option<u32>,
    is_script: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Row {
    function: u32,
    line: Option<u32>,
    category: usize,
    is_inlined: bool,
}

/// Returns the number of a row, which is new if no row has this content.
fn number<T: Clone + Eq + std::hash::Hash>(known: &mut FxHashMap<T, u32>, rows: &mut Vec<T>, row: T) -> u32 {
    *known.entry(row).or_insert_with_key(|row| {
        rows.push(row.clone());
        u32::try_from(rows.len() - 1).unwrap_or(u32::MAX)
    })
}

impl Tables {
    fn text(&mut self, text: &str) -> u32 {
        match self.texts.get(text) {
            Some(known) => *known,
            None => number(&mut self.texts, &mut self.text, text.into()),
        }
    }

    /// Adds a function of a frame. `script` is the path of the file of an interpreter's function, and the line that runs.
    fn frame(&mut self, names: &Names, label: LabelId, script: Option<(&str, u32)>) -> u32 {
        let (text, object) = names.labels.words(label);
        let kind = names.labels.get(label).map_or(FrameKind::Unknown, |label| label.kind);
        let name = self.text(text);
        let begin = Begin::parse(object);
        let (mut source, mut resource) = (None, -1);
        if let Some(file) = script.map(|(file, _)| file).or(begin.map(|begin| begin.file)) {
            let file = self.text(file);
            source = Some(number(&mut self.sources, &mut self.source, file));
        } else if !object.is_empty() {
            let object = self.text(object);
            let next = self.resource.len() as i64;
            resource = *self.resources.entry(object).or_insert(next);
            if resource == next {
                self.resource.push(object);
            }
        }
        let is_script = matches!(kind, FrameKind::Script(_) | FrameKind::Jit);
        let (line, column) = (begin.map(|begin| begin.line), begin.and_then(|begin| begin.column));
        let function = Function { name, source, resource, line, column, is_script };
        let function = number(&mut self.functions, &mut self.function, function);
        let category = CATEGORIES.iter().position(|(known, ..)| *known == kind).unwrap_or(0);
        let row = Row { function, line: script.map(|(_, line)| line), category, is_inlined: kind == FrameKind::Inlined };
        number(&mut self.frames, &mut self.frame, row)
    }
}

impl FirefoxWriter {
    /// Returns the row of a stack. `None`: it is empty.
    fn stack(&mut self, profile: &Profile, names: &Names, stack: StackId) -> Option<u32> {
        let mut at = stack;
        self.path.clear();
        let mut caller = loop {
            if let Some(known) = self.stacks.get(at.0 as usize) {
                break known.checked_sub(1);
            }
            let Some((caller, frame)) = profile.stacks.split(at) else { break None };
            self.path.push((at, frame));
            at = caller;
        };
        while let Some((node, frame)) = self.path.pop() {
            let tables = &mut self.tables;
            let rows = self.frames.entry(frame).or_insert_with(|| {
                let script = match names.frames.get(frame) {
                    Some(Frame::Script { object, line, .. }) => names.objects.get(object).map(|object| (&*object.path, line)),
                    _ => None,
                };
                let mut rows = Vec::new();
                names.labels_shown(frame, FOLDING, |label| rows.push(tables.frame(names, label, script)));
                rows.into()
            });
            for row in &**rows {
                caller = Some(number(&mut tables.stacks, &mut tables.stack, (caller, *row)));
            }
            // The empty stack is 0; row n is n + 1.
            self.stacks.set(node.0 as usize, caller.map_or(0, |row| row + 1));
        }
        caller
    }

    fn thread(&mut self, profile: &Profile, names: &Names, index: ThreadIndex) -> usize {
        if let Some(known) = self.threads.get(index.0 as usize) {
            return known as usize;
        }
        let thread = profile.threads.get(index).unwrap_or_default();
        let [process, name] = [thread.process, thread.name].map(|label| Arc::<str>::from(names.labels.name(label)));
        let next = u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        // Labels have other ids in other tables of names.
        let key = Thread { tgid: thread.tgid, tid: thread.tid, cgroup: thread.cgroup, ..Thread::default() };
        let row = *self.rows.entry((key, process.clone(), name.clone())).or_insert(next);
        if row == next {
            let (tgid, tid) = (thread.tgid.0, thread.tid.0);
            let (stacks, times, weights) = (Vec::new(), Vec::new(), Vec::new());
            self.samples.push(OfThread { tgid, tid, process, name, stacks, times, weights });
        }
        self.threads.set(index.0 as usize, row);
        row as usize
    }

    fn sample(&mut self, profile: &Profile, names: &Names, sample: &Sample) {
        self.unit.get_or_insert_with(|| profile.unit(sample.source));
        let stack = self.stack(profile, names, sample.stack);
        let thread = self.thread(profile, names, sample.thread);
        if let Some(thread) = self.samples.get_mut(thread) {
            thread.stacks.push(stack);
            thread.times.push(sample.time.0);
            thread.weights.push(sample.weight);
        }
    }
}

impl Sink for FirefoxWriter {
    fn take_some(&mut self, profile: &Profile, names: &Arc<Names>, kept: &mut dyn FnMut(&Sample) -> bool) -> bool {
        let mut cursor = std::mem::take(&mut self.cursor);
        let is_known = self.names.replace(Arc::clone(names)).is_some_and(|known| Arc::ptr_eq(&known, names));
        if !is_known {
            self.frames.clear();
        }
        if cursor.has_new_ids(profile) || !is_known {
            self.stacks.forget();
            self.threads.forget();
        }
        let more = cursor.advance(profile, kept, |sample| self.sample(profile, names, sample));
        self.cursor = cursor;
        more
    }

    fn tell(&mut self, about: &About, _processes: &Processes) {
        self.about = about.clone();
    }

    fn end(&mut self) -> Result<(), FormatError> {
        let file = self.file();
        let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
        serde_json::to_writer(&mut packed, &file).map_err(std::io::Error::from)?;
        self.out = packed.finish()?;
        Ok(())
    }

    fn bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn samples(&self) -> u64 {
        self.cursor.samples
    }

    fn missed(&self) -> u64 {
        self.cursor.missed
    }
}

#[derive(Serialize)]
struct File<'a> {
    meta: FileMeta<'a>,
    libs: [(); 0],
    pages: [(); 0],
    shared: Shared<'a>,
    threads: Vec<FileThread<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileMeta<'a> {
    preprocessed_profile_version: u32,
    version: u32,
    product: &'a str,
    #[serde(rename = "importedFrom")]
    imported_from: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    oscpu: &'a str,
    interval: f64,
    start_time: f64,
    process_type: u32,
    stackwalk: u32,
    debug: bool,
    symbolicated: bool,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_search_fox: bool,
    sample_units: SampleUnits,
    marker_schema: [(); 0],
    categories: Vec<FileCategory>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "logicalCPUs")]
    logical_cpus: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleUnits {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: &'static str,
}

#[derive(Serialize)]
struct FileCategory {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shared<'a> {
    string_array: Vec<&'a str>,
    stack_table: StackColumns,
    frame_table: FrameColumns,
    func_table: FunctionColumns,
    resource_table: ResourceColumns<'a>,
    native_symbols: NoSymbols,
    sources: SourceColumns<'a>,
}

#[derive(Serialize)]
struct StackColumns {
    length: usize,
    frame: Vec<u32>,
    prefix: Vec<Option<u32>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameColumns {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<usize>,
    subcategory: Vec<u32>,
    func: Vec<u32>,
    native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<Option<u32>>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionColumns {
    length: usize,
    name: Vec<u32>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    source: Vec<Option<u32>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

#[derive(Serialize)]
struct ResourceColumns<'a> {
    length: usize,
    lib: Vec<Option<u32>>,
    name: &'a [u32],
    host: Vec<Option<u32>>,
    /// 1: a library.
    #[serde(rename = "type")]
    kind: Vec<u32>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct NoSymbols {
    length: usize,
    lib_index: [(); 0],
    address: [(); 0],
    name: [(); 0],
    function_size: [(); 0],
}

#[derive(Serialize)]
struct SourceColumns<'a> {
    length: usize,
    id: Vec<Option<u32>>,
    filename: &'a [u32],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileThread<'a> {
    process_type: &'static str,
    process_name: &'a str,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: [(); 0],
    name: &'a str,
    is_main_thread: bool,
    pid: String,
    tid: u32,
    show_markers_in_timeline: bool,
    markers: NoMarkers,
    samples: FileSamples<'a>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct NoMarkers {
    length: usize,
    name: [(); 0],
    start_time: [(); 0],
    end_time: [(); 0],
    phase: [(); 0],
    category: [(); 0],
    data: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileSamples<'a> {
    length: usize,
    stack: &'a [Option<u32>],
    time: Vec<f64>,
    weight: Vec<f64>,
    weight_type: &'static str,
    /// The CPU time of each sample. The profiler draws its graphs from it.
    #[serde(skip_serializing_if = "Option::is_none", rename = "threadCPUDelta")]
    cpu_time: Option<Vec<u64>>,
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

impl FirefoxWriter {
    fn file(&self) -> File<'_> {
        let begin = self.samples.iter().filter_map(|thread| thread.times.first()).min().copied().unwrap_or(0);
        let about = &self.about;
        // Without a time of day, times count from the first sample.
        let start_time = about.utc.map_or(0.0, |utc| (utc as f64 + begin as f64) / 1e6);
        let tables = &self.tables;
        let meta = FileMeta {
            preprocessed_profile_version: VERSION,
            version: 30,
            product: if about.host.is_empty() { "flametop" } else { &about.host },
            imported_from: format!("flametop {}", env!("CARGO_PKG_VERSION")),
            oscpu: &about.system,
            interval: if about.frequency > 0 { 1e3 / f64::from(about.frequency) } else { 1.0 },
            start_time,
            process_type: 0,
            stackwalk: 1,
            debug: false,
            symbolicated: true,
            uses_only_one_stack_type: true,
            source_code_is_not_on_search_fox: true,
            sample_units: SampleUnits { time: "ms", event_delay: "ms", thread_cpu_delta: "ns" },
            marker_schema: [],
            categories: CATEGORIES.map(|(_, name, color)| FileCategory { name, color, subcategories: ["Other"] }).into(),
            logical_cpus: Some(about.cpus).filter(|cpus| *cpus > 0),
        };
        let (unit, one) = match self.unit.unwrap_or(Unit::Samples) {
            Unit::Samples | Unit::Events => ("samples", 1.0),
            Unit::Nanoseconds => ("tracing-ms", 1e-6),
            Unit::Bytes => ("bytes", 1.0),
        };
        let is_clock = self.unit.is_none_or(|unit| unit == Unit::Samples);
        let tick = 1_000_000_000u64.checked_div(about.frequency.into()).filter(|_| is_clock);
        let threads = self.samples.iter().map(|thread| FileThread {
            process_type: "default",
            process_name: &thread.process,
            process_startup_time: 0.0,
            process_shutdown_time: None,
            register_time: 0.0,
            unregister_time: None,
            paused_ranges: [],
            name: &thread.name,
            is_main_thread: thread.tid == thread.tgid,
            pid: thread.tgid.to_string(),
            tid: thread.tid,
            show_markers_in_timeline: false,
            markers: NoMarkers::default(),
            samples: FileSamples {
                length: thread.stacks.len(),
                stack: &thread.stacks,
                time: thread.times.iter().map(|time| milliseconds(time.saturating_sub(begin))).collect(),
                weight: thread.weights.iter().map(|weight| *weight as f64 * one).collect(),
                weight_type: unit,
                cpu_time: tick.map(|tick| thread.weights.iter().map(|weight| weight.saturating_mul(tick)).collect()),
            },
        });
        File { meta, libs: [], pages: [], shared: tables.columns(), threads: threads.collect() }
    }
}

impl Tables {
    /// Returns the tables in columns.
    fn columns(&self) -> Shared<'_> {
        let (stack, frame, function) = (&self.stack, &self.frame, &self.function);
        Shared {
            string_array: self.text.iter().map(|text| &**text).collect(),
            stack_table: StackColumns {
                length: stack.len(),
                frame: stack.iter().map(|(_, frame)| *frame).collect(),
                prefix: stack.iter().map(|(caller, _)| *caller).collect(),
            },
            frame_table: FrameColumns {
                length: frame.len(),
                address: vec![-1; frame.len()],
                inline_depth: frame.iter().map(|row| u32::from(row.is_inlined)).collect(),
                category: frame.iter().map(|row| row.category).collect(),
                subcategory: vec![0; frame.len()],
                func: frame.iter().map(|row| row.function).collect(),
                native_symbol: vec![None; frame.len()],
                inner_window_id: vec![None; frame.len()],
                line: frame.iter().map(|row| row.line).collect(),
                column: vec![None; frame.len()],
            },
            func_table: FunctionColumns {
                length: function.len(),
                name: function.iter().map(|row| row.name).collect(),
                is_js: function.iter().map(|row| row.is_script).collect(),
                relevant_for_js: vec![false; function.len()],
                resource: function.iter().map(|row| row.resource).collect(),
                source: function.iter().map(|row| row.source).collect(),
                line_number: function.iter().map(|row| row.line).collect(),
                column_number: function.iter().map(|function| function.column).collect(),
            },
            resource_table: ResourceColumns {
                length: self.resource.len(),
                lib: vec![None; self.resource.len()],
                name: &self.resource,
                host: vec![None; self.resource.len()],
                kind: vec![1; self.resource.len()],
            },
            native_symbols: NoSymbols::default(),
            sources: SourceColumns { length: self.source.len(), id: vec![None; self.source.len()], filename: &self.source },
        }
    }
}
