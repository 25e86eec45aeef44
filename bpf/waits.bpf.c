// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Waits: the time that threads of programs spend off the CPU, with the stack where each of them waits.
 *
 *   on_switch      a thread leaves the CPU, another comes: notes the time
 *   on_return      the thread that is back, in its own context: adds the time between both. Due? Its stack ─► record;
 *                  the weight is in nanoseconds
 *
 * These waits have a stack:
 *
 *   - A wait that is at least as long as the machine's period. The stack's weight is the wait's length.
 *   - Some of the shorter waits. Laid end to end, the short waits of a thread are a line of time. On this line are points, about a period
 *     apart; their distances are random. A wait with a point in it has a stack. Its weight is the distance to the point before.
 *
 * So a wait of 1 ms is seen a hundred times less often than a wait of 100 ms. On average, the weights at a place sum up to the time that
 * threads wait there. For one thread, the sum of all weights differs from its waits by two periods at most.
 *
 * Each CPU has a budget of stacks for each tenth of a second (`control`). The period doubles when a CPU has used up its budget. It halves
 * after a tenth in which no CPU used half of its budget. The clock tells the tenths, not user space: if that were late, the period would
 * double again and again. All CPUs have the same period, so that the weight of a wait does not depend on the CPU where it ends. The first
 * element of `events` holds the period.
 *
 * A thread is followed from its birth on (on_fork), or since follow() has found it. Memory for that is not taken in on_switch: it holds
 * the lock of the CPU's run queue.
 *
 * on_return is called at the end of a switch, after that lock was released (6.15 and later). Earlier kernels have on_finish, a kprobe on the
 * function that the thread that is back calls first.
 *
 * Loads on 5.15 and later. Promises to user space: `count` is the sum of all waits of followed threads that have ended. On average, the
 * weights that were sent sum up to it. Waits of flametop itself are not counted.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "events.h"
#include "fentry.h"
#include "threads.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A tenth of a second, and bounds of the period, in nanoseconds. */
#define TENTH 100000000ULL
#define LEAST_PERIOD (1U << 20)
#define MOST_PERIOD (1U << 31)

/* The kernel's text of functions that wait. 0 if user space may not know addresses. */
extern const void __sched_text_start __ksym __weak;
extern const void __sched_text_end __ksym __weak;

static __always_inline __u32 period_of(const struct event *machine)
{
	return machine->period > LEAST_PERIOD ? machine->period : LEAST_PERIOD;
}

/* Returns the distance of two points: between half of a period and one and a half, any of them as likely. */
static __always_inline __u64 draw_distance(__u32 period)
{
	return period / 2 + bpf_get_prandom_u32() % period;
}

/*
 * Begins to follow a thread. A thread that waits now waits since now.
 *
 * The thread begins at a random place between two points. A long distance contains more places than a short one, so its chance must be
 * larger, in proportion to its length. To draw the longer of two distances half of the time gives just that.
 */
static __always_inline void follow_thread(struct task_struct *task, int waits_now)
{
	struct waits *waits = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct event *machine = event_of(0);

	if (!waits || !machine || waits->since || waits->due)
		return;

	__u32 period = period_of(machine);
	__u64 distance = draw_distance(period);
	__u64 other = draw_distance(period);

	if (other > distance && bpf_get_prandom_u32() & 1)
		distance = other;
	waits->rest = bpf_get_prandom_u32() % (__u32)distance;
	waits->due = distance;
	waits->delay = delay_of(task);
	if (waits_now)
		waits->since = bpf_ktime_get_ns() & ~HAS_STACK;
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *child = (struct task_struct *)ctx[1];

	if (is_followed(child))
		follow_thread(child, 0);
	return 0;
}

SEC("iter/task")
int follow(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task && is_followed(task))
		follow_thread(task, !task->on_cpu && is_counted(task));
	return 0;
}

/* Set by user space. A wait that is shorter is not cut. It grows with the number of threads that wait. */
__u64 least_age = 1000000000;
/* Nor is the stack of a wait that is shorter than this asked for. */
__u64 least_wait = 1000000000;

/*
 * Counts the time so far of threads that wait. Called once a second for each thread. Without a stack of the wait, the thread is written to
 * user space instead, which asks for its stack (sleepers.bpf.c).
 */
SEC("iter/task")
int cut_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task || !is_followed(task) || !is_counted(task))
		return 0;

	struct waits *waits = bpf_task_storage_get(&threads, task, NULL, 0);
	struct event *event = event_of(bpf_get_smp_processor_id());
	__u64 since = waits ? waits->since : 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 waited = now - since;

	if (!since || !event || (__s64)waited < (__s64)(since & HAS_STACK ? least_age : least_wait))
		return 0;
	if (!(since & HAS_STACK)) {
		struct known_task known = {};
		struct sleeper sleeper = {.tid = task->pid, .tgid = task->tgid, .since = since};

		find_owner(&known, task, WITHOUT_TRUST(task)->real_cred);
		sleeper.uid = known.uid;
		bpf_seq_write(ctx->meta->seq, &sleeper, sizeof(sleeper));
		return 0;
	}

	struct sample_header *header = bpf_ringbuf_reserve(&records, sizeof(*header), 0);

	if (!header)
		return 0;
	if (!exchange(waits, since, now | HAS_STACK)) {
		bpf_ringbuf_discard(header, BPF_RB_NO_WAKEUP);
		return 0;
	}
	__builtin_memset(header, 0, sizeof(*header));
	header->kind = RECORD_SLEEPS_ON;
	header->time = now;
	header->tgid = task->tgid;
	header->tid = task->pid;
	header->source = source_number;
	header->weight = waited;
	header->wanted = part_of(wanted_so_far(task, waits, waited), waited);
	bpf_ringbuf_submit(header, BPF_RB_NO_WAKEUP);
	__sync_fetch_and_add(&event->asleep, waited);
	__sync_fetch_and_add(&event->cuts, 1);
	return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *left = (struct task_struct *)ctx[1];
	int counts = is_followed(left) && is_counted(left);

	if (!counts && !is_followed((struct task_struct *)ctx[2]))
		return 0;

	struct event *event = event_of(bpf_get_smp_processor_id());

	if (!event)
		return 0;
	event->switched = now;
	if (!counts)
		return 0;

	struct waits *waits = bpf_task_storage_get(&threads, left, NULL, 0);

	if (waits) {
		waits->since = now & ~HAS_STACK;
		waits->has_quota = has_quota(left);
		waits->could_run = ctx[0] & 1 || !left->__state;
	} else {
		event->unknown++;
	}
	return 0;
}

/* Begins the tenth of a second: gives the CPU its budget. The first CPU halves the period if none used half of its budget in the last one. */
static __always_inline void begin_epoch(struct event *event, struct event *machine, const struct control *control)
{
	__u64 last = machine->next;
	__u32 epoch = event->switched / TENTH;

	if (event->epoch == epoch)
		return;
	if (last != epoch && __sync_val_compare_and_swap(&machine->next, last, epoch) == last) {
		if (machine->mark != last)
			machine->period /= 2;
		machine->period = period_of(machine);
	}
	event->tokens = control->budget;
	event->period = period_of(machine);
	event->epoch = epoch;
}

/* Takes a token of the CPU's budget. If it is used up, the period doubles, unless another CPU has doubled it already. */
static __always_inline void take_token(struct event *event, struct event *machine, const struct control *control)
{
	__u32 half = control->budget / 2;

	if (!event->tokens) {
		if (event->period < MOST_PERIOD)
			__sync_val_compare_and_swap(&machine->period, event->period, event->period * 2);
		event->period = period_of(machine);
		event->tokens = half + 1;
	}
	event->tokens--;
	if (event->tokens < half && machine->mark != event->epoch)
		machine->mark = event->epoch;
}

/* Returns the weight of this wait's stack, in nanoseconds. 0 if no stack is due. */
static __always_inline __u64 weigh(const struct event *machine, struct waits *waits, __u64 waited)
{
	__u32 period = period_of(machine);
	__u64 weight = 0;

	if (waited >= period)
		return waited;
	waits->rest += waited;
	/* Two points at most: the wait is shorter than a period, and they are half of one apart. */
	for (int i = 0; i < 2 && waits->rest >= waits->due; i++) {
		weight += waits->due;
		waits->rest -= waits->due;
		waits->due = draw_distance(period);
	}
	return weight;
}

/* Reads the kernel's part of the stack, from the scheduler's function on that the thread waits in. */
static __always_inline __u32 read_waiting_stack(void *ctx, struct cpu_state *cpu, struct event *event)
{
	__u64 *frames = cpu->sample.frames;
	__u32 count = read_kernel_stack(ctx, frames, event->skipped & 15);

	if (event->skipped)
		return count;
	/* The first time: above it are this program and what called it. */
	for (__u32 i = 0; i < MAX_SKIPPED; i++)
		if (frames[i] >= (__u64)&__sched_text_start && frames[i] < (__u64)&__sched_text_end) {
			event->skipped = i;
			return i ? read_kernel_stack(ctx, frames, i) : count;
		}
	return count;
}

/* Sends the stack of a thread. Returns 0 if the ring is full. */
static __always_inline int take_stack(void *ctx, struct cpu_state *cpu, struct event *event,
				      struct task_struct *task, __u64 weight, __u32 wanted, int quota)
{
	struct sample_header *header = &cpu->sample.header;

	begin_sample(cpu, task);
	header->kind = SAMPLE_WAIT;
	header->source = source_number;
	header->weight = weight;
	header->wanted = wanted;
	if (quota)
		header->flags |= SAMPLE_QUOTA;

	__u32 kernel = read_waiting_stack(ctx, cpu, event);

	find_runtime(cpu, header->tgid);
	walk_user(ctx, NULL, task, cpu, kernel, max_depth, 0, 0, 0);
	if (cpu->walk.scripted)
		send_script(cpu, task, &records);
	if (finish_sample(cpu, kernel)) {
		event->ring_full++;
		return 0;
	}
	event->taken++;
	event->reported += weight;
	if (cpu->walk.wishes)
		send_wishes(cpu);
	return 1;
}

/* Ends the wait of the thread that is back on the CPU. */
static __always_inline int end_wait(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct waits *waits = bpf_task_storage_get(&threads, task, NULL, 0);

	if (!waits || !waits->since)
		return 0;

	__u32 cpu_number = bpf_get_smp_processor_id();
	struct event *event = event_of(cpu_number);
	struct event *machine = event_of(0);
	struct control *control = current_control();
	__u64 since = __sync_lock_test_and_set(&waits->since, 0) & ~HAS_STACK;
	__u64 delay = delay_of(task);
	__u64 wanted = delay > waits->delay ? delay - waits->delay : 0;

	waits->delay = delay;
	if (waits->could_run)
		wanted = ~0ULL;
	if (!event || !machine || !control || event->switched <= since)
		return 0;

	__u64 waited = event->switched - since;

	event->count += waited;
	event->waits++;
	begin_epoch(event, machine, control);

	__u64 weight = weigh(machine, waits, waited);

	if (!weight)
		return 0;
	take_token(event, machine, control);

	struct cpu_state *cpu = claim_state(cpu_number, event);
	int sent = cpu && take_stack(ctx, cpu, event, task, weight, part_of(wanted, waited), waits->has_quota);

	if (cpu)
		release_state(cpu);
	/* The weight is added to that of the thread's next stack. */
	if (!sent)
		waits->rest += weight;
	return 0;
}

SEC("tp_btf/sched_exit_tp")
int on_return(__u64 *ctx)
{
	/* It is called, too, where the thread had not left. */
	return ctx[0] & 1 ? end_wait(ctx) : 0;
}

SEC("kprobe")
int on_finish(void *ctx)
{
	return end_wait(ctx);
}
