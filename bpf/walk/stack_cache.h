/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a thread's stack was at its last sample. Most of a stack stays as it is from one tick to the next: where a walk comes to a
 * frame of the last one, the rest is compared, word by word, instead of being walked again.
 *
 *   this walk   n0 ─► n1 ─► n2 ═╗            each by its rule
 *   the last    p0 ─► p1 ─► p2 ─╫─► p3 ─► p4 ─► … ─► root
 *                               ╚═► the same pc, stack pointer and frame pointer as p2: are the return address and the
 *                                   frame pointer of p3 still where they were found? those of p4? …
 *
 * It is what a walk would have found. A rule follows from pc and from what is mapped there, and that is of one generation of one
 * address space. Where it finds return address and frame pointer follows from rule, stack pointer and frame pointer; what lies
 * there is read again. A step that needs anything else (another register, a signal's frame, a guess) is never passed over:
 * `first` lies behind it, and behind a root that the thread has told instead of its code. tests/truth compares both, sample by sample.
 *
 * What is gained is memory: of each frame a line of the cached rules, anywhere in 64 KiB, against 24 bytes of a row that the processor
 * fetches ahead. docs/measurements.md has the figures.
 *
 * Only where mappings have a generation and bpf_for is offered: 6.4 and later.
 */
#ifndef FLAMETOP_STACK_CACHE_H
#define FLAMETOP_STACK_CACHE_H

#include "step.h"

#define PAST_PC_BITS ((1ULL << FRAME_BITS_SHIFT) - 1)
#define PAST_SP_SHIFT 48
#define PAST_SP_BITS ((1ULL << PAST_SP_SHIFT) - 1)
#define PAST_FP_SLOT_SHIFT 58
#define PAST_FP_KNOWN (1ULL << 63)
/* All that two frames must have in common, and not how they were reached. */
#define PAST_SAME_PC (~(31ULL << PAST_FP_SLOT_SHIFT))

/* How a frame was reached from its callee: how many words below the stack pointer its return address was, and above the frame
 * pointer, if that was there, too (0: it was not). */
#define LINK(ra_slot, fp_slot) ((ra_slot) | (fp_slot) << 16)
#define LINK_RA_SLOT(link) ((link) & 0xffff)
#define LINK_FP_SLOT(link) ((link) >> 16)
/* Of past_old and past_new: none. */
#define NO_PAST PAST_STACKS

static __always_inline __u32 link_of(__u64 cfa, __u64 ra_place, __u64 fp_place)
{
	__u64 ra_slot = (cfa - ra_place) >> 3;
	__u64 fp_slot = fp_place ? (ra_place - fp_place) >> 3 : 0;

	if (ra_slot - 1 >= 0xfffe || fp_slot > 31 || (fp_place && !fp_slot))
		return LINK_OTHER;
	return LINK(ra_slot, fp_slot);
}

static __always_inline struct past_stack *past_stack(struct cpu_state *cpu, __u32 number)
{
	struct past_stack *stack;

	if (number >= PAST_STACKS)
		return NULL;
	OPAQUE(number);
	stack = &cpu->past[number & (PAST_STACKS - 1)];
	/* Or else its place would be added up for each member. */
	OPAQUE(stack);
	return stack;
}

static __always_inline struct past_frame *past_frame(struct past_stack *stack, __u32 number)
{
	struct past_frame *frame;

	OPAQUE(number);
	frame = &stack->frame[number & (PAST_FRAMES - 1)];
	OPAQUE(frame);
	return frame;
}

/* Where the last stack of a thread is. One place for each but the last; in past_of there is a number, xor that of the place: so zeros
 * are different ones. */
static __always_inline __u32 place_of_past(struct cpu_state *cpu, __u32 tid, __u32 *slot)
{
	__u32 at = (__u64)(tid * 0x9e3779b1U) * (PAST_STACKS - 1) >> 32;

	*slot = at;
	OPAQUE(at);
	return cpu->past_of[at & (PAST_STACKS - 1)] ^ *slot;
}

/* Lines of memory: 35 frames. */
#define FETCHED_LINES 14

/* Has memory brought that the walk will ask for, while nothing waits for it yet: the thread's last stack, as deep as most are, and the
 * walk's own state. Another program had the CPU's caches to itself since the last tick. */
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

/* Finds what is known of the current thread. */
static __always_inline void recall(struct cpu_state *cpu, __u32 tid, int anew)
{
	struct walk *walk = &cpu->walk;
	struct past_stack *old, *new;
	__u32 slot;

	walk->past_old = NO_PAST;
	walk->past_new = NO_PAST;
	walk->retraced = 0;
	if (!bpf_ksym_exists(bpf_iter_num_new) || loop_plainly || anew || !is_settled(&walk->space))
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
	/* The mapping of the innermost frame, which most often is the next sample's, too: a look-up, and a line of memory, less. What
	 * was found while somebody wrote is of no generation that comes again. */
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

	/* Its table may be there a moment later. */
	if (new && cpu->walk.map.kind != CODE_WITHOUT_TABLE)
		new->map = cpu->walk.map;
}

/*
 * The table of the mapping that an address is in was taken out: what is kept of that mapping is out of date. The next sample looks
 * again, and wishes for a table.
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

/* Keeps the frame that was added last. Whether it is one of the last walk's, from which on that can be followed. */
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
	/* Not unrolled: it would be most of the code that each frame needs. */
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

/* Follows the last walk from the frame on that this one has come to. Whether it led to the root; else nothing has changed. */
__noinline int retrace(struct cpu_state *cpu)
{
	/* Never asked then; but a global function is looked at all the same, and what is not offered must not be in it. */
	if (!bpf_ksym_exists(bpf_iter_num_new))
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

/* Keeps a stack that was walked to its root, in the place of the thread's last one. */
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
