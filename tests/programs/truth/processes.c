/* Processes that start and end all the time.
 *
 *   vfork                     children in their parent's memory and on its stack
 *   fork                      children without exec
 *   storm RATE MS             RATE children a second, each is forked, executes this program again and works for MS
 *   short MS                  one such child: MS milliseconds of CPU time, then its end
 *   steady                    works as short does, without end
 */
#include "truth.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

NOINLINE long used_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	sink++;
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
//= used_ms > <libc,vdso:clock>

NOINLINE void short_inner(void)
{
	burn(100000);
	sink++;
}
//= short_inner > burn

NOINLINE void short_middle(long ms)
{
	long end = used_ms() + ms;

	while (used_ms() < end)
		short_inner();
	sink++;
}
//= short_middle > used_ms | short_inner

NOINLINE void short_mode(long ms)
{
	short_middle(ms);
	sink++;
}
//= main > short_mode > short_middle

NOINLINE void steady_middle(void)
{
	for (;;)
		short_inner();
}
//= steady_middle > short_inner

NOINLINE void steady_mode(void)
{
	steady_middle();
	sink++;
}
//= main > steady_mode > steady_middle

NOINLINE void vfork_inner(long rounds)
{
	volatile long local[20];

	local[rounds & 15] = rounds;
	burn(rounds);
	sink += local[3];
}
//= vfork_inner > burn

NOINLINE void vfork_mode(void)
{
	for (;;) {
		pid_t child = vfork();
		if (child == 0) {
			vfork_inner(2000000);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		sink++;
	}
}
//= main > vfork_mode > vfork_inner | <libc:vfork>

NOINLINE void fork_mode(void)
{
	for (;;) {
		pid_t child = fork();
		if (child == 0) {
			short_middle(3);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		sink++;
	}
}
//= main > fork_mode > short_middle | <libc,ld:fork>

NOINLINE void storm_fork(char *ms)
{
	char *arguments[] = {"short", "short", ms, NULL};

	pid_t child = fork();
	if (child == 0) {
		execve("/proc/self/exe", arguments, environ);
		_exit(127);
	}
	sink++;
}
//= storm_fork > <libc,ld:fork>

/* storm_fork by posix_spawn instead: the child runs on a new stack, in its parent's memory. */
NOINLINE void storm_spawn(char *ms)
{
	char *arguments[] = {"short", "short", ms, NULL};
	pid_t child;

	sink += posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
}
//= storm_spawn > <libc,ld:spawn>
//= ^<clone:spawned>*1 > <libc,ld:spawned>

NOINLINE void storm_mode(long rate, char *ms)
{
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (long number = 0;; number++) {
		if (number % 2)
			storm_fork(ms);
		else
			storm_spawn(ms);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		next.tv_nsec += 1000000000 / rate;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
//= main > storm_mode > storm_fork | storm_spawn | <libc,vdso:storm>

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "short")) {
		short_mode(atol(argv[2]));
		return 0;
	}
	const char *mode = begin(argc, argv);

	if (!strcmp(mode, "vfork"))
		vfork_mode();
	else if (!strcmp(mode, "fork"))
		fork_mode();
	else if (!strcmp(mode, "steady"))
		steady_mode();
	else if (!strcmp(mode, "storm") && argc > 3)
		storm_mode(atol(argv[2]), argv[3]);
	return 2;
}
//= main > <libc:main>
