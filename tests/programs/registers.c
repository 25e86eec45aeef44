// Fills all registers with numbers that identify the register, over and over. Then it calls `marked`, makes a system call, and
// stays in user mode for a while. tests/registers.rs checks which of them are seen from outside. One register is filled last and
// restored first (r15, x27). While it holds its number, only registers that a system call uses may hold another: rax, rcx, r11,
// or x0 and x8.
//
// The number in a register is 0x5eed0000 and its DWARF number.

#define SEED 0x5eed0000

#if defined(__x86_64__)
// At `marked` all of them hold their numbers. The system call needs rax for its own number, and overwrites rcx and r11.
asm(".text\n"
    ".globl marked, rounds\n"
    ".type marked, @function\n"
    ".type rounds, @function\n"
    "marked: nop; ret\n"
    ".size marked, . - marked\n"
    "rounds:\n"
    "	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "	mov $0x5eed0001, %edx; mov $0x5eed0003, %ebx; mov $0x5eed0004, %esi\n"
    "	mov $0x5eed0005, %edi; mov $0x5eed0006, %ebp; mov $0x5eed0008, %r8d; mov $0x5eed0009, %r9d; mov $0x5eed000a, %r10d\n"
    "	mov $0x5eed000c, %r12d; mov $0x5eed000d, %r13d; mov $0x5eed000e, %r14d; mov $0x5eed000f, %r15d\n"
    "0:	mov $0x5eed0000, %eax; mov $0x5eed0002, %ecx; mov $0x5eed000b, %r11d\n"
    "	call marked\n"
    "	mov $110, %eax\n" // getppid
    "	syscall\n"
    "	mov $0x5eed0000, %eax; mov $0x5eed0002, %ecx; mov $0x5eed000b, %r11d\n"
    "	subl $1, count(%rip)\n"
    "	jne 0b\n"
    "	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "	ret\n"
    ".size rounds, . - rounds\n");
#elif defined(__aarch64__)
asm(".text\n"
    ".globl marked, rounds\n"
    ".type marked, %function\n"
    ".type rounds, %function\n"
    "marked: nop; ret\n"
    ".size marked, . - marked\n"
    "rounds:\n"
    "	stp x29, x30, [sp, #-96]!; stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]; stp x23, x24, [sp, #48]\n"
    "	stp x25, x26, [sp, #64]; stp x27, x28, [sp, #80]\n"
    "	.irp n, 1,2,3,4,5,6,7,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,28,29,27\n"
    "	mov x\\n, #\\n\n"
    "	movk x\\n, #0x5eed, lsl #16\n"
    "	.endr\n"
    "0:	mov x0, #0; movk x0, #0x5eed, lsl #16; mov x8, #8; movk x8, #0x5eed, lsl #16\n"
    "	bl marked\n"
    "	mov x8, #173\n" // getppid
    "	svc #0\n"
    "	adrp x8, count; add x8, x8, :lo12:count; ldr w0, [x8]; sub w0, w0, #1; str w0, [x8]\n"
    "	cbnz w0, 0b\n"
    "	ldp x27, x28, [sp, #80]; ldp x25, x26, [sp, #64]; ldp x23, x24, [sp, #48]; ldp x21, x22, [sp, #32]\n"
    "	ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #96\n"
    "	ret\n"
    ".size rounds, . - rounds\n");
#endif

unsigned count = 1;
void rounds(void);

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	time_t until = time(NULL) + (argc > 1 ? atoi(argv[1]) : 60);

	puts("ready");
	fflush(stdout);
	while (time(NULL) < until) {
		/* A few calls at a time: emulated machines crash if code is changed while it runs a million times a second. */
		count = 10;
		rounds();
		usleep(500);
	}
	return 0;
}
