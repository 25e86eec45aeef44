//! Converts folded stacks to samples: one sample a line. Reads the file in one pass, and holds one chunk of it in memory.
//!
//! Most time is spent on looking up names (about 25 a line) and on going down the trie of stacks. So one thread does the first and another
//! the second:
//!
//! ```text
//! this thread: lines ─► frames ─► batch ─► the other thread: stacks ─► samples
//! ```
//!
//! Two methods avoid lookups. First, files are usually sorted: frames that a line shares with the line before are not looked up at all.
//! Second, a name that was seen before is found by its bytes as stored in the file, without decoding them. The table for that belongs to this
//! load only, so the locks of the shared tables are not taken. In unsorted files, the trie waits for memory most of the time. So several of
//! their lines are looked up together.

use std::fmt;
use std::io::{BufRead, Read};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use super::super::FormatError;
use super::super::known::Known;
use super::super::lines::{Encoding, Lines};
use super::super::reading::{Destination, Opened};
use super::line::{Count, Line, parse, parse_before, parse_frame};
use crate::profile::{EventSource, FrameId, FrameKind, Names, Profile, Sample, StackId, Tgid, Thread, ThreadIndex, Tid, Walk};

/// Upper limit for the sum of all counts: views add and subtract signed weights.
const MAX_TOTAL: u64 = i64::MAX as u64;

/// Counts of what a file contained and of what was not used, and how its counts were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Lines of any kind.
    pub lines: u64,
    /// Lines that are stacks.
    pub stacks: u64,
    /// Sum of their counts, as stored in the samples.
    pub total: u64,
    /// Comment lines.
    pub comments: u64,
    /// Number of lines that were left out. They are neither stacks nor comments nor blank.
    pub nonsense: u64,
    /// Number of the first of these lines, from 1.
    pub first_nonsense: Option<u64>,
    /// Counts have been multiplied by 10 to this power, because some have fractions; 0 if none has. The first lines decide: the power is
    /// the least that makes all their counts above 0 at least 100, or all their counts whole numbers.
    pub decimals: u32,
    /// Stacks whose count has a fraction even after that. Counts were rounded so that the sum is right to half a unit: the amount
    /// that rounding takes from one line is added to the next line that has a fraction.
    pub fractional: u64,
    /// Whether lines have two counts: a difference, with the baseline's count first.
    pub is_difference: bool,
    /// How the text was stored.
    pub encoding: Encoding,
}

impl fmt::Display for ReadReport {
    /// Formats the report as one line: `1000 stacks; 2 lines skipped: not stacks (first: line 7)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.stacks, if self.stacks == 1 { "stack" } else { "stacks" })?;
        match (self.nonsense, self.first_nonsense) {
            (1, Some(first)) => write!(f, "; 1 line skipped: not a stack (line {first})")?,
            (count, Some(first)) => write!(f, "; {count} lines skipped: not stacks (first: line {first})")?,
            _ => {}
        }
        if self.decimals > 0 {
            write!(f, "; counts have fractions and were multiplied by {}", 10u64.pow(self.decimals))?;
        }
        if self.fractional > 0 {
            write!(f, "; counts with fractions were rounded")?;
        }
        Ok(())
    }
}

/// Number of lines that are read ahead to find out which counts the file has.
const FIRST_LINES: usize = 1000;
/// Most bytes of these lines.
const FIRST_BYTES: usize = 1 << 20;
/// Counts with fractions are multiplied by ten until the smallest is at least this, or all are whole numbers.
const LEAST_COUNT: u64 = 100;

/// Most bytes of a line that an error quotes.
const MOST_QUOTED: usize = 60;

/// The kind of counts in a file.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    /// Each line has two counts: the baseline's and the current one.
    are_two: bool,
    /// Counts are multiplied by 10 to this power.
    decimals: u32,
}

impl Counts {
    /// Derives the kind from the first lines.
    fn of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Counts {
        let stacks = lines.filter_map(|line| match parse(line) {
            Line::Stack { frames, count } => Some((parse_before(frames).map(|(_, before)| before), count)),
            Line::Comment | Line::Blank | Line::Nonsense => None,
        });
        let stacks: Vec<(Option<Count>, Count)> = stacks.collect();
        let are_two = !stacks.is_empty() && stacks.iter().all(|(before, _)| before.is_some());
        let before = stacks.iter().filter_map(|(before, _)| before.filter(|_| are_two));
        let counts: Vec<Count> =
            stacks.iter().map(|(_, count)| *count).chain(before).filter(|count| *count > Count::default()).collect();
        let most = counts.iter().map(|count| count.decimals()).max().unwrap_or(0);
        let least = counts.iter().min().copied().unwrap_or_default();
        let decimals = (0..most).find(|decimals| least.scaled(*decimals).whole >= LEAST_COUNT).unwrap_or(most);
        Counts { are_two, decimals }
    }
}

/// Reads folded stacks into `profile`. Each line becomes a sample of kind [`EventSource::FILE`], with its frames named; a line with
/// the count 0 becomes none. Files contain no process, thread or time: all samples belong to thread 0 of a process 0 called `[file]`,
/// at time 0.
///
/// The lines of a difference have two counts ([`write_difference`](super::write_difference)). The first one goes into `before`, if
/// that is given.
///
/// Several files may be read one after another. After the last one, call [`freeze`](crate::profile::StackTable::freeze) on the
/// stacks to free their index.
///
/// # Errors
///
/// Fails if the input cannot be read, is known to be of another format, or has two lines that are none for each stack. A line above 64 MiB is an error. So
/// is a sum of counts above about 9·10¹⁸. Stacks that were read before the error may stay in `profile`.
pub fn read(
    input: impl Read,
    names: &Names,
    profile: &mut Profile,
    before: Option<&mut Profile>,
) -> Result<ReadReport, FormatError> {
    let mut lines = Lines::new(input)?;
    let (mut first, mut bytes) = (Vec::new(), 0);
    while first.len() < FIRST_LINES && bytes < FIRST_BYTES {
        let Some(line) = lines.next()? else { break };
        bytes += line.len();
        first.push((line.to_vec(), lines.number()));
    }
    let counts = Counts::of(first.iter().map(|(line, _)| &**line));
    std::thread::scope(|scope| {
        let mut reader = FoldedReader {
            nonsense: String::new(),
            counts,
            now: Side::begin(scope, names, profile)?,
            before: before.filter(|_| counts.are_two).map(|before| Side::begin(scope, names, before)).transpose()?,
            report: ReadReport {
                encoding: lines.encoding(),
                decimals: counts.decimals,
                is_difference: counts.are_two,
                ..ReadReport::default()
            },
        };
        let outcome = reader.take_all(first, &mut lines);
        // Lines before an error are kept.
        reader.finish();
        outcome?;
        let mut report = reader.report;
        report.lines = lines.number();
        match report.first_nonsense {
            _ if report.stacks == 0 => Err(FormatError::NoStacks { lines: report.lines }),
            Some(first) if report.nonsense / 2 >= report.stacks => {
                let lines = report.nonsense + report.stacks;
                Err(FormatError::FewStacks { stacks: report.stacks, lines, first, text: reader.nonsense })
            }
            _ => Ok(report),
        }
    })
}

/// Reads folded stacks into the tables, as [`read`] does.
pub(in crate::formats) fn open(input: &mut dyn BufRead, into: &mut Destination<'_>) -> Result<Opened, FormatError> {
    let report = read(input, into.names, into.profile, into.before.as_deref_mut())?;
    // All counts may be 0.
    if into.profile.samples.is_empty() && into.before.as_ref().is_none_or(|before| before.samples.is_empty()) {
        return Err(FormatError::NoSamples);
    }
    let mut remarks = Vec::new();
    if let Some(line) = report.first_nonsense {
        remarks.push(format!("{} lines are not stacks (first: line {line})", report.nonsense));
    }
    if report.decimals > 0 {
        remarks.push(format!("counts have fractions and were multiplied by {}", 10u64.pow(report.decimals)));
    }
    if report.fractional > 0 {
        remarks.push(format!("{} counts were rounded", report.fractional));
    }
    Ok(Opened { remarks, is_difference: report.is_difference, ..Opened::default() })
}

/// Processes the lines one by one.
struct FoldedReader<'a> {
    /// The beginning of the first line that is no stack.
    nonsense: String,
    counts: Counts,
    now: Side<'a>,
    before: Option<Side<'a>>,
    report: ReadReport,
}

impl FoldedReader<'_> {
    /// Takes the first lines, each with its number, and all others.
    fn take_all<R: Read>(&mut self, first: Vec<(Vec<u8>, u64)>, lines: &mut Lines<R>) -> Result<(), FormatError> {
        for (line, number) in first {
            self.take(&line, number)?;
        }
        loop {
            let number = lines.number() + 1;
            match lines.next()? {
                Some(line) => self.take(line, number)?,
                None => return Ok(()),
            }
        }
    }

    fn take(&mut self, line: &[u8], number: u64) -> Result<(), FormatError> {
        let counts = self.counts;
        let parsed = match parse(line) {
            Line::Stack { frames, count } if counts.are_two => match parse_before(frames) {
                Some((frames, before)) => Ok((frames, Some(before), count)),
                None => Err(Line::Nonsense),
            },
            Line::Stack { frames, count } => Ok((frames, None, count)),
            other => Err(other),
        };
        match parsed {
            Ok((frames, before, count)) => {
                let (before, count) = (before.map(|before| before.scaled(counts.decimals)), count.scaled(counts.decimals));
                self.report.stacks += 1;
                self.report.fractional += u64::from(count.billionths > 0 || before.is_some_and(|before| before.billionths > 0));
                let of_before = match self.before.as_mut().zip(before) {
                    Some((side, before)) => side.add(frames, before),
                    None => Some(0),
                };
                let total = self.now.add(frames, count);
                let Some((total, _)) = total.zip(of_before) else {
                    return Err(FormatError::CountsTooLarge { line: number, limit: MAX_TOTAL as f64 });
                };
                self.report.total = total;
            }
            Err(Line::Comment) => self.report.comments += 1,
            Err(Line::Blank) => {}
            Err(_) => {
                self.report.nonsense += 1;
                if self.report.first_nonsense.is_none() {
                    self.report.first_nonsense = Some(number);
                    let text = String::from_utf8_lossy(line.get(..MOST_QUOTED).unwrap_or(line)).into_owned();
                    self.nonsense = crate::profile::sanitize(text.trim()).into_owned();
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.now.send();
        self.before.iter_mut().for_each(Side::send);
    }
}

/// A profile that is being filled, and the sum of its counts.
struct Side<'a> {
    finder: Finder<'a>,
    weights: Weights,
    /// To the thread that makes stacks. It ends when this is dropped.
    batches: SyncSender<Batch>,
}

impl<'a> Side<'a> {
    fn begin<'s>(scope: &'s Scope<'s, '_>, names: &'a Names, profile: &'s mut Profile) -> Result<Side<'a>, FormatError> {
        let file = names.labels.intern("[file]", "", FrameKind::Process);
        let thread =
            profile.threads.intern(Thread { tgid: Tgid(0), tid: Tid(0), process: file, name: file, ..Thread::default() });
        let (batches, sent) = sync_channel::<Batch>(BATCHES);
        let mut maker = Maker { profile, thread, path: Vec::new() };
        let make = move || sent.into_iter().for_each(|batch| maker.take(&batch));
        Builder::new().name("flametop-read".to_owned()).spawn_scoped(scope, make).map_err(FormatError::Read)?;
        let finder = Finder { names, known: Known::default(), last: LastLine::default(), batch: Batch::default() };
        Ok(Side { finder, weights: Weights::default(), batches })
    }

    /// Adds a stack, and returns the sum of all counts; `None` if that is too large.
    fn add(&mut self, frames: &[u8], count: Count) -> Option<u64> {
        let weight = self.weights.round(count);
        let total = self.weights.admit(weight)?;
        self.finder.add(frames, weight);
        if self.finder.batch.lines.len() == LINES {
            self.send();
        }
        Some(total)
    }

    /// Passes the lines so far to the thread that makes stacks.
    fn send(&mut self) {
        drop(self.batches.send(std::mem::take(&mut self.finder.batch)));
    }
}

/// Rounds counts to whole numbers and checks their sum.
#[derive(Default)]
struct Weights {
    /// Remainder that rounding has not yet passed on, in billionths. It is between -500,000,000 and 499,999,999.
    carried: i64,
    total: u64,
}

impl Weights {
    /// Rounds to the nearest whole number, after adding the remainder of earlier rounding. A count without a fraction does not
    /// change, since the remainder never reaches a half.
    fn round(&mut self, count: Count) -> u64 {
        const ONE: i64 = 1_000_000_000;
        let exact = i64::from(count.billionths) + self.carried;
        let up = exact >= ONE / 2;
        self.carried = if up { exact - ONE } else { exact };
        count.whole.saturating_add(u64::from(up))
    }

    /// Returns the sum with `weight` added, or `None` if it exceeds the limit.
    fn admit(&mut self, weight: u64) -> Option<u64> {
        self.total = self.total.checked_add(weight).filter(|total| *total <= MAX_TOTAL)?;
        Some(self.total)
    }
}

/// Lines of a batch, and most batches on their way.
const LINES: usize = 512;
const BATCHES: usize = 4;
/// Number of lines that are looked up together: more than the loads from memory that a processor has in flight.
const TOGETHER: usize = 16;
/// A line counts as similar if it shares more than 1/8 of its bytes with the line before. It is then looked up from the first
/// differing frame. Nearly all lines of a sorted file are similar, and nearly none of an unsorted file.
const SHARES: usize = 8;

/// Lines whose frames were found.
#[derive(Default)]
struct Batch {
    frames: Vec<FrameId>,
    lines: Vec<FoundLine>,
}

struct FoundLine {
    /// How many frames it has in common with the line before; `None` if the two are not similar.
    shared: Option<usize>,
    /// Where its other frames end in the batch.
    end: usize,
    weight: u64,
}

/// Finds the frames of lines.
struct Finder<'a> {
    names: &'a Names,
    known: Known<FrameId>,
    last: LastLine,
    batch: Batch,
}

impl Finder<'_> {
    fn add(&mut self, frames: &[u8], weight: u64) {
        let common = common_prefix(&self.last.text, frames);
        let is_similar = common * SHARES > frames.len();
        let (shared, start) = if is_similar { self.last.share(frames, common) } else { self.last.replace(frames) };
        if let Some(rest) = frames.get(start..) {
            let mut begin = 0;
            for end in memchr::memchr_iter(b';', rest).chain(std::iter::once(rest.len())) {
                let name = rest.get(begin..end).unwrap_or_default();
                self.batch.frames.push(frame(&mut self.known, name, self.names));
                if is_similar {
                    self.last.ends.push(start + end);
                }
                begin = end + 1;
            }
        }
        let end = self.batch.frames.len();
        self.batch.lines.push(FoundLine { shared: is_similar.then_some(shared), end, weight });
    }
}

/// Makes stacks and samples of lines.
struct Maker<'a> {
    profile: &'a mut Profile,
    thread: ThreadIndex,
    /// The stacks that end at the frames of the line before, if they are known.
    path: Vec<StackId>,
}

impl Maker<'_> {
    fn take(&mut self, batch: &Batch) {
        let (mut lines, mut begin) = (&*batch.lines, 0);
        while let Some(first) = lines.first() {
            let Some(shared) = first.shared else {
                let apart = lines.iter().take(TOGETHER).take_while(|line| line.shared.is_none()).count();
                let (now, rest) = lines.split_at(apart);
                begin = self.together(&batch.frames, begin, now);
                lines = rest;
                continue;
            };
            self.path.truncate(shared);
            let mut stack = self.path.last().copied().unwrap_or_default();
            for frame in batch.frames.get(begin..first.end).unwrap_or_default() {
                stack = self.profile.stacks.child(stack, *frame);
                self.path.push(stack);
            }
            self.push(stack, first.weight);
            (lines, begin) = (lines.get(1..).unwrap_or_default(), first.end);
        }
    }

    /// Looks up lines that share nothing. Returns where their frames end.
    fn together(&mut self, frames: &[FrameId], mut begin: usize, lines: &[FoundLine]) -> usize {
        let mut walks = [Walk::default(); TOGETHER];
        for (walk, line) in walks.iter_mut().zip(lines) {
            *walk = Walk::new(frames.get(begin..line.end).unwrap_or_default());
            begin = line.end;
        }
        let walks = walks.get_mut(..lines.len()).unwrap_or_default();
        self.profile.stacks.descend(walks);
        for (walk, line) in walks.iter().zip(lines) {
            let stack = walk.rest.iter().fold(walk.stack, |stack, frame| self.profile.stacks.child(stack, *frame));
            self.push(stack, line.weight);
        }
        self.path.clear();
        begin
    }

    fn push(&mut self, stack: StackId, weight: u64) {
        if weight > 0 {
            let source = EventSource::FILE;
            // The count is used as the number of samples: the file does not say whether it is anything else.
            let observations = u32::try_from(weight).unwrap_or(u32::MAX);
            self.profile.samples.push(Sample { stack, thread: self.thread, weight, observations, source, ..Sample::default() });
        }
    }
}

/// The line before, as written.
#[derive(Default)]
struct LastLine {
    text: Vec<u8>,
    /// Where its frames end, if their stacks are kept.
    ends: Vec<usize>,
}

impl LastLine {
    /// Makes `frames` the last line. Its stacks are not kept. Returns what [`share`](Self::share) returns where nothing is in common.
    fn replace(&mut self, frames: &[u8]) -> (usize, usize) {
        self.ends.clear();
        self.text.clear();
        self.text.extend_from_slice(frames);
        (0, 0)
    }

    /// Makes `frames` the last line. Returns how many frames old and new line have in common, and the position in `frames` where
    /// the rest begins. The position is past the end if nothing is left.
    ///
    /// ```text
    /// last    main;run;read_file
    /// frames  main;run;read_dir     in common by bytes: main;run;read_   by frames: main;run
    /// ```
    fn share(&mut self, frames: &[u8], common: usize) -> (usize, usize) {
        let at_border = frames.get(common).is_none_or(|byte| *byte == b';');
        while self.ends.last().is_some_and(|end| *end > common || (*end == common && !at_border)) {
            self.ends.pop();
        }
        self.text.truncate(common);
        self.text.extend_from_slice(frames.get(common..).unwrap_or_default());
        (self.ends.len(), self.ends.last().map_or(0, |end| end + 1))
    }
}

/// Returns how many bytes both begin with. It compares words of eight bytes first: lines share hundreds of bytes.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let words = words_a.iter().zip(words_b).take_while(|(a, b)| a == b).count() * 8;
    let rest = |all: &[u8]| -> usize { all.len().min(words) };
    let (a, b) = (a.get(rest(a)..).unwrap_or_default(), b.get(rest(b)..).unwrap_or_default());
    words + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Finds frames by their names as written, with the annotation.
fn frame(known: &mut Known<FrameId>, name: &[u8], names: &Names) -> FrameId {
    known.get(name, || {
        let (text, kind) = parse_frame(name);
        names.intern_named(names.labels.intern(&text, "", kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Capabilities;

    /// Returns each sample as `kind name;… weight`, and the report.
    fn read_all(input: &[u8]) -> (Vec<String>, ReadReport) {
        let names = Names::default();
        let mut profile = Profile::fixed(Capabilities::STACKS);
        let report = read(input, &names, &mut profile, None).unwrap();
        let text = |sample: &Sample| {
            let mut frames = Vec::new();
            for frame in profile.stacks.frames(sample.stack) {
                names.labels_of(frame, |label| {
                    let label = names.labels.get(label).unwrap();
                    let kind = if label.kind == FrameKind::User { "" } else { label.kind.annotation() };
                    frames.push(format!("{}{kind}", label.name));
                });
            }
            frames.reverse();
            assert_eq!(sample.source, EventSource::FILE);
            format!("{} {}", frames.join(";"), sample.weight)
        };
        let samples = profile.samples.slices_from(0).flatten().map(text).collect();
        (samples, report)
    }

    #[test]
    fn stacks_that_begin_alike_are_read_as_they_stand() {
        let input = "a;b;c 1\na;b;cc 2\na;b 3\na;b;c;d 4\nab;c 5\na;b;c;d 6\na 7\na; 8\na;;b 9\nb_[k];c_[i] 10\nb_[k];c_[j] 11\n";
        let (samples, report) = read_all(input.as_bytes());
        let expected = input.replace("a; 8", "a;[unknown] 8").replace("a;;b 9", "a;[unknown];b 9");
        assert_eq!(samples, expected.lines().collect::<Vec<_>>());
        assert_eq!((report.lines, report.stacks, report.total, report.nonsense), (11, 11, 66, 0));
    }

    #[test]
    fn lines_that_wait_for_each_other_stay_in_order_and_find_what_they_share() {
        // Some lines share all or half with the line before, most do not. The pattern repeats many times.
        let line = |n: usize| match n % 5 {
            0 => format!("r{};a;b{};c {}", n % 7, n % 3, n + 1),
            1 => format!("r{};a;b{};c;d{} {}", (n - 1) % 7, (n - 1) % 3, n % 11, n + 1),
            2 => format!("{};x 1", n % 13),
            3 => format!("r{} 3", n % 7),
            _ => format!("s;{};t;{} 2", n % 4, n % 2),
        };
        let lines: Vec<String> = (0..1003).map(line).collect();
        let (samples, report) = read_all(lines.join("\n").as_bytes());
        assert_eq!(samples, lines);
        assert_eq!(report.stacks, 1003);
        let (names, mut profile) = (Names::default(), Profile::fixed(Capabilities::STACKS));
        read(lines.join("\n").as_bytes(), &names, &mut profile, None).unwrap();
        let mut nodes = std::collections::BTreeSet::new();
        for line in &lines {
            let (stack, _) = line.rsplit_once(' ').unwrap();
            nodes.extend(stack.match_indices(';').map(|(at, _)| &stack[..at]).chain([stack]));
        }
        assert_eq!(profile.stacks.len(), nodes.len() + 1, "each stack has one node, and the empty one");
    }

    #[test]
    fn what_is_no_stack_is_left_out_and_counted() {
        let (samples, report) = read_all(b"\xef\xbb\xbf\n# made by hand: 12\na;b 1\r\n 12\nwhat\n\nc 2");
        assert_eq!(samples, ["a;b 1", "c 2"]);
        assert_eq!((report.comments, report.nonsense, report.first_nonsense), (1, 2, Some(4)));
        assert_eq!(report.to_string(), "2 stacks; 2 lines skipped: not stacks (first: line 4)");
    }

    #[test]
    fn rounding_keeps_the_sum_and_leaves_whole_counts_alone() {
        // The first lines have whole counts.
        let whole = "b 7\n".repeat(FIRST_LINES);
        let (samples, report) = read_all(format!("{whole}a 0.4\na 0.4\nb 7\na 0.4\na 0.4\nc 2.5\nb 7\n").as_bytes());
        assert_eq!(samples[FIRST_LINES..], ["a 1", "b 7", "a 1", "c 2", "b 7"]);
        assert_eq!((report.total, report.fractional, report.decimals), (7018, 5, 0));
        assert!(report.to_string().ends_with("counts with fractions were rounded"), "{report}");
    }

    #[test]
    fn counts_below_one_are_multiplied_and_none_is_lost() {
        let (samples, report) = read_all(b"foo;bar 0.156\nfoo;a;bar 0.98\nfoo;b;bar 0.343\nfoo;c;bar 0.888\n");
        assert_eq!(samples, ["foo;bar 156", "foo;a;bar 980", "foo;b;bar 343", "foo;c;bar 888"]);
        assert_eq!((report.decimals, report.fractional), (3, 0));
        assert_eq!(report.to_string(), "4 stacks; counts have fractions and were multiplied by 1000");
        // Only three digits are needed.
        let (samples, report) = read_all(b"a 12.54321\nb 1000.25\nc 0\n");
        assert_eq!((samples, report.decimals), (vec!["a 125".to_owned(), "b 10003".to_owned()], 1));
    }

    #[test]
    fn a_difference_is_read_as_both_its_sides() {
        let (names, mut now) = (Names::default(), Profile::fixed(Capabilities::STACKS));
        let mut before = Profile::fixed(Capabilities::STACKS);
        let report = read(&b"a;b 12 31\na;c 5 5\nd 0 9\ne 3 0\n"[..], &names, &mut now, Some(&mut before)).unwrap();
        assert!(report.is_difference && report.stacks == 4 && report.nonsense == 0, "{report:?}");
        let weights =
            |profile: &Profile| profile.samples.slices_from(0).flatten().map(|sample| sample.weight).collect::<Vec<_>>();
        assert_eq!((weights(&now), weights(&before)), (vec![31, 5, 9], vec![12, 5, 3]));
        // A line with one count among lines with two is nonsense.
        let (_, report) = read_all(format!("{}f 4\n", "a 1 2\n".repeat(FIRST_LINES)).as_bytes());
        assert_eq!((report.is_difference, report.nonsense, report.total), (true, 1, 2000));
        // Names may end with a number, unless all of them do.
        let (samples, report) = read_all(b"a;b 12 31\na;c 5\n");
        assert!(!report.is_difference);
        assert_eq!(samples, ["a;b 12 31", "a;c 5"]);
    }

    #[test]
    fn counts_in_nanoseconds_fit() {
        let (samples, report) = read_all(b"a 10000000000\nb 4294967295\nc 0\n");
        assert_eq!(samples, ["a 10000000000", "b 4294967295"]);
        assert_eq!((report.stacks, report.total), (3, 14_294_967_295));
    }

    #[test]
    fn a_count_is_a_number_of_observations() {
        let mut profile = Profile::fixed(Capabilities::STACKS);
        read(&b"a;b 43\na 9999999999\n"[..], &Names::default(), &mut profile, None).unwrap();
        let seen: Vec<(u64, u32)> =
            profile.samples.slices_from(0).flatten().map(|sample| (sample.weight, sample.observations)).collect();
        assert!(seen.contains(&(43, 43)) && seen.contains(&(9_999_999_999, u32::MAX)), "{seen:?}");
    }

    #[test]
    fn counts_too_large_to_add_up_are_refused() {
        let mut profile = Profile::fixed(Capabilities::STACKS);
        let error = read(&b"a 1\nb 18446744073709551615\n"[..], &Names::default(), &mut profile, None).unwrap_err();
        let said = error.to_string();
        assert_eq!(said, "the counts up to line 2 add up to more than 9.2e18; scale them down, to microseconds for instance");
        assert_eq!(profile.samples.len(), 1);
    }

    #[test]
    fn hostile_names_are_made_safe_and_short() {
        let long = "n".repeat(10_000);
        let input = [b"\x1b[31mred;\xff\xfe;".as_slice(), long.as_bytes(), b" 1\n"].concat();
        let (samples, _) = read_all(&input);
        assert_eq!(samples, [format!("·[31mred;\u{fffd}\u{fffd};{}… 1", "n".repeat(4096))]);
    }

    #[test]
    fn a_file_without_a_stack_says_what_was_expected() {
        let mut profile = Profile::fixed(Capabilities::STACKS);
        let error = read(&b"a;b 3\n  {\n \"endValue\": \x1b14,\n}\n"[..], &Names::default(), &mut profile, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "only 1 of 4 lines are folded stacks, such as `main;parse;read 42`, so this is another kind of file; line 2 is `{`"
        );
        let error = read(&b"hello\nworld\n"[..], &Names::default(), &mut profile, None).unwrap_err();
        assert!(error.to_string().starts_with("none of the 2 lines is a folded stack; expected frames joined by"), "{error}");
    }

    #[test]
    fn common_prefixes_are_found_at_every_length() {
        for length in 0..40 {
            let a = vec![b'x'; length];
            assert_eq!(common_prefix(&a, &[b'x'; 20]), length.min(20));
            let mut b = a.clone();
            b.push(b'y');
            assert_eq!(common_prefix(&[a.as_slice(), b"zzzzzzzzzz"].concat(), &b), length);
        }
    }
}
