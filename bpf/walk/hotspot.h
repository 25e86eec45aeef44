/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Walks through code that HotSpot has made, and finds the methods of Java in the frames of a walk.
 *
 *   pc ─► code heap ─► map of segments ─► CodeBlob ─┬─ compiled method, or stub with a frame: the words of its frame
 *                                                   ├─ interpreter: the frame has the method, and how to leave it
 *                                                   └─ stub without a frame
 *
 *   compiled code: the top word of its frame is the return address, the one below is the caller's frame pointer
 *
 *   interpreter:   fp + 8    the return address
 *                  fp        the caller's frame pointer
 *                  fp - 8    the caller's stack pointer
 *                  fp - 24   the Method
 *                  fp - 64   the instruction that runs (arm64: fp - 72); in the innermost frame, r13 (x22) has it
 *
 * Compiled code keeps no frame pointer, so a walk by it would leave out frames. A struct jvm has the code heaps and the offsets of fields.
 * src/runtimes/hotspot/ reads names.
 */
#ifndef FLAMETOP_HOTSPOT_H
#define FLAMETOP_HOTSPOT_H

#include "script.h"

/* The first 8 letters of a blob's name. */
#define BLOB_COMPILED 0x00646f6874656d6eULL /* "nmethod" */
#define BLOB_NATIVE 0x6e2065766974616eULL /* "native n", for a method in C */
#define BLOB_INTERPRETER 0x6572707265746e49ULL /* "Interpre" */
#define BLOB_ROUTINES 0x74756f5262757453ULL /* "StubRout" */

/* Letters 17 to 24 of the name of the routines for virtual threads: "StubRoutines (continuation stubs)". */
#define BLOB_CONTINUATION 0x697461756e69746eULL /* "ntinuati" */
#define CONTINUATION_AT 16

/* Steps back to the first segment of a block. Nearly always one is enough. */
#define MAX_SEGMENT_STEPS 16
#define FREE_SEGMENT 255
#define MAX_FRAME_WORDS (1 << 16)

#if defined(__TARGET_ARCH_x86)
#define REG_BCP 13
#define BCP_SLOT 64
#else
#define REG_BCP 22
#define BCP_SLOT 72
#endif

/* Process → its JVM. Preallocated, as `runtimes` is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_JVMS);
	__type(key, __u32);
	__type(value, struct jvm);
} jvms SEC(".maps");

/* A value of script_state::bcp: the frame has the instruction. */
#define BCP_IN_FRAME (~0ULL)

/* Tells whether an address lies between the first and the last code heap. */
static __always_inline int is_in_code_cache(struct cpu_state *cpu, __u64 address)
{
	return address - cpu->script.jvm.begin < cpu->script.jvm.size;
}

/* Tells whether the walk's pc is in the code cache of a JVM. */
static __always_inline int is_of_jvm(struct cpu_state *cpu)
{
	return unlikely(cpu->walk.scripted) && cpu->script.runtime.has & HAS_HOTSPOT && is_in_code_cache(cpu, cpu->walk.pc - cpu->walk.is_return);
}

/* Returns a field of the blob that was found last. */
static __always_inline __u32 blob_number(struct script_state *script, __u32 offset)
{
	__u64 word;

	OPAQUE(offset);
	word = script->blob_words[offset >> 3 & (BLOB_BYTES / 8 - 1)];
	return offset & 4 ? word >> 32 : word;
}

static __always_inline __u64 blob_pointer(struct script_state *script, __u32 offset)
{
	OPAQUE(offset);
	return script->blob_words[offset >> 3 & (BLOB_BYTES / 8 - 1)];
}

/* Notes the code heap if it has the address. In memory: the verifier follows values in registers from each heap on. */
static __always_inline void note_heap(struct script_state *script, __u64 address, __u32 i)
{
	OPAQUE(i);
	struct code_heap *heap = &script->jvm.heaps[i & (MAX_CODE_HEAPS - 1)];

	if (address - heap->begin < heap->size)
		script->word = i + 1;
}

/* Goes towards the first segment of a block. Returns 1 at the first segment, -1 if there is no block, else 0. */
static __always_inline int go_to_first_segment(struct script_state *script, __u64 segments)
{
	__u8 back;

	if (bpf_probe_read_user(&back, sizeof(back), (void *)(segments + script->word)) || back == FREE_SEGMENT)
		return -1;
	script->word -= back;
	return !back;
}

/* Whether a CodeBlob is a method. */
static __always_inline int is_method(const struct jvm_code *code)
{
	return code->name == BLOB_COMPILED || code->name == BLOB_NATIVE;
}

/*
 * Tells whether what is remembered of an address is still so: a block begins where it began, and has the same method. Each method that is compiled
 * has another number.
 */
static __always_inline int is_still(struct script_state *script, const struct jvm_code *code)
{
	__u32 id = code->id;
	__u8 back;

	return !bpf_probe_read_user(&back, sizeof(back), (void *)code->segment) && !back &&
	       (!is_method(code) || (!bpf_probe_read_user(&id, sizeof(id), (void *)(code->blob + script->jvm.compile_id)) && id == code->id));
}

/* Finds the first segment of the block of an address. Returns 0, or if there is one, 1: its number is in script_state::word, its heap in `place`. */
static __always_inline int find_block(struct script_state *script, __u64 address, __u32 *place)
{
	struct jvm *jvm = &script->jvm;
	int i, came = 0;

	script->word = 0;
	if (CAN_ITERATE) {
		bpf_for(i, 0, MAX_CODE_HEAPS)
			note_heap(script, address, i);
	} else {
		for (i = 0; i < MAX_CODE_HEAPS; i++)
			note_heap(script, address, i);
	}
	if (!script->word)
		return 0;
	*place = script->word - 1;
	struct code_heap *heap = &jvm->heaps[*place & (MAX_CODE_HEAPS - 1)];

	script->word = (address - heap->begin) >> (heap->shift & 31);
	if (CAN_ITERATE) {
		bpf_for(i, 0, MAX_SEGMENT_STEPS) {
			came = go_to_first_segment(script, heap->segments);
			if (came)
				break;
		}
	} else {
		for (i = 0; i < MAX_SEGMENT_STEPS; i++) {
			came = go_to_first_segment(script, heap->segments);
			if (came)
				break;
		}
	}
	return came > 0;
}

/* Finds the code at an address of the code cache: script_state::code. Returns whether there is some. Global, so that it is verified once. */
__noinline int find_code(struct cpu_state *cpu, __u64 address)
{
	__u64 begin, name, letters;
	__u32 place = 0;

	if (!cpu)
		return 0;
	struct script_state *script = &cpu->script;
	struct jvm *jvm = &script->jvm;
	struct jvm_code *code = &script->code, *known = &script->codes[address * HASH_FACTOR >> 32 & (KNOWN_CODES - 1)];

	if (known->address == address && known->tgid == cpu->sample.header.tgid && is_still(script, known)) {
		*code = *known;
		return 1;
	}
	if (!find_block(script, address, &place))
		return 0;
	struct code_heap *heap = &jvm->heaps[place & (MAX_CODE_HEAPS - 1)];

	begin = heap->begin + (script->word << (heap->shift & 31)) + jvm->block_header;
	code->segment = heap->segments + script->word;
	if (bpf_probe_read_user(script->blob_words, sizeof(script->blob_words), (void *)begin))
		return 0;
	name = blob_pointer(script, jvm->blob_name);
	if (read_word(name, &code->name))
		return 0;
	code->address = address;
	code->tgid = cpu->sample.header.tgid;
	code->blob = begin;
	code->code = jvm->code_is_distance ? begin + blob_number(script, jvm->blob_code) : blob_pointer(script, jvm->blob_code);
	code->words = blob_number(script, jvm->blob_frame_size);
	code->complete = blob_number(script, jvm->blob_complete);
	if (jvm->complete_is_short)
		code->complete = jvm->blob_complete & 2 ? code->complete >> 16 : code->complete & 0xffff;
	code->is_barrier = code->name == BLOB_ROUTINES && !read_word(name + CONTINUATION_AT, &letters) && letters == BLOB_CONTINUATION;
	code->id = 0;
	if (is_method(code) && bpf_probe_read_user(&code->id, sizeof(code->id), (void *)(begin + jvm->compile_id)))
		return 0;
	*known = *code;
	return 1;
}

/*
 * Tells whether code of the JVM may return to an address. The interpreter returns to places that no call precedes. Global, so that
 * the verifier follows its branches once.
 */
__noinline int may_return_to(struct cpu_state *cpu, __u64 address)
{
	if (!cpu)
		return 0;
	return is_return_address(address) || (is_in_code_cache(cpu, address) && find_code(cpu, address - 1) &&
					      cpu->script.code.name == BLOB_INTERPRETER);
}

/* Reads a word of the stack into script_state::word. Global, for the same reason. */
__noinline int read_jvm_stack(struct cpu_state *cpu, __u64 address)
{
	return cpu ? read_stack(cpu, address, &cpu->script.word) : -1;
}

/* Reads a word of the stack. */
static __always_inline int read_slot(struct cpu_state *cpu, __u64 address, __u64 *word)
{
	int failed = read_jvm_stack(cpu, address);

	*word = cpu->script.word;
	return failed;
}

/* Tells whether a word where a return address must be is one: of the code cache, or behind a call. Global, too. */
__noinline int is_return_of_frame(struct cpu_state *cpu, __u64 address)
{
	return cpu && (is_in_code_cache(cpu, address) || is_return_address(address));
}

/* Goes to the caller of code of the JVM. */
static __always_inline int leave_code(struct walk *walk, __u64 pc, __u64 sp, __u64 fp)
{
	walk->regs[REG_FP] = fp;
	walk->valid = 1U << REG_SP | 1U << REG_FP;
	go_up(walk, pc, sp, 0);
	return 0;
}

/* Goes to the caller if the word at `place` may be a return address, and returns 0. `fp` is the caller's frame pointer. */
static __always_inline int leave_by(struct cpu_state *cpu, __u64 place, __u64 fp)
{
	__u64 pc;

	if (read_slot(cpu, place, &pc) || !may_return_to(cpu, code_address(pc)))
		return 1;
	return leave_code(&cpu->walk, code_address(pc), place + 8, fp);
}

/* Parts of a distance: the caller's frame pointer lies below the return address, or the return address is in x30. */
#define LEAF_SAVES_FP 1
#define LEAF_IN_REGISTER 2

#if defined(__TARGET_ARCH_x86)
/* Bytes of code from pc on that are searched for the rest of a prologue. */
#define PROLOGUE_BYTES 64

/* Tells whether the instruction at byte i of the code at pc makes room on the stack. */
static __always_inline int makes_room(struct cpu_state *cpu, __u32 i)
{
	__u8 *bytes = (__u8 *)cpu->words;

	OPAQUE(i);
	i &= PROLOGUE_BYTES - 1;
	return bytes[i] == 0x48 && (bytes[i + 1] == 0x81 || bytes[i + 1] == 0x83) && bytes[i + 2] == 0xec;
}

/*
 * Returns the bytes from the stack pointer up to the return address, or -1 if the innermost code has a whole frame. It has none in its prologue,
 * which ends at `complete`, and where it returns.
 *
 *   push %rbp          55                        sub $n,%rsp      48 81 ec n, 48 83 ec n
 *   mov %rsp,%rbp      48 89 e5, 48 8b ec
 *   pop %rbp           5d                        ret              c3
 *   cmp n(%r15),%rsp   49 3b 67 n, 49 3b a7 n    ja               0f 87 n          a poll before ret, from 16 on
 *   mov n(%r15),%r10   4d 8b 57 n, 4d 8b 97 n    test %eax,(%r10) 41 85 02         the same up to 15
 */
__noinline int leaf_distance(struct cpu_state *cpu, __u64 complete, __u32 words)
{
	__u64 code = 0, after = 0;
	__u8 before = 0;
	int i, rest;

	/* Not needed here. */
	OPAQUE(words);
	if (!cpu)
		return -1;
	__u64 pc = cpu->walk.pc;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)pc))
		return -1;
	bpf_probe_read_user(&after, sizeof(after), (void *)(pc + 8));
#define POLLS(code) (((code) & 0xffffff) == 0x673b49 || ((code) & 0xffffff) == 0xa73b49 || ((code) & 0xffffff) == 0x578b4d || \
		     ((code) & 0xffffff) == 0x978b4d || ((code) & 0xffff) == 0x0585)
	if ((code & 0xff) == 0xc3)
		return 0;
	if ((code & 0xffffff) == 0xe58948 || (code & 0xffffff) == 0xec8b48)
		return 9;
	/* pop %rbp, and what may follow. */
	if ((code & 0xff) == 0x5d && ((code >> 8 & 0xff) == 0xc3 || POLLS(code >> 8)))
		return 9;
	/* The poll and the jump, with distances of one or four bytes. */
	if ((code & 0xffffff) == 0x673b49 && (code >> 32 & 0xffff) == 0x870f)
		return 0;
	if ((code & 0xffffff) == 0xa73b49 && code >> 56 == 0x0f && (after & 0xff) == 0x87)
		return 0;
	if ((code & 0xffff) == 0x870f && (code >> 48 & 0xff) == 0xc3)
		return 0;
	if ((code & 0xffffff) == 0x578b4d && (code >> 32 & 0xffffff) == 0x028541 && code >> 56 == 0xc3)
		return 0;
	if ((code & 0xffffff) == 0x978b4d && code >> 56 == 0x41 && (after & 0xffffff) == 0xc30285)
		return 0;
	if ((code & 0xffffffff) == 0xc3028541)
		return 0;
	if ((code & 0xffff) == 0x0585 && (code >> 48 & 0xff) == 0xc3)
		return 0;
	if (pc >= complete)
		return -1;
	if ((code & 0xff) == 0x55)
		return 0;
	if (bpf_probe_read_user(&before, sizeof(before), (void *)(pc - 1)))
		return -1;
#define SUBTRACTS(code) (((code) & 0xffffff) == 0xec8148 || ((code) & 0xffffff) == 0xec8348)
	if (SUBTRACTS(code))
		return before == 0x55 ? 9 : 0;
	if (bpf_probe_read_user(cpu->words, PROLOGUE_BYTES, (void *)pc))
		return -1;
	rest = complete - pc < PROLOGUE_BYTES - 2 ? complete - pc : PROLOGUE_BYTES - 2;
	if (CAN_ITERATE) {
		bpf_for(i, 1, rest) {
			if (makes_room(cpu, i))
				return 0;
		}
	} else {
		for (i = 1; i < PROLOGUE_BYTES - 2; i++) {
			if (i < rest && makes_room(cpu, i))
				return 0;
		}
	}
	return -1;
}
#else
/* Instructions before pc that are searched for the one that saves x29 and x30. */
#define PROLOGUE_WORDS 16
#define SAVES_BELOW 0xa9bf7bfd /* stp x29, x30, [sp, -16]! */
#define LOADS_FROM_TOP 0xa8c17bfd /* ldp x29, x30, [sp], 16 */

/* Returns n if an instruction is sub sp, sp, n (or add, by `kind`), else 0. */
static __always_inline __u32 moved_stack(__u32 word, __u32 kind)
{
	return (word & 0xff8003ff) == kind ? (word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0) : 0;
}

/*
 * Returns the bytes from the stack pointer up to the return address. If that is in x30: up to the caller's stack pointer. -1: the innermost code has
 * a whole frame. It has none in its prologue, which ends at `complete`, and where it returns. `words` is the size of its frame.
 *
 *   small frames   sub sp, sp, n; stp x29, x30, [sp, n - 16]        ldp x29, x30, [sp, n - 16]; add sp, sp, n; a poll; ret
 *   large frames   stp x29, x30, [sp, -16]!; mov x8, n; sub sp, …   add sp, …; ldp x29, x30, [sp], 16; a poll; ret
 */
__noinline int leaf_distance(struct cpu_state *cpu, __u64 complete, __u32 words)
{
	__u32 above = 0;
	int i;

	if (!cpu)
		return -1;
	__u64 pc = cpu->walk.pc;
	__u32 *code = (__u32 *)cpu->words;

	if (pc < complete) {
		if (bpf_probe_read_user(code, PROLOGUE_WORDS * sizeof(*code), (void *)(pc - PROLOGUE_WORDS * sizeof(*code))))
			return -1;
		for (i = PROLOGUE_WORDS - 1; i >= 0; i--) {
			if (code[i] == (0xa9007bfd | (words - 2) << 15))
				return -1;
			/* It is followed by one or two instructions that move the stack pointer. */
			if (code[i] == SAVES_BELOW)
				return i < PROLOGUE_WORDS - 2 || moved_stack(code[PROLOGUE_WORDS - 1], 0xd10003ff) ? -1 : 8 | LEAF_SAVES_FP;
		}
		return moved_stack(code[PROLOGUE_WORDS - 1], 0xd10003ff) | LEAF_IN_REGISTER;
	}
	if (place_of_return_address(pc, 0, 0, code, &above) == IN_X30)
		return moved_stack(code[0], 0x910003ff) | LEAF_IN_REGISTER;
	return code[0] == LOADS_FROM_TOP ? 8 | LEAF_SAVES_FP : -1;
}
#endif

/* Goes to the caller by the address in x30, and returns 0 if it may be a return address. Only arm64 has it. */
static __always_inline int leave_by_register(struct cpu_state *cpu, __u64 sp)
{
#if defined(__TARGET_ARCH_x86)
	return 1;
#else
	struct walk *walk = &cpu->walk;
	__u64 pc = code_address(walk->regs[REG_LR]);

	return may_return_to(cpu, pc) ? leave_code(walk, pc, sp, walk->regs[REG_FP]) : 1;
#endif
}

/*
 * Leaves the innermost frame of compiled code before its frame is whole, or behind it. Returns -1 if the frame is whole, else as leave_jvm_code().
 */
static __always_inline int leave_leaf(struct cpu_state *cpu, __u64 complete, __u32 words)
{
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP], fp = walk->regs[REG_FP];
	int distance = leaf_distance(cpu, complete, words);

	if (distance < 0)
		return -1;
	if (distance & LEAF_IN_REGISTER)
		return leave_by_register(cpu, sp + (distance & ~7));
	if (distance & LEAF_SAVES_FP) {
		if (read_slot(cpu, sp, &fp))
			return 1;
		sp += 8;
	}
	return leave_by(cpu, sp, fp);
}

/* Leaves a frame of compiled code, or of a stub with a frame. Returns as leave_jvm_code(). */
static __always_inline int leave_frame(struct cpu_state *cpu, __u32 words)
{
	struct walk *walk = &cpu->walk;
	__u64 top = walk->regs[REG_SP] + 8 * (__u64)words, pc, fp;

	if (words < 2 || words > MAX_FRAME_WORDS || read_slot(cpu, top - 8, &pc) || read_slot(cpu, top - 16, &fp))
		return 1;
	pc = code_address(pc);
	if (!is_return_of_frame(cpu, pc))
		return 1;
	return leave_code(walk, pc, top, fp);
}

/* Returns the caller's stack pointer from the register in which a method begins with it, if that may be one; else the stack pointer. */
static __always_inline __u64 stack_pointer_of_caller(struct cpu_state *cpu)
{
	__u64 sp = cpu->walk.regs[REG_SP], of_caller = cpu->walk.regs[cpu->script.jvm.sender_sp & 31];

	return of_caller - sp < 8 * MAX_FRAME_WORDS && !(of_caller & 7) ? of_caller : sp;
}

/* Leaves the innermost method of the interpreter before its frame is made, or behind it. Returns as leave_jvm_code(). */
static __always_inline int leave_interpreted_leaf(struct cpu_state *cpu)
{
#if defined(__TARGET_ARCH_x86)
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP], fp = walk->regs[REG_FP], pc = walk->regs[0], caller_fp;
	__u64 of_caller = walk->regs[cpu->script.jvm.sender_sp & 31];

	/* The return address is on the stack, or in rax. */
	if (!leave_by(cpu, sp, fp) || (!read_slot(cpu, sp, &caller_fp) && !leave_by(cpu, sp + 8, caller_fp))) {
		if (of_caller > walk->regs[REG_SP])
			walk->regs[REG_SP] = of_caller;
		return 0;
	}
	return of_caller >= sp && may_return_to(cpu, pc) ? leave_code(walk, pc, of_caller, fp) : 1;
#else
	return leave_by_register(cpu, stack_pointer_of_caller(cpu));
#endif
}

/* Leaves a frame of the interpreter. Returns as leave_jvm_code(). */
static __always_inline int leave_interpreter(struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	struct script_state *script = &cpu->script;
	struct jvm *jvm = &script->jvm;
	__u64 fp = walk->regs[REG_FP], sp = walk->regs[REG_SP], pc, caller_fp, caller_sp, method, constant;
	__u64 bcp = walk->regs[REG_BCP];
	__u16 size = 0;

	if (fp < sp || read_slot(cpu, fp + 8, &pc) || read_slot(cpu, fp, &caller_fp) || read_slot(cpu, fp - 8, &caller_sp))
		return 1;
	if (!walk->is_return) {
		/* A frame that is being made has the return address and the caller's frame pointer first, and no method. */
		int has_method = fp - sp >= 24;
		/* Is the frame pointer that of the method, or still that of its caller? In a native method, the register has no instruction. */
		int is_in_method = has_method && !read_slot(cpu, fp - 24, &method) && !read_word(method + jvm->const_method, &constant) &&
				   !bpf_probe_read_user(&size, sizeof(size), (void *)(constant + jvm->code_size)) &&
				   bcp - (constant + jvm->const_method_size) < size;
#if defined(__TARGET_ARCH_x86)
		int is_whole = !has_method || is_in_method || caller_sp == bcp;

		/* Its caller's stack pointer is not there either. */
		if (fp == sp)
			caller_sp = bcp;
#else
		int is_whole = leaf_distance(cpu, 0, 0) < 0;
#endif
		script->bcp = is_in_method ? bcp : is_whole && has_method;
		if (!is_whole)
			return leave_interpreted_leaf(cpu);
	}
	pc = code_address(pc);
#if !defined(__TARGET_ARCH_x86)
	/* A caller that is interpreted has reserved more below its operands than it uses, and this frame begins there. */
	if (caller_sp <= fp)
		caller_sp = fp + 16;
#endif
	if (caller_sp <= fp || !is_return_of_frame(cpu, pc))
		return 1;
	/* The pass over all frames reads this one by its frame pointer. */
	note_stack_pointer(cpu, walk->frames - 1, fp);
	return leave_code(walk, pc, caller_sp, caller_fp);
}

/* Goes to the caller by the frame pointer. Returns as leave_by(). */
static __always_inline int leave_by_frame_pointer(struct cpu_state *cpu)
{
	__u64 fp = cpu->walk.regs[REG_FP], caller_fp;

	return fp < cpu->walk.regs[REG_SP] || read_slot(cpu, fp, &caller_fp) || leave_by(cpu, fp + 8, caller_fp);
}

/* Leaves a stub without a frame that is known. Returns as leave_jvm_code(). */
static __always_inline int leave_stub(struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP], fp = walk->regs[REG_FP];
	int is_routine = cpu->script.code.name == BLOB_ROUTINES;

	if (walk->is_return)
		return leave_by_frame_pointer(cpu);
#if defined(__TARGET_ARCH_x86)
	int left = leave_leaf(cpu, walk->pc + 1, 0);

	if (left >= 0)
		return left;
	/* Adapters and stubs of virtual calls never have a frame. */
	return is_routine && !leave_by_frame_pointer(cpu) ? 0 : leave_by(cpu, sp, fp);
#else
	__u64 saved;

	/* A routine that has saved x30, and called nothing. */
	if (is_routine && fp >= sp && !read_slot(cpu, fp + 8, &saved) && saved == walk->regs[REG_LR])
		return leave_by_frame_pointer(cpu);
	/* An adapter from compiled code to the interpreter makes room on the stack. */
	if (!leave_by_register(cpu, is_routine ? sp : stack_pointer_of_caller(cpu)))
		return 0;
	return is_routine ? leave_by_frame_pointer(cpu) : 1;
#endif
}

/* Goes to the caller of code that HotSpot has made. Returns whether the walk ends. Global, so that it is verified once. */
__noinline int leave_jvm_code(struct cpu_state *cpu)
{
	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	struct jvm_code *code = &cpu->script.code;
	int end = 1;

	if (find_code(cpu, walk->pc - walk->is_return)) {
		__s32 words = code->words;

		if (code->name == BLOB_INTERPRETER) {
			end = leave_interpreter(cpu);
		} else if (words > 0) {
			end = walk->is_return ? -1 : leave_leaf(cpu, code->code + code->complete, words);
			if (end < 0)
				end = leave_frame(cpu, words);
		} else {
			end = leave_stub(cpu);
		}
	}
	return end ? ends(walk, USER_END_ANONYMOUS) : 0;
}

/* Returns a hash of a method: Method::check of src/runtimes/hotspot/method.rs. */
static __always_inline __u32 check_of_method(struct script_state *script, __u64 constant)
{
	__u64 mix;

	if (bpf_probe_read_user(script->blob_words, CONSTANT_BYTES, (void *)constant))
		return 0;
	mix = constant * HASH_FACTOR;
	mix = (mix ^ blob_pointer(script, script->jvm.constants)) * HASH_FACTOR;
	mix = (mix ^ blob_pointer(script, script->jvm.code_size & ~7)) * HASH_FACTOR;
	return mix >> 32;
}

/* Words of a frame of the interpreter that are read, up to that with the Method. */
#define INTERPRETER_WORDS (BCP_SLOT / 8 - 2)

/*
 * Adds the code of a frame. Returns whether the walk ends. `fp` is the frame pointer of a frame of the interpreter, `interrupted` whether the frame
 * did not call the one before it. Global, too.
 *
 * A virtual thread that has waited has only its innermost frames on the stack. The outermost of them returns to a routine that copies others from
 * the heap. There, the frame pointer is that of the frame that has entered the virtual thread, so the walk continues in the thread that carries it.
 */
__noinline int add_jvm_code(struct cpu_state *cpu, __u32 number, __u64 address, __u64 fp, __u32 interrupted)
{
	__u64 constant, place = 0, word;
	__u32 id = 0;

	if (!cpu)
		return 1;
	struct script_state *script = &cpu->script;
	struct jvm *jvm = &script->jvm;
	struct jvm_code *code = &script->code;
	__u64 *words = script->blob_words;

	if (!find_code(cpu, address))
		return 0;
	number &= MAX_USER_FRAMES - 1;
	word = code->blob;
	if (code->name == BLOB_INTERPRETER && (number || script->bcp) &&
	    !bpf_probe_read_user(words, INTERPRETER_WORDS * sizeof(*words), (void *)(fp - BCP_SLOT)) &&
	    !read_word(words[INTERPRETER_WORDS - 1] + jvm->const_method, &constant)) {
		if (!number && script->bcp != BCP_IN_FRAME)
			place = script->bcp;
		else if (!interrupted)
			place = words[0];
		place -= constant + jvm->const_method_size;
		place = place < (1 << 16) ? place + 1 : 0;
		word = (words[INTERPRETER_WORDS - 1] & SCRIPT_ADDRESS) | (__u64)SCRIPT_INTERPRETED << SCRIPT_KIND_SHIFT;
		id = check_of_method(script, constant);
	} else if (is_method(code)) {
		id = code->id;
		word |= (__u64)SCRIPT_COMPILED << SCRIPT_KIND_SHIFT;
	} else {
		word |= (__u64)(!interrupted && code->is_barrier ? SCRIPT_FROZEN : SCRIPT_STUB) << SCRIPT_KIND_SHIFT;
	}
	if (!add_word(script, word, 2) || !add_word(script, number | place << SCRIPT_FRAME_BITS | (__u64)id << 32, 1))
		return cut(&script->record);
	return 0;
}

/* Adds the code of a frame if it is in the code cache. Returns whether the walk ends. */
static __always_inline int add_method_of_frame(struct cpu_state *cpu, __u32 number)
{
	struct script_record *record = &cpu->script.record;
	__u32 place = cpu->walk.first_frame + number, interrupted;
	__u64 frame, address;

	OPAQUE(place);
	OPAQUE(number);
	if (place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 1;
	frame = cpu->sample.frames[place];
	interrupted = (frame >> FRAME_BITS_SHIFT & FRAME_INTERRUPTED) != 0;
	address = (frame & ((1ULL << FRAME_BITS_SHIFT) - 1)) - !interrupted;
	if (!is_in_code_cache(cpu, address))
		return 0;
	return add_jvm_code(cpu, number, address, record->base + ((__u64)((__u32 *)record->words)[number & (MAX_USER_FRAMES - 1)] << 3),
			    interrupted);
}

#endif
