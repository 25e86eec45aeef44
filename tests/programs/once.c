/* Runs for some microseconds. Each copy of it gets another build id, and so is another file. once MICROSECONDS */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Bytes of a frame: programs of another size have other unwind tables at nearly the same addresses. */
#ifndef ROOM
#define ROOM 8
#endif
/* Bytes of one frame in the middle of the stack. */
#ifndef LARGE
#define LARGE 8
#endif

static volatile unsigned long work;

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static void inner(long until)
{
	volatile char room[ROOM];

	room[0] = 1;
	while (now() < until)
		for (int i = 0; i < 500; i++)
			work += i;
}

__attribute__((noinline)) static void middle(long until)
{
	volatile char room[ROOM];

	room[0] = 1;
	inner(until);
	work++;
}

__attribute__((noinline)) static void outer(long until)
{
	volatile char large[LARGE];

	large[0] = 1;
	middle(until);
	work++;
}

static void *run(void *until)
{
	outer((long)until);
	return 0;
}

int main(int count, char **arguments)
{
	long until = now() + (count > 1 ? atol(arguments[1]) : 2000) * 1000;
#ifdef THREAD
	pthread_t thread;

	pthread_create(&thread, 0, run, (void *)until);
	pthread_join(thread, 0);
#else
	run((void *)until);
#endif
	return 0;
}
