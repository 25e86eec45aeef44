// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What addresses of the kernel are called: asked of the kernel itself, a batch at a time, by user space (BPF_PROG_RUN).
 *
 * Loads on 5.15 and later. Owes user space: for each address of the batch, what the kernel's own "%ps" prints of it: `name`,
 * `name [module]`, or the address in hexadecimal where there is no symbol. (Reading all of /proc/kallsyms takes some 30 ms of
 * system time for 120,000 names, of which a profile shows a few hundred.)
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct kernel_names)); /* not its type: libbpf-cargo cannot write one with such arrays */
} batch SEC(".maps");

SEC("syscall")
int name_addresses(void *ctx)
{
	static const char format[] = "%ps";
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
