/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The state of each thread that is followed, while it waits and while it runs.
 *
 *   waits.bpf.c      on_switch: since = now.   on_return: since = 0, and the time between counts
 *                    cut_waits: once a second, the time so far counts, and since = now
 *   sleepers.bpf.c   the same for one thread, with its stack
 *
 * They may meet. An atomic instruction exchanges `since`: the program that succeeds counts the time from the old value on. The other one
 * sees another value, and drops its stack.
 */
#ifndef FLAMETOP_THREADS_H
#define FLAMETOP_THREADS_H

#include "sample.h"

/* The waits of a thread. */
struct waits {
	__u64 since; /* from when on it waits, but for the bit HAS_STACK; 0 while it runs */
	__u64 rest; /* nanoseconds that are in no record */
	__u64 due; /* `rest` at which the next stack is taken */
	__u64 delay; /* the part of delay_of() that is in records */
	__u32 has_quota; /* 1: when it left, its cgroup had used up its CPU time */
	__u32 could_run; /* 1: it left although it could run on */
};

/* User space has the stack of this wait. A nanosecond does not matter, so its bit is there to tell it. */
#define HAS_STACK 1ULL

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct waits);
} threads SEC(".maps");

static __always_inline int is_followed(struct task_struct *task)
{
	return task->pid && !(task->flags & PF_KTHREAD);
}

/* Returns how long the thread has waited for a CPU so far, in nanoseconds. The kernel counts it. */
static __always_inline __u64 delay_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

/* Tells whether the thread's cgroup has used up its CPU time. */
static __always_inline int has_quota(struct task_struct *task)
{
	if (!bpf_core_field_exists(struct cfs_rq, throttle_count) || !bpf_core_field_exists(task->se.cfs_rq))
		return 0;

	struct cfs_rq *queue = task->se.cfs_rq;

	return queue && queue->throttle_count > 0;
}

/* Returns `part` of `all`, in 2^-32. */
static __always_inline __u32 part_of(__u64 part, __u64 all)
{
	if (part >= all)
		return ~0U;
	if (all >> 32) {
		part >>= 31;
		all >>= 31;
	}
	part = (part << 32) / (all ? all : 1);
	return part < ~0U ? part : ~0U;
}

/* Tells whether a thread's waits count. */
static __always_inline int is_counted(struct task_struct *task)
{
	__u32 tgid = task->tgid;

	return !is_left_out(tgid) && (!filter_targets || bpf_map_lookup_elem(&targets, &tgid));
}

/* Sets since when a thread waits. Returns whether it did: 0 if it did not wait since `from`, because it has been on a CPU. */
static __always_inline int exchange(struct waits *waits, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(&waits->since, from, to) == from;
}

/*
 * Returns the part of a wait's last `waited` nanoseconds in which the thread could run, while it still waits. The kernel tells it at the
 * wait's end only. Until then: all, if it could run now.
 */
static __always_inline __u64 wanted_so_far(struct task_struct *task, struct waits *waits, __u64 waited)
{
	if (task->__state)
		return 0;
	waits->delay += waited;
	return waited;
}

#endif
