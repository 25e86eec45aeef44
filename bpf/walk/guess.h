/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The caller, where no unwind information tells: by the frame pointer, or by the code. Believed only if a call ends at its return
 * address.
 */
#ifndef FLAMETOP_GUESS_H
#define FLAMETOP_GUESS_H

#include "step.h"

/*
 * The stack ends where there should be a return address and is none. In the kernel, nothing that cannot be read is missing for
 * that reason: it may be mending just that page.
 */
static __always_inline int ends_without_caller(struct walk *walk, int reason)
{
	int may_be_new = walk->fresh && !(reason == USER_END_UNREADABLE && walk->first_frame);

	return ends(walk, may_be_new && returns_from_syscall(walk, walk->pc) ? USER_END_ROOT : reason);
}

/* The same, to a frame that was guessed: if a call ends there. */
static __always_inline int believe(struct walk *walk, __u64 pc, __u64 sp, __u64 fp)
{
	pc = code_address(pc);
	if (!is_return_address(pc))
		return 0;
	walk->regs[REG_FP] = fp;
	walk->valid = 1U << REG_SP | 1U << REG_FP;
	go_up(walk, pc, sp, 1);
	return 1;
}

/* The caller, without unwind information. Whether the walk ends. */
__noinline int guess_caller(struct cpu_state *cpu, __u32 reason)
{
	__u64 pc = 0, saved = 0;

	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u64 fp = walk->regs[REG_FP];
	int fresh = walk->fresh;

	walk->guess_end = reason;
#if defined(__TARGET_ARCH_x86)
	if (fresh && !walk->is_return) {
		int words = return_address_by_code(walk->pc);

		if (words >= 0 && !read_stack(cpu, sp + (words ? 8 : 0), &pc) && (!words || !read_stack(cpu, sp, &saved)) &&
		    believe(walk, pc, sp + (words ? 16 : 8), words ? saved : fp))
			return 0;
	}
#else
	if (walk->map.kind != CODE_ANONYMOUS || fresh) {
		int place = place_of_return_address(walk->pc, !fresh, (__u32 *)cpu->words);

		if (fresh && place == IN_X30 && believe(walk, walk->regs[REG_LR], sp, fp))
			return 0;
		/*
		 * Anything else is a guess that may leave out a caller: code that is made at run time keeps frame pointers, or does
		 * not, all of it; but of compiled code without unwind information most has been told not to.
		 */
		if (place != IN_FRAME_RECORD && walk->map.kind != CODE_ANONYMOUS)
			return ends(walk, reason);
	}
#endif
	if (walk->valid >> REG_FP & 1) {
		/* By the psABI a frame pointer of 0 marks the outermost frame. */
		if (!fp)
			return ends(walk, USER_END_ZERO);
		if (fp >= sp && !read_stack(cpu, fp, &saved) && !read_stack(cpu, fp + 8, &pc)) {
			if (!saved && !pc)
				return ends(walk, USER_END_ZERO);
#if defined(__TARGET_ARCH_x86)
			/* Nothing is known of this code. Most keeps no frame pointer, and has its caller's caller's in the register. */
			if (reason == USER_END_NO_TABLE && !calls_with_frame(pc, walk->pc))
				return ends(walk, reason);
#endif
			if (believe(walk, pc, fp + 16, saved))
				return 0;
		}
	}
#if defined(__TARGET_ARCH_x86)
	/* A function that calls nobody and has no frame: stubs of system calls, and assembly. */
	if (fresh && reason != USER_END_NO_TABLE && !read_stack(cpu, sp, &pc) && believe(walk, pc, sp + 8, fp))
		return 0;
#endif
	return ends(walk, reason);
}

#endif
