/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Takes and sends samples: fills in task and time, sends the record to user space, and sends requests for missing tables.
 *
 *   sampler.bpf.c (the clock) ──┐
 *   probes.bpf.c (events) ──────┴─► cpu_states[…].sample ─► records
 *
 * Both share these maps: probes.bpf.c is loaded with the maps of sampler.bpf.c (src/collector/probes/programs.rs).
 */
#ifndef FLAMETOP_SAMPLE_H
#define FLAMETOP_SAMPLE_H

#include "record.h"
#include "walk/walk.h"

/* Set before loading. The verifier removes code that they switch off. */
const volatile __u32 filter_targets;
const volatile __u32 own_tgid; /* flametop's process, if its samples are not wanted; else 0 */
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

/* Tells whether samples of this process are left out because it is flametop. (own_tgid 0 must not match the idle task.) */
static __always_inline int is_left_out(__u32 tgid)
{
	return own_tgid && tgid == own_tgid;
}

/*
 * Kernel frames that are read first. Few kernel stacks are deeper. The kernel fills missing frames with zeros: for all frames that
 * would be 1 KiB that is in no cache.
 */
#define FEW_KERNEL_FRAMES 31

/* Reads the kernel's stack to `frames`, innermost first, without the `skip` innermost frames. Returns the number of frames. */
static __always_inline __u32 read_kernel_stack(void *ctx, __u64 *frames, __u64 skip)
{
	long bytes = bpf_get_stack(ctx, frames, FEW_KERNEL_FRAMES * sizeof(__u64), skip);

	if (bytes == FEW_KERNEL_FRAMES * sizeof(__u64))
		bytes = bpf_get_stack(ctx, frames, MAX_KERNEL_FRAMES * sizeof(__u64), skip);

	return bytes <= 0 ? 0 : ((__u64)bytes / sizeof(__u64)) & MAX_KERNEL_FRAMES;
}

/*
 * Returns the wake-up flag of a record. User space reads on a timer, and a wake-up for each sample costs more than the sample. So it is
 * woken only when the ring is half full, which is checked at one sample of eight.
 */
static __always_inline __u64 wakeup(struct walk *walk)
{
	if (++walk->sent & 7)
		return BPF_RB_NO_WAKEUP;
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) > half_ring ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Sends the sample. Its size is computed from the numbers of frames, so that the verifier knows its bounds. */
static __always_inline long send(struct cpu_state *cpu, __u32 kernel, __u32 user)
{
	struct sample *sample = &cpu->sample;
	__u64 size = sizeof(sample->header) + ((__u64)kernel + user) * sizeof(__u64);

	if (size > sizeof(*sample)) /* never */
		return -1;
	return bpf_ringbuf_output(&records, sample, size, wakeup(&cpu->walk));
}

/*
 * Sends requests for the tables that the walk missed, and wakes user space: until the tables are loaded, stacks are short. If the ring
 * has no room for a request, the next sample repeats it.
 */
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
		wish->uid = header->uid;
		wish->files = header->files;
		bpf_ringbuf_output(&records, wish, sizeof(*wish), BPF_RB_FORCE_WAKEUP);
	}
}

/* Greatest depth of user namespaces: all kernels allow 32 levels below the initial one. */
#define MAX_USER_NAMESPACES 32

/*
 * Finds the user who is charged for flametop's work on a task, and a number for the files that the task's paths lead to.
 *
 *   uid    the task's real user. In a user namespace below the initial one: the user who made the namespace, because one user can act
 *          as 65,536 users inside.
 *
 *   files  In such a namespace: its number, because its root user chooses the mounts. Else the device of the task's root directory.
 *          Numbers of namespaces are above 0xf0000000, numbers of devices are below.
 */
static __always_inline void find_owner(struct known_task *known, struct task_struct *task, const struct cred *cred)
{
	struct user_namespace *namespace = cred->user_ns;

	if (namespace->level) {
		/* Nested namespaces count as the outermost one, because their user numbers come from it. */
		for (int i = 0; i < MAX_USER_NAMESPACES && namespace->level > 1; i++)
			namespace = namespace->parent;
		known->uid = namespace->owner.val;
		known->files = namespace->ns.inum;
	} else {
		known->uid = cred->uid.val;
		/* 0 for a task that is exiting: it has no fs any more. */
		known->files = WITHOUT_TRUST(task)->fs->root.dentry->d_sb->s_dev;
	}
}

/* Writes the task's owner into the header. Finding it reads seven cache lines that are not in the cache, so it is found once a second. In
 * between, a task of root may change its root directory unnoticed. Others can do so only in a user namespace, which has a new `cred`. */
static __always_inline void identify(struct cpu_state *cpu, struct task_struct *task)
{
	struct sample_header *header = &cpu->sample.header;
	struct known_task *known = &cpu->tasks[header->tid & (KNOWN_TASKS - 1)];
	const struct cred *cred = WITHOUT_TRUST(task)->real_cred;

	if (known->cred != cred || known->tid != header->tid || known->time != cpu->walk.time) {
		known->cred = cred;
		known->tid = header->tid;
		known->time = cpu->walk.time;
		known->no_runtime = 0;
		find_owner(known, task, cred);
	}
	header->uid = known->uid;
	header->files = known->files;
}

/*
 * Fills in the header of a sample: task, time, and defaults for a sample of the clock. Members of the task are read in place. Helpers
 * return the same values, but the CPU would have to fetch their code first.
 */
static __always_inline void begin_sample(struct cpu_state *cpu, struct task_struct *task)
{
	struct sample_header *header = &cpu->sample.header;

	header->time = bpf_ktime_get_ns();
	cpu->walk.time = header->time >> TIME_SHIFT;
	/* Uses the helper, because reading it in place would need the layouts of three more kernel structs. */
	header->cgroup = bpf_core_field_exists(task->cgroups) ? bpf_get_current_cgroup_id() : 0;
	header->tgid = task->tgid;
	header->tid = task->pid;
	header->cpu = bpf_get_smp_processor_id();
	header->kind = SAMPLE_ON_CPU;
	header->flags = 0;
	header->source = 0;
	header->wanted = 0;
	header->weight = 1;
	identify(cpu, task);
	((__u64 *)header->comm)[0] = ((__u64 *)task->comm)[0];
	((__u64 *)header->comm)[1] = ((__u64 *)task->comm)[1];
}

/* Writes the results of the walks and sends the sample. Called once for each begin_sample(), except when walks are compared. */
static __always_inline long finish_sample(struct cpu_state *cpu, __u32 kernel)
{
	struct sample_header *header = &cpu->sample.header;

	charge_time(cpu);

	if (kernel >= max_depth)
		header->flags |= SAMPLE_KERNEL_CUT;
	if (cpu->walk.dump)
		header->flags |= cpu->walk.dump == DUMP_SENT ? SAMPLE_HAS_DUMP : SAMPLE_DUMP_REFUSED;
	header->kernel_frames = kernel;
	header->user_frames = cpu->walk.frames;
	header->user_end = cpu->walk.end;
	return send(cpu, kernel, cpu->walk.frames);
}

#endif
