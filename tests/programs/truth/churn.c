/* A library that loader.c opens. It is built with NAME (churn0 to churn7) and SIZE. SIZE makes frames and code of each library
 * differ from those of the others.
 */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NOINLINE __attribute__((noinline, noclone, noipa, used))

static volatile long sink;

/* Padding in front of the code, so that functions of different libraries are never at the same offset. */
__attribute__((used, aligned(16))) void JOIN(NAME, _room)(void)
{
	__asm__ volatile(".skip " "%c0" ", 0x90" : : "i"(SIZE * 48));
}

NOINLINE long JOIN(NAME, _inner)(void (*call)(long), long n)
{
	volatile char local[SIZE * 16 + 8];

	local[n & 15] = n;
	for (long i = 0; i < 3000; i++)
		sink += i;
	call(n);
	return local[n & 15];
}

NOINLINE long JOIN(NAME, _middle)(void (*call)(long), long n)
{
	volatile long local[SIZE];

	local[SIZE / 2] = JOIN(NAME, _inner)(call, n);
	for (long i = 0; i < 3000; i++)
		sink += i;
	return local[SIZE / 2];
}

NOINLINE void JOIN(NAME, _enter)(void (*call)(long), long n)
{
	sink += JOIN(NAME, _middle)(call, n);
	sink += n;
}
