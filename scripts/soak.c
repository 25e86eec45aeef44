/*
 * Load for scripts/soak: programs, threads and files that come and go. Usage: soak DIRECTORY TEMPLATE SECONDS
 *
 *	main     200 programs a second, of 4,096 that differ in their build id; each is written, run for 2 ms, and removed
 *	rename   1,000 new names a second for its thread
 *	vanish   20 files a second that are mapped for execution, removed, and unmapped
 *	soak -   the program that main runs: it spins for 2 ms
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The build id that scripts/soak gives to the linker. */
static const unsigned char build_id[] = { 0x50, 0x0a, 0x4b, 0x50, 0x0a, 0x4b, 0x50, 0x0a, 0x4b, 0x50 };
static unsigned char *template;
static size_t length, at;
static const char *directory;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static int spin(double seconds)
{
	volatile int rounds = 0;

	for (double end = now() + seconds; now() < end;)
		rounds++;
	return rounds > 0;
}

/* Writes a copy of the template with a different build id. */
static int write_program(const char *path, unsigned int number)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	unsigned char id[sizeof(build_id)];

	if (file < 0)
		return -1;
	memcpy(id, build_id, sizeof(id));
	memcpy(id, &number, sizeof(number));
	if (write(file, template, length) != (ssize_t)length || pwrite(file, id, sizeof(id), at) != sizeof(id))
		perror(path);
	return close(file);
}

static void *rename_thread(void *unused)
{
	for (unsigned long i = 0;; i++) {
		char name[16];

		snprintf(name, sizeof(name), "r%lu", i);
		prctl(PR_SET_NAME, name);
		usleep(1000);
	}
	return unused;
}

static void *vanish(void *unused)
{
	for (unsigned int i = 0;; i++) {
		char path[4096];
		int file;

		snprintf(path, sizeof(path), "%s/v%u", directory, i);
		write_program(path, 1 << 20 | i);
		file = open(path, O_RDONLY | O_CLOEXEC);
		void *mapped = mmap(NULL, length, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
		close(file);
		unlink(path);
		usleep(10000);
		munmap(mapped, length);
		usleep(40000);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	struct stat about;
	int file;

	if (argc < 4)
		return !spin(0.002);
	directory = argv[1];
	file = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &about)) {
		perror(argv[2]);
		return 1;
	}
	length = about.st_size;
	template = malloc(length);
	if (read(file, template, length) != (ssize_t)length)
		return 1;
	unsigned char *found = memmem(template, length, build_id, sizeof(build_id));
	if (!found) {
		fprintf(stderr, "the template has no build id that can be changed\n");
		return 1;
	}
	at = found - template;
	signal(SIGCHLD, SIG_IGN);
	pthread_create(&thread, NULL, rename_thread, NULL);
	pthread_create(&thread, NULL, vanish, NULL);
	double next = now(), end = next + atof(argv[3]);
	for (unsigned int i = 0; now() < end; i++) {
		char path[4096], old[4096];

		snprintf(path, sizeof(path), "%s/p%u", directory, i % 4096);
		snprintf(old, sizeof(old), "%s/p%u", directory, (i + 4096 - 200) % 4096);
		unlink(old);
		write_program(path, i % 4096);
		pid_t child = vfork();
		if (!child) {
			execl(path, path, "-", (char *)NULL);
			_exit(127);
		}
		next += 0.005;
		if (next > now())
			usleep((next - now()) * 1e6);
	}
	return 0;
}
