// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What addresses of the kernel are called, and the code that is there: asked of the kernel itself, by user space (BPF_PROG_RUN).
 *
 * Loads on 5.15 and later. Owes user space: for each address of the batch, what the kernel's own "%pS" prints of it:
 * `name+0x12/0x345`, the offset in the function and its size, with ` [module]` behind it for a module's; or the address in
 * hexadecimal where there is no symbol. (Reading all of /proc/kallsyms takes some 30 ms of system time for 120,000 names, of which
 * a profile shows a few hundred.) And for a piece of code its bytes as they are now: with what the kernel has written over its
 * instructions since it began, and of modules and BPF programs too. /proc/kcore has the same, where there is one.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct kernel_names)); /* not its type: libbpf-cargo cannot write one with such arrays */
} batch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct kernel_code));
} code SEC(".maps");

SEC("syscall")
int name_addresses(void *ctx)
{
	static const char format[] = "%pS";
	__u32 zero = 0;
	struct kernel_names *names = bpf_map_lookup_elem(&batch, &zero);

	if (!names)
		return 1;
	for (__u32 i = 0; i < KERNEL_NAMES && i < names->count; i++) {
		__u64 address = names->addresses[i];

		bpf_snprintf(names->names[i], sizeof(names->names[i]), format, &address, sizeof(address));
	}
	return 0;
}

SEC("syscall")
int read_code(void *ctx)
{
	__u32 zero = 0;
	struct kernel_code *piece = bpf_map_lookup_elem(&code, &zero);

	if (!piece)
		return 1;
	__u32 size = piece->size;

	if (size > KERNEL_CODE_BYTES)
		return 1;
	piece->failed = bpf_probe_read_kernel(piece->bytes, size, (const void *)piece->address) != 0;
	return 0;
}
