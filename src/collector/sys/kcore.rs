//! The address of the kernel's direct map, and the signature bits of code addresses.

use std::ops::Range;

use crate::object::headers::{FileHeader, PT_LOAD, ProgramHeader};

/// Returns the bits of a code address that may be its signature (pointer authentication) on this processor; 0 without signatures.
///
/// The position of these bits depends on the kernel's largest address space. The instruction that removes signatures shows them; on a
/// processor without signatures it does nothing.
#[cfg(target_arch = "aarch64")]
pub(crate) fn signature_mask() -> u64 {
    // Bit 55 selects the half of the address space. The signature's bits are set to the same value: 0 for user addresses.
    let signed = !(1u64 << 55);
    let mut address = signed;
    // SAFETY: xpaclri (hint 7) changes only x30, which is declared as changed. It touches neither memory nor flags.
    unsafe { std::arch::asm!("hint 7", inout("x30") address, options(nomem, nostack, preserves_flags)) };
    address ^ signed
}

/// Code addresses of x86_64 have no signatures.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn signature_mask() -> u64 {
    0
}

/// Returns the difference between the kernel's address of memory and its physical address; 0 if it is unknown. On arm64 it is also 0 if
/// pages are not of 4 KiB, or if addresses are not of 48 bits.
///
/// The program headers of `/proc/kcore` have both addresses of each piece of memory. The kernel itself is mapped a second time, behind all
/// memory (Documentation/arch/arm64/memory.rst, Documentation/arch/x86/x86_64/mm.rst).
pub(crate) fn linear_offset() -> u64 {
    use std::io::Read as _;
    let mut headers = vec![0; 64 << 10];
    let read = std::fs::File::open("/proc/kcore").and_then(|mut file| file.read(&mut headers));
    let headers = headers.get(..read.unwrap_or(0)).unwrap_or_default();
    if rustix::param::page_size() == 4096 { linear_offset_of(headers, LINEAR).unwrap_or(0) } else { 0 }
}

/// Addresses of the direct map: the lower half of the kernel's addresses, with 48 bits.
#[cfg(target_arch = "aarch64")]
const LINEAR: Range<u64> = 0xffff_0000_0000_0000..0xffff_8000_0000_0000;
/// Addresses of the direct map, with 48 or 57 bits: all of the kernel's addresses but the last 2 GiB, which hold the kernel itself.
#[cfg(target_arch = "x86_64")]
const LINEAR: Range<u64> = 0xff00_0000_0000_0000..0xffff_ffff_8000_0000;

/// Returns the difference for the lowest memory in that range, from the first bytes of an ELF file.
fn linear_offset_of(headers: &[u8], range: Range<u64>) -> Option<u64> {
    let mut lowest: Option<(u64, u64)> = None;
    for header in FileHeader::parse(headers).ok()?.program_headers_in(headers) {
        let ProgramHeader { kind, address, physical, .. } = header;
        // Segments that are not memory have no physical address, or -1.
        let is_memory = kind == PT_LOAD && physical != u64::MAX;
        if is_memory && range.contains(&address) && lowest.is_none_or(|(before, _)| address < before) {
            lowest = Some((address, address.wrapping_sub(physical)));
        }
    }
    lowest.map(|(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_the_kernel_and_from_what_is_none() {
        // The segments of /proc/kcore: the kernel's text, the vmalloc area without an address, and memory in two pieces.
        let kcore = |segments: [(u64, u64); 4]| {
            let mut file = vec![0; 64];
            file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            file[32..40].copy_from_slice(&64u64.to_le_bytes());
            file[56..58].copy_from_slice(&4u16.to_le_bytes());
            for (address, physical) in segments {
                let header = [1, 0, address, physical, 0, 0, 0u64];
                file.extend(header.iter().flat_map(|word| word.to_le_bytes()));
            }
            file
        };
        let file = kcore([
            (0xffff_8000_8001_0000, 0x4021_0000),
            (0xffff_8000_8000_0000, u64::MAX),
            (0xffff_0000_0000_0000, 0x4000_0000),
            (0xffff_0000_4000_0000, 0x8000_0000),
        ]);
        let half = || 0xffff_0000_0000_0000..0xffff_8000_0000_0000;
        assert_eq!(linear_offset_of(&file, half()), Some(0xfffe_ffff_c000_0000));
        // A file that was cut, and bytes that are no ELF file.
        assert_eq!(linear_offset_of(&file[..64 + 56], half()), None);
        assert_eq!(linear_offset_of(&file[..40], half()), None);
        assert_eq!(linear_offset_of(&[], half()), None);
        // x86_64, with a direct map at a random address.
        #[cfg(target_arch = "x86_64")]
        {
            let file = kcore([
                (0xffff_ffff_9b00_0000, 0x2b00_0000),
                (0xffff_a5a9_4000_0000, u64::MAX),
                (0xffff_9d1a_8000_1000, 0x1000),
                (0xffff_9d1b_8000_0000, 0x1_0000_0000),
            ]);
            assert_eq!(linear_offset_of(&file, LINEAR), Some(0xffff_9d1a_8000_0000));
        }
    }
}
