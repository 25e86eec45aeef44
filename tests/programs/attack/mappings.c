/*
 * Maps new files executable, under paths of 3.7 KB.
 *
 *   mappings SECONDS rate COUNT    COUNT mappings a second of one file, at falling addresses, each taken away again: what was mapped
 *                                  before is never replaced. The file `count` has their number so far, as text, updated each second.
 *   mappings SECONDS many COUNT    COUNT mappings of a file each, then the file `done`, then it stops until SIGCONT, then it spins
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int new_file(const char *name)
{
	int file = open(name, O_RDWR | O_CREAT, 0755);

	if (file < 0 || ftruncate(file, 4096))
		fail(name);
	return file;
}

static void map(char *place, int file)
{
	if (mmap(place, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
		fail("mmap");
}

static void many(char *place, unsigned long count, int here)
{
	char name[32];

	for (unsigned long number = 0; number < count; number++) {
		snprintf(name, sizeof(name), "%lu", number);
		int file = new_file(name);

		map(place + number * 8192, file);
		close(file);
	}
	close(openat(here, "done", O_CREAT | O_WRONLY, 0644));
	raise(SIGSTOP);
	for (volatile unsigned long turns = 0;; turns++)
		;
}

static void rate(char *place, unsigned long per_second, double until, int here)
{
	int file = new_file("0"), count = openat(here, "count", O_CREAT | O_RDWR, 0644);
	double begun = now(), told = begun;
	unsigned long number = 0;

	while (now() < until) {
		while (number < (now() - begun) * per_second) {
			place -= 8192;
			map(place, file);
			munmap(place, 4096);
			number++;
		}
		if (now() > told + 0.5) {
			told = now();
			dprintf(count, "%lu\n", number);
		}
		usleep(200);
	}
}

int main(int argc, char **argv)
{
	int here = open(".", O_RDONLY | O_DIRECTORY);
	char *place = (char *)0x600000000000;
	char name[201];

	if (argc < 4)
		return 2;
	alarm(atoi(argv[1]) + 1);
	memset(name, 'x', 200);
	name[200] = 0;
	for (int depth = 0; depth < 18; depth++)
		if (mkdir(name, 0755) || chdir(name))
			fail("mkdir");
	if (!strcmp(argv[2], "many"))
		many(place, strtoul(argv[3], NULL, 10), here);
	else
		rate(place, strtoul(argv[3], NULL, 10), now() + atoi(argv[1]), here);
	return 0;
}
