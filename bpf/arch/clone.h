/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Recognizes system calls that made a thread.
 */
#ifndef FLAMETOP_ARCH_CLONE_H
#define FLAMETOP_ARCH_CLONE_H

#include "../kernel.h"

/*
 * Tells whether a system call is a clone that made a thread. A thread starts on a new stack without a return address. (A child of
 * fork has a copy of its parent's stack.) clone3's arguments may be gone by now; that happens only with shared memory, and then the
 * answer is no.
 */
static __always_inline int shares_memory(__u64 number, __u64 clone, __u64 clone3, __u64 argument)
{
	__u64 flags = 0;

#if defined(__TARGET_ARCH_x86)
	if (number == clone)
		return (argument & CLONE_VM) != 0;
#else
	/* vfork is a clone with CLONE_VM as well, but its child runs on its parent's stack. */
	if (number == clone)
		return (argument & (CLONE_VM | CLONE_VFORK)) == CLONE_VM;
#endif
	if (number != clone3)
		return 0;
	bpf_probe_read_user(&flags, sizeof(flags), (void *)argument);
	return (flags & CLONE_VM) != 0;
}

#endif
