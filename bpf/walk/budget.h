/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Limits the time of walks: one walk takes at most about 100 µs, all walks of one CPU together about a twelfth of its time.
 *
 * A process can make its stack expensive: 2,048 frames, each on another page and in another mapping, none of them in a cache. Walking such
 * a stack took half a millisecond with interrupts off. The sampling clock may tick 25,000 times a second.
 *
 *   credit   Grows by 82 ns in each microsecond, up to 4 ms. The time of each sample is subtracted from it.
 *   limit    The time that one walk may take. It is 100 µs while the credit is above 1.6 ms, else 1/16 of the credit, but at least 2 µs.
 *
 * So the limit falls until all samples together take the granted share. All threads have the same limit. Usual stacks take a few
 * microseconds and stay whole; expensive stacks are cut (USER_END_TIME).
 *
 * A walk reads the clock after every 64 frames, or after every 8 if its limit is low. A search counts as several frames. A usual walk
 * ends before its first reading. While there is much credit, such a sample does not read the clock at its end either; it is charged
 * USUAL_CHARGE. Reading the clock costs 3 % of a usual sample.
 *
 * A hypervisor may run another guest meanwhile. So at most MOST_BETWEEN_LOOKS of the time between two readings counts, and one pause does
 * not cut a walk. At most MOST_CHARGE of one sample's time is subtracted from the credit.
 */
#ifndef FLAMETOP_BUDGET_H
#define FLAMETOP_BUDGET_H

#include "../lookup/tables.h"

/* Nanoseconds that one walk may take. Set before loading; 0: walks have no limit. */
const volatile __u64 walk_time = 100000;
/* Nanoseconds that a walk may take even without credit. */
#define LEAST_WALK_TIME 2000
/* The samples' share of a time: 21 ns in 256 ns, 8.2 %. */
#define SHARE(time) (((time) >> 8) * 21)
/* One walk may take 1/16 of the credit. */
#define CREDIT_SHIFT 4
#define MOST_CREDIT (4ULL << 20)
#define MOST_CHARGE (1ULL << 18)
/* Charge of a sample whose walk did not read the clock. Almost all of them take less. */
#define USUAL_CHARGE 20000
/* Half of walk_time. */
#define MOST_BETWEEN_LOOKS 50000
/* Frames between two readings of the clock: usually, and with a limit below LITTLE_TIME. */
#define LOOK_EVERY 64
#define LOOK_OFTEN 8
/* With a limit below this, the clock is read every LOOK_OFTEN frames. */
#define LITTLE_TIME 40000

/* Sets the limit of a walk that begins. Its begin is the sample's time, or the clock's if the kernel's stack was walked before. */
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

/* Tells whether it is time to read the clock. */
static __always_inline int should_look(const struct walk *walk)
{
	return (__s32)walk->frames >= walk->look_at;
}

/* Reads the clock and tells whether the walk has used up its time. */
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

/* Subtracts the time of the sample so far from the CPU's credit. */
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
