//! The source maps of scripts. The first question about a line of a script reads its map.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::hosts::Hosts;
use super::map::{self, Map, Place};
use super::text;
use crate::locks::lock;
use crate::profile::{Object, ObjectId, SourceLocation, sanitize};

/// Most scripts whose maps, or lack of one, are remembered, and the bytes of all maps.
const MAX_SCRIPTS: usize = 64;
const MAX_BYTES: usize = 32 << 20;

/// Maps of scripts, the last used ones last.
#[derive(Default)]
pub(crate) struct SourceMaps(Mutex<VecDeque<(ObjectId, Found)>>);

/// The map of a script. `None` if it names none, or why its map cannot be used.
type Found = Option<Result<Arc<MapOfScript>, Arc<str>>>;

/// The map of a script, and the path that the names of its sources begin at.
struct MapOfScript {
    map: Map,
    path: String,
}

impl MapOfScript {
    /// Returns the path of a source, safe to print. Not kept: a long path before each of many short names would take much memory.
    fn path_of(&self, source: &str) -> Arc<str> {
        match map::path_of(source) {
            Some(named) => sanitize(&map::beside(&self.path, named)).into(),
            None => sanitize(source).into(),
        }
    }
}

/// A script, and where its files are found.
#[derive(Clone, Copy)]
pub(crate) struct Script<'a> {
    pub(crate) id: ObjectId,
    pub(crate) about: &'a Object,
    pub(crate) hosts: &'a Hosts,
}

impl SourceMaps {
    /// Returns what a line of a script was made from: without a column, what the line begins with.
    pub(crate) fn original(&self, script: Script<'_>, line: u32, column: Option<u32>) -> Option<SourceLocation> {
        let found = self.of(script)?.ok()?;
        let (source, line) = found.map.original(line, column)?;
        Some(SourceLocation { file: found.path_of(found.map.sources.get(source)?), line })
    }

    /// Returns the text of a source of a script, if the map has it.
    pub(crate) fn content(&self, script: Script<'_>, source: &str) -> Option<String> {
        let found = self.of(script)?.ok()?;
        let number = found.map.sources.iter().position(|known| *found.path_of(known) == *source)?;
        let (_, bytes) = read(script)?.ok()?;
        Map::content(&bytes, number)
    }

    /// Returns why the map of a script cannot be used.
    pub(crate) fn fault(&self, script: Script<'_>) -> Option<Arc<str>> {
        self.of(script)?.err()
    }

    /// Returns the bytes of memory that the maps take.
    pub(crate) fn size(&self) -> usize {
        lock(&self.0).iter().map(|(_, found)| size_of(found)).sum()
    }

    fn of(&self, script: Script<'_>) -> Found {
        {
            let mut known = lock(&self.0);
            if let Some(at) = known.iter().position(|(id, _)| *id == script.id) {
                let entry = known.remove(at)?;
                known.push_back(entry.clone());
                return entry.1;
            }
        }
        // Files may not answer for a while.
        let found = find(script).map(|found| found.map(Arc::new).map_err(Arc::from));
        let mut known = lock(&self.0);
        known.push_back((script.id, found.clone()));
        while known.len() > MAX_SCRIPTS
            || known.len() > 1 && known.iter().map(|(_, found)| size_of(found)).sum::<usize>() > MAX_BYTES
        {
            known.pop_front();
        }
        found
    }
}

fn size_of(found: &Found) -> usize {
    match found {
        Some(Ok(found)) => found.map.size() + found.path.len(),
        _ => 0,
    }
}

fn find(script: Script<'_>) -> Option<Result<MapOfScript, String>> {
    Some(read(script)?.and_then(|(path, bytes)| {
        let map = Map::parse(&bytes).map_err(|why| format!("{path}: {why}"))?;
        Ok(MapOfScript { map, path })
    }))
}

/// Reads a script's map, and returns the file that it is in. `None` if the script names no map, or cannot be read itself.
fn read(script: Script<'_>) -> Option<Result<(String, Vec<u8>), String>> {
    let Script { id, about, hosts } = script;
    let read = |path: &str| text::bytes(path, &hosts.of(id), Some(about), map::MAX_SIZE).map(|(bytes, _)| bytes);
    let found = map::place_of(&read(&about.path).ok()?)?;
    Some(found.and_then(|place| match place {
        Place::Inside(bytes) => Ok((about.path.to_string(), bytes)),
        Place::File(named) => {
            let path = map::beside(&about.path, &named);
            read(&path).map(|bytes| (path, bytes))
        }
    }))
}
