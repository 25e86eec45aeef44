//! The C library's allocator. It gives memory that was freed back to the system, and counts what each thread takes.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The allocator of the process: that of the C library, with a count for each thread. An allocation takes a nanosecond more.
struct Counting;

// A fuzzer brings its own.
#[cfg_attr(not(fuzzing), global_allocator)]
#[cfg_attr(fuzzing, allow(dead_code))]
static COUNTING: Counting = Counting;

/// Bytes in use by all threads, without those that a thread has not added yet.
static ALL: AtomicIsize = AtomicIsize::new(0);

/// Bytes that a thread takes or gives back until it adds them to [`ALL`].
const ADDED_LATER: isize = 16 << 10;

/// The account of a thread.
struct Account {
    /// Bytes that this thread took, less those that it gave back.
    balance: Cell<isize>,
    /// The part of it that is in [`ALL`].
    added: Cell<isize>,
}

impl Account {
    fn add_to_all(&self) {
        let added = self.added.replace(self.balance.get());
        ALL.fetch_add(self.balance.get().wrapping_sub(added), Ordering::Relaxed);
    }
}

// The GNU C library runs this without an allocation by Rust. Other libraries, with Rust before 1.93, would call this allocator again. There,
// the last bytes of a thread are not added.
#[cfg(target_env = "gnu")]
impl Drop for Account {
    fn drop(&mut self) {
        self.add_to_all();
    }
}

thread_local! {
    static ACCOUNT: Account = const { Account { balance: Cell::new(0), added: Cell::new(0) } };
}

/// Bytes that a piece of `size` bytes takes: glibc has 8 bytes before each, and rounds up to 16.
fn taken(size: usize) -> isize {
    (size.saturating_add(8 + 15) & !15).max(32).cast_signed()
}

fn count(bytes: isize) {
    let counted = ACCOUNT.try_with(|account| {
        let balance = account.balance.get().wrapping_add(bytes);
        account.balance.set(balance);
        if balance.wrapping_sub(account.added.get()).abs() > ADDED_LATER {
            account.add_to_all();
        }
    });
    // The thread is about to end.
    if counted.is_err() {
        ALL.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator as it came in.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(taken(size) - taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Counts the bytes that a library takes, where it does not tell.
///
/// It counts what the calling thread takes and gives back within [`Meter::measure`]. What it hands to other threads stays counted.
#[derive(Default, Debug)]
pub struct Meter(Cell<isize>);

impl Meter {
    /// Runs `work` and counts what it leaves allocated.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.run(work, 1)
    }

    /// Runs `work` within [`Meter::measure`] without counting it.
    pub fn leave_out<T>(&self, work: impl FnOnce() -> T) -> T {
        self.run(work, -1)
    }

    /// Bytes counted so far, with what the allocator adds to each piece.
    pub fn bytes(&self) -> usize {
        self.0.get().max(0).cast_unsigned()
    }

    fn run<T>(&self, work: impl FnOnce() -> T, sign: isize) -> T {
        let balance = || ACCOUNT.try_with(|account| account.balance.get()).unwrap_or(0);
        let before = balance();
        let result = work();
        self.0.set(self.0.get() + sign * balance().wrapping_sub(before));
        result
    }
}

/// Gives memory that was freed back to the system. The table of a large library, or its debug information, takes tens of megabytes in
/// small pieces for a moment; the allocator would keep them.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread: malloc_trim(3).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the bytes in use by all Rust code, with what the allocator adds to each piece. Off by at most 16 KB for each thread.
pub fn in_use() -> usize {
    ALL.load(Ordering::Relaxed).max(0).cast_unsigned()
}

/// Returns the bytes of large pieces, which are mapped and not in the heap; 0 if the C library does not tell.
pub fn mapped_pieces() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread: mallinfo(3). mallinfo2 would need glibc 2.33. The number wraps at 4 GiB.
    return unsafe { libc::mallinfo() }.hblkhd.cast_unsigned() as usize;
    #[cfg(not(target_env = "gnu"))]
    0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_what_stays() {
        let meter = Meter::default();
        let (kept, others) = meter.measure(|| {
            drop(vec![1u8; 1 << 20]);
            (vec![1u8; 1000], meter.leave_out(|| vec![1u8; 4000]))
        });
        assert_eq!((kept.len() + others.len(), meter.bytes()), (5000, 1008));
        meter.measure(|| drop(kept));
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn what_all_threads_use_is_counted_when_they_end() {
        const BYTES: usize = 1 << 30;
        let before = in_use();
        let took = std::thread::spawn(|| Box::<[u8]>::new_uninit_slice(BYTES)).join().unwrap();
        // Other tests run meanwhile.
        let near = |bytes: usize| bytes.abs_diff(before) < BYTES / 4;
        assert!(near(in_use() - BYTES), "{before}, then {}", in_use());
        std::thread::spawn(|| drop(took)).join().unwrap();
        assert!(near(in_use()), "{before}, then {}", in_use());
    }

    #[test]
    fn a_meter_counts_as_the_allocator_does() {
        #[cfg(target_env = "gnu")]
        for size in [1usize, 24, 25, 40, 41, 1000, 4097] {
            let piece = vec![0u8; size];
            // SAFETY: the piece is alive: malloc_usable_size(3).
            let usable = unsafe { libc::malloc_usable_size(piece.as_ptr().cast_mut().cast()) };
            assert_eq!(taken(size), (usable + 8).cast_signed(), "{size}");
        }
    }
}
