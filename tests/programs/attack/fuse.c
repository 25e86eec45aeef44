/*
 * Holds its own memory lock for good. A file system in user space (FUSE) never answers WRITE: a thread unmaps a page of a file there
 * that was written to, which waits for the answer with the lock held for reading or writing; another thread maps memory, which waits
 * for the lock, and everybody else who wants it waits behind. Others go on spinning.
 *
 * The file system is served by the same program, in a namespace of its own: an ordinary user may do all of this.
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

/* Answers everything but WRITE. */
static void serve(int device)
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
		case FUSE_WRITE: break;
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

int main(int argc, char **argv)
{
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
	/* Everybody may open it, as a rule; where not, the test has made another node of it here. */
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
		serve(device);
		_exit(0);
	}
	/* With the server's end all that waits for it ends, if nobody else has the device open. */
	close(device);
	alarm(seconds);
	snprintf(path, sizeof(path), "mounted/file");
	file = open(path, O_RDWR);
	if (file < 0)
		fail(path);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (page == MAP_FAILED)
		fail("mmap");
	*(volatile char *)page = 1;
	/* Both threads first: making one maps its stack, which would wait for the lock. */
	pthread_barrier_init(&all_there, NULL, 3);
	if (pthread_create(&thread, NULL, take_away, NULL) || pthread_create(&thread, NULL, map, NULL))
		fail("pthread_create");
	pthread_barrier_wait(&all_there);
	for (volatile unsigned long turns = 0;; turns++)
		;
}
