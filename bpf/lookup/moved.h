/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Code that a program has copied from its file to anonymous memory at the same addresses, to have it in large pages: node
 * --use-largepages, and programs that use such a library.
 *
 *   00400000-00401000 r--p 00000000  /opt/node
 *   00401000-00e00000 r-xp           anonymous   where bytes of the file would be, if the mapping behind it began earlier:
 *   00e00000-00e40000 r-xp 00a00000  /opt/node   it may hold code of that file
 *
 *   no entry in `moved`    the walk asks user space. The code has no table until the answer comes.
 *   an entry in `moved`    the table of the file counts. `beside` lies in a mapping of the file. `offset` counts from the begin of the file.
 *
 * User space compares the memory with the file (src/collector/processes/moved_file.rs). If the memory holds other code, the mapping is not
 * cached: each look-up costs a search. All other anonymous memory is cached.
 */
#ifndef FLAMETOP_MOVED_H
#define FLAMETOP_MOVED_H

#include "../record.h"
#include "mappings.h"

/* Anonymous mapping → its file. Preallocated: before 6.1, perf_event programs may use no other hash map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_MOVED);
	__type(key, struct moved_place);
	__type(value, struct moved_text);
} moved SEC(".maps");

/* Padding between two segments, at most a page of 64 KiB: they are further apart in memory than in the file. */
#define MOST_PADDING 0x10000

enum moved_state {
	MOVED_NOT = 0, /* no file is behind it */
	MOVED_FROM_FILE = 1,
	MOVED_IS_OTHER = 2, /* a file is behind it, but it holds other code */
	MOVED_UNKNOWN = 3, /* user space has to be asked */
};

/* Finds the mapping of a file at an address, executable or not. Returns whether there is one. */
static __always_inline int find_file(
	const struct address_space *space, __u64 address, struct mapping *out, struct vma_scratch *scratch)
{
	int result = find_mapping(space, address, out, scratch);

	return (result == MAPPING_FOUND || result == MAPPING_NOT_EXECUTABLE) && out->flags & MAPPING_FILE;
}

/*
 * Finds the file whose code an anonymous mapping of the process holds. If the result is MOVED_FROM_FILE, `file` is a mapping of that
 * file, and `offset` is where in the file the anonymous mapping begins.
 */
static __always_inline enum moved_state find_moved(const struct address_space *space, __u32 tgid, const struct mapping *anonymous,
						   struct mapping *file, __u64 *offset, struct vma_scratch *scratch)
{
	struct moved_place place = { .start = anonymous->start, .tgid = tgid };
	struct moved_text *text = bpf_map_lookup_elem(&moved, &place);

	if (text) {
		*offset = text->offset;
		return text->beside && find_file(space, text->beside, file, scratch) ? MOVED_FROM_FILE : MOVED_IS_OTHER;
	}
	if (!find_file(space, anonymous->end, file, scratch))
		return MOVED_NOT;
	/* New mappings are put right below the last one, mostly a library, which is mapped from its begin. */
	int has_room = file->page_offset && (file->page_offset << 12) + MOST_PADDING >= anonymous->end - anonymous->start;

	return has_room ? MOVED_UNKNOWN : MOVED_NOT;
}

#endif
