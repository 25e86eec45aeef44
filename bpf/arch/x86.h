/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * x86_64: registers, signal frames, return addresses, and what its code says where unwind information says nothing.
 *
 * Numbers of registers are DWARF's: System V psABI for AMD64, figure 3.36.
 */
#ifndef FLAMETOP_ARCH_X86_H
#define FLAMETOP_ARCH_X86_H

#define REG_RBX 3
#define REG_FP 6
#define REG_SP 7
#define REG_RCX 2
#define REG_R11 11
/* What a rule may come back to another stack by. */
#define MAY_SWITCH_BY(number) ((number) == REG_FP)

/* arch/x86/entry/syscalls/syscall_64.tbl */
#define SYSCALL_CLONE 56
#define SYSCALL_CLONE3 435

/* Selectors of code in user mode: arch/x86/include/asm/segment.h; of Xen's guests, include/xen/interface/xen-x86_64.h. */
#define USER_CS 0x33
#define XEN_USER_CS 0xe033

/*
 * The task's registers of user mode; 0, or why there are none. They lie at the top of its kernel stack, whether it came
 * in by a system call, a fault, or the tick itself: so the tick's own registers are never needed.
 */
static __always_inline int read_user_registers(struct task_struct *task, struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 cs = regs->cs;

	if ((cs & 3) != 3)
		return USER_END_REGISTERS;
	if (cs != USER_CS && cs != XEN_USER_CS)
		return USER_END_32_BIT;
	walk->regs[0] = regs->ax;
	walk->regs[1] = regs->dx;
	walk->regs[REG_RCX] = regs->cx;
	walk->regs[REG_RBX] = regs->bx;
	walk->regs[4] = regs->si;
	walk->regs[5] = regs->di;
	walk->regs[REG_FP] = regs->bp;
	walk->regs[REG_SP] = regs->sp;
	walk->regs[8] = regs->r8;
	walk->regs[9] = regs->r9;
	walk->regs[10] = regs->r10;
	walk->regs[REG_R11] = regs->r11;
	walk->regs[12] = regs->r12;
	walk->regs[13] = regs->r13;
	walk->regs[14] = regs->r14;
	walk->regs[15] = regs->r15;
	walk->pc = regs->ip;
	walk->valid = 0xffff;
	/*
	 * Interrupts and faults put -1 there (idtentry_body). The instruction syscall overwrites rcx, by the address behind it,
	 * and r11. Where these differ, the kernel has moved pc: to the first byte of a handler, which no call has brought it to.
	 */
	walk->in_syscall = (__s64)regs->orig_ax >= 0 && regs->cx == regs->ip;
	if ((__s64)regs->orig_ax >= 0)
		walk->valid &= ~(1U << REG_RCX | 1U << REG_R11);
	walk->newborn = regs->ax == 0 && shares_memory(regs->orig_ax, SYSCALL_CLONE, SYSCALL_CLONE3, regs->di);
	return 0;
}

/*
 * Whether a system call has just returned 0 here, in user mode: of a return address that is not there this is the reason, if
 * the call was clone. The instructions up to the thread's own code have no unwind information, or their parent's.
 */
static __always_inline int returns_from_syscall(struct walk *walk)
{
	__u64 code;
	int found = 0;

	if (walk->regs[0] || bpf_probe_read_user(&code, sizeof(code), (void *)(walk->pc - 8)))
		return 0;
#pragma unroll
	for (int i = 0; i < 7; i++)
		found |= (code >> (8 * i) & 0xffff) == 0x050f;
	return found;
}

/*
 * Where the stack pointer was on the stack that a function of Go's runtime has left: by structures of the runtime's
 * (src/collector/unwind/switches.rs); also pc, if the rule says that it lies beside. A thread that has dropped its goroutine has
 * a whole stack. FS is what the system call set it to; who sets it by an instruction (user-level threads of
 * C) runs no Go.
 */
static __always_inline int left_stack(struct walk *walk, __u64 rule, __u64 *sp, __u64 *pc)
{
	__u64 a = (rule >> 40 & 0xff) * 8, b = (rule >> 48 & 0xff) * 8, c = (rule >> 56) * 8;
	__u64 at, depth = 0;

	if (RULE_REGISTER_OF(rule) == FORM_GOROUTINE) {
		struct task_struct *task = bpf_get_current_task_btf();
		__u64 thread = task->thread.fsbase + RULE_SLOT(rule);

		if (bpf_probe_read_user(&at, sizeof(at), (void *)thread) || bpf_probe_read_user(&at, sizeof(at), (void *)(at + a)) ||
		    bpf_probe_read_user(&at, sizeof(at), (void *)(at + b)))
			return USER_END_UNREADABLE;
		if (!at && RULE_RA_IN_REGISTER(rule))
			return USER_END_ROOT;
		if (RULE_RA_IN_REGISTER(rule) && bpf_probe_read_user(pc, sizeof(*pc), (void *)(at + c + 8)))
			return USER_END_UNREADABLE;
	} else if (bpf_probe_read_user(&at, sizeof(at), (void *)(walk->regs[REG_SP] + a)) ||
		   bpf_probe_read_user(&depth, sizeof(depth), (void *)(walk->regs[REG_SP] + b))) {
		return USER_END_UNREADABLE;
	}
	if (bpf_probe_read_user(&at, sizeof(at), (void *)(at + c)))
		return USER_END_UNREADABLE;
	*sp = at - depth;
	return 0;
}

/* One word of the stack. */
static __always_inline int read_alone(struct cpu_state *cpu, __u64 address, __u64 *value)
{
	return bpf_probe_read_user(value, sizeof(*value), (void *)address);
}

/* Return addresses bear no signatures. */
static __always_inline __u64 code_address(__u64 address)
{
	return address;
}

/*
 * The registers that a signal interrupted: struct sigcontext in the ucontext at the stack pointer, as the handler's `ret`
 * leaves it. arch/x86/include/uapi/asm/sigcontext.h: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip from byte 40 on.
 */
#define SIGNAL_WORDS 17

static __always_inline int read_signal_frame(struct walk *walk, __u64 *words)
{
	if (bpf_probe_read_user(words, SIGNAL_WORDS * 8, (void *)(walk->regs[REG_SP] + 40)))
		return USER_END_UNREADABLE;
#pragma unroll
	for (int i = 0; i < 8; i++)
		walk->regs[8 + i] = words[i];
	walk->regs[5] = words[8];
	walk->regs[4] = words[9];
	walk->regs[REG_FP] = words[10];
	walk->regs[REG_RBX] = words[11];
	walk->regs[1] = words[12];
	walk->regs[0] = words[13];
	walk->regs[REG_RCX] = words[14];
	walk->regs[REG_SP] = words[15];
	walk->pc = words[16];
	walk->valid = 0xffff;
	return 0;
}

/*
 * Whether a call ends there: E8 rel32, or FF /2 with 0, 1 or 4 bytes of displacement and perhaps a SIB byte. Of random
 * numbers on a stack that point into code about one in forty passes.
 */
static __always_inline int is_return_address(__u64 address)
{
	__u64 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - 7)))
		return 0;
#define BYTE_BEFORE(n) ((code >> ((7 - (n)) * 8)) & 0xff)
#define CALLS_INDIRECTLY(n) (BYTE_BEFORE(n) == 0xff && (BYTE_BEFORE((n) - 1) & 0x38) == 0x10)
	/* goexit of Go is "returned to" behind its first instruction: nop; call goexit1. */
	if (BYTE_BEFORE(1) == 0x90 && BYTE_BEFORE(0) == 0xe8)
		return 1;
	return BYTE_BEFORE(5) == 0xe8 || CALLS_INDIRECTLY(2) || CALLS_INDIRECTLY(3) || CALLS_INDIRECTLY(4) ||
	       CALLS_INDIRECTLY(6) || CALLS_INDIRECTLY(7);
}

/*
 * How many words above the stack pointer the return address is, by the instruction that was interrupted, in a function that
 * keeps a frame pointer and is about to make or to give up its frame; -1 where the frame stands.
 *
 *   endbr64   f3 0f 1e fa   0     the first instruction
 *   push rbp  55            0
 *   mov rbp, rsp  48 89 e5, 48 8b ec   1, the word above the stack pointer being the caller's frame pointer
 *   pop rbp; ret  5d c3     1
 *   ret       c3, c2, f2 c3, f3 c3    0
 */
static __always_inline int return_address_by_code(__u64 pc)
{
	__u64 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)pc))
		return -1;
	if ((__u32)code == 0xfa1e0ff3 || (code & 0xff) == 0x55 || (code & 0xff) == 0xc3 || (code & 0xff) == 0xc2)
		return 0;
	if ((code & 0xffff) == 0xc3f3 || (code & 0xffff) == 0xc3f2)
		return 0;
	if ((code & 0xffffff) == 0xe58948 || (code & 0xffffff) == 0xec8b48 || (code & 0xffff) == 0xc35d)
		return 1;
	return -1;
}

#endif
