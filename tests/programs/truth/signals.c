/* Signals: in a leaf without a frame, on another stack, and one in the handler of another.
 *
 *   leaf | alternate | nested
 */
#include "truth.h"

#include <sys/time.h>

/* Keeps what it needs below the stack pointer, where no frame is (the red zone of x86_64). */
NOINLINE long red_leaf(long rounds)
{
	volatile long local[8] = {1, 2, 3, 4, 5, 6, 7, 8};

	for (long i = 0; i < rounds; i++)
		local[i & 7] += i;
	return local[3];
}

NOINLINE void interrupted(long rounds)
{
	sink += red_leaf(rounds);
	sink++;
}
//= interrupted > red_leaf

NOINLINE void leaf_mode(void)
{
	for (;;)
		interrupted(200000);
}
//= main > leaf_mode > interrupted

NOINLINE void handler_work(void)
{
	burn(200000);
	sink++;
}
//= handler_work > burn

/* A handler returns to the frame between: libc's __restore_rt; on arm64 __kernel_rt_sigreturn of the vDSO. */
NOINLINE void on_alarm(int signal)
{
	(void)signal;
	handler_work();
	sink++;
}
//= * > <libc,vdso:alarm>*1 > on_alarm > handler_work

NOINLINE void second_work(void)
{
	burn(100000);
	sink++;
}
//= second_work > burn

NOINLINE void on_second(int signal, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	second_work();
	sink += signal;
}
//= * > <libc,vdso:second>*1 > on_second > second_work
//= <libc:raise> > <libc,vdso:second>*1

/* While it runs, it gets a second signal, always at the same place, and other signals (ITIMER_VIRTUAL) anywhere. */
NOINLINE void on_first(int signal, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	handler_work();
	kill(getpid(), SIGUSR1);
	sink += signal;
}
//= * > <libc,vdso:first>*1 > on_first > handler_work | <libc:raise>

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | flags};

	if (sigaction(signal, &action, NULL))
		exit(1);
}

static void every(int timer, long microseconds)
{
	struct itimerval times = {{0, microseconds}, {0, microseconds}};

	if (setitimer(timer, &times, NULL))
		exit(1);
}

static void other_stack(void)
{
	static char place[65536];
	stack_t stack = {.ss_sp = place, .ss_size = sizeof(place)};

	if (sigaltstack(&stack, NULL))
		exit(1);
}

int main(int argc, char **argv)
{
	const char *mode = begin(argc, argv);

	/* Signals use timers of CPU time. The timer of real time remains for the alarm in `begin`, which ends this program if the test
	 * does not. */
	if (!strcmp(mode, "leaf")) {
		struct sigaction action = {.sa_handler = on_alarm};
		if (sigaction(SIGVTALRM, &action, NULL))
			exit(1);
	} else if (!strcmp(mode, "alternate")) {
		other_stack();
		struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_ONSTACK};
		if (sigaction(SIGVTALRM, &action, NULL))
			exit(1);
	} else {
		other_stack();
		handle(SIGVTALRM, on_first, 0);
		handle(SIGUSR1, on_second, SA_ONSTACK);
		handle(SIGPROF, on_second, SA_ONSTACK);
		every(ITIMER_PROF, 3100);
	}
	every(ITIMER_VIRTUAL, 2000);
	leaf_mode();
	return 0;
}
//= main > <libc:main> | every | handle | other_stack
//= every | handle | other_stack > <libc:main>
