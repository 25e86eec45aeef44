// Things that happen a known number of times: calls of functions by known callers, forks, page faults, system calls.
//
//   events calls N    N calls of `counted`: of four in a row, three by `often` and one by `seldom`; of a C++ method as many
//   events forks N    N children that end at once
//   events pages N    N pages touched for the first time
//   events parents N  N system calls getppid
//   events framed N   N calls of `framed`, which begins by push rbp
//   events deep N     N calls of `counted`, by `often`, 60 calls of `deeper` below main
//
// The CPU time of one is printed, in nanoseconds.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALONE __attribute__((noinline, noclone, used))

extern "C" ALONE void counted(long number)
{
	asm volatile("" : : "r"(number) : "memory");
}

namespace shop {
struct Till {
	ALONE void sell(int pieces, const char *of)
	{
		asm volatile("" : : "r"(pieces), "r"(of) : "memory");
	}
};
}

extern "C" ALONE void often(long number)
{
	counted(number);
	asm volatile("");
}

extern "C" ALONE void seldom(long number)
{
	counted(number);
	asm volatile("");
}

extern "C" ALONE __attribute__((optimize("no-omit-frame-pointer"))) long framed(long number)
{
	counted(number);
	return number + 1;
}

extern "C" ALONE void deeper(long levels, long count)
{
	if (levels > 1)
		deeper(levels - 1, count);
	else
		for (long i = 0; i < count; i++)
			often(i);
	asm volatile("");
}

static double cpu_time()
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	long count = atol(argv[2]);
	double began = cpu_time();

	if (!strcmp(argv[1], "calls")) {
		shop::Till till;

		for (long i = 0; i < count; i++) {
			i % 4 ? often(i) : seldom(i);
			till.sell(i, "bread");
		}
	} else if (!strcmp(argv[1], "forks")) {
		for (long i = 0; i < count; i++) {
			pid_t child = fork();

			if (!child)
				_exit(0);
			waitpid(child, nullptr, 0);
		}
	} else if (!strcmp(argv[1], "pages")) {
		char *pages = (char *)mmap(nullptr, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		madvise(pages, count * 4096, MADV_NOHUGEPAGE);
		for (long i = 0; i < count; i++)
			pages[i * 4096] = 1;
	} else if (!strcmp(argv[1], "parents")) {
		for (long i = 0; i < count; i++)
			syscall(SYS_getppid);
	} else if (!strcmp(argv[1], "framed")) {
		for (long i = 0; i < count; i++)
			framed(i);
	} else if (!strcmp(argv[1], "deep")) {
		deeper(60, count);
	}
	printf("%.1f\n", (cpu_time() - began) / count);
	return 0;
}
