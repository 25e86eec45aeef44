// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Asks bpf/lookup/mappings.h for the mapping at an address, for tests/mappings. It asks at ticks of the clock in the process in
 * question. For sleeping processes it asks from an iterator over all tasks.
 */
#include "../../bpf/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "../../bpf/lookup/mappings.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define REQUESTS 256
#define AT_TICK 16 /* requests that one tick answers */
#define ROUNDS 32 /* look-ups that one measurement repeats */

/* 0: as find_mapping() chooses, 1: by copies */
const volatile __u32 copied;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* ticks; the iterator, which a tick may interrupt */
	__type(key, __u32);
	__type(value, struct vma_scratch);
} scratches SEC(".maps");

/* Question of user space, written while the program runs. */
struct question {
	__u32 tgid; /* or ANY_PROCESS; 0: nobody */
	__u32 count; /* of requests, at most REQUESTS */
	__u64 addresses[REQUESTS];
};

#define ANY_PROCESS 0xffffffff

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct question);
} questions SEC(".maps");

static __always_inline int asked(struct question *question, struct task_struct *task)
{
	return question->tgid && task->tgid && (question->tgid == (__u32)task->tgid || question->tgid == ANY_PROCESS);
}

struct answer {
	__u64 address;
	__u64 time; /* CLOCK_MONOTONIC before the look-up */
	__u64 time_after;
	__u32 result;
	__u32 is_pc;
	__u32 sequence;
	__u32 reserved;
	__u64 id;
	struct mapping mapping;
};

/* The iterator's answers, one for each request. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUESTS);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

/* The ticks' answers. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ticks SEC(".maps");

struct tick_counters {
	__u64 ticks;
	__u64 lost;
	__u64 in_user_mode;
	__u64 same_generation; /* as at the last tick in this address space */
	__u64 odd_sequence;
	__u64 known; /* ticks in an address space that had one before */
};

/* Address space → sequence at its last tick. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} generations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick_counters);
} counters SEC(".maps");

static __always_inline int look_up(
	const struct address_space *space, __u64 address, struct mapping *out, struct vma_scratch *scratch)
{
	return copied ? find_mapping_by(space, address, out, 0, scratch) : find_mapping(space, address, out, scratch);
}

SEC("iter/task")
int look_at_sleeping(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 zero = 0;
	__u32 one = 1;
	struct question *question = bpf_map_lookup_elem(&questions, &zero);
	struct vma_scratch *scratch = bpf_map_lookup_elem(&scratches, &one);
	struct address_space space = {};

	if (!task || !question || !scratch)
		return 0;
	if ((__u32)task->tgid != question->tgid || task->pid != task->tgid)
		return 0;
	int none = read_address_space(task, &space);
	for (__u32 i = 0; i < REQUESTS && i < question->count; i++) {
		__u32 key = i;
		struct answer *answer = bpf_map_lookup_elem(&answers, &key);

		if (!answer)
			return 0;
		answer->address = question->addresses[i];
		answer->sequence = space.sequence;
		answer->id = space.id;
		answer->result = none ? none : look_up(&space, question->addresses[i], &answer->mapping, scratch);
	}
	return 0;
}

/* A word of the context, which begins with the user interface's registers. In assembly: clang may make one load of two at
 * an address that it calculated, and the verifier allows constant offsets only. */
#define CONTEXT_WORD(ctx, word) \
	({ \
		__u64 loaded; \
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(loaded) : "r"(ctx), "i"((word) * 8)); \
		loaded; \
	})

/* The instruction pointer in user mode, from the registers of the tick or those saved on entry to the kernel. */
static __always_inline __u64 user_pc(struct pt_regs *saved, void *ctx, int *in_user_mode)
{
#if defined(__TARGET_ARCH_x86)
	/* pt_regs: rip is word 16, cs word 17. */
	*in_user_mode = (CONTEXT_WORD(ctx, 17) & 3) == 3;
	return *in_user_mode ? CONTEXT_WORD(ctx, 16) : saved->ip;
#else
	/* user_pt_regs: 31 registers, sp, pc, pstate */
	*in_user_mode = (CONTEXT_WORD(ctx, 33) & 15) == 0;
	return *in_user_mode ? CONTEXT_WORD(ctx, 32) : saved->pc;
#endif
}

SEC("perf_event")
int look_at_tick(void *ctx)
{
	__u32 zero = 0;
	struct question *question = bpf_map_lookup_elem(&questions, &zero);
	struct vma_scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	struct tick_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct task_struct *task = bpf_get_current_task_btf();
	struct address_space space = {};
	int in_user_mode = 0;

	if (!question || !scratch || !count || !asked(question, task))
		return 0;
	count->ticks++;
	__u64 pc = user_pc((struct pt_regs *)bpf_task_pt_regs(task), ctx, &in_user_mode);
	int none = read_address_space(task, &space);

	count->in_user_mode += in_user_mode;
	count->odd_sequence += HAS_LOCK_SEQCOUNT && (space.sequence & 1);
	__u32 *last = bpf_map_lookup_elem(&generations, &space.id);
	if (last) {
		count->known++;
		count->same_generation += *last == space.sequence;
	}
	if (!none)
		bpf_map_update_elem(&generations, &space.id, &space.sequence, BPF_ANY);
	__u32 begin = bpf_get_prandom_u32();
	for (__u32 i = 0; i < AT_TICK; i++) {
		struct answer *answer = bpf_ringbuf_reserve(&ticks, sizeof(*answer), 0);
		__u64 address = pc;

		if (!answer) {
			count->lost++;
			return 0;
		}
		if (i && question->count)
			address = question->addresses[(begin + i) % question->count % REQUESTS];
		answer->address = address;
		answer->is_pc = i == 0;
		answer->sequence = space.sequence;
		answer->reserved = in_user_mode;
		answer->id = space.id;
		answer->time = bpf_ktime_get_ns();
		answer->result = none ? none : look_up(&space, address, &answer->mapping, scratch);
		answer->time_after = bpf_ktime_get_ns();
		bpf_ringbuf_submit(answer, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

/*
 * Prices, at ticks in the process. One form a tick, in turn:
 *
 *   0 nothing   1 in place   2 by copies   3 LPM trie   4 bpf_find_vma (one a tick: more never works)
 */
struct price {
	__u64 ticks;
	__u64 first; /* nanoseconds of the first look-up of a tick, at an address of the process at random */
	__u64 random; /* of ROUNDS look-ups of as many addresses */
	__u64 same; /* of ROUNDS look-ups of one address */
	__u64 failed;
	__u64 second_failed; /* bpf_find_vma only */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 5);
	__type(key, __u32);
	__type(value, struct price);
} prices SEC(".maps");

/* Keys as the OpenTelemetry profiler has them. */
struct trie_key {
	__u32 prefix;
	__u32 tgid; /* big endian, as is the address */
	__u64 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 262144);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, struct trie_key);
	__type(value, __u64);
} trie SEC(".maps");

static __always_inline int look_up_as(__u32 form, const struct address_space *space, __u32 tgid, __u64 address,
	struct mapping *out, struct vma_scratch *scratch)
{
	if (form == 1)
		return CAN_READ_IN_PLACE ? find_mapping_by(space, address, out, 1, NULL) : 0;
	if (form == 2)
		return find_mapping_by(space, address, out, 0, scratch);
	if (form == 3) {
		struct trie_key key = {96, __builtin_bswap32(tgid), __builtin_bswap64(address)};

		return bpf_map_lookup_elem(&trie, &key) ? 0 : MAPPING_NONE;
	}
	return 0;
}

static __always_inline void measure(__u32 form, struct price *price, const struct address_space *space, __u32 tgid,
	struct question *question, struct vma_scratch *scratch)
{
	struct mapping out;
	__u32 count = question->count;
	__u32 begin = bpf_get_prandom_u32();
	__u64 failed = 0;

	if (!count)
		return;
	__u64 t0 = bpf_ktime_get_ns();
	failed += look_up_as(form, space, tgid, question->addresses[begin % count % REQUESTS], &out, scratch) > MAPPING_NOT_EXECUTABLE;
	__u64 t1 = bpf_ktime_get_ns();
	for (__u32 i = 0; i < ROUNDS; i++)
		failed += look_up_as(form, space, tgid, question->addresses[(begin + i * 7) % count % REQUESTS], &out, scratch) >
			MAPPING_NOT_EXECUTABLE;
	__u64 t2 = bpf_ktime_get_ns();
	for (__u32 i = 0; i < ROUNDS; i++)
		failed += look_up_as(form, space, tgid, question->addresses[begin % count % REQUESTS], &out, scratch) >
			MAPPING_NOT_EXECUTABLE;
	__u64 t3 = bpf_ktime_get_ns();
	price->ticks++;
	price->first += t1 - t0;
	price->random += t2 - t1;
	price->same += t3 - t2;
	price->failed += failed;
}

static __always_inline struct price *price_of(__u32 form)
{
	return bpf_map_lookup_elem(&prices, &form);
}

#define MEASURE(form) \
	SEC("perf_event") \
	int measure_##form(void *ctx) \
	{ \
		__u32 zero = 0; \
		struct question *question = bpf_map_lookup_elem(&questions, &zero); \
		struct vma_scratch *scratch = bpf_map_lookup_elem(&scratches, &zero); \
		struct task_struct *task = bpf_get_current_task_btf(); \
		struct price *price = price_of(form); \
		struct address_space space = {}; \
\
		if (!price || !question || !scratch || !asked(question, task)) \
			return 0; \
		if (read_address_space(task, &space)) \
			return 0; \
		measure(form, price, &space, question->tgid, question, scratch); \
		return 0; \
	}

MEASURE(0)
MEASURE(1)
MEASURE(2)
MEASURE(3)

static long found_vma(struct task_struct *task, struct vm_area_struct *vma, __u64 *start)
{
	*start = vma->vm_start;
	return 0;
}

/* 5.17 and later. */
SEC("perf_event")
int measure_4(void *ctx)
{
	__u32 zero = 0;
	struct question *question = bpf_map_lookup_elem(&questions, &zero);
	struct task_struct *task = bpf_get_current_task_btf();
	struct price *price = price_of(4);
	__u64 start = 0;

	if (!price || !question || !asked(question, task) || !question->count)
		return 0;
	__u64 address = question->addresses[bpf_get_prandom_u32() % question->count % REQUESTS];
	__u64 t0 = bpf_ktime_get_ns();
	long failed = bpf_find_vma(task, address, found_vma, &start, 0);
	price->first += bpf_ktime_get_ns() - t0;
	price->ticks++;
	price->failed += failed != 0;
	price->second_failed += bpf_find_vma(task, address, found_vma, &start, 0) != 0;
	return 0;
}

/* Other kinds of programs that ask. The verifier must accept the same search in each. */
static __always_inline int ask_from_here(void)
{
	__u32 zero = 0;
	struct question *question = bpf_map_lookup_elem(&questions, &zero);
	struct vma_scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	struct answer *answer = bpf_map_lookup_elem(&answers, &zero);
	struct task_struct *task = bpf_get_current_task_btf();
	struct address_space space = {};

	if (!question || !scratch || !answer || !asked(question, task) || read_address_space(task, &space))
		return 0;
	answer->address = question->addresses[0];
	answer->is_pc++;
	answer->result = look_up(&space, question->addresses[0], &answer->mapping, scratch);
	return 0;
}

SEC("tp_btf/sys_enter")
int ask_from_tp_btf(void *ctx)
{
	return ask_from_here();
}

SEC("raw_tp/sys_enter")
int ask_from_raw_tp(void *ctx)
{
	return ask_from_here();
}

SEC("kprobe/vfs_read")
int ask_from_kprobe(void *ctx)
{
	return ask_from_here();
}

SEC("uprobe")
int ask_from_uprobe(void *ctx)
{
	return ask_from_here();
}
