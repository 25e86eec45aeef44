/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Cache of each thread's last user stack.
 *
 * Stacks mostly stay the same from one tick to the next. When a walk reaches a frame that the last stack also had, the remaining
 * frames are compared with memory, word by word, instead of being unwound again.
 *
 *   this walk   n0 ─► n1 ─► n2 ═╗                                        unwound by rules
 *   last walk   p0 ─► p1 ─► p2 ─╫─► p3 ─► p4 ─► … ─► root
 *                               ╚═► n2 has the same pc, stack pointer and frame pointer as p2. So p3 is compared: are its return
 *                                   address and frame pointer still at the places where they were found? Then p4, …
 *
 * The result equals a full walk. A frame's rule depends on its pc and on the mapping there. Mappings are equal, because the last stack is
 * used only in the same generation of the same address space. The places of return address and frame pointer depend on the rule, the stack
 * pointer and the frame pointer. The words at those places are read again.
 *
 * A step that needs anything else is never skipped: another register, a signal frame, a guess. past_stack::first is a frame farther out
 * than such a step. If a root was found from the thread's data instead of its code, past_stack::first is beyond all frames, so the stack is
 * not used. tests/truth compares both methods, sample by sample.
 *
 * Why it is faster: a frame takes 24 bytes of an array that is read in order, so the processor prefetches it. Its rule would take a cache
 * line anywhere in 64 KiB of cached rules. docs/measurements.md has the figures.
 *
 * Requires mapping generations and bpf_for: 6.4 and later.
 */
#ifndef FLAMETOP_STACK_CACHE_H
#define FLAMETOP_STACK_CACHE_H

#include "step.h"

#define PAST_PC_BITS ((1ULL << FRAME_BITS_SHIFT) - 1)
#define PAST_SP_SHIFT 48
#define PAST_SP_BITS ((1ULL << PAST_SP_SHIFT) - 1)
#define PAST_FP_SLOT_SHIFT 58
#define PAST_FP_KNOWN (1ULL << 63)
/* Bits of past_frame::pc that must be equal in two frames. The excluded bits say how the frame was reached. */
#define PAST_SAME_PC (~(31ULL << PAST_FP_SLOT_SHIFT))

/*
 * Packs how a frame was reached from its callee.
 *
 *   ra_slot   words from the place of the return address (this frame's pc) up to this frame's stack pointer
 *   fp_slot   words from the place of the saved frame pointer up to that of the return address; 0: not saved there
 */
#define LINK(ra_slot, fp_slot) ((ra_slot) | (fp_slot) << 16)
#define LINK_RA_SLOT(link) ((link) & 0xffff)
#define LINK_FP_SLOT(link) ((link) >> 16)
/* Value of past_old and past_new for no stack. */
#define NO_PAST PAST_STACKS

/* Returns the LINK() of these places: cfa is the caller's stack pointer; fp_place 0: not saved. Returns LINK_OTHER if it does not fit. */
static __always_inline __u32 link_of(__u64 cfa, __u64 ra_place, __u64 fp_place)
{
	__u64 ra_slot = (cfa - ra_place) >> 3;
	__u64 fp_slot = fp_place ? (ra_place - fp_place) >> 3 : 0;

	if (ra_slot - 1 >= 0xfffe || fp_slot > 31 || (fp_place && !fp_slot))
		return LINK_OTHER;
	return LINK(ra_slot, fp_slot);
}

/* Returns an element of cpu->past; NULL for NO_PAST. */
static __always_inline struct past_stack *past_stack(struct cpu_state *cpu, __u32 number)
{
	struct past_stack *stack;

	if (number >= PAST_STACKS)
		return NULL;
	OPAQUE(number);
	stack = &cpu->past[number & (PAST_STACKS - 1)];
	/* Otherwise the compiler would compute the address again for each member. */
	OPAQUE(stack);
	return stack;
}

/* Returns the place of a frame in a stack. Frames are numbered from the innermost one; frame n replaces frame n - PAST_FRAMES. */
static __always_inline struct past_frame *past_frame(struct past_stack *stack, __u32 number)
{
	struct past_frame *frame;

	OPAQUE(number);
	frame = &stack->frame[number & (PAST_FRAMES - 1)];
	OPAQUE(frame);
	return frame;
}

/*
 * Returns the number of the element of cpu->past that holds a thread's last stack. A hash of the tid selects a slot, and each slot owns one
 * element. One element is spare: the next stack is kept there. past_of has the number of each slot's element, xor the slot's number. So a
 * new map, which is all zeros, gives each slot another element.
 */
static __always_inline __u32 place_of_past(struct cpu_state *cpu, __u32 tid, __u32 *slot)
{
	__u32 at = (__u64)(tid * 0x9e3779b1U) * (PAST_STACKS - 1) >> 32;

	*slot = at;
	OPAQUE(at);
	return cpu->past_of[at & (PAST_STACKS - 1)] ^ *slot;
}

/* Cache lines of a stack that are fetched ahead: 35 frames. */
#define FETCHED_LINES 14

/*
 * Prefetches memory that the walk will need: the thread's last stack, as deep as most stacks are, and the walk's state. Other programs
 * have used the CPU's caches since the last tick. At this point nothing waits for the loads yet.
 */
static __always_inline void fetch_past(struct cpu_state *cpu, __u32 tid)
{
	__u32 slot;
	struct past_stack *past;

	if (!bpf_ksym_exists(bpf_iter_num_new) || walk_how == WALK_BY_FRAME_POINTERS || walk_how == WALK_NOTHING || walk_how == WALK_ANEW)
		return;
	past = past_stack(cpu, place_of_past(cpu, tid, &slot));
	if (!past)
		return;
#pragma unroll
	for (__u32 line = 0; line < FETCHED_LINES; line++)
		*(volatile __u64 *)((char *)past + 64 * line);
#pragma unroll
	for (__u32 line = 0; line < sizeof(struct walk) / 64; line++)
		*(volatile __u64 *)((char *)&cpu->walk + 64 * line);
}

/* Finds the last stack of the current thread, and prepares to keep the new one. `anew`: does neither. */
static __always_inline void recall(struct cpu_state *cpu, __u32 tid, int anew)
{
	struct walk *walk = &cpu->walk;
	struct past_stack *old, *new;
	__u32 slot;

	walk->past_old = NO_PAST;
	walk->past_new = NO_PAST;
	walk->retraced = 0;
	if (!CAN_ITERATE || anew || !is_settled(&walk->space))
		return;
	slot = place_of_past(cpu, tid, &walk->past_slot);
	walk->past_new = cpu->past_spare ^ (PAST_STACKS - 1);
	walk->past_at = 0;
	walk->past_first = 0;
	walk->link = LINK_OTHER;
	old = past_stack(cpu, slot);
	new = past_stack(cpu, walk->past_new);
	if (!old || !new)
		return;
	/*
	 * Reuses the mapping of the innermost frame. Two samples in a row mostly have the same one: this saves a look-up and a cache line.
	 * A mapping that was found while a writer changed mappings is not reused: its generation never comes again.
	 */
	new->map.size = 0;
	if (old->tid != tid || old->mm != walk->space.mm || old->id != walk->space.id || old->sequence != walk->space.sequence)
		return;
	walk->map = old->map;
	new->map = old->map;
	walk->past_old = slot;
	walk->past_at = old->frames > PAST_FRAMES ? old->frames - PAST_FRAMES : 0;
}

/* Keeps the mapping of the innermost frame: see recall(). */
static __always_inline void keep_mapping(struct cpu_state *cpu)
{
	struct past_stack *new = past_stack(cpu, cpu->walk.past_new);

	/* A mapping without a table is not kept: its table may be loaded a moment later. */
	if (new && cpu->walk.map.kind != CODE_WITHOUT_TABLE)
		new->map = cpu->walk.map;
}

/*
 * Forgets the current mapping, which has this address, because its table was removed. The next sample looks the mapping up again, and
 * requests a table.
 */
static __always_inline void forget_mapping(struct cpu_state *cpu, __u64 address)
{
	struct walk *walk = &cpu->walk;
	__u32 at = mapping_hash(&walk->space, address);
	__u32 slot = walk->past_slot;

#pragma unroll
	for (int way = 0; way < 2; way++) {
		__u32 index = at ^ way;

		OPAQUE(index);
		struct cached_mapping *cached = &cpu->mappings[index & (CACHED_MAPPINGS - 1)];
		if (cached->map.serial == walk->map.serial)
			cached->map.size = 0;
	}
	OPAQUE(slot);
	struct past_stack *old = past_stack(cpu, cpu->past_of[slot & (PAST_STACKS - 1)] ^ walk->past_slot);
	if (old)
		old->map.size = 0;
}

/*
 * Keeps the frame that was added last: `frame` is its pc and enum frame_bits. Returns whether the thread's last stack has the same frame
 * and can be followed from there.
 */
static __always_inline int keep_frame(struct cpu_state *cpu, __u64 frame)
{
	struct walk *walk = &cpu->walk;
	struct past_stack *new = past_stack(cpu, walk->past_new);
	__u64 sp = walk->regs[REG_SP];
	__u64 fp = 0;
	__u32 number = walk->frames - 1;
	__u32 link = walk->link;

	if (!new)
		return 0;
	if (walk->valid >> REG_FP & 1) {
		fp = walk->regs[REG_FP];
		frame |= PAST_FP_KNOWN;
	}
	if (sp >> PAST_SP_SHIFT)
		link = LINK_OTHER;
	if (link == LINK_OTHER) {
		walk->past_first = number;
		link = 0;
	}

	struct past_frame *kept = past_frame(new, number);
	kept->pc = frame | (__u64)LINK_FP_SLOT(link) << PAST_FP_SLOT_SHIFT;
	kept->sp = (sp & PAST_SP_BITS) | (__u64)LINK_RA_SLOT(link) << PAST_SP_SHIFT;
	kept->fp = fp;

	struct past_stack *old = past_stack(cpu, walk->past_old);
	if (!old)
		return 0;

	__u32 at = walk->past_at;
	struct past_frame *past = past_frame(old, at);
	/* Not unrolled: unrolled, it would be most of the code that each frame runs. */
#pragma clang loop unroll(disable)
	for (int i = 0; i < 8; i++) {
		if ((past->sp & PAST_SP_BITS) >= sp)
			break;
		past = past_frame(old, ++at);
	}
	walk->past_at = at;
	return (past->sp & PAST_SP_BITS) == sp && (past->pc & PAST_SAME_PC) == frame && past->fp == fp && at >= old->first &&
	       at < old->frames;
}

/*
 * Follows the thread's last stack from the current frame on. Returns whether it led to the root. If not, the walk is where it was, and does
 * not use the last stack any more.
 */
__noinline int retrace(struct cpu_state *cpu)
{
	/* Never called without bpf_for. But the verifier checks global functions anyway: this test removes the missing kfunc. */
	if (!CAN_ITERATE)
		return 0;
	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	struct past_stack *old = past_stack(cpu, walk->past_old);
	struct past_stack *new = past_stack(cpu, walk->past_new);
	__u32 frames = walk->frames;
	int i, whole = 0;

	if (!old || !new)
		return 0;
	bpf_for(i, 0, PAST_FRAMES) {
		__u32 at = ++walk->past_at;
		struct past_frame *past = past_frame(old, at);
		__u64 pc = past->pc, sp = past->sp, word, place;

		if (at >= old->frames) {
			whole = 1;
			break;
		}
		place = (sp & PAST_SP_BITS) - 8 * (sp >> PAST_SP_SHIFT);
		if (pc >> PAST_FP_SLOT_SHIFT & 31) {
			if (read_stack(cpu, place - 8 * (pc >> PAST_FP_SLOT_SHIFT & 31), &word) || word != past->fp)
				break;
		}
		if (read_stack(cpu, place, &word) || code_address(word) != (pc & PAST_PC_BITS))
			break;
		if (!add_frame_at(cpu, pc, pc >> FRAME_BITS_SHIFT & 3, sp & PAST_SP_BITS))
			break;

		struct past_frame *kept = past_frame(new, walk->frames - 1);
		kept->pc = pc;
		kept->sp = sp;
		kept->fp = past->fp;
	}
	if (whole) {
		walk->retraced = walk->frames - frames;
		walk->end = USER_END_ROOT;
	} else {
		walk->frames = frames;
		walk->past_old = NO_PAST;
	}
	return whole;
}

/* Keeps a stack if it was walked to its root. It replaces the last stack in the thread's slot. */
static __always_inline void remember(struct cpu_state *cpu, __u32 tid)
{
	struct walk *walk = &cpu->walk;
	struct past_stack *new = past_stack(cpu, walk->past_new);
	__u32 slot = walk->past_slot;

	if (!new || walk->end != USER_END_ROOT)
		return;
	new->mm = walk->space.mm;
	new->id = walk->space.id;
	new->sequence = walk->space.sequence;
	new->tid = tid;
	new->frames = walk->frames;
	new->first = walk->past_first;
	if (walk->frames > PAST_FRAMES && new->first < walk->frames - PAST_FRAMES)
		new->first = walk->frames - PAST_FRAMES;

	OPAQUE(slot);
	__u32 *place = &cpu->past_of[slot & (PAST_STACKS - 1)];
	__u32 old = *place ^ walk->past_slot;
	*place = walk->past_new ^ walk->past_slot;
	cpu->past_spare = old ^ (PAST_STACKS - 1);
}

#endif
