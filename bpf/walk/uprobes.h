/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Undoes the changes that uprobes of any program have made to a process, so that the walk continues.
 *
 * The kernel keeps a page in the process ("[uprobes]" in /proc/PID/maps). A walk would end there. A pc is in this page for two reasons:
 *
 *   uretprobe     The function's return address is replaced by that of a trampoline in the page. A list of the task has the true one.
 *   single step   The instruction that the breakpoint replaced runs from a slot in the page.
 *
 *   stack:  … │ trampoline │ …         utask->return_instances ─► {stack, orig_ret_vaddr} ─► … ─► NULL, innermost first
 *                    ▲ stack: the stack pointer at the function's entry. It points here on x86, and above the function's frame on arm64
 */
#ifndef FLAMETOP_UPROBES_H
#define FLAMETOP_UPROBES_H

#include "step.h"

/* MAX_URETPROBE_DEPTH of include/linux/uprobes.h. */
#define MAX_RETURN_INSTANCES 64
/* UPROBE_XOL_SLOT_BYTES. The trampoline is not longer. */
#define UPROBES_SLOT_BYTES 128
/* Bytes that the trampoline of x86_64 pushes, since 6.11: rax, rcx, r11. */
#define TRAMPOLINE_PUSHES 24

/*
 * Goes to the caller if pc is at the end of the trampoline, behind its system call. Returns whether it did. The system call has removed the
 * call from the list, and has put the return address in the place of rax.
 *
 *   syscall;  pop r11   pop rcx   ret      41 5b 59 c3
 */
static __always_inline int finish_trampoline(struct walk *walk)
{
#if defined(__TARGET_ARCH_x86)
	__u64 sp = walk->regs[REG_SP], pc;
	__u32 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)walk->pc))
		return 0;
	if (code == 0xc3595b41)
		sp += 16;
	else if ((code & 0xffff) == 0xc359)
		sp += 8;
	else if ((code & 0xff) != 0xc3)
		return 0;
	if (bpf_probe_read_user(&pc, sizeof(pc), (void *)sp) || !is_return_address(pc))
		return 0;
	go_up(walk, pc, sp + 8, 0);
	walk->valid &= REGISTERS_KEPT;
	return 1;
#else
	return 0;
#endif
}

/* Goes to the caller of a call in the list, if it is the call of this frame. Returns whether it is. */
static __always_inline int leaves_call(struct walk *walk, const struct return_instance *call)
{
	__u64 sp = call->stack + RETURN_ADDRESS_BYTES;

	if (sp - walk->regs[REG_SP] > (walk->fresh ? TRAMPOLINE_PUSHES : 0))
		return 0;
	go_up(walk, call->orig_ret_vaddr, sp, 0);
	walk->valid &= REGISTERS_KEPT;
	return 1;
}

/*
 * Sets pc and stack pointer to the values that they would have without uprobes, if pc is in the page of uprobes. Returns whether it did.
 * The list also holds calls that a longjmp has left, until the next return. Living calls with the same place on the stack come before them.
 */
__noinline int leave_uprobes(struct cpu_state *cpu)
{
	struct task_struct *task = WITHOUT_TRUST(bpf_get_current_task_btf());

	if (!cpu || !bpf_core_field_exists(task->utask) || !bpf_core_field_exists(task->mm->uprobes_state))
		return 0;
	struct walk *walk = &cpu->walk;
	struct uprobe_task *utask = task->utask;

	if (!utask)
		return 0;
	__u64 step = walk->pc - utask->xol_vaddr;

	if (!walk->frames && step < UPROBES_SLOT_BYTES && utask->active_uprobe) {
		walk->pc = utask->vaddr + step;
		return 1;
	}
	walk->uprobes = task->mm->uprobes_state.xol_area->vaddr;
	if (walk->pc - walk->uprobes >= UPROBES_SLOT_BYTES)
		return 0;

	struct return_instance *call = utask->return_instances;
	int i, left = 0;

	if (CAN_ITERATE) {
		bpf_for(i, 0, MAX_RETURN_INSTANCES) {
			if (!call || (left = leaves_call(walk, call)))
				break;
			call = call->next;
		}
	} else {
#pragma clang loop unroll(disable)
		for (i = 0; i < MAX_RETURN_INSTANCES; i++) {
			if (!call || (left = leaves_call(walk, call)))
				break;
			call = call->next;
		}
	}
	return left || (walk->fresh && finish_trampoline(walk));
}

#endif
