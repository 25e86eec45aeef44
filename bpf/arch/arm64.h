/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * arm64: registers, signal frames, return addresses, and what its code says where unwind information says nothing.
 *
 * Numbers of registers are DWARF's: AADWARF64, section 4.1.
 */
#ifndef FLAMETOP_ARCH_ARM64_H
#define FLAMETOP_ARCH_ARM64_H

#include "clone.h"

#define REG_FP 29
#define REG_LR 30
/* What a rule may come back to another stack by: what calls keep. */
#define MAY_SWITCH_BY(number) ((number) >= 19 && (number) <= REG_FP)
/* In which Go has what it runs. Rules of its code say that a frame leaves it as it was. */
#define REG_G 28
/* Beside it in walk::valid, in the place of a register that no rule reads: no signal has interrupted anything so far. */
#define NO_SIGNAL 18
/* A form of RULE_SPECIAL: THREAD of src/unwind/table/packed.rs. */
#define FORM_THREAD 3
#define REG_SP 31
/* A call pushes nothing. */
#define RETURN_ADDRESS_BYTES 0
/* Those that a caller finds as it left them; and what is beside them. */
#define REGISTERS_KEPT (1U << REG_SP | 1U << REG_FP | 1U << REG_G | 1U << NO_SIGNAL)

/* include/uapi/asm-generic/unistd.h */
#define SYSCALL_CLONE 220
#define SYSCALL_CLONE3 435
#define SYSCALL_EXECVE 221
#define SYSCALL_EXECVEAT 281

/* pstate: arch/arm64/include/uapi/asm/ptrace.h. */
#define PSR_MODE_MASK 0xf
#define PSR_MODE32_BIT 0x10

/* The bits of a code address that may be a signature of pointer authentication; measured by user space before loading. */
const volatile __u64 signature_mask;

/* The address that thread-local data is counted from. The register of a thread that has just set its own may be newer. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return task->thread.uw.tp_value;
}

/* Whether a system call has just returned 0 here, in user mode: of a return address that is not there this is the reason, if
 * the call was clone. svc 0 is d4000001. */
static __always_inline int returns_from_syscall(struct walk *walk, __u64 pc)
{
	__u32 code[3] = {};

	if (walk->regs[0] || bpf_probe_read_user(code, sizeof(code), (void *)(pc - 12)))
		return 0;
	return code[0] == 0xd4000001 || code[1] == 0xd4000001 || code[2] == 0xd4000001;
}

/* Whether the instruction before is svc 0. */
static __always_inline int is_behind_svc(__u64 pc)
{
	__u32 code;

	return !bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 4)) && code == 0xd4000001;
}

/* Whether the instruction before is svc 0, and the next one cbz x0. */
static __always_inline int asks_for_child(__u64 pc)
{
	__u32 code[2];

	return !bpf_probe_read_user(code, sizeof(code), (void *)(pc - 4)) && code[0] == 0xd4000001 && (code[1] & 0x7f00001f) == 0x34000000;
}

/*
 * The registers that a signal interrupted: 128 bytes of siginfo, 176 to uc_mcontext, 8 to regs[0]: x0 to x30, sp, pc.
 * arch/arm64/kernel/signal.c: struct rt_sigframe; arch/arm64/include/uapi/asm/sigcontext.h.
 */
#define SIGNAL_WORDS 33

static __always_inline long copy_signal_frame(struct walk *walk, __u64 *words)
{
	return bpf_probe_read_user(words, SIGNAL_WORDS * 8, (void *)(walk->regs[REG_SP] + 312));
}

static __always_inline void take_signal_frame(struct walk *walk, const __u64 *words)
{
#pragma unroll
	for (int i = 0; i < 32; i++)
		walk->regs[i] = words[i];
	walk->pc = words[32];
}

static __always_inline int read_signal_frame(struct walk *walk, __u64 *words)
{
	if (copy_signal_frame(walk, words))
		return USER_END_UNREADABLE;
	take_signal_frame(walk, words);
	walk->valid = ~(1U << NO_SIGNAL);
	return 0;
}

/*
 * Where the tick has met the kernel making a signal's frame, its registers are partly the handler's and partly those of what is to be
 * interrupted: setup_return() in arch/arm64/kernel/signal.c writes sp, x29, pc and x30 one after the other. What x30 says there is
 * nobody's caller. But the frame that sp points to has all registers as they were: the same x19 to x28, which nobody writes to, and
 * the same x30, still. Then the signal has not happened yet. (Behind it, in the handler, x30 is what returns from it.) Whether it was so.
 */
static __always_inline int undo_delivery(struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	__u64 different = 0, sp = walk->regs[REG_SP];
	__u32 code = 0;

	if (copy_signal_frame(walk, cpu->words))
		return 0;
#pragma unroll
	for (int i = 19; i < 29; i++)
		different |= cpu->words[i] ^ walk->regs[i];
	if (different || cpu->words[REG_LR] != walk->regs[REG_LR] || cpu->words[REG_SP] <= sp)
		return 0;
	/* mov x8, 139: of a handler that a signal interrupts before it has done anything. */
	if (bpf_probe_read_user(&code, sizeof(code), (void *)walk->regs[REG_LR]) || code == 0xd2801168)
		return 0;
	take_signal_frame(walk, cpu->words);
	return 1;
}

/*
 * The task's registers of user mode; 0, or why there are none. They lie at the top of its kernel stack, whether it came
 * in by a system call, a fault, or the tick itself: so the tick's own registers are never needed.
 */
static __always_inline int read_user_registers(struct cpu_state *cpu, struct perf_event_context *tick)
{
	struct walk *walk = &cpu->walk;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 pstate = regs->pstate;
	int undone;

	if (pstate & PSR_MODE32_BIT)
		return USER_END_32_BIT;
	if (pstate & PSR_MODE_MASK)
		return USER_END_REGISTERS;
#pragma unroll
	for (int i = 0; i < 31; i++)
		walk->regs[i] = regs->regs[i];
	walk->regs[REG_SP] = regs->sp;
	walk->pc = regs->pc;
	undone = walk->first_frame && undo_delivery(cpu);
	walk->valid = 0xffffffff;
	/*
	 * kernel_entry puts NO_SYSCALL (-1) there, and C code the number, a moment later; sigreturn takes it back. A tick between, in the
	 * kernel, finds an address that may be the next function's.
	 */
	walk->in_syscall = (regs->syscallno >= 0 && !undone) || (walk->first_frame && is_behind_svc(walk->pc));
	/* The new program's first instruction, which no call has brought it to. */
	if ((regs->syscallno == SYSCALL_EXECVE || regs->syscallno == SYSCALL_EXECVEAT) && !is_behind_svc(walk->pc))
		walk->in_syscall = 0;
	walk->newborn = regs->regs[0] == 0 && shares_memory(regs->syscallno, SYSCALL_CLONE, SYSCALL_CLONE3, regs->orig_x0);
	/*
	 * Back in user mode a new thread has its parent's return address in x30, until it is in code that only threads run. x8 still
	 * tells the call: C libraries call clone3 for threads and for posix_spawn, whose child has a stack of its own, too.
	 */
	if (regs->regs[0] == 0 && regs->regs[8] == SYSCALL_CLONE3 && returns_from_syscall(walk, walk->pc))
		walk->newborn = 1;
	/* musl's call clone, and ask for the child next. glibc's vfork gives clone the stack that it is on. */
	if (regs->regs[0] == 0 && regs->regs[8] == SYSCALL_CLONE && regs->regs[1] == regs->sp && asks_for_child(walk->pc))
		walk->newborn = 1;
	return 0;
}

/*
 * Where the stack pointer was on the stack that a function of Go's runtime has left: by structures of the runtime's
 * (src/unwind/go/switches_arm64.rs); also pc and x30, if the rule says that they lie beside. A thread that has dropped its
 * goroutine has a whole stack.
 */
static __always_inline int left_stack(struct walk *walk, __u64 rule, __u64 *sp, __u64 *pc)
{
	__u64 a = (rule >> 40 & 0xff) * 8, b = (rule >> 48 & 0xff) * 8, c = (rule >> 56) * 8;
	__u64 at, depth = 0;

	if (RULE_REGISTER_OF(rule) == FORM_BELOW_TOP) {
		if (bpf_probe_read_user(&at, sizeof(at), (void *)(walk->regs[REG_SP] + a)) ||
		    bpf_probe_read_user(&depth, sizeof(depth), (void *)(walk->regs[REG_SP] + b)) ||
		    bpf_probe_read_user(&at, sizeof(at), (void *)(at + c)))
			return USER_END_UNREADABLE;
		*sp = at - depth;
		return 0;
	}
	if (!(walk->valid >> REG_G & 1))
		return USER_END_REGISTER;
	/* A signal handler that asks the vDSO puts its own caller there. */
	if (RULE_REGISTER_OF(rule) == FORM_THREAD && !(walk->valid >> NO_SIGNAL & 1))
		return USER_END_INVALID;
	if (bpf_probe_read_user(&at, sizeof(at), (void *)(walk->regs[REG_G] + a)) ||
	    bpf_probe_read_user(&at, sizeof(at), (void *)(at + b)))
		return USER_END_UNREADABLE;
	if (RULE_REGISTER_OF(rule) == FORM_GOROUTINE) {
		if ((!at || walk->next_goroutine) && RULE_RA_IN_REGISTER(rule))
			return USER_END_ROOT;
		if (RULE_RA_IN_REGISTER(rule) &&
		    (bpf_probe_read_user(pc, sizeof(*pc), (void *)(at + c + 8)) ||
		     bpf_probe_read_user(&walk->regs[REG_LR], sizeof(__u64), (void *)(at + c + 8 * RULE_SLOT(rule)))))
			return USER_END_UNREADABLE;
		if (bpf_probe_read_user(&at, sizeof(at), (void *)(at + c)))
			return USER_END_UNREADABLE;
	}
	*sp = at;
	return 0;
}

/* A code address without its signature. */
static __always_inline __u64 code_address(__u64 address)
{
	return address & ~signature_mask;
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
 * Add it to a physical address of memory to get where the kernel sees that; 0: not known, or address spaces are not of 48 bits, which
 * is four levels of tables of pages of 4 KiB. Measured by user space before loading.
 */
const volatile __u64 linear_offset;

/* The entry of a page of 4 KiB: arch/arm64/include/asm/pgtable-hwdef.h. Memory beyond 2^48 has more bits, elsewhere. */
#define PTE_VALID 1ULL
#define PTE_RDONLY (1ULL << 7)
#define PTE_ADDRESS 0x0000fffffffff000ULL
#define PAGE_BYTES 4096

/*
 * A word of a page that is there and may not be read: processors that do not mark themselves what was read (Cortex-A72; FEAT_HAFDBS is
 * what it takes) fault at the first access to a page after a fork, which leaves the child all pages unmarked (pte_mkold). A program
 * like this gets no such page; by the tables of the address space it does.
 */
__noinline int read_unmarked_page(__u64 address)
{
	struct cpu_state *cpu = state_of(bpf_get_smp_processor_id());
	__u64 *table = NULL, entry = 0;

	if (!cpu || !linear_offset || address >> 48)
		return -1;
	struct mm_struct *mm = (void *)cpu->walk.space.mm;
	if (bpf_core_read(&table, sizeof(table), &mm->pgd))
		return -1;
	/* Of large pages no stack is made. */
#pragma unroll
	for (int shift = 39; shift >= 12; shift -= 9) {
		if (bpf_probe_read_kernel(&entry, sizeof(entry), table + (address >> shift & 511)) || (entry & 3) != 3)
			return -1;
		table = (__u64 *)(linear_offset + (entry & PTE_ADDRESS));
	}
	return bpf_probe_read_kernel(&cpu->scratch.words[0], sizeof(__u64), (void *)table + (address & (PAGE_BYTES - 1ULL)));
}

/*
 * A word of a page that the kernel is copying for this task, on this CPU. A process that writes to a page that it shares since a fork
 * gets a page of its own: in between (wp_page_copy: ptep_clear_flush, which waits for all CPUs) it has none, mostly of its own
 * stack. But what it was is in struct vm_fault, on the kernel's stack right below the registers:
 *
 *   ┌ __handle_mm_fault ───────────────────────────────────────────┐  ┌ do_page_fault, … ┐  pt_regs
 *   │ vmf.vma   vmf.address = the page   vmf.orig_pte   vmf.pte ─► 0 │  │                  │
 *
 * Believed if exactly one word there is the page's address, and around it all is as it must be: a mapping of this task with that
 * address in it, an entry that was valid and not to be written to, and one that is empty now. Nobody writes to the old page
 * meanwhile: that is what the copy is for.
 */
__noinline int read_page_in_copy(__u64 address)
{
	struct cpu_state *cpu = state_of(bpf_get_smp_processor_id());
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 page = address & ~(PAGE_BYTES - 1ULL), below, found = 0, count = 0, entry = 0, now = 1, start = 0, end = 0, mm = 0;
	struct vm_area_struct *vma = NULL;
	pte_t *place = NULL;

	if (!cpu || !linear_offset || !bpf_core_field_exists(((struct vm_fault *)0)->real_address))
		return -1;
	/* What was in the window cannot be read. */
	cpu->walk.window_bytes = 0;
	/* By way of memory it is a number. With a pointer to registers the verifier lets nobody calculate. */
	*(volatile __u64 *)&cpu->scratch.words[0] = bpf_task_pt_regs(task);
	below = *(volatile __u64 *)&cpu->scratch.words[0];
	/* Twice: where the kernel itself writes (schedule_tail, of a new process) its own registers lie between. */
#pragma unroll
	for (int part = 0; part < 2; part++) {
		below -= WINDOW_WORDS * 8;
		if (bpf_probe_read_kernel(cpu->window, WINDOW_WORDS * 8, (void *)below))
			return -1;
		/* Without branches: the verifier would follow each, 2^128 ways. */
#pragma unroll
		for (int i = 0; i < WINDOW_WORDS; i++) {
			__u64 is = cpu->window[i] ^ page;

			is |= -is;
			OPAQUE(is);
			is = is >> 63 ^ 1;
			OPAQUE(is);
			found += is * (below + 8 * i);
			count += is;
		}
		OPAQUE(found);
		OPAQUE(count);
	}
	if (count != 1)
		return -1;
	struct vm_fault *fault = (void *)(found - bpf_core_field_offset(((struct vm_fault *)0)->address));
	if (bpf_core_read(&vma, sizeof(vma), &fault->vma) || bpf_core_read(&entry, sizeof(entry), &fault->orig_pte) ||
	    bpf_core_read(&place, sizeof(place), &fault->pte) || bpf_probe_read_kernel(&now, sizeof(now), place) ||
	    bpf_core_read(&mm, sizeof(mm), &vma->vm_mm) || bpf_core_read(&start, sizeof(start), &vma->vm_start) ||
	    bpf_core_read(&end, sizeof(end), &vma->vm_end))
		return -1;
	if (now || (entry & (PTE_VALID | PTE_RDONLY)) != (PTE_VALID | PTE_RDONLY) || mm != cpu->walk.space.mm || address < start ||
	    address >= end)
		return -1;
	return bpf_probe_read_kernel(&cpu->scratch.words[0], sizeof(__u64),
				     (void *)(linear_offset + (entry & PTE_ADDRESS) + (address & (PAGE_BYTES - 1ULL))));
}

/* The same of any page, into the scratch; global, so that who asks has two ways to go on and not three. */
__noinline int read_into_scratch(__u64 address)
{
	struct cpu_state *cpu = state_of(bpf_get_smp_processor_id());

	if (!cpu)
		return -1;
	if (!bpf_probe_read_user(&cpu->scratch.words[0], sizeof(__u64), (void *)address))
		return 0;
	return read_unmarked_page(address) && (!cpu->walk.first_frame || read_page_in_copy(address)) ? -1 : 0;
}

/* One word of the stack. */
static __always_inline int read_alone(struct cpu_state *cpu, __u64 address, __u64 *value)
{
	if (read_into_scratch(address))
		return -1;
	*value = cpu->scratch.words[0];
	return 0;
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
