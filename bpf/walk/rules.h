/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Goes to the caller by a rule of unwind information. src/unwind/table/packed.rs draws a rule.
 *
 *   rule ─┬─► apply_plain_rule   rules that need the stack and frame pointer only: nearly all rules
 *         ├─► apply_rule         all other rules that lead to a caller; find_cfa computes their CFA
 *         └─► apply_other_rule   roots, signals, gaps
 *
 * Each frame runs the code of apply_plain_rule(). The other two are separate functions, so that usual frames do not touch their code.
 */
#ifndef FLAMETOP_RULES_H
#define FLAMETOP_RULES_H

#include "guess.h"
#include "stack_cache.h"

/* Reads a register of this frame. Returns whether it is known. */
static __always_inline int known(struct walk *walk, __u64 number, __u64 *value)
{
	__u32 at = number & 31;

	OPAQUE(at);
	*value = walk->regs[at & 31];
	return walk->valid >> (at & 31) & 1;
}

/* Computes the canonical frame address of a rule that apply_plain_rule() does not apply. Returns whether the walk ends. The results are in
 * cpu->walk: cfa, caller, left, jumped. */
__noinline int find_cfa(struct cpu_state *cpu, __u64 rule)
{
	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u64 base, index, cfa, pc = 0, place;
	int left = 0;

	walk->jumped = 0;
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
			/* This end depends on data of the thread that retrace() does not compare: later walks must not reuse the stack. */
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
		/* Stacks grow downwards, so callers lie above. But a function may return to another stack, whose stack pointer it has saved
		 * in a register or in a word of memory. */
		int by_register = RULE_KIND(rule) == RULE_REGISTER && MAY_SWITCH_BY(RULE_REGISTER_OF(rule));
		int by_word = RULE_KIND(rule) == RULE_DEREF || (RULE_KIND(rule) == RULE_SPECIAL && RULE_REGISTER_OF(rule) == FORM_TWICE);

		if (!(left || by_register || by_word) || walk->switches >= MAX_SWITCHES)
			return ends(walk, USER_END_BAD_FRAME);
		walk->switches++;
		walk->jumped = 1;
	}
	walk->left = left;
	walk->cfa = cfa;
	walk->caller = pc;
	return 0;
}

/*
 * Goes to the caller by a rule. Returns whether the walk ends. Global: inside of the loop the verifier would follow all of its paths
 * again and again. On 6.18 it would follow 218,987 instructions in 0.25 s. Now it follows 11,060 in 10 ms. find_cfa() is global for the same
 * reason: the verifier does not combine its paths with the paths here.
 */
__noinline int apply_rule(struct cpu_state *cpu, __u64 rule)
{
	if (!cpu || find_cfa(cpu, rule))
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP], fp = walk->regs[REG_FP];
	__u64 cfa = walk->cfa, pc = walk->caller, place;
	__u32 valid = 1U << REG_SP;
	int jumped = walk->jumped, left = walk->left;

	/* The lowest address is read first, because the window begins there. The frame pointer lies below the return address. */
#if defined(__TARGET_ARCH_x86)
	__u64 ra_place = cfa - 8;
#else
	__u64 ra_place = cfa + 8 * RULE_SLOT(rule);
#endif
	int fp_known = walk->valid >> REG_FP & 1;
	/* Whether the rule needs stack and frame pointer only: see bpf/walk/stack_cache.h. */
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
		/* After the pop, the frame pointer is the caller's and points beyond this frame. gcc's information does not say so. */
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
	/* A place below the stack pointer was popped already. Compilers do not always describe that. */
	if (place && (place >= sp || jumped)) {
		fp_known = !read_stack(cpu, place, &fp);
		is_plain &= fp_known;
	} else {
		place = 0;
	}
	if (RULE_RA_IN_REGISTER(rule) && left) {
		/* pc is already set: by left_stack(). */
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
	/* left_stack() has read x30. The caller has not saved it yet. */
	if (RULE_RA_IN_REGISTER(rule) && left)
		valid |= 1U << REG_LR;
	/* A signal handler of Go has made the interrupted function look like a caller, and has pushed its x30. */
	if (RULE_INTERRUPTED(rule) && !read_stack(cpu, cfa - 16, &walk->regs[REG_LR]))
		valid |= 1U << REG_LR;
#endif
	if (fp_known)
		valid |= 1U << REG_FP;
	pc = code_address(pc);
#if !defined(__TARGET_ARCH_x86)
	/* A program's first code clears x29 and x30 (AAPCS64, 6.4.6). It may then jump to other code, as musl's does. */
	if (!pc && fp_known && !fp)
		return ends(walk, USER_END_ROOT);
#endif
	if (!pc)
		return ends_without_caller(walk, USER_END_ZERO);
	if ((jumped || RULE_SKIPS(rule)) && !is_return_address(pc))
		return ends(walk, USER_END_BAD_FRAME);
	/* A stack that was left: its innermost frame cannot be found from here. A frame at address 0 represents it. */
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
 * Goes to the caller by a plain rule, as nearly all rules are: it finds canonical frame address and frame pointer from the registers
 * that every frame has. Returns whether it did. If not, nothing has changed, and apply_rule() finds the reason.
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

/* Handles rules that do not compute a caller: roots, signals, gaps. Returns whether the walk ends. */
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
		/* The table was removed or replaced: look the frame's mapping up again. */
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
