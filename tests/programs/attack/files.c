/*
 * Maps a file executable, under a new name of 3.7 KB each time, and unmaps it. Does so as fast as it can, and runs a little
 * between. With "apart", at falling addresses: what was mapped before is never replaced.
 */
#define _GNU_SOURCE
#include <fcntl.h>
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

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 60, apart = argc > 2 && !strcmp(argv[2], "apart"), file, directories = 18;
	char name[201], from[32] = "0", to[32];
	char *place = (char *)0x600000000000;
	double until = now() + seconds;
	unsigned long number = 0;

	alarm(seconds + 1);
	memset(name, 'x', 200);
	name[200] = 0;
	while (directories--)
		if (mkdir(name, 0755) || chdir(name))
			return 1;
	file = open("0", O_RDWR | O_CREAT, 0755);
	if (file < 0 || ftruncate(file, 4096))
		return 1;
	while (now() < until) {
		snprintf(to, sizeof(to), "%lu", ++number);
		if (rename(from, to))
			return 1;
		strcpy(from, to);
		if (apart)
			place -= 8192;
		if (mmap(place, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
			return 1;
		munmap(place, 4096);
		/* About a thousand a second. */
		usleep(500);
	}
	return 0;
}
