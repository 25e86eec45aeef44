// The first thread has ended, and another one spins:
//
//   thread of spin: spin → outer → inner
//
// The file may be deleted while it runs, so that only the mapping leads to it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

volatile unsigned long sum;

void inner(void)
{
	for (int i = 0; i < 9999; i++)
		sum = sum * 31 + i;
}

void outer(void)
{
	inner();
	sum++;
}

static void *spin(void *first)
{
	pthread_join(*(pthread_t *)first, 0);
	puts("ready");
	fflush(stdout);
	for (;;)
		outer();
}

int main(int count, char **words)
{
	static pthread_t first, thread;

	alarm(count > 1 ? atoi(words[1]) : 60);
	first = pthread_self();
	pthread_create(&thread, 0, spin, &first);
	pthread_exit(0);
}
