/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Table of the registers that can be trusted at each source of events.
 *
 * User registers are always those that the kernel saved at the top of the task's kernel stack when it was entered. They are complete at
 * every source. (At a tick in user mode the context is a view of the same registers: read_user_registers().)
 *
 * Kernel registers come from the program's context, which depends on the source. Some sources give complete registers. Others set a few
 * members and leave 0 or stale values elsewhere, even in the mode bits. The remaining sources give no registers at all. So only the
 * registers that this table names are read from the context. tests/registers.rs proves the table with registers of known values.
 * docs/unwinding.md shows the result.
 */
#ifndef FLAMETOP_REGS_H
#define FLAMETOP_REGS_H

/* Kind of the program that an event runs: `Mechanism` in src/collector/probes/spec.rs. */
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
	__u8 returned; /* user mode continues at an address that a call has just returned to */
};

/* Returns the trusted registers at an event of a source. If the source is a constant, the result is one, and costs nothing. */
static __always_inline struct trust trusted(enum register_source source)
{
	struct trust trust = {};

	switch (source) {
	case FROM_KPROBE:
		/* From an exception, or from ftrace with all registers saved (x86). */
		trust.kernel = ALL_REGISTERS;
		trust.at_entry = 1;
		break;
	case FROM_KPROBE_MULTI:
		/* Up to 6.13 all registers; since then those of ftrace_partial_regs. A kernel does not tell which of both it gives. */
		trust.kernel = FTRACE_REGISTERS;
		trust.at_entry = 1;
		break;
	case FROM_URETPROBE:
		trust.returned = 1;
		break;
	case FROM_UPROBE:
		/* The context is the user's registers: the same that lie at the top of the task's stack. */
	case FROM_PERF_EVENT:
		/* A copy of user or kernel registers: see is_user_mode(). */
	case FROM_KRETPROBE:
	case FROM_KRETPROBE_MULTI:
		/* Made by a trampoline. On arm64 pc was 0 in older kernels, which did not fill it in. sp and lr are not always set. */
	case FROM_TRACEPOINT:
	case FROM_FENTRY:
	case FROM_FEXIT:
		/* No registers: the context is an array of arguments. */
		break;
	}
	return trust;
}

/*
 * Tells whether a perf event came in user mode, where the kernel has no stack. It tests the same registers as the kernel's own walk.
 */
static __always_inline int is_user_mode(struct perf_event_context *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return (ctx->registers[17] & 3) == 3; /* cs */
#else
	return (ctx->registers[33] & 0xf) == 0; /* pstate: EL0 */
#endif
}

/* Returns a kernel register from the context; 0 if it cannot be trusted. */
static __always_inline __u64 kernel_register(void *ctx, enum register_source source, __u32 number)
{
	return trusted(source).kernel >> number & 1 ? CONTEXT_REGISTER(ctx, number) : 0;
}

#endif
