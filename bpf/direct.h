/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Pages of the current process, read where the kernel has all memory: its direct map (Documentation/arch/x86/x86_64/mm.rst).
 *
 *   address ─► pgd ─► (p4d ─►) pud ─► pmd ─┬─► pte ─► place in memory + begin of the direct map = 4 KiB that the walk may read
 *              512 entries each            └────────► the same of 2 MiB
 *
 * A word of the stack is a plain load then. Loads of which none waits for another are under way together, and what the processor has to
 * translate is one large page instead of many small ones; copies by bpf_probe_read_user() come one after the other, and wait.
 *
 * Why a page stays where it is meanwhile: who takes one from a process, or frees a table, first has all CPUs that run the process forget
 * the translation, and a CPU answers when its interrupts are on. The clock's program runs with interrupts off, and
 * get_user_pages_fast() of the kernel counts on the same. While the kernel switches to another process, a
 * CPU may count as one that runs it already; a cycle counter's tick, an NMI, may come just then. Its first piece of the stack is copied:
 * the kernel copies none then (nmi_uaccess_okay(), since 6.3). Programs at events may be interrupted, and copy. (Processors that tell
 * one another without interrupts, AMD's INVLPGB, and hypervisors that answer for a CPU which they have put aside do not wait: a page that
 * is taken from its owner in that very microsecond may have other words already. A word is a return address only where code is mapped.)
 *
 * Where the direct map begins differs from boot to boot. User space knows it, or guesses (src/collector/direct_map.rs), and
 * find_direct_map() in sampler.bpf.c proves it by words of user space's own memory.
 *
 * Promises: nothing is read through an entry that does not let the process read, or beyond the end of memory (what a protection
 * key alone denies is read); a place that is not mapped reads as 0. Owed by the caller: interrupts are off, and in an NMI a copy came
 * first. x86_64, 6.2 and later; elsewhere pgd stays 0.
 */
#ifndef FLAMETOP_DIRECT_H
#define FLAMETOP_DIRECT_H

#include "tables.h"

/* Entries of tables: arch/x86/include/asm/pgtable_types.h, but for ENTRY_SPECIAL the processor's. */
#define ENTRY_PRESENT (1ULL << 0)
#define ENTRY_USER (1ULL << 2)
#define ENTRY_LARGE (1ULL << 7) /* not in tables of 4 KiB */
#define ENTRY_SPECIAL (1ULL << 9) /* a device's, which the direct map lacks */
/* 64 TiB, all that four levels have room for; and places beyond. (Bits 47 and 51 say how memory is encrypted.) */
#define ENTRY_PLACE 0x00003ffffffff000ULL
#define ENTRY_BEYOND (1ULL << 46 | 7ULL << 48)

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

/* Where the kernel has the memory that an entry is about, if it is of no device; 0: nowhere. */
static __always_inline __u64 place_of(const struct direct_map *map, __u64 entry, __u64 low_bits)
{
	__u64 place = entry & ENTRY_PLACE & ~low_bits;

	if ((entry & (ENTRY_PRESENT | ENTRY_USER | ENTRY_SPECIAL | ENTRY_BEYOND)) != (ENTRY_PRESENT | ENTRY_USER) || place >= map->end)
		return 0;
	return map->begin + place;
}

/* Where the table is that an entry leads to; 0: nowhere. */
static __always_inline __u64 next_table(const struct direct_map *map, __u64 entry)
{
	return entry & ENTRY_LARGE ? 0 : place_of(map, entry, 0);
}

/* The entry of the 2 MiB that an address of user space lies in; 0: there is none. */
static __always_inline __u64 pmd_entry(const struct direct_map *map, __u64 pgd, __u64 address)
{
	__u64 table = pgd;

	if (map->levels == 5 && !(table = next_table(map, table_entry(table, address, PGDIR_SHIFT_OF_5))))
		return 0;
	if (!(table = next_table(map, table_entry(table, address, P4D_SHIFT))))
		return 0;
	if (!(table = next_table(map, table_entry(table, address, PUD_SHIFT))))
		return 0;
	return table_entry(table, address, PMD_SHIFT);
}

/* Where the kernel has the page of an address, by the entry of its 2 MiB, and the shift of the page's size; 0: nowhere. */
static __always_inline __u64 page_of(const struct direct_map *map, __u64 entry, __u64 address, __u32 *shift)
{
	__u64 table;

	if (entry & ENTRY_LARGE) {
		*shift = PMD_SHIFT;
		return place_of(map, entry, LOW_BITS(PMD_SHIFT));
	}
	table = next_table(map, entry);
	*shift = PAGE_SHIFT;
	return table ? place_of(map, table_entry(table, address, PAGE_SHIFT), 0) : 0;
}

/* Makes the page of an address the walk's window. Whether it can be read so. */
static __always_inline int enter_page(struct walk *walk, __u64 address)
{
	__u32 shift;
	__u64 page;

	if (address >> PMD_SHIFT != walk->pmd_number) {
		/* Higher than any process's of four levels; of five it is one that asked for it. */
		walk->pmd = address >> 47 ? 0 : pmd_entry(&walk->direct, walk->pgd, address);
		walk->pmd_number = address >> PMD_SHIFT;
	}
	page = page_of(&walk->direct, walk->pmd, address, &shift);
	if (!page)
		return 0;
	walk->window = page;
	walk->window_at = address & ~LOW_BITS(shift);
	walk->window_bytes = 1ULL << shift;
	return 1;
}

/* What user space asks: do these words lie at this address, if the direct map is this? */
struct direct_map_question {
	__u64 address; /* of two words of its own, in one page */
	__u64 words[2]; /* that nobody else has */
	struct direct_map map;
};
_Static_assert(sizeof(struct direct_map_question) == 48, "see direct_map.rs");

/* The answer. Global, so that it is verified once. */
__noinline int leads_to_words(__u64 pgd, const struct direct_map_question *question)
{
	__u32 shift;
	__u64 address, page;

	if (!CAN_READ_IN_PLACE || !question)
		return 0;
	address = question->address;
	page = page_of(&question->map, pmd_entry(&question->map, pgd, address), address, &shift);
	if (!page)
		return 0;
	page += address & LOW_BITS(shift);
	return word_at(page) == question->words[0] && word_at(page + 8) == question->words[1];
}

#endif
