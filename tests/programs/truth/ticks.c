/* An independent count of what a sampler should see: samples that the kernel itself takes, by perf's own rings.
 *
 *   ticks FREQUENCY     cpu-clock on each CPU, read until the input ends; then a line for each tick that was not in the idle
 *                       task: nanoseconds of CLOCK_MONOTONIC and the process; at the end "lost N"
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGES 256 /* of each CPU's ring: 1 MiB holds 43,000 ticks */
#define MOST 4000000

struct tick {
	uint64_t time;
	uint32_t process;
};

static struct tick *ticks;
static long count, lost;

static void drain(struct perf_event_mmap_page *head)
{
	char *ring = (char *)head + sysconf(_SC_PAGESIZE);
	uint64_t size = head->data_size, end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE), at = head->data_tail;

	while (at < end) {
		/* Records are multiples of 8 bytes, but may go round the end. */
		uint64_t words[8];
		struct perf_event_header header;

		for (int i = 0; i < 8; i++)
			memcpy(&words[i], ring + (at + 8 * i) % size, 8);
		memcpy(&header, words, sizeof(header));
		if (header.type == PERF_RECORD_SAMPLE) {
			uint32_t process = (uint32_t)words[1];
			if (process != 0 && count < MOST)
				ticks[count++] = (struct tick){words[2], process};
		} else if (header.type == PERF_RECORD_LOST) {
			lost += words[2];
		}
		at += header.size;
	}
	__atomic_store_n(&head->data_tail, at, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = argc > 1 ? atoi(argv[1]) : 997,
		.freq = 1,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), page = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *heads[1024];

	alarm(300);
	ticks = calloc(MOST, sizeof(*ticks));
	for (int cpu = 0; cpu < cpus && cpu < 1024; cpu++) {
		int fd = syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0) {
			perror("perf_event_open");
			return 1;
		}
		heads[cpu] = mmap(NULL, (1 + PAGES) * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (heads[cpu] == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	struct pollfd input = {0, POLLIN, 0};
	char byte;
	while (poll(&input, 1, 50) == 0 || read(0, &byte, 1) > 0)
		for (int cpu = 0; cpu < cpus && cpu < 1024; cpu++)
			drain(heads[cpu]);
	for (int cpu = 0; cpu < cpus && cpu < 1024; cpu++)
		drain(heads[cpu]);
	for (long i = 0; i < count; i++)
		printf("%llu %u\n", (unsigned long long)ticks[i].time, ticks[i].process);
	printf("lost %ld\n", lost);
	return 0;
}
