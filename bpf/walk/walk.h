/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Walks a user stack, frame by frame, by the rules that bpf/lookup/tables.h finds:
 *
 *   pc ─► rule ─► the caller's pc, stack pointer, frame pointer ─► its rule ─► …   up to a root
 *
 * If an object has no rule, a frame is guessed by the frame pointer, or by the machine code in prologues and epilogues. A guessed frame
 * is marked. It is accepted only if a call ends at its return address.
 *
 * Promises: a bounded number of steps, in bounded time (bpf/walk/budget.h); each end has a reason (enum user_end); every frame comes from
 * a rule or is an accepted guess. The caller ensures what bpf/lookup/tables.h requires.
 */
#ifndef FLAMETOP_WALK_H
#define FLAMETOP_WALK_H

#include "step.h"
#include "stack_cache.h"
#include "dump.h"
#include "functions.h"
#include "guess.h"
#include "rules.h"
#include "uprobes.h"

/*
 * Tells whether the only frame so far belongs to a new thread, in the instructions behind clone. Such a frame has no caller: its stack
 * begins with arguments (musl's __clone).
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

/* Finds the mapping of pc. Returns 1 if there is none, and ends the walk; -1 if pc was in a page of uprobes and has changed; else 0. */
static __always_inline int enter_mapping(struct cpu_state *cpu, __u64 address)
{
	struct walk *walk = &cpu->walk;

	/* Below watched calls, every other pc is there. It needs no search, and the mapping of its caller stays known. */
	if (unlikely(walk->pc - walk->uprobes < UPROBES_SLOT_BYTES) && leave_uprobes(cpu))
		return -1;

	int reason = locate(cpu, address);

	/* A return to the first byte of the uprobes page is looked up at the byte before the page, where nothing may be mapped. */
	if (unlikely(reason || walk->map.kind == CODE_ANONYMOUS) && leave_uprobes(cpu))
		return -1;
	if (likely(!reason)) {
		if (!walk->frames)
			keep_mapping(cpu);
		return 0;
	}
	/* An address that is no code cannot be a caller, so it is left out. The innermost pc is added anyway: it did run there. */
	if (!walk->frames)
		add_pc(cpu);
	if (reason == USER_END_NO_CODE && begins_thread(cpu))
		return ends(walk, USER_END_ROOT);
	return ends(walk, reason == USER_END_NO_CODE && walk->guess_end ? walk->guess_end : reason);
}

/*
 * Walks one frame. Returns whether the walk ends; then walk->end says why.
 *
 * Global, so that it is verified once. Inside of the loop, 6.12 took twenty times as long for the code of newer compilers (28 s on an
 * emulated arm64), and rejected it as too complex in programs at kprobes. The cost of the call is below the noise.
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
		if (walk->map.kind == CODE_ANONYMOUS && is_of_jvm(cpu))
			return leave_jvm_code(cpu);
		if (walk->map.kind == CODE_ANONYMOUS)
			return guess_caller(cpu, USER_END_ANONYMOUS);
		/* A table follows soon, and user space continues from here. The guessed frames serve samples that it cannot continue. */
		dump_stack(cpu);
		return guess_caller(cpu, USER_END_NO_TABLE);
	}
	rule = find_rule(cpu, address - walk->map.start + walk->map.offset);
	if (likely(apply_plain_rule(cpu, rule)))
		return 0;
	return RULE_KIND(rule) >= RULE_SPECIAL ? apply_rule(cpu, rule) : apply_other_rule(cpu, rule);
}

/* Walks all frames. */
static __always_inline void walk_frames(struct cpu_state *cpu)
{
	int i;

	if (CAN_ITERATE) {
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

/*
 * Takes the user stack by the kernel's walk of frame pointers (--unwind fp). The kernel does not tell whether the chain ended or its
 * next page was not in memory.
 */
static __always_inline void follow_frame_pointers(void *ctx, struct cpu_state *cpu, __u32 task_flags, __u32 max_depth)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame & MAX_KERNEL_FRAMES;
	long bytes = bpf_get_stack(ctx, &cpu->sample.frames[place], MAX_KERNEL_FRAMES * sizeof(__u64), BPF_F_USER_STACK);

	if (bytes <= 0) {
		/* Before 5.17 PF_USER_WORKER's bit had another meaning, so it is tested only after the walk failed. */
		walk->end = task_flags & PF_USER_WORKER ? USER_END_KERNEL_THREAD : USER_END_UNREADABLE;
		return;
	}
	walk->frames = ((__u64)bytes / sizeof(__u64)) & MAX_KERNEL_FRAMES;
	walk->end = walk->frames >= max_depth ? USER_END_CUT : USER_END_FRAME_POINTER;
	if (!walk->in_syscall)
		cpu->sample.frames[place] |= (__u64)FRAME_INTERRUPTED << FRAME_BITS_SHIFT;
}

/*
 * Tells whether a walk failed because it was inside of execve. There the registers at the top of the kernel's stack may still belong to
 * the old program, while memory already belongs to the new one. A failed walk then says nothing about either program. Before memory is
 * exchanged, walks work as usual.
 */
static __always_inline int is_between_programs(struct task_struct *task, __u8 end)
{
	if (end == USER_END_ROOT || end == USER_END_CUT || end == USER_END_NO_TABLE || end == USER_END_TIME)
		return 0;
	return bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD(task, in_execve);
}

/*
 * Walks by tables, from the registers in cpu->walk. Has the arguments of walk_user(). Global, so that the verifier checks it once for all its
 * calls. Returns 0, because a global function must return a number.
 */
__noinline int walk_by_tables(struct cpu_state *cpu, __u32 first_frame, int returned, __u64 left, int again)
{
	if (!cpu)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct walk *walk = &cpu->walk;
	__u32 tid = task->pid;

	if (read_address_space(task, &walk->space)) {
		walk->end = USER_END_NO_MEMORY;
		walk->scripted = 0;
		return 0;
	}
	/* Without generations, mappings may change unnoticed: cached mappings are valid for this walk only. */
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
	walk->uprobes = 0;
	walk->next_goroutine = 0;
	walk->end = USER_END_CUT;
	if (unlikely(walk->scripted)) {
		cpu->script.record.base = walk->regs[REG_SP];
		cpu->script.fp = walk->regs[REG_FP];
		cpu->script.bcp = BCP_IN_FRAME;
	}
	begin_time(cpu, first_frame || again);
	recall(cpu, tid, walk_how == WALK_ANEW || again);
	if (left)
		add_frame(cpu, left, FRAME_INTERRUPTED);
	if (walk->newborn) {
		add_pc(cpu);
		walk->end = USER_END_ROOT;
		return 0;
	}
	if (walk_how == WALK_AND_DUMP)
		dump_stack(cpu);
	walk_frames(cpu);
	if (READS_WINDOW_IN_PLACE)
		leave_page(walk);
	if (!walk->moved)
		remember(cpu, tid);
	if (is_between_programs(task, walk->end))
		walk->end = USER_END_REGISTERS;
	return 0;
}

/*
 * Walks the current task's user stack into the sample's frames from `first_frame` on, innermost first. The result is in cpu->walk:
 * frames, end. Afterwards walk->moved tells whether a page of the stack was taken away meanwhile. Then the frames may be wrong.
 *
 *   tick       the context of the clock's program; NULL at events
 *   max_depth  a walk of frame pointers counts as cut at this many frames; other walks do not use it
 *   returned   pc is an address that a call has just returned to
 *   left       the function that was called and has just returned, if it is known; else 0. It is added as the innermost frame
 *   again      the sample is walked once more: do not use the thread's last stack, and do not keep this one
 *
 *   PF_KTHREAD, PF_IO_WORKER   never has a user stack
 *   PF_USER_WORKER             (vhost, 6.4) never has a user stack either; tested last, because before 5.17 the bit had another meaning
 */
static __always_inline void walk_user(void *ctx, struct perf_event_context *tick, struct task_struct *task, struct cpu_state *cpu,
				      __u32 first_frame, __u32 max_depth, int returned, __u64 left, int again)
{
	struct walk *walk = &cpu->walk;
	__u32 task_flags = task->flags;
	__u8 scripted = walk->scripted;
	int reason;

	/* A walk that notes no stack pointers cannot place an interpreter's functions. */
	walk->scripted = 0;
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
	walk->scripted = scripted;
	walk_by_tables(cpu, first_frame, returned, left, again);
}

#endif
