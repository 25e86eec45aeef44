//! Finds events, records and features in the file.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::formats::FormatError;
use crate::formats::packed::{ZSTD, unpack};
use crate::profile::BuildId;

use super::record::{Attribute, kinds::FIRST_OF_PERF};

pub(super) const MAGIC: &[u8] = b"PERFILE2";

/// Most events of a file.
const MOST_EVENTS: usize = 1 << 12;
/// Smallest attribute: its first version.
const SMALLEST_ATTRIBUTE: usize = 64;

/// Types of records that perf adds to those of the kernel.
mod kinds {
    pub(super) const ATTRIBUTE: u32 = 64;
    pub(super) const BUILD_ID: u32 = 67;
    pub(super) const FEATURE: u32 = 80;
    pub(super) const COMPRESSED: u32 = 81;
    pub(super) const COMPRESSED_2: u32 = 83;
}

/// Bits of features.
mod features {
    pub(super) const BUILD_ID: u32 = 2;
    pub(super) const HOST_NAME: u32 = 3;
    pub(super) const RELEASE: u32 = 4;
    pub(super) const ARCHITECTURE: u32 = 6;
    pub(super) const CPUS: u32 = 7;
    pub(super) const EVENTS: u32 = 12;
    pub(super) const CLOCK: u32 = 29;
}

/// An empty block that ends a frame of zstd (RFC 8878, 3.1.1.2).
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

/// An event that was recorded.
pub(super) struct Event {
    pub(super) attribute: Attribute,
    /// Its name, if the file tells it.
    pub(super) name: String,
}

/// A record: its place in [`Container::bytes`] is that of its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) kind: u32,
    pub(super) misc: u16,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Record {
    /// Reads the header at a place; `None` if the record does not end before `end`.
    fn at(bytes: &[u8], at: usize, end: usize) -> Option<Record> {
        let word = small(bytes, at.checked_add(4)?)?;
        let (misc, size) = (word as u16, (word >> 16) as usize);
        (size >= 8 && at + size <= end).then_some(Record { kind: small(bytes, at)?, misc, start: at + 8, end: at + size })
    }
}

/// A file whose parts have been found.
pub(super) struct Container {
    bytes: Vec<u8>,
    pub(super) events: Vec<Event>,
    /// In the order of the file.
    pub(super) records: Vec<Record>,
    /// Build ids by path.
    pub(super) build_ids: HashMap<Vec<u8>, BuildId, FxBuildHasher>,
    pub(super) host: String,
    pub(super) system: String,
    /// CPUs that were online.
    pub(super) cpus: usize,
    /// Nanoseconds from the clock of samples to the time since 1970.
    pub(super) utc: Option<i64>,
    /// Whether the file ends in the middle of a record.
    pub(super) is_cut: bool,
    /// Numbers of events by id.
    by_id: HashMap<u64, usize, FxBuildHasher>,
    most_ids: usize,
}

impl Container {
    /// Takes the whole file.
    pub(super) fn new(mut bytes: Vec<u8>) -> Result<Container, FormatError> {
        let mut file = Container {
            bytes: Vec::new(),
            events: Vec::new(),
            records: Vec::new(),
            build_ids: HashMap::default(),
            host: String::new(),
            system: String::new(),
            cpus: 0,
            utc: None,
            is_cut: false,
            by_id: HashMap::default(),
            most_ids: bytes.len() / 8,
        };
        // A file that perf did not finish has no size of its records, and no features.
        match number(&bytes, 8).ok_or_else(|| nonsense("its header is cut"))? {
            16 => file.read_pipe(&bytes),
            _ => file.read_file(&bytes)?,
        }
        if file.events.is_empty() {
            return Err(nonsense("it tells no events"));
        }
        let packed = bytes.len();
        bytes.append(&mut file.unpacked(&bytes));
        file.read_records(&bytes, packed, bytes.len());
        file.bytes = bytes;
        Ok(file)
    }

    pub(super) fn body(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.start..record.end).unwrap_or_default()
    }

    /// Returns the number of a record's event, and the event. A record of no known event is one of the first.
    pub(super) fn event_of(&self, record: &Record) -> Option<(usize, &Event)> {
        let first = self.events.first()?;
        let id = if self.events.len() > 1 { first.attribute.id(record.kind, self.body(record)) } else { None };
        let number = id.and_then(|id| self.by_id.get(&id)).copied().unwrap_or(0);
        Some((number, self.events.get(number)?))
    }

    /// Returns the kernel's records with their times, sorted. A record without a time has that of the one before it in the file.
    pub(super) fn in_order(&self) -> Vec<(u64, &Record)> {
        let mut last = 0;
        let timed = self.records.iter().filter(|record| record.kind < FIRST_OF_PERF).map(|record| {
            let time = self.event_of(record).and_then(|(_, event)| event.attribute.time(record.kind, self.body(record)));
            last = time.unwrap_or(last);
            (last, record)
        });
        let mut timed: Vec<(u64, &Record)> = timed.collect();
        timed.sort_by_key(|(time, _)| *time);
        timed
    }

    fn read_file(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let cut = || nonsense("its header is cut");
        let section =
            |at: usize| Some((usize::try_from(number(bytes, at)?).ok()?, usize::try_from(number(bytes, at + 8)?).ok()?));
        let attribute_size = number(bytes, 16).and_then(|size| usize::try_from(size).ok()).ok_or_else(cut)?;
        let ((attributes, attributes_size), (data, data_size)) = section(24).zip(section(40)).ok_or_else(cut)?;
        if attribute_size < SMALLEST_ATTRIBUTE + 16 {
            return Err(nonsense("its attributes are too small"));
        }
        let attributes = part(bytes, attributes, attributes_size).ok_or_else(|| nonsense("its attributes are not there"))?;
        // Each attribute is followed by the section of its ids.
        for row in attributes.chunks_exact(attribute_size) {
            let (attribute, ids) = row.split_at(attribute_size - 16);
            let place = number(ids, 0)
                .and_then(|at| usize::try_from(at).ok())
                .zip(number(ids, 8).and_then(|size| usize::try_from(size).ok()));
            let ids = place.and_then(|(at, size)| part(bytes, at, size)).unwrap_or_default();
            self.add_event(attribute, ids)?;
        }
        let rest = bytes.get(data..).ok_or_else(|| nonsense("its records are not there"))?;
        let size = if data_size == 0 { rest.len() } else { data_size };
        self.is_cut = size > rest.len();
        self.read_records(bytes, data, data.saturating_add(size).min(bytes.len()));
        let mut at = data.saturating_add(data_size);
        for feature in 0..256u32 {
            let bits = number(bytes, 72 + feature as usize / 64 * 8).unwrap_or(0);
            if data_size == 0 || bits >> (feature % 64) & 1 == 0 {
                continue;
            }
            let Some((offset, size)) = section(at) else { break };
            if let Some(content) = part(bytes, offset, size) {
                self.read_feature(feature, content);
            }
            at += 16;
        }
        Ok(())
    }

    fn read_pipe(&mut self, bytes: &[u8]) {
        self.read_records(bytes, 16, bytes.len());
        for record in self.records.clone() {
            let body = bytes.get(record.start..record.end).unwrap_or_default();
            match record.kind {
                kinds::ATTRIBUTE => {
                    let size =
                        body.get(4..8).and_then(|size| size.first_chunk()).map_or(0, |size| u32::from_le_bytes(*size) as usize);
                    if let Some((attribute, ids)) = body.split_at_checked(size) {
                        // An attribute that makes no sense leaves its samples to the first one.
                        drop(self.add_event(attribute, ids));
                    }
                }
                kinds::FEATURE => {
                    if let Some(feature) = number(body, 0).and_then(|feature| u32::try_from(feature).ok()) {
                        self.read_feature(feature, body.get(8..).unwrap_or_default());
                    }
                }
                kinds::BUILD_ID => self.read_build_id(record.misc, body),
                _ => {}
            }
        }
    }

    fn read_records(&mut self, bytes: &[u8], mut at: usize, end: usize) {
        while at < end {
            let Some(record) = Record::at(bytes, at, end) else {
                self.is_cut = true;
                return;
            };
            at = record.end;
            self.records.push(record);
        }
    }

    /// Unpacks the records that `perf record -z` has packed. Together they are one frame of zstd, without its end.
    fn unpacked(&self, bytes: &[u8]) -> Vec<u8> {
        let body = |record: &Record| bytes.get(record.start..record.end).unwrap_or_default();
        let parts = self.records.iter().filter_map(|record| match record.kind {
            kinds::COMPRESSED => Some(body(record)),
            // | size 8 | bytes, padded |
            kinds::COMPRESSED_2 => body(record).get(8..)?.get(..usize::try_from(number(body(record), 0)?).ok()?),
            _ => None,
        });
        let packed: Vec<u8> = parts.flatten().chain(&LAST_BLOCK).copied().collect();
        let mut unpacked = Vec::new();
        if packed.starts_with(ZSTD)
            && let Ok(mut content) = unpack(&*packed)
        {
            // Records before an error are kept.
            drop(content.content.read_to_end(&mut unpacked));
        }
        unpacked
    }

    fn add_event(&mut self, attribute: &[u8], ids: &[u8]) -> Result<(), FormatError> {
        if self.events.len() == MOST_EVENTS {
            return Err(nonsense("it has too many events"));
        }
        let attribute = Attribute::read(attribute).ok_or_else(|| nonsense("an attribute of an event cannot be read"))?;
        // The ids of several events may be one part of the file: all events together have as many as it has room for.
        let room = self.most_ids.saturating_sub(self.by_id.len());
        let ids = ids.chunks_exact(8).filter_map(|id| number(id, 0)).take(room);
        let number = self.events.len();
        self.by_id.extend(ids.map(|id| (id, number)));
        self.events.push(Event { attribute, name: String::new() });
        Ok(())
    }

    fn read_feature(&mut self, feature: u32, content: &[u8]) {
        let text = || text_of(content, 0).map_or_else(String::new, |(text, _)| text);
        match feature {
            features::BUILD_ID => {
                let mut at = 0;
                while let Some(record) = Record::at(content, at, content.len()) {
                    self.read_build_id(record.misc, content.get(record.start..record.end).unwrap_or_default());
                    at = record.end;
                }
            }
            features::HOST_NAME => self.host = text(),
            features::RELEASE => self.system = text(),
            features::ARCHITECTURE => self.system = format!("{} {}", self.system, text()),
            features::CPUS => self.cpus = small(content, 0).unwrap_or(0) as usize,
            features::EVENTS => self.read_names(content),
            features::CLOCK => {
                // | version 4 | clock 4 | time since 1970 8 | time of the clock 8 |
                let times = number(content, 8).zip(number(content, 16));
                self.utc = times.and_then(|(day, clock)| i64::try_from(day).ok()?.checked_sub(i64::try_from(clock).ok()?));
            }
            _ => {}
        }
    }

    /// Reads `| pid 4 | build id 20 | size 1, where misc has its bit | - 3 | path |`.
    fn read_build_id(&mut self, misc: u16, body: &[u8]) {
        const HAS_SIZE: u16 = 1 << 15;
        let (Some(id), Some(path)) = (body.get(4..24), body.get(28..)) else { return };
        let size = if misc & HAS_SIZE == 0 { 20 } else { body.get(24).map_or(0, |size| usize::from(*size).min(20)) };
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(id) = id.get(..size).and_then(BuildId::new) {
            self.build_ids.insert(path.to_vec(), id);
        }
    }

    /// Reads the names of events: `| count 4 | size of an attribute 4 |`, then for each `| attribute | ids 4 | name | ids… |`.
    fn read_names(&mut self, content: &[u8]) {
        let Some((count, size)) = small(content, 0).zip(small(content, 4)) else { return };
        let mut at = 8usize;
        for event in (0..count as usize).take(MOST_EVENTS) {
            let Some(after) = at.checked_add(size as usize) else { return };
            let Some(ids) = small(content, after) else { return };
            let Some((name, next)) = text_of(content, after + 4) else { return };
            let first = if ids > 0 { number(content, next) } else { None };
            let known = first.and_then(|id| self.by_id.get(&id)).copied().unwrap_or(event);
            if let Some(event) = self.events.get_mut(known) {
                event.name = name;
            }
            let Some(next) = next.checked_add(ids as usize * 8) else { return };
            at = next;
        }
    }
}

fn part(bytes: &[u8], at: usize, size: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(size)?)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn small(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the text at a place, `| size 4 | text, padded with zeros |`, and the place after it.
fn text_of(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let size = small(bytes, at)? as usize;
    let text = part(bytes, at + 4, size)?;
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Some((crate::profile::sanitize(&String::from_utf8_lossy(text)).into_owned(), at + 4 + size))
}

pub(super) fn nonsense(what: &str) -> FormatError {
    FormatError::PerfData { what: what.to_owned() }
}
