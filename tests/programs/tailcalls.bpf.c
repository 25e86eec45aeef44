// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Takes the kernel's stack at a function's entry, for tests/tailcalls.rs. It is taken by a program that the trampoline calls, and
 * by a program that such a program enters by a tail call. A program with a tail call has another frame layout.
 */
#include "../../bpf/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "../../bpf/fentry.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BPF_MAP_TYPE_PROG_ARRAY 3

/* A stack, innermost first. */
struct found {
	__u32 frames;
	__u32 cut;
	__u64 frame[MAX_KERNEL_FRAMES];
};

struct seen {
	__u64 times;
	__u64 function;
	struct found by_kernel;
	struct found by_hand;
};

/* Results of the called program, and of the program entered by a tail call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

/* The process whose calls are sampled. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

static __always_inline int is_wanted(void)
{
	__u32 zero = 0;
	__u32 *process = bpf_map_lookup_elem(&wanted, &zero);

	return process && bpf_get_current_pid_tgid() >> 32 == *process;
}

static __always_inline void keep(struct found *found, struct cpu_state *cpu, __u32 frames, int cut)
{
	found->frames = frames;
	found->cut = cut;
	bpf_probe_read_kernel(found->frame, sizeof(found->frame), cpu->sample.frames);
}

static __always_inline int look(void *ctx, __u32 number)
{
	struct seen *here = bpf_map_lookup_elem(&seen, &number);
	struct cpu_state *cpu = state_of(bpf_get_smp_processor_id());
	__u64 function = bpf_get_func_ip(ctx);
	__u32 skipped = 0;
	int cut;

	/* Only the first call is kept; later calls would overwrite it. */
	if (!here || !cpu || !is_wanted() || __sync_fetch_and_add(&here->times, 1))
		return 0;
	here->function = function;
	__u32 frames = walk_by_kernel(cpu, ctx, function, 0, &skipped, &cut);
	keep(&here->by_kernel, cpu, frames, cut);
	frames = walk_frame_records(cpu, trampoline_frame(cpu, ctx, function), function, &cut);
	keep(&here->by_hand, cpu, frames, cut);
	return 0;
}

SEC("fentry") int is_called(void *ctx) { return look(ctx, 0); }

SEC("fentry") int goes_on(void *ctx)
{
	bpf_tail_call(ctx, &next, 0);
	return 0;
}

SEC("fentry") int is_gone_on_to(void *ctx) { return look(ctx, 1); }
