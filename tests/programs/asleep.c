/* Threads that wait from the begin on, for ever: in pause, for a lock, and for a pipe. Says "ready" when they do. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static volatile unsigned long counter;

__attribute__((noinline)) void waits_in_pause(void) { pause(); counter += 1; }
__attribute__((noinline)) void waits_in_lock(void) { pthread_mutex_lock(&lock); counter += 1; }
__attribute__((noinline)) void waits_in_read(void) { char c; counter += read(ends[0], &c, 1); }

static void *run_lock(void *none) { waits_in_lock(); return none; }
static void *run_read(void *none) { waits_in_read(); return none; }

int main(void)
{
    pthread_t locks, reads;

    if (pipe(ends) || pthread_mutex_lock(&lock))
        return 1;
    pthread_create(&locks, NULL, run_lock, NULL);
    pthread_create(&reads, NULL, run_read, NULL);
    sleep(1);
    printf("ready\n");
    fflush(stdout);
    waits_in_pause();
    return 0;
}
