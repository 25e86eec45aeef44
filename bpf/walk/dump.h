/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stack dumps: copies of stacks that cannot be walked yet.
 *
 * A walk may meet code whose unwind table is still being made. Then the registers of that frame and the stack above it are copied to user
 * space. When the table is ready, user space continues the walk by the same rules (src/collector/processes/dumped.rs). So the first
 * sample of a program is complete, even if the program ends before its second sample.
 *
 *   cpu_states[…].sample ─► records        flags: SAMPLE_HAS_DUMP
 *   registers, stack ─────► stack_dumps    same CPU, same time
 *
 * A dump has 5 pages. The first page may be partly below the stack pointer. That is enough for nearly all stacks of small programs. If
 * the stack continues behind 5 pages, the dump has 17 pages: a compiler's threads need as much.
 *
 * Dumps have a separate ring buffer, so they never take room from samples. Each CPU may copy `most_dump_pages` in about a second, and
 * half of them for any one user other than root. A page takes about 0.4 µs.
 */
#ifndef FLAMETOP_DUMP_H
#define FLAMETOP_DUMP_H

#include "step.h"

/* Pages that each CPU may copy in about a second. Set before loading; 0: there are no dumps. */
const volatile __u32 most_dump_pages = 8192;

/* Ring buffer of stack dumps. Its size is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} stack_dumps SEC(".maps");

/* Tells whether the budget allows `pages` more pages on this CPU. If so, counts them. */
static __always_inline int may_dump(struct cpu_state *cpu, __u32 pages)
{
	struct dump_budget *budget = &cpu->dumps;
	__u32 uid = cpu->sample.header.uid, at = uid * 0x9e3779b1U >> 29;
	__u32 now = cpu->walk.time;

	OPAQUE(at);
	struct dump_user *user = &budget->users[at & (DUMP_USERS - 1)];

	if (budget->time != now) {
		budget->time = now;
		budget->pages = 0;
	}
	if (user->time != now || user->uid != uid) {
		user->time = now;
		user->uid = uid;
		user->pages = 0;
	}
	if (budget->pages + pages > most_dump_pages || (uid && user->pages + pages > most_dump_pages / 2))
		return 0;
	budget->pages += pages;
	user->pages += pages;
	return 1;
}

/* Fills in a dump and sends it. `pages` is a constant. */
static __always_inline void fill_dump(struct cpu_state *cpu, struct stack_dump *dump, int pages)
{
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u32 slack = sp & (DUMP_PAGE - 1);
	__u32 bytes = DUMP_PAGE - slack;

	dump->time = cpu->sample.header.time;
	dump->cpu = cpu->sample.header.cpu;
	dump->pc = walk->pc;
	dump->valid = walk->valid;
	dump->frames = walk->frames ? walk->frames - 1 : 0;
	dump->is_return = walk->is_return;
	dump->guessed = walk->guessed;
	dump->switches = walk->switches;
	dump->reserved[0] = 0;
	dump->reserved[1] = 0;
	dump->reserved[2] = 0;
	dump->key = walk->map.kind == CODE_WITHOUT_TABLE && walk->map.size ? walk->missing : (struct object_key){};
#pragma unroll
	for (int i = 0; i < 32; i++)
		dump->regs[i] = walk->regs[i];
	/* Page by page: a read that fails in the middle leaves nothing. */
	if (bpf_probe_read_user(dump->stack + slack, bytes, (void *)sp)) {
		bytes = 0;
	} else {
#pragma unroll
		for (int i = 1; i < pages; i++) {
			if (bpf_probe_read_user(dump->stack + i * DUMP_PAGE, DUMP_PAGE, (void *)(sp - slack + i * DUMP_PAGE)))
				break;
			bytes += DUMP_PAGE;
		}
	}
	dump->bytes = bytes;
	/* The request for the table wakes user space. */
	bpf_ringbuf_submit(dump, BPF_RB_NO_WAKEUP);
}

static __always_inline int has_exchanged_returns(void)
{
	struct task_struct *task = WITHOUT_TRUST(bpf_get_current_task_btf());

	return bpf_core_field_exists(task->utask) && task->utask && task->utask->return_instances;
}

/* Copies the registers of the walk's current frame, and the stack from its stack pointer on. At most once in a walk. */
__noinline int dump_stack(struct cpu_state *cpu)
{
	struct stack_dump *dump;
	__u64 word;

	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];

	if (walk->dump || !most_dump_pages)
		return 0;
	/* If uretprobes have exchanged return addresses, only the kernel knows the true ones, so user space could not continue. */
	if (has_exchanged_returns())
		return 0;
	walk->dump = DUMP_REFUSED;
	if (!bpf_probe_read_user(&word, sizeof(word), (void *)((sp & ~(DUMP_PAGE - 1ULL)) + DUMP_PAGES * DUMP_PAGE)) &&
	    may_dump(cpu, LARGE_DUMP_PAGES)) {
		dump = bpf_ringbuf_reserve(&stack_dumps, DUMP_BYTES(LARGE_DUMP_PAGES), 0);
		if (dump) {
			fill_dump(cpu, dump, LARGE_DUMP_PAGES);
			walk->dump = DUMP_SENT;
			return 0;
		}
	}
	if (!may_dump(cpu, DUMP_PAGES))
		return 0;
	dump = bpf_ringbuf_reserve(&stack_dumps, DUMP_BYTES(DUMP_PAGES), 0);
	if (dump) {
		fill_dump(cpu, dump, DUMP_PAGES);
		walk->dump = DUMP_SENT;
	}
	return 0;
}

#endif
