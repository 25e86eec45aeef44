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
#include "sample.h"
#include "regs.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u32 include_idle;

/* An element for each CPU; how many there are is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fork_counters);
} forks SEC(".maps");

SEC("perf_event")
int take_sample(struct perf_event_context *ctx)
{
	__u32 cpu_number = bpf_get_smp_processor_id();
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	__u32 tid = task->pid;
	struct counters *count = bpf_map_lookup_elem(&counters, &cpu_number);
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

	fetch_past(cpu, tid);

	struct sample_header *header = &cpu->sample.header;
	struct walk *walk = &cpu->walk;

	begin_sample(header, task);

	__u32 kernel = is_user_mode(ctx) ? 0 : read_kernel_stack(ctx, cpu->sample.frames, 0);
	walk_user(ctx, ctx, task, cpu, kernel, max_depth, 0, 0, 0);
	if (finish_sample(cpu, kernel))
		count->ring_full++;
	else
		count->taken++;
	count->user_frames += walk->frames;
	count->mapping_misses += walk->mapping_misses;
	count->rule_misses += walk->rule_misses;
	count->guesses += walk->guesses;
	count->retraced += walk->retraced;
	if (walk->wishes)
		send_wishes(cpu);
	if (walk_how == WALK_BOTH && walk->frames) {
		follow_frame_pointers(ctx, cpu, task->flags, max_depth);
		header->kind = SAMPLE_COMPARED;
		finish_sample(cpu, kernel);
	}
	if (walk_how == WALK_TWICE && walk->frames) {
		walk_user(ctx, ctx, task, cpu, kernel, max_depth, 0, 0, 1);
		header->kind = SAMPLE_COMPARED;
		finish_sample(cpu, kernel);
	}
	return 0;
}

/* Loaded only when targets are families: whatever a target forks is a target before it runs its first instruction. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid;
	__u32 to = child->tgid;
	__u32 cpu_number = bpf_get_smp_processor_id();
	__u32 one = 1;

	if (from == to || !bpf_map_lookup_elem(&targets, &from))
		return 0;
	struct fork_counters *count = bpf_map_lookup_elem(&forks, &cpu_number);
	if (!count)
		return 0;
	if (bpf_map_update_elem(&targets, &to, &one, BPF_ANY))
		count->targets_full++;
	else
		count->followed++;
	return 0;
}
