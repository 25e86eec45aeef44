// Stacks that end early, one way in each mode: ends SECONDS MODE. Linux on x86_64.
//
// main → outer → a function of assembly whose unwind information is as the mode says → spin. Built with -O2 and without frame
// pointers; the assembly puts 1 into rbp, so that no chain of frame pointers leads anywhere.
//
//   root      right: all of the stack is found
//   gap       no unwind information, and code that contradicts itself: it returns with a frame
//   code      no unwind information, but the code tells where the frame is
//   invalid   a CFA that no rule can say
//   register  a CFA from a register that only the interrupted function knows
//   bad       a CFA below the callee's
//   nocode    a return address that is data
//   zero      a return address of 0
//   unread    a stack pointer that points into memory that cannot be read
//   anonymous code in memory of no file
//   exit      a large memory to give back while the process ends
//   exec      itself, executed again and again
//   changing  as root, while another thread splits the mapping of the code and joins it again, without a pause
//   poll      nothing, but a thread of the kernel's looks for work in it without a pause: io_uring's
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec until;
volatile unsigned long sink;

#ifndef ROOM
#define ROOM 8
#endif

__attribute__((noinline, used)) void spin(void)
{
	struct timespec now;
	volatile char room[ROOM];

	room[0] = 1;

	do {
		for (int i = 0; i < 200000; i++)
			sink += i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < until.tv_sec);
	_exit(0);
}

// rbx is where the CFA says it is while spin runs: callees save it.
#define MIDDLE(name, cfi) \
	void name(void); \
	asm(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" \
	    "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbp, -16\nmov $1, %ebp\n" \
	    "sub $16, %rsp\n.cfi_adjust_cfa_offset 16\n" cfi "\ncall spin\nud2\n.cfi_endproc\n.size " #name ", . - " #name \
	    "\n.popsection\n")

MIDDLE(middle_root, "");
MIDDLE(middle_invalid, ".cfi_escape 0x0f, 4, 0x77, 8, 0x31, 0x1e"); // DW_CFA_def_cfa_expression: breg7 8; lit1; mul
MIDDLE(middle_register, ".cfi_def_cfa r10, 8");
MIDDLE(middle_bad, ".cfi_def_cfa_offset -64");
MIDDLE(middle_nocode, ".cfi_def_cfa_offset 16\nlea until(%rip), %rax\nmov %rax, 8(%rsp)");
MIDDLE(middle_zero, ".cfi_def_cfa_offset 16\nmovq $0, 8(%rsp)");

void middle_code(void);
asm(".pushsection .text\n.globl middle_code\n.type middle_code, @function\nmiddle_code:\npush %rbp\nmov $1, %ebp\ncall spin\n"
    "pop %rbp\nret\n.skip 64, 0x90\n.size middle_code, . - middle_code\n.popsection\n");

void middle_gap(void);
asm(".pushsection .text\n.globl middle_gap\n.type middle_gap, @function\nmiddle_gap:\nmov $1, %ebp\nsub $8, %rsp\ncall spin\nret\n"
    ".skip 64, 0x90\n.size middle_gap, . - middle_gap\n.popsection\n");

// The stack pointer is in `unreadable`; nothing is called, as nothing could be pushed.
void middle_unread(void *stack);
asm(".pushsection .text\n.globl middle_unread\n.type middle_unread, @function\nmiddle_unread:\n.cfi_startproc\nmov %rdi, %rsp\n"
    "mov $1, %ebp\n1: jmp 1b\n.cfi_endproc\n.size middle_unread, . - middle_unread\n.popsection\n");

// A page of code that nobody runs.
extern char page[];
asm(".pushsection .text\n.balign 4096\n.globl page\npage: .skip 4096, 0xcc\n.balign 4096\n.popsection\n");

static void *change(void *nothing)
{
	for (;;) {
		mprotect(page, 4096, PROT_READ);
		mprotect(page, 4096, PROT_READ | PROT_EXEC);
	}
	return nothing;
}

__attribute__((noinline)) void outer(const char *mode)
{
	// mov $1, %ebp; 1: jmp 1b
	static const unsigned char code[] = {0xbd, 1, 0, 0, 0, 0xeb, 0xfe};

	if (!strcmp(mode, "root"))
		middle_root();
	else if (!strcmp(mode, "changing")) {
		pthread_t thread;

		pthread_create(&thread, NULL, change, NULL);
		middle_root();
	} else if (!strcmp(mode, "gap"))
		middle_gap();
	else if (!strcmp(mode, "code"))
		middle_code();
	else if (!strcmp(mode, "invalid"))
		middle_invalid();
	else if (!strcmp(mode, "register"))
		middle_register();
	else if (!strcmp(mode, "bad"))
		middle_bad();
	else if (!strcmp(mode, "nocode"))
		middle_nocode();
	else if (!strcmp(mode, "zero"))
		middle_zero();
	else if (!strcmp(mode, "unread")) {
		char *guard = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		middle_unread(guard + (1 << 15));
	} else if (!strcmp(mode, "anonymous")) {
		char *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(made, code, sizeof(code));
		// The word at the stack pointer is the caller's, and no return address.
		asm volatile("push $0\n\tjmp *%0" : : "r"(made));
	} else if (!strcmp(mode, "exit")) {
		char *large = mmap(NULL, 1UL << 28, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		large[0] = 1;
		_exit(0);
	} else if (!strcmp(mode, "exec")) {
		execl("/proc/self/exe", "ends", "60", "exec", NULL);
		_exit(1);
	} else if (!strcmp(mode, "poll")) {
		struct io_uring_params params = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 60000};

		int ring = syscall(SYS_io_uring_setup, 4, &params);

		// The kernel's thread sleeps until it is woken, and at first it may not be there yet.
		for (int i = 0; i < 10; i++) {
			if (ring < 0 || syscall(SYS_io_uring_enter, ring, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0) < 0) {
				perror("io_uring");
				_exit(1);
			}
			usleep(10000);
		}
		pause();
	} else {
		fprintf(stderr, "no such mode: %s\n", mode);
		_exit(1);
	}
	sink++;
}

int main(int count, char **arguments)
{
	unsigned left;

	if (count < 3)
		return 1;
	puts("ready");
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += atoi(arguments[1]) > 0 ? atoi(arguments[1]) : 60;
	// An alarm survives execve: its first setting remains.
	left = alarm(0);
	alarm(left ? left : atoi(arguments[1]) > 0 ? atoi(arguments[1]) : 60);
	outer(arguments[2]);
	return 0;
}
