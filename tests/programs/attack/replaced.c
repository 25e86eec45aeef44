/* Runs code of files that become something else a moment later: a FIFO, or a link to a given target.
 *
 *   write a page of code ─► map it, run it for 30 ms ─► unmap it ─► rename the other thing over its path ─► the next file
 *
 * A profiler that opens the path then, for the build id or the unwind table of a sample, finds the FIFO or the link. Arguments:
 * DIRECTORY, then "fifo" or the target of links. Files keep their names until this ends; at most 300 are made.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* f(n): counts n down. */
#if defined(__x86_64__)
static const unsigned char code[] = { 0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
#elif defined(__aarch64__)
static const unsigned char code[] = { 0x00, 0x04, 0x00, 0x71, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6 };
#endif

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void run(const char *path)
{
	unsigned char page[4096] = { 0 };
	int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0755);
	memcpy(page, code, sizeof(code));
	if (file < 0 || write(file, page, sizeof(page)) != sizeof(page))
		exit(1);
	void *mapped = mmap(NULL, sizeof(page), PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
	close(file);
	if (mapped == MAP_FAILED)
		exit(2);
	for (double until = now() + 0.03; now() < until;)
		((void (*)(unsigned))mapped)(100000);
	munmap(mapped, sizeof(page));
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc < 3)
		return 3;
	for (int number = 0; number < 300; number++) {
		char path[4096], other[4096];
		snprintf(path, sizeof(path), "%s/f%d", argv[1], number);
		snprintf(other, sizeof(other), "%s/other", argv[1]);
		run(path);
		int made = strcmp(argv[2], "fifo") ? symlink(argv[2], other) : mkfifo(other, 0600);
		if (made || rename(other, path))
			return 4;
		usleep(70000);
	}
	for (;;)
		pause();
}
