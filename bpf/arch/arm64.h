/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * arm64: registers, signal frames, return addresses, and guesses from machine code where there is no unwind information.
 *
 * Register numbers are those of DWARF: AADWARF64, section 4.1.
 */
#ifndef FLAMETOP_ARCH_ARM64_H
#define FLAMETOP_ARCH_ARM64_H

#include "clone.h"

#define REG_FP 29
#define REG_LR 30
/* Registers that may hold the stack pointer of another stack: the registers that calls preserve. */
#define MAY_SWITCH_BY(number) ((number) >= 19 && (number) <= REG_FP)
/* x28, where Go keeps the current goroutine. Rules of Go code say that a frame leaves it unchanged. */
#define REG_G 28
/* A bit of walk::valid: the walk has not crossed a signal frame. It uses the bit of a register that no rule reads. */
#define NO_SIGNAL 18
/* A form of RULE_SPECIAL: THREAD of src/unwind/table/packed.rs. */
#define FORM_THREAD 3
#define REG_SP 31
/* A call pushes nothing. */
#define RETURN_ADDRESS_BYTES 0
/* Bits of walk::valid that are kept when the walk goes to a caller: preserved registers, and NO_SIGNAL. */
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

/* Returns the base address of thread-local data. If the thread has just set it, its register may be newer. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return task->thread.uw.tp_value;
}

/*
 * Tells whether a system call has just returned 0 here, in user mode. If the call was clone, this explains a missing return address.
 * svc 0 is d4000001.
 */
static __always_inline int returns_from_syscall(struct walk *walk, __u64 pc)
{
	__u32 code[3] = {};

	if (walk->regs[0] || bpf_probe_read_user(code, sizeof(code), (void *)(pc - 12)))
		return 0;
	return code[0] == 0xd4000001 || code[1] == 0xd4000001 || code[2] == 0xd4000001;
}

/* Tells whether the instruction before is svc 0. */
static __always_inline int is_behind_svc(__u64 pc)
{
	__u32 code;

	return !bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 4)) && code == 0xd4000001;
}

/* Tells whether the instruction before is svc 0, and the next one cbz x0. */
static __always_inline int asks_for_child(__u64 pc)
{
	__u32 code[2];

	return !bpf_probe_read_user(code, sizeof(code), (void *)(pc - 4)) && code[0] == 0xd4000001 && (code[1] & 0x7f00001f) == 0x34000000;
}

/*
 * Size of the registers that a signal interrupted: x0 to x30, sp, pc. They follow 128 bytes of siginfo, 176 up to uc_mcontext and
 * 8 up to regs[0]. See struct rt_sigframe in arch/arm64/kernel/signal.c, and arch/arm64/include/uapi/asm/sigcontext.h.
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
 * Restores the interrupted registers if the tick came while the kernel made a signal frame. Returns whether it did.
 *
 * At that moment the saved registers are a mix: some belong to the handler, some to the interrupted code. The reason:
 * setup_return() in arch/arm64/kernel/signal.c writes sp, x29, pc and x30 one by one. So x30 may not be a caller's address. But the signal
 * frame at sp holds all registers of the interrupted code. If its x19 to x28 (which setup_return() never writes) and its x30 equal
 * the saved registers, the signal has not happened yet. (Later, in the handler, x30 is the address that returns from the signal.)
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
	/* mov x8, 139 (rt_sigreturn): a second signal has interrupted a handler before its first instruction. */
	if (bpf_probe_read_user(&code, sizeof(code), (void *)walk->regs[REG_LR]) || code == 0xd2801168)
		return 0;
	take_signal_frame(walk, cpu->words);
	return 1;
}

/*
 * Reads the task's registers of user mode. Returns 0, or the reason why there are none. They lie at the top of the task's kernel
 * stack, whether it entered the kernel by a system call, a fault, or the tick itself. So the tick's own registers are never needed.
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
	 * kernel_entry sets syscallno to NO_SYSCALL (-1). C code sets the number a moment later, and sigreturn resets it to -1. A tick in
	 * between, in the kernel, still finds a pc behind svc 0, which may be the first address of the next function.
	 */
	walk->in_syscall = (regs->syscallno >= 0 && !undone) || (walk->first_frame && is_behind_svc(walk->pc));
	/* After execve, pc is the new program's first instruction, not a return address. */
	if ((regs->syscallno == SYSCALL_EXECVE || regs->syscallno == SYSCALL_EXECVEAT) && !is_behind_svc(walk->pc))
		walk->in_syscall = 0;
	walk->newborn = regs->regs[0] == 0 && shares_memory(regs->syscallno, SYSCALL_CLONE, SYSCALL_CLONE3, regs->orig_x0);
	/*
	 * Back in user mode, a new thread has its parent's return address in x30 until it reaches code that only threads run. x8 still
	 * holds the call's number. C libraries call clone3 for threads and for posix_spawn, whose child has a new stack as well.
	 */
	if (regs->regs[0] == 0 && regs->regs[8] == SYSCALL_CLONE3 && returns_from_syscall(walk, walk->pc))
		walk->newborn = 1;
	/* musl's threads call clone and test for the child next (cbz x0). glibc's vfork passes clone the stack that it runs on. */
	if (regs->regs[0] == 0 && regs->regs[8] == SYSCALL_CLONE && regs->regs[1] == regs->sp && asks_for_child(walk->pc))
		walk->newborn = 1;
	return 0;
}

/*
 * Finds the stack pointer of the stack that a function of Go's runtime has left. Returns 0, or why the walk ends. Reads the
 * runtime's structures (src/unwind/go/switches_arm64.rs). Also reads pc and x30 if the rule says that they are saved there. If
 * the thread has dropped its goroutine, the stack is complete.
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
	/* A signal handler that calls the vDSO stores its own caller there. */
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

/* Returns a code address without its signature. */
static __always_inline __u64 code_address(__u64 address)
{
	return address & ~signature_mask;
}

/* Tells whether a call ends at an address: BL, BLR, or an authenticating call such as BLRAA. */
static __always_inline int is_return_address(__u64 address)
{
	__u32 code;

	if (address & 3 || bpf_probe_read_user(&code, sizeof(code), (void *)(address - 4)))
		return 0;
	return (code & 0xfc000000) == 0x94000000 || (code & 0xfefff000) == 0xd63f0000;
}

/*
 * Offset from a physical address to its place in the kernel's linear mapping. 0: not known, or addresses have not 48 bits (four levels
 * of page tables with 4 KiB pages). User space measures it before loading.
 */
const volatile __u64 linear_offset;

/* Page table entry of a 4 KiB page: arch/arm64/include/asm/pgtable-hwdef.h. For memory beyond 2^48 more bits lie elsewhere. */
#define PTE_VALID 1ULL
#define PTE_RDONLY (1ULL << 7)
#define PTE_ADDRESS 0x0000fffffffff000ULL
#define PAGE_BYTES 4096

/*
 * Reads a word of a page that is mapped but not marked as accessed, through the page tables of the address space.
 *
 * Processors without FEAT_HAFDBS (Cortex-A72) do not set the mark themselves: the first access to an unmarked page faults. After a
 * fork, all pages of the child are unmarked (pte_mkold). A BPF program may not fault, so its normal read of such a page fails.
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
	/* Stacks do not use large pages, so every level must be a table. */
#pragma unroll
	for (int shift = 39; shift >= 12; shift -= 9) {
		if (bpf_probe_read_kernel(&entry, sizeof(entry), table + (address >> shift & 511)) || (entry & 3) != 3)
			return -1;
		table = (__u64 *)(linear_offset + (entry & PTE_ADDRESS));
	}
	return bpf_probe_read_kernel(&cpu->scratch.words[0], sizeof(__u64), (void *)table + (address & (PAGE_BYTES - 1ULL)));
}

/*
 * Reads a word of a page that the kernel is copying for this task, on this CPU.
 *
 * When a process writes to a page that it shares since a fork, the kernel copies the page. In between (wp_page_copy: ptep_clear_flush,
 * which waits for all CPUs) the process has neither page. Mostly the page is one of its stack. But the old entry is still in struct
 * vm_fault, on the kernel's stack right below the registers:
 *
 *   ┌ __handle_mm_fault ───────────────────────────────────────────┐  ┌ do_page_fault, … ┐  pt_regs
 *   │ vmf.vma   vmf.address = the page   vmf.orig_pte   vmf.pte ─► 0 │  │                  │
 *
 * The structure is accepted if exactly one word there is the page's address, and the members around it fit. `vma` must be a mapping
 * of this task that contains the address. The old entry must be valid and read-only, and the entry of now must be empty. The old page
 * does not change meanwhile: the kernel copies it because it must not be written to.
 */
__noinline int read_page_in_copy(__u64 address)
{
	struct cpu_state *cpu = state_of(bpf_get_smp_processor_id());
	__u64 below;

	if (!cpu || !linear_offset || !bpf_core_field_exists(((struct vm_fault *)0)->real_address))
		return -1;
	/* The window is overwritten below: mark it as empty. */
	cpu->walk.window_bytes = 0;
	/* Written to memory and read back, the pointer becomes a number: the verifier forbids arithmetic on pointers to registers. */
	*(volatile __u64 *)&cpu->scratch.words[0] = (__u64)bpf_task_pt_regs(bpf_get_current_task_btf());
	below = *(volatile __u64 *)&cpu->scratch.words[0];
	/* These words and those of the fault are kept in the scratch, because a program has 512 bytes of stack for all calls. */
	__u64 *place = &cpu->scratch.words[1], *count = &cpu->scratch.words[2];

	*place = 0;
	*count = 0;
	/* Two pieces: if the kernel itself writes (schedule_tail of a new process), its own registers lie in between. */
#pragma unroll
	for (int part = 0; part < 2; part++) {
		__u64 page = address & ~(PAGE_BYTES - 1ULL), found = 0, here = 0;

		below -= WINDOW_WORDS * 8;
		if (bpf_probe_read_kernel(cpu->window, WINDOW_WORDS * 8, (void *)below))
			return -1;
		/* Without branches: the verifier would follow each of them, 2^128 paths. */
#pragma unroll
		for (int i = 0; i < WINDOW_WORDS; i++) {
			__u64 is = cpu->window[i] ^ page;

			is |= -is;
			OPAQUE(is);
			is = is >> 63 ^ 1;
			OPAQUE(is);
			found += is * (below + 8 * i);
			here += is;
		}
		OPAQUE(found);
		OPAQUE(here);
		*place += found;
		*count += here;
	}
	if (*count != 1)
		return -1;
	struct vm_fault *fault = (void *)(*place - bpf_core_field_offset(((struct vm_fault *)0)->address));
	struct words_of_fault {
		struct vm_area_struct *vma;
		pte_t *place;
		__u64 entry, now, mm, start, end;
	} *of = (void *)&cpu->scratch.words[3];

	if (bpf_core_read(&of->vma, sizeof(of->vma), &fault->vma) ||
	    bpf_core_read(&of->entry, sizeof(of->entry), &fault->orig_pte) ||
	    bpf_core_read(&of->place, sizeof(of->place), &fault->pte) ||
	    bpf_probe_read_kernel(&of->now, sizeof(of->now), of->place))
		return -1;
	/* Loaded first: with `of->vma->…`, bpf_core_read() would ask for a struct words_of_fault of the kernel. */
	struct vm_area_struct *vma = of->vma;

	if (bpf_core_read(&of->mm, sizeof(of->mm), &vma->vm_mm) ||
	    bpf_core_read(&of->start, sizeof(of->start), &vma->vm_start) ||
	    bpf_core_read(&of->end, sizeof(of->end), &vma->vm_end))
		return -1;
	__u64 entry = of->entry;

	if (of->now || (entry & (PTE_VALID | PTE_RDONLY)) != (PTE_VALID | PTE_RDONLY) || of->mm != cpu->walk.space.mm ||
	    address < of->start || address >= of->end)
		return -1;
	return bpf_probe_read_kernel(&cpu->scratch.words[0], sizeof(__u64),
				     (void *)(linear_offset + (entry & PTE_ADDRESS) + (address & (PAGE_BYTES - 1ULL))));
}

/* Reads a word of any page into the scratch. Global, so that the verifier follows two paths in the caller and not three. */
__noinline int read_into_scratch(__u64 address)
{
	struct cpu_state *cpu = state_of(bpf_get_smp_processor_id());

	if (!cpu)
		return -1;
	if (!bpf_probe_read_user(&cpu->scratch.words[0], sizeof(__u64), (void *)address))
		return 0;
	return read_unmarked_page(address) && (!cpu->walk.first_frame || read_page_in_copy(address)) ? -1 : 0;
}

/* Reads one word of the stack. */
static __always_inline int read_alone(struct cpu_state *cpu, __u64 address, __u64 *value)
{
	if (read_into_scratch(address))
		return -1;
	*value = cpu->scratch.words[0];
	return 0;
}

/* Number of instructions that are searched for a use of x30: two cache lines. */
#define MOST_LOOKED_AT 32

enum return_place {
	ANYWHERE,
	IN_X30,
	IN_FRAME_RECORD, /* beside the frame pointer that x29 points to */
};

/*
 * Finds where the return address is, from the instructions at and behind pc. `above` becomes the number of bytes between the frame record
 * and the caller's stack pointer. The first instruction that uses x30 decides:
 *
 *   ret, retaa, retab; paciasp, pacibsp, autiasp, autibsp      in x30
 *   stp and str of x30; br x16 and x17 (linkage)               in x30
 *   ldp x29, x30, [sp, …]                                      in the frame record. If add sp, sp, n follows, n is `above`
 *   bl, blr                                                    x30 is overwritten: from then on only the frame record is accepted.
 *                                                              Where x30 is saved in frame records only (`records`), it is in one
 *   others                                                     unknown
 *
 * A function that has saved x30 loads it before each ret. A function that never saves x30 reaches a ret first. A function that has yet
 * to save x30 reaches its store first. The value of x30 alone proves nothing: after a call it is an address in this function itself.
 */
static __always_inline int place_of_return_address(__u64 pc, int has_called, int records, __u32 *code, __u32 *above)
{
	/* A failed read leaves zeros, which match no instruction below. The next page may be unmapped, or not in memory. */
	if (bpf_probe_read_user(code, MOST_LOOKED_AT * sizeof(*code), (void *)pc) && bpf_probe_read_user(code, sizeof(*code), (void *)pc))
		return ANYWHERE;
#pragma unroll
	for (int i = 0; i < MOST_LOOKED_AT; i++) {
		__u32 word = code[i];

		if (word == 0xd65f03c0 || (word & 0xfffffbff) == 0xd65f0bff || (word & 0xffffff3f) == 0xd503233f ||
		    (word & 0xffffffdf) == 0xd61f0200)
			return has_called ? ANYWHERE : IN_X30;
		if ((word & 0xfe407fff) == 0xa8407bfd) {
			if (i + 1 < MOST_LOOKED_AT && (code[i + 1] & 0xffc003ff) == 0x910003ff)
				*above = code[i + 1] >> 10 & 0xfff;
			return IN_FRAME_RECORD;
		}
		/* x30 is second of a pair, first of a pair, or alone. Bit 22 is set for a load. */
		if ((word & 0xfe007c00) == 0xa8007800 || (word & 0xfe00001f) == 0xa800001e || (word & 0xffa0001f) == 0xf800001e ||
		    (word & 0xff80001f) == 0xf900001e)
			return has_called || word & 0x00400000 ? ANYWHERE : IN_X30;
		if ((word & 0xfc000000) == 0x94000000 || (word & 0xfefff000) == 0xd63f0000) {
			if (records)
				return IN_FRAME_RECORD;
			has_called = 1;
		} else if ((word & 0xfc000000) == 0x14000000 || (word & 0xfefff000) == 0xd61f0000) {
			return ANYWHERE;
		}
	}
	return ANYWHERE;
}

#endif
