// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Takes the stack of a thread that waits, while it waits.
 *
 *   user space ─► read_sleeper ─► registers at the top of its kernel stack ─► kernel stack, user stack ─► does it wait since then? ─► record
 *
 * The walk is that of all other samples, compiled another time. Here it reads the memory of another process. The kernel then takes the lock
 * of that memory, and brings in pages that are missing. Both may take as long as the process wants. So user space runs the program on a
 * thread that it can leave behind. Each copy of the program serves one thread at a time, so it loads another copy for the next one.
 *
 * A thread that has been on a CPU meanwhile is noticed, as `since` has changed, and nothing is sent.
 *
 * Loads on 6.2 and later, which have bpf_task_from_pid. (Helpers: bpf_copy_from_user_task, 5.18.)
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The thread, and what the walk asks of the current task elsewhere. */
__u32 sleeper_tid;
__u64 sleeper_task;
__u64 sleeper_registers;

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

#define AS_TYPE(address, type) ((type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(type)))

static __always_inline long copy_from_sleeper(void *to, __u32 size, const void *from)
{
	struct task_struct *task = bpf_task_from_pid(sleeper_tid);
	long failed;

	if (!task)
		return -1;
	failed = bpf_copy_from_user_task(to, size, from, task, 0);
	bpf_task_release(task);
	return failed;
}

/* Returns where the task's registers of user mode are. */
static __always_inline __u64 registers_of(struct task_struct *task)
{
	return bpf_task_pt_regs(task);
}

static __always_inline __u64 cgroup_of_sleeper(void)
{
	return AS_TYPE(sleeper_task, struct task_struct)->cgroups->dfl_cgrp->kn->id;
}

#define bpf_probe_read_user copy_from_sleeper
#define bpf_get_current_task_btf() AS_TYPE(sleeper_task, struct task_struct)
#define bpf_task_pt_regs(task) AS_TYPE(sleeper_registers, struct pt_regs)
#define bpf_get_current_cgroup_id cgroup_of_sleeper
/* There is one state. */
#define bpf_get_smp_processor_id() 0
/* The current stack, which nobody wants. */
#define bpf_get_stack(...) (-1)

#include "events.h"
#include "threads.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Answers of read_sleeper. */
enum {
	SLEEPER_WOKE = 0, /* it does not wait any more, or not since then */
	SLEEPER_SENT = 1,
	SLEEPER_LACKS_TABLES = 2, /* they were asked for: nothing was sent */
	SLEEPER_RING_FULL = 3,
};

/* Reads what the walk needs of the task: it asks for the current one elsewhere. */
static __always_inline int take_sleeper(struct cpu_state *cpu, struct task_struct *task, const struct sleeper *asked)
{
	struct waits *waits = bpf_task_storage_get(&threads, task, NULL, 0);
	struct sample_header *header = &cpu->sample.header;
	struct walk *walk = &cpu->walk;

	if (!waits || waits->since != asked->since)
		return SLEEPER_WOKE;
	sleeper_tid = task->pid;
	sleeper_task = (__u64)task;

	long bytes = bpf_get_task_stack(task, cpu->sample.frames, MAX_KERNEL_FRAMES * sizeof(__u64), 0);
	__u32 kernel = bytes <= 0 ? 0 : ((__u64)bytes / sizeof(__u64)) & MAX_KERNEL_FRAMES;

	begin_sample(cpu, AS_TYPE(sleeper_task, struct task_struct));
	header->kind = SAMPLE_WAIT;
	header->source = source_number;
	/* The scheduler's own functions are missing in the kernel's stack, and with them the locks. */
	header->flags = SAMPLE_ASLEEP | (waits->has_quota ? SAMPLE_QUOTA : 0) |
			(BPF_CORE_READ_BITFIELD(task, in_iowait) ? SAMPLE_IO : 0) |
			(task->__state & TASK_UNINTERRUPTIBLE ? SAMPLE_UNINTERRUPTIBLE : 0);
	walk->pgd = 0;
	walk->pgd_after_copy = 0;
	find_runtime(cpu, header->tgid);
	walk_user(NULL, NULL, AS_TYPE(sleeper_task, struct task_struct), cpu, kernel, max_depth, 0, 0, 1);
	if (walk->wishes) {
		send_wishes(cpu);
		if (!asked->final)
			return SLEEPER_LACKS_TABLES;
	}
	if (walk->scripted)
		send_script(cpu, AS_TYPE(sleeper_task, struct task_struct), &records);

	__u64 now = bpf_ktime_get_ns() & ~HAS_STACK;
	__u64 waited = now - (asked->since & ~HAS_STACK);

	if (!exchange(waits, asked->since, now))
		return SLEEPER_WOKE;

	__u64 delay = waits->delay;
	struct event *event = event_of(0);

	header->weight = waited;
	header->wanted = part_of(wanted_so_far(task, waits, waited), waited);
	if (finish_sample(cpu, kernel)) {
		/* Nothing was told. The time is in a later record. */
		waits->delay = delay;
		exchange(waits, now, asked->since);
		return SLEEPER_RING_FULL;
	}
	/* It may have woken since. Then its record of the rest is sent already. */
	exchange(waits, now, now | HAS_STACK);
	if (event) {
		__sync_fetch_and_add(&event->asleep, waited);
		__sync_fetch_and_add(&event->cuts, 1);
	}
	return SLEEPER_SENT;
}

SEC("syscall")
int read_sleeper(struct sleeper *asked)
{
	struct sleeper question = *asked;
	struct cpu_state *cpu = state_of(0);
	struct task_struct *task = bpf_task_from_pid(question.tid);
	int answer = SLEEPER_WOKE;

	if (!task)
		return SLEEPER_WOKE;
	if (cpu) {
		sleeper_registers = registers_of(task);
		answer = take_sleeper(cpu, task, &question);
	}
	bpf_task_release(task);
	return answer;
}
