// Code made at run time, at an address that is the same each time, so that a test can write what a runtime would have written of it:
//
//   main -> outer -> inner, which spins                            outer at BASE + 64, inner at + 128
//
// The call is the last instruction of what is `outer` here; what comes after it, `rest`, would be another function in a map. So the
// return address is not in the function that called. (Not at BASE itself: whether a return address follows a call is seen in the
// eight bytes before it, and before BASE there is no memory.)
//
//   jit SECONDS [DIRECTORY]     with a directory, DIRECTORY/jit-PID.dump is made and mapped executable, as LLVM and others do it
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BASE ((void *)0x100000000000)

#if defined(__x86_64__)
// push %rbp; mov %rsp, %rbp; call *%rsi
static const unsigned char outer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6};
// pop %rbp; ret
static const unsigned char rest[] = {0x5d, 0xc3};
// push %rbp; mov %rsp, %rbp; 1: cmpq $0, (%rdi); je 1b; pop %rbp; ret
static const unsigned char inner[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0x3f, 0x00, 0x74, 0xfa, 0x5d, 0xc3};
#elif defined(__aarch64__)
// stp x29, x30, [sp, #-16]!; mov x29, sp; blr x1
static const unsigned outer[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0020};
// ldp x29, x30, [sp], #16; ret
static const unsigned rest[] = {0xa8c17bfd, 0xd65f03c0};
// stp x29, x30, [sp, #-16]!; mov x29, sp; 1: ldr x2, [x0]; cbz x2, 1b; ldp x29, x30, [sp], #16; ret
static const unsigned inner[] = {0xa9bf7bfd, 0x910003fd, 0xf9400002, 0xb4ffffe2, 0xa8c17bfd, 0xd65f03c0};
#endif

typedef void function(volatile unsigned long *, void *);

static int map_dump(const char *directory)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/jit-%d.dump", directory, getpid());
	int file = open(path, O_CREAT | O_RDWR, 0644);

	return file < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED;
}

int main(int count, char **arguments)
{
	static volatile unsigned long stop;
	unsigned char *made =
		mmap(BASE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (made != BASE || (count > 2 && map_dump(arguments[2]))) {
		perror("jit");
		return 1;
	}
	memcpy(made + 64, outer, sizeof(outer));
	memcpy(made + 64 + sizeof(outer), rest, sizeof(rest));
	memcpy(made + 128, inner, sizeof(inner));
	mprotect(made, 4096, PROT_READ | PROT_EXEC);
	__builtin___clear_cache((char *)made, (char *)made + 4096);
	alarm(count > 1 ? atoi(arguments[1]) : 60);
	puts("ready");
	fflush(stdout);
	((function *)(made + 64))(&stop, made + 128);
	return 0;
}
