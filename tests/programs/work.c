/*
 * What tests/collector.rs samples: programs that run in known functions for a known time.
 * Built by the test with frame pointers. gcc leaves them out of functions that call nothing, so the innermost ones call
 * something: else the caller of the innermost would be missing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;

static long now_ms(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

NOINLINE void once(void)
{
	sink++;
}

NOINLINE void inner(void)
{
	for (int i = 0; i < 2000000; i++)
		sink += i;
	once();
}

NOINLINE void middle(void)
{
	inner();
	sink++;
}

/* Milliseconds of CPU time of this thread, so that a busy machine does not make it shorter. */
NOINLINE void outer(long ms)
{
	long end = now_ms(CLOCK_THREAD_CPUTIME_ID) + ms;
	while (now_ms(CLOCK_THREAD_CPUTIME_ID) < end)
		middle();
	sink++;
}

NOINLINE void deeper(long ms, int levels)
{
	if (levels > 0)
		deeper(ms, levels - 1);
	else
		outer(ms);
	sink++;
}

NOINLINE void ask_clock(long ms)
{
	long end = now_ms(CLOCK_MONOTONIC) + ms;
	while (now_ms(CLOCK_MONOTONIC) < end)
		sink++;
}

NOINLINE void call_kernel(long ms)
{
	long end = now_ms(CLOCK_MONOTONIC) + ms;
	char buffer[65536];
	FILE *zero = fopen("/dev/zero", "r");
	while (now_ms(CLOCK_MONOTONIC) < end)
		sink += read(fileno(zero), buffer, sizeof(buffer));
	fclose(zero);
}

static void *thread(void *ms)
{
	pthread_setname_np(pthread_self(), "worker-thread");
	outer((long)ms);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	long ms = atol(argv[2]);
	if (!strcmp(argv[1], "busy")) {
		outer(ms);
	} else if (!strcmp(argv[1], "thread")) {
		pthread_t worker;
		pthread_create(&worker, NULL, thread, (void *)ms);
		pthread_join(worker, NULL);
	} else if (!strcmp(argv[1], "exec")) { /* exec MS PROGRAM: then the program runs as long */
		outer(ms);
		execl(argv[3], argv[3], "busy", argv[2], NULL);
	} else if (!strcmp(argv[1], "fork")) { /* fork MS TIMES: children without exec */
		for (int times = atoi(argv[3]); times > 0; times--) {
			if (fork() == 0) {
				outer(ms);
				_exit(0);
			}
			wait(NULL);
		}
	} else if (!strcmp(argv[1], "spawn")) { /* spawn MS TIMES: children that run this program again */
		for (int times = atoi(argv[3]); times > 0; times--) {
			if (fork() == 0)
				execl("/proc/self/exe", "spawned", "busy", argv[2], NULL);
			wait(NULL);
		}
	} else if (!strcmp(argv[1], "deep")) { /* deep MS LEVELS */
		deeper(ms, atoi(argv[3]));
	} else if (!strcmp(argv[1], "exit")) { /* exit MEGABYTES: takes its time to give memory back, with no stack to walk */
		volatile char *memory = malloc(ms << 20);
		for (long at = 0; at < ms << 20; at += 4096)
			memory[at] = 1;
		_exit(0);
	} else if (!strcmp(argv[1], "clock")) {
		ask_clock(ms);
	} else if (!strcmp(argv[1], "kernel")) {
		call_kernel(ms);
	}
	return 0;
}
