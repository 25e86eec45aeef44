//! Reads one record of the kernel. Its shape depends on its event's attribute.

use crate::formats::reading::StackCopy;

/// Bits of what a sample has, in `struct perf_event_attr`.
mod has {
    pub(super) const ADDRESS: u64 = 1 << 0;
    pub(super) const THREAD: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const DATA_ADDRESS: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const BRANCHES: u64 = 1 << 11;
    pub(super) const USER_REGISTERS: u64 = 1 << 12;
    pub(super) const USER_STACK: u64 = 1 << 13;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of an attribute's flags.
const FREQUENCY: u64 = 1 << 10;
const EACH_HAS_ID: u64 = 1 << 18;

/// Bits of the address space in a record's `misc`, and its values.
pub(super) const MODE: u16 = 7;
pub(super) const KERNEL: u16 = 1;
pub(super) const USER: u16 = 2;
/// A name that a program got because it runs another file.
const OF_EXEC: u16 = 1 << 13;
/// A mapping whose record has a build id.
const HAS_BUILD_ID: u16 = 1 << 14;
/// A mapping of data, in its old record.
const OF_DATA: u16 = 1 << 13;

/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;
/// The kernel's number of the program counter (`enum perf_event_x86_regs`, `enum perf_event_arm_regs`).
const PC: u32 = if cfg!(target_arch = "aarch64") { 32 } else { 8 };

/// Returns the DWARF number of a general register with this number of the kernel's.
fn dwarf_number(number: u32) -> Option<usize> {
    // ax, bx, cx, dx, si, di, bp, sp.
    const X86: [usize; 8] = [0, 3, 2, 1, 4, 5, 6, 7];
    match number {
        0..32 if cfg!(target_arch = "aarch64") => Some(number as usize),
        _ if cfg!(target_arch = "aarch64") => None,
        // r8 to r15.
        16..24 => Some(number as usize - 8),
        _ => X86.get(number as usize).copied(),
    }
}

/// `PROT_EXEC`.
const EXECUTABLE: u32 = 4;

/// Kinds of records.
pub(super) mod kinds {
    pub(in super::super) const MAPPING: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const NAME: u32 = 3;
    pub(in super::super) const FORK: u32 = 7;
    pub(in super::super) const SAMPLE: u32 = 9;
    pub(in super::super) const MAPPING_2: u32 = 10;
    pub(in super::super) const LOST_SAMPLES: u32 = 13;
    /// From here on, they are perf's own.
    pub(in super::super) const FIRST_OF_PERF: u32 = 64;
}

/// The fields of `struct perf_event_attr` that records are read with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attribute {
    pub(super) kind: u32,
    pub(super) config: u64,
    /// The weight of each sample, if it is the same for all.
    pub(super) period: Option<u64>,
    sample: u64,
    read: u64,
    each_has_id: bool,
    branches: u64,
    user_registers: u64,
}

impl Attribute {
    /// Reads an attribute of any version.
    pub(super) fn read(bytes: &[u8]) -> Option<Attribute> {
        let mut fields = Fields(bytes);
        let (kind, size) = (fields.small()?, fields.small()?);
        let bytes = bytes.get(..(size as usize).min(bytes.len()))?;
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let flags = number(40)?;
        Some(Attribute {
            kind,
            config: number(8)?,
            period: number(16).filter(|period| flags & FREQUENCY == 0 && *period > 0),
            sample: number(24)?,
            read: number(32)?,
            each_has_id: flags & EACH_HAS_ID != 0,
            // Later versions have these.
            branches: number(72).unwrap_or(0),
            user_registers: number(80).unwrap_or(0),
        })
    }

    fn count(&self, fields: u64) -> usize {
        (self.sample & fields).count_ones() as usize * 8
    }

    /// Returns the id of a record's event.
    pub(super) fn id(&self, kind: u32, body: &[u8]) -> Option<u64> {
        let is_first = self.sample & has::IDENTIFIER != 0;
        if !is_first && self.sample & has::ID == 0 {
            return None;
        }
        let at = match (kind, is_first) {
            (kinds::SAMPLE, true) => 0,
            (kinds::SAMPLE, false) => self.count(has::ADDRESS | has::THREAD | has::TIME | has::DATA_ADDRESS),
            (_, _) if !self.each_has_id => return None,
            (_, true) => body.len().checked_sub(8)?,
            (_, false) => body.len().checked_sub(self.count(has::ID | has::STREAM | has::CPU))?,
        };
        Fields(body.get(at..)?).number()
    }

    /// Returns a record's time.
    pub(super) fn time(&self, kind: u32, body: &[u8]) -> Option<u64> {
        if self.sample & has::TIME == 0 {
            return None;
        }
        let at = match kind {
            kinds::SAMPLE => self.count(has::IDENTIFIER | has::ADDRESS | has::THREAD),
            _ if !self.each_has_id => return None,
            _ => {
                let behind = self.count(has::TIME | has::ID | has::STREAM | has::CPU | has::IDENTIFIER);
                body.len().checked_sub(behind)?
            }
        };
        Fields(body.get(at..)?).number()
    }

    /// Reads a sample.
    pub(super) fn sample<'a>(&self, body: &'a [u8]) -> Option<RawSample<'a>> {
        let mut fields = Fields(body);
        let has = |what: u64| self.sample & what != 0;
        let mut sample = RawSample::default();
        if has(has::IDENTIFIER) {
            fields.number()?;
        }
        if has(has::ADDRESS) {
            sample.address = Some(fields.number()?);
        }
        if has(has::THREAD) {
            (sample.tgid, sample.tid) = (fields.small()?, fields.small()?);
        }
        for skipped in [has::TIME, has::DATA_ADDRESS, has::ID, has::STREAM] {
            if has(skipped) {
                fields.number()?;
            }
        }
        if has(has::CPU) {
            sample.cpu = Some(fields.small()?);
            fields.small()?;
        }
        if has(has::PERIOD) {
            sample.period = Some(fields.number()?);
        }
        if has(has::READ) {
            fields.skip_values(self.read)?;
        }
        if has(has::CALLCHAIN) {
            let count = fields.number()?;
            sample.chain = fields.bytes(count.checked_mul(8)?)?;
        }
        if has(has::RAW) {
            let size = fields.small()?;
            fields.bytes(size.into())?;
        }
        if has(has::BRANCHES) {
            const WITH_INDEX: u64 = 1 << 17;
            const WITH_COUNTERS: u64 = 1 << 19;
            let count = fields.number()?;
            if self.branches & WITH_INDEX != 0 {
                fields.number()?;
            }
            let each = if self.branches & WITH_COUNTERS != 0 { 32 } else { 24 };
            fields.bytes(count.checked_mul(each)?)?;
        }
        let mut registers = None;
        if has(has::USER_REGISTERS) {
            let abi = fields.number()?;
            let values = if abi != 0 { fields.bytes(u64::from(self.user_registers.count_ones()) * 8)? } else { &[] };
            registers = self.registers(values).filter(|_| abi == ABI_64);
        }
        if has(has::USER_STACK) {
            let size = fields.number()?;
            if size > 0 {
                let memory = fields.bytes(size)?;
                let copied = usize::try_from(fields.number()?).unwrap_or(usize::MAX).min(memory.len());
                let memory = memory.get(..copied)?;
                sample.has_copy = copied > 0;
                sample.copy = registers.filter(|_| copied > 0).map(|registers| StackCopy { memory, ..registers });
            }
        }
        Some(sample)
    }

    /// Returns the registers of this machine's architecture, without memory. `None` if the program counter or the stack pointer is missing.
    fn registers(&self, values: &[u8]) -> Option<StackCopy<'static>> {
        let mut copy = StackCopy::default();
        let mut has_pc = false;
        let numbers = (0..64).filter(|number| self.user_registers >> number & 1 != 0);
        for (number, value) in numbers.zip(values.as_chunks::<8>().0) {
            let value = u64::from_le_bytes(*value);
            if number == PC {
                (copy.pc, has_pc) = (value, true);
            } else if let Some(number) = dwarf_number(number)
                && let Some(place) = copy.registers.get_mut(number)
            {
                *place = value;
                copy.known |= 1 << number;
            }
        }
        let sp = if cfg!(target_arch = "aarch64") { 31 } else { 7 };
        (has_pc && copy.known >> sp & 1 != 0).then_some(copy)
    }

    /// Whether samples have a time.
    pub(super) fn has_time(&self) -> bool {
        self.sample & has::TIME != 0
    }
}

/// The fields of a sample that become a [`Sample`](crate::profile::Sample).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawSample<'a> {
    pub(super) address: Option<u64>,
    pub(super) tgid: u32,
    pub(super) tid: u32,
    pub(super) cpu: Option<u32>,
    pub(super) period: Option<u64>,
    /// Addresses, innermost first, and marks.
    chain: &'a [u8],
    /// Whether it has a copy of the memory of its user stack.
    pub(super) has_copy: bool,
    /// That copy, if it can be walked.
    pub(super) copy: Option<StackCopy<'a>>,
}

impl RawSample<'_> {
    pub(super) fn chain(&self) -> impl ExactSizeIterator<Item = u64> {
        self.chain.as_chunks::<8>().0.iter().map(|address| u64::from_le_bytes(*address))
    }
}

/// A mapping.
pub(super) struct RawMapping<'a> {
    pub(super) tgid: u32,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) build_id: Option<&'a [u8]>,
    /// Device and inode.
    pub(super) file: Option<(u64, u64)>,
    pub(super) path: &'a [u8],
    pub(super) is_code: bool,
}

impl<'a> RawMapping<'a> {
    pub(super) fn read(kind: u32, misc: u16, body: &'a [u8]) -> Option<RawMapping<'a>> {
        let mut fields = Fields(body);
        let (tgid, _) = (fields.small()?, fields.small()?);
        let (start, size, offset) = (fields.number()?, fields.number()?, fields.number()?);
        let (mut build_id, mut file) = (None, None);
        let is_code = if kind == kinds::MAPPING {
            misc & OF_DATA == 0
        } else {
            let about = fields.bytes(24)?;
            if misc & HAS_BUILD_ID != 0 {
                build_id = about.get(4..)?.get(..usize::from(*about.first()?));
            } else {
                let mut about = Fields(about);
                let device = device(about.small()?, about.small()?);
                file = about.number().filter(|inode| *inode != 0).map(|inode| (device, inode));
            }
            let is_code = fields.small()? & EXECUTABLE != 0;
            fields.small()?;
            is_code
        };
        let path = text(fields.0);
        Some(RawMapping { tgid, start, size, offset, build_id, file, path, is_code })
    }
}

/// A thread's name.
pub(super) struct RawName<'a> {
    pub(super) tgid: u32,
    pub(super) tid: u32,
    pub(super) name: &'a [u8],
    pub(super) of_exec: bool,
}

impl<'a> RawName<'a> {
    pub(super) fn read(misc: u16, body: &'a [u8]) -> Option<RawName<'a>> {
        let mut fields = Fields(body);
        let (tgid, tid) = (fields.small()?, fields.small()?);
        Some(RawName { tgid, tid, name: text(fields.0), of_exec: misc & OF_EXEC != 0 })
    }
}

/// A new thread.
pub(super) struct RawFork {
    pub(super) tgid: u32,
    pub(super) parent: u32,
    pub(super) tid: u32,
    pub(super) parent_tid: u32,
}

impl RawFork {
    pub(super) fn read(body: &[u8]) -> Option<RawFork> {
        let mut fields = Fields(body);
        Some(RawFork { tgid: fields.small()?, parent: fields.small()?, tid: fields.small()?, parent_tid: fields.small()? })
    }
}

/// Returns the number of lost records.
pub(super) fn lost(kind: u32, body: &[u8]) -> Option<u64> {
    let mut fields = Fields(body);
    if kind == kinds::LOST {
        fields.number()?;
    }
    fields.number()
}

/// Returns the bytes before the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns a device's number as `stat` tells it.
fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & !0xfff) << 32 | (major & 0xfff) << 8 | (minor & !0xff) << 12 | minor & 0xff
}

/// The fields of a record that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    fn small(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    /// Skips the values of a sample's counters.
    fn skip_values(&mut self, format: u64) -> Option<()> {
        const TIMES: u64 = 1 | 2;
        const OF_EACH: u64 = 4 | 16;
        const GROUP: u64 = 8;
        let times = u64::from((format & TIMES).count_ones());
        let each = 1 + u64::from((format & OF_EACH).count_ones());
        let counters = if format & GROUP != 0 { self.number()? } else { 1 };
        self.bytes(counters.checked_mul(each)?.checked_add(times)?.checked_mul(8)?)?;
        Some(())
    }
}
