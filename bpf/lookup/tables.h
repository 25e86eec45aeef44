/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The state of user stack walks, one for each CPU, and the look-up of unwind tables (src/unwind) behind two caches.
 *
 *   pc ─► mapping ─► {object, offset in its file} ─► rule: to bpf/walk/walk.h
 *         cache of CPU                               cache of CPU
 *         else bpf/lookup/mappings.h, `files`                    else `objects` ─► index ─► rows ─► rules, in `segments`
 *
 * The cache of mappings is keyed by address space and generation: see docs/unwinding.md. The cache of rules is keyed by object and
 * offset. An object's content never changes, so this cache is never emptied and serves all processes.
 *
 * Promises: bounded time; a cache gives the same answer as a search. The caller ensures that no second program uses the same element
 * of `cpu_states` meanwhile. The clock's programs never nest on one CPU (bpf_prog_active in kernel/events/core.c). Programs at events
 * may nest, so they claim their element (probes.bpf.c).
 */
#ifndef FLAMETOP_TABLES_H
#define FLAMETOP_TABLES_H

#include "../record.h"
#include "mappings.h"
#include "moved.h"

/*
 * Size of the window: the part of the stack that one call reads, 1 KiB. It begins at a cache line and is copied to whole lines. A call
 * costs nearly the same for 8 bytes as for 1 KiB, and processors copy lines fastest (docs/unwinding.md).
 */
#define WINDOW_WORDS 128
#define LINE_BYTES 64
/* Powers of two. 32 KiB and 128 KiB a CPU. */
#define CACHED_MAPPINGS 512
#define CACHED_RULES 8192
/* Places for a rule. They fill one cache line of the processor, so looking at all of them costs as much as looking at one. */
#define RULE_WAYS 4
/* Last stacks of threads, including the stack that is being written, and frames of each: 49 KiB a CPU. */
#define PAST_STACKS 16
#define PAST_FRAMES 128
/* Threads whose owner a CPU remembers, found by the low bits of their number. A power of two. */
#define KNOWN_TASKS 64
/* Requests for missing tables that one walk may send to user space. */
#define MAX_WISHES 4
/* Requests of a CPU in about a second for code that is not in memory. */
#define MAX_CODE_WISHES 8
/* Users whose stack dumps a CPU counts at one time. A power of two: see may_dump() of bpf/walk/dump.h. */
#define DUMP_USERS 8
/* Repeated look-ups of one walk after it met a table that was removed or replaced. */
#define MAX_RELOCATIONS 4
/* Shift that turns nanoseconds into units of about a second. */
#define TIME_SHIFT 30
/* The time of a look-up that misses its cache, counted in frames that the caches answer. */
#define SEARCH_FRAMES 8
#define SEARCH_RULE_FRAMES 2
#define WINDOW_FRAMES 2

/* A rule in 8 bytes: src/unwind/table/packed.rs draws it. */
enum rule_kind {
	RULE_INVALID = 0,
	RULE_GAP = 1,
	RULE_ROOT = 2,
	RULE_SIGNAL = 3,
	RULE_SPECIAL = 4,
	RULE_REGISTER = 5,
	RULE_DEREF = 6,
	RULE_INDEXED = 7,
};
/* Kinds of RULE_SPECIAL. */
enum rule_form {
	FORM_PLT = 0,
	FORM_GOROUTINE = 1,
	FORM_BELOW_TOP = 2,
	FORM_TWICE = 4,
};
/* A gap because there is no table at all. No table holds this value. */
#define RULE_NO_TABLE (RULE_GAP | 1 << 3)

/* A gap of a table that a better one follows. Lookups return it; no table holds it. Gaps that stay have register 3 (packed.rs). */
#define RULE_GAP_FOR_NOW (RULE_GAP | 2 << 3)

/* No rule, and no guess either: the function is switching to another stack. Invalid::StackPointer of rule.rs. */
#define RULE_INVALID_STACK_POINTER (RULE_INVALID | 8 << 3)

#define RULE_KIND(rule) ((rule) & 7)
#define RULE_REGISTER_OF(rule) ((rule) >> 3 & 31)
#define RULE_FP_KIND(rule) ((rule) >> 8 & 7)
#define RULE_RBX(rule) ((rule) >> 11 & 3)
#define RBX_NEXT_GOROUTINE 3
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

/* A mapping of code. */
struct mapped {
	__u64 start;
	__u64 size;
	__u64 offset; /* where in its file it begins */
	__u32 slot;
	__u32 serial;
	__u64 kind;
};

/* A mapping of code in one state of an address space. Fills a cache line. */
struct cached_mapping {
	__u64 mm;
	__u64 id;
	struct mapped map;
	__u32 sequence;
	__u32 reserved;
};
_Static_assert(sizeof(struct cached_mapping) == 64, "two neighbours are two lines");

struct cached_rule {
	__u64 key; /* of rule_key(); 0: none, as serials begin at 1 */
	__u64 rule;
};

/* A frame of a thread's last stack: bpf/walk/stack_cache.h. */
struct past_frame {
	__u64 pc; /* as in a sample; bits 58 to 62: words from its return address down to its frame pointer; 63: that is known */
	__u64 sp; /* bits 48 to 63: words from there down to its return address */
	__u64 fp;
};

struct past_stack {
	__u64 mm;
	__u64 id;
	__u32 sequence;
	__u32 tid;
	__u32 frames; /* the outermost PAST_FRAMES of them are kept, frame n at n % PAST_FRAMES */
	__u32 first; /* from this frame on, each is found from the one before by stack and frame pointer alone */
	struct mapped map; /* the innermost frame's; size 0: not known */
	struct past_frame frame[PAST_FRAMES];
};

/* The kernel's direct map of all memory: bpf/lookup/physmap.h. */
struct direct_map {
	__u64 begin; /* is added to a place in memory; 0: not known */
	__u64 end; /* places in memory lie below */
	__u64 beyond; /* bits that are set in entries for places outside of this map */
	__u32 levels; /* of page tables: 4 or 5 */
	__u32 reserved;
};

/*
 * The state of a walk.
 *
 * Members that each frame needs come first, except the registers: an x86 instruction takes one byte for an offset below 128, and four
 * for a larger one. Short code matters because the CPU's caches lose most of it between two ticks.
 */
struct walk {
	__u64 pc;
	struct mapped map; /* the mapping that the last address was in */
	__u64 window_at; /* address that the window begins with */
	__u64 window_bytes; /* that can be read there */
	__u64 window; /* where the bytes are: cpu_state::window, or a page in the kernel's direct map */
	__u32 frames;
	__u16 first_frame; /* place of the first user frame among the sample's frames */
	__u8 scripted; /* the process has an interpreter: stack pointers are noted. bpf/walk/script.h */
	__u8 reserved;
	__u32 valid;
	__u32 link; /* how the frame was reached: bpf/walk/stack_cache.h */
	__u32 past_new; /* where this stack is kept; NO_PAST: nowhere */
	__u32 past_old; /* the thread's last one */
	__u32 past_at; /* the first frame there that lies as far out as this one */
	__u32 past_first;
	__s32 look_at; /* number of frames at which the clock is read next: bpf/walk/budget.h */
	__u32 look_every;
	__u8 is_return; /* pc is a return address: it is looked up one byte before */
	__u8 fresh; /* all registers are those of pc's frame: nothing was unwound since they were saved */
	__u8 guessed;
	__u8 guess_end; /* why the frame before was guessed: the stop reason if the guessed address is no code */
	__u8 end;
	__u8 in_syscall;
	__u8 newborn; /* a thread that has not left the system call that made it */
	__u8 next_goroutine; /* a frame was one in which the thread has its next goroutine already (Go) */
	__u64 regs[32]; /* by their DWARF numbers; known if their bit is set in `valid` */
	struct address_space space;
	__u64 pgd; /* the tables of the process's pages; 0: memory is copied. This and the next: bpf/lookup/physmap.h */
	__u64 pgd_after_copy; /* the same, but used only after the first copy that succeeds */
	struct direct_map direct;
	__u64 pmd_number; /* address >> 21 of the 2 MiB that pmd maps; ~0: none */
	__u64 pmd;
	__u64 pmd_place; /* the place of that entry */
	__u64 page; /* the entry by which the window was found: one of a page table, or pmd */
	__u64 page_place;
	__u64 rule;
	__u64 uprobes; /* the process's page of uprobes, once this walk has looked for it; else 0 */
	__u64 looked; /* when the clock was read last. This and the next four are nanoseconds: bpf/walk/budget.h */
	__u64 spent; /* the time that counts, from the begin of the walk until then */
	__u64 limit; /* time that this walk may take */
	__u64 credit; /* time that samples of this CPU may take together */
	__u64 credited; /* when the credit last grew */
	__u32 switches;
	__u32 wishes;
	__u32 mapping_misses;
	__u32 rule_misses;
	__u32 guesses;
	__u32 retraced;
	__u32 time; /* the sample's time >> TIME_SHIFT, about seconds: see struct object */
	struct object_key missing; /* of `map`, where its kind is CODE_WITHOUT_TABLE */
	__u32 unstamped; /* where address spaces have no generation: the number of the walk */
	__u32 past_slot; /* of the thread */
	__u32 sent; /* samples */
	__u32 code_time; /* walk::time of the last requests for code, and their number then */
	__u32 code_wishes;
	__u8 moved; /* a page was taken from the process while it was read in place */
	__u8 dump; /* enum dump_state */
	__u8 relocations; /* tables that were found to be replaced */
	/* Results of find_cfa(). */
	__u8 jumped; /* the caller is on another stack */
	__u8 left; /* the thread's data name that stack, not this frame */
	__u64 cfa; /* the canonical frame address */
	__u64 caller; /* the address in the caller if `left`, else 0 */
};

/* The result of the stack dump of a walk. */
enum dump_state {
	DUMP_NONE = 0,
	DUMP_SENT = 1,
	DUMP_REFUSED = 2,
};

/* Number of stack pages of one user that were copied in about a second. */
struct dump_user {
	__u32 uid;
	__u32 time; /* walk::time */
	__u32 pages;
	__u32 reserved;
};

/* Number of stack pages that a CPU has copied in about a second. */
struct dump_budget {
	__u32 time; /* walk::time */
	__u32 pages;
	struct dump_user users[DUMP_USERS];
};

/* A thread's owner, as identify() of bpf/sample.h found it. Half a cache line. */
struct known_task {
	const void *cred; /* a task that changes its user or its user namespace gets a new one */
	__u32 tid;
	__u32 time; /* walk::time when the owner was found */
	__u32 uid;
	__u32 files;
	__u32 no_runtime; /* the number of `runtimes` that had none for it: runtimes_stamp */
	__u32 reserved;
};

/* A function that the walk met, at an instruction: in a recursion it is read and sent once a sample. */
struct met_function {
	__u64 code;
	__u32 instruction;
	__u32 sample; /* script_state::sample when it was met */
	__u32 place; /* of its words in the record, behind the stack pointers */
	__u32 reserved;
};

/* Bytes of memory that are read at once for frames that lie side by side; functions that are remembered. Powers of two. */
#define SCRIPT_WINDOW_BYTES 1024
#define MET_FUNCTIONS 64

/* Addresses of a JVM's code that are remembered. A power of two. */
#define KNOWN_CODES 256

/* The CodeBlob at an address of a JVM's code: bpf/walk/hotspot.h. */
struct jvm_code {
	__u64 address;
	__u64 blob;
	__u64 segment; /* the address of its first segment's byte */
	__u64 name; /* the first 8 letters */
	__u64 code; /* its first instruction */
	__u32 tgid;
	__u32 id; /* of a method */
	__s32 words; /* of its frame */
	__u32 complete; /* bytes of code until the frame is whole */
	__u32 is_barrier; /* routines for virtual threads */
	__u32 reserved;
};

/* A walk of an interpreter's functions: bpf/walk/script.h. */
struct script_state {
	struct runtime runtime;
	struct jvm jvm; /* if the process has one */
	__u64 frame; /* the next one */
	__u64 anchor; /* of the call that runs it */
	__u64 window_at; /* the memory in `window` */
	__u32 window_bytes;
	__u32 place; /* of the frame in `window` */
	__u32 at; /* words of the record */
	__u32 first; /* of them, of stack pointers */
	__u32 steps;
	__u32 sample; /* counts samples with functions */
	__u64 states[MAX_SCRIPT_STATES]; /* of the thread, the first one by its slot */
	__u32 state_count;
	__u32 states_missing; /* there may be more */
	__u64 next_state; /* to be checked, */
	__u64 next_interpreter; /* and the interpreter after it */
	__u64 thread; /* pthread_self() */
	__u64 fp; /* the innermost frame pointer */
	__u64 bcp; /* the innermost frame's instruction in Java's interpreter. 0: it has no whole frame. BCP_IN_FRAME: the frame has it */
	__u64 word; /* of the stack of a JVM's thread, read last */
	__u64 blob_words[BLOB_BYTES / 8]; /* fields of a CodeBlob */
	struct jvm_code code; /* that was found last */
	struct jvm_code codes[KNOWN_CODES];
	__u64 stack_size; /* from script_record::base to the stack pointer of the outermost frame */
	__u64 window[SCRIPT_WINDOW_BYTES / 8];
	__u64 code_words[SCRIPT_CODE_WORDS];
	struct met_function met[MET_FUNCTIONS];
	struct script_record record;
};

/*
 * The state that the walks of one CPU use.
 *
 * It is too large for a per-CPU map: the kernel allows values of 32 KiB there. Large members come last: a BPF instruction has 16 bits
 * for an offset, and a larger offset takes three more instructions.
 */
struct cpu_state {
	struct walk walk;
	__u64 claimed; /* 1 while a program at an event uses it: see events.h */
	__u64 window[WINDOW_WORDS] __attribute__((aligned(LINE_BYTES)));
	__u32 past_of[PAST_STACKS];
	__u32 past_spare;
	struct dump_budget dumps;
	struct known_task tasks[KNOWN_TASKS] __attribute__((aligned(LINE_BYTES)));
	struct sample sample;
	__u64 words[40]; /* signal frames */
	struct wish wishes[MAX_WISHES];
	struct vma_scratch scratch;
	struct mapping mapping, file; /* of search_mapping() and ends_at_guess(): a program has 512 bytes of stack for all calls */
	struct cached_mapping mappings[CACHED_MAPPINGS] __attribute__((aligned(64)));
	struct cached_rule rules[CACHED_RULES] __attribute__((aligned(64)));
	struct past_stack past[PAST_STACKS];
	struct script_state script;
};
_Static_assert(__builtin_offsetof(struct cpu_state, mappings) <= 0x7fff, "what has a place of its own in instructions");

/*
 * One element for each CPU that is switched on, and some for CPUs that are switched on later. Their number is set before loading
 * (room_for() of src/collector/sources/clock.rs). User space does not map this map. BPF_F_MMAPABLE aligns it to a page, and so its
 * elements to cache lines.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
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
	/* Sizes, not types: clang describes a type behind two pointers by its name only. */
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

/* Tables of objects by slot. User space maps this to read when each object was last used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_OBJECTS);
	__type(key, __u32);
	__type(value, struct object);
} objects SEC(".maps");

/* File → object. Preallocated: before 6.1, perf_event programs may use no other hash map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OBJECTS);
	__type(key, struct file_key);
	__type(value, struct object_place);
} files SEC(".maps");

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

/* Returns the first of the two places for an address. Both form a pair of neighbours. */
static __always_inline __u32 mapping_hash(const struct address_space *space, __u64 address)
{
	return ((space->id + space->mm + (address >> 16)) * HASH_FACTOR) >> 55;
}
_Static_assert(CACHED_MAPPINGS == 1 << (64 - 55), "as many as the hash has values");

/* Notes a request to user space for the table of an object. */
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
 * Searches the mapping of an address in the address space, and caches it. Returns 0, or an enum user_end. Global, so that it is
 * verified once; so is search_rule().
 */
__noinline int search_mapping(struct cpu_state *cpu, __u64 address)
{
	struct file_key file = {};
	struct object_place *place;
	int result;

	if (!cpu)
		return USER_END_UNSPECIFIED;
	struct walk *walk = &cpu->walk;
	struct mapping *mapping = &cpu->mapping;
	walk->mapping_misses++;
	walk->look_at -= SEARCH_FRAMES;
	result = find_mapping(&walk->space, address, mapping, &cpu->scratch);
	walk->map.size = 0;
	switch (result) {
	case MAPPING_FOUND:
	case MAPPING_VDSO:
		walk->map.kind = CODE_OF_FILE;
		break;
	case MAPPING_ANONYMOUS:
		walk->map.kind = CODE_ANONYMOUS;
		break;
	case MAPPING_NO_MM:
		return USER_END_NO_MEMORY;
	case MAPPING_NONE:
	case MAPPING_NOT_EXECUTABLE:
		return USER_END_NO_CODE;
	default:
		return USER_END_CHANGING;
	}
	walk->map.start = mapping->start;
	walk->map.size = mapping->end - mapping->start;
	walk->map.offset = mapping->page_offset << 12;
	walk->map.serial = 0;
	if (walk->map.kind == CODE_ANONYMOUS) {
		enum moved_state state = find_moved(
			&walk->space, cpu->sample.header.tgid, mapping, &cpu->file, &walk->map.offset, &cpu->scratch);

		if (state == MOVED_UNKNOWN) {
			file.key.generation = GENERATION_OF_MOVED;
			walk->map.kind = CODE_WITHOUT_TABLE;
			walk->missing = file.key;
			wish_for(cpu, mapping, &file.key);
			return 0;
		}
		if (state == MOVED_IS_OTHER)
			return 0;
		if (state == MOVED_FROM_FILE) {
			walk->map.kind = CODE_OF_FILE;
			result = MAPPING_FOUND;
			cpu->file.flags &= mapping->flags;
			*mapping = cpu->file;
		}
	}
	if (walk->map.kind == CODE_OF_FILE) {
		/* The vDSO belongs to no file: inode 0. */
		file.key.inode = mapping->inode;
		file.key.device = mapping->device;
		file.key.generation = mapping->generation;
		file.user = FOR_ALL;
		if (result == MAPPING_VDSO)
			walk->map.offset = 0;
		place = bpf_map_lookup_elem(&files, &file);
		if (!place) {
			file.user = cpu->sample.header.uid;
			place = bpf_map_lookup_elem(&files, &file);
		}
		if (!place) {
			walk->map.kind = CODE_WITHOUT_TABLE;
			walk->missing = file.key;
			if (result == MAPPING_FOUND)
				wish_for(cpu, mapping, &file.key);
			/* Not kept: its table may be there a moment later. */
			return 0;
		}
		walk->map.slot = place->slot;
		walk->map.serial = place->serial;
	}
	if (!(mapping->flags & MAPPING_STABLE) && walk->space.has_sequence)
		return 0;

	/* The new entry takes the first place of the pair. The old one moves to the second. */
	__u32 at = mapping_hash(&walk->space, address) & (CACHED_MAPPINGS - 1);
	struct cached_mapping *first = &cpu->mappings[at & (CACHED_MAPPINGS - 1)];
	struct cached_mapping *second = &cpu->mappings[(at ^ 1) & (CACHED_MAPPINGS - 1)];
	*second = *first;
	first->mm = walk->space.mm;
	first->id = walk->space.id;
	first->sequence = walk->space.sequence;
	first->map = walk->map;
	return 0;
}

/* Sets walk->map to the mapping of an address. Returns 0, or an enum user_end. */
static __always_inline int locate(struct cpu_state *cpu, __u64 address)
{
	struct walk *walk = &cpu->walk;
	__u32 at = mapping_hash(&walk->space, address);

#pragma unroll
	for (int way = 0; way < 2; way++) {
		__u32 index = at ^ way;

		OPAQUE(index);
		struct cached_mapping *cached = &cpu->mappings[index & (CACHED_MAPPINGS - 1)];
		if (address - cached->map.start < cached->map.size && cached->id == walk->space.id &&
		    cached->mm == walk->space.mm && cached->sequence == walk->space.sequence) {
			walk->map = cached->map;
			return 0;
		}
	}
	return search_mapping(cpu, address);
}

/* Returns the cache key of a rule. Valid for offsets below 4 GiB only. */
static __always_inline __u64 rule_key(__u32 serial, __u64 offset)
{
	return (__u64)serial << 32 | (__u32)offset;
}

static __always_inline __u32 rule_hash(__u64 key)
{
	return (key * HASH_FACTOR >> 53) * RULE_WAYS;
}
_Static_assert(CACHED_RULES == RULE_WAYS << (64 - 53), "as many as the hash has values");

/* Searches the rule at an offset in the file of walk->map, and caches it. The result is walk->rule. */
__noinline int search_rule(struct cpu_state *cpu, __u64 offset)
{
	__u32 page = offset >> TABLE_PAGE_SHIFT;
	__u32 index_segment = 0, index_word = 0, slot, serial;
	__u32 *words, *rows;
	int found = 0;

	if (!cpu)
		return 0;
	struct walk *walk = &cpu->walk;
	walk->rule_misses++;
	walk->look_at -= SEARCH_RULE_FRAMES;
	walk->rule = RULE_GAP;
	slot = walk->map.slot;
	serial = walk->map.serial;
	struct object *object = bpf_map_lookup_elem(&objects, &slot);
	/* The table was removed meanwhile, so the cached mapping is out of date. */
	if (!object || object->serial != serial) {
		walk->rule = RULE_NO_TABLE;
		return 0;
	}
	/* Coarse time, so that CPUs seldom compete for the cache line. */
	if (object->used != walk->time)
		object->used = walk->time;
	/* Keys have 32 bits for the offset. No code lies at a larger one. */
	if (offset >> 32)
		return 0;
	/* Mostly there is one range. No loop here is unrolled: the caches lose code between two ticks, and each line is fetched again. */
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < MAX_RANGES; i++) {
		struct object_range *range = &object->range[i];
		__u32 distance = page - range->first_page;

		if (i >= (object->ranges & ~OBJECT_IS_PARTIAL))
			break;
		if (distance < range->pages) {
			index_segment = range->index_segment;
			index_word = range->index_word + 2 * distance;
			found = 1;
			break;
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
		/* Wanted is the last row that is not behind the offset: its upper half is not greater. */
		__u64 key = (offset & ((1 << TABLE_PAGE_SHIFT) - 1)) << 16 | 0xffff;

		rows = segment_words(entry->segment);
		if (!rows)
			return 0;
		/* Each step goes `half` rows further if that row is not behind the key. No jump depends on it. Most pages have 21 rows. */
#pragma clang loop unroll(disable)
		for (__u32 half = count > 128 ? 512 : count > 16 ? 64 : 8; half; half >>= 1) {
			__u32 probe = at + half;
			__u64 row;

			OPAQUE(probe);
			row = rows[probe & (SEGMENT_WORDS - 1)];
			at += half & -(__u32)((row - key - 1) >> 63) & -(__u32)(((__u64)probe - end) >> 63);
		}
		OPAQUE(at);
		__u32 rule = object->rules_word + 2 * (rows[at & (SEGMENT_WORDS - 1)] & 0xffff);

		words = segment_words(object->rules_segment);
		if (!words)
			return 0;
		OPAQUE(rule);
		walk->rule = *(__u64 *)&words[rule & (SEGMENT_WORDS - 2)];
	}
	if (walk->rule == RULE_GAP && object->ranges & OBJECT_IS_PARTIAL)
		walk->rule = RULE_GAP_FOR_NOW;
	if (object->serial != serial) {
		walk->rule = RULE_NO_TABLE;
		return 0;
	}
	__u64 key = rule_key(serial, offset);
	__u32 place = rule_hash(key);

	OPAQUE(place);
	struct cached_rule *cached = &cpu->rules[place & (CACHED_RULES - RULE_WAYS)];
	OPAQUE(cached);
	/* The oldest entry is dropped. */
	cached[3] = cached[2];
	cached[2] = cached[1];
	cached[1] = cached[0];
	cached->key = key;
	cached->rule = walk->rule;
	return 0;
}

static __always_inline __u64 find_rule(struct cpu_state *cpu, __u64 offset)
{
	struct walk *walk = &cpu->walk;
	__u64 key = rule_key(walk->map.serial, offset);
	__u32 at = rule_hash(key);

	OPAQUE(at);
	struct cached_rule *cached = &cpu->rules[at & (CACHED_RULES - RULE_WAYS)];
	OPAQUE(cached);
	if (likely(!(offset >> 32))) {
		if (likely(cached[0].key == key))
			return cached[0].rule;
		if (cached[1].key == key)
			return cached[1].rule;
		if (cached[2].key == key)
			return cached[2].rule;
		if (cached[3].key == key)
			return cached[3].rule;
	}
	search_rule(cpu, offset);
	return walk->rule;
}

#endif
