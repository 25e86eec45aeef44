/* Code on other stacks. Functions leave a stack as their unwind information says: the old stack pointer is in a word of the new stack, in a
 * word of its owner that the new stack names, or in a register. OCaml 5 and languages with stacks on the heap do so.
 *
 *   word | owner | register
 */
#include "truth.h"

typedef unsigned long stacked(unsigned long argument);

/* Call a function on the stack that ends at `end`. */
unsigned long by_word(stacked *function, unsigned long argument, char *end);
unsigned long by_owner(stacked *function, unsigned long argument, char *end, unsigned long owner[2]);
unsigned long by_register(stacked *function, unsigned long argument, char *end);

#define BEGIN(name) ".text\n.globl " #name "\n.type " #name ", %function\n" #name ": .cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " #name ", . - " #name "\n"

#if defined(__x86_64__)
__asm__(
	/* CFA = *(rsp + 0) + 8. What a signal interrupts could be on either stack: the augmentation is S. */
	BEGIN(by_word) ".cfi_signal_frame\n"
	"mov %rdi, %rax\n mov %rsi, %rdi\n mov %rsp, -16(%rdx)\n lea -16(%rdx), %rsp\n"
	".cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8\n"
	"call *%rax\n mov (%rsp), %rsp\n"
	".cfi_def_cfa %rsp, 8\n ret\n" END(by_word)
	/* CFA = *(*(rsp + 8) + 8) + 8 */
	BEGIN(by_owner)
	"mov %rdi, %rax\n mov %rsi, %rdi\n mov %rsp, 8(%rcx)\n mov %rcx, -8(%rdx)\n lea -16(%rdx), %rsp\n"
	".cfi_escape 0x0f, 8, 0x77, 8, 0x06, 0x23, 8, 0x06, 0x23, 8\n"
	"call *%rax\n mov 8(%rsp), %rcx\n mov 8(%rcx), %rsp\n"
	".cfi_def_cfa %rsp, 8\n ret\n" END(by_owner)
	/* CFA = rbx + 16 */
	BEGIN(by_register)
	"push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
	"mov %rsp, %rbx\n .cfi_def_cfa_register %rbx\n"
	"mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsp\n call *%rax\n mov %rbx, %rsp\n"
	".cfi_def_cfa_register %rsp\n pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n ret\n" END(by_register));
#else
#define ENTER "stp x29, x30, [sp, #-16]!\n .cfi_def_cfa_offset 16\n .cfi_offset 29, -16\n .cfi_offset 30, -8\n mov x9, sp\n mov x10, x0\n mov x0, x1\n"
#define LEAVE ".cfi_def_cfa sp, 16\n ldp x29, x30, [sp], #16\n .cfi_def_cfa_offset 0\n .cfi_restore 29\n .cfi_restore 30\n ret\n"
__asm__(
	BEGIN(by_word) ".cfi_signal_frame\n" ENTER
	"str x9, [x2, #-16]!\n mov sp, x2\n"
	".cfi_escape 0x0f, 5, 0x8f, 0, 0x06, 0x23, 16\n"
	"blr x10\n ldr x9, [sp]\n mov sp, x9\n" LEAVE END(by_word)
	BEGIN(by_owner) ENTER
	"str x9, [x3, #8]\n str x3, [x2, #-8]\n sub x2, x2, #16\n mov sp, x2\n"
	".cfi_escape 0x0f, 8, 0x8f, 8, 0x06, 0x23, 8, 0x06, 0x23, 16\n"
	"blr x10\n ldr x9, [sp, #8]\n ldr x9, [x9, #8]\n mov sp, x9\n" LEAVE END(by_owner)
	BEGIN(by_register) ENTER
	"mov x29, sp\n .cfi_def_cfa x29, 16\n mov sp, x2\n blr x10\n mov sp, x29\n" LEAVE END(by_register));
#endif

/* The stack of this thread lies above both; `high` lies above `low`. */
static char *low, *high;
static unsigned long owners[2][2];
static char text[1 << 19];

NOINLINE unsigned long word_leaf(unsigned long argument)
{
	burn(3000);
	return argument + 1;
}
//= word_leaf > burn

/* Is on the lower stack, and goes to the higher one: coming back leads to a lower stack. */
NOINLINE unsigned long word_fiber(unsigned long argument)
{
	unsigned long result = by_word(word_leaf, argument, high);

	burn(1000);
	return result + 1;
}
//= word_fiber > by_word > word_leaf
//= word_fiber > burn

NOINLINE void word_mode(void)
{
	for (;;)
		sink += by_word(word_fiber, sink, low);
}
//= main > word_mode > by_word > word_fiber

NOINLINE unsigned long owner_leaf(unsigned long argument)
{
	burn(3000);
	return argument + 1;
}
//= owner_leaf > burn

NOINLINE unsigned long owner_fiber(unsigned long argument)
{
	unsigned long result = by_owner(owner_leaf, argument, high, owners[1]);

	burn(1000);
	return result + 1;
}
//= owner_fiber > by_owner > owner_leaf
//= owner_fiber > burn

NOINLINE void owner_mode(void)
{
	for (;;)
		sink += by_owner(owner_fiber, sink, low, owners[0]);
}
//= main > owner_mode > by_owner > owner_fiber

NOINLINE unsigned long register_leaf(unsigned long argument)
{
	burn(3000);
	return argument + 1;
}
//= register_leaf > burn

/* A function of libc that keeps the register. Its own table has nothing that is found by it. */
NOINLINE unsigned long register_fiber(unsigned long argument)
{
	unsigned long result = by_register(register_leaf, argument, high);

	result += by_register((stacked *)(void *)strlen, (unsigned long)text, high);
	burn(1000);
	return result + 1;
}
//= register_fiber > by_register > register_leaf | <libc,rest:length>*1
//= register_fiber > burn

NOINLINE void register_mode(void)
{
	for (;;)
		sink += by_register(register_fiber, sink, low);
}
//= main > register_mode > by_register > register_fiber

int main(int argc, char **argv)
{
	const char *mode = begin(argc, argv);
	char *memory = malloc(1 << 20);

	memset(text, 'x', sizeof(text) - 1);
	low = memory + (1 << 17);
	high = memory + (1 << 19);
	if (!strcmp(mode, "owner"))
		owner_mode();
	else if (!strcmp(mode, "register"))
		register_mode();
	else
		word_mode();
	return 0;
}
//= main > <libc,rest:prepare>
