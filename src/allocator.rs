//! The C library's allocator: memory that was freed goes back to the system.
#![allow(unsafe_code)]

/// Gives memory that was freed back to the system. The table of a large library, or its debug information, takes tens of megabytes in
/// small pieces for a moment; the allocator would keep them.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread: malloc_trim(3).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that were freed and that the allocator keeps, resident or not.
pub fn kept() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread: mallinfo(3). mallinfo2 would need glibc 2.33. The number wraps at 4 GiB.
    return unsafe { libc::mallinfo() }.fordblks.cast_unsigned() as usize;
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
