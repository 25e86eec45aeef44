//! Where fields are in the structures of a libjvm.so.

use super::tables::{self, Field, SYMBOLS};
use crate::runtimes::Memory;

/// A libjvm.so whose methods cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// Its JDK: 17. 0: not known.
    pub version: u32,
    /// The field that its tables lack.
    pub missing: &'static str,
}

/// Where the code of a CodeBlob is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CodePlace {
    /// A field has the address.
    Address(Field),
    /// A field has the distance from the blob.
    Distance(Field),
}

/// Where the debug information of compiled code is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scopes {
    /// Up to JDK 22, in the nmethod: distances of the PcDescs and of what follows them, the address of the scopes, the distance of the metadata.
    Inside { pcs: Field, end: Field, data: Field, metadata: Field },
    /// From JDK 25 on, outside: the address of a block with PcDescs and scopes, its size, their distances in it. The metadata is behind the
    /// relocations in another block.
    Outside { block: Field, size: Field, pcs: Field, data: Field, mutable: Field, relocations: Field },
}

/// Offsets in the structures of one build of HotSpot. The addresses are of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The JDK: 17.
    pub version: u32,
    /// The address of the variable that leads to the list of code heaps.
    pub(super) heaps: u64,
    /// In that list: how many, and where they are.
    pub(super) list_length: Field,
    pub(super) list_data: Field,
    /// In a code heap: the bounds of its memory, those of its map of segments, and the logarithm of a segment's size.
    pub(super) heap_low: Field,
    pub(super) heap_high: Field,
    pub(super) heap_segments: Field,
    pub(super) heap_shift: Field,
    /// Bytes before a CodeBlob.
    pub(super) block_header: u64,
    pub(super) blob_name: Field,
    pub(super) blob_frame_size: Field,
    /// In a CodeBlob: the bytes of its code until its frame is whole.
    pub(super) blob_complete: Field,
    pub(super) blob_code: CodePlace,
    pub(super) method: Field,
    pub(super) compile_id: Field,
    /// `None`: it is not known how this version keeps them.
    pub(super) scopes: Option<Scopes>,
    /// In a CodeBlob, the address of its oop maps, and in those, their number.
    pub(super) oop_maps: Option<(Field, Field)>,
    pub(super) pc_desc_size: u64,
    pub(super) pc_desc_pc: Field,
    pub(super) pc_desc_scope: Field,
    pub(super) const_method: Field,
    pub(super) constants: Field,
    pub(super) code_size: Field,
    pub(super) name_index: Field,
    pub(super) signature_index: Field,
    pub(super) flags: Field,
    pub(super) const_method_size: u64,
    pub(super) holder: Field,
    /// Up to JDK 14 in the class, later in its pool of constants.
    pub(super) source_file_index: SourceFile,
    pub(super) pool_size: u64,
    pub(super) class_name: Field,
    /// In a Symbol: its bytes, and their number.
    pub(super) symbol_body: Field,
    pub(super) symbol_length: Field,
}

/// Where the index of the name of a source file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SourceFile {
    InPool(Field),
    InClass(Field),
}

impl Layout {
    /// The names of the symbols that [`Layout::read`] needs.
    pub const SYMBOLS: [&str; SYMBOLS.len()] = SYMBOLS;

    /// Reads the layout out of the memory of a process. `symbols` are the addresses of [`Layout::SYMBOLS`]. Returns `None` if the tables are not
    /// there yet.
    pub fn read(memory: &impl Memory, symbols: &[u64; SYMBOLS.len()]) -> Option<Result<Layout, Unfit>> {
        let tables = tables::read(memory, symbols)?;
        let version = tables.get("Abstract_VM_Version._vm_major_version").and_then(|field| memory.u32(field.offset));
        Some(Layout::of(version.unwrap_or(0), |name| tables.get(name).copied()))
    }

    /// Makes the layout of a version. `value` returns a field (`Method._constMethod`) or a type (`Method`).
    ///
    /// # Errors
    ///
    /// The field that is missing.
    pub fn of(version: u32, value: impl Fn(&'static str) -> Option<Field>) -> Result<Layout, Unfit> {
        Layout::from(version, &value).map_err(|missing| Unfit { version, missing })
    }

    /// Returns the layout with all addresses moved by a distance, as in another process that has mapped the same file elsewhere.
    #[must_use]
    pub fn moved_by(mut self, distance: u64) -> Layout {
        self.heaps = self.heaps.wrapping_add(distance);
        self
    }

    fn from(version: u32, value: &impl Fn(&'static str) -> Option<Field>) -> Result<Layout, &'static str> {
        let field = |name: &'static str| value(name).ok_or(name);
        let size = |name: &'static str| field(name).map(|size| size.offset);
        let either = |one: &'static str, other: &'static str| field(one).or_else(|_| field(other));
        let within = |outer: &'static str, inner: &'static str| {
            let (outer, inner) = (field(outer)?, field(inner)?);
            Ok::<Field, &'static str>(Field { offset: outer.offset.wrapping_add(inner.offset), width: inner.width })
        };
        Ok(Layout {
            version,
            heaps: field("CodeCache._heaps")?.offset,
            list_length: either("GrowableArrayBase._len", "GenericGrowableArray._len")?,
            list_data: field("GrowableArray<int>._data")?,
            heap_low: within("CodeHeap._memory", "VirtualSpace._low_boundary")?,
            heap_high: within("CodeHeap._memory", "VirtualSpace._high_boundary")?,
            heap_segments: within("CodeHeap._segmap", "VirtualSpace._low_boundary")?,
            heap_shift: field("CodeHeap._log2_segment_size")?,
            block_header: size("HeapBlock")?,
            blob_name: field("CodeBlob._name")?,
            blob_frame_size: field("CodeBlob._frame_size")?,
            blob_complete: field("CodeBlob._frame_complete_offset")?,
            blob_code: match value("CodeBlob._code_begin") {
                Some(begin) => CodePlace::Address(begin),
                None => CodePlace::Distance(field("CodeBlob._code_offset")?),
            },
            method: either("nmethod._method", "CompiledMethod._method")?,
            compile_id: field("nmethod._compile_id")?,
            scopes: Scopes::of(value),
            oop_maps: value("CodeBlob._oop_maps").zip(value("ImmutableOopMapSet._count")),
            pc_desc_size: size("PcDesc")?,
            pc_desc_pc: field("PcDesc._pc_offset")?,
            pc_desc_scope: field("PcDesc._scope_decode_offset")?,
            const_method: field("Method._constMethod")?,
            constants: field("ConstMethod._constants")?,
            code_size: field("ConstMethod._code_size")?,
            name_index: field("ConstMethod._name_index")?,
            signature_index: field("ConstMethod._signature_index")?,
            flags: either("ConstMethod._flags", "ConstMethod._flags._flags")?,
            const_method_size: size("ConstMethod")?,
            holder: field("ConstantPool._pool_holder")?,
            source_file_index: match value("ConstantPool._source_file_name_index") {
                Some(index) => SourceFile::InPool(index),
                None => SourceFile::InClass(field("InstanceKlass._source_file_name_index")?),
            },
            pool_size: size("ConstantPool")?,
            class_name: field("Klass._name")?,
            symbol_body: field("Symbol._body")?,
            symbol_length: match value("Symbol._length") {
                Some(length) => length,
                // The number is its upper half.
                None => {
                    let both = field("Symbol._length_and_refcount")?;
                    Field { offset: both.offset.wrapping_add(2), width: 2 }
                }
            },
        })
    }
}

impl Scopes {
    fn of(field: &impl Fn(&'static str) -> Option<Field>) -> Option<Scopes> {
        let pcs = field("nmethod._scopes_pcs_offset")?;
        if let Some(data) = field("CompiledMethod._scopes_data_begin") {
            let (end, metadata) = (field("nmethod._dependencies_offset")?, field("nmethod._metadata_offset")?);
            return Some(Scopes::Inside { pcs, end, data, metadata });
        }
        Some(Scopes::Outside {
            block: field("nmethod._immutable_data")?,
            size: field("nmethod._immutable_data_size")?,
            pcs,
            data: field("nmethod._scopes_data_offset")?,
            mutable: field("CodeBlob._mutable_data")?,
            relocations: field("CodeBlob._relocation_size")?,
        })
    }
}

impl Field {
    /// Reads the field of a structure.
    pub(super) fn of(self, memory: &impl Memory, structure: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let width = usize::from(self.width);
        let is_read = memory.read(structure.checked_add(self.offset)?, bytes.get_mut(..width)?);
        is_read.then_some(u64::from_le_bytes(bytes))
    }

    /// Reads the field of a structure, a distance.
    pub(super) fn distance(self, memory: &impl Memory, structure: u64) -> Option<u64> {
        let value = self.of(memory, structure)?;
        Some(if self.width == 4 { i64::from(value as u32 as i32) as u64 } else { value })
    }
}
