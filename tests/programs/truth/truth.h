/* Shared by the programs here, which know their own stacks and declare them.
 *
 * Lines that begin with a double slash and an equals sign declare the calls of a program. tests/truth reads them from the sources
 * and compares each sampled stack with them. Every function that matters has a unique name and one place in the call graph. So a
 * stack is right if and only if it is a path of that graph.
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
 * A function that calls others may also be in a linkage stub or in the linker that binds it: that needs no line. All programs
 * take a mode and its arguments, say "ready", wait for a byte, and then run the mode until they are killed. Otherwise they end
 * after two minutes. The tests also limit their CPU time to two minutes.
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

/* Calls common to all programs: their start and end. glibc: __libc_start_main and what it calls; musl has one more. "ldentry" is
 * the first function of ld.so. */
//= ^<ldentry:boot>*1 > <ld:boot> > <libc,stdc++,gcc:boot> | <rest:boot>
//= <ldentry:boot>*1 > <rest:boot>
//= <rest:boot> > <libc,stdc++,gcc:boot>
//= ^_start > <libc:start>*1..3 > main | <libc,stdc++,gcc:boot> | <rest:boot>
//= <libc,stdc++,gcc:boot> > <ld:exit> > <rest:boot> | <libc,stdc++,gcc:boot>
//= <libc,stdc++,gcc:boot> > <vdso:boot>
//= main > begin > <libc:begin>
//= <libc:begin> > <vdso:begin>

/* A period of the program, for tests: between `begin` and `end` the recursion was `depth` deep. */
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

/* A leaf without a frame: all of its registers are its caller's. */
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
	/* Input has ended: no test will look at this program. */
	if (read(0, &byte, 1) != 1)
		exit(1);
	alarm(120);
	return argc > 1 ? argv[1] : "";
}
