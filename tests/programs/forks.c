/* A storm of short processes: fork, exec of itself, a little work, exit.
 *
 *   each child:  main → child_work → child_burn      5 to 50 ms of CPU, then it is gone
 *
 * The hard case of names: a process is often gone before its first sample is read. Its comm is "storm-child".
 * Promised by: noinline, work after each call. The parent sleeps between children and reaps them, so it is hardly seen.
 * Arguments: [SECONDS [CHILDREN_PER_SECOND]], 60 and 50. Says "ready" after the first child has ended.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long counter;

__attribute__((noinline)) void child_burn(long milliseconds)
{
    struct timespec time;
    long end = 0, now;
    do {
        for (int i = 0; i < 200000; i++)
            counter += (unsigned long)i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        now = time.tv_sec * 1000 + time.tv_nsec / 1000000;
        if (end == 0)
            end = now + milliseconds;
    } while (now < end);
}

__attribute__((noinline)) void child_work(long milliseconds)
{
    child_burn(milliseconds);
    counter += 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--child") == 0) {
        prctl(PR_SET_NAME, "storm-child");
        child_work(atoi(argv[2]));
        counter += 1;
        return 0;
    }

    int seconds = argc > 1 ? atoi(argv[1]) : 60;
    int each_second = argc > 2 ? atoi(argv[2]) : 50;
    struct timespec pause = {0, 1000000000L / (each_second > 1 ? each_second : 2)};
    int said = 0;

    alarm((unsigned)seconds);
    for (long number = 0;; number++) {
        char milliseconds[16];
        snprintf(milliseconds, sizeof milliseconds, "%ld", 5 + number * 7 % 46);
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", argv[0], "--child", milliseconds, (char *)NULL);
            _exit(127);
        }
        nanosleep(&pause, NULL);
        if (!said) {
            waitpid(child, NULL, 0);
            puts("ready");
            fflush(stdout);
            said = 1;
        }
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
