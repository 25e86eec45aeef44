/*
 * Holds its own memory lock for good. A file system in user space (FUSE) never answers WRITE. One thread unmaps a written page of
 * a file there: it waits for the answer and holds the lock for reading or writing. Another thread maps memory: it waits for the
 * lock, and all further requests for the lock wait behind it. The remaining threads keep spinning.
 *
 * The same program serves the file system, in a new namespace: an ordinary user may do all of this.
 *
 * Arguments: SECONDS [late]. With `late` WRITE is answered after 4.3 s, just before waiting readers would give up. This is
 * repeated without end. Each time ten new files of 4 KB are mapped first, and run for 20 ms each while the lock is held.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		fail(path);
	close(file);
}

static void answer(int device, const struct fuse_in_header *in, const void *body, size_t size, int error)
{
	static char reply[1 << 16];
	struct fuse_out_header out = { .len = sizeof(out) + size, .error = error, .unique = in->unique };

	memcpy(reply, &out, sizeof(out));
	memcpy(reply + sizeof(out), body, size);
	if (write(device, reply, out.len) < 0)
		perror("answer");
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr attr = { .ino = node, .nlink = 1, .blksize = 4096, .uid = getuid(), .gid = getgid() };

	attr.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0777;
	attr.size = node == 1 ? 0 : 1 << 20;
	return attr;
}

/* Answers everything but WRITE, which it answers late or not at all. */
static void serve(int device, int is_late)
{
	static char request[1 << 18];

	for (;;) {
		ssize_t length = read(device, request, sizeof(request));
		const struct fuse_in_header *in = (void *)request;
		struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 1 << 16, .max_readahead = 1 << 16,
					      .flags = FUSE_WRITEBACK_CACHE, .max_background = 16, .congestion_threshold = 12 };
		struct fuse_entry_out entry = { .nodeid = 2, .attr = attributes(2), .attr_valid = 1000, .entry_valid = 1000 };
		struct fuse_attr_out attr = { .attr = attributes(in->nodeid), .attr_valid = 1000 };
		struct fuse_open_out opened = { .fh = 1, .open_flags = FOPEN_KEEP_CACHE };
		static char zeros[1 << 15];

		if (length < (ssize_t)sizeof(*in))
			return;
		switch (in->opcode) {
		case FUSE_INIT: answer(device, in, &init, sizeof(init), 0); break;
		case FUSE_LOOKUP: answer(device, in, &entry, sizeof(entry), 0); break;
		case FUSE_GETATTR: case FUSE_SETATTR: answer(device, in, &attr, sizeof(attr), 0); break;
		case FUSE_OPEN: answer(device, in, &opened, sizeof(opened), 0); break;
		case FUSE_READ: {
			const struct fuse_read_in *want = (void *)(in + 1);
			answer(device, in, zeros, want->size < sizeof(zeros) ? want->size : sizeof(zeros), 0);
			break;
		}
		case FUSE_WRITE: {
			const struct fuse_write_in *wrote = (void *)(in + 1);
			struct fuse_write_out taken = { .size = wrote->size };

			if (!is_late)
				break;
			usleep(4300000);
			answer(device, in, &taken, sizeof(taken), 0);
			break;
		}
		case FUSE_FORGET: case FUSE_INTERRUPT: case FUSE_BATCH_FORGET: break;
		case FUSE_FLUSH: case FUSE_RELEASE: answer(device, in, NULL, 0, 0); break;
		default: answer(device, in, NULL, 0, -38);
		}
	}
}

static char *page;
static pthread_barrier_t all_there;

/* The kernel writes the file out when it is unmapped (fuse_vma_close), and waits for the answer. */
static void *take_away(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&all_there);
	munmap(page, 4096);
	return NULL;
}

static void *map(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&all_there);
	usleep(300000);
	mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return NULL;
}

#if defined(__x86_64__)
/* 1: dec %rdi; jnz 1b; ret */
static const unsigned char code[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };
#else
/* 1: subs x0, x0, #1; b.ne 1b; ret */
static const unsigned code[] = { 0xf1000400, 0x54ffffe1, 0xd65f03c0 };
#endif

typedef void spins(unsigned long);

/* Makes a file that was never there, with code that spins. */
static spins *new_code(void)
{
	static unsigned number;
	unsigned char bytes[4096] = { 0 };
	char path[40];
	void *at;
	int file;

	snprintf(path, sizeof(path), "code-%d-%u", getpid(), number++);
	memcpy(bytes, code, sizeof(code));
	memcpy(bytes + 1024, path, sizeof(path));
	file = open(path, O_CREAT | O_RDWR, 0755);
	if (file < 0 || write(file, bytes, sizeof(bytes)) != sizeof(bytes))
		fail(path);
	at = mmap(NULL, sizeof(bytes), PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	if (at == MAP_FAILED)
		fail("mmap");
	close(file);
	unlink(path);
	return at;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void map_page(int file)
{
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (page == MAP_FAILED)
		fail("mmap");
	*(volatile char *)page = 1;
	pthread_barrier_init(&all_there, NULL, 3);
}

/* Holds the lock until the server answers, and runs new files meanwhile. Repeats that without end. */
static void hold_again_and_again(int file)
{
	for (;;) {
		spins *all[10];
		pthread_t threads[2];

		for (int i = 0; i < 10; i++)
			all[i] = new_code();
		map_page(file);
		if (pthread_create(&threads[0], NULL, take_away, NULL) || pthread_create(&threads[1], NULL, map, NULL))
			fail("pthread_create");
		pthread_barrier_wait(&all_there);
		usleep(400000);
		for (int i = 0; i < 10; i++)
			for (double end = now() + 0.02; now() < end;)
				all[i](100000);
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		for (int i = 0; i < 10; i++)
			munmap(all[i], 4096);
	}
}

int main(int argc, char **argv)
{
	int is_late = argc > 2 && !strcmp(argv[2], "late");
	int seconds = argc > 1 ? atoi(argv[1]) : 60, uid = getuid(), gid = getgid();
	char text[200], path[300];
	pthread_t thread;
	pid_t server;
	int device, file;

	prctl(PR_SET_NAME, "holder");
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		fail("unshare");
	put("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "0 %d 1", uid);
	put("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "0 %d 1", gid);
	put("/proc/self/gid_map", text);
	/* Everybody may open /dev/fuse, as a rule. Otherwise the test has made another node of it here. */
	device = open("device", O_RDWR);
	if (device < 0)
		fail("device");
	mkdir("mounted", 0755);
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("attack", "mounted", "fuse", 0, text))
		fail("mount");
	server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "server");
		alarm(seconds);
		serve(device, is_late);
		_exit(0);
	}
	/* When the server ends, all waits for it end, if no other process has the device open. */
	close(device);
	alarm(seconds);
	snprintf(path, sizeof(path), "mounted/file");
	file = open(path, O_RDWR);
	if (file < 0)
		fail(path);
	if (is_late)
		hold_again_and_again(file);
	map_page(file);
	/* Makes both threads first: a new thread's stack is mapped, which would wait for the lock. */
	if (pthread_create(&thread, NULL, take_away, NULL) || pthread_create(&thread, NULL, map, NULL))
		fail("pthread_create");
	pthread_barrier_wait(&all_there);
	for (volatile unsigned long turns = 0;; turns++)
		;
}
