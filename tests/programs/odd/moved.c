/*
 * Copies its own code to anonymous memory at the same addresses, as node --use-largepages does, and runs it there.
 *
 *   other  with other bytes behind the code: then the memory is not the file's
 *   fork   in a copy of the process, two seconds later
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long sink;

__attribute__((noinline)) unsigned long inner(unsigned long x)
{
	for (int i = 0; i < 9999; i++)
		x = x * 31 + sink;
	return x;
}

__attribute__((noinline)) unsigned long outer(unsigned long x)
{
	unsigned long a[4] = { x };

	a[x & 3] = inner(x);
	return a[0] + 1;
}

#if defined(__x86_64__)
static inline __attribute__((always_inline)) long call(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return result;
}
#define MMAP 9
#define MPROTECT 10
#else
static inline __attribute__((always_inline)) long call(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d,
		      x4 __asm__("x4") = -1, x5 __asm__("x5") = 0;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#define MMAP 222
#define MPROTECT 226
#endif

/* Lies in other pages and calls nothing, because it replaces the stubs of libc. */
__attribute__((noinline, section(".mover"), aligned(4096))) void move(char *to, unsigned long bytes, char *copy)
{
	call(MMAP, (long)to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
	for (unsigned long i = 0; i < bytes; i++)
		((volatile char *)to)[i] = copy[i];
	call(MPROTECT, (long)to, bytes, PROT_READ | PROT_EXEC, 0);
#if defined(__aarch64__)
	__builtin___clear_cache(to, to + bytes);
#endif
}

int main(int count, char **arguments)
{
	unsigned long page = sysconf(_SC_PAGESIZE), from = (unsigned long)main & -page, bytes = ((unsigned long)move & -page) - from;
	char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(copy, (void *)from, bytes);
	/* Nothing runs between the end of the code and the page of move(). */
	if (count > 1 && !strcmp(arguments[1], "other"))
		memset(copy + bytes - 256, 0x5a, 256);
	if (write(1, "ready\n", 6) != 6)
		return 1;
	move((char *)from, bytes, copy);
	time_t until = time(NULL) + 2;

	while (count < 2 || strcmp(arguments[1], "fork") || time(NULL) < until)
		sink += outer(sink);
	if (fork())
		return pause();
	for (;;)
		sink += outer(sink);
}
