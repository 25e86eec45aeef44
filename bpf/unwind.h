/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The user part of a stack. Today the kernel follows frame pointers; the table walker will take the place of that call,
 * and nothing outside this file will change.
 */
#ifndef FLAMETOP_UNWIND_H
#define FLAMETOP_UNWIND_H

struct user_walk {
	__u32 frames;
	enum user_end end;
};

/*
 * Walks the current task's user stack into `frames`, innermost first; at most MAX_USER_FRAMES, of which the kernel gives
 * no more than `max_depth`.
 *
 * The kernel does not tell a chain that ended from one whose next page was not in memory: both are
 * USER_END_FRAME_POINTER. A task without user stack gives an error there or was sorted out before:
 *
 *   PF_KTHREAD, PF_IO_WORKER   never has one
 *   PF_USER_WORKER             (vhost, 6.4) never has one, but before 5.17 the bit had another meaning: asked only after
 *                              the walk failed
 *   none of them, no mm        is exiting
 */
static __always_inline struct user_walk walk_user(void *ctx, __u32 task_flags, __u64 *frames, __u32 max_depth)
{
	struct user_walk walk = {};

	if (task_flags & (PF_KTHREAD | PF_IO_WORKER)) {
		walk.end = USER_END_KERNEL_THREAD;
		return walk;
	}
	long bytes = bpf_get_stack(ctx, frames, MAX_USER_FRAMES * sizeof(__u64), BPF_F_USER_STACK);
	if (bytes <= 0) {
		walk.end = task_flags & PF_USER_WORKER ? USER_END_KERNEL_THREAD : USER_END_UNREADABLE;
		return walk;
	}
	walk.frames = ((__u64)bytes / sizeof(__u64)) & MAX_USER_FRAMES;
	walk.end = walk.frames >= max_depth ? USER_END_CUT : USER_END_FRAME_POINTER;
	return walk;
}

#endif
