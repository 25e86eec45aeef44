/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The wire record and every map value. src/collector/records.rs has the same layouts; both sides assert them.
 *
 * A record in the ring buffer:
 *
 *   0        8        16     20    24    28       30       32       48        49    50     52        56
 *   | time   | cgroup | tgid | tid | cpu | kernel | user   | comm   | user_end| kind| flags| reserved| u64 frames …
 *                                         frames   frames
 *
 * frames: kernel frames, innermost first, then user frames, innermost first. Nothing follows the last frame.
 */
#ifndef FLAMETOP_RECORD_H
#define FLAMETOP_RECORD_H

/* bpf_get_stack gives at most kernel.perf_event_max_stack frames, 127 unless an administrator raised it. A power of two
 * less one, so that `& MAX` is the bounds check that every verifier since 5.15 understands. */
#define MAX_KERNEL_FRAMES 127
#define MAX_USER_FRAMES 127
#define COMM_LENGTH 16

/* Why the user part of a stack ends: the numbers of UserEnd in src/profile/samples.rs. */
enum user_end {
	USER_END_UNSPECIFIED = 0,
	USER_END_KERNEL_THREAD = 1,
	USER_END_FRAME_POINTER = 2,
	USER_END_CUT = 3,
	USER_END_UNREADABLE = 4,
};

/* What kind of observation: the numbers of SampleKind in src/profile/samples.rs. */
enum sample_kind {
	SAMPLE_ON_CPU = 0,
};

/* Bits of sample::flags. */
enum sample_flags {
	/* The kernel stack was deeper than MAX_KERNEL_FRAMES: its outermost frames are missing. */
	SAMPLE_KERNEL_CUT = 1 << 0,
	/* The task is in a system call: its user instruction pointer is the instruction after it, like a return address. */
	SAMPLE_IN_SYSCALL = 1 << 1,
};

struct sample_header {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u64 cgroup; /* cgroup v2 id */
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u16 kernel_frames;
	__u16 user_frames;
	__u8 comm[COMM_LENGTH];
	__u8 user_end;
	__u8 kind;
	__u16 flags;
	__u32 reserved; /* 0; keeps the frames at a multiple of 8 */
};

struct sample {
	struct sample_header header;
	__u64 frames[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
};

/* What became of each tick of the clock on one CPU: taken + idle + filtered + ring_full = ticks. */
struct counters {
	__u64 taken; /* a record was sent */
	__u64 idle; /* the CPU ran its idle task */
	__u64 filtered; /* the process is not among the targets */
	__u64 ring_full; /* the ring buffer had no room: a lost sample */
};

/* Forks that could not be followed, for the families of targets. */
struct fork_counters {
	__u64 followed;
	__u64 targets_full;
};

#define OFFSET_IS(type, member, offset) \
	_Static_assert(__builtin_offsetof(type, member) == (offset), #type "." #member " has moved: see records.rs")

OFFSET_IS(struct sample_header, time, 0);
OFFSET_IS(struct sample_header, cgroup, 8);
OFFSET_IS(struct sample_header, tgid, 16);
OFFSET_IS(struct sample_header, tid, 20);
OFFSET_IS(struct sample_header, cpu, 24);
OFFSET_IS(struct sample_header, kernel_frames, 28);
OFFSET_IS(struct sample_header, user_frames, 30);
OFFSET_IS(struct sample_header, comm, 32);
OFFSET_IS(struct sample_header, user_end, 48);
OFFSET_IS(struct sample_header, kind, 49);
OFFSET_IS(struct sample_header, flags, 50);
OFFSET_IS(struct sample, frames, 56);
_Static_assert(sizeof(struct sample_header) == 56, "the header of a record is 56 bytes: see records.rs");
_Static_assert(sizeof(struct counters) == 32, "four counters: see records.rs");
_Static_assert(sizeof(struct fork_counters) == 16, "two counters: see records.rs");
_Static_assert((MAX_KERNEL_FRAMES & (MAX_KERNEL_FRAMES + 1)) == 0, "used as a mask");
_Static_assert((MAX_USER_FRAMES & (MAX_USER_FRAMES + 1)) == 0, "used as a mask");

#endif
