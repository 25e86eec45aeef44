/* What the programs here share: they know their own stack, and tell it.
 *
 * Lines that begin with a double slash and an equals sign declare which calls there are; tests/truth reads them off the
 * sources and holds each sampled stack against them. Every function that matters has a name of its own at its place in the
 * call graph, so a stack is right if and only if it is a path of that graph.
 *
 *   a > b > c | d        a calls b, and b calls c and d
 *   ^a                   a is a root: nobody called it
 *   f[000..899]          f000 calls f001, f001 calls f002, and so on
 *   <libc:sort>          any number of frames in libc (or what is after the name "libc:": it makes places of one library differ)
 *   <libc:call>*2        exactly two of them; *1..3: one to three
 *   <clone:x>*1          the function of libc in which each thread begins
 *   <rest:x>             functions of the program itself that no line declares: the compiler's, the language's runtime
 *   *                    each function that a line declares
 *
 * A function that calls others may also be in a linkage stub or in the linker that binds it: that needs no line.
 * All programs take a mode and its arguments, say "ready", wait for a byte, and then do one thing until they are killed, or
 * for two minutes: of time, or, by the limit with which the tests start them, of a processor.
 */
#ifndef _GNU_SOURCE /* g++ has it defined */
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* noipa: gcc must know nothing of a function that it calls, or it would change how it is called. */
#define NOINLINE __attribute__((noinline, noclone, noipa, used))

static volatile unsigned long sink;

/* What is common to all: how it begins and ends. glibc: __libc_start_main and what it calls; musl has one more. "ldentry" is the
 * first function of ld.so. */
//= ^<ldentry:boot>*1 > <ld:boot> > <libc,stdc++,gcc:boot> | <rest:boot>
//= <ldentry:boot>*1 > <rest:boot>
//= <rest:boot> > <libc,stdc++,gcc:boot>
//= ^_start > <libc:start>*1..3 > main | <libc,stdc++,gcc:boot> | <rest:boot>
//= <libc,stdc++,gcc:boot> > <ld:exit> > <rest:boot> | <libc,stdc++,gcc:boot>
//= <libc,stdc++,gcc:boot> > <vdso:boot>
//= main > begin > <libc:begin>
//= <libc:begin> > <vdso:begin>

/* One moment of the program that a test can look up: between `begin` and `end` the recursion was `depth` deep. */
struct phase {
	volatile uint64_t begin, end; /* nanoseconds of CLOCK_MONOTONIC */
	volatile uint64_t depth, reserved;
};

#define PHASES (1 << 16)

/* A function that calls nothing gets no frame from gcc, whatever the flags. For comparisons with frame pointers it asks for
 * the frame's address, which makes one. */
#ifdef KEEP_FRAMES
#define KEEP_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define KEEP_FRAME() (void)0
#endif

/* A leaf without a frame of its own: all of its registers are its caller's. */
NOINLINE void burn(long rounds)
{
	KEEP_FRAME();
	for (long i = 0; i < rounds; i++)
		sink += i;
}

NOINLINE const char *begin(int argc, char **argv)
{
	char byte;

	puts("ready");
	fflush(stdout);
	/* Nobody there to say a word: nobody who will look. */
	if (read(0, &byte, 1) != 1)
		exit(1);
	alarm(120);
	return argc > 1 ? argv[1] : "";
}
