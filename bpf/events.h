/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * State that programs at events share: of each source on each CPU, and of a walk.
 *
 * These programs may be interrupted by the clock's program, and in preemptible kernels by each other. So their `cpu_states` is another map
 * than the clock's, and one program at a time claims an element of it.
 */
#ifndef FLAMETOP_EVENTS_H
#define FLAMETOP_EVENTS_H

#include "sample.h"

/* Set before loading. Each source of events has its own copy of its programs. */
const volatile __u32 source_number;
const volatile __u32 cpus; /* most CPUs that the machine can have */

/* One element for each CPU of each source. The number of elements is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_SOURCES);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

static __always_inline struct event *event_of(__u32 cpu_number)
{
	__u32 of_source = source_number * cpus + cpu_number;

	return bpf_map_lookup_elem(&events, &of_source);
}

static __always_inline struct control *current_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Returns the CPU's state for one program, until release_state(). NULL if another program uses it. */
static __always_inline struct cpu_state *claim_state(__u32 cpu_number, struct event *event)
{
	struct cpu_state *cpu = state_of(cpu_number);

	if (!cpu)
		return NULL;
	if (__sync_val_compare_and_swap(&cpu->claimed, 0, 1)) {
		__sync_fetch_and_add(&event->busy, 1);
		return NULL;
	}
	return cpu;
}

static __always_inline void release_state(struct cpu_state *cpu)
{
	__sync_val_compare_and_swap(&cpu->claimed, 1, 0);
}

#endif
