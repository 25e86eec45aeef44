//! Where a function begins and ends that has no symbol: its unwind information says so, and strip(1) leaves that.
//!
//! ```text
//! .eh_frame_hdr   first address → FDE, sorted           found by its segment, PT_GNU_EH_FRAME
//! .eh_frame       FDE: first address, length            in the segment that has its address
//! ```

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};

use crate::object::bytes::Source;
use crate::object::numbers::{u16_at, u32_at, u64_at};
use crate::profile::ElfAddress;

const PHDR: usize = 56;
const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// Chromium has 20 MB of it.
const MAX_FRAMES: u64 = 64 << 20;
const MAX_HEADER: u64 = 32 << 20;

/// A segment: its addresses and where it begins in the file.
struct Segment {
    kind: u32,
    addresses: Range<u64>,
    offset: u64,
}

/// The function that holds an address.
pub(super) fn function_around(source: &Source, address: ElfAddress) -> Option<Range<u64>> {
    let segments = segments(source)?;
    let header = segments.iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
    let size = header.addresses.end - header.addresses.start;
    let bytes = source.read(header.offset, size, MAX_HEADER).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.addresses.start);
    let parsed = EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(frames_at) = parsed.eh_frame_ptr() else { return None };
    let holds = |segment: &&Segment| segment.kind == PT_LOAD && segment.addresses.contains(&frames_at);
    let segment = segments.iter().find(holds)?;
    let length = (segment.addresses.end - frames_at).min(MAX_FRAMES);
    let frames = source.read(segment.offset.checked_add(frames_at - segment.addresses.start)?, length, MAX_FRAMES).ok()?;
    let frames = EhFrame::new(&frames, LittleEndian);
    let bases = bases.set_eh_frame(frames_at);
    let function = parsed.table()?.fde_for_address(&frames, &bases, address.0, EhFrame::cie_from_offset).ok()?;
    let end = function.initial_address().checked_add(function.len())?;
    Some(function.initial_address()..end).filter(|range| range.contains(&address.0))
}

fn segments(source: &Source) -> Option<Vec<Segment>> {
    let header = source.read(0, 64, 64).ok()?;
    let (offset, count) = (u64_at(&header, 32)?, u16_at(&header, 56)?);
    let length = u64::from(count) * PHDR as u64;
    let bytes = source.read(offset, length, length).ok()?;
    let segment = |bytes: &[u8]| {
        let (offset, address, size) = (u64_at(bytes, 8)?, u64_at(bytes, 16)?, u64_at(bytes, 32)?);
        Some(Segment { kind: u32_at(bytes, 0)?, addresses: address..address.checked_add(size)?, offset })
    };
    Some(bytes.chunks_exact(PHDR).filter_map(segment).collect())
}
