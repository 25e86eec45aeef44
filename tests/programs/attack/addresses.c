/*
 * Makes deep stacks of ever new return addresses, for as many seconds as the first argument says (x86_64).
 *
 *	main ─► step ─► forest+8·x ─► step ─► forest+8·y ─► … ─► leaf         x, y, … are random, 2,000 frames
 *
 * `forest` is 2 Mi functions of 8 bytes; each calls what rbx points to:
 *
 *	55         push %rbp
 *	48 89 e5   mov  %rsp, %rbp
 *	ff d3      call *%rbx
 *	5d         pop  %rbp
 *	c3         ret
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH 1000
#define SLOT "0xc35dd3ffe5894855"

__attribute__((used)) unsigned long state = 88172645463325252;

__attribute__((used, noinline)) static void leaf(void)
{
	for (int i = 0; i < 2000000; i++)
		__asm__ volatile("" ::: "memory");
}

/* Returns the next function of the forest. */
__attribute__((used, noinline)) static unsigned long next(void)
{
	extern char forest[];

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned long)forest + (state & 0x1fffff) * 8;
}

__asm__(".text\n"
	".globl forest\n"
	"forest:\n"
	".cfi_startproc\n"
	".cfi_def_cfa rbp, 16\n"
	".cfi_offset rbp, -16\n"
	".cfi_offset rip, -8\n"
	".rept 262144\n"
	".quad " SLOT "," SLOT "," SLOT "," SLOT "," SLOT "," SLOT "," SLOT "," SLOT "\n"
	".endr\n"
	".cfi_endproc\n"
	/* r12: how many frames are to come. */
	"step:\n"
	".cfi_startproc\n"
	"	push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset rbp, -16\n"
	"	mov %rsp, %rbp\n"
	".cfi_def_cfa_register rbp\n"
	"	dec %r12\n"
	"	jz 1f\n"
	"	call next\n"
	"	call *%rax\n"
	"	jmp 2f\n"
	"1:	call leaf\n"
	"2:	pop %rbp\n"
	".cfi_def_cfa rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n");

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 60);

	while (time(NULL) < end) {
		unsigned long depth = DEPTH;

		__asm__ volatile("mov %0, %%r12\n\tlea step(%%rip), %%rbx\n\tcall *%%rbx"
				 : "+r"(depth)
				 :
				 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
	}
	return 0;
}
