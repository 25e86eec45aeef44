/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types, numbers and flags that our programs use, instead of a vmlinux.h of 100,000 lines.
 *
 * Structures hold only the members we read. preserve_access_index makes each access a CO-RE relocation, so libbpf inserts the
 * offsets of the running kernel. Numbers and flags belong to the kernel's user interface and never change, except where noted.
 */
#ifndef FLAMETOP_KERNEL_H
#define FLAMETOP_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
/* bpf_helper_defs.h names these in prototypes of network helpers. */
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#define NULL ((void *)0)

/* enum bpf_map_type of include/uapi/linux/bpf.h */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LPM_TRIE 11
#define BPF_MAP_TYPE_ARRAY_OF_MAPS 12
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_MAP_TYPE_TASK_STORAGE 29

/* Flags of maps, bpf_map_update_elem, bpf_task_storage_get, bpf_get_stack, bpf_ringbuf_output and bpf_ringbuf_query. */
#define BPF_ANY 0
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)
#define BPF_F_MMAPABLE (1ULL << 10)
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_RB_NO_WAKEUP (1ULL << 0)
#define BPF_RB_FORCE_WAKEUP (1ULL << 1)
#define BPF_RB_AVAIL_DATA 0

/*
 * Bits of task_struct::flags in include/linux/sched.h. They are no user interface, but have kept their values for ten years.
 * PF_USER_WORKER is newer (6.4); before 5.17 its bit meant "used async init", see walk_user.
 */
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

/* A bit of task_struct::__state: include/linux/sched.h. */
#define TASK_UNINTERRUPTIBLE 0x00000002

/* Flags of clone: include/uapi/linux/sched.h. */
#define CLONE_VM 0x00000100
#define CLONE_VFORK 0x00004000

/* vm_area_struct::vm_flags of include/linux/mm.h: not a user interface, but the same since 1.0. */
#define VM_EXEC 0x00000004UL

/* The counter of bpf_for, 6.4 and later: enum of include/uapi/linux/bpf.h. */
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

/*
 * One struct has the fields of all kernels. libbpf finds each field by its name, and programs ask first whether this kernel has it. For
 * each struct, libbpf searches all types of the kernel, which takes 0.8 ms. So a struct is missing here if a helper knows the same, or if
 * its layout never changed.
 */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_generation;
	struct timespec64 i_mtime; /* up to 6.6 */
	struct timespec64 __i_mtime; /* 6.7 to 6.10 */
	__s64 i_mtime_sec; /* 6.11 */
	__u32 i_mtime_nsec;
};

struct file {
	struct inode *f_inode;
};

struct dentry {
	struct super_block *d_sb;
};

struct path {
	struct dentry *dentry;
};

struct fs_struct {
	struct path root;
};

struct ns_common {
	unsigned int inum;
};

/* kuid_t: the number of a user in the initial user namespace. */
typedef struct {
	__u32 val;
} kuid_t;

struct user_namespace {
	int level; /* 0: the initial one */
	kuid_t owner;
	struct user_namespace *parent;
	struct ns_common ns;
};

struct cred {
	kuid_t uid;
	struct user_namespace *user_ns;
};

/* Its fields are read by their places: see RB_RIGHT. */
struct rb_node {
	unsigned long parent_and_colour;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct maple_tree {
	void *ma_root;
};

typedef struct {
#if defined(__TARGET_ARCH_x86)
	__u64 ctx_id; /* never given twice: arch/x86/include/asm/mmu.h */
#else
	struct {
		__s64 counter;
	} id; /* ASID and its generation: arch/arm64/include/asm/mmu.h */
#endif
	void *vdso;
} mm_context_t;

/* The page that the kernel maps into a process for the instructions of uprobes. */
struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

/* A call whose return address a uretprobe has exchanged. */
struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe;

struct uprobe_task {
	struct return_instance *return_instances;
	unsigned long vaddr; /* of the instruction that is run */
	struct uprobe *active_uprobe;
	unsigned long xol_vaddr; /* and where */
};

struct mm_struct {
	struct rb_root mm_rb; /* up to 6.0, and the next */
	__u64 vmacache_seqnum;
	struct maple_tree mm_mt; /* 6.1 */
	int mm_lock_seq; /* 6.4 to early 6.12 */
	unsigned long start_stack;
	__u64 *pgd;
	mm_context_t context;
	struct uprobes_state uprobes_state;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
	struct rb_node vm_rb; /* up to 6.0 */
};

struct seqcount {
	unsigned int sequence;
};

/* A struct mm_struct whose mm_lock_seq has another type. libbpf ignores ___ and the rest of the name. */
struct mm_struct___lock_seqcount { /* 6.13, late 6.12 */
	struct seqcount mm_lock_seq;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#else
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};

typedef struct {
	__u64 pte;
} pte_t;

/* State of a page fault that the kernel is handling: a variable on its stack. */
struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long address; /* of the page */
	unsigned long real_address; /* 5.17 */
	pte_t orig_pte;
	pte_t *pte;
};
#endif

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

/* How long a task has waited for a CPU. Absent from kernels without CONFIG_SCHED_INFO. */
struct sched_info {
	unsigned long long run_delay;
};

/* The queue of a cgroup on a CPU. */
struct cfs_rq {
	int throttle_count; /* above 0: the cgroup, or one above it, has used up its CPU time */
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	char comm[16];
	struct css_set *cgroups;
	unsigned int flags;
	int pid;
	int tgid;
	int on_cpu;
	unsigned int __state;
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	const struct cred *real_cred;
	struct fs_struct *fs;
	struct uprobe_task *utask;
	unsigned int in_execve : 1;
	unsigned int in_iowait : 1;
	struct thread_struct thread;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

/* The context of an iterator over tasks. */
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task; /* NULL at the end */
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs { /* the others are read by their places: arch/x86.h */
	unsigned long ip;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0;
	int syscallno;
};
#else
#error "flametop knows the registers of x86_64 and arm64 only"
#endif

#pragma clang attribute pop

/* struct bpf_perf_event_data of include/uapi/linux/bpf_perf_event.h: the registers' size is the architecture's. */
struct perf_event_context {
#if defined(__TARGET_ARCH_x86)
	__u64 registers[21];
#else
	__u64 registers[34];
#endif
	__u64 sample_period;
	__u64 address;
};

#endif
