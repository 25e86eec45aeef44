/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the mapping of an address in the process's own tree of mappings, at the moment of the sample.
 *
 * Nothing is mirrored, so nothing lags behind an exec, an mmap or a fork. docs/unwinding.md has the measurements and the known limits.
 *
 * Promises: never faults, never waits, takes no lock; bounded time; the same answers in perf_event, tracing, kprobe and uprobe
 * programs. The caller passes the current task, because its mm cannot be freed meanwhile.
 *
 * The tree, Linux 6.1 and later (include/linux/maple_tree.h, lib/maple_tree.c; commits 54a611b60590, d4af56c5c7c6):
 *
 *   mm->mm_mt.ma_root ── 0                      nothing mapped
 *                     └─ node | type << 3 | 6   (bit 1: a node, not an entry. bit 2: no meaning for us)
 *
 *   A node is 256 bytes, at a multiple of 256. A pointer to a node holds the node's type in bits 3 to 6:
 *
 *   1 leaf_64, 2 range_64          0      8           128                248     256
 *                                  | parent| 15 pivots | 15 slots ..     | slot 15, or {u8 end, u8 gap} if
 *                                                                          the last pivot is 0 |
 *
 *   3 arange_64                    0      8          80         160      240
 *                                  | parent| 9 pivots | 10 slots | 10 gaps | {u8 end, u8 gap} |
 *
 *   slot[i] covers (pivot[i - 1], pivot[i]]: the upper end is included. `end` is the index of the last slot. A slot without a
 *   pivot reaches to the end of the node's range:
 *
 *         pivots       0x3ff        0x7ff        0x9ff
 *         slots    [ NULL ] [ a mapping ] [ NULL ] [ a mapping ]
 *
 *   In a leaf_64, a slot is NULL or a vm_area_struct. In the other types, a slot is another node. A node that was replaced points
 *   to itself: parent & ~255 == node.
 *
 * Why it may be read without a lock: the kernel does the same in lock_vma_under_rcu() (6.4). Its writers make new nodes and exchange
 * one pointer. Nodes are freed after an RCU grace period, and all our programs run inside an RCU read section.
 *
 * There are two exceptions. The tree may not be in that mode (early 6.1 to 6.3). Or the mapping was freed and used again: with
 * SLAB_TYPESAFE_BY_RCU since 6.15; before that after a grace period, or immediately. Then a read gives other bytes, but no fault. So
 * the mapping that was found is checked: it must belong to this mm and contain the address.
 *
 * Before 6.1 the tree is mm->mm_rb, a red-black tree that is changed in place. A search may miss, and its steps are bounded.
 */
#ifndef FLAMETOP_VMA_H
#define FLAMETOP_VMA_H

#include "../kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Numbers that user space knows. */
enum mapping_result {
	MAPPING_FOUND = 0, /* executable, of a file */
	MAPPING_ANONYMOUS = 1, /* executable, of no file: made by a JIT */
	MAPPING_VDSO = 2,
	MAPPING_NOT_EXECUTABLE = 3, /* there is one, but code cannot run there */
	MAPPING_NONE = 4, /* nothing is mapped there */
	MAPPING_NO_MM = 5, /* a kernel thread, or exiting */
	MAPPING_TORN = 6, /* a writer changed the tree in each attempt */
	MAPPING_TOO_DEEP = 7,
	MAPPING_UNREADABLE = 8, /* a pointer into nowhere: torn too, or a kernel that we do not know */
	MAPPING_RESULTS = 9,
};

/* Bits of mapping::flags. */
enum mapping_flags {
	MAPPING_EXECUTABLE = 1 << 0,
	MAPPING_FILE = 1 << 1,
	/* No writer was active during the search: the answer may be kept for as long as the generation stays the same. */
	MAPPING_STABLE = 1 << 2,
};

struct mapping {
	__u64 start;
	__u64 end;
	__u64 page_offset; /* of the file, in pages */
	__u64 inode;
	__u32 device; /* dev_t of the kernel: major << 20 | minor */
	__u32 generation; /* of the inode and its content: differs if the inode's number was reused, or the file was written again */
	__u32 flags;
	__u32 reserved;
};
_Static_assert(sizeof(struct mapping) == 48, "tests/mappings reads it");

/*
 * An address space and a state of its mappings. Two equal values have the same mappings:
 *
 *   mm, id     One process image. x86: an id is never reused. arm64: it may change for a living process (a roll-over of
 *              ASIDs, harmless), but two processes never have the same id.
 *
 *   sequence   6.13 (and late 6.12): counts beginnings and ends of writing, so an odd number means "being changed". From 6.4 up
 *              to then: counts ends. Up to 6.0: counts removals. 6.1 to 6.3: there is none; see has_sequence.
 */
struct address_space {
	__u64 mm;
	__u64 id;
	__u32 sequence;
	__u32 has_sequence;
};

/* Buffer for copies of nodes and mappings, on kernels where they cannot be read in place. */
struct vma_scratch {
	__u64 words[32];
};

/*
 * Lets a program read any address as if it were a structure (6.2 and later). An unmapped address reads as 0. A plain load replaces a
 * call and costs about half. It is optional: bpf_probe_read_kernel does the same.
 */
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

/* Depth limit of a search. A tree of eight levels has at least 8 * 5^7 = 625,000 entries, because nodes are at least half full.
 * vm.max_map_count is 65,530 unless an administrator raised it. */
#define MAPLE_MAX_DEPTH 8
/* Depth limit in a red-black tree, enough for a million nodes: n nodes are at most 2 * log2(n + 1) deep. */
#define RBTREE_MAX_DEPTH 40
/* Attempts of a search that meets a writer. */
#define MAPPING_ATTEMPTS 4

#define MAPLE_NODE_MASK 255ULL
#define MAPLE_LEAF_64 1
#define MAPLE_ARANGE_64 3

#define HAS_MAPLE_TREE bpf_core_field_exists(((struct mm_struct *)0)->mm_mt)
#define HAS_LOCK_SEQCOUNT bpf_core_field_exists(((struct mm_struct___lock_seqcount *)0)->mm_lock_seq.sequence)
#define HAS_LOCK_COUNT bpf_core_field_exists(((struct mm_struct *)0)->mm_lock_seq)
#define HAS_VMACACHE bpf_core_field_exists(((struct mm_struct *)0)->vmacache_seqnum)
#define CAN_READ_IN_PLACE bpf_ksym_exists(bpf_rdonly_cast)

/* Whether loops may use bpf_for (6.4 and later). The verifier checks the body of such a loop two or three times, and that of a plain loop
 * at each turn. */
#define CAN_ITERATE bpf_ksym_exists(bpf_iter_num_new)

/*
 * Returns a pointer that the verifier does not trust, for reading members that are pointers. For each pointer that is loaded from a
 * trusted structure, the verifier checks whether to trust it as well. Each check searches all types of the kernel four times, 0.3 ms.
 * Nothing here needs trusted pointers.
 */
#define WITHOUT_TRUST(object) \
	(CAN_READ_IN_PLACE ? (typeof(object))bpf_rdonly_cast(object, bpf_core_type_id_kernel(typeof(*(object)))) : (object))
#define HAS_SPLIT_TIMES bpf_core_field_exists(((struct inode *)0)->i_mtime_sec)
#define HAS_PRIVATE_TIMES bpf_core_field_exists(((struct inode *)0)->__i_mtime)

/* Hides a number from the compiler, which would otherwise turn masks back into jumps. */
#define OPAQUE(value) asm volatile("" : "+r"(value))

/* Returns the sequence of an mm. The verifier must know the pointer's type, so that plain loads work (since 5.5). */
static __always_inline __u32 mapping_sequence(struct mm_struct *mm)
{
	if (HAS_LOCK_SEQCOUNT)
		return ((struct mm_struct___lock_seqcount *)mm)->mm_lock_seq.sequence;
	if (HAS_LOCK_COUNT)
		return mm->mm_lock_seq;
	if (HAS_VMACACHE)
		return mm->vmacache_seqnum;
	return 0;
}

/* Returns the sequence of an mm by a copy, for any pointer. */
static __always_inline __u32 copied_sequence(struct mm_struct *mm)
{
	__u32 sequence = 0;
	__u64 offset;

	if (HAS_LOCK_SEQCOUNT)
		offset = bpf_core_field_offset(((struct mm_struct___lock_seqcount *)0)->mm_lock_seq.sequence);
	else if (HAS_LOCK_COUNT)
		offset = bpf_core_field_offset(((struct mm_struct *)0)->mm_lock_seq);
	else if (HAS_VMACACHE)
		offset = bpf_core_field_offset(((struct mm_struct *)0)->vmacache_seqnum);
	else
		return 0;
	bpf_probe_read_kernel(&sequence, sizeof(sequence), (char *)mm + offset);
	return sequence;
}

/* Reads the address space of a task, once for each sample. Returns 0 or MAPPING_NO_MM. `task` is from bpf_get_current_task_btf(). */
static __always_inline int read_address_space(struct task_struct *task, struct address_space *space)
{
	struct mm_struct *mm = WITHOUT_TRUST(task)->mm;

	space->mm = (__u64)mm;
	if (!mm)
		return MAPPING_NO_MM;
#if defined(__TARGET_ARCH_x86)
	space->id = mm->context.ctx_id;
#else
	space->id = mm->context.id.counter;
#endif
	space->sequence = mapping_sequence(mm);
	space->has_sequence = HAS_LOCK_SEQCOUNT || HAS_LOCK_COUNT || HAS_VMACACHE;
	return 0;
}

/* Returns the address of the vDSO. */
static __always_inline __u64 vdso_of(const struct address_space *space)
{
	struct mm_struct *mm = (struct mm_struct *)space->mm;
	void *vdso = NULL;

	bpf_probe_read_kernel(&vdso, sizeof(vdso), &mm->context.vdso);
	return (__u64)vdso;
}

/* Tells whether no writer was active when the sequence was read. Then an equal sequence later proves that no mapping has changed. */
static __always_inline int is_settled(const struct address_space *space)
{
	return space->has_sequence && !(HAS_LOCK_SEQCOUNT && (space->sequence & 1));
}

/* Returns all ones if a < b, else 0; without a jump. b is a user space address, below 2^63. a may be any number: a pivot may be ~0. */
static __always_inline __u64 below(__u64 a, __u64 b)
{
	__u64 difference = (a - b) & ~a;

	return -(difference >> 63);
}

/*
 * Returns the word at an address, or 0 if the address is unmapped. A plain load into a register: no copy, no call. It is read as the
 * first word of a mapping, which is no pointer to the verifier. 6.17 and later forbid arithmetic on pointers, even on void pointers. (libbpf
 * takes a millisecond for each type that it must find among those of the kernel, so this uses one that is needed anyway.)
 */
static __always_inline __u64 word_at(__u64 address)
{
	struct vm_area_struct *word = bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct vm_area_struct));

	return word->vm_start;
}

#define NODE_WORD(at) (in_place ? word_at(node + (at)) : *(__u64 *)((char *)scratch->words + (at)))

/*
 * Goes one level down in the tree, to the slot of `address`. Returns whether the search ends. Then `next` is the mapping's vm_area_struct, or
 * 0 with the reason in `result`.
 *
 * In a node, four steps of a binary search find the slot, without jumps that depend on data. `slot` is the number of pivots below the
 * address. Only the first `end` pivots count.
 */
static __always_inline int go_down_maple_tree(__u64 *next, __u64 address, int in_place, struct vma_scratch *scratch, int *result)
{
	__u64 type = *next >> 3 & 15;
	__u64 node = *next & ~MAPLE_NODE_MASK;
	__u64 slots, last, end, slot = 0, parent;

	if (type < MAPLE_LEAF_64 || type > MAPLE_ARANGE_64 ||
	    (!in_place && bpf_probe_read_kernel(scratch->words, sizeof(scratch->words), (void *)node))) {
		*result = MAPPING_UNREADABLE;
		*next = 0;
		return 1;
	}
	if (type == MAPLE_ARANGE_64) {
		slots = 80;
		end = NODE_WORD(240) & 15;
	} else {
		slots = 128;
		last = NODE_WORD(120);
		end = last ? 15 : NODE_WORD(248) & 15;
	}
#pragma unroll
	for (__u64 half = 8; half; half /= 2) {
		__u64 pivot = NODE_WORD((slot + half) * 8);

		slot += half & below(pivot, address) & below(slot + half, end + 1);
		/* Bounds for the verifier of 6.1: clang turns the sum into an OR, and that verifier does not track its range. */
		OPAQUE(slot);
		slot &= 15;
	}
	/* In a torn arange_64 node, the slot may not exist. The word is still inside of the node's 256 bytes. */
	*next = NODE_WORD(slots + slot * 8);
	/* Read last: if the node is not replaced now, it was not replaced when its words were read. (On arm64 nothing keeps
	 * the loads in order. The final checks of the mapping do not depend on the order.) */
	parent = NODE_WORD(0) & ~MAPLE_NODE_MASK;
	/* The node was replaced. 6.1 marks a node before its successor is reachable. If a tick comes in between on the same
	 * CPU, no retry helps. So the search continues, and the final checks of the mapping decide. A mapping that is not
	 * found proves nothing here: the kernel's list of nodes to free overwrites the first two pivots. */
	if (parent == node)
		*result = MAPPING_TORN;
	if (type == MAPLE_LEAF_64) {
		/* Reserved entries of the tree are small numbers, for example XA_ZERO_ENTRY after a failed fork. */
		if (*next < 4096)
			*next = 0;
		return 1;
	}
	if (!*next)
		*result = MAPPING_TORN;
	return !*next;
}

/* Follows the tree down to the mapping at `address`. Returns its vm_area_struct, or 0 with the reason in `result`. */
static __always_inline __u64 find_in_maple_tree(
	__u64 root, __u64 address, int in_place, struct vma_scratch *scratch, int *result)
{
	__u64 next = root;
	int depth;

	*result = MAPPING_NONE;
	/* An entry in place of a root covers address 0 only. */
	if ((root & 3) != 2)
		return 0;
	if (CAN_ITERATE) {
		bpf_for(depth, 0, MAPLE_MAX_DEPTH) {
			if (go_down_maple_tree(&next, address, in_place, scratch, result))
				return next;
		}
	} else {
		for (depth = 0; depth < MAPLE_MAX_DEPTH; depth++) {
			if (go_down_maple_tree(&next, address, in_place, scratch, result))
				return next;
		}
	}
	*result = MAPPING_TOO_DEEP;
	return 0;
}

/* Offsets of rb_node::rb_right and rb_node::rb_left of include/linux/rbtree_types.h, the same since 2.6.18. */
#define RB_RIGHT 8
#define RB_LEFT 16

/* Follows the red-black tree down to the mapping at `address` (up to 6.0). Returns as find_in_maple_tree() does. */
static __always_inline __u64 find_in_rbtree(struct mm_struct *mm, __u64 address, struct vma_scratch *scratch, int *result)
{
	__u64 offset = bpf_core_field_offset(((struct vm_area_struct *)0)->vm_rb);
	__u64 right = offset + RB_RIGHT;
	__u64 left = offset + RB_LEFT;
	__u64 start_at = bpf_core_field_offset(((struct vm_area_struct *)0)->vm_start);
	__u64 end_at = bpf_core_field_offset(((struct vm_area_struct *)0)->vm_end);
	char *copy = (char *)scratch->words;
	__u64 node = 0;

	bpf_probe_read_kernel(&node, sizeof(node),
		(char *)mm + bpf_core_field_offset(((struct mm_struct *)0)->mm_rb.rb_node));
	for (int depth = 0; depth < RBTREE_MAX_DEPTH; depth++) {
		if (!node) {
			*result = MAPPING_NONE;
			return 0;
		}
		if (bpf_probe_read_kernel(copy, 64, (void *)(node - offset))) {
			*result = MAPPING_UNREADABLE;
			return 0;
		}
		if (address >= *(__u64 *)(copy + (end_at & 56)))
			node = *(__u64 *)(copy + (right & 56));
		else if (address < *(__u64 *)(copy + (start_at & 56)))
			node = *(__u64 *)(copy + (left & 56));
		else
			return node - offset;
	}
	*result = MAPPING_TOO_DEEP;
	return 0;
}

/*
 * Returns a number that changes when another file gets the same inode number, and when the file is written. It mixes in the time of
 * the last write because some file systems give no generations, and because a library that is overwritten in place needs a new table.
 */
static __always_inline __u32 content_generation(__u32 generation, __u64 seconds, __u64 nanoseconds)
{
	return generation ^ (__u32)((seconds * 1000000000ULL + nanoseconds) * 0x9e3779b97f4a7c15ULL >> 32);
}

/* Reads a mapping by plain loads. */
static __always_inline void read_mapping_in_place(__u64 at, struct mapping *out, __u64 *mm, __u64 *flags)
{
	struct vm_area_struct *vma = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct vm_area_struct));
	struct file *file = vma->vm_file;

	out->start = vma->vm_start;
	out->end = vma->vm_end;
	out->page_offset = vma->vm_pgoff;
	*mm = (__u64)vma->vm_mm;
	*flags = vma->vm_flags;
	if (file) {
		struct inode *inode = file->f_inode;

		__u64 seconds, nanoseconds;

		if (HAS_SPLIT_TIMES) {
			seconds = inode->i_mtime_sec;
			nanoseconds = inode->i_mtime_nsec;
		} else if (HAS_PRIVATE_TIMES) {
			seconds = inode->__i_mtime.tv_sec;
			nanoseconds = inode->__i_mtime.tv_nsec;
		} else {
			seconds = inode->i_mtime.tv_sec;
			nanoseconds = inode->i_mtime.tv_nsec;
		}
		out->inode = inode->i_ino;
		out->generation = content_generation(inode->i_generation, seconds, nanoseconds);
		out->device = inode->i_sb->s_dev;
		out->flags = MAPPING_FILE;
	}
}

#define COPIED(type, member) (*(__u64 *)(copy + (bpf_core_field_offset(((type *)0)->member) & 248)))

/* Reads a mapping by copies: first the vm_area_struct in one copy (it always had less than 256 bytes), then file, inode, file system. */
static __always_inline int read_mapping_copied(
	__u64 at, struct mapping *out, __u64 *mm, __u64 *flags, struct vma_scratch *scratch)
{
	char *copy = (char *)scratch->words;
	__u64 file, inode = 0, super = 0, seconds = 0, nanoseconds = 0;
	long failed;

	/* Not beyond the end of the structure: memory may end there. */
	if (bpf_probe_read_kernel(copy, bpf_core_type_size(struct vm_area_struct) & 255, (void *)at))
		return MAPPING_UNREADABLE;
	out->start = COPIED(struct vm_area_struct, vm_start);
	out->end = COPIED(struct vm_area_struct, vm_end);
	out->page_offset = COPIED(struct vm_area_struct, vm_pgoff);
	*mm = COPIED(struct vm_area_struct, vm_mm);
	*flags = COPIED(struct vm_area_struct, vm_flags);
	file = COPIED(struct vm_area_struct, vm_file);
	if (!file)
		return 0;
#define READ(to, from, type, member) \
	bpf_probe_read_kernel(&(to), sizeof(to), (char *)(from) + bpf_core_field_offset(((type *)0)->member))
	failed = READ(inode, file, struct file, f_inode);
	failed |= READ(out->inode, inode, struct inode, i_ino);
	failed |= READ(out->generation, inode, struct inode, i_generation);
	if (HAS_SPLIT_TIMES) {
		__u32 split = 0;

		failed |= READ(seconds, inode, struct inode, i_mtime_sec);
		failed |= READ(split, inode, struct inode, i_mtime_nsec);
		nanoseconds = split;
	} else if (HAS_PRIVATE_TIMES) {
		failed |= READ(seconds, inode, struct inode, __i_mtime.tv_sec);
		failed |= READ(nanoseconds, inode, struct inode, __i_mtime.tv_nsec);
	} else {
		failed |= READ(seconds, inode, struct inode, i_mtime.tv_sec);
		failed |= READ(nanoseconds, inode, struct inode, i_mtime.tv_nsec);
	}
	out->generation = content_generation(out->generation, seconds, nanoseconds);
	failed |= READ(super, inode, struct inode, i_sb);
	failed |= READ(out->device, super, struct super_block, s_dev);
#undef READ
	out->flags = MAPPING_FILE;
	return failed ? MAPPING_UNREADABLE : 0;
}

/* Searches once. If out->flags has MAPPING_STABLE, the answer is final and may be kept. Without it, another search may find a mapping. */
static __always_inline int search_once(
	const struct address_space *space, __u64 address, struct mapping *out, int in_place, struct vma_scratch *scratch)
{
	__u64 root_at = HAS_MAPLE_TREE ? bpf_core_field_offset(((struct mm_struct *)0)->mm_mt.ma_root) : 0;
	struct mm_struct *mm = (struct mm_struct *)space->mm;
	__u64 vma, owner, flags;
	__u32 before, after;
	int result;

	__builtin_memset(out, 0, sizeof(*out));
	if (!mm)
		return MAPPING_NO_MM;
	/* No process maps kernel addresses or tagged addresses. below() needs addresses less than 2^63. */
	if (address >> 56)
		return MAPPING_NONE;
	if (in_place) {
		mm = bpf_rdonly_cast(mm, bpf_core_type_id_kernel(struct mm_struct));
		before = mapping_sequence(mm);
		vma = find_in_maple_tree(word_at(space->mm + root_at), address, 1, scratch, &result);
	} else if (HAS_MAPLE_TREE) {
		__u64 root = 0;

		before = copied_sequence(mm);
		bpf_probe_read_kernel(&root, sizeof(root), (char *)mm + root_at);
		vma = find_in_maple_tree(root, address, 0, scratch, &result);
	} else {
		before = copied_sequence(mm);
		vma = find_in_rbtree(mm, address, scratch, &result);
	}
	if (vma) {
		result = 0;
		if (in_place)
			read_mapping_in_place(vma, out, &owner, &flags);
		else
			result = read_mapping_copied(vma, out, &owner, &flags, scratch);
		if (!result && (owner != space->mm || address < out->start || address >= out->end))
			result = MAPPING_TORN;
		if (!result && flags & VM_EXEC)
			out->flags |= MAPPING_EXECUTABLE;
	}
	after = in_place ? mapping_sequence(mm) : copied_sequence(mm);
	/* No writer was active, so the result is right. (Where only ends of writing are counted, a writer may be active. But then the
	 * count changes before user code can run at a new mapping, which drops the cached answer.) */
	if (space->has_sequence && before == after && before == space->sequence && !(HAS_LOCK_SEQCOUNT && (before & 1)))
		out->flags |= MAPPING_STABLE;
	if (!vma || result)
		return result;
	if (!(out->flags & MAPPING_EXECUTABLE))
		return MAPPING_NOT_EXECUTABLE;
	if (out->flags & MAPPING_FILE)
		return MAPPING_FOUND;
	__u64 vdso = vdso_of(space);
	return vdso && out->start == vdso ? MAPPING_VDSO : MAPPING_ANONYMOUS;
}

/* Searches in place, for 6.2 and later. Global, so that it is verified once and not at each of a thousand frames. */
__noinline int search_in_place(const struct address_space *space, __u64 address, struct mapping *out)
{
	/* Before 6.8 global functions are verified even if they are never called. */
	if (!CAN_READ_IN_PLACE || !space || !out)
		return MAPPING_UNREADABLE;
	return search_once(space, address, out, 1, NULL);
}

/* Searches by copies, for every kernel. Global for the same reason. */
__noinline int search_by_copies(
	const struct address_space *space, __u64 address, struct mapping *out, struct vma_scratch *scratch)
{
	if (!space || !out || !scratch)
		return MAPPING_UNREADABLE;
	return search_once(space, address, out, 0, scratch);
}

/*
 * Finds the mapping of an address, and searches again if a writer interferes. An answer is final at once if no writer was active.
 * Otherwise a second search must give the same answer: a mapping is several words, and a writer on another CPU changes them one by
 * one. "Nothing is mapped" is accepted after the last attempt.
 */
static __always_inline int find_mapping_by(
	const struct address_space *space, __u64 address, struct mapping *out, int in_place, struct vma_scratch *scratch)
{
	__u64 start = 0, end = 0, page_offset = 0, inode = 0;
	int result = MAPPING_TORN;

	for (int attempt = 0; attempt < MAPPING_ATTEMPTS; attempt++) {
		result = in_place ? search_in_place(space, address, out) : search_by_copies(space, address, out, scratch);
		if (out->flags & MAPPING_STABLE || result == MAPPING_NO_MM)
			return result;
		if (result >= MAPPING_NOT_EXECUTABLE)
			continue;
		if (end && out->start == start && out->end == end && out->page_offset == page_offset && out->inode == inode)
			return result;
		start = out->start;
		end = out->end;
		page_offset = out->page_offset;
		inode = out->inode;
	}
	return result < MAPPING_NOT_EXECUTABLE ? MAPPING_TORN : result;
}

/*
 * Finds the mapping at `address`. Returns an enum mapping_result, and the mapping in `out` if there is one.
 *
 * `space` was read in this sample. `scratch` is used on kernels before 6.2; no other program on this CPU may use it meanwhile. Global, so
 * that it is verified once.
 */
__noinline int find_mapping(const struct address_space *space, __u64 address, struct mapping *out, struct vma_scratch *scratch)
{
	if (!space || !out || !scratch)
		return MAPPING_UNREADABLE;
	if (CAN_READ_IN_PLACE && !bpf_core_field_offset(((struct vm_area_struct *)0)->vm_start))
		return find_mapping_by(space, address, out, 1, NULL);
	return find_mapping_by(space, address, out, 0, scratch);
}

#endif
