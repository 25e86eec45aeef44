/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The caller by a rule of unwind information (src/unwind/table/packed.rs draws one).
 *
 *   rule ─┬─► apply_plain_rule   stack and frame pointer are enough: nearly all, and the only ones whose code each frame touches
 *         ├─► apply_rule         everything else that leads to a caller
 *         └─► apply_other_rule   roots, signals, gaps
 */
#ifndef FLAMETOP_RULES_H
#define FLAMETOP_RULES_H

#include "guess.h"
#include "stack_cache.h"

/* Whether a register is known in this frame; its value. */
static __always_inline int known(struct walk *walk, __u64 number, __u64 *value)
{
	__u32 at = number & 31;

	OPAQUE(at);
	*value = walk->regs[at & 31];
	return walk->valid >> (at & 31) & 1;
}

/* The caller by a rule. Whether the walk ends. Global: inside of the loop the verifier would look at all of its ways
 * again and again: 218,987 instructions and 0.25 s on 6.18, against 11,060 and 10 ms. */
__noinline int apply_rule(struct cpu_state *cpu, __u64 rule)
{

	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u64 fp = walk->regs[REG_FP];
	__u64 base, index, cfa, pc = 0, place;
	__u32 valid = 1U << REG_SP;
	int jumped = 0, left = 0;

	if (RULE_KIND(rule) == RULE_REGISTER) {
		if (!known(walk, RULE_REGISTER_OF(rule), &base))
			return ends(walk, USER_END_REGISTER);
		cfa = base + RULE_OFFSET(rule);
	} else if (RULE_KIND(rule) == RULE_SPECIAL && RULE_REGISTER_OF(rule) == FORM_TWICE) {
		if (!known(walk, rule >> 56, &base))
			return ends(walk, USER_END_REGISTER);
		if (bpf_probe_read_user(&place, sizeof(place), (void *)(base + (rule >> 40 & 0xff) * 8)) ||
		    bpf_probe_read_user(&cfa, sizeof(cfa), (void *)(place + (rule >> 48 & 0xff) * 8)))
			return ends(walk, USER_END_UNREADABLE);
		cfa += 8 * RULE_EXTRA(rule);
	} else if (RULE_KIND(rule) == RULE_SPECIAL && RULE_REGISTER_OF(rule) != FORM_PLT) {
		int reason = left_stack(walk, rule, &cfa, &pc);

		if (reason) {
			/* By what the thread says of itself, which retrace() does not compare: no later stack is followed to here. */
			walk->past_first = walk->frames;
			return ends(walk, reason);
		}
		cfa += 8 * RULE_EXTRA(rule);
		left = 1;
	} else if (RULE_KIND(rule) == RULE_SPECIAL) {
		cfa = sp + 8 + ((__s64)(walk->pc & 15) >= RULE_EXTRA(rule) ? 8 : 0);
	} else {
		if (!known(walk, RULE_REGISTER_OF(rule), &base))
			return ends(walk, USER_END_REGISTER);
		if (RULE_KIND(rule) == RULE_DEREF) {
			place = base + RULE_OFFSET(rule);
		} else {
			if (!known(walk, rule >> 56, &index))
				return ends(walk, USER_END_REGISTER);
			place = base + (index << (rule >> 61)) + (__s64)(__s16)(rule >> 40);
		}
		if (read_stack(cpu, place, &cfa))
			return ends(walk, USER_END_UNREADABLE);
		cfa += 8 * RULE_EXTRA(rule);
	}
	if (cfa & 7)
		return ends(walk, USER_END_BAD_FRAME);
	if (left || (cfa <= sp && !(cfa == sp && RULE_RA_IN_REGISTER(rule)))) {
		/* Stacks grow downwards: callers lie above. But a function may come back to another stack: by a register or a word that it has put
		 * the stack pointer into. */
		int by_register = RULE_KIND(rule) == RULE_REGISTER && MAY_SWITCH_BY(RULE_REGISTER_OF(rule));
		int by_word = RULE_KIND(rule) == RULE_DEREF || (RULE_KIND(rule) == RULE_SPECIAL && RULE_REGISTER_OF(rule) == FORM_TWICE);

		if (!(left || by_register || by_word) || walk->switches >= MAX_SWITCHES)
			return ends(walk, USER_END_BAD_FRAME);
		walk->switches++;
		jumped = 1;
	}

	/* Lowest address first: the window that is read begins there. The frame pointer lies below the return address. */
#if defined(__TARGET_ARCH_x86)
	__u64 ra_place = cfa - 8;
#else
	__u64 ra_place = cfa + 8 * RULE_SLOT(rule);
#endif
	int fp_known = walk->valid >> REG_FP & 1;
	/* Whether nothing but stack and frame pointer is needed: see bpf/walk/stack_cache.h. */
	int is_plain = RULE_KIND(rule) == RULE_REGISTER &&
		       (RULE_REGISTER_OF(rule) == REG_SP || RULE_REGISTER_OF(rule) == REG_FP) && !jumped &&
		       !RULE_RA_IN_REGISTER(rule) && !RULE_SKIPS(rule) && !RULE_INTERRUPTED(rule) && RULE_FP_KIND(rule) != 4 &&
		       RULE_RBX(rule) != RBX_NEXT_GOROUTINE;

	place = 0;
	switch (RULE_FP_KIND(rule)) {
	case 1:
		place = cfa + 8 * RULE_SLOT(rule);
		break;
	case 2:
		/* Behind its pop the frame pointer is the caller's already, beyond this frame; gcc does not say so. */
		place = fp_known ? fp + 8 * RULE_SLOT(rule) : 0;
		if (place >= cfa && !jumped)
			place = 0;
		break;
	case 3:
		place = sp + 8 * RULE_SLOT(rule);
		break;
	case 4:
		fp_known = known(walk, RULE_SLOT(rule), &fp);
		break;
	case 5:
		fp_known = 0;
		break;
	case 6:
		place = ra_place + 8 * RULE_EXTRA(rule);
		break;
	case 7:
		place = ra_place - 8;
		break;
	}
	/* Below the stack pointer it was taken back already: compilers do not always say so after a pop. */
	if (place && (place >= sp || jumped)) {
		fp_known = !read_stack(cpu, place, &fp);
		is_plain &= fp_known;
	} else {
		place = 0;
	}
	if (RULE_RA_IN_REGISTER(rule) && left) {
		/* Is in pc. */
	} else if (RULE_RA_IN_REGISTER(rule)) {
		if (!known(walk, RULE_EXTRA(rule), &pc))
			return ends(walk, USER_END_REGISTER);
	} else if (read_stack(cpu, ra_place, &pc)) {
		return ends_without_caller(walk, USER_END_UNREADABLE);
	}
	if (RULE_RBX(rule) == RBX_NEXT_GOROUTINE)
		walk->next_goroutine = 1;
#if defined(__TARGET_ARCH_x86)
	if (RULE_RBX(rule) == 1)
		valid |= walk->valid & 1U << REG_RBX;
	else if (RULE_RBX(rule) == 2 && !read_stack(cpu, cfa + 8 * RULE_EXTRA(rule), &walk->regs[REG_RBX]))
		valid |= 1U << REG_RBX;
#else
	if (RULE_RBX(rule) & 1) /* unchanged, or RBX_NEXT_GOROUTINE */
		valid |= walk->valid & (1U << REG_G | 1U << NO_SIGNAL);
	/* Its caller has not saved it yet. */
	if (RULE_RA_IN_REGISTER(rule) && left)
		valid |= 1U << REG_LR;
	/* A handler of Go's has made it look as if the interrupted function had called, and has pushed that one's x30. */
	if (RULE_INTERRUPTED(rule) && !read_stack(cpu, cfa - 16, &walk->regs[REG_LR]))
		valid |= 1U << REG_LR;
#endif
	if (fp_known)
		valid |= 1U << REG_FP;
	pc = code_address(pc);
#if !defined(__TARGET_ARCH_x86)
	/* A program's first code clears x29 and x30 (AAPCS64, 6.4.6), and may go on by a jump: musl's does. */
	if (!pc && fp_known && !fp)
		return ends(walk, USER_END_ROOT);
#endif
	if (!pc)
		return ends_without_caller(walk, USER_END_ZERO);
	if ((jumped || RULE_SKIPS(rule)) && !is_return_address(pc))
		return ends(walk, USER_END_BAD_FRAME);
	/* A stack that was left: its innermost frame is not found from here. It is told as a frame at address 0. */
	if (RULE_SKIPS(rule) && !add_frame(cpu, 0, FRAME_GUESSED))
		return ends(walk, USER_END_CUT);
	walk->regs[REG_FP] = fp;
	walk->valid = valid;
	walk->guess_end = 0;
	go_up(walk, pc, cfa, 0);
	if (is_plain)
		walk->link = link_of(cfa, ra_place, place);
	walk->is_return = !RULE_INTERRUPTED(rule);
	return 0;
}

/*
 * The caller by a rule of the kind that nearly all are of: canonical frame address and frame pointer from the registers that every
 * frame has. Whether that was it; else nothing has changed, and apply_rule() knows why not.
 */
static __always_inline int apply_plain_rule(struct cpu_state *cpu, __u64 rule)
{
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP], fp = walk->regs[REG_FP], pc = 0, place = 0;
	__u32 valid = 1U << REG_SP | (walk->valid & 1U << REG_FP);
	__u64 cfa, ra_place;

	if (unlikely(RULE_KIND(rule) != RULE_REGISTER || RULE_RA_IN_REGISTER(rule) || RULE_SKIPS(rule) || RULE_INTERRUPTED(rule) ||
		     RULE_RBX(rule) >= 2))
		return 0;
	if (RULE_REGISTER_OF(rule) == REG_SP)
		cfa = sp + RULE_OFFSET(rule);
	else if (RULE_REGISTER_OF(rule) == REG_FP && valid >> REG_FP & 1)
		cfa = fp + RULE_OFFSET(rule);
	else
		return 0;
	if (unlikely(cfa & 7 || cfa <= sp))
		return 0;
#if defined(__TARGET_ARCH_x86)
	ra_place = cfa - 8;
#define PLAIN_FP_KIND 1
#define PLAIN_FP_PLACE(rule) (cfa + 8 * RULE_SLOT(rule))
#define KEPT_REGISTERS (1U << REG_RBX)
#else
	ra_place = cfa + 8 * RULE_SLOT(rule);
#define PLAIN_FP_KIND 6
#define PLAIN_FP_PLACE(rule) (ra_place + 8 * RULE_EXTRA(rule))
#define KEPT_REGISTERS (1U << REG_G | 1U << NO_SIGNAL)
#endif
	if (RULE_FP_KIND(rule) == PLAIN_FP_KIND) {
		place = PLAIN_FP_PLACE(rule);
		if (unlikely(place < sp || read_stack(cpu, place, &fp)))
			return 0;
		valid |= 1U << REG_FP;
	} else if (unlikely(RULE_FP_KIND(rule))) {
		return 0;
	}
	if (unlikely(read_stack(cpu, ra_place, &pc)))
		return 0;
	pc = code_address(pc);
	if (unlikely(!pc))
		return 0;
	if (RULE_RBX(rule))
		valid |= walk->valid & KEPT_REGISTERS;
	walk->regs[REG_FP] = fp;
	walk->valid = valid;
	walk->guess_end = 0;
	go_up(walk, pc, cfa, 0);
	walk->link = link_of(cfa, ra_place, place);
	return 1;
}

/* The caller, where a rule is none by which there is one. Whether the walk ends. */
__noinline int apply_other_rule(struct cpu_state *cpu, __u64 rule)
{
	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;

	if (RULE_KIND(rule) == RULE_ROOT)
		return ends(walk, USER_END_ROOT);
	if (RULE_KIND(rule) == RULE_SIGNAL) {
		int reason = read_signal_frame(walk, cpu->words);

		if (reason)
			return ends(walk, reason);
		walk->is_return = 0;
		walk->fresh = 1;
		walk->guessed = 0;
		walk->guess_end = 0;
		walk->link = LINK_OTHER;
		return 0;
	}
	if (rule == RULE_NO_TABLE) {
		/* Another table has taken its place, or none has: the frame is looked at once more. */
		forget_mapping(cpu, walk->pc - walk->is_return);
		if (walk->relocations++ >= MAX_RELOCATIONS)
			return ends(walk, USER_END_NO_TABLE);
		walk->map.size = 0;
		walk->frames--;
		return 0;
	}
	if (rule == RULE_INVALID_STACK_POINTER)
		return ends(walk, USER_END_INVALID);
	if (!guess_caller(cpu, RULE_KIND(rule) == RULE_GAP ? USER_END_GAP : USER_END_INVALID))
		return 0;
	if (rule == RULE_GAP_FOR_NOW)
		dump_stack(cpu);
	return 1;
}

#endif
