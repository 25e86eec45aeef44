/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * arm64: registers, signal frames, return addresses, and what its code says where unwind information says nothing.
 *
 * Numbers of registers are DWARF's: AADWARF64, section 4.1.
 */
#ifndef FLAMETOP_ARCH_ARM64_H
#define FLAMETOP_ARCH_ARM64_H

#define REG_FP 29
#define REG_LR 30
#define REG_SP 31

/* include/uapi/asm-generic/unistd.h */
#define SYSCALL_CLONE 220
#define SYSCALL_CLONE3 435

/* pstate: arch/arm64/include/uapi/asm/ptrace.h. */
#define PSR_MODE_MASK 0xf
#define PSR_MODE32_BIT 0x10

/* The bits of a code address that may be a signature of pointer authentication; measured by user space before loading. */
const volatile __u64 signature_mask;

/* Whether a system call has just returned 0 here, in user mode: of a return address that is not there this is the reason, if
 * the call was clone. svc 0 is d4000001. */
static __always_inline int returns_from_syscall(struct walk *walk)
{
	__u32 code[3] = {};

	if (walk->regs[0] || bpf_probe_read_user(code, sizeof(code), (void *)(walk->pc - 12)))
		return 0;
	return code[0] == 0xd4000001 || code[1] == 0xd4000001 || code[2] == 0xd4000001;
}

/* Whether the instruction before is svc 0. */
static __always_inline int is_behind_svc(__u64 pc)
{
	__u32 code;

	return !bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 4)) && code == 0xd4000001;
}

/*
 * The task's registers of user mode; 0, or why there are none. They lie at the top of its kernel stack, whether it came
 * in by a system call, a fault, or the tick itself: so the tick's own registers are never needed.
 */
static __always_inline int read_user_registers(struct task_struct *task, struct walk *walk)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 pstate = regs->pstate;

	if (pstate & PSR_MODE32_BIT)
		return USER_END_32_BIT;
	if (pstate & PSR_MODE_MASK)
		return USER_END_REGISTERS;
#pragma unroll
	for (int i = 0; i < 31; i++)
		walk->regs[i] = regs->regs[i];
	walk->regs[REG_SP] = regs->sp;
	walk->pc = regs->pc;
	walk->valid = 0xffffffff;
	/*
	 * kernel_entry puts NO_SYSCALL (-1) there, and C code the number, a moment later; sigreturn takes it back. A tick between, in the
	 * kernel, finds an address that may be the next function's.
	 */
	walk->in_syscall = regs->syscallno >= 0 || (walk->first_frame && is_behind_svc(walk->pc));
	walk->newborn = regs->regs[0] == 0 && shares_memory(regs->syscallno, SYSCALL_CLONE, SYSCALL_CLONE3, regs->orig_x0);
	/*
	 * Back in user mode a new thread has its parent's return address in x30, until it is in code that only threads run. x8 still
	 * tells the call: C libraries call clone3 for threads and for posix_spawn, whose child has a stack of its own, too.
	 */
	if (regs->regs[0] == 0 && regs->regs[8] == SYSCALL_CLONE3 && returns_from_syscall(walk))
		walk->newborn = 1;
	return 0;
}

/* Go for arm64 leaves its stacks with a frame: no table has such rules. */
static __always_inline int left_stack(struct walk *walk, __u64 rule, __u64 *sp, __u64 *pc)
{
	return USER_END_INVALID;
}

/* A code address without its signature. */
static __always_inline __u64 code_address(__u64 address)
{
	return address & ~signature_mask;
}

/*
 * The registers that a signal interrupted: 128 bytes of siginfo, 176 to uc_mcontext, 8 to regs[0]: x0 to x30, sp, pc.
 * arch/arm64/kernel/signal.c: struct rt_sigframe; arch/arm64/include/uapi/asm/sigcontext.h.
 */
#define SIGNAL_WORDS 33

static __always_inline int read_signal_frame(struct walk *walk, __u64 *words)
{
	if (bpf_probe_read_user(words, SIGNAL_WORDS * 8, (void *)(walk->regs[REG_SP] + 312)))
		return USER_END_UNREADABLE;
#pragma unroll
	for (int i = 0; i < 32; i++)
		walk->regs[i] = words[i];
	walk->pc = words[32];
	walk->valid = 0xffffffff;
	return 0;
}

/* Whether a call ends there: BL, BLR, or BLRAA and its kind. */
static __always_inline int is_return_address(__u64 address)
{
	__u32 code;

	if (address & 3 || bpf_probe_read_user(&code, sizeof(code), (void *)(address - 4)))
		return 0;
	return (code & 0xfc000000) == 0x94000000 || (code & 0xfefff000) == 0xd63f0000;
}

/* Instructions that are looked at for what becomes of x30: those of two cache lines. */
#define MOST_LOOKED_AT 32

enum return_place {
	ANYWHERE,
	IN_X30,
	IN_FRAME_RECORD, /* beside the frame pointer that x29 points to */
};

/*
 * Where the return address is, by the instructions from here on: the first that has to do with x30 tells.
 *
 *   ret, retaa, retab; paciasp, pacibsp, autiasp, autibsp; stp and str of x30; br x16 and x17 (linkage)      in x30
 *   ldp x29, x30, [sp, …]                                                                        in the frame record
 *   bl, blr       x30 is overwritten: after that only the frame record is believed
 *   others        who knows
 *
 * A function that has saved x30 loads it before each ret, one that never does comes to a ret, and one that will comes to its
 * store. x30 alone says nothing: once a function has called, it is an address in this function itself.
 */
static __always_inline int place_of_return_address(__u64 pc, int has_called, __u32 *code)
{
	/* A failed read leaves zeros, which say nothing. The page behind may not be there, or not in memory. */
	if (bpf_probe_read_user(code, MOST_LOOKED_AT * sizeof(*code), (void *)pc) && bpf_probe_read_user(code, sizeof(*code), (void *)pc))
		return ANYWHERE;
#pragma unroll
	for (int i = 0; i < MOST_LOOKED_AT; i++) {
		__u32 word = code[i];

		if (word == 0xd65f03c0 || (word & 0xfffffbff) == 0xd65f0bff || (word & 0xffffff3f) == 0xd503233f ||
		    (word & 0xffffffdf) == 0xd61f0200)
			return has_called ? ANYWHERE : IN_X30;
		if ((word & 0xfe407fff) == 0xa8407bfd)
			return IN_FRAME_RECORD;
		/* Of a pair the second or the first, or one alone; bit 22 says that it is loaded. */
		if ((word & 0xfe007c00) == 0xa8007800 || (word & 0xfe00001f) == 0xa800001e || (word & 0xffa0001f) == 0xf800001e ||
		    (word & 0xff80001f) == 0xf900001e)
			return has_called || word & 0x00400000 ? ANYWHERE : IN_X30;
		if ((word & 0xfc000000) == 0x94000000 || (word & 0xfefff000) == 0xd63f0000)
			has_called = 1;
		else if ((word & 0xfc000000) == 0x14000000 || (word & 0xfefff000) == 0xd61f0000)
			return ANYWHERE;
	}
	return ANYWHERE;
}

#endif
