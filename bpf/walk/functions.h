/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The functions that runtimes of languages run: finds the runtimes of a process, and sends the functions of a sample before the sample.
 *
 *   script.h   CPython: a chain in memory beside the native stack
 *   v8.h       V8: words in native frames
 *   hotspot.h  HotSpot: words in native frames, and a step of the walk
 *
 * A struct runtime holds the offsets of fields. User space makes one for each process that has a runtime. In a process without one, a
 * sample costs a comparison more.
 */
#ifndef FLAMETOP_FUNCTIONS_H
#define FLAMETOP_FUNCTIONS_H

#include "script.h"
#include "v8.h"
#include "hotspot.h"

/* Process → its runtimes. Preallocated: perf_event programs may use no other hash map before 6.1. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_RUNTIMES);
	__type(key, __u32);
	__type(value, struct runtime);
} runtimes SEC(".maps");

/* Finds out whether a process has a runtime. Called before the walk of a user stack. */
static __always_inline void find_runtime(struct cpu_state *cpu, __u32 tgid)
{
	struct runtime *runtime = bpf_map_lookup_elem(&runtimes, &tgid);

	cpu->walk.scripted = runtime != NULL;
	if (!runtime)
		return;
	cpu->script.runtime = *runtime;
	if (unlikely(runtime->has & HAS_HOTSPOT)) {
		struct jvm *jvm = bpf_map_lookup_elem(&jvms, &tgid);

		/* Not by an assignment: its 38 words would be two instructions each, at each of two places, for the verifier. */
		if (!jvm || bpf_probe_read_kernel(&cpu->script.jvm, sizeof(*jvm), jvm))
			cpu->script.runtime.has &= ~HAS_HOTSPOT;
	}
}

/* Calls find_runtime(), but for a thread without a runtime only once for each value of runtimes_stamp. */
static __always_inline void find_runtime_unless_known(struct cpu_state *cpu, const struct sample_header *header, __u32 stamp)
{
	struct known_task *known = &cpu->tasks[header->tid & (KNOWN_TASKS - 1)];

	if (known->no_runtime == stamp)
		return;
	find_runtime(cpu, header->tgid);
	if (!cpu->walk.scripted)
		known->no_runtime = stamp;
}

/* Frames between two readings of the clock. */
#define FRAMES_AT_ONCE 16
_Static_assert(MAX_USER_FRAMES == 1 << SCRIPT_FRAME_BITS, "the number of a frame has its bits");

/* Adds the function of a frame, if it has one. Returns whether the walk ends. */
static __always_inline int add_function_of_frame(struct cpu_state *cpu, __u32 number)
{
	__u16 has = cpu->script.runtime.has;

	if (number >= cpu->walk.frames)
		return 1;
	if (!((number + 1) & (FRAMES_AT_ONCE - 1)) && is_out_of_time(cpu))
		return cut(&cpu->script.record);
	return (has & HAS_HOTSPOT && add_method_of_frame(cpu, number)) || (has & HAS_V8 && add_v8_function(cpu, number));
}

/* Adds functions of some frames from this number on. Returns whether the walk ends. In two loops old verifiers have less to follow. */
__noinline int add_functions_of_frames(struct cpu_state *cpu, __u32 from)
{
	/* Never called with bpf_for, but verified anyway. */
	if (!cpu || CAN_ITERATE)
		return 1;
	for (__u32 i = 0; i < FRAMES_AT_ONCE; i++) {
		if (add_function_of_frame(cpu, from + i))
			return 1;
	}
	return 0;
}

/* Adds the functions of all frames to the record. */
__noinline int walk_frames_of_functions(struct cpu_state *cpu)
{
	int i;

	if (!cpu)
		return 0;
	if (CAN_ITERATE) {
		bpf_for(i, 0, MAX_USER_FRAMES) {
			if (add_function_of_frame(cpu, i))
				break;
		}
	} else {
		for (i = 0; i < MAX_USER_FRAMES; i += FRAMES_AT_ONCE) {
			if (add_functions_of_frames(cpu, i))
				break;
		}
	}
	return 0;
}

/* Finds the functions that runtimes run, and sends them. Called after the walk of the user stack. The sample must follow immediately. */
static __always_inline void send_script(struct cpu_state *cpu, struct task_struct *task, void *records)
{
	struct script_state *script = &cpu->script;
	struct script_record *record = &script->record;
	struct sample_header *header = &cpu->sample.header;
	__u32 frames = cpu->walk.frames, last = frames - 1;
	__u64 size;

	cpu->walk.scripted = 0;
	record->time = header->time;
	record->tgid = header->tgid;
	record->tid = header->tid;
	record->cpu = header->cpu;
	record->kind = RECORD_SCRIPT;
	record->frames = frames;
	OPAQUE(last);
	script->stack_size = (__u64)((__u32 *)record->words)[last & (MAX_USER_FRAMES - 1)] << 3;
	script->at = script->first = (frames + 1) / 2;
	script->steps = 0;
	script->sample++;
	script->window_bytes = 0;
	record->end = SCRIPT_NO_STATE;
	if (script->runtime.has & HAS_CPYTHON)
		walk_states(cpu, thread_pointer(task));
	if (script->runtime.has & (HAS_V8 | HAS_HOTSPOT))
		walk_frames_of_functions(cpu);
	size = __builtin_offsetof(struct script_record, words) + 8 * (__u64)script->at;
	OPAQUE(size);
	if (size > sizeof(*record))
		return;
	if (!bpf_ringbuf_output(records, record, size, BPF_RB_NO_WAKEUP))
		header->flags |= SAMPLE_HAS_SCRIPT;
}

#endif
