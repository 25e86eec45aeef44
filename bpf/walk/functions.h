/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The functions that runtimes of languages run: finds the runtimes of a process, and sends the functions of a sample before the sample.
 *
 *   script.h   CPython: a chain in memory beside the native stack
 *   v8.h       V8: words in native frames
 *
 * A struct runtime holds the offsets of fields. User space makes one for each process that has a runtime. In a process without one, a
 * sample costs a comparison more.
 */
#ifndef FLAMETOP_FUNCTIONS_H
#define FLAMETOP_FUNCTIONS_H

#include "script.h"
#include "v8.h"

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
	if (runtime)
		cpu->script.runtime = *runtime;
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
	if (script->runtime.has & HAS_V8)
		walk_v8_frames(cpu);
	size = __builtin_offsetof(struct script_record, words) + 8 * (__u64)script->at;
	OPAQUE(size);
	if (size > sizeof(*record))
		return;
	if (!bpf_ringbuf_output(records, record, size, BPF_RB_NO_WAKEUP))
		header->flags |= SAMPLE_HAS_SCRIPT;
}

#endif
