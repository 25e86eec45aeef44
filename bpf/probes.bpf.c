// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that run at events: entry or exit of a function of the kernel or of a program, a tracepoint, a performance counter.
 * They send the same record as the clock's program; its weight is the number of events that it represents.
 *
 * An event may come a million times a second. Every event is counted. Stacks are taken within a budget:
 *
 *   event ─► count ─► due? ─► claim ─► admitted? ─► stack ─► record: weight = events since the last record
 *              │        │        │          └ not yet: the period, or the budget, of this tenth of a second
 *              │        │        └ another stack is being taken on this CPU: the next event will be due
 *              └────────┴ a load, an addition and two comparisons
 *
 * User space counts the tenths of a second (`control`). If it stands still, fewer and fewer stacks are taken, so none is wasted.
 * Within a tenth, the first `budget` events are admitted. After that, the period doubles each time that half of the budget was used
 * up. The next tenth begins with the period that would just fit the same rate. The event within a period is chosen at random.
 * Otherwise rhythmic events would always be seen at the same beat.
 *
 * Loads on 5.15 and later, each program where the kernel offers its source. Promises to user space: `count` has no gap. It equals the
 * sum of the weights that were sent, plus the events since the last record. Events of flametop itself count in `own` instead.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "events.h"
#include "fentry.h"
#include "regs.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u32 backtrace; /* set before loading */

/* Tells whether period and budget admit a stack at this event. One program at a time calls it. */
static __always_inline int is_admitted(struct event *event, const struct control *control, __u64 count)
{
	__u32 epoch = control->epoch;
	__u32 budget = control->budget ? control->budget : 1;

	if (event->epoch != epoch) {
		__u64 period = (count - event->mark) / (__u32)(epoch - event->epoch) / budget;

		event->period = period < 1 ? 1 : period > 0x7fffffff ? 0x7fffffff : period;
		event->tokens = budget;
		event->mark = count;
		event->epoch = epoch;
		/* The last period may have been longer: move the next due event closer. */
		if (event->next > event->reported + event->period)
			event->next = event->reported + event->period;
	}
	if (count < event->next)
		return 0;
	if (!event->tokens) {
		if (event->period < 0x40000000)
			event->period *= 2;
		event->tokens = budget / 2 + 1;
	}
	event->tokens--;
	event->next = count + 1;
	if (event->period > 1)
		event->next += event->period / 2 + bpf_get_prandom_u32() % event->period;
	return 1;
}

/* Walks the kernel's part of the stack, innermost first. Sets `cut` if frames are known to be missing. */
static __always_inline __u32 walk_kernel(
	void *ctx, struct cpu_state *cpu, struct event *event, enum register_source source, int *cut)
{
	__u64 *frames = cpu->sample.frames;
	__u64 function;
	__u32 count;

	*cut = 0;
	switch (source) {
	case FROM_FENTRY:
	case FROM_FEXIT:
		function = bpf_get_func_ip(ctx);
		if (backtrace == BACKTRACE_MANUAL)
			return walk_frame_records(cpu, trampoline_frame(cpu, ctx, function), function, cut);
		return walk_by_kernel(cpu, ctx, function, source == FROM_FEXIT, &event->skipped, cut);
	case FROM_KRETPROBE:
	case FROM_KRETPROBE_MULTI:
		/* The function has returned: the stack begins in its caller. */
		function = bpf_get_func_ip(ctx);
		if (!function)
			break;
		count = read_kernel_stack(ctx, frames + 1, 0);
		frames[0] = function;
		return count < MAX_KERNEL_FRAMES ? count + 1 : count;
	case FROM_KPROBE:
	case FROM_KPROBE_MULTI:
		function = bpf_get_func_ip(ctx);
		if (!function)
			break;
#if defined(__TARGET_ARCH_arm64)
		/* At a function's entry, its caller is in x30 but in no frame record, so the kernel's walk misses it. */
		__u64 caller = kernel_register(ctx, source, REG_LR) | KERNEL_CODE;

		count = read_kernel_stack(ctx, frames + 1, 0);
		if (caller != KERNEL_CODE && count > 1 && frames[2] != caller) {
			frames[0] = function;
			frames[1] = caller;
			return count < MAX_KERNEL_FRAMES ? count + 1 : count;
		}
#endif
		/* frames[0] is the replaced instruction, or one byte behind it. The function begins there. */
		count = read_kernel_stack(ctx, frames, 0);
		if (count)
			frames[0] = function;
		return count;
	default:
		break;
	}
	return read_kernel_stack(ctx, frames, 0);
}

/* Sends the kernel's part once more, walked by another method, for comparing. */
static __always_inline void send_compared(
	void *ctx, struct cpu_state *cpu, __u64 r10, enum register_source source)
{
	struct sample_header *header = &cpu->sample.header;
	__u64 function, frame;
	int cut = 0;

	if (backtrace != BACKTRACE_BOTH && backtrace != BACKTRACE_SCAN)
		return;
	if (source != FROM_FENTRY && source != FROM_FEXIT)
		return;
	function = bpf_get_func_ip(ctx);
	if (backtrace == BACKTRACE_SCAN)
		frame = trampoline_frame_above(r10, function);
	else
		frame = trampoline_frame(cpu, ctx, function);
	header->kind = SAMPLE_COMPARED;
	cpu->walk.frames = 0;
	header->flags = 0;

	__u32 count = walk_frame_records(cpu, frame, function, &cut);
	if (cut)
		header->flags = SAMPLE_KERNEL_CUT;
	finish_sample(cpu, count);
}

static __always_inline void take_stack(void *ctx, struct cpu_state *cpu, struct event *event, __u64 count,
				       enum register_source source, __u64 r10)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct sample_header *header = &cpu->sample.header;
	int cut;

	begin_sample(cpu, task);
	header->kind = SAMPLE_EVENT;
	header->source = source_number;
	header->weight = count - event->reported;

	__u32 kernel = walk_kernel(ctx, cpu, event, source, &cut);
	if (cut) {
		header->flags |= SAMPLE_KERNEL_CUT;
		event->cut++;
	}
	/* bpf_get_func_ip() works for functions of programs since 6.6. */
	__u64 left = source == FROM_URETPROBE ? bpf_get_func_ip(ctx) : 0;

	find_runtime(cpu, header->tgid);
	walk_user(ctx, NULL, task, cpu, kernel, max_depth, trusted(source).returned, left, 0);
	if (cpu->walk.scripted)
		send_script(cpu, task, &records);
	if (finish_sample(cpu, kernel)) {
		event->ring_full++;
	} else {
		event->taken++;
		event->reported += header->weight;
		if (cpu->walk.wishes)
			send_wishes(cpu);
		send_compared(ctx, cpu, r10, source);
	}
}

static __always_inline int on_event(void *ctx, enum register_source source, __u64 events_here, __u64 r10)
{
	__u32 cpu_number = bpf_get_smp_processor_id();
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (filter_targets && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;

	struct event *event = event_of(cpu_number);
	struct control *now = current_control();

	if (!event || !now)
		return 0;
	if (is_left_out(tgid)) {
		__sync_fetch_and_add(&event->own, events_here);
		return 0;
	}
	__u64 count = __sync_fetch_and_add(&event->count, events_here) + events_here;

	if (count < event->next && event->epoch == now->epoch)
		return 0;

	struct cpu_state *cpu = claim_state(cpu_number, event);

	if (!cpu)
		return 0;
	if (is_admitted(event, now, count))
		take_stack(ctx, cpu, event, count, source, r10);
	release_state(cpu);
	return 0;
}

/* Reads the program's frame pointer R10 as a number: see fentry.h. */
#define OWN_FRAME(number) asm volatile("%0 = r10" : "=r"(number))

SEC("fentry")
int on_entry(void *ctx)
{
	__u64 r10;

	OWN_FRAME(r10);
	return on_event(ctx, FROM_FENTRY, 1, r10);
}

SEC("fexit")
int on_exit(void *ctx)
{
	__u64 r10;

	OWN_FRAME(r10);
	return on_event(ctx, FROM_FEXIT, 1, r10);
}

SEC("kprobe")
int on_kprobe(void *ctx)
{
	return on_event(ctx, FROM_KPROBE, 1, 0);
}

SEC("kretprobe")
int on_kretprobe(void *ctx)
{
	return on_event(ctx, FROM_KRETPROBE, 1, 0);
}

SEC("kprobe.multi")
int on_kprobe_multi(void *ctx)
{
	return on_event(ctx, FROM_KPROBE_MULTI, 1, 0);
}

SEC("kretprobe.multi")
int on_kretprobe_multi(void *ctx)
{
	return on_event(ctx, FROM_KRETPROBE_MULTI, 1, 0);
}

SEC("uprobe")
int on_uprobe(void *ctx)
{
	return on_event(ctx, FROM_UPROBE, 1, 0);
}

SEC("uretprobe")
int on_uretprobe(void *ctx)
{
	return on_event(ctx, FROM_URETPROBE, 1, 0);
}

SEC("tracepoint")
int on_tracepoint(void *ctx)
{
	return on_event(ctx, FROM_TRACEPOINT, 1, 0);
}

SEC("perf_event")
int on_perf_event(struct perf_event_context *ctx)
{
	return on_event(ctx, FROM_PERF_EVENT, ctx->sample_period, 0);
}
