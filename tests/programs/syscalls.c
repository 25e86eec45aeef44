/* Spends nearly all its time in the kernel: stacks with both halves.
 *
 *   main → read_zeros → read → [kernel] … read_zero …      long calls: clearing 1 MiB at a time; most of the samples
 *   main → ask_pid → syscall → [kernel] … getpid            short calls: the way in and out of the kernel
 *
 * The frame of read or syscall is libc's, and libc may be built without frame pointers. Then a walk by frame pointers skips the
 * wrapper's caller, and still finds main. Promised by: noinline, work after each call. Arguments: [SECONDS]. Says "ready" when
 * the loop begins.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long counter;
static char buffer[1 << 20];

__attribute__((noinline)) void read_zeros(int zeros)
{
    for (int i = 0; i < 200; i++)
        counter += read(zeros, buffer, sizeof buffer);
}

__attribute__((noinline)) void ask_pid(void)
{
    for (int i = 0; i < 20000; i++)
        counter += syscall(SYS_getpid);
}

int main(int argc, char **argv)
{
    int zeros = open("/dev/zero", O_RDONLY);

    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
    puts("ready");
    fflush(stdout);
    for (;;) {
        read_zeros(zeros);
        ask_pid();
        counter += 1;
    }
}
