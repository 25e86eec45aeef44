/* Stacks whose pages are taken away while they are read: see truth.h for the lines that declare calls.
 *
 * One thread is 100 frames deep, a page each. Three others have the kernel change the entries of those pages all the time:
 *
 *   collapse    MADV_COLLAPSE: pages of 4 KiB are copied into one of 2 MiB, then freed
 *   protect     mprotect of one page: entries are cleared and set again, large pages are split
 *   out         MADV_PAGEOUT: pages go to swap, if there is any, and return at another place in memory
 */
#include "truth.h"

#include <pthread.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum { PAGE = 4096, DEEP = 100, LARGE = 1 << 21 };

static char *stack; /* of `LARGE` bytes */

NOINLINE long deep(long left)
{
	volatile char array[PAGE];

	array[0] = left;
	if (left > 0)
		sink += deep(left - 1);
	else
		burn(200000);
	return array[0];
}
//= deep > deep | burn

NOINLINE void *deep_main(void *levels)
{
	for (;;)
		sink += deep((long)levels);
	return NULL;
}
//= ^<clone:thread>*1 > <libc:thread>*1 > deep_main > deep

NOINLINE void *collapse_main(void *unused)
{
	for (;;) {
		if (madvise(stack, LARGE, MADV_COLLAPSE))
			sink++;
		usleep(500);
	}
	return unused;
}
//= ^<clone:thread>*1 > <libc:thread>*1 > collapse_main > <libc:moves>

NOINLINE void *protect_main(void *unused)
{
	for (unsigned long turn = 0;; turn++) {
		char *page = stack + LARGE - PAGE * (1 + turn * 7 % DEEP);

		mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
		mprotect(page, PAGE, PROT_READ | PROT_WRITE);
		usleep(50);
	}
	return unused;
}
//= ^<clone:thread>*1 > <libc:thread>*1 > protect_main > <libc:moves>

NOINLINE void *out_main(void *unused)
{
	for (unsigned long turn = 0;; turn++) {
		madvise(stack + LARGE - PAGE * (1 + turn * 11 % DEEP), PAGE, MADV_PAGEOUT);
		usleep(200);
	}
	return unused;
}
//= ^<clone:thread>*1 > <libc:thread>*1 > out_main > <libc:moves>

int main(int argc, char **argv)
{
	void *(*const others[])(void *) = { collapse_main, protect_main, out_main };
	pthread_attr_t attributes;
	pthread_t thread;

	begin(argc, argv);
	char *memory = mmap(NULL, 2 * LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	stack = (char *)(((uintptr_t)memory + LARGE - 1) & -(uintptr_t)LARGE);
	memset(stack, 0, LARGE);
	if (madvise(stack, LARGE, MADV_COLLAPSE))
		fprintf(stderr, "NOT TESTED: pages that are collapsed: the kernel refuses\n");
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, LARGE);
	if (pthread_create(&thread, &attributes, deep_main, (void *)DEEP))
		return 1;
	for (int i = 0; i < 3; i++)
		if (pthread_create(&(pthread_t){ 0 }, NULL, others[i], NULL))
			return 1;
	pthread_join(thread, NULL);
	return 0;
}
//= main > <libc:main>
