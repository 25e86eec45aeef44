/* One chain of four functions, always the same: the smallest thing a profile must show right.
 *
 *   main → outer → middle → inner        all samples but a few end in inner, in user mode
 *
 * Promised by: noinline, a frame kept in the leaf, and work after each call, so that none is a tail call. Built with -O1 and frame pointers.
 * Arguments: [SECONDS]. Says "ready" when the loop begins.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

volatile unsigned long counter;

/* A function that calls nothing gets no frame from gcc, whatever the flags (12.2, x86_64), and a walk along frame pointers
 * then skips its caller. Asking for the frame's address makes one. */
#define KEEP_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

__attribute__((noinline)) unsigned long inner(unsigned long rounds)
{
    KEEP_FRAME();
    unsigned long sum = 0;
    for (unsigned long i = 0; i < rounds; i++) {
        sum += i ^ counter;
        counter = sum;
    }
    return sum;
}

__attribute__((noinline)) unsigned long middle(unsigned long rounds)
{
    unsigned long sum = inner(rounds);
    counter += 1;
    return sum + 1;
}

__attribute__((noinline)) unsigned long outer(unsigned long rounds)
{
    unsigned long sum = middle(rounds);
    counter += 2;
    return sum + 2;
}

int main(int argc, char **argv)
{
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
    puts("ready");
    fflush(stdout);
    for (;;)
        counter += outer(100 * 1000 * 1000);
}
