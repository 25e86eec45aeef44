/*
 * A stack that is expensive to walk: a chain of frame pointers over 2,040 pages, into 2,040 executable mappings.
 *
 *   stack   page 0 ─► page 1 ─► … ─► page 2039      each has a frame record: the next one, and a return address
 *   code    a mapping each, 1 MiB apart: `call`, and behind it, where the return address points to, `jmp .`
 *
 * No page is in the processor's caches and no mapping is in the walk's. Prints "ready" and spins; ends after the seconds of its first
 * argument, 60 if there is none. x86_64.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FRAMES = 2040, STRIDE = 1 << 20, PAGE = 4096, AT = 64 };

static void *map(void *at, size_t size, int access, int flags)
{
	void *memory = mmap(at, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return memory;
}

int main(int argc, char **argv)
{
	static const unsigned char code[] = { 0xe8, 0, 0, 0, 0, 0xeb, 0xfe };
	char *codes, *stack;

	alarm(argc > 1 ? atoi(argv[1]) : 60);
	codes = map(NULL, (size_t)FRAMES * STRIDE, PROT_NONE, 0);
	stack = map(NULL, (size_t)(FRAMES + 1) * PAGE, PROT_READ | PROT_WRITE, 0);
	for (long i = 0; i < FRAMES; i++) {
		char *page = map(codes + i * STRIDE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_FIXED);
		char **record = (char **)(stack + i * PAGE + (i % 7) * 64);

		memcpy(page + AT, code, sizeof(code));
		record[0] = i + 1 < FRAMES ? stack + (i + 1) * PAGE + ((i + 1) % 7) * 64 : NULL;
		record[1] = page + AT + 5;
	}
	puts("ready");
	fflush(stdout);
	__asm__ volatile("mov %0, %%rbp\n\tmov %0, %%rsp\n\tjmp *%1" : : "r"(stack), "r"(codes + AT + 5) : "memory");
	__builtin_unreachable();
}
