// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reports the registers of a program that each source of events shows, for tests/registers.rs. It reads the registers that the
 * kernel has saved at the top of the task's stack. It also reads the context as if it were registers.
 */
#include "../../bpf/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "../../bpf/regs.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * Number of words in pt_regs; a task's pt_regs ends where its stack does. SAVED is the register that the program fills last and
 * restores first, and that every call preserves: while it holds its number, all others do.
 */
#if defined(__TARGET_ARCH_x86)
#define WORDS 21
#define SAVED 0 /* r15 */
#define SAVED_NUMBER 15
#else
#define WORDS 34
#define SAVED 27
#define SAVED_NUMBER 27
#endif
#define SEED 0x5eed0000

const volatile __u32 wanted;

struct seen {
	__u64 times;
	__u64 by_task[34];
	__u64 in_context[34];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct seen);
} sources SEC(".maps");

static __always_inline int look(void *ctx, __u32 number)
{
	struct seen *seen = bpf_map_lookup_elem(&sources, &number);
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 *registers = (__u64 *)bpf_task_pt_regs(task);
	__u64 saved = 0;

	if (!seen || bpf_get_current_pid_tgid() >> 32 != wanted)
		return 0;
	/* Between two rounds of the program the register may hold anything. */
	bpf_probe_read_kernel(&saved, sizeof(saved), registers + SAVED);
	if (saved != SEED + SAVED_NUMBER)
		return 0;
	/* Only the first event is kept; later events would overwrite it. */
	if (__sync_fetch_and_add(&seen->times, 1))
		return 0;
	bpf_probe_read_kernel(seen->by_task, WORDS * 8, registers);
	bpf_probe_read_kernel(seen->in_context, WORDS * 8, ctx);
	return 0;
}

SEC("fentry") int on_entry(void *ctx) { return look(ctx, FROM_FENTRY); }
SEC("fexit") int on_exit(void *ctx) { return look(ctx, FROM_FEXIT); }
SEC("kprobe") int on_kprobe(void *ctx) { return look(ctx, FROM_KPROBE); }
SEC("kretprobe") int on_kretprobe(void *ctx) { return look(ctx, FROM_KRETPROBE); }
SEC("kprobe.multi") int on_kprobe_multi(void *ctx) { return look(ctx, FROM_KPROBE_MULTI); }
SEC("kretprobe.multi") int on_kretprobe_multi(void *ctx) { return look(ctx, FROM_KRETPROBE_MULTI); }
SEC("uprobe") int on_uprobe(void *ctx) { return look(ctx, FROM_UPROBE); }
SEC("uretprobe") int on_uretprobe(void *ctx) { return look(ctx, FROM_URETPROBE); }
SEC("raw_tp/sys_enter") int on_tracepoint(void *ctx) { return look(ctx, FROM_TRACEPOINT); }
SEC("perf_event") int on_perf_event(void *ctx) { return look(ctx, FROM_PERF_EVENT); }
