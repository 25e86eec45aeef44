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
	/* kernel_entry puts NO_SYSCALL (-1) there for all but svc. */
	walk->in_syscall = regs->syscallno >= 0;
	walk->newborn = regs->regs[0] == 0 && shares_memory(regs->syscallno, SYSCALL_CLONE, SYSCALL_CLONE3, regs->orig_x0);
	return 0;
}

/* Whether a system call has just returned 0 here, in user mode: of a return address that is not there this is the reason, if
 * the call was clone. svc 0 is d4000001. */
static __always_inline int returns_from_syscall(struct walk *walk)
{
	__u32 code[3] = {};

	if (walk->regs[0] || bpf_probe_read_user(code, sizeof(code), (void *)(walk->pc - 12)))
		return 0;
	return code[0] == 0xd4000001 || code[1] == 0xd4000001 || code[2] == 0xd4000001;
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

/*
 * Whether the return address is still, or again, in x30, by the instruction that was interrupted: at a function's first
 * instructions and at its last.
 *
 *   paciasp d503233f   bti c d503245f   stp x29, x30, [sp, #-n]! a9xx7bfd   ret d65f03c0   retaa d65f0bff   autiasp d50323bf
 */
static __always_inline int return_address_by_code(__u64 pc)
{
	__u32 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)pc))
		return -1;
	if (code == 0xd503233f || code == 0xd503245f || code == 0xd65f03c0 || code == 0xd65f0bff || code == 0xd50323bf)
		return 0;
	return (code & 0xffc07fff) == 0xa9807bfd ? 0 : -1;
}

#endif
