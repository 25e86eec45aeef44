/*
 * Pretends to contain V8. Its functions have frames as those of JavaScript, hundreds deep, and each of them is another function at each look. They are
 * in scripts of 16 MB with a line for each character; their names and tables are as long as possible. Built with -rdynamic.
 *
 *   engine SECONDS            the functions run in the program's code, as if they were interpreted
 *   engine SECONDS compiled   in memory, behind 256 KB of words that may be the header of their code
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH 400
#define FUNCTIONS (1 << 18)
#define SCRIPTS 1024
#define SOURCE (16 << 20)
#define TABLE (64 << 10)
#define BEFORE (256 << 10)

/* What V8 exports for debuggers. */
int major __asm__("_ZN2v88internal7Version6major_E") = 12;
int minor __asm__("_ZN2v88internal7Version6minor_E") = 4;
int build __asm__("_ZN2v88internal7Version6build_E") = 254;
#define NUMBER(name, value) int v8dbg_##name = value;
NUMBER(class_JSFunction__shared__SharedFunctionInfo, 32)
NUMBER(class_SharedFunctionInfo__length__uint16_t, 40)
NUMBER(class_SharedFunctionInfo__name_or_scope_info__Object, 16)
NUMBER(class_SharedFunctionInfo__script__Tagged_HeapObject_, 32)
NUMBER(class_Map__instance_type__uint16_t, 12)
NUMBER(type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE, 274)
NUMBER(type_ScopeInfo__SCOPE_INFO_TYPE, 272)
NUMBER(type_Script__SCRIPT_TYPE, 167)
NUMBER(type_BytecodeArray__BYTECODE_ARRAY_TYPE, 205)
NUMBER(type_InterpreterData__INTERPRETER_DATA_TYPE, 207)
NUMBER(type_Code__CODE_TYPE, 206)
NUMBER(type_FixedArray__FIXED_ARRAY_TYPE, 174)
NUMBER(FirstNonstringType, 128)
NUMBER(class_Script__name__Object, 16)
NUMBER(class_Script__source__Object, 8)
NUMBER(class_Script__line_ends__Object, 56)
NUMBER(scopeinfo_idx_first_vars, 3)
NUMBER(class_BytecodeArray__data__uintptr_t, 64)
NUMBER(class_Code__instruction_start__Address, 40)
NUMBER(class_Code__instruction_size__int, 52)

/* Code enough to be V8's. It never runs. */
__asm__(".text\nunused: .skip 9 << 20, 0x90\n");

static uint64_t closures[DEPTH][8];
static uint64_t maps[6][4], name[512], *source, *table, bytecode[16];
static uint64_t (*functions)[8], (*scripts)[16];
static volatile uint64_t turn;

static uint64_t tagged(void *object) { return (uint64_t)object + 1; }
static uint64_t smi(uint64_t value) { return value << 32; }

static uint64_t map(int number, uint64_t type)
{
	maps[number][0] = tagged(maps[0]);
	maps[number][1] = type << 32;
	return tagged(maps[number]);
}

/* Calls itself `levels` times, with a frame like V8's at each level. The last call runs `work`. The code runs at any address. */
typedef void chain(uint64_t levels, void *closures, void (*work)(void));
chain deep;
extern char deep_end[];
__asm__(".globl deep, deep_end\n"
	"deep: push %rbp\n mov %rsp, %rbp\n push $1\n"
	" mov %rdi, %rax\n shl $6, %rax\n lea 1(%rsi, %rax), %rax\n push %rax\n"
	" push $0\n push $0\n mov $70, %rax\n shl $32, %rax\n push %rax\n"
	" dec %rdi\n js 1f\n call deep\n leave\n ret\n"
	"1: call *%rdx\n leave\n ret\ndeep_end:\n");

/* Makes each closure one of other functions, again and again. */
static void work(void)
{
	for (int round = 0; round < 1000; round++) {
		turn++;
		for (uint64_t at = 0; at < DEPTH; at++)
			closures[at][4] = tagged(functions[(turn * DEPTH + at) % FUNCTIONS]);
	}
}

static void *memory(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Returns `deep` behind 256 KB of pointers to objects that may be Codes: of the right type, but of other instructions. */
static chain *compiled(void)
{
	char *made = mmap(NULL, BEFORE + 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t (*codes)[8] = memory(BEFORE / 8 * sizeof(*codes)), of_code = map(5, 206);

	for (uint64_t at = 0; at < BEFORE / 8; at++) {
		codes[at][0] = of_code - (at & 1);
		codes[at][5] = (uint64_t)made + 8 * at + 24;
		((uint64_t *)made)[at] = tagged(codes[at]);
	}
	return memcpy(made + BEFORE, (void *)deep, deep_end - (char *)deep);
}

int main(int argc, char **argv)
{
	alarm(argc > 1 ? atoi(argv[1]) : 10);
	source = memory(SOURCE + 16);
	table = memory(TABLE + 16);
	functions = memory(FUNCTIONS * sizeof(*functions));
	scripts = memory(SCRIPTS * sizeof(*scripts));
	map(0, 255);
	uint64_t string = map(1, 8), of_function = map(2, 274), of_script = map(3, 167), of_bytecode = map(4, 205);

	source[0] = name[0] = string;
	source[1] = (uint64_t)SOURCE << 32;
	memset(source + 2, '\n', SOURCE);
	name[1] = 0xffffffffULL << 32;
	memset(name + 2, 'x', sizeof(name) - 16);
	table[1] = smi(TABLE);
	memset(table + 2, 2, TABLE);
	bytecode[0] = of_bytecode;
	bytecode[3] = tagged(table);
	for (uint64_t at = 0; at < SCRIPTS; at++) {
		scripts[at][0] = of_script;
		scripts[at][1] = tagged(source);
		scripts[at][2] = tagged(name);
	}
	for (uint64_t at = 0; at < FUNCTIONS; at++) {
		functions[at][0] = of_function;
		functions[at][1] = tagged(bytecode);
		functions[at][2] = tagged(name);
		functions[at][4] = tagged(scripts[at % SCRIPTS]);
		functions[at][6] = at << 32;
	}
	chain *calls = argc > 2 ? compiled() : deep;
	for (;;)
		calls(DEPTH - 1, closures, work);
}
