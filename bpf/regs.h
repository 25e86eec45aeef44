/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which registers may be trusted, by what an event comes from.
 *
 * The user's are always those that the kernel saved at the top of the task's own stack when it was entered: whole, wherever the
 * event comes from. (At a tick in user mode the context is a view of the same: read_user_registers().) What a program is given as its
 * context is whole for some sources, made up for others (a few members set, the rest 0 or stale, mode bits included), and no registers
 * at all for the rest: nothing but what this table names is read of it. tests/registers.rs proves the table with registers of known
 * values; docs/unwinding.md shows what came out.
 */
#ifndef FLAMETOP_REGS_H
#define FLAMETOP_REGS_H

/* How an event comes: `Mechanism` in src/collector/probes/spec.rs. */
enum register_source {
	FROM_PERF_EVENT = 0,
	FROM_KPROBE = 1,
	FROM_KRETPROBE = 2,
	FROM_KPROBE_MULTI = 3,
	FROM_KRETPROBE_MULTI = 4,
	FROM_UPROBE = 5,
	FROM_URETPROBE = 6,
	FROM_TRACEPOINT = 7,
	FROM_FENTRY = 8,
	FROM_FEXIT = 9,
};

/* Registers of the kernel by their DWARF numbers, as bits. */
#define ALL_REGISTERS (~0ULL)
#if defined(__TARGET_ARCH_x86)
/* rax rdx rcx rsi rdi rbp rsp r8 r9: what ftrace saves for functions. Not rbx, r10 to r15, flags. */
#define FTRACE_REGISTERS 0x3f7ULL
#define CONTEXT_REGISTER(ctx, number) 0
#else
/* x0 to x8, x29, x30, sp. */
#define FTRACE_REGISTERS 0xe00001ffULL
#define CONTEXT_REGISTER(ctx, number) (((__u64 *)(ctx))[number])
#endif

struct trust {
	__u64 kernel; /* registers in the context, as the traced function has them where the event is */
	__u8 at_entry; /* the event is at a function's first instruction: its caller is not in a frame yet */
	__u8 returned; /* user mode goes on where a call has just returned to */
};

/* What is known at an event of each source. Constant where the source is: costs nothing. */
static __always_inline struct trust trusted(enum register_source source)
{
	struct trust trust = {};

	switch (source) {
	case FROM_KPROBE:
		/* An exception's, or ftrace's with all saved (x86). */
		trust.kernel = ALL_REGISTERS;
		trust.at_entry = 1;
		break;
	case FROM_KPROBE_MULTI:
		/* Up to 6.13 all of them, since then by way of ftrace_partial_regs; a kernel does not tell which. */
		trust.kernel = FTRACE_REGISTERS;
		trust.at_entry = 1;
		break;
	case FROM_URETPROBE:
		trust.returned = 1;
		break;
	case FROM_UPROBE:
		/* The context is the user's registers: the same that lie at the top of the task's stack. */
	case FROM_PERF_EVENT:
		/* A copy, of either mode: see is_user_mode(). */
	case FROM_KRETPROBE:
	case FROM_KRETPROBE_MULTI:
		/* Made by a trampoline: of arm64 pc was 0 before it was filled in, sp and lr are not always there. */
	case FROM_TRACEPOINT:
	case FROM_FENTRY:
	case FROM_FEXIT:
		/* None: an array of arguments. */
		break;
	}
	return trust;
}

/*
 * Whether a perf event met user mode, where the kernel has no stack. By the registers by which the kernel's own walk decides it.
 */
static __always_inline int is_user_mode(struct perf_event_context *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return (ctx->registers[17] & 3) == 3; /* cs */
#else
	return (ctx->registers[33] & 0xf) == 0; /* pstate: EL0 */
#endif
}

/* A register of the kernel in the context; 0 where it cannot be trusted. */
static __always_inline __u64 kernel_register(void *ctx, enum register_source source, __u32 number)
{
	return trusted(source).kernel >> number & 1 ? CONTEXT_REGISTER(ctx, number) : 0;
}

#endif
