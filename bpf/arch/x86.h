/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * x86_64: registers, signal frames, return addresses, and guesses from machine code where there is no unwind information.
 *
 * Register numbers are those of DWARF: System V psABI for AMD64, figure 3.36.
 */
#ifndef FLAMETOP_ARCH_X86_H
#define FLAMETOP_ARCH_X86_H

#include "clone.h"

#define REG_RBX 3
#define REG_FP 6
#define REG_SP 7
#define REG_RCX 2
#define REG_R11 11
/* Bytes that a call pushes. */
#define RETURN_ADDRESS_BYTES 8
/* Registers that keep their value when the walk goes to a caller. */
#define REGISTERS_KEPT (1U << REG_SP | 1U << REG_FP | 1U << REG_RBX)
/* Registers that may hold the stack pointer of another stack. OCaml's code keeps it in rbx while C runs. */
#define MAY_SWITCH_BY(number) ((number) != REG_SP)

/* arch/x86/entry/syscalls/syscall_64.tbl */
#define SYSCALL_CLONE 56
#define SYSCALL_CLONE3 435

/* Selectors of code in user mode: arch/x86/include/asm/segment.h; of Xen's guests, include/xen/interface/xen-x86_64.h. */
#define USER_CS 0x33
#define XEN_USER_CS 0xe033

/* Registers by their places in struct pt_regs (arch/x86/include/asm/ptrace.h). The kernel's user interface has the same layout. */
#define PT_REGS_WORDS 21
#define PT_REGS_CS 17
#define TAKE_REGISTERS(walk, words) \
	do { \
		(walk)->regs[0] = (words)[10]; /* rax */ \
		(walk)->regs[1] = (words)[12]; /* rdx */ \
		(walk)->regs[REG_RCX] = (words)[11]; \
		(walk)->regs[REG_RBX] = (words)[5]; \
		(walk)->regs[4] = (words)[13]; /* rsi */ \
		(walk)->regs[5] = (words)[14]; /* rdi */ \
		(walk)->regs[REG_FP] = (words)[4]; \
		(walk)->regs[REG_SP] = (words)[19]; \
		(walk)->regs[8] = (words)[9]; \
		(walk)->regs[9] = (words)[8]; \
		(walk)->regs[10] = (words)[7]; \
		(walk)->regs[REG_R11] = (words)[6]; \
		(walk)->regs[12] = (words)[3]; \
		(walk)->regs[13] = (words)[2]; \
		(walk)->regs[14] = (words)[1]; \
		(walk)->regs[15] = (words)[0]; \
		(walk)->pc = (words)[16]; \
		(walk)->valid = 0xffff; \
	} while (0)

/* Returns the base address of thread-local data. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return task->thread.fsbase;
}

static __always_inline int is_64_bit(__u64 cs)
{
	return cs == USER_CS || cs == XEN_USER_CS;
}

/*
 * Tells whether a call ends at an address: E8 rel32, or FF /2 with 0, 1 or 4 bytes of displacement and perhaps a SIB byte. A random
 * number on a stack that points into code passes this test in about one of forty cases.
 */
__noinline int is_return_address(__u64 address)
{
	__u64 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - 7)))
		return 0;
#define BYTE_BEFORE(n) ((code >> ((7 - (n)) * 8)) & 0xff)
#define CALLS_INDIRECTLY(n) (BYTE_BEFORE(n) == 0xff && (BYTE_BEFORE((n) - 1) & 0x38) == 0x10)
	/* Go's goexit is "returned to" behind its first instruction: nop; call goexit1. */
	if (BYTE_BEFORE(1) == 0x90 && BYTE_BEFORE(0) == 0xe8)
		return 1;
	return BYTE_BEFORE(5) == 0xe8 || CALLS_INDIRECTLY(2) || CALLS_INDIRECTLY(3) || CALLS_INDIRECTLY(4) ||
	       CALLS_INDIRECTLY(6) || CALLS_INDIRECTLY(7);
}

/*
 * Tells whether the call that ends at an address calls a function that makes a frame and may contain pc. The call is E8 rel32, and its
 * target begins with `push rbp; mov rbp, rsp`, perhaps behind `endbr64`. pc is less than LONGEST_FUNCTION bytes behind the target.
 */
#define LONGEST_FUNCTION (1 << 20)

static __always_inline int calls_with_frame(__u64 address, __u64 pc)
{
	__u64 code, function;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - 8)) || (code >> 24 & 0xff) != 0xe8)
		return 0;
	function = address + (__s64)(__s32)(code >> 32);
	if (pc - function >= LONGEST_FUNCTION || bpf_probe_read_user(&code, sizeof(code), (void *)function))
		return 0;
	if ((__u32)code == 0xfa1e0ff3 && bpf_probe_read_user(&code, sizeof(code), (void *)(function + 4)))
		return 0;
	return (__u32)code == 0xe5894855;
}

/*
 * Tells whether pc is one byte behind a breakpoint at the begin of a function, whose trap is still being handled. The kernel sets pc
 * back once it knows that the breakpoint is a uprobe's. The replaced instruction, perhaps `push rbp`, has not run yet. (If the kernel
 * has emulated it already, pc is the same, and the pushed register lies in the return address's place.) Functions begin at even
 * addresses.
 */
static __always_inline int is_behind_breakpoint(__u64 pc, __u64 sp)
{
	__u8 code;
	__u64 word;

	return !bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 1)) && code == 0xcc &&
	       !bpf_probe_read_user(&word, sizeof(word), (void *)sp) && is_return_address(word);
}

/*
 * Reads the task's registers of user mode. Returns 0, or the reason why there are none. They lie at the top of the task's kernel
 * stack, whether it entered the kernel by a system call, a fault, or the tick itself. They are copied in one call: each load through a
 * pointer that the verifier does not trust takes 44 bytes of code, which check that it is an address of the kernel.
 */
__noinline int read_saved_registers(struct cpu_state *cpu)
{
	if (!cpu)
		return USER_END_REGISTERS;
	struct walk *walk = &cpu->walk;
	__u64 *words = cpu->words;
	__s64 call;

	if (bpf_probe_read_kernel(words, PT_REGS_WORDS * 8, (void *)bpf_task_pt_regs(bpf_get_current_task_btf())))
		return USER_END_REGISTERS;
	/* The field has 8 bytes. Since 6.9 the upper ones hold other data. */
	__u64 cs = words[PT_REGS_CS] & 0xffff;

	if ((cs & 3) != 3)
		return USER_END_REGISTERS;
	if (!is_64_bit(cs))
		return USER_END_32_BIT;
	TAKE_REGISTERS(walk, words);
	/*
	 * Interrupts and faults set orig_rax to -1 (idtentry_body). The instruction syscall overwrites r11, and sets rcx to the address
	 * behind itself. If rcx and pc differ, the kernel has moved pc to the first byte of a handler, which is no return address.
	 */
	call = words[15]; /* orig_rax */
	if (call >= 0) {
		walk->in_syscall = words[11] == walk->pc;
		walk->valid &= ~(1U << REG_RCX | 1U << REG_R11);
	} else if (walk->pc & 1) {
		walk->pc -= is_behind_breakpoint(walk->pc, walk->regs[REG_SP]);
	}
	walk->newborn = !words[10] && shares_memory(call, SYSCALL_CLONE, SYSCALL_CLONE3, words[14]);
	return 0;
}

/* Reads the registers of user mode at a tick. If the tick came in user mode, its own registers are used. */
static __always_inline int read_user_registers(struct cpu_state *cpu, struct perf_event_context *tick)
{
	struct walk *walk = &cpu->walk;

	walk->in_syscall = 0;
	walk->newborn = 0;
	if (!tick || !is_user_mode(tick))
		return read_saved_registers(cpu);
	if (unlikely(!is_64_bit(tick->registers[PT_REGS_CS] & 0xffff)))
		return USER_END_32_BIT;
	TAKE_REGISTERS(walk, tick->registers);
	return 0;
}

/*
 * Tells whether a system call has just returned 0 here, in user mode. If the call was clone, this explains a missing return address.
 * The instructions up to the thread's own code have no unwind information, or that of the parent.
 */
static __always_inline int returns_from_syscall(struct walk *walk, __u64 pc)
{
	__u64 code;
	int found = 0;

	if (walk->regs[0] || bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 8)))
		return 0;
#pragma unroll
	for (int i = 0; i < 7; i++)
		found |= (code >> (8 * i) & 0xffff) == 0x050f;
	return found;
}

/*
 * Finds the stack pointer of the stack that a function of Go's runtime has left. Returns 0, or why the walk ends. Reads the
 * runtime's structures (src/unwind/go/switches_x86_64.rs). Also reads pc if the rule says that it is saved there. If the thread has
 * dropped its goroutine, or has its next one already, the stack is complete. FS is assumed to be set by the system call: programs
 * that set it by an instruction (user-level threads of C) do not run Go.
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
		if ((!at || walk->next_goroutine) && RULE_RA_IN_REGISTER(rule))
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

/* Reads one word of the stack. */
static __always_inline int read_alone(struct cpu_state *cpu, __u64 address, __u64 *value)
{
	return bpf_probe_read_user(value, sizeof(*value), (void *)address);
}

/* Returns the address unchanged: return addresses have no signatures on x86_64. */
static __always_inline __u64 code_address(__u64 address)
{
	return address;
}

/*
 * Size of the registers that a signal interrupted: struct sigcontext in the ucontext. After the handler's `ret`, the stack pointer
 * points at the ucontext.
 *
 * From byte 40 on: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip (arch/x86/include/uapi/asm/sigcontext.h).
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
 * Returns how many words above the stack pointer the return address is, judged by the interrupted instruction. Valid for a function
 * that keeps a frame pointer and is about to make or to remove its frame. Returns -1 if the frame is complete.
 *
 *   endbr64         f3 0f 1e fa              0     the first instruction
 *   push rbp        55                       0
 *   mov rbp, rsp    48 89 e5, 48 8b ec       1     the word at the stack pointer is the caller's frame pointer
 *   pop rbp; ret    5d c3                    1
 *   ret             c3, c2, f2 c3, f3 c3     0
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

/*
 * Returns the bytes from the stack pointer up to the return address, if the next instructions only move the stack pointer and return.
 * Else returns -1. CPython 3.12 and 3.13 make such trampolines for perf. `is_return`: pc is a return address.
 *
 *   sub $8,%rsp     48 83 ec 08     0
 *   call *%rcx      ff d1           8
 *   add $n,%rsp     48 83 c4 n      n     in any code
 *   ret             c3
 */
static __always_inline int distance_by_code(__u64 pc, __u32 is_return)
{
	__u64 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)pc))
		return -1;
	if ((code & 0xff80ffffff) == 0xc300c48348)
		return code >> 24 & 0x78;
	if (is_return)
		return -1;
	if (code == 0x8348d1ff08ec8348)
		return 0;
	return (code & 0xffffffffffffff) == 0xc308c48348d1ff ? 8 : -1;
}

#endif
