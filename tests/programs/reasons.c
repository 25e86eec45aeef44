/* Threads that wait for one reason each, 20 ms at a time. The function that waits has the reason's name.
 *
 * Arguments: SECONDS FILE, where FILE lies on a disk. Or SECONDS: then one thread burns CPU time, in `burn`.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LENGTH 20000000L
#define BLOCK (1 << 20)
#define WRITE (4 << 20)
#define PAGE 4096

static double end;
static const char *file;
static const struct timespec length = {0, LENGTH};
static const struct timeval length_of_call = {0, LENGTH / 1000};
static int nothing[2], shared_file;
static __thread volatile unsigned long counter;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int need(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

/* A function that is seen in stacks: its call is no tail call. */
#define SEEN(name, ...) __attribute__((noinline)) void name(__VA_ARGS__)
#define DONE counter += 1

SEEN(sleeps, void) { nanosleep(&length, NULL); DONE; }

SEEN(waits_for_lock, pthread_mutex_t *lock, pthread_cond_t *changed)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LENGTH;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(changed, lock, &until);
    DONE;
}

SEEN(waits_for_semaphore, int semaphore)
{
    struct sembuf take = {0, -1, 0};
    semtimedop(semaphore, &take, 1, &length);
    DONE;
}

SEEN(waits_for_flock, int file) { flock(file, LOCK_EX); DONE; }

SEEN(polls, void) { struct pollfd of = {nothing[0], POLLIN, 0}; poll(&of, 1, LENGTH / 1000000); DONE; }

SEEN(polls_many, int epoll) { struct epoll_event event; epoll_wait(epoll, &event, 1, LENGTH / 1000000); DONE; }

SEEN(selects, void)
{
    fd_set set;
    struct timeval time = length_of_call;
    FD_ZERO(&set);
    FD_SET(nothing[0], &set);
    select(nothing[0] + 1, &set, NULL, NULL, &time);
    DONE;
}

SEEN(waits_for_signal, void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigtimedwait(&set, NULL, &length);
    DONE;
}

SEEN(waits_for_socket, int socket) { char c; recv(socket, &c, 1, 0); DONE; }
SEEN(waits_for_peer, int socket) { accept(socket, NULL, NULL); DONE; }
SEEN(waits_for_pipe, int pipe) { char c; if (read(pipe, &c, 1) == 1) DONE; }
SEEN(waits_for_number, int eventfd) { unsigned long long number; if (read(eventfd, &number, 8) == 8) DONE; }
SEEN(waits_for_child, int child) { waitpid(child, NULL, WUNTRACED); DONE; }
SEEN(waits_for_disk, int from, void *into, long at) { counter += pread(from, into, BLOCK, at); }
SEEN(waits_for_page, const char *page) { counter += (unsigned long)*(volatile const char *)page; }
SEEN(waits_for_writer, const void *data) { counter += pwrite(shared_file, data, WRITE, 0); }
SEEN(stops, void) { raise(SIGSTOP); DONE; }

SEEN(burn, void)
{
    for (int i = 0; i < 2000000; i++)
        counter += (unsigned long)i;
}

static int goes_on(void) { return now() < end; }

static void *run_sleep(void *none) { while (goes_on()) sleeps(); return none; }
static void *run_poll(void *none) { while (goes_on()) polls(); return none; }
static void *run_select(void *none) { while (goes_on()) selects(); return none; }
static void *run_signal(void *none) { while (goes_on()) waits_for_signal(); return none; }

static void *run_lock(void *none)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    while (goes_on())
        waits_for_lock(&lock, &changed);
    return none;
}

static void *run_semaphore(void *none)
{
    int semaphore = need(semget(IPC_PRIVATE, 1, 0600), "semget");
    while (goes_on())
        waits_for_semaphore(semaphore);
    semctl(semaphore, 0, IPC_RMID);
    return none;
}

/* Two threads run this, and each waits for the other one. */
static void *run_flock(void *none)
{
    int mine = need(open(file, O_RDONLY), file);
    while (goes_on()) {
        waits_for_flock(mine);
        nanosleep(&length, NULL);
        flock(mine, LOCK_UN);
    }
    return none;
}

static void *run_epoll(void *none)
{
    int epoll = epoll_create1(0);
    while (goes_on())
        polls_many(epoll);
    return none;
}

static void *run_socket(void *none)
{
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &length_of_call, sizeof(length_of_call));
    while (goes_on())
        waits_for_socket(pair[0]);
    return none;
}

static void *run_datagram(void *none)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int mine = socket(AF_INET, SOCK_DGRAM, 0);
    need(bind(mine, (struct sockaddr *)&address, sizeof(address)), "bind");
    setsockopt(mine, SOL_SOCKET, SO_RCVTIMEO, &length_of_call, sizeof(length_of_call));
    while (goes_on())
        waits_for_socket(mine);
    return none;
}

static void *run_peer(void *none)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int mine = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(mine, (struct sockaddr *)&address, sizeof(address)), "bind");
    need(listen(mine, 1), "listen");
    setsockopt(mine, SOL_SOCKET, SO_RCVTIMEO, &length_of_call, sizeof(length_of_call));
    while (goes_on())
        waits_for_peer(mine);
    return none;
}

/* Writes each 20 ms, until the end. */

static void *write_numbers(void *of)
{
    int to = *(int *)of;
    unsigned long long one = 1;
    while (goes_on()) {
        nanosleep(&length, NULL);
        if (write(to, &one, 8) != 8)
            break;
    }
    close(to);
    return NULL;
}

static void *run_pipe(void *none)
{
    int pair[2];
    pthread_t writer;
    need(pipe(pair), "pipe");
    pthread_create(&writer, NULL, write_numbers, &pair[1]);
    while (goes_on())
        waits_for_pipe(pair[0]);
    close(pair[0]);
    pthread_join(writer, NULL);
    return none;
}

static void *run_number(void *none)
{
    int number = eventfd(0, 0), to = dup(number);
    pthread_t writer;
    pthread_create(&writer, NULL, write_numbers, &to);
    while (goes_on())
        waits_for_number(number);
    pthread_join(writer, NULL);
    return none;
}

static void *run_child(void *none)
{
    while (goes_on()) {
        int child = need(fork(), "fork");
        if (!child) {
            nanosleep(&length, NULL);
            _exit(0);
        }
        waits_for_child(child);
    }
    return none;
}

static void *run_stop(void *none)
{
    int child = need(fork(), "fork");
    while (!child)
        stops();
    while (goes_on()) {
        waitpid(child, NULL, WUNTRACED);
        nanosleep(&length, NULL);
        kill(child, SIGCONT);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return none;
}

static void *run_disk(void *none)
{
    int from = need(open(file, O_RDONLY | O_DIRECT), file);
    long blocks = lseek(from, 0, SEEK_END) / BLOCK;
    void *into = aligned_alloc(PAGE, BLOCK);
    for (long at = 0; goes_on(); at = (at + 1) % blocks)
        waits_for_disk(from, into, at * BLOCK);
    return none;
}

static void *run_page(void *none)
{
    int from = need(open(file, O_RDONLY), file);
    long size = lseek(from, 0, SEEK_END);
    while (goes_on()) {
        posix_fadvise(from, 0, size, POSIX_FADV_DONTNEED);
        const char *all = mmap(NULL, size, PROT_READ, MAP_SHARED, from, 0);
        madvise((void *)all, size, MADV_RANDOM);
        for (long at = 0; at < size && goes_on(); at += 16 * PAGE)
            waits_for_page(all + at);
        munmap((void *)all, size);
    }
    return none;
}

/* Two threads run this, on one CPU: each is interrupted inside the kernel while it holds the lock of the file. */
static void *run_writer(void *none)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof(first), &first);
    void *data = calloc(1, WRITE);
    while (goes_on())
        waits_for_writer(data);
    return none;
}

int main(int argc, char **argv)
{
    void *(*threads[])(void *) = {
        run_sleep, run_lock, run_semaphore, run_flock, run_flock, run_poll, run_epoll, run_select, run_signal, run_socket, run_datagram,
        run_peer, run_pipe, run_number, run_child, run_stop, run_disk, run_page, run_writer, run_writer,
    };
    pthread_t ids[sizeof(threads) / sizeof(threads[0])];

    if (argc < 2)
        return 2;
    file = argv[2];
    end = now() + atof(argv[1]);
    while (!file && goes_on())
        burn();
    if (!file)
        return 0;

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    need(pipe(nothing), "pipe");
    shared_file = need(memfd_create("shared", 0), "memfd_create");
    for (unsigned long i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
        pthread_create(&ids[i], NULL, threads[i], NULL);
    for (unsigned long i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
        pthread_join(ids[i], NULL);
    return 0;
}
