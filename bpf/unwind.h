/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The walk of a user stack, frame by frame, by the rules that bpf/tables.h finds:
 *
 *   pc ─► rule ─► the caller's pc, stack pointer, frame pointer ─► its rule ─► …   up to a root
 *
 * Where an object has no rule, a frame is guessed by the frame pointer, or by the code in prologues and epilogues; such a frame
 * is marked, and believed only if a call ends at its return address.
 *
 * Promises: a bounded number of steps, in bounded time (bpf/budget.h); each end has a reason (enum user_end); no frame that is not
 * believed. The caller owes what bpf/tables.h asks for.
 */
#ifndef FLAMETOP_UNWIND_H
#define FLAMETOP_UNWIND_H

#include "tables.h"
#include "regs.h"
#include "direct.h"
#include "budget.h"

/* How often a stack may go on below where it is: systemstack of Go, and coroutines. */
#define MAX_SWITCHES 8

/* How user stacks are walked: set before loading. The numbers of `Walk` in src/collector/mod.rs. */
enum walk_how {
	WALK_BY_TABLES = 0,
	WALK_BY_FRAME_POINTERS = 1, /* the kernel does */
	WALK_BOTH = 2,
	WALK_NOTHING = 3, /* for measuring what the rest costs */
	WALK_ANEW = 4, /* by tables, without looking at the thread's last stack: for measuring */
	WALK_TWICE = 5, /* by tables; and anew, of a copy of the stack: for comparing */
	WALK_OF_COPIES = 6, /* by tables; the stack is always copied */
	WALK_AND_DUMP = 7, /* by tables; and by user space, of a stack dump: for comparing */
};
const volatile __u32 walk_how;
/* For tests: also where bpf_for is offered, walk as kernels before 6.4 do. */
const volatile __u32 loop_plainly;

/*
 * Whether this is a clone that made a thread: on a stack of its own, where nobody has pushed a return address. (A child of
 * fork has a copy of its parent's.) What clone3 was given may be gone by now: then it is no copy.
 */
static __always_inline int shares_memory(__u64 number, __u64 clone, __u64 clone3, __u64 argument)
{
	__u64 flags = 0;

#if defined(__TARGET_ARCH_x86)
	if (number == clone)
		return (argument & CLONE_VM) != 0;
#else
	/* vfork is such a clone, and its child on its parent's stack. */
	if (number == clone)
		return (argument & (CLONE_VM | CLONE_VFORK)) == CLONE_VM;
#endif
	if (number != clone3)
		return 0;
	bpf_probe_read_user(&flags, sizeof(flags), (void *)argument);
	return (flags & CLONE_VM) != 0;
}

#if defined(__TARGET_ARCH_x86)
#include "arch/x86.h"
#else
#include "arch/arm64.h"
#endif

/* Whether windows are read by their addresses, wherever they are. */
#if defined(__TARGET_ARCH_x86)
#define READS_WINDOW_IN_PLACE CAN_READ_IN_PLACE
#else
#define READS_WINDOW_IN_PLACE 0
#endif

/* Makes a window of the stack from an address on: its page in place; or a copy, as much as a window, what is left of its page, or one
 * word. */
__noinline int fill_window(struct cpu_state *cpu, __u64 address)
{
	__u64 line = address & ~(LINE_BYTES - 1ULL);
	/* Of the smallest page that there is. */
	__u64 rest = -line & 4095;

	if (!cpu)
		return -1;
	struct walk *walk = &cpu->walk;

	walk->look_at -= WINDOW_FRAMES;
	if (READS_WINDOW_IN_PLACE && walk->pgd) {
		leave_page(walk);
		if (walk->pgd && enter_page(walk, address))
			return 0;
		walk->page_place = 0;
	}
	walk->window = (__u64)cpu->window;
	walk->window_at = line;
	walk->window_bytes = sizeof(cpu->window);
	if (!bpf_probe_read_user(cpu->window, sizeof(cpu->window), (void *)line)) {
		if (READS_WINDOW_IN_PLACE && walk->pgd_after_copy)
			walk->pgd = walk->pgd_after_copy;
		return 0;
	}
	/* Across the end of a mapping the copy fails. */
	OPAQUE(rest);
	if (rest && rest < sizeof(cpu->window)) {
		walk->window_bytes = rest;
		if (!bpf_probe_read_user(cpu->window, rest, (void *)line))
			return 0;
	}
	walk->window_at = address;
	walk->window_bytes = 0;
	if (read_alone(cpu, address, cpu->window))
		return -1;
	walk->window_bytes = 8;
	return 0;
}

/* A word of the stack. Unaligned ones are nobody's return addresses. */
static __always_inline int read_stack(struct cpu_state *cpu, __u64 address, __u64 *value)
{
	__u64 offset = address - cpu->walk.window_at;

	if (unlikely(address & 7))
		return -1;
	if (unlikely(offset >= cpu->walk.window_bytes)) {
		if (fill_window(cpu, address))
			return -1;
		offset = address - cpu->walk.window_at;
	}
	if (READS_WINDOW_IN_PLACE) {
		*value = word_at(cpu->walk.window + offset);
		return 0;
	}
	offset >>= 3;
	OPAQUE(offset);
	*value = cpu->window[offset & (WINDOW_WORDS - 1)];
	return 0;
}

/* Adds a frame to the sample: an address and enum frame_bits. Whether there was room. */
static __always_inline int add_frame(struct cpu_state *cpu, __u64 address, __u64 bits)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame + walk->frames;

	OPAQUE(place);
	if (walk->frames >= MAX_USER_FRAMES || place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 0;
	cpu->sample.frames[place] = (address & ((1ULL << FRAME_BITS_SHIFT) - 1)) | bits << FRAME_BITS_SHIFT;
	walk->frames++;
	return 1;
}

/* enum frame_bits of pc. */
static __always_inline __u64 frame_bits(struct walk *walk)
{
	return (walk->is_return ? 0 : FRAME_INTERRUPTED) | (walk->guessed ? FRAME_GUESSED : 0);
}

/* Adds pc. */
static __always_inline int add_pc(struct cpu_state *cpu)
{
	return add_frame(cpu, cpu->walk.pc, frame_bits(&cpu->walk));
}

#include "retrace.h"
#include "dump.h"

static __always_inline int ends(struct walk *walk, int reason)
{
	walk->end = reason;
	return 1;
}

/*
 * The stack ends where there should be a return address and is none. In the kernel, nothing that cannot be read is missing for
 * that reason: it may be mending just that page.
 */
static __always_inline int ends_without_caller(struct walk *walk, int reason)
{
	int may_be_new = walk->fresh && !(reason == USER_END_UNREADABLE && walk->first_frame);

	return ends(walk, may_be_new && returns_from_syscall(walk, walk->pc) ? USER_END_ROOT : reason);
}

/* Goes to the caller. */
static __always_inline void go_up(struct walk *walk, __u64 pc, __u64 sp, int guessed)
{
	walk->pc = pc;
	walk->regs[REG_SP] = sp;
	walk->is_return = 1;
	walk->fresh = 0;
	walk->guessed = guessed;
	walk->guesses += guessed;
	walk->link = LINK_OTHER;
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

#include "rules.h"
#include "uprobes.h"

/*
 * Whether the one frame so far is a new thread's, in the instructions behind clone: on its stack are arguments (musl's __clone), and
 * nobody has called it.
 */
__noinline int begins_thread(struct cpu_state *cpu)
{
	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame;

	if (walk->frames != 1 || place > MAX_KERNEL_FRAMES)
		return 0;
	OPAQUE(place);
	__u64 frame = cpu->sample.frames[place & MAX_KERNEL_FRAMES];

	return frame >> FRAME_BITS_SHIFT == FRAME_INTERRUPTED && returns_from_syscall(walk, frame & ((1ULL << FRAME_BITS_SHIFT) - 1));
}

/* The mapping that pc is in. 1 where there is none: then the walk ends. -1 where that was a page of uprobes: then pc is another. */
static __always_inline int enter_mapping(struct cpu_state *cpu, __u64 address)
{
	struct walk *walk = &cpu->walk;
	int reason = locate(cpu, address);

	/* What returns to the first byte of that page is looked up one before: nothing may be mapped there. */
	if (unlikely(reason || walk->map.kind == CODE_ANONYMOUS) && leave_uprobes(cpu))
		return -1;
	if (likely(!reason)) {
		if (!walk->frames)
			keep_mapping(cpu);
		return 0;
	}
	/* What is no code has not called anybody. But where it ran, it ran. */
	if (!walk->frames)
		add_pc(cpu);
	if (reason == USER_END_NO_CODE && begins_thread(cpu))
		return ends(walk, USER_END_ROOT);
	return ends(walk, reason == USER_END_NO_CODE && walk->guess_end ? walk->guess_end : reason);
}

/*
 * One frame. Whether the walk ends: then walk->end says why. Global, so that it is verified once: inside of the loop 6.12 took twenty
 * times as long for newer compilers' code of it (28 s on an emulated arm64), and refused it as too complex in programs at kprobes. What
 * the call costs is below the noise.
 */
__noinline int walk_step(struct cpu_state *cpu)
{
	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 address = walk->pc - walk->is_return;
	__u64 bits, rule;

	if (unlikely(should_look(walk)) && is_out_of_time(cpu))
		return ends(walk, USER_END_TIME);
	if (unlikely(address - walk->map.start >= walk->map.size)) {
		int none = enter_mapping(cpu, address);

		if (none)
			return none > 0;
	}
	bits = frame_bits(walk);
	if (unlikely(!add_frame(cpu, walk->pc, bits)))
		return ends(walk, USER_END_CUT);
	if (keep_frame(cpu, (walk->pc & PAST_PC_BITS) | bits << FRAME_BITS_SHIFT) && retrace(cpu))
		return 1;
	if (unlikely(walk->map.kind != CODE_OF_FILE)) {
		if (walk->map.kind == CODE_ANONYMOUS)
			return guess_caller(cpu, USER_END_ANONYMOUS);
		/* In a moment there is one: user space continues from here. What is guessed meanwhile is for samples that it cannot continue. */
		dump_stack(cpu);
		return guess_caller(cpu, USER_END_NO_TABLE);
	}
	rule = find_rule(cpu, address - walk->map.start + walk->map.offset);
	if (likely(apply_plain_rule(cpu, rule)))
		return 0;
	return RULE_KIND(rule) >= RULE_SPECIAL ? apply_rule(cpu, rule) : apply_other_rule(cpu, rule);
}

/* All frames. */
static __always_inline void walk_frames(struct cpu_state *cpu)
{
	int i;

	if (bpf_ksym_exists(bpf_iter_num_new) && !loop_plainly) {
		bpf_for(i, 0, MAX_USER_FRAMES + 1) {
			if (walk_step(cpu))
				break;
		}
	} else {
		for (i = 0; i < MAX_USER_FRAMES + 1; i++) {
			if (walk_step(cpu))
				break;
		}
	}
}

/* By the kernel's walk of frame pointers: --unwind fp. It does not tell a chain that ended from one whose next page was
 * not in memory. */
static __always_inline void follow_frame_pointers(void *ctx, struct cpu_state *cpu, __u32 task_flags, __u32 max_depth)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame & MAX_KERNEL_FRAMES;
	long bytes = bpf_get_stack(ctx, &cpu->sample.frames[place], MAX_KERNEL_FRAMES * sizeof(__u64), BPF_F_USER_STACK);

	if (bytes <= 0) {
		/* Before 5.17 the bit had another meaning: asked only after the walk failed. */
		walk->end = task_flags & PF_USER_WORKER ? USER_END_KERNEL_THREAD : USER_END_UNREADABLE;
		return;
	}
	walk->frames = ((__u64)bytes / sizeof(__u64)) & MAX_KERNEL_FRAMES;
	walk->end = walk->frames >= max_depth ? USER_END_CUT : USER_END_FRAME_POINTER;
	if (!walk->in_syscall)
		cpu->sample.frames[place] |= (__u64)FRAME_INTERRUPTED << FRAME_BITS_SHIFT;
}

/*
 * Inside of execve the registers at the top of the kernel's stack are still those of the system call, while memory is the new
 * program's already: what cannot be walked then says nothing about either. Before memory is exchanged all is as ever.
 */
static __always_inline int is_between_programs(struct task_struct *task, __u8 end)
{
	if (end == USER_END_ROOT || end == USER_END_CUT || end == USER_END_NO_TABLE || end == USER_END_TIME)
		return 0;
	return bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD(task, in_execve);
}

/*
 * Walks the current task's user stack into the sample's frames from `first_frame` on, innermost first. The result is in
 * cpu->walk: frames, end. `tick`: the context, if it is the clock's. `returned`: pc is where a call that has just ended returned to;
 * `left` is the function that was called, if it is known; `again`: the thread's last stack is not used. Afterwards walk->moved
 * tells whether a page of the stack was taken away meanwhile: then the frames may be wrong.
 *
 *   PF_KTHREAD, PF_IO_WORKER   never has a user stack
 *   PF_USER_WORKER             (vhost, 6.4) never has one, but before 5.17 the bit had another meaning: asked last
 */
static __always_inline void walk_user(void *ctx, struct perf_event_context *tick, struct task_struct *task, struct cpu_state *cpu,
				      __u32 first_frame, __u32 max_depth, int returned, __u64 left, int again)
{
	struct walk *walk = &cpu->walk;
	__u32 task_flags = task->flags;
	int reason;

	walk->first_frame = first_frame;
	walk->frames = 0;
	walk->wishes = 0;
	walk->mapping_misses = 0;
	walk->rule_misses = 0;
	walk->guesses = 0;
	walk->retraced = 0;
	walk->moved = 0;
	walk->dump = walk_how == WALK_BOTH || walk_how == WALK_TWICE ? DUMP_REFUSED : DUMP_NONE;
	walk->relocations = 0;
	if (task_flags & (PF_KTHREAD | PF_IO_WORKER)) {
		walk->end = USER_END_KERNEL_THREAD;
		return;
	}
	reason = read_user_registers(cpu, tick);
	if (reason) {
		walk->end = task_flags & PF_USER_WORKER ? USER_END_KERNEL_THREAD : reason;
		return;
	}
	if (walk_how == WALK_BY_FRAME_POINTERS) {
		follow_frame_pointers(ctx, cpu, task_flags, max_depth);
		return;
	}
	if (walk_how == WALK_NOTHING) {
		walk->end = USER_END_UNSPECIFIED;
		return;
	}
	if (read_address_space(task, &walk->space)) {
		walk->end = USER_END_NO_MEMORY;
		return;
	}
	/* Without generations nothing is known of the mappings a moment later: what was found serves this walk alone. */
	if (!walk->space.has_sequence)
		walk->space.sequence = ++walk->unstamped;
	walk->map.size = 0;
	walk->window_bytes = 0;
	walk->pmd_number = ~0ULL;
	walk->page_place = 0;
	walk->switches = 0;
	walk->is_return = walk->in_syscall || returned;
	walk->fresh = 1;
	walk->guessed = 0;
	walk->guess_end = 0;
	walk->next_goroutine = 0;
	walk->end = USER_END_CUT;
	begin_time(cpu, first_frame || again);
	recall(cpu, task->pid, walk_how == WALK_ANEW || again);
	if (left)
		add_frame(cpu, left, FRAME_INTERRUPTED);
	if (walk->newborn) {
		add_pc(cpu);
		walk->end = USER_END_ROOT;
		return;
	}
	if (walk_how == WALK_AND_DUMP)
		dump_stack(cpu);
	walk_frames(cpu);
	if (READS_WINDOW_IN_PLACE)
		leave_page(walk);
	if (!walk->moved)
		remember(cpu, task->pid);
	if (is_between_programs(task, walk->end))
		walk->end = USER_END_REGISTERS;
}

#endif
