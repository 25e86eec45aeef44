// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What runs at each tick of the sampling clock, on each CPU: who, when, kernel stack, user stack, one record.
 *
 * Loads on 5.15 and later. Owes user space: a record for each tick that is neither idle nor filtered, or a count of it in
 * `counters`.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "record.h"
#include "unwind.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading: the verifier removes what they switch off. */
const volatile __u32 include_idle;
const volatile __u32 filter_targets;
const volatile __u32 max_depth = MAX_USER_FRAMES;
const volatile __u64 half_ring;

/* Sizes of `records` and `targets` are set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Process → 1. Preallocated: perf_event programs may use no other hash map before 6.1. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* A record is up to 2,088 bytes, the BPF stack 512. Ticks of one CPU do not nest: the kernel runs no second perf_event
 * program on a CPU while one is running (bpf_prog_active). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fork_counters);
} forks SEC(".maps");

/*
 * Whether the task entered the kernel by a system call, so that its user instruction pointer is that of the instruction
 * after it. Interrupts and faults put -1 in these members (x86: idtentry_body; arm64: kernel_entry sets NO_SYSCALL).
 */
static __always_inline int in_syscall(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

#if defined(__TARGET_ARCH_x86)
	return (__s64)regs->orig_ax >= 0;
#else
	return regs->syscallno >= 0;
#endif
}

/* As many frames as fit behind the header, innermost first; 0 when the tick came in user mode. */
static __always_inline __u32 walk_kernel(void *ctx, struct sample *sample)
{
	long bytes = bpf_get_stack(ctx, sample->frames, MAX_KERNEL_FRAMES * sizeof(__u64), 0);

	return bytes <= 0 ? 0 : ((__u64)bytes / sizeof(__u64)) & MAX_KERNEL_FRAMES;
}

/* Wakes user space only when it should hurry: it comes on a timer, and a wake-up for each sample costs more than the
 * sample. */
static __always_inline __u64 wakeup(void)
{
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) > half_ring ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

SEC("perf_event")
int take_sample(void *ctx)
{
	__u32 zero = 0;
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	__u32 tid = (__u32)id;
	struct counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct sample *sample = bpf_map_lookup_elem(&scratch, &zero);

	if (!count || !sample)
		return 0;
	if (!include_idle && tid == 0) {
		count->idle++;
		return 0;
	}
	if (filter_targets && !bpf_map_lookup_elem(&targets, &tgid)) {
		count->filtered++;
		return 0;
	}

	struct task_struct *task = bpf_get_current_task_btf();
	__u32 task_flags = task->flags;
	struct sample_header *header = &sample->header;

	header->time = bpf_ktime_get_ns();
	header->cgroup = bpf_get_current_cgroup_id();
	header->tgid = tgid;
	header->tid = tid;
	header->cpu = bpf_get_smp_processor_id();
	header->kind = SAMPLE_ON_CPU;
	header->flags = 0;
	bpf_get_current_comm(header->comm, sizeof(header->comm));

	__u32 kernel = walk_kernel(ctx, sample);
	struct user_walk user = walk_user(ctx, task_flags, &sample->frames[kernel], max_depth);

	if (kernel >= max_depth)
		header->flags |= SAMPLE_KERNEL_CUT;
	if (kernel && user.frames && in_syscall(task))
		header->flags |= SAMPLE_IN_SYSCALL;
	header->kernel_frames = kernel;
	header->user_frames = user.frames;
	header->user_end = user.end;

	__u64 size = sizeof(*header) + (kernel + user.frames) * sizeof(__u64);
	if (size > sizeof(*sample)) /* never: for the verifier */
		return 0;
	if (bpf_ringbuf_output(&records, sample, size, wakeup()))
		count->ring_full++;
	else
		count->taken++;
	return 0;
}

/* Loaded only when targets are families: whatever a target forks is a target before it runs its first instruction. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid;
	__u32 to = child->tgid;
	__u32 zero = 0;
	__u32 one = 1;

	if (from == to || !bpf_map_lookup_elem(&targets, &from))
		return 0;
	struct fork_counters *count = bpf_map_lookup_elem(&forks, &zero);
	if (!count)
		return 0;
	if (bpf_map_update_elem(&targets, &to, &one, BPF_ANY))
		count->targets_full++;
	else
		count->followed++;
	return 0;
}
