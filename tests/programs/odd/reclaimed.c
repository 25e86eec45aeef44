/*
 * Runs for long in inner() after the page with outer() has left memory, as happens to a main loop where memory is reclaimed. Nothing
 * describes the stack but the frame pointer: each function has a return with a frame in a place that is never reached, so no analysis
 * proves it.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

volatile unsigned long sink;

#if defined(__x86_64__)
#define CONTRADICTS() __asm__ volatile("cmp $77, %0\n jne 1f\n push %0\n push %0\n ret\n1:" : : "r"(sink) : "cc", "memory")
#else
#define CONTRADICTS() __asm__ volatile("cmp %0, #77\n b.ne 1f\n sub sp, sp, #64\n ret\n1:" : : "r"(sink) : "cc", "memory")
#endif

__attribute__((noinline)) void inner(unsigned long page)
{
	CONTRADICTS();
	madvise((void *)page, 4096, MADV_DONTNEED);
	for (int i = 0;; i++)
		sink += i;
}

__attribute__((noinline)) void middle(unsigned long page)
{
	CONTRADICTS();
	inner(page);
	sink++;
}

/* Alone in its page. */
__attribute__((noinline, section(".alone"), aligned(4096))) void outer(unsigned long page)
{
	CONTRADICTS();
	middle(page);
	sink++;
	__asm__ volatile(".fill 4096, 1, 0xcc");
}

int main(void)
{
	CONTRADICTS();
	puts("ready");
	fflush(stdout);
	outer((unsigned long)outer & -4096ul);
	return 0;
}
