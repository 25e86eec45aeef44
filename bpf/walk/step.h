/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parts of a step of a walk: reading the stack, adding a frame, going to the caller, ending.
 */
#ifndef FLAMETOP_STEP_H
#define FLAMETOP_STEP_H

#include "../lookup/tables.h"
#include "../regs.h"
#include "../lookup/physmap.h"
#include "budget.h"

/* Changes to another stack in one walk, for example by Go's systemstack or coroutines. The caller may then have a lower address. */
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

#if defined(__TARGET_ARCH_x86)
#include "../arch/x86.h"
#else
#include "../arch/arm64.h"
#endif

/* Whether a window is read through its address, in the direct map or in the copy. */
#if defined(__TARGET_ARCH_x86)
#define READS_WINDOW_IN_PLACE CAN_READ_IN_PLACE
#else
#define READS_WINDOW_IN_PLACE 0
#endif

/*
 * Makes a window of the stack at an address. If possible, the window is the address's page, in place. Otherwise it is a copy: a full
 * window, or the rest of the page, or one word.
 */
__noinline int fill_window(struct cpu_state *cpu, __u64 address)
{
	__u64 line = address & ~(LINE_BYTES - 1ULL);
	/* Bytes from the line to the end of its page. 4 KiB is the smallest page size. */
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
	/* A copy across the end of a mapping fails. */
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

/* Reads a word of the stack. Unaligned words fail: no return address is unaligned. */
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

/* Notes the stack pointer of a frame, for the functions of an interpreter. */
static __always_inline void note_stack_pointer(struct cpu_state *cpu, __u32 place, __u64 sp)
{
	struct script_record *record = &cpu->script.record;

	OPAQUE(record);
	OPAQUE(place);
	((__u32 *)record->words)[place & (MAX_USER_FRAMES - 1)] = (sp - record->base) >> 3;
}

/* Adds a frame to the sample: an address, enum frame_bits and its stack pointer. Returns whether there was room. */
static __always_inline int add_frame_at(struct cpu_state *cpu, __u64 address, __u64 bits, __u64 sp)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame + walk->frames;

	OPAQUE(place);
	if (walk->frames >= MAX_USER_FRAMES || place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 0;
	cpu->sample.frames[place] = (address & ((1ULL << FRAME_BITS_SHIFT) - 1)) | bits << FRAME_BITS_SHIFT;
	if (unlikely(walk->scripted))
		note_stack_pointer(cpu, walk->frames, sp);
	walk->frames++;
	return 1;
}

/* Adds a frame with the walk's current stack pointer. Returns whether there was room. */
static __always_inline int add_frame(struct cpu_state *cpu, __u64 address, __u64 bits)
{
	return add_frame_at(cpu, address, bits, cpu->walk.regs[REG_SP]);
}

/* Returns the enum frame_bits of pc. */
static __always_inline __u64 frame_bits(struct walk *walk)
{
	return (walk->is_return ? 0 : FRAME_INTERRUPTED) | (walk->guessed ? FRAME_GUESSED : 0);
}

/* Adds a frame for the walk's current pc. Returns whether there was room. */
static __always_inline int add_pc(struct cpu_state *cpu)
{
	return add_frame(cpu, cpu->walk.pc, frame_bits(&cpu->walk));
}

/* How a frame was reached, if not by stack and frame pointer alone: bpf/walk/stack_cache.h. */
#define LINK_OTHER (~0U)

static __always_inline int ends(struct walk *walk, int reason)
{
	walk->end = reason;
	return 1;
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

#endif
