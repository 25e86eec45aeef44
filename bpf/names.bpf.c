// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Names of kernel addresses, and bytes of kernel code. User space runs these programs (BPF_PROG_RUN) to ask the kernel itself.
 *
 * Loads on 5.15 and later.
 *
 * name_addresses() gives user space, for each address of the batch, the text that the kernel's own "%pS" prints: `name+0x12/0x345`,
 * which is the offset in the function and its size. A function of a module is followed by ` [module]`. An address without a symbol is
 * printed in hexadecimal. The alternative, reading all of /proc/kallsyms, takes about 30 ms of system time for 120,000 names; a profile
 * shows a few hundred.
 *
 * read_code() gives the current bytes of a piece of code, with all changes that the kernel has made to its instructions since it
 * started. It reads code of modules and BPF programs as well. /proc/kcore has the same bytes, where it exists.
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
