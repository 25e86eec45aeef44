/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a system call has made a thread.
 */
#ifndef FLAMETOP_ARCH_CLONE_H
#define FLAMETOP_ARCH_CLONE_H

#include "../kernel.h"

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

#endif
