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
const volatile __u32 max_depth = MAX_KERNEL_FRAMES;
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

/* Sends the sample; its size, for the verifier, in words. */
static __always_inline long send(struct sample *sample, __u32 kernel, __u32 user)
{
	__u64 size = sizeof(sample->header) + ((__u64)kernel + user) * sizeof(__u64);

	if (size > sizeof(*sample)) /* never */
		return -1;
	return bpf_ringbuf_output(&records, sample, size, wakeup());
}

/* Tells user space which tables the walk lacked, and wakes it: until they are there, stacks are short. A wish that finds no
 * room comes again with the next sample. */
static __always_inline void send_wishes(struct cpu_state *cpu)
{
	struct sample_header *header = &cpu->sample.header;
	__u32 count = cpu->walk.wishes;

	for (__u32 i = 0; i < MAX_WISHES; i++) {
		struct wish *wish = &cpu->wishes[i];

		if (i >= count)
			break;
		wish->time = header->time;
		wish->tgid = header->tgid;
		wish->tid = header->tid;
		bpf_ringbuf_output(&records, wish, sizeof(*wish), BPF_RB_FORCE_WAKEUP);
	}
}

SEC("perf_event")
int take_sample(void *ctx)
{
	__u32 zero = 0;
	__u32 cpu_number = bpf_get_smp_processor_id();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	__u32 tid = (__u32)id;
	struct counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct cpu_state *cpu = state_of(cpu_number);

	if (!count || !cpu)
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
	struct sample *sample = &cpu->sample;
	struct sample_header *header = &sample->header;
	struct walk *walk = &cpu->walk;

	header->time = bpf_ktime_get_ns();
	header->cgroup = bpf_get_current_cgroup_id();
	header->tgid = tgid;
	header->tid = tid;
	header->cpu = cpu_number;
	header->kind = SAMPLE_ON_CPU;
	header->flags = 0;
	bpf_get_current_comm(header->comm, sizeof(header->comm));

	__u32 kernel = walk_kernel(ctx, sample);
	walk_user(ctx, task, cpu, cpu_number, kernel, max_depth);

	if (kernel >= max_depth)
		header->flags |= SAMPLE_KERNEL_CUT;
	header->kernel_frames = kernel;
	header->user_frames = walk->frames;
	header->user_end = walk->end;
	if (send(sample, kernel, walk->frames))
		count->ring_full++;
	else
		count->taken++;
	count->user_frames += walk->frames;
	count->mapping_misses += walk->mapping_misses;
	count->rule_misses += walk->rule_misses;
	count->guesses += walk->guesses;
	if (walk->wishes)
		send_wishes(cpu);
	if (walk_how == WALK_BOTH && walk->frames) {
		follow_frame_pointers(ctx, cpu, task->flags, max_depth);
		header->kind = SAMPLE_COMPARED;
		header->user_frames = walk->frames;
		header->user_end = walk->end;
		send(sample, kernel, walk->frames);
	}
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
