/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the functions of JavaScript, and the modules of WebAssembly, in the frames of a walk. V8 has no unwind information for its code, but each of its frames has a
 * frame pointer, so its caller was found by that: the caller's stack pointer tells where the frame is.
 *
 *   fp + 16   the caller's stack pointer, as noted by the walk
 *   fp        the caller's frame pointer, and the return address
 *   fp - 8    the context; in frames that are no function's: a number, whose bit 0 is clear
 *   fp - 16   the JSFunction ─► SharedFunctionInfo; in frames of WebAssembly: the instance of the module
 *   fp - 40   in the interpreter: the instruction that runs, a number of 32 bits above 32 zeros
 *
 * The words are read after the walk, in each sample anew: a frame of the interpreter looks like one of another function that was called from
 * the same place. src/runtimes/v8/ reads names.
 */
#ifndef FLAMETOP_V8_H
#define FLAMETOP_V8_H

#include "script.h"

/* Words of a frame that are read, from its bottom up. */
#define V8_FRAME_WORDS 5
#define V8_OFFSET_BITS 21

/* Returns a hash of a SharedFunctionInfo, or of an instance: Function::check of src/runtimes/v8/function.rs. `words` are in code_words. */
static __always_inline __u32 check_of(struct script_state *script)
{
	__u64 mix = (script->code_words[0] << 16) * HASH_FACTOR;

	return ((mix ^ script->code_words[1] >> 32) * HASH_FACTOR) >> 32;
}

/* Adds the function of a frame, if it has one. Returns whether the walk ends. Global, so that it is verified once. */
__noinline int add_v8_function(struct cpu_state *cpu, __u32 number)
{
	if (!cpu)
		return 1;
	struct script_state *script = &cpu->script;
	struct script_record *record = &script->record;
	__u32 caller = number + 1, place = cpu->walk.first_frame + caller;
	__u64 *words = script->window, fp, shared, offset = 0;
	__u16 wasm = script->runtime.v8_wasm;

	OPAQUE(place);
	OPAQUE(caller);
	/* Nothing is known of the outermost frame. */
	if (caller >= cpu->walk.frames || place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 1;
	if (!(cpu->sample.frames[place] >> FRAME_BITS_SHIFT & FRAME_GUESSED))
		return 0;
	fp = record->base + ((__u64)((__u32 *)record->words)[caller & (MAX_USER_FRAMES - 1)] << 3) - 16;
	/* Before it has made its frame, the innermost function has its caller's frame pointer. */
	if (!number && fp != script->fp)
		return 0;
	if (bpf_probe_read_user(words, V8_FRAME_WORDS * sizeof(*words), (void *)(fp - V8_FRAME_WORDS * sizeof(*words))))
		return 0;
	/* User space checks the types of what is read here. */
	if (wasm && words[4] == wasm)
		shared = words[3];
	else if (!(words[4] & words[3] & 1) || read_word(words[3] - 1 + script->runtime.v8_shared, &shared))
		return 0;
	if (bpf_probe_read_user(script->code_words, 2 * sizeof(__u64), (void *)(shared - 1 + script->runtime.v8_check)))
		return 0;
	if (!(words[0] << 32) && words[0] >> 32 < (1ULL << V8_OFFSET_BITS) - 1)
		offset = (words[0] >> 32) + 1;
	if (!add_word(script, (shared & SCRIPT_ADDRESS) | (__u64)SCRIPT_IN_FRAME << SCRIPT_KIND_SHIFT, 2) ||
	    !add_word(script, (number & (MAX_USER_FRAMES - 1)) | offset << SCRIPT_FRAME_BITS | (__u64)check_of(script) << 32, 1))
		return cut(record);
	return 0;
}

#endif
