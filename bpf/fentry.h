/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Unwinds the kernel's stack in a program at a function's entry or exit.
 *
 * fentry and fexit programs are called by a trampoline, which the function's patched first instruction calls:
 *
 *   program ◄── trampoline ◄── function + 5…16 ◄── its caller ◄── …
 *
 * In the kernel's own walk (bpf_get_stack) the stack includes the program and the trampoline. How many frames they take depends on
 * the kernel and on the program. So frames are not counted; the function is found by its address.
 *
 * The manual walk (`--backtrace manual`) searches the trampoline's frame record, beginning at the context. The context points at the
 * saved arguments in the trampoline's frame. Upwards from there, on arm64 (arch/arm64/net/bpf_jit_comp.c):
 *
 *   ctx       arg 1 … arg n              n as the kernel tells it, not assumed
 *             return value               only if an fexit shares the trampoline
 *             x20, x19                   or in the other order; padding to 16 bytes
 *   T         T + 16        ─┐           first frame record: x29 of the trampoline
 *   T + 8     function + 8   │           + 12 where the kernel was built with BTI
 *   T + 16    caller's x29 ◄─┘           second frame record
 *   T + 24    address in the caller      x9, where the function put its x30; not signed, unlike later return addresses
 *
 * T is the only place whose word is its own address + 16 and whose next word is an address in the function. Both conditions hold for
 * every program and every release. On x86_64 the kernel may be built without frame pointers, and rbp may hold any value. So the
 * manual walk gives the function and its caller there, and ends.
 *
 * The older method (`--backtrace scan`, for comparing) searches upwards from the program's frame pointer R10. It depends on how many
 * registers the program saves. It finds nothing where programs run on private stacks (x86_64 since 6.13).
 *
 * Promises: every frame is certain. If no method finds the function, the stack is the function alone and marked as cut.
 */
#ifndef FLAMETOP_FENTRY_H
#define FLAMETOP_FENTRY_H

#include "sample.h"

/* Most bytes from a function's begin to the end of its call of the trampoline: endbr64 or bti, mov x9, x30, and the call. */
#define ENTRY_BYTES 16
/* Most frames of the program and the trampoline: 2 or 3, and some more for tail calls and later kernels. */
#define MAX_SKIPPED 8
/* Words between the arguments and T on arm64. */
#define MIN_GAP 2
#define MAX_GAP 8
#define SCANNED_BYTES 256

/* Bits of code addresses of the kernel that are all ones below their signature. */
#define KERNEL_CODE 0xffff000000000000ULL

/* Numbers of `Backtrace` in src/collector/probes/mod.rs. */
enum backtrace {
	BACKTRACE_KERNEL = 0,
	BACKTRACE_MANUAL = 1,
	BACKTRACE_BOTH = 2, /* the kernel's, and by hand in a second record */
	BACKTRACE_SCAN = 3, /* the kernel's, and by the scan from R10 in a second record */
};

/* A helper since 5.17. It is looked up by its name in the running kernel. */
enum bpf_func_id___new {
	BPF_FUNC_get_func_arg_cnt___new = 185,
};

static __always_inline __u64 kernel_word(__u64 address)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

static __always_inline int is_in_entry(__u64 address, __u64 function)
{
	return address > function && address <= function + ENTRY_BYTES;
}

/* Returns how many arguments the trampoline has saved; -1 if the kernel does not tell. */
static __always_inline long saved_arguments(void *ctx)
{
	if (!bpf_core_enum_value_exists(enum bpf_func_id___new, BPF_FUNC_get_func_arg_cnt___new))
		return -1;
	return bpf_get_func_arg_cnt(ctx);
}

/*
 * Returns a pointer as a number. The verifier allows no arithmetic with variables on a pointer until it was stored and read back.
 */
static __always_inline __u64 as_number(struct cpu_state *cpu, void *pointer)
{
	*(volatile __u64 *)&cpu->words[0] = (__u64)pointer;
	return *(volatile __u64 *)&cpu->words[0];
}

static __always_inline int is_trampoline_frame(__u64 frame, __u64 function)
{
#if defined(__TARGET_ARCH_arm64)
	if (kernel_word(frame) != frame + 16)
		return 0;
#endif
	return is_in_entry(kernel_word(frame + 8), function);
}

/* Returns the trampoline's frame record, found from the context; 0 if it is not certain. */
static __always_inline __u64 trampoline_frame(struct cpu_state *cpu, void *ctx, __u64 function)
{
	__u64 at = as_number(cpu, ctx);
	long arguments = saved_arguments(ctx);

	if (arguments < 0)
		return 0;
	at += 8 * (__u64)arguments;
#if defined(__TARGET_ARCH_arm64)
#pragma unroll
	for (int gap = MIN_GAP; gap <= MAX_GAP; gap++)
#else
	/* With or without the return value. */
#pragma unroll
	for (int gap = 0; gap <= 1; gap++)
#endif
		if (is_trampoline_frame(at + 8 * gap, function))
			return at + 8 * gap;
	return 0;
}

/* Returns the trampoline's frame record, found by the scan from R10 upwards; 0 if it is not certain. */
static __always_inline __u64 trampoline_frame_above(__u64 r10, __u64 function)
{
#if defined(__TARGET_ARCH_arm64)
	for (int i = 0; i < SCANNED_BYTES / 8; i++) {
		__u64 frame = kernel_word(r10 + 8 * i);

		if (frame > r10 && frame < r10 + SCANNED_BYTES && is_trampoline_frame(frame, function))
			return frame;
	}
	return 0;
#else
	__u64 frame = kernel_word(r10);

	return frame > r10 && is_trampoline_frame(frame, function) ? frame : 0;
#endif
}

/*
 * Walks the stack manually, from the trampoline's frame record: the function, its caller, and on arm64 all further callers. Returns
 * the number of frames that it wrote to the sample. Sets `cut` if there are more frames, which are not known.
 */
static __always_inline __u32 walk_frame_records(struct cpu_state *cpu, __u64 frame, __u64 function, int *cut)
{
	__u64 *frames = cpu->sample.frames;
	__u32 count = 1;

	frames[0] = function;
	*cut = 1;
	if (!frame)
		return count;
#if defined(__TARGET_ARCH_arm64)
	__u64 record[2];
	__u64 at = frame + 16;

	for (int i = 1; i < MAX_KERNEL_FRAMES; i++) {
		if (bpf_probe_read_kernel(record, sizeof(record), (void *)at))
			return count;
		/* The last record of a task is {0, 0}. */
		if (!record[1]) {
			*cut = 0;
			return count;
		}
		frames[i] = record[1] | KERNEL_CODE;
		count++;
		if (record[0] <= at) {
			*cut = record[0] != 0;
			return count;
		}
		at = record[0];
	}
#else
	frames[1] = kernel_word(frame + 16);
	if (frames[1])
		count = 2;
#endif
	return count;
}

/*
 * Returns the return address in the caller, found from the context, if the function jumped to the trampoline instead of calling it:
 * x86_64 fexit since 6.19. Then the function is not on the stack. The result counts only if the kernel's walk has the same address.
 */
static __always_inline __u64 caller_if_jumped_to(struct cpu_state *cpu, void *ctx, __u64 function)
{
#if defined(__TARGET_ARCH_x86)
	__u64 at = as_number(cpu, ctx);
	long arguments = saved_arguments(ctx);

	if (arguments >= 0) {
		__u64 above = kernel_word(at + 8 * ((__u64)arguments + 2));

		return is_in_entry(above, function) ? 0 : above;
	}
#endif
	return 0;
}

/* Tells whether the stack begins with the function's frame: an address in it, or the trampoline that it jumped to. */
static __always_inline int begins_with(const __u64 *frames, __u32 count, __u64 function, __u64 caller)
{
	return count && (is_in_entry(frames[0], function) || (caller && count > 1 && frames[1] == caller));
}

/*
 * Takes the stack by the kernel's own walk, the function first. `skipped` is how many frames lay before it the last time. The number
 * stays the same for a program that is attached to one function.
 */
static __always_inline __u32 walk_by_kernel(
	struct cpu_state *cpu, void *ctx, __u64 function, int left, __u32 *skipped, int *cut)
{
	__u64 *frames = cpu->sample.frames;
	__u64 caller = left ? caller_if_jumped_to(cpu, ctx, function) : 0;
	__u32 count = read_kernel_stack(ctx, frames, *skipped & 15);

	*cut = 0;
	if (!begins_with(frames, count, function, caller)) {
		__u32 found = MAX_SKIPPED;

		count = read_kernel_stack(ctx, frames, 0);
		for (__u32 i = 0; i < MAX_SKIPPED; i++)
			if (found == MAX_SKIPPED && i < count && begins_with(frames + i, count - i, function, caller))
				found = i;
		if (found < MAX_SKIPPED) {
			*skipped = found;
			count = read_kernel_stack(ctx, frames, found);
		} else {
			*cut = 1;
			count = 1;
		}
	}
	/* The frame holds an address inside the function, or in the trampoline. Samples show the function's first address. */
	frames[0] = function;
	return count ? count : 1;
}

#endif
