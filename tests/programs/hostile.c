/* A process whose names attack the program that shows them.
 *
 *   threads named with  ESC ] 0 ; x BEL   ESC [ 2 J   a line feed   a carriage return   ; (the separator of folded stacks)
 *                       a lone 0xFF   a right-to-left override   <&"'> for SVG          each: thread_main → HOSTILE_NAME
 *   main → HOSTILE_NAME                                                                 the busy leaf
 *
 * HOSTILE_NAME is `harmless` unless the test builds with -DHOSTILE_NAME=…: for instance 10,000 letters, as a name that no
 * buffer was made for. Bytes that no assembler takes can be patched over it: Program::patched(b"harmless", …).
 * Promised by: noinline, a frame kept in the leaf, work after each call. Arguments: [SECONDS]. Says "ready" when all threads run.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef HOSTILE_NAME
#define HOSTILE_NAME harmless
#endif

static volatile unsigned long counter;

/* A function that calls nothing gets no frame from gcc, whatever the flags (12.2, x86_64), and a walk along frame pointers
 * then skips its caller. Asking for the frame's address makes one. */
#define KEEP_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

__attribute__((noinline)) void HOSTILE_NAME(void)
{
    KEEP_FRAME();
    for (int i = 0; i < 5000000; i++)
        counter += (unsigned long)i;
}

static const char *const names[] = {
    "\033]0;owned\007", "\033[2J\033[H", "line\nfeed", "car\rreturn", "semi;colon 7", "byte\xff\xfe", "rtl\xe2\x80\xaeoverride", "<&\"'>",
};
enum { COUNT = sizeof names / sizeof *names };

static pthread_barrier_t all_run;

__attribute__((noinline)) void *thread_main(void *name)
{
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&all_run);
    for (;;) {
        HOSTILE_NAME();
        usleep(20000);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;

    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
    pthread_barrier_init(&all_run, NULL, COUNT + 1);
    for (int i = 0; i < COUNT; i++)
        pthread_create(&thread, NULL, thread_main, (void *)names[i]);
    pthread_barrier_wait(&all_run);
    /* Also the process's own name: it is the root of the graph. */
    prctl(PR_SET_NAME, "\033[31mevil;\n");
    puts("ready");
    fflush(stdout);
    for (;;) {
        HOSTILE_NAME();
        counter += 1;
    }
}
