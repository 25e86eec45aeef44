/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The records in ring buffers, and the values of all maps. src/collector/wire/records.rs has the same layouts; both sides assert them.
 *
 * A sample in the ring buffer:
 *
 *   0      8        16     20    24    28       30       32     48         49     50      51       52  56    60      64       72
 *   | time | cgroup | tgid | tid | cpu | kernel | user   | comm | user_end | kind | flags | source | - | uid | files | weight | u64 frames …
 *                                        frames   frames
 *
 * frames: kernel frames, innermost first, then user frames, innermost first. Nothing follows the last frame. The upper
 * byte of a user frame holds bits of enum frame_bits. The lower bytes are an address of user space.
 *
 * A request for a table (kind RECORD_WISH, struct wish): a sample hit code that has no table yet.
 */
#ifndef FLAMETOP_RECORD_H
#define FLAMETOP_RECORD_H

/*
 * Most kernel frames of a sample. bpf_get_stack gives at most kernel.perf_event_max_stack frames, 127 unless an administrator raised
 * it. The number is a power of two less one: then `& MAX` is a bounds check that every verifier since 5.15 understands.
 */
#define MAX_KERNEL_FRAMES 127
/* Most user frames that our own walk takes. Such a sample has 17 KiB; a value of a per-CPU map may have 32 KiB. */
#define MAX_USER_FRAMES 2048
#define COMM_LENGTH 16

/* Why the user part of a stack ends: the numbers of UserEnd in src/profile/store/samples.rs. */
enum user_end {
	USER_END_UNSPECIFIED = 0,
	USER_END_KERNEL_THREAD = 1,
	USER_END_FRAME_POINTER = 2, /* the kernel's walk by frame pointers ended */
	USER_END_CUT = 3, /* deeper than the walk goes */
	USER_END_UNREADABLE = 4, /* memory of the stack could not be read */
	USER_END_NO_CODE = 5, /* the return address points to no code */
	USER_END_ROOT = 6, /* the outermost frame: complete */
	USER_END_NO_TABLE = 7, /* code of an object whose table is being made: see bpf/walk/dump.h */
	USER_END_GAP = 8, /* code that its object's unwind information does not cover */
	USER_END_INVALID = 9, /* unwind information that is wrong, or that no rule can express */
	USER_END_REGISTER = 10, /* a rule that needs a register which only the interrupted function knows */
	USER_END_BAD_FRAME = 11, /* a frame that would lie below its callee, or not at a multiple of 8 */
	USER_END_ANONYMOUS = 12, /* code of no file, made at run time, that keeps no frame pointers */
	USER_END_ZERO = 13, /* the return address is 0 */
	USER_END_CHANGING = 14, /* the mappings were being changed */
	USER_END_NO_MEMORY = 15, /* exiting: its memory is gone */
	USER_END_32_BIT = 16, /* a task of 32 bits */
	USER_END_REGISTERS = 17, /* there are no registers of user mode that can be trusted */
	USER_END_TIME = 18, /* the walk reached its time limit: bpf/walk/budget.h */
};

/* Bits in the upper byte of a user frame. */
enum frame_bits {
	/* The address of an interrupted instruction, not a return address. */
	FRAME_INTERRUPTED = 1,
	/* Found by its frame pointer, or by its machine code, because there is no unwind information. */
	FRAME_GUESSED = 2,
};
#define FRAME_BITS_SHIFT 56

/* Kinds of records. Kinds of samples have the numbers of SampleKind in src/profile/store/samples.rs. */
enum record_kind {
	SAMPLE_ON_CPU = 0,
	/* The sample before this one, walked by another method, for comparing. */
	SAMPLE_COMPARED = 1,
	/* Taken at an event: sample_header::source says which. */
	SAMPLE_EVENT = 2,
	/* Taken at the end of a wait. Its weight is in nanoseconds. */
	SAMPLE_WAIT = 3,
	/* The thread still waits, since its last sample with SAMPLE_ASLEEP. Only a header: time, tid, weight, wanted. */
	RECORD_SLEEPS_ON = 253,
	RECORD_SCRIPT = 254,
	RECORD_WISH = 255,
};

/* Bits of sample::flags. */
enum sample_flags {
	/* The outermost kernel frames are missing: the stack was deeper than MAX_KERNEL_FRAMES, or they could not be found. */
	SAMPLE_KERNEL_CUT = 1 << 0,
	/* A struct stack_dump of the same CPU and time was sent before. */
	SAMPLE_HAS_DUMP = 1 << 1,
	/* A stack dump was needed, but the budget of dumps or their ring was used up. */
	SAMPLE_DUMP_REFUSED = 1 << 2,
	/* A struct script_record of the same CPU and time was sent before. */
	SAMPLE_HAS_SCRIPT = 1 << 3,
	/* The wait began when the CPU time of the thread's cgroup was used up. */
	SAMPLE_QUOTA = 1 << 4,
	/* The wait had not ended. */
	SAMPLE_ASLEEP = 1 << 5,
	/* Then: it waits for a disk, as the kernel counts it. */
	SAMPLE_IO = 1 << 6,
	/* And: signals do not end the wait. */
	SAMPLE_UNINTERRUPTIBLE = 1 << 7,
};

struct sample_header {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u64 cgroup; /* cgroup v2 id */
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u16 kernel_frames;
	__u16 user_frames;
	__u8 comm[COMM_LENGTH];
	__u8 user_end;
	__u8 kind;
	__u8 flags;
	__u8 source; /* which event: its number in `events` of probes.bpf.c; 0 is the clock */
	__u32 wanted; /* the part of a wait's weight in which the thread could have run, in 2^-32 */
	__u32 uid; /* the user who is charged for the task: see find_owner */
	__u32 files; /* names the files that the task's paths lead to: see find_owner */
	__u64 weight; /* in the unit of its source. Events: those since the last sample of the source on this CPU */
};

struct sample {
	struct sample_header header;
	__u64 frames[MAX_KERNEL_FRAMES + MAX_USER_FRAMES];
};

/* Identity of a file's content, as far as the kernel tells. Two files with equal keys have the same code. */
struct object_key {
	__u64 inode;
	__u32 device; /* dev_t of the kernel: major << 20 | minor */
	__u32 generation; /* of the inode and of what is in it: see bpf/lookup/mappings.h */
};

/*
 * A key of `files`: a file, and the user whose samples find its table. FOR_ALL: the samples of all users. Where flametop cannot verify
 * that it has opened the file that is mapped, the table is for the user who has mapped it.
 */
struct file_key {
	struct object_key key;
	__u32 user;
	__u32 reserved;
};
#define FOR_ALL (~0U)

/*
 * The generation of a key that asks which file's code an anonymous mapping holds (inode and device are 0). A request with this key has
 * the anonymous mapping: see bpf/lookup/moved.h.
 */
#define GENERATION_OF_MOVED 1
/* The generation of a key that asks to bring the code at an address into memory: see bpf/walk/guess.h. */
#define GENERATION_OF_CODE 2

/* Sizes of stack dumps: bpf/walk/dump.h. */
#define DUMP_PAGE 4096
#define DUMP_PAGES 5
#define LARGE_DUMP_PAGES 17
#define FAR_DUMP_PAGES 15

/* A stack dump. Holds registers and stack of the frame where a walk met code without a table. */
struct stack_dump {
	__u64 time; /* the sample's */
	__u64 pc;
	__u32 cpu;
	__u32 valid; /* a bit for each register that is known, by DWARF numbers */
	__u32 copied; /* a bit for each page of `stack` that could be read */
	__u16 frames; /* user frames of the sample before this one */
	__u8 is_return; /* pc is a return address */
	__u8 guessed; /* the frame was found without unwind information */
	__u8 switches; /* stacks that were left for another one */
	__u8 reserved[3];
	__u16 far; /* number of pages between the first page of `stack` and the first page of the far end */
	__u16 reserved2;
	struct object_key key; /* the file of the code at pc, if it has no table; all zero: not known */
	__u64 regs[32];
	/* Pages from that of the stack pointer on. Behind LARGE_DUMP_PAGES: pages of the stack's far end, where it began to grow. */
	__u8 stack[(LARGE_DUMP_PAGES + FAR_DUMP_PAGES) * DUMP_PAGE];
};
#define DUMP_BYTES(pages) (__builtin_offsetof(struct stack_dump, stack) + (pages) * DUMP_PAGE)

/* A request for a table: a sample hit an object without one. The prefix is that of a sample. */
struct wish {
	__u64 time;
	__u64 start; /* the mapping in that process: /proc/TGID/map_files/START-END leads to the file */
	__u32 tgid;
	__u32 tid;
	__u64 end;
	struct object_key key;
	__u8 reserved;
	__u8 kind; /* RECORD_WISH, where a sample has its kind */
	__u8 reserved2[6];
	__u32 uid; /* as in a sample */
	__u32 files;
};

/* Most entries of `moved`. */
#define MAX_MOVED 1024

/* An anonymous mapping: a key of `moved`. */
struct moved_place {
	__u64 start;
	__u32 tgid;
	__u32 reserved;
};

/* The code of an anonymous mapping: a value of `moved`. */
struct moved_text {
	__u64 offset; /* in the file, of its first byte */
	__u64 beside; /* an address in a mapping of the file; 0: it is not the file's code */
};

/* Most processes with an interpreter at one time. */
#define MAX_RUNTIMES 4096
/* Marks a field of struct runtime that the interpreter does not have. */
#define NO_FIELD 0xffff
/* Smallest owner number of a frame that lies between two calls of the interpreter's loop and belongs to no function. */
#define NO_FUNCTION 3

/* How a frame tells that the interpreter's loop was called for it. */
enum script_entry {
	ENTRY_EACH = 0, /* each frame is a call of its own */
	ENTRY_FLAG = 1, /* the byte at `entry` is set in the first frame of a call, which comes last */
	ENTRY_BETWEEN = 2, /* between calls there are frames whose byte at `entry` is NO_FUNCTION or more */
};

/*
 * Layout of the data of runtimes in a process's memory: the value of `runtimes`. Offsets are in bytes. Made by src/runtimes/python/runtime.rs
 * and src/collector/processes/scripts.rs. All fields up to `has` are CPython's.
 */
struct runtime {
	__s64 slot; /* from the thread pointer to a pointer to the thread's state, or to a list of pointers */
	__u32 within; /* the place in that list of a pointer to the state, or to the block with `variable` */
	__u16 loop; /* in the state: a pointer to the structure of the innermost call of the loop, on the stack; or NO_FIELD */
	__u16 innermost; /* a pointer to the innermost frame, in the state or in that structure */
	__u16 loop_previous; /* in the structure: a pointer to that of the call before; or NO_FIELD */
	__u16 previous; /* of a frame: a pointer to its caller */
	__u16 code; /* a pointer to its code object */
	__u16 instruction; /* the instruction that runs */
	__u16 entry; /* see enum script_entry */
	__u16 frame_bytes; /* of a frame that are read */
	__u16 check; /* in a code object: SCRIPT_CODE_WORDS words that tell one from another */
	__u8 entry_is;
	__u8 code_tag; /* bits of the pointer to the code object that are not part of the address */
	__u8 instruction_is_pointer;
	__u8 has_list;
	__u8 in_loop; /* `innermost` is in the structure */
	__u8 reserved;
	__u16 variable; /* in a block of thread-local variables: a pointer to the state; or NO_FIELD */
	__u16 thread; /* in the state: `pthread_self()` of its thread */
	__u64 interpreters; /* address of a pointer to the youngest interpreter; 0: threads have one state only */
	__u16 interpreter_next; /* in an interpreter: a pointer to the next one */
	__u16 interpreter_threads; /* and a pointer to its first state */
	__u16 thread_next; /* in a state: a pointer to the next one */
	__u16 self_size; /* from `pthread_self()` to the thread pointer */
	__u16 has; /* enum runtime_kind */
	__u16 v8_shared; /* in a JSFunction: its SharedFunctionInfo */
	__u16 v8_check; /* in a SharedFunctionInfo: 16 bytes that tell one from another */
	__u16 v8_wasm; /* the word of a frame of WebAssembly that says what it is. 0: not known */
};

/* Runtimes that a process has: bits. */
enum runtime_kind {
	HAS_CPYTHON = 1,
	HAS_V8 = 2,
	HAS_HOTSPOT = 4,
};

/* Most JVMs, and most code heaps of one: MAX_JVMS of scripts.rs, MAX_HEAPS of src/runtimes/hotspot/code_cache.rs. */
#define MAX_JVMS 1024
#define MAX_CODE_HEAPS 8

/* A part of a JVM's code cache. */
struct code_heap {
	__u64 begin;
	__u64 size;
	__u64 segments; /* a byte for each segment of the heap: how far back the block of the segment begins */
	__u64 shift; /* the logarithm of a segment's size */
};

/*
 * Where the code of a JVM is, and offsets in its structures: the value of `jvms`. Made by src/runtimes/hotspot/bpf.rs. The fields of a
 * CodeBlob are in its first BLOB_BYTES.
 */
struct jvm {
	struct code_heap heaps[MAX_CODE_HEAPS];
	__u64 begin; /* of all heaps */
	__u64 size;
	__u16 block_header; /* bytes before a CodeBlob */
	__u16 blob_name; /* a pointer */
	__u16 blob_frame_size; /* words, with the return address */
	__u16 blob_complete; /* bytes of code until the frame is whole */
	__u16 blob_code; /* its first instruction: a pointer, or the distance from the CodeBlob */
	__u16 compile_id; /* in an nmethod */
	__u16 const_method; /* in a Method: a pointer to its ConstMethod */
	__u16 constants; /* in a ConstMethod, in its first CONSTANT_BYTES */
	__u16 code_size; /* 2 bytes */
	__u16 const_method_size; /* bytecode follows */
	__u8 code_is_distance;
	__u8 complete_is_short; /* 2 bytes, not 4 */
	__u8 sender_sp; /* the register in which an interpreted method begins with its caller's stack pointer */
	__u8 reserved[9];
};

#define BLOB_BYTES 128
#define CONSTANT_BYTES 64 /* the fields of a ConstMethod are in its first bytes */

/* Most interpreter functions in one sample, and bytes of a frame: MAX_FUNCTIONS of script.rs, FRAME_BYTES of runtime.rs. */
#define MAX_SCRIPT_FRAMES 4096
#define MAX_SCRIPT_FRAME_BYTES 128
/* Most states of one thread, one in each interpreter of its process, and most states that are checked for being the thread's. */
#define MAX_SCRIPT_STATES 8
#define MAX_STATES_CHECKED 512
/* Words read from a code object. */
#define SCRIPT_CODE_WORDS 4

/* Why the list of an interpreter's functions ends: the numbers of ScriptEnd in src/collector/wire/script.rs. */
enum script_end {
	SCRIPT_WHOLE = 1,
	SCRIPT_CUT = 2, /* there are more */
	SCRIPT_NO_STATE = 3, /* the thread runs no interpreter */
	SCRIPT_UNREADABLE = 4, /* memory could not be read */
};

/* Kinds of words of a script, in their upper bytes. */
enum script_word {
	SCRIPT_FUNCTION = 1, /* the address of a code object. A word follows: the place of the instruction (32 bits), a check of the object */
	SCRIPT_RUN_ENDS = 2, /* an address in the stack of the call of the loop that ran the functions before; 0: not known */
	SCRIPT_AGAIN = 3, /* a function that came before, at the same instruction: how often (24 bits), where it is among the words (32 bits) */
	SCRIPT_NEXT_STATE = 4, /* the functions of another state of the thread follow: the enum script_end of those before */
	/*
	 * The function of a native frame: its SharedFunctionInfo. A word follows: the number of the frame (11 bits), the instruction that runs, plus
	 * one (21 bits; 0: not known), a check of the function.
	 */
	SCRIPT_IN_FRAME = 5,
	/* HotSpot's code in a native frame. A word follows: the number of the frame (11 bits), then what is said here. */
	SCRIPT_COMPILED = 6, /* the address of the CodeBlob of a compiled method; its number (upper 32 bits) */
	SCRIPT_INTERPRETED = 7, /* the address of the Method; its instruction, plus one (21 bits; 0: not known), a check of the method */
	SCRIPT_STUB = 8, /* the address of another CodeBlob; nothing */
	SCRIPT_FROZEN = 9, /* the same: frames of a virtual thread are not on the stack, but in the heap */
};
#define SCRIPT_KIND_SHIFT 56
#define SCRIPT_ADDRESS ((1ULL << SCRIPT_KIND_SHIFT) - 1)
/* Bits of the number of a frame. */
#define SCRIPT_FRAME_BITS 11
#define SCRIPT_COUNT_SHIFT 32
#define SCRIPT_COUNT 0xffffffULL

/* Size of a script record: stack pointers, two in a word; then two words for each function, or three for each of two thirds of them. */
#define SCRIPT_WORDS (MAX_USER_FRAMES / 2 + 2 * MAX_SCRIPT_FRAMES)

/*
 * The functions of an interpreter in the sample that follows. The words begin with the stack pointer of each user frame, as the
 * distance from `base` in units of 8 bytes. The functions follow, innermost first. The prefix is that of a sample.
 */
struct script_record {
	__u64 time; /* the sample's */
	__u64 base;
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u32 frames; /* user frames of the sample */
	__u8 end; /* enum script_end */
	__u8 reserved[16];
	__u8 kind; /* RECORD_SCRIPT, where a sample has its kind */
	__u8 reserved2[14];
	__u64 words[SCRIPT_WORDS];
};

/*
 * User space maps the maps of counters into its memory. They have an element for each CPU, in separate cache lines.
 *
 * bpf(2) is used for rare operations only. While bpf(2) works on a map, the kernel skips programs at probes on that CPU
 * (bpf_prog_active). If the call can be preempted, the probes of the task that interrupts it are skipped as well.
 */

/* Ticks of the clock on one CPU: taken + idle + filtered + own + ring_full = ticks. */
struct counters {
	__u64 taken; /* a record was sent */
	__u64 idle; /* the CPU ran its idle task */
	__u64 filtered; /* the process is not among the targets */
	__u64 ring_full; /* the ring buffer had no room: a lost sample */
	__u64 own; /* flametop itself ran, and its samples are not wanted */
	/* Counters of the table walk, for measuring. */
	__u64 user_frames;
	__u64 mapping_misses; /* look-ups that the cache of mappings could not answer */
	__u64 rule_misses; /* and the cache of rules */
	__u64 guesses; /* frames without unwind information */
	__u64 retraced; /* frames that were the same as at the thread's last sample, and were not unwound again */
	__u64 moved; /* stacks that were walked again, from copies: bpf/lookup/physmap.h */
	__u64 reserved[5];
};

/* Most objects that can have a table at one time. Machines map a few thousand at most. */
#define MAX_OBJECTS 16384
/* Most ranges of code in one object. Nearly always there is 1. */
#define MAX_RANGES 8
/* Shift of the bytes of code that one page of a table describes: PAGE in src/unwind/table/paged.rs. */
#define TABLE_PAGE_SHIFT 10
/* Size of a segment, in words of 4 bytes: 2 MiB. Tables are stored in segments. */
#define SEGMENT_WORDS (1 << 19)
#define MAX_SEGMENTS 1024

/* Consecutive pages of a table, and the code that they describe. */
struct object_range {
	__u32 first_page; /* offset in the file >> TABLE_PAGE_SHIFT */
	__u32 pages;
	__u32 index_word; /* where the index begins: word of a segment, even */
	__u32 index_segment;
};

/* A bit of object::ranges: a better table follows, which may have rules where this one has gaps. */
#define OBJECT_IS_PARTIAL 0x8000

/* An object's table. Offsets count from the begin of its file; for the vDSO, from the begin of its memory. */
struct object {
	__u32 serial; /* unique, never reused; 0: the slot is free */
	__u32 used; /* when a cache last missed it: time >> 30, about seconds. Written by the walk */
	__u32 rules_word; /* where its rules begin, 8 bytes each */
	__u16 rules_segment;
	__u16 ranges; /* 0: it has no unwind information. And OBJECT_IS_PARTIAL */
	struct object_range range[MAX_RANGES];
};

/* The slot of an object: the value for an object_key in `files`. */
struct object_place {
	__u32 slot; /* in `objects` */
	__u32 serial;
};

/* An entry of a table's index: the place of a page's rows. */
struct table_page {
	__u32 first; /* word of the segment */
	__u16 count;
	__u16 segment;
};

/* Sources of events are numbered below this. Number 0 is the clock, so there are at most 63 event sources at one time. */
#define MAX_SOURCES 64

/* State of a source of events on one CPU: an element of `events`. probes.bpf.c and waits.bpf.c describe its use. */
struct event {
	__u64 count; /* events so far */
	__u64 reported; /* the part of `count` that is in the weights of sent records */
	__u64 next; /* the count at which a stack is due */
	__u64 mark; /* the count when the epoch began */
	__u64 taken; /* records sent */
	__u64 busy; /* events that were due while another stack was being taken */
	__u64 ring_full; /* and those that found the ring buffer full */
	__u64 cut; /* stacks whose kernel part is known to lack its outer side */
	__u32 epoch;
	__u32 period; /* events to a stack */
	__u32 tokens; /* stacks until the period doubles */
	__u32 skipped; /* frames of the program and the trampoline above a function's */
	__u64 own; /* events of flametop itself, which are not wanted: not in `count` */
	/* Only waits (waits.bpf.c) have these. Their `count` is in nanoseconds. */
	__u64 waits; /* how many have ended */
	__u64 unknown; /* threads that left a CPU and are not followed */
	__u64 switched; /* when a thread came last */
	__u64 asleep; /* nanoseconds of waits that had not ended, in addition to `count` */
	__u64 cuts; /* how often: each is in a record, which is not in `taken` */
};

/* A thread that waits, whose stack is not known. */
struct sleeper {
	__u32 tid;
	__u32 tgid;
	__u32 uid; /* see find_owner */
	__u32 final; /* take the stack as it is: tables that are missing now do not come */
	__u64 since; /* struct waits */
};

/* Control values that user space sets ten times a second. */
struct control {
	__u32 epoch; /* counts those tenths */
	__u32 budget; /* stacks in one of them, on each CPU and of each source */
};

/* Counters of forks, for targets that are families. */
struct fork_counters {
	__u64 followed;
	__u64 targets_full;
};

/* Size of a batch of kernel addresses and their names, the value of `batch` in names.bpf.c. */
#define KERNEL_NAMES 32
#define KERNEL_NAME_BYTES 576 /* KSYM_NAME_LEN, and a module's name */

struct kernel_names {
	__u32 count;
	__u32 reserved;
	__u64 addresses[KERNEL_NAMES];
	char names[KERNEL_NAMES][KERNEL_NAME_BYTES]; /* each ends with 0 */
};

/* Size of a piece of kernel code, the value of `code` in names.bpf.c. */
#define KERNEL_CODE_BYTES 4096

struct kernel_code {
	__u64 address;
	__u32 size;
	__u32 failed; /* nothing can be read there */
	__u8 bytes[KERNEL_CODE_BYTES];
};

#define OFFSET_IS(type, member, offset) \
	_Static_assert(__builtin_offsetof(type, member) == (offset), #type "." #member " has moved: see records.rs")

OFFSET_IS(struct sample_header, time, 0);
OFFSET_IS(struct sample_header, cgroup, 8);
OFFSET_IS(struct sample_header, tgid, 16);
OFFSET_IS(struct sample_header, tid, 20);
OFFSET_IS(struct sample_header, cpu, 24);
OFFSET_IS(struct sample_header, kernel_frames, 28);
OFFSET_IS(struct sample_header, user_frames, 30);
OFFSET_IS(struct sample_header, comm, 32);
OFFSET_IS(struct sample_header, user_end, 48);
OFFSET_IS(struct sample_header, kind, 49);
OFFSET_IS(struct sample_header, flags, 50);
OFFSET_IS(struct sample_header, source, 51);
OFFSET_IS(struct sample_header, uid, 56);
OFFSET_IS(struct sample_header, files, 60);
OFFSET_IS(struct sample_header, weight, 64);
OFFSET_IS(struct sample, frames, 72);
_Static_assert(sizeof(struct sample_header) == 72, "the header of a record is 72 bytes: see records.rs");
_Static_assert(sizeof(struct sleeper) == 24, "see sleepers.rs");
OFFSET_IS(struct wish, time, 0);
OFFSET_IS(struct wish, start, 8);
OFFSET_IS(struct wish, tgid, 16);
OFFSET_IS(struct wish, end, 24);
OFFSET_IS(struct wish, key, 32);
OFFSET_IS(struct wish, kind, 49);
OFFSET_IS(struct wish, uid, 56);
OFFSET_IS(struct wish, files, 60);
_Static_assert(sizeof(struct wish) == 64, "a wish is 64 bytes: see records.rs");
OFFSET_IS(struct script_record, base, 8);
OFFSET_IS(struct script_record, cpu, 24);
OFFSET_IS(struct script_record, frames, 28);
OFFSET_IS(struct script_record, end, 32);
OFFSET_IS(struct script_record, kind, 49);
OFFSET_IS(struct script_record, words, 64);
OFFSET_IS(struct runtime, within, 8);
OFFSET_IS(struct runtime, entry, 24);
OFFSET_IS(struct runtime, entry_is, 30);
OFFSET_IS(struct runtime, variable, 36);
OFFSET_IS(struct runtime, interpreters, 40);
OFFSET_IS(struct runtime, has, 56);
_Static_assert(sizeof(struct runtime) == 64, "see runtime.rs and scripts.rs");
OFFSET_IS(struct moved_place, tgid, 8);
_Static_assert(sizeof(struct moved_place) == 16 && sizeof(struct moved_text) == 16, "see moved.rs");
OFFSET_IS(struct stack_dump, pc, 8);
OFFSET_IS(struct stack_dump, cpu, 16);
OFFSET_IS(struct stack_dump, copied, 24);
OFFSET_IS(struct stack_dump, frames, 28);
OFFSET_IS(struct stack_dump, is_return, 30);
OFFSET_IS(struct stack_dump, switches, 32);
OFFSET_IS(struct stack_dump, far, 36);
OFFSET_IS(struct stack_dump, key, 40);
OFFSET_IS(struct stack_dump, regs, 56);
OFFSET_IS(struct stack_dump, stack, 312);
_Static_assert(sizeof(struct file_key) == 24, "the key of `files`: see tables");
OFFSET_IS(struct file_key, user, 16);
_Static_assert(sizeof(struct object) == 16 + 16 * MAX_RANGES, "the value of `objects`: see tables");
_Static_assert(sizeof(struct object_place) == 8, "the value of `files`: see tables");
_Static_assert(sizeof(struct table_page) == 8, "Page of paged.rs");
OFFSET_IS(struct kernel_names, addresses, 8);
OFFSET_IS(struct kernel_names, names, 8 + 8 * KERNEL_NAMES);
_Static_assert(KERNEL_NAMES == 32 && KERNEL_NAME_BYTES == 576, "see kernel_names.rs");
OFFSET_IS(struct kernel_code, bytes, 16);
_Static_assert(KERNEL_CODE_BYTES == 4096, "see kernel_names.rs");
_Static_assert(sizeof(struct counters) == 128, "eleven counters: see records.rs");
_Static_assert(sizeof(struct event) == 128, "see records.rs");
_Static_assert(sizeof(struct control) == 8, "see probes");
_Static_assert(sizeof(struct fork_counters) == 16, "two counters: see records.rs");
_Static_assert((MAX_KERNEL_FRAMES & (MAX_KERNEL_FRAMES + 1)) == 0, "used as a mask");

#endif
