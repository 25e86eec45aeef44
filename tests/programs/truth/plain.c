/* Stacks of one process without tricks of the system: see truth.h for the lines that declare calls.
 *
 *   one LOG DEPTH SPREAD     one function, DEPTH deep and up to SPREAD deeper; LOG gets times and depths
 *   grow                     alloca and arrays of variable length
 *   realign                  realigned stacks: the caller's frame is found through another register (DRAP)
 *   tails                    functions entered by a jump
 *   sort                     callbacks that libc calls
 *   copy                     libc's assembly
 *   calls                    system calls
 *   threads                  threads that start and end all the time
 *   pages                    a stack of 6 MiB, on pages of 2 MiB and of 4 KiB
 */
#include "truth.h"

#include <alloca.h>
#include <pthread.h>
#include <sys/syscall.h>

/* Only x86 has callers that leave the stack misaligned. */
#ifdef __x86_64__
#define REALIGNED __attribute__((force_align_arg_pointer))
#else
#define REALIGNED
#endif

static struct phase *phases;
static long phase_count;

NOINLINE uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	sink++;
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}
//= now > <libc,vdso:clock>

/* Times are taken by the innermost function: in between, nothing is called and nothing returns. */
NOINLINE void bottom(long depth)
{
	struct phase *phase = &phases[phase_count < PHASES ? phase_count++ : 0];

	phase->depth = depth;
	phase->begin = now();
	burn(1000000);
	phase->end = now();
}
//= bottom > now | burn

NOINLINE long one(long left, long depth)
{
	if (left > 0)
		sink += one(left - 1, depth);
	else
		bottom(depth);
	sink++;
	return left;
}
//= one > one | bottom

NOINLINE void one_mode(const char *log, long depth, long spread)
{
	int fd = open(log, O_RDWR | O_CREAT | O_TRUNC, 0600);
	unsigned random = 1;

	if (fd < 0 || ftruncate(fd, sizeof(struct phase) * PHASES))
		exit(1);
	phases = mmap(NULL, sizeof(struct phase) * PHASES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (phases == MAP_FAILED)
		exit(1);
	for (;;) {
		random = random * 1103515245 + 12345;
		long deep = depth + (spread ? random / 65536 % spread : 0);
		one(deep - 1, deep);
		sink++;
	}
}
//= main > one_mode > one | <libc:open>

NOINLINE long with_array(long size)
{
	volatile char array[size];

	array[0] = 1;
	array[size - 1] = 2;
	burn(20000 + size);
	sink += array[0];
	return array[size - 1];
}
//= with_array > burn

NOINLINE long with_alloca(long size)
{
	volatile char *array = alloca(size);

	for (long at = 0; at < size; at += 512)
		array[at] = at;
	long result = with_array(size / 2 + 1);
	/* More space while the frame exists. */
	volatile char *more = alloca(size / 3 + 16);
	more[0] = result;
	result += with_array(size / 5 + 1);
	sink += array[0] + more[0];
	return result;
}
//= with_alloca > with_array

NOINLINE void grow_mode(void)
{
	for (unsigned random = 1;; sink++) {
		random = random * 1103515245 + 12345;
		sink += with_alloca(16 + random / 65536 % 20000);
	}
}
//= main > grow_mode > with_alloca

typedef long wide __attribute__((vector_size(64)));

NOINLINE void wide_leaf(wide *vector, long rounds)
{
	KEEP_FRAME();
	for (long i = 0; i < rounds; i++)
		*(volatile wide *)vector += (wide){1, 2, 3, 4, 5, 6, 7, 8};
}

/* More arguments than registers, an aligned local, and alloca: the arguments are found through one register, the frame through
 * another. */
NOINLINE long with_drap(long a, long b, long c, long d, long e, long f, long g, long h, long i)
{
	wide vector = {a, b, c, d, e, f, g, h};
	volatile char *array = alloca(i + 1);

	array[0] = i;
	wide_leaf(&vector, 3000);
	burn(3000);
	return vector[0] + a + g * h + i + array[0];
}
//= with_drap > wide_leaf | burn

NOINLINE long aligned(long seed)
{
	_Alignas(64) volatile long local[16] = {seed};

	long result = with_drap(seed, 2, 3, 4, 5, 6, local[0], 8, seed & 1023);
	burn(3000);
	local[3] = result;
	return local[0] + local[3];
}
//= aligned > with_drap | burn

REALIGNED NOINLINE long forced(long seed)
{
	long result = aligned(seed);

	burn(3000);
	sink += result;
	return result;
}
//= forced > aligned | burn

/* Forced realignment, and nothing else that needs a frame. */
REALIGNED NOINLINE long forced_more(long seed, long a, long b, long c, long d, long e, long f)
{
	wide vector = {a, b, c, d, e, f, seed, 1};

	wide_leaf(&vector, 3000);
	return forced(seed) + vector[6] + f;
}
//= forced_more > wide_leaf | forced

NOINLINE void realign_mode(void)
{
	for (long seed = 0;; seed++)
		sink += forced_more(seed, 1, 2, 3, 4, 5, 6);
}
//= main > realign_mode > forced_more

NOINLINE long tail_third(long n)
{
	for (long i = 0; i < 20000; i++)
		sink += i;
	burn(20000);
	sink += n;
	return n + 3;
}
//= tail_third > burn

NOINLINE long tail_second(long n)
{
	volatile char room[200];

	room[n & 127] = n;
	for (long i = 0; i < 20000; i++)
		sink += room[i & 127];
	burn(20000);
	return tail_third(n + room[n & 127]);
}
//= tail_second > burn

NOINLINE long tail_first(long n)
{
	long a = sink, b = sink * 3, c = sink * 5, d = sink * 7, e = sink * 11, f = sink * 13;

	for (long i = 0; i < 20000; i++)
		sink += i + (a ^ b);
	burn(20000);
	sink = a + b + c + d + e + f;
	return tail_second(n);
}
//= tail_first > burn

/* Called through a pointer, so that the jump is to an address in a register. */
static long (*volatile chosen)(long) = tail_first;

NOINLINE long tail_chosen(long n)
{
	sink += n;
	return chosen(n);
}

NOINLINE void tails_mode(void)
{
	for (long n = 0;; n++)
		sink += tail_chosen(n) + tail_second(n);
}
/* After a tail jump, the target's frame replaces the jumping function's frame. */
//= main > tails_mode > tail_chosen | tail_first | tail_second | tail_third

NOINLINE int compare_work(const int *a, const int *b)
{
	KEEP_FRAME();
	for (int i = 0; i < 100; i++)
		sink += i;
	return (*a > *b) - (*a < *b);
}

NOINLINE int compare(const void *a, const void *b)
{
	int result = compare_work(a, b);

	sink += result;
	return result;
}
//= compare > compare_work

/* Through a pointer: the header of glibc has it inline. */
static void *(*volatile search)(const void *, const void *, size_t, size_t, int (*)(const void *, const void *)) = bsearch;

NOINLINE void sort_mode(void)
{
	static int numbers[5000];

	for (unsigned random = 1;;) {
		for (int i = 0; i < 5000; i++)
			numbers[i] = (random = random * 1103515245 + 12345) / 65536;
		qsort(numbers, 5000, sizeof(int), compare);
		for (int i = 0; i < 500; i++)
			sink += (unsigned long)search(&numbers[i], numbers, 5000, sizeof(int), compare);
	}
}
//= main > sort_mode > <libc:sort> > compare

NOINLINE void copy_mode(void)
{
	static char from[1 << 16], to[1 << 16];

	memset(from, 'x', sizeof(from) - 1);
	for (unsigned random = 1;; random = random * 1103515245 + 12345) {
		size_t size = random / 65536 % 30000 + 1;

		memcpy(to, from, size);
		memmove(to + 3, to, size);
		to[size] = 0;
		sink += strlen(to);
		sink += (unsigned long)memchr(from, 'y', size);
		sink += (unsigned long)strchr(to, 'z');
		sink += memcmp(from, to, size) + strcmp(from, to);
		memset(to, 'x', size + 1);
	}
}
//= main > copy_mode > <libc:copy>*1
/* In musl strchr calls __strchrnul. */
//= copy_mode > strchr > __strchrnul

NOINLINE void calls_mode(void)
{
	static char buffer[1 << 16];
	int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);

	for (long n = 0;; n++) {
		sink += read(zero, buffer, sizeof(buffer));
		sink += read(zero, buffer, 1);
		sink += write(null, buffer, 100);
		for (int i = 0; i < 20; i++)
			sink += syscall(SYS_getppid) + getppid();
		struct timespec time = {0, 0};
		if (n % 16 == 0)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	}
}
//= main > calls_mode > <libc:call>*1..2

NOINLINE void thread_inner(long rounds)
{
	burn(rounds);
	sink++;
}
//= thread_inner > burn

NOINLINE void *thread_main(void *rounds)
{
	thread_inner((long)rounds);
	sink++;
	return NULL;
}
/* clone3 and start_thread, or musl's __clone and start; then what a thread does before and after its function. */
//= ^<clone:thread>*1 > <libc:thread>*1 > thread_main > thread_inner
//= <libc:thread>*1 > <libc,gcc,ld:thread>
/* Declared above as a function, so in a static program it is found by its name. */
//= <libc,gcc,ld:thread> > __strchrnul

NOINLINE void threads_mode(void)
{
	for (;;) {
		pthread_t threads[16];

		for (long i = 0; i < 16; i++)
			if (pthread_create(&threads[i], NULL, thread_main, (void *)(200000 + i * 100000)))
				exit(1);
		for (int i = 0; i < 16; i++)
			pthread_join(threads[i], NULL);
	}
}
//= main > threads_mode > <libc:threads>

/* A frame that spans 16 small pages. */
NOINLINE long over_pages(long left)
{
	volatile char array[1 << 16];

	array[0] = left;
	if (left > 0)
		sink += over_pages(left - 1);
	burn(20000);
	return array[0];
}
//= over_pages > over_pages | burn

NOINLINE void *pages_main(void *levels)
{
	for (;;)
		sink += over_pages((long)levels);
	return NULL;
}
//= ^<clone:thread>*1 > <libc:thread>*1 > pages_main > over_pages

/* Returns the KiB of the whole process's memory that are in large pages. */
NOINLINE long large_pages(void)
{
	char line[256];
	long kilobytes = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "AnonHugePages: %ld", &kilobytes) == 1)
			break;
	if (file)
		fclose(file);
	return kilobytes;
}
//= large_pages > <libc:pages>

NOINLINE void pages_mode(void)
{
	long large = 1 << 21, half = 2 * large;
	char *memory = mmap(NULL, 2 * half + large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *stack = (char *)(((uintptr_t)memory + large - 1) & -large);
	pthread_attr_t attributes;
	pthread_t thread;

	/* The outer half, which is the upper one. */
	if (memory == MAP_FAILED || madvise(stack + half, half, MADV_HUGEPAGE))
		exit(1);
	stack[2 * half - 1] = stack[half] = 1;
	if (!large_pages())
		fprintf(stderr, "NOT TESTED: stacks on large pages: the kernel has none free\n");
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, 2 * half);
	if (pthread_create(&thread, &attributes, pages_main, (void *)100))
		exit(1);
	pthread_join(thread, NULL);
}
//= main > pages_mode > <libc:threads> | large_pages

int main(int argc, char **argv)
{
	const char *mode = begin(argc, argv);

	if (!strcmp(mode, "one") && argc > 4)
		one_mode(argv[2], atol(argv[3]), atol(argv[4]));
	else if (!strcmp(mode, "grow"))
		grow_mode();
	else if (!strcmp(mode, "realign"))
		realign_mode();
	else if (!strcmp(mode, "tails"))
		tails_mode();
	else if (!strcmp(mode, "sort"))
		sort_mode();
	else if (!strcmp(mode, "copy"))
		copy_mode();
	else if (!strcmp(mode, "calls"))
		calls_mode();
	else if (!strcmp(mode, "threads"))
		threads_mode();
	else if (!strcmp(mode, "pages"))
		pages_mode();
	return 2;
}
//= main > <libc:main>
