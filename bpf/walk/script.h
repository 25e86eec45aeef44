/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Walks the functions of an interpreter. They are no frames of the native stack but a chain in memory, which is walked once a sample.
 *
 *   thread pointer ─► state ─► frame ─► frame ─► …     innermost first, at most MAX_SCRIPT_FRAMES
 *
 * A record has code objects with the instructions that run in them, and the stack pointer of each native frame. For each call of the
 * interpreter's loop it has the anchor, an address in the stack of that call. The anchor lies in the stack of one native frame: user
 * space puts the functions of the call behind that frame. src/runtimes/python/ has the same walk in Rust.
 *
 * The walk shares the time limit of the native walk: budget.h. A recursion costs little time and room: frames that lie side by side
 * are read together, and a function that was met at the same instruction is counted, not sent again.
 */
#ifndef FLAMETOP_SCRIPT_H
#define FLAMETOP_SCRIPT_H

#include "step.h"

/* Appends a word to the record. Returns whether there was room. `spare` words are left for what must follow. */
static __always_inline int add_word(struct script_state *script, __u64 word, __u32 spare)
{
	__u32 place = script->at;

	OPAQUE(place);
	if (place >= SCRIPT_WORDS - spare)
		return 0;
	script->record.words[place] = word;
	script->at = place + 1;
	return 1;
}

/*
 * Brings a frame into the window. Frames of functions that call each other lie side by side, the caller below. So the bytes before the
 * frame are read as well, from the begin of its page on. With ENTRY_EACH frames are separate objects, and only the frame is read.
 */
static __always_inline int enter_frame(struct script_state *script, __u64 frame)
{
	__u32 bytes = script->runtime.frame_bytes, before = 0, size;
	__u64 place = frame - script->window_at;

	if (bytes > MAX_SCRIPT_FRAME_BYTES)
		return -1;
	if (!(place & 7) && place < script->window_bytes && place + bytes <= script->window_bytes) {
		script->place = place;
		return 0;
	}
	if (script->runtime.entry_is != ENTRY_EACH) {
		before = frame & 4095 & ~7;
		if (before > SCRIPT_WINDOW_BYTES - MAX_SCRIPT_FRAME_BYTES)
			before = SCRIPT_WINDOW_BYTES - MAX_SCRIPT_FRAME_BYTES;
	}
	size = before + bytes;
	script->window_at = frame - before;
	script->window_bytes = size;
	script->place = before;
	OPAQUE(size);
	return size > sizeof(script->window) || bpf_probe_read_user(script->window, size, (void *)(frame - before));
}

/* Returns a field of the frame in the window. */
static __always_inline __u64 frame_word(struct script_state *script, __u32 offset)
{
	__u32 place = (script->place + offset) >> 3;

	OPAQUE(place);
	return script->window[place & (SCRIPT_WINDOW_BYTES / 8 - 1)];
}

/* Ends the walk before its last frame. */
static __always_inline int cut(struct script_record *record)
{
	record->end = SCRIPT_CUT;
	return 1;
}

static __always_inline int read_word(__u64 address, __u64 *word)
{
	return bpf_probe_read_user(word, sizeof(*word), (void *)address);
}

/* Returns a hash of a code object, so that a later object at the same address differs. src/runtimes/python/code.rs has the same. */
static __always_inline __u32 code_check(struct script_state *script, __u64 code)
{
	__u64 mix = 0;

	if (bpf_probe_read_user(script->code_words, sizeof(script->code_words), (void *)(code + script->runtime.check)))
		return 0;
#pragma unroll
	for (int i = 0; i < SCRIPT_CODE_WORDS; i++)
		mix = (mix ^ script->code_words[i]) * HASH_FACTOR;
	return mix >> 32;
}

/* Adds a function that was met at this place before. Returns whether there was room. */
static __always_inline int add_again(struct script_state *script, __u32 place)
{
	__u64 word = (__u64)SCRIPT_AGAIN << SCRIPT_KIND_SHIFT | place;
	__u32 last = script->at - 1;

	OPAQUE(last);
	if (last < SCRIPT_WORDS) {
		__u64 *before = &script->record.words[last];

		if ((*before & ~(SCRIPT_COUNT << SCRIPT_COUNT_SHIFT)) == word) {
			*before += 1ULL << SCRIPT_COUNT_SHIFT;
			return 1;
		}
	}
	return add_word(script, word | 1ULL << SCRIPT_COUNT_SHIFT, 1);
}

/* Adds a function. Returns whether there was room. */
__noinline int add_function(struct cpu_state *cpu, __u64 code, __u32 instruction)
{
	if (!cpu)
		return 0;
	struct script_state *script = &cpu->script;
	__u64 number = code >> 4 ^ code >> 10 ^ instruction >> 1;
	struct met_function *met = &script->met[number & (MET_FUNCTIONS - 1)];

	if (met->code == code && met->instruction == instruction && met->sample == script->sample)
		return add_again(script, met->place);
	met->code = code;
	met->instruction = instruction;
	met->sample = script->sample;
	met->place = script->at - script->first;
	return add_word(script, (code & SCRIPT_ADDRESS) | (__u64)SCRIPT_FUNCTION << SCRIPT_KIND_SHIFT, 2) &&
	       add_word(script, instruction | (__u64)code_check(script, code) << 32, 1);
}

/* Adds one function, or the end of a call. Returns 0, or the enum script_end with which the walk ends. */
__noinline int script_step(struct cpu_state *cpu)
{
	if (!cpu)
		return SCRIPT_CUT;
	struct script_state *script = &cpu->script;
	struct runtime *runtime = &script->runtime;
	__u64 frame = script->frame, code, word, anchor;
	__u8 entry;

	if (!frame)
		return SCRIPT_WHOLE;
	if (++script->steps > MAX_SCRIPT_FRAMES || (!(script->steps & (cpu->walk.look_every - 1)) && is_out_of_time(cpu)))
		return SCRIPT_CUT;
	if (enter_frame(script, frame))
		return SCRIPT_UNREADABLE;
	entry = frame_word(script, runtime->entry) >> (runtime->entry & 7) * 8;
	if (runtime->entry_is != ENTRY_BETWEEN || entry < NO_FUNCTION) {
		code = frame_word(script, runtime->code) & ~(__u64)runtime->code_tag;
		word = frame_word(script, runtime->instruction);
		if (runtime->instruction_is_pointer)
			word -= code;
		if (!add_function(cpu, code, word))
			return SCRIPT_CUT;
	}
	if (runtime->entry_is == ENTRY_EACH || (runtime->entry_is == ENTRY_FLAG && entry) ||
	    (runtime->entry_is == ENTRY_BETWEEN && entry >= NO_FUNCTION)) {
		anchor = runtime->entry_is == ENTRY_BETWEEN ? frame : script->anchor;
		if (script->anchor && read_word(script->anchor + runtime->loop_previous, &script->anchor))
			script->anchor = 0;
		if (!add_word(script, (anchor & SCRIPT_ADDRESS) | (__u64)SCRIPT_RUN_ENDS << SCRIPT_KIND_SHIFT, 0))
			return SCRIPT_CUT;
	}
	script->frame = frame_word(script, runtime->previous);
	return 0;
}

/* Steps of one call of script_steps(). In two loops the verifier has less to follow. */
#define STEPS_AT_ONCE 16

/* Does some steps. Global, so that it is verified once. */
__noinline int script_steps(struct cpu_state *cpu)
{
	int end = 0;

	/* Never called with bpf_for, but verified anyway. */
	if (CAN_ITERATE)
		return 0;
	for (int i = 0; i < STEPS_AT_ONCE && !end; i++)
		end = script_step(cpu);
	return end;
}

/* Finds the thread's state. Returns whether there is one. */
static __always_inline int find_state(struct script_state *script, __u64 thread_pointer)
{
	struct runtime *runtime = &script->runtime;
	__u64 state, thread;

	script->thread = thread_pointer - runtime->self_size;
	if (read_word(thread_pointer + runtime->slot, &state))
		return 0;
	if (runtime->has_list && (!state || read_word(state + runtime->within, &state)))
		return 0;
	if (!state)
		return 0;
	if (runtime->variable != NO_FIELD) {
		/* If the interpreter does not know the thread, it has no block, or the list ends before it: there is no state. */
		if (read_word(state + runtime->variable, &state) || !state || read_word(state + runtime->thread, &thread) ||
		    thread != script->thread)
			return 0;
	}
	script->states[0] = state;
	return 1;
}

/* Tells whether a state is one of this thread. A state that names the stack of its calls may have been made by another thread. */
static __always_inline int is_of_thread(struct script_state *script, __u64 state)
{
	struct runtime *runtime = &script->runtime;
	__u64 word;

	if (runtime->loop != NO_FIELD)
		return !read_word(state + runtime->loop, &word) && word - script->record.base <= script->stack_size;
	return !read_word(state + runtime->thread, &word) && word == script->thread;
}

/* Checks whether one state of the process is this thread's, or goes to the next interpreter. Returns whether there is no other. */
__noinline int check_state(struct cpu_state *cpu)
{
	if (!cpu)
		return 1;
	struct script_state *script = &cpu->script;
	struct runtime *runtime = &script->runtime;
	__u64 state = script->next_state, interpreter = script->next_interpreter;
	__u32 count = script->state_count;

	if (!state)
		return !interpreter || read_word(interpreter + runtime->interpreter_threads, &script->next_state) ||
		       read_word(interpreter + runtime->interpreter_next, &script->next_interpreter);
	if (state != script->states[0] && is_of_thread(script, state)) {
		OPAQUE(count);
		if (count >= MAX_SCRIPT_STATES) {
			script->states_missing = 1;
			return 1;
		}
		script->states[count] = state;
		script->state_count = count + 1;
	}
	return read_word(state + runtime->thread_next, &script->next_state);
}

/* States that are checked between two readings of the clock: they lie far from each other in memory. */
#define CHECKED_AT_ONCE 16

/* Checks some states. Returns whether the search ends. */
__noinline int check_states(struct cpu_state *cpu)
{
	if (!cpu)
		return 1;
	for (int i = 0; i < CHECKED_AT_ONCE; i++) {
		if (check_state(cpu))
			return 1;
	}
	if (!is_out_of_time(cpu))
		return 0;
	cpu->script.states_missing = 1;
	return 1;
}

/*
 * Finds the thread's states in other interpreters of the process. Code of one interpreter may run another one: then functions of both are
 * on the stack, and the slot leads to one state only.
 */
static __always_inline void find_other_states(struct cpu_state *cpu)
{
	struct script_state *script = &cpu->script;
	struct runtime *runtime = &script->runtime;
	__u64 youngest, next;

	script->state_count = 1;
	script->states_missing = 0;
	/* Nearly always there is one interpreter. */
	if (!runtime->interpreters || read_word(runtime->interpreters, &youngest) || !youngest ||
	    read_word(youngest + runtime->interpreter_next, &next) || !next)
		return;
	script->next_state = 0;
	script->next_interpreter = youngest;
	for (int i = 0; i < MAX_STATES_CHECKED / CHECKED_AT_ONCE; i++) {
		if (check_states(cpu))
			return;
	}
	script->states_missing = 1;
}

/* Finds the innermost frame of a state. Returns 0, or why there is none. */
static __always_inline int find_frame(struct script_state *script, __u64 state)
{
	struct runtime *runtime = &script->runtime;
	__u64 from = state;

	script->anchor = 0;
	if (runtime->loop != NO_FIELD) {
		if (read_word(state + runtime->loop, &script->anchor))
			return SCRIPT_UNREADABLE;
		if (runtime->in_loop)
			from = script->anchor;
	}
	return read_word(from + runtime->innermost, &script->frame) ? SCRIPT_UNREADABLE : 0;
}

/* Walks the functions of one state. Returns whether the record is full. Global, so that it is verified once. */
__noinline int walk_state(struct cpu_state *cpu, __u32 number)
{
	if (!cpu || number >= MAX_SCRIPT_STATES)
		return 1;
	struct script_state *script = &cpu->script;
	struct script_record *record = &script->record;

	int end, i;

	if (number && !add_word(script, (__u64)SCRIPT_NEXT_STATE << SCRIPT_KIND_SHIFT | record->end, 1))
		return 1;
	end = find_frame(script, script->states[number]);
	if (!end && CAN_ITERATE) {
		bpf_for(i, 0, MAX_SCRIPT_FRAMES + 1) {
			end = script_step(cpu);
			if (end)
				break;
		}
	} else {
		for (i = 0; i < MAX_SCRIPT_FRAMES / STEPS_AT_ONCE && !end; i++)
			end = script_steps(cpu);
	}
	/* If the walk ends within a run, 3.10 to 3.12 know the call that runs it. */
	if (end != SCRIPT_WHOLE && script->anchor)
		add_word(script, (script->anchor & SCRIPT_ADDRESS) | (__u64)SCRIPT_RUN_ENDS << SCRIPT_KIND_SHIFT, 0);
	record->end = end ? end : SCRIPT_CUT;
	return 0;
}

/* Walks the functions of all states of the thread. Global, too. */
__noinline int walk_states(struct cpu_state *cpu, __u64 thread_pointer)
{
	if (!cpu)
		return 0;
	struct script_state *script = &cpu->script;
	struct script_record *record = &script->record;

	if (!find_state(script, thread_pointer))
		return 0;
	find_other_states(cpu);
	for (__u32 i = 0; i < MAX_SCRIPT_STATES && i < script->state_count; i++) {
		if (walk_state(cpu, i)) {
			script->states_missing = 1;
			break;
		}
	}
	if (script->states_missing)
		record->end = SCRIPT_CUT;
	return 0;
}

#endif
