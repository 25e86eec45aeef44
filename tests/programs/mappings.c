// A process with mappings to ask about, for tests/mappings:
//
//   mappings SECONDS many COUNT     COUNT mappings of alternating protection, then one thread spins
//   mappings SECONDS storm LOG      one thread spins; another maps files over each other as quick as it can, and logs it
//   mappings SECONDS steps          does what each line of its input names, and says so
//
// The storm has SLOTS places, each with two files that no other place has. A turn maps one of the two at one of four offsets over
// the present mapping, or unmaps it. LOG becomes a file of struct turn, in order. The first entry's `place` is the address of
// slot 0, and its `file` is the number of bytes of a slot.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16
#define PAGES 4 /* of a slot */
#define TURNS (1 << 22)

struct turn {
	uint64_t begin, end; // CLOCK_MONOTONIC, just before and just after the system call; end 0: still in it
	uint64_t place;
	uint64_t file; // inode; 0: unmapped
	uint64_t page_offset;
};

static int files[SLOTS * 2];
static uint64_t inodes[SLOTS * 2];
static struct turn *turns;
static long page;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *storm(void *region)
{
	uint64_t random = 88172645463325252ULL;

	for (int n = 1; n < TURNS; n++) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		int slot = random % SLOTS, choice = random / SLOTS % 5, offset = random / 1024 % 4;
		int file = slot * 2 + choice % 2;
		char *place = (char *)region + slot * PAGES * page;
		struct turn turn = {.place = (uint64_t)place, .file = choice == 4 ? 0 : inodes[file], .page_offset = offset};

		turn.begin = now();
		turns[n] = turn;
		if (choice == 4) {
			if (munmap(place, PAGES * page))
				fail("munmap");
		} else if (mmap(place, PAGES * page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, files[file], offset * page) != place) {
			fail("mmap");
		}
		turns[n].end = now();
	}
	for (;;)
		pause();
	return NULL;
}

static void begin_storm(const char *log)
{
	int fd = open(log, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || ftruncate(fd, sizeof(struct turn) * TURNS))
		fail(log);
	turns = mmap(NULL, sizeof(struct turn) * TURNS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (turns == MAP_FAILED)
		fail("mmap of the log");
	for (int i = 0; i < SLOTS * 2; i++) {
		struct stat status;

		// Not of a directory: that may be on an overlay file system, whose inodes have two numbers.
		files[i] = memfd_create("storm", 0);
		if (files[i] < 0 || ftruncate(files[i], 16 * page) || fstat(files[i], &status))
			fail("memfd_create");
		inodes[i] = status.st_ino;
	}
	// Room for all slots and a page each side. It is never unmapped, so no other mapping gets it.
	size_t bytes = (SLOTS * PAGES + 2) * page;
	char *region = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region == MAP_FAILED)
		fail("mmap");
	region += page;
	if (munmap(region, SLOTS * PAGES * page))
		fail("munmap");
	turns[0] = (struct turn){.place = (uint64_t)region, .file = PAGES * page};
	pthread_t thread;
	if (pthread_create(&thread, NULL, storm, region))
		fail("pthread_create");
}

static void make_many(long count)
{
	// Neighbours of different protection cannot become one.
	char *region = mmap(NULL, count * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (region == MAP_FAILED)
		fail("mmap");
	for (long i = 0; i < count; i += 2)
		if (mprotect(region + i * page, page, PROT_READ | PROT_EXEC))
			fail("mprotect");
}

static void *nothing(void *argument)
{
	return argument;
}

static void take_steps(char **argv)
{
	// Without stdio: its buffers are mappings.
	static char line[64];
	static char *region;
	ssize_t length;

	while ((length = read(0, line, sizeof(line) - 1)) > 0) {
		line[length - 1] = 0;
		if (!region)
			region = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!strcmp(line, "faults"))
			for (int i = 0; i < 8; i++)
				((volatile char *)region)[i * page] = 1;
		if (!strcmp(line, "dontneed"))
			madvise(region, 8 * page, MADV_DONTNEED);
		if (!strcmp(line, "mmap"))
			mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (!strcmp(line, "mprotect"))
			mprotect(region, 16 * page, PROT_READ);
		if (!strcmp(line, "mprotect-part"))
			mprotect(region + page, page, PROT_READ | PROT_EXEC);
		if (!strcmp(line, "mremap"))
			mremap(region + 15 * page, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, region + 64 * page);
		if (!strcmp(line, "fixed"))
			mmap(region + page, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		if (!strcmp(line, "munmap-part"))
			munmap(region + 2 * page, page);
		if (!strcmp(line, "munmap"))
			munmap(region + 3 * page, 12 * page);
		if (!strcmp(line, "brk"))
			sbrk(1 << 20);
		if (!strcmp(line, "thread")) {
			pthread_t thread;
			if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
				fail("pthread_create");
		}
		if (!strcmp(line, "fork")) {
			pid_t child = fork();
			if (!child)
				_exit(0);
			waitpid(child, NULL, 0);
		}
		if (!strcmp(line, "exec")) {
			execl("/proc/self/exe", argv[0], argv[1], argv[2], "again", NULL);
			fail("exec");
		}
		dprintf(1, "%s\n", line);
	}
	exit(0);
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 60;

	page = sysconf(_SC_PAGESIZE);
	alarm(seconds);
	if (argc > 3 && !strcmp(argv[2], "many"))
		make_many(atol(argv[3]));
	if (argc > 3 && !strcmp(argv[2], "storm"))
		begin_storm(argv[3]);
	if (argc > 2 && !strcmp(argv[2], "steps")) {
		if (argc > 3)
			dprintf(1, "exec\n");
		take_steps(argv);
	}
	puts("ready");
	fflush(stdout);
	for (volatile uint64_t n = 0;; n++)
		;
}
