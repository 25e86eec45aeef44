/* A thread that waits for ever, on a stack that nobody can read: a reader waits for pages that never come (userfaultfd). Needs root. Says
 * "ready" when it waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK (256 << 10)

static void *wait_for_ever(void *none) { pause(); return none; }

int main(void)
{
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register pages = {.range = {(unsigned long)stack, STACK}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    pthread_attr_t attributes;
    pthread_t thread;

    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) {
        perror("userfaultfd");
        return 1;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK);
    if (pthread_create(&thread, &attributes, wait_for_ever, NULL))
        return 1;
    sleep(1);
    if (ioctl(faults, UFFDIO_REGISTER, &pages) || madvise(stack, STACK, MADV_DONTNEED)) {
        perror("userfaultfd");
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    sleep(1000);
    return 0;
}
