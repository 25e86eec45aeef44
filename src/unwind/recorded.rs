//! Walks copies of stacks that another program has recorded, by the tables of files on this machine.
//!
//! ```text
//! object ─ `mapped_file` (same build id, or device and inode) ─► image ─ `convert_in_steps` ─► table, kept
//! ```
//!
//! Tables are made of descriptions alone, not of machine code: nobody waits for them longer than it takes to read a file.

use rustc_hash::FxHashMap;

use super::control::Control;
use super::convert::convert_in_steps;
use super::debug_frame_files::{Beside, Nowhere, OnDisk};
use super::table::packed::Packed;
use super::table::rows::{Row, Table};
use super::walk::At;
use crate::object::bytes::Source;
use crate::object::elf::Image;
use crate::object::mapped_file::{self, US};
use crate::object::open::Root;
use crate::object::vdso;
use crate::profile::{FileOffset, Names, Object, ObjectId, ObjectKind};

/// Most bytes of tables. A file names objects as it likes, and the tables of the largest programs have some 15 MB.
const MOST_BYTES: usize = 256 << 20;

/// The unwind tables of objects.
#[derive(Default)]
pub(crate) struct FileTables {
    /// `None` for an object whose file is not here, or whose table found no room.
    tables: FxHashMap<ObjectId, Option<FileTable>>,
    bytes: usize,
}

struct FileTable {
    /// Only converts offsets to addresses: its file is closed.
    image: Image,
    table: Table,
}

impl FileTables {
    /// Returns the rule at an offset in an object. Code of an object that is not here is a gap.
    pub(crate) fn rule(&mut self, names: &Names, object: ObjectId, offset: FileOffset) -> At {
        let room = MOST_BYTES.saturating_sub(self.bytes);
        let table = self.tables.entry(object).or_insert_with(|| {
            let table = names.objects.get(object).and_then(FileTable::of).filter(|table| table.bytes() <= room);
            self.bytes += table.as_ref().map_or(0, FileTable::bytes);
            table
        });
        let rule = table.as_ref().and_then(|of| Some(of.table.lookup(of.image.elf_address(offset)?.0)));
        At::Rule(rule.unwrap_or(Packed::GAP))
    }
}

impl FileTable {
    fn of(object: &Object) -> Option<FileTable> {
        let (mut image, beside): (Image, Box<dyn Beside>) = match object.kind {
            ObjectKind::Vdso => (vdso::read().ok()?, Box::new(Nowhere)),
            _ => {
                let image = mapped_file::open_image(object, &[]).ok()?.image;
                let directory = std::path::Path::new(mapped_file::path_of(object)).parent().map(ToOwned::to_owned);
                let build_id = image.build_id();
                (image, Box::new(OnDisk::under(US, Root::Own, directory, build_id)))
            }
        };
        let mut table = None;
        convert_in_steps(&image.source, &*beside, &Described, &mut |step| table = Some(step.table.clone())).ok()?;
        // Its file is given back: a recording names as many files as it likes.
        image.source = Source::Memory(Box::default());
        table.map(|table| FileTable { image, table })
    }

    fn bytes(&self) -> usize {
        self.table.rows.len() * size_of::<Row>() + self.table.rules.len() * size_of::<Packed>()
    }
}

/// A caller that wants the rules of descriptions only. They are in the first table.
struct Described;

impl Control for Described {
    fn keep_going(&self) -> bool {
        false
    }

    fn take_hints(&self, _: &mut Vec<u64>) {}
}
