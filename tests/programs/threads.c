/* Threads with distinct names and functions, in known shares of time.
 *
 *   thread "parser"     … → parse_main  → parse_text  → burn      busy about 3 parts of 6 of its time
 *   thread "render"     … → render_main → render_page → burn      busy about 2 parts of 6
 *   thread "writer"     … → write_main  → write_block → burn      busy about 1 part of 6
 *   thread "sleeper"    … → sleep_main                            never busy, must not appear
 *   main thread         main → pthread_join                       never busy
 *
 * Each of the first three works 10 ms × its part in every 60 ms. Promised by: noinline, work after each call.
 * Arguments: [SECONDS]. Says "ready" when all threads run.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_barrier_t all_run;
static __thread volatile unsigned long counter;

static long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) void burn(long milliseconds)
{
    long end = now_ns(CLOCK_THREAD_CPUTIME_ID) + milliseconds * 1000000L;
    /* The clock is a system call: read rarely, so that the time is spent here. */
    do
        for (int i = 0; i < 200000; i++)
            counter += (unsigned long)i;
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end);
}

static void rest(long milliseconds)
{
    struct timespec time = {0, milliseconds * 1000000L};
    nanosleep(&time, NULL);
}

__attribute__((noinline)) void parse_text(void) { burn(30); counter += 1; }
__attribute__((noinline)) void render_page(void) { burn(20); counter += 1; }
__attribute__((noinline)) void write_block(void) { burn(10); counter += 1; }

__attribute__((noinline)) void *parse_main(void *name)
{
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&all_run);
    for (;;) {
        parse_text();
        rest(30);
    }
}

__attribute__((noinline)) void *render_main(void *name)
{
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&all_run);
    for (;;) {
        render_page();
        rest(40);
    }
}

__attribute__((noinline)) void *write_main(void *name)
{
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&all_run);
    for (;;) {
        write_block();
        rest(50);
    }
}

__attribute__((noinline)) void *sleep_main(void *name)
{
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&all_run);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    pthread_t threads[4];

    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
    pthread_barrier_init(&all_run, NULL, 5);
    pthread_create(&threads[0], NULL, parse_main, "parser");
    pthread_create(&threads[1], NULL, render_main, "render");
    pthread_create(&threads[2], NULL, write_main, "writer");
    pthread_create(&threads[3], NULL, sleep_main, "sleeper");
    pthread_barrier_wait(&all_run);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}
