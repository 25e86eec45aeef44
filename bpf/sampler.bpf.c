// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program at each tick of the sampling clock, on each CPU. It sends one record: task, time, kernel stack and user stack.
 *
 * Loads on 5.15 and later. Promises to user space: each tick that is neither idle, filtered nor flametop's own sends a record. If that
 * fails, `counters` counts it.
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

/* One element for each CPU. The number of elements is set before loading. */
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

/* The direct map that user space named and find_direct_map() has proved. User space sets `begin` to 0 when memory fails. */
struct direct_map direct_map;
/* Whether the clock is a hardware counter, whose ticks are NMIs. Set by user space before the clock ticks. */
__u32 ticks_are_nmis;
/* Whether the kernel refuses copies in an NMI while it switches processes (6.3 and later). Set by user space before the clock ticks. */
__u32 copies_are_refused;
/* 0 while `runtimes` is empty. User space sets another number each time it has added a process. */
__u32 runtimes_stamp;

SEC("perf_event")
int take_sample(struct perf_event_context *ctx)
{
	__u32 cpu_number = bpf_get_smp_processor_id();
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	__u32 tid = task->pid;
	struct counters *count = bpf_map_lookup_elem(&counters, &cpu_number);

	if (!count)
		return 0;
	if (!include_idle && tid == 0) {
		count->idle++;
		return 0;
	}
	if (filter_targets && !bpf_map_lookup_elem(&targets, &tgid)) {
		count->filtered++;
		return 0;
	}
	if (is_left_out(tgid)) {
		count->own++;
		return 0;
	}

	struct cpu_state *cpu = state_of(cpu_number);

	if (!cpu)
		return 0;
	fetch_past(cpu, tid);

	struct sample_header *header = &cpu->sample.header;
	struct walk *walk = &cpu->walk;

	begin_sample(cpu, task);

	walk->pgd = 0;
	walk->pgd_after_copy = 0;
	if (READS_WINDOW_IN_PLACE && walk_how != WALK_OF_COPIES) {
		walk->direct = direct_map;
		/* Tests the copy: user space may clear the original at any time. */
		if (walk->direct.begin) {
			/* 0 for a kernel thread. */
			__u64 pgd = (__u64)WITHOUT_TRUST(task)->mm->pgd;

			if (!ticks_are_nmis)
				walk->pgd = pgd;
			else if (copies_are_refused)
				walk->pgd_after_copy = pgd;
		}
	}

	walk->scripted = 0;
	__u32 stamp = runtimes_stamp;
	if (unlikely(stamp))
		find_runtime_unless_known(cpu, header, stamp);

	__u32 kernel = is_user_mode(ctx) ? 0 : read_kernel_stack(ctx, cpu->sample.frames, 0);
	walk_user(ctx, ctx, task, cpu, kernel, max_depth, 0, 0, 0);
	if (READS_WINDOW_IN_PLACE && unlikely(walk->moved)) {
		count->moved++;
		walk_user(ctx, ctx, task, cpu, kernel, max_depth, 0, 0, 1);
	}
	if (unlikely(walk->scripted))
		send_script(cpu, task, &records);
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
		walk->pgd = walk->pgd_after_copy = 0;
		walk_user(ctx, ctx, task, cpu, kernel, max_depth, 0, 0, 1);
		header->kind = SAMPLE_COMPARED;
		finish_sample(cpu, kernel);
	}
	return 0;
}

#if defined(__TARGET_ARCH_x86)
/* Code segment of user mode in paravirtualized Xen guests. Their page table entries hold places of the host. */
#define XEN_USER_CS 0xe033

/* Tests the direct map that user space names, before the clock ticks. If it is right, stacks are read in place: bpf/lookup/physmap.h. */
SEC("syscall")
int find_direct_map(struct direct_map_question *asked)
{
	struct task_struct *task = bpf_get_current_task_btf();
	/* A copy, because a context cannot be passed to global functions. */
	struct direct_map_question question = *asked;
	__u64 pgd = (__u64)BPF_CORE_READ(task, mm, pgd);
	__u16 cs = 0;

	bpf_probe_read_kernel(&cs, sizeof(cs), (char *)bpf_task_pt_regs(task) + 8 * PT_REGS_CS);
	if (!CAN_READ_IN_PLACE || cs == XEN_USER_CS || !leads_to_words(pgd, &question))
		return 0;
	direct_map = question.map;
	return 1;
}
#endif

/* Makes each child of a target a target, before it runs its first instruction. Loaded only if targets are families. */
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
