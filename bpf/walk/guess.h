/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Guesses the caller where there is no unwind information: by the frame pointer, or by the machine code. A guess is accepted only if a
 * call ends at the return address.
 */
#ifndef FLAMETOP_GUESS_H
#define FLAMETOP_GUESS_H

#include "step.h"

/*
 * Ends the walk at a frame without a return address. The frame is a root if a system call has just made its thread. An unreadable
 * word does not count as a new thread's if the sample was taken in the kernel, which may be handling a fault of that page just now.
 */
static __always_inline int ends_without_caller(struct walk *walk, int reason)
{
	int may_be_new = walk->fresh && !(reason == USER_END_UNREADABLE && walk->first_frame);

	return ends(walk, may_be_new && returns_from_syscall(walk, walk->pc) ? USER_END_ROOT : reason);
}

/* Goes to a guessed caller if a call ends at its return address. Returns whether it did. */
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

/*
 * Ends the walk at a frame whose caller was not found. `pc` is the return address by the frame pointer, or 0.
 *
 * If its page is not in memory, nothing shows whether a call ends there. That happens to code which ran long ago, like a program's main
 * loop, where memory is reclaimed. Then user space is asked to read the page, so that the next samples can look at it.
 */
static __always_inline int ends_at_guess(struct cpu_state *cpu, __u64 pc, int reason)
{
	struct walk *walk = &cpu->walk;
	struct object_key key = { .generation = GENERATION_OF_CODE };
	struct mapping *mapping = &cpu->mapping;
	__u64 code;

	pc = code_address(pc);
	if (walk->code_time != walk->time) {
		walk->code_time = walk->time;
		walk->code_wishes = 0;
	}
	if (pc > sizeof(code) && walk->code_wishes < MAX_CODE_WISHES &&
	    bpf_probe_read_user(&code, sizeof(code), (void *)(pc - sizeof(code))) &&
	    find_mapping(&walk->space, pc - 1, mapping, &cpu->scratch) == MAPPING_FOUND) {
		walk->code_wishes++;
		mapping->start = pc - sizeof(code);
		mapping->end = pc;
		wish_for(cpu, mapping, &key);
	}
	return ends(walk, reason);
}

#if defined(__TARGET_ARCH_x86)
/* Goes to the caller of code that only moves the stack pointer. Returns whether it did. Global, so that it is verified once. */
__noinline int leave_trampoline(struct cpu_state *cpu)
{
	__u64 pc;

	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	__u32 kept = walk->valid & (1U << REG_SP | 1U << REG_FP | 1U << REG_RBX);
	int bytes = distance_by_code(walk->pc, walk->is_return);
	__u64 sp = walk->regs[REG_SP] + bytes;

	if (bytes < 0 || read_stack(cpu, sp, &pc) || !believe(walk, pc, sp + 8, walk->regs[REG_FP]))
		return 0;
	walk->valid = kept;
	return 1;
}
#endif

#if defined(__TARGET_ARCH_x86)
#define bytes_above_record(cpu, fp) 0
#else
/*
 * Tells whether code without unwind information saves x30 in frame records only. V8 does so in all that it compiles, at run time and before:
 * its builtins are in Node.js's file.
 */
static __always_inline int keeps_frame_records(struct cpu_state *cpu)
{
	return cpu->walk.scripted && cpu->script.runtime.has & HAS_V8;
}

/* The word below the frame record of a frame by which native code entered V8. Twice the numbers of EntryFrame and ConstructEntryFrame. */
#define V8_ENTERED 2
#define V8_ENTERED_BY_NEW 4
/* On entry, V8 saves x19 to x28 and d8 to d15 above the frame record: V8's EntryFrameConstants. */
#define V8_SAVED_ON_ENTRY (18 * 8)

/* Returns the bytes between a frame record and the caller's stack pointer. */
static __always_inline __u64 bytes_above_record(struct cpu_state *cpu, __u64 fp)
{
	__u64 kind;

	if (!keeps_frame_records(cpu) || read_stack(cpu, fp - 8, &kind))
		return 0;
	return kind == V8_ENTERED || kind == V8_ENTERED_BY_NEW ? V8_SAVED_ON_ENTRY : 0;
}
#endif

/* Goes to the caller without unwind information. Returns whether the walk ends. */
__noinline int guess_caller(struct cpu_state *cpu, __u32 reason)
{
	__u64 pc = 0, saved = 0;
	__u32 above = 0;

	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u64 fp = walk->regs[REG_FP];
	int fresh = walk->fresh;

	walk->guess_end = reason;
#if defined(__TARGET_ARCH_x86)
	if (walk->map.kind == CODE_ANONYMOUS && leave_trampoline(cpu))
		return 0;
	if (fresh && !walk->is_return) {
		int words = return_address_by_code(walk->pc);

		if (words >= 0 && !read_stack(cpu, sp + (words ? 8 : 0), &pc) && (!words || !read_stack(cpu, sp, &saved)) &&
		    believe(walk, pc, sp + (words ? 16 : 8), words ? saved : fp))
			return 0;
	}
#else
	if (walk->map.kind != CODE_ANONYMOUS || fresh) {
		int records = reason != USER_END_NO_TABLE && keeps_frame_records(cpu);
		int place = place_of_return_address(walk->pc, !fresh, records, (__u32 *)cpu->words, &above);

		/*
		 * The instructions do not tell. Code with a frame record that has called nothing yet has the same address in x30. A bytecode
		 * handler of V8 may have no frame. Then the frame pointer is the interpreter's. Both its frame and x20 lead to the bytecode.
		 */
		if (fresh && records && place == ANYWHERE) {
			if (!read_stack(cpu, fp + 8, &pc) && pc == walk->regs[REG_LR])
				place = IN_FRAME_RECORD;
			else if (!read_stack(cpu, fp - 32, &saved) && saved & 1 && saved == walk->regs[20])
				place = IN_X30;
		}
		if (fresh && place == IN_X30 && believe(walk, walk->regs[REG_LR], sp, fp))
			return 0;
		if (records && !fresh)
			place = IN_FRAME_RECORD;
		/*
		 * Without a frame record, a guess by the frame pointer may leave out a caller. JIT code either keeps frame pointers
		 * everywhere or nowhere. But most compiled code without unwind information was built without frame pointers.
		 */
		if (place != IN_FRAME_RECORD && walk->map.kind != CODE_ANONYMOUS)
			return ends(walk, reason);
	}
#endif
	pc = 0;
	if (walk->valid >> REG_FP & 1) {
		/* By the psABI a frame pointer of 0 marks the outermost frame. */
		if (!fp)
			return ends(walk, USER_END_ZERO);
		if (fp >= sp && !read_stack(cpu, fp, &saved) && !read_stack(cpu, fp + 8, &pc)) {
			if (!saved && !pc)
				return ends(walk, USER_END_ZERO);
#if defined(__TARGET_ARCH_x86)
			/* Nothing is known of this code. Most code keeps no frame pointer. Then the register leads to the caller's
			 * caller, and the guess would leave out a frame. */
			if (reason == USER_END_NO_TABLE && !calls_with_frame(pc, walk->pc))
				return ends_at_guess(cpu, pc, reason);
#endif
			if (believe(walk, pc, fp + 16 + above + bytes_above_record(cpu, fp), saved))
				return 0;
		}
	}
#if defined(__TARGET_ARCH_x86)
	/* A leaf function without a frame: stubs of system calls, and assembly. */
	if (fresh && reason != USER_END_NO_TABLE && !read_stack(cpu, sp, &saved) && believe(walk, saved, sp + 8, fp))
		return 0;
#endif
	return ends_at_guess(cpu, pc, reason);
}

#endif
