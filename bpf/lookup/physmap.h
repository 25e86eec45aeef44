/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads pages of the current process in place: in the kernel's direct map of all memory (Documentation/arch/x86/x86_64/mm.rst).
 *
 *   address ─► pgd ─► (p4d ─►) pud ─► pmd ─┬─► pte ─► place in memory + begin of the direct map = 4 KiB that the walk may read
 *              512 entries each            └────────► the same, 2 MiB
 *
 * Then a word of the stack is a plain load. Independent loads overlap, and the processor translates one large page instead of many
 * small pages. Copies by bpf_probe_read_user() come one after the other, and each waits.
 *
 * Reading page tables is safe. The kernel frees them by RCU, or after an interrupt on each CPU that may be reading them. Both wait for us:
 * the clock's program runs with interrupts off. The kernel's get_user_pages_fast() relies on this as well.
 *
 * There is one exception: an NMI (a tick of the cycle counter) may come while the kernel switches to another process. The CPU may then
 * already count as running that process. So in an NMI the first piece of the stack is copied: the kernel refuses to copy during a switch
 * (nmi_uaccess_okay(), since 6.3). Before 6.3, NMIs always copy. Programs at events may be interrupted, and always copy.
 *
 * Reading pages needs a check. To take a page from a process, the kernel clears its entry, has all CPUs that run the process flush the
 * translation, and only then frees the page. The flush usually is an interrupt, which waits for us. It is none with AMD's INVLPGB, and in
 * guests that call the hypervisor for it (Hyper-V always; KVM for a CPU that does not run). Then a page may have a new owner while it is
 * read. So the walk reads the entries again after the words, as get_user_pages_fast() does: leave_page(). If an entry has changed, the
 * words are discarded, and the stack is walked again from copies.
 *
 * A page of memory that has failed is not caught. Loading from it is a machine check: in the kernel it stops the machine, in a copy it
 * would end the process only. So memory is not read in place once /proc/meminfo counts failed memory (sampler.rs looks once a minute).
 *
 * The begin of the direct map differs from boot to boot. User space knows it, or guesses it (src/collector/sys/direct_map.rs).
 * find_direct_map() in sampler.bpf.c proves it: it must lead to words that user space has written to its own memory.
 *
 * Promises: a page is read only if its entries let the process read it. Pages that only a protection key denies are read. Nothing is
 * read beyond the end of memory. A place that is not mapped reads as 0. If a page was taken away, walk->moved is set.
 *
 * The caller ensures that interrupts are off and that in an NMI a copy came first. It drops the frames if walk->moved is set.
 *
 * Used on x86_64, 6.2 and later. Elsewhere pgd stays 0.
 */
#ifndef FLAMETOP_DIRECT_H
#define FLAMETOP_DIRECT_H

#include "tables.h"

/* Bits of table entries: arch/x86/include/asm/pgtable_types.h. The processor defines all except ENTRY_SPECIAL. */
#define ENTRY_PRESENT (1ULL << 0)
#define ENTRY_USER (1ULL << 2)
#define ENTRY_LARGE (1ULL << 7) /* not in tables of 4 KiB */
#define ENTRY_SPECIAL (1ULL << 9) /* a device's, which the direct map lacks */
/* 64 TiB, the most that four levels can map. Higher bits mean a place beyond that, or encrypted memory: see direct_map::beyond. */
#define ENTRY_PLACE 0x00003ffffffff000ULL
/* The bits that must be the same after a page was read. Accessed, dirty and writable may change. */
#define ENTRY_COMPARED (ENTRY_PLACE | 0x3fULL << 46 | ENTRY_PRESENT | ENTRY_USER | ENTRY_LARGE | ENTRY_SPECIAL)

#define PAGE_SHIFT 12
#define PMD_SHIFT 21
#define PUD_SHIFT 30
#define P4D_SHIFT 39
#define PGDIR_SHIFT_OF_5 48
#define LOW_BITS(shift) ((1ULL << (shift)) - 1)

static __always_inline __u64 entry_place(__u64 table, __u64 address, __u32 shift)
{
	return table + (address >> shift & 511) * 8;
}

static __always_inline __u64 table_entry(__u64 table, __u64 address, __u32 shift)
{
	return word_at(entry_place(table, address, shift));
}

/* Returns the address in the direct map of the memory that an entry maps. 0: there is none, or it belongs to a device. */
static __always_inline __u64 place_of(const struct direct_map *map, __u64 entry, __u64 low_bits)
{
	__u64 place = entry & ENTRY_PLACE & ~low_bits;

	if ((entry & (ENTRY_PRESENT | ENTRY_USER | ENTRY_SPECIAL | map->beyond)) != (ENTRY_PRESENT | ENTRY_USER) || place >= map->end)
		return 0;
	return map->begin + place;
}

/* Returns the address of the table that an entry points to; 0: there is none. */
static __always_inline __u64 next_table(const struct direct_map *map, __u64 entry)
{
	return entry & ENTRY_LARGE ? 0 : place_of(map, entry, 0);
}

/* Returns the place of the entry for the 2 MiB around an address of user space; 0: there is none. */
static __always_inline __u64 pmd_place(const struct direct_map *map, __u64 pgd, __u64 address)
{
	__u64 table = pgd;

	if (map->levels == 5 && !(table = next_table(map, table_entry(table, address, PGDIR_SHIFT_OF_5))))
		return 0;
	if (!(table = next_table(map, table_entry(table, address, P4D_SHIFT))))
		return 0;
	if (!(table = next_table(map, table_entry(table, address, PUD_SHIFT))))
		return 0;
	return entry_place(table, address, PMD_SHIFT);
}

/*
 * Returns the address of a page in the direct map, and the shift of the page's size; 0: there is none. `at` is the place of an entry
 * and `entry` is its content: on call, of the 2 MiB around the address; on return, of the address's page.
 */
static __always_inline __u64 page_of(const struct direct_map *map, __u64 *at, __u64 *entry, __u64 address, __u32 *shift)
{
	__u64 table;

	if (*entry & ENTRY_LARGE) {
		*shift = PMD_SHIFT;
		return place_of(map, *entry, LOW_BITS(PMD_SHIFT));
	}
	table = next_table(map, *entry);
	*shift = PAGE_SHIFT;
	if (!table)
		return 0;
	*at = entry_place(table, address, PAGE_SHIFT);
	*entry = word_at(*at);
	return place_of(map, *entry, 0);
}

/* Makes the page of an address the walk's window. Returns whether it can be read in place. */
static __always_inline int enter_page(struct walk *walk, __u64 address)
{
	__u32 shift;
	__u64 page, at, entry;

	if (address >> PMD_SHIFT != walk->pmd_number) {
		/* 0 above 47 bits: with four levels no process has such addresses, with five only a process that requests them. */
		walk->pmd_place = address >> 47 ? 0 : pmd_place(&walk->direct, walk->pgd, address);
		walk->pmd = walk->pmd_place ? word_at(walk->pmd_place) : 0;
		walk->pmd_number = address >> PMD_SHIFT;
	}
	at = walk->pmd_place;
	entry = walk->pmd;
	page = page_of(&walk->direct, &at, &entry, address, &shift);
	if (!page)
		return 0;
	walk->page_place = at;
	walk->page = entry;
	walk->window = page;
	walk->window_at = address & ~LOW_BITS(shift);
	walk->window_bytes = 1ULL << shift;
	return 1;
}

/*
 * Checks that the entries that led to the window's page have not changed. If one has, the words may belong to another page: sets
 * walk->moved, and from here on the stack is copied.
 */
static __always_inline void leave_page(struct walk *walk)
{
	if (!walk->page_place)
		return;
	if (((word_at(walk->page_place) ^ walk->page) | (word_at(walk->pmd_place) ^ walk->pmd)) & ENTRY_COMPARED) {
		walk->moved = 1;
		walk->pgd = 0;
		walk->pgd_after_copy = 0;
	}
}

/* A question of user space: do these words lie at this address if the direct map is `map`? */
struct direct_map_question {
	__u64 address; /* of two words of its own, in one page */
	__u64 words[2]; /* that nobody else has */
	struct direct_map map;
};
_Static_assert(sizeof(struct direct_map_question) == 56, "see direct_map.rs");

/* Answers a direct_map_question: 1 if the words are there. Global, so that it is verified once. */
__noinline int leads_to_words(__u64 pgd, const struct direct_map_question *question)
{
	__u32 shift;
	__u64 address, page, at, entry;

	if (!CAN_READ_IN_PLACE || !question)
		return 0;
	address = question->address;
	at = pmd_place(&question->map, pgd, address);
	if (!at)
		return 0;
	entry = word_at(at);
	page = page_of(&question->map, &at, &entry, address, &shift);
	if (!page)
		return 0;
	page += address & LOW_BITS(shift);
	return word_at(page) == question->words[0] && word_at(page + 8) == question->words[1];
}

#endif
