/* Threads that wait in known ways. Each tells at its end how long it did not run: the time since its begin, less its CPU time.
 *
 *   "short"             nap_short → nanosleep      3 ms
 *   "long"              nap_long → nanosleep       120 ms
 *   "lengths"           wait_1, wait_2, wait_4, wait_8 → nanosleep      so many milliseconds, in turn
 *   "pipe a", "pipe b"  send_byte → write, take_byte → read             a byte goes to and fro
 *   "cond a", "cond b"  take_turn → pthread_cond_wait                   a turn goes to and fro
 *   "spin a", "spin b"  burn                       both on one CPU
 *   "mover"             nap_short, on the next CPU each time
 *   "reader"            read_block → pread         of FILE, not from the cache
 *
 * The two that spin have the first CPU, where only "mover" disturbs them; the others have the last one. When a thread takes another one's
 * CPU, the scheduler's own count may begin at the wakeup and not at the switch, some 10 us earlier.
 *
 * Arguments: SECONDS FILE, or SECONDS only: then there are 64 threads "lengths" and no others. Says "ready" before it starts the threads. At the end, a line for each thread: TID NANOSECONDS DELAYED SWITCHES
 * NAME. The kernel counts DELAYED, the part in which it could have run, and how often it left the CPU. Then for each wait of "lengths" a line:
 * 0 NANOSECONDS 0 0 wait_N.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (64 << 10)

struct thread {
    const char *name;
    void (*run)(void);
    pthread_t id;
    int tid;
    long off, delayed, switches;
};

static long begin, end;
static const char *file;
static int to_b[2], to_a[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn, is_over;
static long lengths[4];
static __thread volatile unsigned long counter;

static long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int goes_on(void) { return now_ns(CLOCK_MONOTONIC) < end; }

static void rest(long milliseconds)
{
    struct timespec time = {0, milliseconds * 1000000L};
    nanosleep(&time, NULL);
}

/* The kernel's own count: nanoseconds on a CPU, and those in which the thread waited for one. */
static long delay(void)
{
    char path[64];
    long on = 0, delayed = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%ld/schedstat", syscall(SYS_gettid));
    FILE *stat = fopen(path, "r");
    if (!stat || fscanf(stat, "%ld %ld", &on, &delayed) != 2)
        abort();
    fclose(stat);
    return delayed;
}

static long switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

static void on_cpu(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

__attribute__((noinline)) void nap_short(void) { rest(3); counter += 1; }
__attribute__((noinline)) void nap_long(void) { rest(120); counter += 1; }
__attribute__((noinline)) void wait_1(void) { rest(1); counter += 1; }
__attribute__((noinline)) void wait_2(void) { rest(2); counter += 1; }
__attribute__((noinline)) void wait_4(void) { rest(4); counter += 1; }
__attribute__((noinline)) void wait_8(void) { rest(8); counter += 1; }

static void run_short(void) { while (goes_on()) nap_short(); }
static void run_long(void) { while (goes_on()) nap_long(); }

static void run_lengths(void)
{
    void (*waits[])(void) = {wait_1, wait_2, wait_4, wait_8};
    while (goes_on())
        for (int i = 0; i < 4; i++) {
            long before = now_ns(CLOCK_MONOTONIC);
            waits[i]();
            __atomic_fetch_add(&lengths[i], now_ns(CLOCK_MONOTONIC) - before, __ATOMIC_RELAXED);
        }
}

__attribute__((noinline)) int send_byte(int pipe) { int sent = write(pipe, "x", 1) == 1; counter += 1; return sent; }
__attribute__((noinline)) int take_byte(int pipe) { char c; int taken = read(pipe, &c, 1) == 1; counter += 1; return taken; }

static void run_pipe_a(void)
{
    while (goes_on() && send_byte(to_b[1]) && take_byte(to_a[0]));
    close(to_b[1]);
}

static void run_pipe_b(void) { while (take_byte(to_b[0]) && send_byte(to_a[1])); }

__attribute__((noinline)) int take_turn(int mine)
{
    pthread_mutex_lock(&lock);
    while (turn != mine && !is_over)
        pthread_cond_wait(&changed, &lock);
    turn = !mine;
    is_over |= !goes_on();
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    counter += 1;
    return !is_over;
}

static void run_cond_a(void) { while (take_turn(0)); }
static void run_cond_b(void) { while (take_turn(1)); }

__attribute__((noinline)) void burn(void)
{
    for (int i = 0; i < 2000000; i++)
        counter += (unsigned long)i;
}

static void run_spin(void) { on_cpu(0); while (goes_on()) burn(); }

static void run_mover(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; goes_on(); i++) {
        on_cpu(i % cpus);
        nap_short();
    }
}

__attribute__((noinline)) int read_block(int from, void *into, long at)
{
    int whole = pread(from, into, BLOCK, at * BLOCK) == BLOCK;
    counter += 1;
    return whole;
}

static void run_reader(void)
{
    void *block = aligned_alloc(4096, BLOCK);
    int from = open(file, O_RDONLY | O_DIRECT);
    if (from < 0) {
        perror(file);
        exit(1);
    }
    for (long at = 0; goes_on(); at = read_block(from, block, at) ? at + 1 : 0);
}

static struct thread threads[] = {
    {"short", run_short, 0, 0, 0, 0, 0}, {"long", run_long, 0, 0, 0, 0, 0}, {"lengths", run_lengths, 0, 0, 0, 0, 0},
    {"pipe a", run_pipe_a, 0, 0, 0, 0, 0}, {"pipe b", run_pipe_b, 0, 0, 0, 0, 0},
    {"cond a", run_cond_a, 0, 0, 0, 0, 0}, {"cond b", run_cond_b, 0, 0, 0, 0, 0},
    {"spin a", run_spin, 0, 0, 0, 0, 0}, {"spin b", run_spin, 0, 0, 0, 0, 0},
    {"mover", run_mover, 0, 0, 0, 0, 0}, {"reader", run_reader, 0, 0, 0, 0, 0},
};
#define MANY 64

static void *run(void *of)
{
    struct thread *thread = of;
    long wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), before = delay();
    prctl(PR_SET_NAME, thread->name);
    thread->tid = syscall(SYS_gettid);
    if (file)
        on_cpu(sysconf(_SC_NPROCESSORS_ONLN) - 1);
    thread->run();
    thread->off = now_ns(CLOCK_MONOTONIC) - wall - (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu);
    thread->delayed = delay() - before;
    thread->switches = switches();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2 || pipe(to_b) || pipe(to_a))
        return 2;
    file = argv[2];

    unsigned long count = file ? sizeof(threads) / sizeof(threads[0]) : MANY;
    struct thread all[MANY];
    for (unsigned long i = 0; i < count; i++)
        all[i] = threads[file ? i : 2];
    printf("ready\n");
    fflush(stdout);
    /* Time to attach. */
    sleep(1);
    begin = now_ns(CLOCK_MONOTONIC);
    end = begin + atof(argv[1]) * 1e9;
    for (unsigned long i = 0; i < count; i++)
        pthread_create(&all[i].id, NULL, run, &all[i]);
    for (unsigned long i = 0; i < count; i++)
        pthread_join(all[i].id, NULL);
    for (unsigned long i = 0; i < count; i++)
        printf("%d %ld %ld %ld %s\n", all[i].tid, all[i].off, all[i].delayed, all[i].switches, all[i].name);
    for (int i = 0; i < 4; i++)
        printf("0 %ld 0 0 wait_%d\n", lengths[i], 1 << i);
    return 0;
}
