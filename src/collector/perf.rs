//! `perf_event_open`: the sampling clock, the side-band events, and the ring that the latter come through; BPF maps that are mapped;
//! and what else the kernel is asked for directly.
//!
//! The collector's only module with unsafe code of its own; the symbolizer has one as well.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;

use crate::profile::Timestamp;

/// What makes the sampling clock tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// The CPU's cycle counter: ticks in kernel sections with interrupts off, too.
    Cycles,
    /// A timer of the kernel: everywhere, but blind where interrupts are off.
    CpuClock,
}

impl Clock {
    /// As `perf list` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Clock::Cycles => "cycles",
            Clock::CpuClock => "cpu-clock",
        }
    }
}

fn attributes(kind: u32, config: u64) -> sys::perf_event_attr {
    let mut attributes = sys::perf_event_attr::default();
    // A kernel that knows a shorter structure takes ours as long as what it does not know is zero.
    attributes.size = u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(sys::PERF_ATTR_SIZE_VER0);
    attributes.type_ = kind;
    attributes.config = config;
    attributes
}

fn open(mut attributes: sys::perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a whole structure of the size written in it, alive during the call, which keeps no
    // pointer to them.
    let fd = unsafe { perf::perf_event_open(&raw mut attributes, pid, cpu, -1, sys::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A disabled event on one CPU that will tick `frequency` times a second of CPU time, whatever runs.
pub(crate) fn open_clock(clock: Clock, frequency: u32, cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = match clock {
        Clock::Cycles => attributes(sys::PERF_TYPE_HARDWARE, u64::from(sys::PERF_COUNT_HW_CPU_CYCLES)),
        Clock::CpuClock => attributes(sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_CPU_CLOCK)),
    };
    attributes.set_freq(1);
    attributes.sample_freq = u64::from(frequency);
    attributes.set_disabled(1);
    open(attributes, -1, i32::try_from(cpu).unwrap_or(i32::MAX))
}

/// A tracepoint, by its number, wherever it is passed. It counts, and calls the program that is attached to it.
pub(crate) fn open_tracepoint(id: u64) -> io::Result<OwnedFd> {
    // The program is called on all CPUs, whichever one is named here.
    open(attributes(sys::PERF_TYPE_TRACEPOINT, id), -1, i32::try_from(*online_cpus()?.first().unwrap_or(&0)).unwrap_or(0))
}

/// A counter on one CPU, disabled. Of software, each event calls the program; of the processor, so many a second that there are
/// `frequency` calls, each of which says how many events it stands for.
pub(crate) fn open_counter(hardware: bool, number: u64, frequency: u32, cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = attributes(if hardware { sys::PERF_TYPE_HARDWARE } else { sys::PERF_TYPE_SOFTWARE }, number);
    if hardware {
        attributes.set_freq(1);
        attributes.sample_freq = u64::from(frequency);
    } else {
        attributes.sample_period = 1;
    }
    attributes.set_disabled(1);
    open(attributes, -1, i32::try_from(cpu).unwrap_or(i32::MAX))
}

/// Whether an event of this clock for ourselves can be opened at all, for telling what the machine offers.
pub(crate) fn try_clock(clock: Clock) -> io::Result<()> {
    open_clock(clock, 1, *online_cpus()?.first().unwrap_or(&0)).map(drop)
}

/// An event on one CPU that never ticks but tells of mappings, names, forks, exits and kernel symbols.
fn open_events(cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = attributes(sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_DUMMY));
    attributes.sample_type = u64::from(sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME);
    attributes.set_sample_id_all(1);
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
    // The clock of bpf_ktime_get_ns, so that samples and events can be put in order.
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    // Nobody sleeps on these rings: no wake-ups.
    attributes.set_watermark(1);
    attributes.wakeup_watermark = u32::MAX;
    let cpu = i32::try_from(cpu).unwrap_or(i32::MAX);
    // Build ids are of 5.12, kernel symbols of 5.1; what refuses one of them may still give the other.
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for (build_id, ksymbol) in [(1, 1), (0, 1), (0, 0)] {
        attributes.set_build_id(build_id);
        attributes.set_ksymbol(ksymbol);
        match open(attributes, -1, cpu) {
            Ok(fd) => return Ok(fd),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// The side-band events of one CPU and the ring they are written into.
pub(crate) struct EventRing {
    /// Keeps the event alive; closed after the ring was unmapped.
    _event: OwnedFd,
    page: NonNull<sys::perf_event_mmap_page>,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; `drain` takes `&mut self`, so it has one reader at a time.
unsafe impl Send for EventRing {}

impl EventRing {
    /// Opens the events of a CPU with a ring of `size` bytes, a power of two.
    pub(crate) fn open(cpu: u32, size: usize) -> io::Result<EventRing> {
        let event = open_events(cpu)?;
        let mapped = size + rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory of ours.
        let page = unsafe {
            libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(EventRing { _event: event, page, mapped })
    }

    /// Moves what the kernel has written into `bytes`, at its end: whole records, oldest first.
    pub(crate) fn drain(&mut self, bytes: &mut Vec<u8>) {
        let page = self.page.as_ptr();
        // SAFETY: `page` is the first page of a perf ring, mapped until `self` is dropped; `data_head` is written by the
        // kernel and `data_tail` by us alone, both are aligned words.
        let (head, tail) =
            unsafe { (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail)) };
        // Acquire: records before this head are whole (Documentation of data_head in linux/perf_event.h).
        let (end, start) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        // SAFETY: as above; the kernel sets these two once, before the mapping is made.
        let (offset, size) = unsafe { ((*page).data_offset, (*page).data_size) };
        let (offset, size) = (offset as usize, size as usize);
        let length = end.wrapping_sub(start) as usize;
        if length == 0 || length > size || offset + size > self.mapped {
            tail.store(end, Ordering::Release);
            return;
        }
        let first = start as usize % size;
        let before_wrap = length.min(size - first);
        bytes.reserve(length);
        // SAFETY: `first + before_wrap` and `length - before_wrap` are at most `size`, and `offset + size` lies in the
        // mapping (checked above). The kernel writes outside of tail..head only, until we move the tail. The vector has
        // room for `length` bytes more.
        unsafe {
            let data = page.cast::<u8>().add(offset);
            let to = bytes.as_mut_ptr().add(bytes.len());
            ptr::copy_nonoverlapping(data.add(first), to, before_wrap);
            ptr::copy_nonoverlapping(data, to.add(before_wrap), length - before_wrap);
            bytes.set_len(bytes.len() + length);
        }
        // Release: our copy is done before the kernel may write there again.
        tail.store(end, Ordering::Release);
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length, and nothing points into it: `drain` copies.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}

/// What BPF maps are read by.
const WORD: usize = size_of::<u64>();

/// A part of a BPF map that can be mapped. What is looked at seldom is mapped for that long only: it counts as our memory.
struct MappedPart {
    page: *mut libc::c_void,
    mapped: usize,
    /// Where the part begins in the first page.
    slack: usize,
}

impl MappedPart {
    fn new(map: BorrowedFd<'_>, offset: usize, length: usize, protection: libc::c_int) -> io::Result<MappedPart> {
        let slack = offset % rustix::param::page_size();
        let mapped = slack + length;
        let at = i64::try_from(offset - slack).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no memory of ours. The kernel refuses what goes
        // beyond the map's value.
        let page = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, libc::MAP_SHARED, map.as_raw_fd(), at) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(MappedPart { page, mapped, slack }) }
    }

    fn start(&self) -> *mut u8 {
        self.page.cast::<u8>().wrapping_add(self.slack)
    }

    /// The bytes of these words of the part.
    fn read(&self, words: Range<usize>) -> Vec<u8> {
        debug_assert!(words.end * WORD <= self.mapped - self.slack);
        let mut bytes = Vec::with_capacity(words.len() * WORD);
        for word in words {
            // SAFETY: within what is mapped, and aligned: the mapping begins with a page. The kernel's programs may write to it
            // meanwhile, so it is read as what changes by itself, a word at a time.
            let word = unsafe { self.start().cast::<u64>().add(word).read_volatile() };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl Drop for MappedPart {
    fn drop(&mut self) {
        // SAFETY: with the length that it was mapped with, and nothing points into it any more.
        unsafe { libc::munmap(self.page, self.mapped) };
    }
}

/// Writes into the value of a BPF map that can be mapped, from byte `offset` on.
pub(crate) fn write_mapped(map: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let part = MappedPart::new(map, offset, bytes.len(), libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: as many bytes are mapped and writable, and no reference points into them: the kernel's programs read them, but only once
    // they are told of them, after this, or numbers that need not be of one moment.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), part.start(), bytes.len()) };
    Ok(())
}

/// The bytes of a BPF map that can be mapped, from `offset` on, both multiples of 8: without a bpf(2) call, for whose time the kernel
/// keeps programs at probes from running on this CPU.
pub(crate) fn read_mapped(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Vec<u8>> {
    if length == 0 || !offset.is_multiple_of(WORD) || !length.is_multiple_of(WORD) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(MappedPart::new(map, offset, length, libc::PROT_READ)?.read(0..length / WORD))
}

/// The words of a BPF map's value, mapped for reading.
pub(crate) struct MappedWords {
    part: MappedPart,
    words: usize,
}

// SAFETY: the mapping belongs to the process, and is only ever read.
unsafe impl Send for MappedWords {}

impl MappedWords {
    /// Maps the first `bytes` bytes of a map.
    pub(crate) fn new(map: BorrowedFd<'_>, bytes: usize) -> io::Result<MappedWords> {
        Ok(MappedWords { part: MappedPart::new(map, 0, bytes, libc::PROT_READ)?, words: bytes / 4 })
    }

    /// Returns the word of this number.
    pub(crate) fn get(&self, number: usize) -> Option<u32> {
        if number >= self.words {
            return None;
        }
        // SAFETY: within what is mapped, and aligned: the mapping begins with a page. Other threads of ours may write to it meanwhile, so
        // it is read as what changes by itself.
        Some(unsafe { self.part.start().cast::<u32>().add(number).read_volatile() })
    }
}

/// Counters that programs keep: in a map that can be mapped and has, for each number, one element after the other for each CPU. Looked at
/// ten times a second, so it stays mapped.
pub(crate) struct Counters {
    part: MappedPart,
    /// Words of an element.
    words: usize,
    cpus: usize,
    numbers: usize,
}

// SAFETY: the mapping belongs to the process, and is only ever read.
unsafe impl Send for Counters {}

impl Counters {
    /// Those of a map whose elements have `size` bytes, a multiple of 8, for so many CPUs and numbers.
    pub(crate) fn new(map: BorrowedFd<'_>, size: usize, cpus: u32, numbers: u8) -> io::Result<Counters> {
        if !size.is_multiple_of(WORD) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (words, cpus, numbers) = (size / WORD, cpus as usize, usize::from(numbers));
        let part = MappedPart::new(map, 0, words * WORD * cpus * numbers, libc::PROT_READ)?;
        Ok(Counters { part, words, cpus, numbers })
    }

    /// The sum of one counter over all CPUs.
    pub(crate) fn total(&self, number: u8, counter: impl Fn(&[u8]) -> Option<u64>) -> u64 {
        let number = usize::from(number);
        if number >= self.numbers {
            return 0;
        }
        let words = self.words * self.cpus;
        let bytes = self.part.read(number * words..(number + 1) * words);
        bytes.chunks_exact(self.words * WORD).filter_map(counter).sum()
    }
}

/// Runs bpf(2) calls on maps, or a short load that has one in it, so that no ordinary task comes in between: while one lasts, the
/// kernel keeps programs at probes from running on this CPU (`bpf_prog_active`), and who interrupts it, as a (lazily) preemptible
/// kernel lets others, would not be counted.
///
/// By a real-time priority for that long; where that is not permitted, without.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    let _priority = RealTime::take();
    call()
}

/// The calling thread's real-time priority, given back in the end.
struct RealTime {
    policy: libc::c_int,
}

impl RealTime {
    fn take() -> Option<RealTime> {
        let policy = scheduling_policy();
        let is_ordinary = matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE);
        let flag = policy & libc::SCHED_RESET_ON_FORK;
        (is_ordinary && set_scheduling(libc::SCHED_FIFO | flag, 1)).then_some(RealTime { policy })
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // A thread may always have less.
        set_scheduling(self.policy, 0);
    }
}

/// Of the calling thread. By the system call: libc's functions are of processes in some libcs.
fn scheduling_policy() -> libc::c_int {
    // SAFETY: no memory is touched.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    libc::c_int::try_from(policy).unwrap_or(-1)
}

fn set_scheduling(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel reads one `struct sched_param`, which is its first member alone, and it lives until the call is over.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// Gives memory that was freed back to the system: making the table of a large library takes tens of megabytes for a moment,
/// which the allocator would keep.
pub(crate) fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread: malloc_trim(3).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has the allocator keep little of what is freed, in the whole process: 4 MiB, in one arena. By itself it keeps up to twice the
/// largest piece that was ever freed, at most 64 MiB, at the end of each of 8 arenas a CPU, and `malloc_trim` leaves those alone:
/// beside compilers, after five minutes, more than all that was in use.
///
/// One arena, which grows by 1 MiB: any other grows by a page and a system call at a time, which was a thirtieth of what a short
/// recording takes. Threads seldom wait for each other there: small pieces are kept for each (tcache).
pub fn keep_little_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: four numbers for the allocator; it takes them at any time: mallopt(3).
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 << 20);
    }
}

/// The bits of a code address that may be its signature (pointer authentication), as this processor has them; 0 without it.
///
/// Where they begin depends on how large the kernel lets address spaces be. Asked of the instruction that takes signatures
/// off: a processor without it does nothing then.
#[cfg(target_arch = "aarch64")]
pub(crate) fn signature_mask() -> u64 {
    // Bit 55 chooses the half of the address space, whose value the signature's bits then get: 0 for ours.
    let signed = !(1u64 << 55);
    let mut address = signed;
    // SAFETY: xpaclri (hint 7) changes x30 only, which is said to be changed, and knows neither memory nor flags.
    unsafe { std::arch::asm!("hint 7", inout("x30") address, options(nomem, nostack, preserves_flags)) };
    address ^ signed
}

/// Code addresses of x86_64 have no signatures.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn signature_mask() -> u64 {
    0
}

/// What is to be added to the physical address of memory to get where the kernel sees it; 0 where that is not known. On arm64 also where
/// pages are not of 4 KiB, or addresses not of 48 bits.
///
/// From the program headers of `/proc/kcore`, which have both of each piece of memory. The kernel itself is mapped once more, behind
/// all memory (Documentation/arch/arm64/memory.rst, Documentation/arch/x86/x86_64/mm.rst).
pub(crate) fn linear_offset() -> u64 {
    use std::io::Read as _;
    let mut headers = vec![0; 64 << 10];
    let read = std::fs::File::open("/proc/kcore").and_then(|mut file| file.read(&mut headers));
    let headers = headers.get(..read.unwrap_or(0)).unwrap_or_default();
    if rustix::param::page_size() == 4096 { linear_offset_of(headers, LINEAR).unwrap_or(0) } else { 0 }
}

/// Where the kernel has all memory: the lower half of what 48 bits are for it.
#[cfg(target_arch = "aarch64")]
const LINEAR: Range<u64> = 0xffff_0000_0000_0000..0xffff_8000_0000_0000;
/// The same of 48 or 57 bits: all but the last 2 GiB, where it has itself.
#[cfg(target_arch = "x86_64")]
const LINEAR: Range<u64> = 0xff00_0000_0000_0000..0xffff_ffff_8000_0000;

/// The same of an ELF file's begin: of the lowest memory in that range.
fn linear_offset_of(headers: &[u8], range: Range<u64>) -> Option<u64> {
    let word = |at: usize| headers.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let (table, count) = (usize::try_from(word(32)?).ok()?, word(56)? & 0xffff);
    let mut lowest: Option<(u64, u64)> = None;
    for number in 0..usize::try_from(count).ok()? {
        let header = table.checked_add(number.checked_mul(56)?)?;
        let (Some(kind), Some(address), Some(physical)) = (word(header), word(header + 16), word(header + 24)) else { break };
        // PT_LOAD; what is no memory has no physical address, or -1.
        let is_memory = kind & 0xffff_ffff == 1 && physical != u64::MAX;
        if is_memory && range.contains(&address) && lowest.is_none_or(|(before, _)| address < before) {
            lowest = Some((address, address.wrapping_sub(physical)));
        }
    }
    lowest.map(|(_, offset)| offset)
}

/// Now, by the clock of samples and events.
pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let whole = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    Timestamp(whole + u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Nanoseconds that this machine has slept since it started. While it sleeps all CPUs but one are taken offline, and the
/// kernel throws their events away without a word.
pub(crate) fn slept() -> u64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let whole = u64::try_from(boot.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    (whole + u64::try_from(boot.tv_nsec).unwrap_or(0)).saturating_sub(now().0)
}

/// Makes room for this many descriptors, if the soft limit is lower and the hard one allows. Nothing is changed otherwise:
/// programs that we start inherit the limit, and some old ones cannot live with a high one.
pub(crate) fn allow_descriptors(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let current = Some(limit.maximum.map_or(count, |maximum| maximum.min(count)));
        // What does not fit fails by itself later, with a better message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}

/// Returns the generation of an open file's inode, if its file system tells it. A file that reuses the inode number has another generation.
pub(crate) fn inode_generation(file: &std::fs::File) -> Option<u32> {
    /// `FS_IOC_GETVERSION`: `_IOR('v', 1, long)`. File systems write only 4 bytes. All architectures that flametop supports encode the
    /// number like this.
    const GET_VERSION: libc::c_ulong = 0x8008_7601;
    let mut generation = [0u32; 2];
    // SAFETY: the kernel writes at most one `long` to an array of that size, which lives until the call is over.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION as _, generation.as_mut_ptr()) };
    let [generation, _] = generation;
    (result == 0).then_some(generation)
}

/// The CPUs that are online, in order.
pub(crate) fn online_cpus() -> io::Result<Vec<u32>> {
    cpus_in("/sys/devices/system/cpu/online")
}

/// CPUs that there may ever be.
pub(crate) fn possible_cpus() -> io::Result<Vec<u32>> {
    cpus_in("/sys/devices/system/cpu/possible")
}

fn cpus_in(file: &str) -> io::Result<Vec<u32>> {
    let list = std::fs::read_to_string(file)?;
    parse_cpu_list(list.trim()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not a list of CPUs: {list:?}")))
}

/// `0-3,8` → 0, 1, 2, 3, 8. At most the kernel's own limit of 8,192 CPUs.
fn parse_cpu_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last.min(8191));
    }
    Some(cpus)
}

/// Whether a process of this number exists, dead but not yet waited for included.
pub(crate) fn exists(tgid: u32) -> bool {
    let Some(pid) = i32::try_from(tgid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    // EPERM: it exists and is somebody else's.
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::events::{self, Event, Parsed};

    #[test]
    fn nobody_comes_between_while_a_map_is_changed() {
        let before = scheduling_policy();
        let is_permitted = set_scheduling(libc::SCHED_FIFO, 1);
        set_scheduling(before, 0);
        if !is_permitted {
            println!("NOT TESTED: no real-time priority is to be had here (CAP_SYS_NICE)");
        }
        let within = if is_permitted { libc::SCHED_FIFO } else { before };
        assert_eq!(undisturbed(scheduling_policy), within);
        assert_eq!(scheduling_policy(), before);
        let nested = undisturbed(|| (undisturbed(scheduling_policy), scheduling_policy()));
        assert_eq!((nested, scheduling_policy()), ((within, within), before));
        assert!(std::panic::catch_unwind(|| undisturbed(|| panic!("on purpose"))).is_err());
        assert_eq!(scheduling_policy(), before);
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("0-99999").map(|cpus| cpus.len()), Some(8192));
        assert_eq!(parse_cpu_list("a-b"), None);
    }

    #[test]
    fn memory_is_told_from_the_kernel_and_from_what_is_none() {
        // As /proc/kcore has it: the kernel's text, vmalloc's room without an address, memory in two pieces.
        let kcore = |segments: [(u64, u64); 4]| {
            let mut file = vec![0; 64];
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
        // What was not read, and what is no file.
        assert_eq!(linear_offset_of(&file[..64 + 56], half()), None);
        assert_eq!(linear_offset_of(&file[..40], half()), None);
        assert_eq!(linear_offset_of(&[], half()), None);
        // x86_64, moved by chance.
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

    #[test]
    fn a_program_that_runs_is_told_from_fork_to_exit() {
        let mut rings: Vec<EventRing> =
            online_cpus().unwrap().iter().map(|cpu| EventRing::open(*cpu, 1 << 17).expect("this test needs root")).collect();
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let tgid = child.id();
        child.wait().unwrap();
        let mut bytes = Vec::new();
        rings.iter_mut().for_each(|ring| ring.drain(&mut bytes));
        let mut seen = Vec::new();
        let rest = events::split(&bytes, |record| {
            if let Parsed::Event(timed) = events::parse(record) {
                seen.push(timed);
            }
        });
        assert_eq!(rest, 0);
        seen.sort_by_key(|timed| timed.time);
        let of_child: Vec<&Event> = seen.iter().map(|timed| &timed.event).collect();
        let at = |wanted: &dyn Fn(&Event) -> bool| of_child.iter().position(|event| wanted(event)).expect("the event was told");
        let forked = at(&|event| matches!(event, Event::Fork { tgid: child, .. } if *child == tgid));
        let exec = at(&|event| matches!(event, Event::Name { tgid: child, exec: true, .. } if *child == tgid));
        let mapped =
            at(&|event| matches!(event, Event::Map { tgid: child, path, .. } if *child == tgid && path.contains("libc")));
        let exited = at(&|event| matches!(event, Event::Exit { tgid: child, .. } if *child == tgid));
        assert!(forked < exec && exec < mapped && mapped < exited);
        let before = seen.first().map(|timed| timed.time).unwrap();
        assert!(before < now().0 && now().0 - before < 60_000_000_000, "events are on our clock");
    }
}
