// Exceptions that pass through many frames, each with something to clean up: most samples are in the unwinder of libgcc.
//
//   throw
extern "C" {
#include "truth.h"

NOINLINE void cleaned(long n)
{
	for (long i = 0; i < 200; i++)
		sink += n;
}
}

struct Guard {
	long n;
	~Guard() { cleaned(n); }
};

extern "C" {

NOINLINE void thrower(long n)
{
	burn(1000);
	if (n % 4)
		throw n;
	throw "text";
}
//= thrower > burn | <stdc++,gcc,libc,ld,rest:throw>

#define STEP(name, next)                                                                                                       \
	NOINLINE long name(long n)                                                                                                 \
	{                                                                                                                          \
		Guard guard = {n};                                                                                                     \
		volatile char room[n % 64 + 16];                                                                                       \
		room[0] = 1;                                                                                                           \
		next(n + room[0]);                                                                                                     \
		sink = sink + 1;                                                                                                       \
		return n;                                                                                                              \
	}

STEP(step19, thrower)
STEP(step18, step19)
STEP(step17, step18)
STEP(step16, step17)
STEP(step15, step16)
STEP(step14, step15)
STEP(step13, step14)
STEP(step12, step13)
STEP(step11, step12)
STEP(step10, step11)

// Catches and throws again, something else or the same.
NOINLINE long step09(long n)
{
	try {
		return step10(n);
	} catch (const char *text) {
		cleaned(text[0]);
		throw;
	} catch (long number) {
		cleaned(number);
		throw number + 1;
	}
}
//= step09 > cleaned

STEP(step08, step09)
STEP(step07, step08)
STEP(step06, step07)
STEP(step05, step06)
STEP(step04, step05)
STEP(step03, step04)
STEP(step02, step03)
STEP(step01, step02)
STEP(step00, step01)
//= step[00..19] > thrower
//= step00 | step01 | step02 | step03 | step04 | step05 | step06 | step07 | step08 | step09 > cleaned | <stdc++,gcc,libc,ld,rest:throw>
//= step10 | step11 | step12 | step13 | step14 | step15 | step16 | step17 | step18 | step19 > cleaned | <stdc++,gcc,libc,ld,rest:throw>

NOINLINE long catcher(long n)
{
	try {
		return step00(n);
	} catch (long number) {
		burn(1000);
		return number;
	} catch (...) {
		return 0;
	}
}
//= catcher > step00 | burn | <stdc++,gcc,libc,ld,rest:throw>

NOINLINE void throw_mode(void)
{
	for (long n = 0;; n++)
		sink += catcher(n);
}
//= main > throw_mode > catcher
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	throw_mode();
}
