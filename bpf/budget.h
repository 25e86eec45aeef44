/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long walks may take: none longer than about 100 µs, and all of one CPU together about a twelfth of its time.
 *
 * A stack may be made to be expensive: 2,048 frames, each on another page, in another mapping, which no cache has. Walking one took half
 * a millisecond with interrupts off. And a clock may be asked for that ticks 25,000 times a second.
 *
 *   credit   grows by 82 ns in each microsecond, up to 4 ms; each sample takes from it what it took
 *   limit    what one walk may take: 100 µs while there is more than 1.6 ms of credit, else a sixteenth of it, but 2 µs always
 *
 * So the limit falls until all samples take what is granted. It is the same for all threads: stacks that are usual take a few
 * microseconds, and stay whole where those that are expensive are cut (USER_END_TIME).
 *
 * In a walk the clock is read after each 64 frames; searches count as several. A usual walk ends before that. Where time is short it is
 * read after each 8. A sample whose walk did not read the clock does not read it at all while there is much credit, and is charged
 * USUAL_CHARGE: to read it costs 3 % of a usual sample.
 *
 * A hypervisor may run somebody else meanwhile. So of the time between two looks at the clock no more than MOST_BETWEEN_LOOKS counts: a
 * walk is not cut for one pause. Of one sample no more than MOST_CHARGE is taken from the credit.
 */
#ifndef FLAMETOP_BUDGET_H
#define FLAMETOP_BUDGET_H

#include "tables.h"

/* Nanoseconds that one walk may take. Set before loading; 0: as long as it likes, whatever others took. */
const volatile __u64 walk_time = 100000;
/* And that it may take always. */
#define LEAST_WALK_TIME 2000
/* Of 256 ns, 21 are for samples: 8.2 %. */
#define SHARE(time) (((time) >> 8) * 21)
/* Of the credit, 1/16 is for one walk. */
#define CREDIT_SHIFT 4
#define MOST_CREDIT (4ULL << 20)
#define MOST_CHARGE (1ULL << 18)
/* More than almost all samples take that did not look at the clock. */
#define USUAL_CHARGE 20000
/* Half of the time of a walk. */
#define MOST_BETWEEN_LOOKS 50000
/* Frames between two looks at the clock. */
#define LOOK_EVERY 64
#define LOOK_OFTEN 8
/* With less time than this, the clock is looked at often. */
#define LITTLE_TIME 40000

/* Sets the limit of a walk that begins. The sample's time was read just now; behind the kernel's stack it is read anew. */
static __always_inline void begin_time(struct cpu_state *cpu, int after_kernel)
{
	struct walk *walk = &cpu->walk;
	__u64 now = cpu->sample.header.time;
	__u64 credit = walk->credit, limit;

	if ((__s64)(now - walk->credited) > 0)
		credit += SHARE(now - walk->credited);
	if (credit > MOST_CREDIT)
		credit = MOST_CREDIT;
	walk->credit = credit;
	walk->credited = now;
	limit = credit >> CREDIT_SHIFT;
	if (limit < LEAST_WALK_TIME)
		limit = LEAST_WALK_TIME;
	if (limit > walk_time)
		limit = walk_time ? walk_time : ~0ULL;
	walk->limit = limit;
	walk->look_every = limit < LITTLE_TIME ? LOOK_OFTEN : LOOK_EVERY;
	walk->look_at = walk->look_every;
	walk->looked = after_kernel ? bpf_ktime_get_ns() : now;
	walk->spent = 0;
}

/* Whether it is time to look at the clock. */
static __always_inline int should_look(const struct walk *walk)
{
	return (__s32)walk->frames >= walk->look_at;
}

/* Looks at the clock: whether the walk has taken its time. */
__noinline int is_out_of_time(struct cpu_state *cpu)
{
	if (!cpu)
		return 1;
	struct walk *walk = &cpu->walk;

	__u64 now = bpf_ktime_get_ns();
	__u64 took = now - walk->looked;

	walk->look_at = walk->frames + walk->look_every;
	walk->looked = now;
	walk->spent += took < MOST_BETWEEN_LOOKS ? took : MOST_BETWEEN_LOOKS;
	return walk->spent >= walk->limit;
}

/* Takes from the CPU's credit what the sample has taken so far. */
static __always_inline void charge_time(struct cpu_state *cpu)
{
	struct walk *walk = &cpu->walk;
	__u64 took = USUAL_CHARGE;

	if (walk->spent || walk->credit < MOST_CREDIT / 2) {
		took = bpf_ktime_get_ns() - cpu->sample.header.time;
		if (took > MOST_CHARGE)
			took = MOST_CHARGE;
	}
	walk->credit = walk->credit > took ? walk->credit - took : 0;
}

#endif
