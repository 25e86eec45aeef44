/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Pages of the current process, read where the kernel has all memory: its direct map (Documentation/arch/x86/x86_64/mm.rst).
 *
 *   address ─► pgd ─► (p4d ─►) pud ─► pmd ─┬─► pte ─► place in memory + direct_map = 4 KiB that the walk may read
 *              512 entries each            └────────► the same of 2 MiB
 *
 * A word of the stack is a plain load then. Loads of which none waits for another are under way together, and what the processor has to
 * translate is one large page instead of many small ones; copies by bpf_probe_read_user() come one after the other, and wait.
 *
 * Why a page stays where it is meanwhile: who takes one from a process, or frees a table, first has all CPUs that run the process forget
 * the translation, and a CPU answers when its interrupts are on. The clock's program runs with interrupts off, and
 * get_user_pages_fast() of the kernel counts on the same. Programs at events may be interrupted, and copy. (Processors that tell one
 * another without interrupts, AMD's INVLPGB, and hypervisors that answer for a CPU which they have put aside do not wait: a page that
 * is taken from its owner in that very microsecond may have other words already. A word is a return address only where code is mapped.)
 *
 * Where the direct map begins no interface tells, and it differs from boot to boot: user space asks find_direct_map() for words of
 * its own (src/collector/direct_map.rs).
 *
 * Promises: an address that the process itself cannot read leads nowhere; no fault; four loads for the first of 2 MiB, one for each
 * page. Owed by the caller: interrupts are off, and the process is the current one. x86_64, 6.2 and later; elsewhere pgd stays 0.
 */
#ifndef FLAMETOP_DIRECT_H
#define FLAMETOP_DIRECT_H

#include "tables.h"

/* Entries of tables: arch/x86/include/asm/pgtable_types.h, but for ENTRY_SPECIAL the processor's. */
#define ENTRY_PRESENT (1ULL << 0)
#define ENTRY_USER (1ULL << 2)
#define ENTRY_LARGE (1ULL << 7) /* not in tables of 4 KiB */
#define ENTRY_SPECIAL (1ULL << 9) /* a device's, which the direct map lacks */
/* 64 TiB, all that four levels have room for. Bits above say how memory is encrypted, and more. */
#define ENTRY_PLACE 0x00003ffffffff000ULL

#define PAGE_SHIFT 12
#define PMD_SHIFT 21
#define PUD_SHIFT 30
#define P4D_SHIFT 39
#define PGDIR_SHIFT_OF_5 48
#define LOW_BITS(shift) ((1ULL << (shift)) - 1)

static __always_inline __u64 table_entry(__u64 table, __u64 address, __u32 shift)
{
	return word_at(table + (address >> shift & 511) * 8);
}

/* Where the table is that an entry leads to; 0: nowhere. */
static __always_inline __u64 next_table(__u64 direct_map, __u64 entry)
{
	if ((entry & (ENTRY_PRESENT | ENTRY_USER | ENTRY_LARGE)) != (ENTRY_PRESENT | ENTRY_USER))
		return 0;
	return direct_map + (entry & ENTRY_PLACE);
}

static __always_inline int is_memory(__u64 entry)
{
	return (entry & (ENTRY_PRESENT | ENTRY_USER | ENTRY_SPECIAL)) == (ENTRY_PRESENT | ENTRY_USER);
}

/* The entry of the 2 MiB that an address of user space lies in; 0: there is none. */
static __always_inline __u64 pmd_entry(__u64 direct_map, __u32 levels, __u64 pgd, __u64 address)
{
	__u64 table = pgd;

	if (levels == 5 && !(table = next_table(direct_map, table_entry(table, address, PGDIR_SHIFT_OF_5))))
		return 0;
	if (!(table = next_table(direct_map, table_entry(table, address, P4D_SHIFT))))
		return 0;
	if (!(table = next_table(direct_map, table_entry(table, address, PUD_SHIFT))))
		return 0;
	return table_entry(table, address, PMD_SHIFT);
}

/* The place in the direct map that an address of 2 MiB with this entry has, and the shift of its page's size; 0: none. */
static __always_inline __u64 place_of(__u64 direct_map, __u64 entry, __u64 address, __u32 *shift)
{
	__u64 table;

	if (entry & ENTRY_LARGE && is_memory(entry)) {
		*shift = PMD_SHIFT;
		return direct_map + (entry & ENTRY_PLACE & ~LOW_BITS(PMD_SHIFT)) + (address & LOW_BITS(PMD_SHIFT));
	}
	table = next_table(direct_map, entry);
	if (!table)
		return 0;
	entry = table_entry(table, address, PAGE_SHIFT);
	if (!is_memory(entry))
		return 0;
	*shift = PAGE_SHIFT;
	return direct_map + (entry & ENTRY_PLACE) + (address & LOW_BITS(PAGE_SHIFT));
}

/* Makes the page of an address the walk's window. Whether it can be read so. */
static __always_inline int enter_page(struct walk *walk, __u64 address)
{
	__u32 shift = PAGE_SHIFT;
	__u64 place;

	if (address >> PMD_SHIFT != walk->pmd_number) {
		/* Higher than any process's of four levels; of five it is one that asked for it. */
		walk->pmd = address >> 47 ? 0 : pmd_entry(walk->direct_map, walk->direct_levels, walk->pgd, address);
		walk->pmd_number = address >> PMD_SHIFT;
	}
	place = place_of(walk->direct_map, walk->pmd, address, &shift);
	if (!place)
		return 0;
	walk->window = place & ~LOW_BITS(shift);
	walk->window_at = address & ~LOW_BITS(shift);
	walk->window_bytes = 1ULL << shift;
	return 1;
}

/* What user space asks: at which multiple of 1 GiB does the direct map begin? */
struct direct_map_question {
	__u64 address; /* of two words of its own, in one page */
	__u64 words[2]; /* that nobody else has */
	__u64 farthest; /* how many GiB the process's pgd may lie behind that begin, at most */
};
/* Begins that are tried at one time: from `farthest` on, nearer by 1 GiB each. */
#define DIRECT_MAP_TRIES 64
_Static_assert(sizeof(struct direct_map_question) == 32, "see direct_map.rs");

/* Global, so that it is verified once. */
__noinline int leads_to_words(__u64 direct_map, __u32 levels, __u64 pgd, const struct direct_map_question *question)
{
	__u32 shift;
	__u64 address, place;

	if (!CAN_READ_IN_PLACE || !question)
		return 0;
	address = question->address;
	place = place_of(direct_map, pmd_entry(direct_map, levels, pgd, address), address, &shift);
	return place && word_at(place) == question->words[0] && word_at(place + 8) == question->words[1];
}

#endif
