/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The walk of a user stack, by tables made from unwind information (src/collector/unwind), frame by frame:
 *
 *   pc ─► mapping ─► {object, offset in its file} ─► rule ─► the caller's pc, stack pointer, frame pointer
 *         cache of CPU                               cache of CPU
 *         else bpf/vma.h, `files`                    else `objects` ─► index ─► rows ─► rules, in `segments`
 *
 * The cache of mappings is keyed by address space and its generation: see docs/unwinding.md. That of rules is keyed by
 * object and offset, whose content never changes: it is never emptied and serves all processes.
 *
 * Where no rule is, a frame is guessed by the frame pointer, or by the code in prologues and epilogues; such a frame is
 * marked, and believed only if a call ends at its return address.
 *
 * Promises: a bounded number of steps; each end has a reason (enum user_end); no frame that is not believed. Owed by the
 * caller: no second program on this CPU uses `cpu_states` meanwhile. perf_event programs of one CPU never nest
 * (bpf_prog_active in kernel/events/core.c).
 */
#ifndef FLAMETOP_UNWIND_H
#define FLAMETOP_UNWIND_H

#include "record.h"
#include "vma.h"

/* Stack that is read at once: a call costs the same for 8 bytes as for 1 KiB, nearly (docs/unwinding.md). */
#define WINDOW_WORDS 128
/* From which no address of user space is less than a window away. */
#define NO_WINDOW (~0ULL << 60)
/* Powers of two. 32 KiB and 64 KiB a CPU. */
#define CACHED_MAPPINGS 512
#define CACHED_RULES 4096
/* Kinds of code for which no table was found, in one walk, that user space is told of. */
#define MAX_WISHES 4
/* How often a stack may go on below where it is: systemstack of Go, and coroutines. */
#define MAX_SWITCHES 8

/* A rule in 8 bytes: src/collector/unwind/rule.rs draws it. */
enum rule_kind {
	RULE_INVALID = 0,
	RULE_GAP = 1,
	RULE_ROOT = 2,
	RULE_SIGNAL = 3,
	RULE_PLT = 4,
	RULE_REGISTER = 5,
	RULE_DEREF = 6,
	RULE_INDEXED = 7,
};
/* A gap because there is no table at all: as no table has it. */
#define RULE_NO_TABLE (RULE_GAP | 1 << 3)

/* Not to be guessed either: the function is on its way to another stack. Invalid::StackPointer of rule.rs. */
#define RULE_INVALID_STACK_POINTER (RULE_INVALID | 8 << 3)

#define RULE_KIND(rule) ((rule) & 7)
#define RULE_REGISTER_OF(rule) ((rule) >> 3 & 31)
#define RULE_FP_KIND(rule) ((rule) >> 8 & 7)
#define RULE_RBX(rule) ((rule) >> 11 & 3)
#define RULE_RA_IN_REGISTER(rule) ((rule) >> 13 & 1)
#define RULE_INTERRUPTED(rule) ((rule) >> 14 & 1)
#define RULE_SKIPS(rule) ((rule) >> 15 & 1)
#define RULE_SLOT(rule) ((__s64)(__s16)((rule) >> 16))
#define RULE_EXTRA(rule) ((__s64)(__s8)((rule) >> 32))
#define RULE_OFFSET(rule) ((__s64)(rule) >> 40)

enum code_kind {
	CODE_OF_FILE = 0, /* also the vDSO */
	CODE_ANONYMOUS = 1,
	CODE_WITHOUT_TABLE = 2,
};

/* The state of a walk. */
struct walk {
	__u64 regs[32]; /* by their DWARF numbers; what `valid` does not name is unknown */
	__u64 pc;
	__u64 map_start; /* the mapping that the last address was in */
	__u64 map_size;
	__u64 map_offset; /* where in its file it begins */
	__u64 rule;
	__u64 window_at; /* address of window[0] */
	struct address_space space;
	__u32 valid;
	__u32 map_slot;
	__u32 map_serial;
	__u32 map_kind;
	__u32 first_frame; /* place of the first user frame among the sample's frames */
	__u32 frames;
	__u32 switches;
	__u32 wishes;
	__u32 mapping_misses;
	__u32 rule_misses;
	__u32 guesses;
	__u32 time; /* about seconds: see struct object */
	__u32 unstamped; /* where address spaces have no generation: the number of the walk */
	__u8 is_return; /* pc is a return address: it is looked up one byte before */
	__u8 fresh; /* all registers are those of pc's frame: nothing was unwound since they were saved */
	__u8 guessed;
	__u8 in_syscall;
	__u8 guess_end; /* why the frame before was guessed: the reason, if what was found is no code */
	__u8 end;
	__u8 newborn; /* a thread that has not left the system call that made it */
	__u8 pad[1];
};

struct cached_mapping {
	__u64 mm;
	__u64 id;
	__u64 start;
	__u64 size;
	__u64 offset;
	__u32 sequence;
	__u32 slot;
	__u32 serial;
	__u32 kind;
};

struct cached_rule {
	__u64 key; /* serial << 32 | offset; 0: none, as serials begin at 1 */
	__u64 rule;
};

/* What a CPU walks with. Too large for a value for each CPU, of which the kernel allows 32 KiB. */
struct cpu_state {
	struct walk walk;
	__u64 window[WINDOW_WORDS];
	__u64 words[40]; /* signal frames */
	struct vma_scratch scratch;
	struct wish wishes[MAX_WISHES];
	struct cached_mapping mappings[CACHED_MAPPINGS];
	struct cached_rule rules[CACHED_RULES];
	struct sample sample;
};

/* One element for each CPU, set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

struct segment {
	__u32 words[SEGMENT_WORDS];
};

struct segment_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	/* Sizes, not types: of what is behind two pointers clang describes no more than the name. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct segment));
};

/* Rows, indexes and rules of all objects; filled by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SEGMENTS);
	__type(key, __u32);
	__array(values, struct segment_map);
} segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_OBJECTS);
	__type(key, __u32);
	__type(value, struct object);
} objects SEC(".maps");

/* Preallocated: perf_event programs may use no other hash map before 6.1. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OBJECTS);
	__type(key, struct object_key);
	__type(value, struct object_place);
} files SEC(".maps");

/* How user stacks are walked: set before loading. The numbers of `Walk` in src/collector/mod.rs. */
enum walk_how {
	WALK_BY_TABLES = 0,
	WALK_BY_FRAME_POINTERS = 1, /* the kernel does */
	WALK_BOTH = 2,
	WALK_NOTHING = 3, /* for measuring what the rest costs */
};
const volatile __u32 walk_how;
/* For tests: also where bpf_for is offered, walk as kernels before 6.4 do; and search mappings as those before 6.2 do. */
const volatile __u32 loop_plainly;
const volatile __u32 search_by_copy;

/*
 * Whether this is a clone that made a thread: on a stack of its own, where nobody has pushed a return address. (A child of
 * fork has a copy of its parent's.) What clone3 was given may be gone by now: then it is no copy.
 */
static __always_inline int shares_memory(__u64 number, __u64 clone, __u64 clone3, __u64 argument)
{
	__u64 flags = 0;

	if (number == clone)
		return (argument & CLONE_VM) != 0;
	if (number != clone3)
		return 0;
	bpf_probe_read_user(&flags, sizeof(flags), (void *)argument);
	return (flags & CLONE_VM) != 0;
}

#if defined(__TARGET_ARCH_x86)
#include "arch/x86.h"
#else
#include "arch/arm64.h"
#endif

#define HASH_FACTOR 0x9e3779b97f4a7c15ULL

static __always_inline struct cpu_state *state_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

static __always_inline __u32 *segment_words(__u32 number)
{
	__u32 zero = 0;
	void *map = bpf_map_lookup_elem(&segments, &number);
	struct segment *segment = map ? bpf_map_lookup_elem(map, &zero) : NULL;

	return segment ? segment->words : NULL;
}

/* A word of the stack. Unaligned ones are nobody's return addresses. */
static __always_inline int read_stack(struct cpu_state *cpu, __u64 address, __u64 *value)
{
	struct walk *walk = &cpu->walk;
	__u64 offset = address - walk->window_at;

	if (address & 7)
		return -1;
	if (offset >= WINDOW_WORDS * 8) {
		/* Across the end of a mapping the copy fails. */
		if (bpf_probe_read_user(cpu->window, WINDOW_WORDS * 8, (void *)address)) {
			walk->window_at = NO_WINDOW;
			return bpf_probe_read_user(value, sizeof(*value), (void *)address);
		}
		walk->window_at = address;
		offset = 0;
	}
	offset >>= 3;
	OPAQUE(offset);
	*value = cpu->window[offset & (WINDOW_WORDS - 1)];
	return 0;
}

/* Two places for each address: neighbours in a pair. */
static __always_inline __u32 mapping_hash(const struct address_space *space, __u64 address)
{
	return ((space->id + space->mm + (address >> 16)) * HASH_FACTOR) >> 55;
}
_Static_assert(CACHED_MAPPINGS == 1 << (64 - 55), "as many as the hash has values");

/* User space is to make the table of an object. */
static __always_inline void wish_for(struct cpu_state *cpu, const struct mapping *mapping, const struct object_key *key)
{
	__u32 number = cpu->walk.wishes;

	if (number >= MAX_WISHES)
		return;
	OPAQUE(number);
	struct wish *wish = &cpu->wishes[number & (MAX_WISHES - 1)];
	wish->start = mapping->start;
	wish->end = mapping->end;
	wish->key = *key;
	wish->kind = RECORD_WISH;
	cpu->walk.wishes = number + 1;
}

/*
 * What is mapped at an address, found the long way, and kept for the next time. 0, or an enum user_end. Global, as the
 * next one, so that it is verified once.
 */
__noinline int search_mapping(__u32 cpu_number, __u64 address)
{
	struct cpu_state *cpu = state_of(cpu_number);
	struct mapping mapping;
	struct object_key key;
	struct object_place *place;
	int result;

	if (!cpu)
		return USER_END_UNSPECIFIED;
	struct walk *walk = &cpu->walk;
	walk->mapping_misses++;
	if (CAN_READ_IN_PLACE && !search_by_copy)
		result = find_mapping_by(&walk->space, address, &mapping, 1, NULL);
	else
		result = find_mapping_by(&walk->space, address, &mapping, 0, &cpu->scratch);
	walk->map_size = 0;
	switch (result) {
	case MAPPING_FOUND:
	case MAPPING_VDSO:
		walk->map_kind = CODE_OF_FILE;
		break;
	case MAPPING_ANONYMOUS:
		walk->map_kind = CODE_ANONYMOUS;
		break;
	case MAPPING_NO_MM:
		return USER_END_NO_MEMORY;
	case MAPPING_NONE:
	case MAPPING_NOT_EXECUTABLE:
		return USER_END_NO_CODE;
	default:
		return USER_END_CHANGING;
	}
	walk->map_start = mapping.start;
	walk->map_size = mapping.end - mapping.start;
	walk->map_offset = mapping.page_offset << 12;
	walk->map_serial = 0;
	if (walk->map_kind == CODE_OF_FILE) {
		/* The vDSO is of no file: inode 0. */
		key.inode = mapping.inode;
		key.device = mapping.device;
		key.generation = mapping.generation;
		if (result == MAPPING_VDSO)
			walk->map_offset = 0;
		place = bpf_map_lookup_elem(&files, &key);
		if (!place) {
			walk->map_kind = CODE_WITHOUT_TABLE;
			if (result == MAPPING_FOUND)
				wish_for(cpu, &mapping, &key);
			/* Not kept: its table may be there a moment later. */
			return 0;
		}
		walk->map_slot = place->slot;
		walk->map_serial = place->serial;
	}
	if (!(mapping.flags & MAPPING_STABLE) && walk->space.has_sequence)
		return 0;

	/* The one that was looked for moves to its neighbour. */
	__u32 at = mapping_hash(&walk->space, address) & (CACHED_MAPPINGS - 1);
	struct cached_mapping *first = &cpu->mappings[at & (CACHED_MAPPINGS - 1)];
	struct cached_mapping *second = &cpu->mappings[(at ^ 1) & (CACHED_MAPPINGS - 1)];
	*second = *first;
	first->mm = walk->space.mm;
	first->id = walk->space.id;
	first->sequence = walk->space.sequence;
	first->start = walk->map_start;
	first->size = walk->map_size;
	first->offset = walk->map_offset;
	first->slot = walk->map_slot;
	first->serial = walk->map_serial;
	first->kind = walk->map_kind;
	return 0;
}

/* Makes walk->map_* those of an address; 0, or an enum user_end. */
static __always_inline int locate(struct cpu_state *cpu, __u32 cpu_number, __u64 address)
{
	struct walk *walk = &cpu->walk;
	__u32 at = mapping_hash(&walk->space, address);

#pragma unroll
	for (int way = 0; way < 2; way++) {
		__u32 index = at ^ way;

		OPAQUE(index);
		struct cached_mapping *cached = &cpu->mappings[index & (CACHED_MAPPINGS - 1)];
		if (address - cached->start < cached->size && cached->id == walk->space.id && cached->mm == walk->space.mm &&
		    cached->sequence == walk->space.sequence) {
			walk->map_start = cached->start;
			walk->map_size = cached->size;
			walk->map_offset = cached->offset;
			walk->map_slot = cached->slot;
			walk->map_serial = cached->serial;
			walk->map_kind = cached->kind;
			return 0;
		}
	}
	return search_mapping(cpu_number, address);
}

static __always_inline __u32 rule_hash(__u64 key)
{
	return key * HASH_FACTOR >> 52;
}
_Static_assert(CACHED_RULES == 1 << (64 - 52), "as many as the hash has values");

/* One step of a binary search: half further if the row there does not lie behind the key. No jump depends on data. */
#define SEARCH_STEP(half) \
	do { \
		__u32 probe = at + (half); \
		__u64 row; \
		OPAQUE(probe); \
		row = rows[probe & (SEGMENT_WORDS - 1)]; \
		at += (half) & -(__u32)((row - key - 1) >> 63) & -(__u32)(((__u64)probe - end) >> 63); \
	} while (0)

/* The rule at walk->map_* and an offset in the file, found the long way and kept: walk->rule. */
__noinline int search_rule(__u32 cpu_number, __u64 offset)
{
	struct cpu_state *cpu = state_of(cpu_number);
	__u32 page = offset >> TABLE_PAGE_SHIFT;
	__u32 index_segment = 0, index_word = 0, slot, serial;
	__u32 *words, *rows;
	int found = 0;

	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	walk->rule_misses++;
	walk->rule = RULE_GAP;
	slot = walk->map_slot;
	serial = walk->map_serial;
	struct object *object = bpf_map_lookup_elem(&objects, &slot);
	/* Taken out meanwhile: what is kept of the mapping is out of date. */
	if (!object || object->serial != serial) {
		walk->rule = RULE_NO_TABLE;
		return 0;
	}
	/* Coarse, so that CPUs seldom fight for the line. */
	if (object->used != walk->time)
		object->used = walk->time;
	/* Keys have 32 bits for the offset; no code lies so far behind. */
	if (offset >> 32)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < MAX_RANGES; i++) {
		struct object_range *range = &object->range[i];
		__u32 distance = page - range->first_page;

		if (i < object->ranges && distance < range->pages) {
			index_segment = range->index_segment;
			index_word = range->index_word + 2 * distance;
			found = 1;
		}
	}
	if (found) {
		words = segment_words(index_segment);
		if (!words)
			return 0;
		OPAQUE(index_word);
		struct table_page *entry = (struct table_page *)&words[index_word & (SEGMENT_WORDS - 2)];
		__u32 at = entry->first;
		__u32 count = entry->count;
		__u64 end = at + count;
		/* The last row that is not behind the offset: its upper half is not greater. */
		__u64 key = (offset & ((1 << TABLE_PAGE_SHIFT) - 1)) << 16 | 0xffff;

		rows = segment_words(entry->segment);
		if (!rows)
			return 0;
		/* Pages have 21 rows, mostly. */
		if (count > 128) {
			SEARCH_STEP(512);
			SEARCH_STEP(256);
			SEARCH_STEP(128);
		}
		if (count > 16) {
			SEARCH_STEP(64);
			SEARCH_STEP(32);
			SEARCH_STEP(16);
		}
		SEARCH_STEP(8);
		SEARCH_STEP(4);
		SEARCH_STEP(2);
		SEARCH_STEP(1);
		OPAQUE(at);
		__u32 rule = object->rules_word + 2 * (rows[at & (SEGMENT_WORDS - 1)] & 0xffff);

		words = segment_words(object->rules_segment);
		if (!words)
			return 0;
		OPAQUE(rule);
		walk->rule = *(__u64 *)&words[rule & (SEGMENT_WORDS - 2)];
	}
	if (object->serial != serial) {
		walk->rule = RULE_NO_TABLE;
		return 0;
	}
	__u64 key = (__u64)serial << 32 | (__u32)offset;
	struct cached_rule *cached = &cpu->rules[rule_hash(key) & (CACHED_RULES - 1)];
	cached->key = key;
	cached->rule = walk->rule;
	return 0;
}

static __always_inline __u64 find_rule(struct cpu_state *cpu, __u32 cpu_number, __u64 offset)
{
	struct walk *walk = &cpu->walk;
	__u64 key = (__u64)walk->map_serial << 32 | (__u32)offset;
	__u32 at = rule_hash(key);

	OPAQUE(at);
	struct cached_rule *cached = &cpu->rules[at & (CACHED_RULES - 1)];
	if (cached->key == key && !(offset >> 32))
		return cached->rule;
	search_rule(cpu_number, offset);
	return walk->rule;
}

/* Adds pc to the sample; whether there was room. */
static __always_inline int add_frame(struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame + walk->frames;
	__u64 bits = (walk->is_return ? 0 : FRAME_INTERRUPTED) | (walk->guessed ? FRAME_GUESSED : 0);

	OPAQUE(place);
	if (walk->frames >= MAX_USER_FRAMES || place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 0;
	cpu->sample.frames[place] = (walk->pc & ((1ULL << FRAME_BITS_SHIFT) - 1)) | bits << FRAME_BITS_SHIFT;
	walk->frames++;
	return 1;
}

/* Adds a frame of which nothing is known, in front of which frames are missing. */
static __always_inline int skip_frame(struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame + walk->frames;

	OPAQUE(place);
	if (walk->frames >= MAX_USER_FRAMES || place >= MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
		return 0;
	cpu->sample.frames[place] = (__u64)FRAME_GUESSED << FRAME_BITS_SHIFT;
	walk->frames++;
	return 1;
}

static __always_inline int ends(struct walk *walk, int reason)
{
	walk->end = reason;
	return 1;
}

/* The stack ends where there should be a return address and is none. */
static __always_inline int ends_without_caller(struct walk *walk, int reason)
{
	return ends(walk, walk->fresh && returns_from_syscall(walk) ? USER_END_ROOT : reason);
}

/* Goes to the caller. */
static __always_inline void go_up(struct walk *walk, __u64 pc, __u64 sp, int guessed)
{
	walk->pc = pc;
	walk->regs[REG_SP] = sp;
	walk->is_return = 1;
	walk->fresh = 0;
	walk->guessed = guessed;
	walk->guesses += guessed;
}

/* The same, to a frame that was guessed: if a call ends there. */
static __always_inline int believe(struct walk *walk, __u64 pc, __u64 sp, __u64 fp)
{
	pc = code_address(pc);
	if (!is_return_address(pc))
		return 0;
	walk->regs[REG_FP] = fp;
	walk->valid = 1U << REG_SP | 1U << REG_FP;
	go_up(walk, pc, sp, 1);
	return 1;
}

/* The caller, without unwind information. Whether the walk ends. */
__noinline int guess_caller(__u32 cpu_number, __u32 reason)
{
	struct cpu_state *cpu = state_of(cpu_number);
	__u64 pc = 0, saved = 0;

	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u64 fp = walk->regs[REG_FP];
	int fresh = walk->fresh;

	walk->guess_end = reason;
	if (fresh && !walk->is_return) {
		int words = return_address_by_code(walk->pc);

#if defined(__TARGET_ARCH_x86)
		if (words >= 0 && !read_stack(cpu, sp + (words ? 8 : 0), &pc) && (!words || !read_stack(cpu, sp, &saved)) &&
		    believe(walk, pc, sp + (words ? 16 : 8), words ? saved : fp))
			return 0;
#else
		if (words >= 0 && believe(walk, walk->regs[REG_LR], sp, fp))
			return 0;
#endif
	}
	if (walk->valid >> REG_FP & 1) {
		/* By the psABI a frame pointer of 0 marks the outermost frame; where there may be a table, that will tell. */
		if (!fp)
			return ends(walk, reason == USER_END_NO_TABLE ? reason : USER_END_ZERO);
		if (fp >= sp && !read_stack(cpu, fp, &saved) && !read_stack(cpu, fp + 8, &pc)) {
			if (!saved && !pc)
				return ends(walk, reason == USER_END_NO_TABLE ? reason : USER_END_ZERO);
			if (believe(walk, pc, fp + 16, saved))
				return 0;
		}
	}
	/* A function that calls nobody and has no frame: stubs of system calls, and assembly. */
	if (fresh) {
#if defined(__TARGET_ARCH_x86)
		if (!read_stack(cpu, sp, &pc) && believe(walk, pc, sp + 8, fp))
			return 0;
#else
		if (believe(walk, walk->regs[REG_LR], sp, fp))
			return 0;
#endif
	}
	return ends(walk, reason);
}

/* Whether a register is known in this frame; its value. */
static __always_inline int known(struct walk *walk, __u64 number, __u64 *value)
{
	__u32 at = number & 31;

	OPAQUE(at);
	*value = walk->regs[at & 31];
	return walk->valid >> (at & 31) & 1;
}

/* The caller by a rule. Whether the walk ends. Global: inside of the loop the verifier would look at all of its ways
 * again and again: 218,987 instructions and 0.25 s on 6.18, against 11,060 and 10 ms. */
__noinline int apply_rule(__u32 cpu_number, __u64 rule)
{
	struct cpu_state *cpu = state_of(cpu_number);

	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;
	__u64 sp = walk->regs[REG_SP];
	__u64 fp = walk->regs[REG_FP];
	__u64 base, index, cfa, pc, place;
	__u32 valid = 1U << REG_SP;
	int jumped = 0;

	if (RULE_KIND(rule) == RULE_REGISTER) {
		if (!known(walk, RULE_REGISTER_OF(rule), &base))
			return ends(walk, USER_END_REGISTER);
		cfa = base + RULE_OFFSET(rule);
	} else if (RULE_KIND(rule) == RULE_PLT) {
		cfa = sp + 8 + ((__s64)(walk->pc & 15) >= RULE_EXTRA(rule) ? 8 : 0);
	} else {
		if (!known(walk, RULE_REGISTER_OF(rule), &base))
			return ends(walk, USER_END_REGISTER);
		if (RULE_KIND(rule) == RULE_DEREF) {
			place = base + RULE_OFFSET(rule);
		} else {
			if (!known(walk, rule >> 56, &index))
				return ends(walk, USER_END_REGISTER);
			place = base + (index << (rule >> 61)) + (__s64)(__s16)(rule >> 40);
		}
		if (read_stack(cpu, place, &cfa))
			return ends(walk, USER_END_UNREADABLE);
		cfa += 8 * RULE_EXTRA(rule);
	}
	if (cfa & 7)
		return ends(walk, USER_END_BAD_FRAME);
	if (cfa <= sp && !(cfa == sp && RULE_RA_IN_REGISTER(rule))) {
		/* Stacks grow downwards: callers lie above. But by its frame pointer a function may come back to another stack. */
		if (RULE_KIND(rule) != RULE_REGISTER || RULE_REGISTER_OF(rule) != REG_FP || walk->switches >= MAX_SWITCHES)
			return ends(walk, USER_END_BAD_FRAME);
		walk->switches++;
		jumped = 1;
	}

	/* Lowest address first: the window that is read begins there. The frame pointer lies below the return address. */
#if defined(__TARGET_ARCH_x86)
	__u64 ra_place = cfa - 8;
#else
	__u64 ra_place = cfa + 8 * RULE_SLOT(rule);
#endif
	int fp_known = walk->valid >> REG_FP & 1;

	place = 0;
	switch (RULE_FP_KIND(rule)) {
	case 1:
		place = cfa + 8 * RULE_SLOT(rule);
		break;
	case 2:
		/* Behind its pop the frame pointer is the caller's already, beyond this frame; gcc does not say so. */
		place = fp_known ? fp + 8 * RULE_SLOT(rule) : 0;
		if (place >= cfa && !jumped)
			place = 0;
		break;
	case 3:
		place = sp + 8 * RULE_SLOT(rule);
		break;
	case 4:
		fp_known = known(walk, RULE_SLOT(rule), &fp);
		break;
	case 5:
		fp_known = 0;
		break;
	case 6:
		place = ra_place + 8 * RULE_EXTRA(rule);
		break;
	}
	/* Below the stack pointer it was taken back already: compilers do not always say so after a pop. */
	if (place && (place >= sp || jumped))
		fp_known = !read_stack(cpu, place, &fp);
	if (RULE_RA_IN_REGISTER(rule)) {
		if (!known(walk, RULE_EXTRA(rule), &pc))
			return ends(walk, USER_END_REGISTER);
	} else if (read_stack(cpu, ra_place, &pc)) {
		return ends_without_caller(walk, USER_END_UNREADABLE);
	}
#if defined(__TARGET_ARCH_x86)
	if (RULE_RBX(rule) == 1)
		valid |= walk->valid & 1U << REG_RBX;
	else if (RULE_RBX(rule) == 2 && !read_stack(cpu, cfa + 8 * RULE_EXTRA(rule), &walk->regs[REG_RBX]))
		valid |= 1U << REG_RBX;
#endif
	if (fp_known)
		valid |= 1U << REG_FP;
	pc = code_address(pc);
	if (!pc)
		return ends_without_caller(walk, USER_END_ZERO);
	if ((jumped || RULE_SKIPS(rule)) && !is_return_address(pc))
		return ends(walk, USER_END_BAD_FRAME);
	/* A stack that was left: its innermost frame is not found from here. It is told as a frame at address 0. */
	if (RULE_SKIPS(rule) && !skip_frame(cpu))
		return ends(walk, USER_END_CUT);
	walk->regs[REG_FP] = fp;
	walk->valid = valid;
	walk->guess_end = 0;
	go_up(walk, pc, cfa, 0);
	walk->is_return = !RULE_INTERRUPTED(rule);
	return 0;
}

/* One frame. Whether the walk ends: then walk->end says why. */
static __always_inline int walk_step(struct cpu_state *cpu, __u32 cpu_number)
{
	struct walk *walk = &cpu->walk;
	__u64 address = walk->pc - walk->is_return;
	__u64 rule;

	if (address - walk->map_start >= walk->map_size) {
		int reason = locate(cpu, cpu_number, address);

		if (reason) {
			/* What is no code has not called anybody. But where it ran, it ran. */
			if (!walk->frames)
				add_frame(cpu);
			return ends(walk, reason == USER_END_NO_CODE && walk->guess_end ? walk->guess_end : reason);
		}
	}
	if (!add_frame(cpu))
		return ends(walk, USER_END_CUT);
	if (walk->map_kind == CODE_ANONYMOUS)
		return guess_caller(cpu_number, USER_END_ANONYMOUS);
	if (walk->map_kind == CODE_WITHOUT_TABLE)
		return guess_caller(cpu_number, USER_END_NO_TABLE);
	rule = find_rule(cpu, cpu_number, address - walk->map_start + walk->map_offset);
	if (RULE_KIND(rule) >= RULE_PLT)
		return apply_rule(cpu_number, rule);
	if (RULE_KIND(rule) == RULE_ROOT)
		return ends(walk, USER_END_ROOT);
	if (RULE_KIND(rule) == RULE_SIGNAL) {
		int reason = read_signal_frame(walk, cpu->words);

		if (reason)
			return ends(walk, reason);
		walk->is_return = 0;
		walk->fresh = 1;
		walk->guessed = 0;
		walk->guess_end = 0;
		return 0;
	}
	if (rule == RULE_INVALID_STACK_POINTER)
		return ends(walk, USER_END_INVALID);
	return guess_caller(cpu_number,
		rule == RULE_NO_TABLE ? USER_END_NO_TABLE : RULE_KIND(rule) == RULE_GAP ? USER_END_GAP : USER_END_INVALID);
}

/* The same for kernels without bpf_for: verified once, not at each of two thousand frames. */
__noinline int walk_step_alone(__u32 cpu_number)
{
	struct cpu_state *cpu = state_of(cpu_number);

	return cpu ? walk_step(cpu, cpu_number) : 1;
}

/* By the kernel's walk of frame pointers: --unwind fp. It does not tell a chain that ended from one whose next page was
 * not in memory. */
static __always_inline void follow_frame_pointers(void *ctx, struct cpu_state *cpu, __u32 task_flags, __u32 max_depth)
{
	struct walk *walk = &cpu->walk;
	__u32 place = walk->first_frame & MAX_KERNEL_FRAMES;
	long bytes = bpf_get_stack(ctx, &cpu->sample.frames[place], MAX_KERNEL_FRAMES * sizeof(__u64), BPF_F_USER_STACK);

	if (bytes <= 0) {
		/* Before 5.17 the bit had another meaning: asked only after the walk failed. */
		walk->end = task_flags & PF_USER_WORKER ? USER_END_KERNEL_THREAD : USER_END_UNREADABLE;
		return;
	}
	walk->frames = ((__u64)bytes / sizeof(__u64)) & MAX_KERNEL_FRAMES;
	walk->end = walk->frames >= max_depth ? USER_END_CUT : USER_END_FRAME_POINTER;
	if (!walk->in_syscall)
		cpu->sample.frames[place] |= (__u64)FRAME_INTERRUPTED << FRAME_BITS_SHIFT;
}

/*
 * Walks the current task's user stack into the sample's frames from `first_frame` on, innermost first. The result is in
 * cpu->walk: frames, end.
 *
 *   PF_KTHREAD, PF_IO_WORKER   never has a user stack
 *   PF_USER_WORKER             (vhost, 6.4) never has one, but before 5.17 the bit had another meaning: asked last
 */
static __always_inline void walk_user(
	void *ctx, struct task_struct *task, struct cpu_state *cpu, __u32 cpu_number, __u32 first_frame, __u32 max_depth)
{
	struct walk *walk = &cpu->walk;
	__u32 task_flags = task->flags;
	int reason;

	walk->first_frame = first_frame;
	walk->frames = 0;
	walk->wishes = 0;
	walk->mapping_misses = 0;
	walk->rule_misses = 0;
	walk->guesses = 0;
	walk->in_syscall = 0;
	if (task_flags & (PF_KTHREAD | PF_IO_WORKER)) {
		walk->end = USER_END_KERNEL_THREAD;
		return;
	}
	reason = read_user_registers(task, walk);
	if (reason) {
		walk->end = task_flags & PF_USER_WORKER ? USER_END_KERNEL_THREAD : reason;
		return;
	}
	if (walk_how == WALK_BY_FRAME_POINTERS) {
		follow_frame_pointers(ctx, cpu, task_flags, max_depth);
		return;
	}
	if (walk_how == WALK_NOTHING) {
		walk->end = USER_END_UNSPECIFIED;
		return;
	}
	if (read_address_space(task, &walk->space)) {
		walk->end = USER_END_NO_MEMORY;
		return;
	}
	/* Without generations nothing is known of the mappings a moment later: what was found serves this walk alone. */
	if (!walk->space.has_sequence)
		walk->space.sequence = ++walk->unstamped;
	walk->time = cpu->sample.header.time >> 30;
	walk->map_size = 0;
	walk->window_at = NO_WINDOW;
	walk->switches = 0;
	walk->is_return = walk->in_syscall;
	walk->fresh = 1;
	walk->guessed = 0;
	walk->guess_end = 0;
	walk->end = USER_END_CUT;
	if (walk->newborn) {
		add_frame(cpu);
		walk->end = USER_END_ROOT;
		return;
	}
	if (bpf_ksym_exists(bpf_iter_num_new) && !loop_plainly) {
		int i;

		bpf_for(i, 0, MAX_USER_FRAMES + 1) {
			if (walk_step(cpu, cpu_number))
				break;
		}
	} else {
		for (int i = 0; i < MAX_USER_FRAMES + 1; i++) {
			if (walk_step_alone(cpu_number))
				break;
		}
	}
}

#endif
