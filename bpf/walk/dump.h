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
 * A dump begins with the page of the stack pointer, and has the first pages of the stack:
 *
 *   5 pages             nearly all stacks of small programs
 *   17 pages            deeper stacks, as a compiler's threads have them
 *   17 pages and 15     stacks that are deeper still. The 15 pages are those of the stack's far end. So a walk can pass a frame with a large
 *                       array or struct: a frame of rustc's takes 540 kB.
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

/* Most pages of a stack whose far end is copied: 64 MiB. Beyond that, the thread's data mostly belongs to another stack. */
#define MAX_STACK_PAGES 16384

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

/*
 * Returns the number of pages from `page` to the page where the thread's stack began to grow. Returns 0 if that is not known. Thread
 * libraries keep a thread's data at this end of its stack. The stack of a main thread ends at its arguments.
 */
static __always_inline __u32 pages_of_stack(struct task_struct *task, __u64 page)
{
	struct mm_struct *mm = task->mm;
	__u64 end = thread_pointer(task);

	if (end <= page)
		end = mm ? mm->start_stack : 0;
	__u64 pages = (end - page + DUMP_PAGE - 1) / DUMP_PAGE;

	return pages <= MAX_STACK_PAGES ? pages : 0;
}

/*
 * Copies a page. Page by page, because a page that was never written cannot be read here. There is no branch: the verifier would follow
 * each combination of pages. All but `i` stays in memory, because arm64 on Linux 6.1 has no stack left.
 */
static __always_inline void copy_page(struct walk *walk, struct stack_dump *dump, __u32 i)
{
	__u64 page = i < LARGE_DUMP_PAGES ? i : dump->far + i - LARGE_DUMP_PAGES;
	__u64 from = (walk->regs[REG_SP] & ~(DUMP_PAGE - 1ULL)) + page * DUMP_PAGE;
	__u64 failed = bpf_probe_read_user(dump->stack + i * DUMP_PAGE, DUMP_PAGE, (void *)from);

	OPAQUE(failed);
	dump->copied |= (__u32)(~failed >> 63) << i;
}

/* Fills in a dump and sends it. It has room for `pages`. */
static __always_inline void fill_dump(struct cpu_state *cpu, struct stack_dump *dump, __u32 pages, __u32 far)
{
	struct walk *walk = &cpu->walk;
	__u32 i;

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
	dump->far = far;
	dump->reserved2 = 0;
	dump->key = walk->map.kind == CODE_WITHOUT_TABLE && walk->map.size ? walk->missing : (struct object_key){};
	bpf_probe_read_kernel(dump->regs, sizeof(dump->regs), walk->regs);
	dump->copied = 0;
	if (CAN_ITERATE) {
		bpf_for(i, 0, pages)
			copy_page(walk, dump, i);
	} else {
		for (i = 0; i < pages; i++)
			copy_page(walk, dump, i);
	}
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
	__u32 room = LARGE_DUMP_PAGES + FAR_DUMP_PAGES, far = 0;
	__u64 word;

	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	__u64 page = walk->regs[REG_SP] & ~(DUMP_PAGE - 1ULL);

	if (walk->dump || !most_dump_pages)
		return 0;
	/* If uretprobes have exchanged return addresses, only the kernel knows the true ones, so user space could not continue. */
	if (has_exchanged_returns())
		return 0;
	walk->dump = DUMP_REFUSED;
	__u32 pages = pages_of_stack(WITHOUT_TRUST(bpf_get_current_task_btf()), page);

	/* The end of a coroutine's stack is not known. */
	if (!pages && !bpf_probe_read_user(&word, sizeof(word), (void *)(page + DUMP_PAGES * DUMP_PAGE)))
		pages = LARGE_DUMP_PAGES;
	if (pages > LARGE_DUMP_PAGES && may_dump(cpu, LARGE_DUMP_PAGES + FAR_DUMP_PAGES)) {
		far = pages - FAR_DUMP_PAGES;
		if (far < LARGE_DUMP_PAGES)
			far = LARGE_DUMP_PAGES;
		dump = bpf_ringbuf_reserve(&stack_dumps, DUMP_BYTES(LARGE_DUMP_PAGES + FAR_DUMP_PAGES), 0);
		if (dump)
			goto reserved;
	}
	if (pages > DUMP_PAGES && may_dump(cpu, LARGE_DUMP_PAGES)) {
		room = LARGE_DUMP_PAGES;
		dump = bpf_ringbuf_reserve(&stack_dumps, DUMP_BYTES(LARGE_DUMP_PAGES), 0);
		if (dump)
			goto reserved;
	}
	if (!may_dump(cpu, DUMP_PAGES))
		return 0;
	room = DUMP_PAGES;
	dump = bpf_ringbuf_reserve(&stack_dumps, DUMP_BYTES(DUMP_PAGES), 0);
	if (!dump)
		return 0;
reserved:
	fill_dump(cpu, dump, room, far);
	walk->dump = DUMP_SENT;
	return 0;
}

#endif
