/*
 * Pretends to contain HotSpot. Its stacks are of Java, hundreds of methods deep, and each of them is another method at each look. Their names and
 * tables of lines are as long as possible. Built with -rdynamic.
 *
 *   jvm SECONDS            interpreted methods
 *   jvm SECONDS compiled   compiled methods, each with 64 methods that were inlined into it
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH 400
#define INLINED 64
#define METHODS (1 << 16)
#define LINES (16 << 10)
#define SEGMENT_SHIFT 16
#define HEAP (4 << 20)

/* Code enough to be a JVM's. It never runs. */
__asm__(".text\nunused: .skip 9 << 20, 0x90\n");

struct method { uint64_t words[2]; };
struct constant { uint64_t words[8]; uint8_t lines[LINES]; };
struct blob {
	uint64_t header[2];
	const char *name;
	uint64_t code, scopes, method;
	uint32_t frame_size, complete, compile_id, pcs, end, metadata;
	uint64_t methods[INLINED + 1];
	struct { uint32_t pc, scope, unused[2]; } pc_descs[2];
	uint8_t data[INLINED * 4 + 8];
	uint8_t text[64];
};

static struct { uint64_t count, *data; } list;
static void *heaps;
static uint64_t heap[8], *heap_of_list[1] = {heap};
static struct method *methods;
static struct constant *constant;
static uint64_t pool[64], class[8], symbol[128];
static volatile uint64_t turn;
static int version = 17, is_compiled;

/* The tables of structures that HotSpot exports. */
struct field { const char *type, *field, *kind; int32_t is_static; uint64_t offset; void *address; };
struct type { const char *name; uint64_t size; };
#define FIELD(type, field, kind, offset) {#type, #field, kind, 0, offset, NULL}
#define BLOB(member) (__builtin_offsetof(struct blob, member) - 16)
static struct field fields[] = {
	{"Abstract_VM_Version", "_vm_major_version", "int", 1, 0, &version},
	{"CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", 1, 0, &heaps},
	FIELD(GrowableArrayBase, _len, "int", 0), FIELD(GrowableArray<int>, _data, "int*", 8),
	FIELD(CodeHeap, _memory, "VirtualSpace", 0), FIELD(CodeHeap, _segmap, "VirtualSpace", 16),
	FIELD(CodeHeap, _log2_segment_size, "int", 32), FIELD(VirtualSpace, _low_boundary, "char*", 0),
	FIELD(VirtualSpace, _high_boundary, "char*", 8), FIELD(CodeBlob, _name, "char*", BLOB(name)),
	FIELD(CodeBlob, _frame_size, "int", BLOB(frame_size)), FIELD(CodeBlob, _frame_complete_offset, "int", BLOB(complete)),
	FIELD(CodeBlob, _code_begin, "address", BLOB(code)), FIELD(nmethod, _method, "Method*", BLOB(method)),
	FIELD(nmethod, _compile_id, "int", BLOB(compile_id)), FIELD(nmethod, _scopes_pcs_offset, "int", BLOB(pcs)),
	FIELD(CompiledMethod, _scopes_data_begin, "address", BLOB(scopes)), FIELD(nmethod, _dependencies_offset, "int", BLOB(end)),
	FIELD(nmethod, _metadata_offset, "int", BLOB(metadata)), FIELD(PcDesc, _pc_offset, "int", 0),
	FIELD(PcDesc, _scope_decode_offset, "int", 4), FIELD(Method, _constMethod, "ConstMethod*", 0),
	FIELD(ConstMethod, _constants, "ConstantPool*", 0), FIELD(ConstMethod, _code_size, "u2", 8),
	FIELD(ConstMethod, _name_index, "u2", 10), FIELD(ConstMethod, _signature_index, "u2", 12), FIELD(ConstMethod, _flags, "u2", 14),
	FIELD(ConstantPool, _pool_holder, "InstanceKlass*", 0), FIELD(ConstantPool, _source_file_name_index, "u2", 8),
	FIELD(Klass, _name, "Symbol*", 0), FIELD(Symbol, _length, "u2", 0), FIELD(Symbol, _body, "u1", 8), {0}};
static struct type types[] = {{"HeapBlock", 16}, {"PcDesc", 16}, {"ConstMethod", 16}, {"ConstantPool", 16}, {0}};
void *gHotSpotVMStructs = fields, *gHotSpotVMTypes = types;
#define NUMBER(name, value) uint64_t gHotSpotVM##name = value;
NUMBER(StructEntryArrayStride, sizeof(struct field))
NUMBER(StructEntryTypeNameOffset, __builtin_offsetof(struct field, type))
NUMBER(StructEntryFieldNameOffset, __builtin_offsetof(struct field, field))
NUMBER(StructEntryTypeStringOffset, __builtin_offsetof(struct field, kind))
NUMBER(StructEntryIsStaticOffset, __builtin_offsetof(struct field, is_static))
NUMBER(StructEntryOffsetOffset, __builtin_offsetof(struct field, offset))
NUMBER(StructEntryAddressOffset, __builtin_offsetof(struct field, address))
NUMBER(TypeEntryArrayStride, sizeof(struct type))
NUMBER(TypeEntryTypeNameOffset, __builtin_offsetof(struct type, name))
NUMBER(TypeEntrySizeOffset, __builtin_offsetof(struct type, size))

/* Calls the next code of a list, or behind it a function. With frames as those of the interpreter; `methods` is in rsi, 16 bytes for each level. */
extern char interpreted[], interpreted_end[], compiled[], compiled_end[];
__asm__("interpreted: push %rbp\n mov %rsp, %rbp\n sub $80, %rsp\n lea 16(%rbp), %rax\n mov %rax, -8(%rbp)\n"
	" mov %rsi, -24(%rbp)\n mov %rdi, -72(%rbp)\n add $8, %rdi\n add $16, %rsi\n call *(%rdi)\n leave\n ret\n"
	"interpreted_end: compiled: push %rbp\n sub $48, %rsp\n add $8, %rdi\n add $16, %rsi\n call *(%rdi)\n"
	" add $48, %rsp\n pop %rbp\n ret\ncompiled_end:\n");

static struct blob *blobs[DEPTH];

static void *memory(size_t size, int protection)
{
	return mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Makes all methods other ones, again and again. */
static void work(void)
{
	for (int round = 0; round < 1000; round++) {
		turn++;
		for (uint64_t at = 0; at < METHODS; at += METHODS / DEPTH / INLINED)
			methods[at].words[0] = (uint64_t)constant + turn % 4096;
		for (int at = 0; is_compiled && at < DEPTH; at++)
			blobs[at]->compile_id++;
	}
}

static void make_blob(char *at, int level)
{
	struct blob *blob = blobs[level] = (void *)at;
	char *from = is_compiled ? compiled : interpreted, *end = is_compiled ? compiled_end : interpreted_end;
	uint32_t begin = (char *)blob->data - (char *)blob - 16;

	blob->name = is_compiled ? "nmethod" : "Interpreter";
	blob->code = (uint64_t)blob->text;
	blob->frame_size = 8;
	memcpy(blob->text, from, end - from);
	blob->method = (uint64_t)&methods[level];
	blob->scopes = (uint64_t)blob->data;
	blob->metadata = (char *)blob->methods - at - 16;
	blob->pcs = (char *)blob->pc_descs - at - 16;
	blob->end = begin;
	/* push, sub $48, add $8, add $16, call: the return address is 15 bytes behind the begin. */
	blob->pc_descs[0].pc = blob->pc_descs[1].pc = 15;
	blob->pc_descs[0].scope = blob->pc_descs[1].scope = 1;
	/* Scopes of three bytes, each with the number of the next one's; the outermost one is that of the method itself. */
	for (int scope = 0; scope < INLINED; scope++) {
		uint8_t *data = blob->data + 1 + 3 * scope;

		data[0] = scope + 1 < INLINED ? 1 + 3 * (scope + 1) : 0;
		data[1] = scope + 1 < INLINED ? scope + 2 : 1;
		data[2] = 1;
		blob->methods[scope + 1] = (uint64_t)&methods[(level * INLINED + scope + 1) * 2 % METHODS];
	}
	blob->methods[0] = blob->method;
}

int main(int argc, char **argv)
{
	static void *codes[DEPTH + 1];
	char *code = memory(HEAP, PROT_READ | PROT_WRITE | PROT_EXEC);

	alarm(argc > 1 ? atoi(argv[1]) : 10);
	is_compiled = argc > 2;
	methods = memory(METHODS * sizeof(*methods), PROT_READ | PROT_WRITE);
	constant = memory(sizeof(*constant) + 8192, PROT_READ | PROT_WRITE);
	/* The names: of a kilobyte. */
	symbol[0] = 1000;
	memset(symbol + 1, 'x', 1000);
	class[0] = (uint64_t)symbol;
	pool[0] = (uint64_t)class;
	pool[1] = 1;
	for (int at = 2; at < 64; at++)
		pool[at] = (uint64_t)symbol;
	/* Wherever it begins, it has lines. */
	for (uint64_t *at = (uint64_t *)constant; at < (uint64_t *)(constant + 1); at += 2) {
		at[0] = (uint64_t)pool;
		at[1] = 0x0001000200010004;
	}
	for (int at = 0; at < METHODS; at++)
		methods[at].words[0] = (uint64_t)constant;
	for (int level = 0; level < DEPTH; level++) {
		make_blob(code + level * (HEAP / DEPTH & ~15), level);
		codes[level] = blobs[level]->text;
	}
	codes[DEPTH] = work;
	heap[0] = (uint64_t)code;
	heap[1] = (uint64_t)code + HEAP;
	heap[2] = (uint64_t)memory(HEAP >> 3, PROT_READ | PROT_WRITE);
	heap[3] = heap[2] + (HEAP >> 3);
	heap[4] = 3;
	/* Each blob is the begin of a block of segments. */
	for (int level = 0; level < DEPTH; level++) {
		uint64_t first = ((char *)blobs[level] - code) >> 3, last = level + 1 < DEPTH ? ((char *)blobs[level + 1] - code) >> 3 : HEAP >> 3;

		for (uint64_t segment = first; segment < last; segment++)
			((uint8_t *)heap[2])[segment] = segment == first ? 0 : segment - first < 200 ? segment - first : 200;
	}
	list.count = 1;
	list.data = (void *)heap_of_list;
	heaps = &list;
	void (*calls)(void **, struct method *) = codes[0];

	for (;;)
		calls(codes, methods);
}
