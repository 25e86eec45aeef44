/*
 * Pretends to be CPython 3.12. Its frames are a ring, so the chain has no end. Its code objects change at each look; their names
 * and line tables are as long as possible. `interpreter SECONDS`. Built with -rdynamic, under a name such as python3.12.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAMES 2000
#define TABLE (64 << 10)

uint8_t _PyRuntime[4096] __attribute__((aligned(16)));
uint32_t Py_Version = 0x030c01f0;

static uint8_t interpreter[1024], state[1024], loop[64], frames[FRAMES][80], codes[FRAMES][256];
static uint8_t name[64 + 4 * 8192], table[32 + TABLE];

static void put(uint8_t *object, size_t offset, const void *pointer)
{
	memcpy(object + offset, &pointer, sizeof(pointer));
}

int main(int argc, char **argv)
{
	uint64_t length = 1ULL << 40, self = (uint64_t)pthread_self(), mix = 1;
	uint32_t form = 4 << 2 | 1 << 5, made = 1;
	pthread_key_t key;

	alarm(argc > 1 ? atoi(argv[1]) : 10);
	pthread_key_create(&key, NULL);
	pthread_setspecific(key, state);
	memcpy(_PyRuntime + 1544, &made, 4);
	memcpy(_PyRuntime + 1548, &key, 4);
	put(_PyRuntime, 40, interpreter);
	put(interpreter, 72, state);
	put(state, 8, state); /* and a ring of threads */
	put(state, 56, loop);
	memcpy(state + 136, &self, 8);
	put(loop, 0, frames[0]);
	memcpy(name + 16, &length, 8);
	memcpy(name + 32, &form, 4);
	memset(name + 56, 'x', sizeof(name) - 56);
	length = TABLE;
	memcpy(table + 16, &length, 8);
	for (int i = 0; i < FRAMES; i++) {
		put(frames[i], 0, codes[i]);
		put(frames[i], 8, frames[(i + 1) % FRAMES]);
		put(frames[i], 56, codes[i] + 192);
		put(codes[i], 112, name);
		put(codes[i], 128, name);
		put(codes[i], 136, table);
	}
	for (;;) {
		for (int i = 0; i < FRAMES; i++) {
			mix = mix * 6364136223846793005ULL + 1442695040888963407ULL;
			memcpy(codes[i] + 80, &mix, 8);
		}
	}
}
