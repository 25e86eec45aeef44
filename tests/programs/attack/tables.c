/* Runs code of one file after the other, each for a moment, round and round.
 *
 * Arguments: COUNT MICROSECONDS OFFSET [make]. Files are 0 … COUNT-1 in the working directory, their code is at OFFSET: a function that
 * counts its first argument down. With `make` each is made first: one page, which no other file has. Says "ready" before the first.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* 1: dec %rdi; jnz 1b; ret */
static const unsigned char code[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };

static unsigned long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000ul + time.tv_nsec / 1000;
}

static void make(const char *name, int number)
{
    unsigned char page[4096] = { 0 };
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0755);
    memcpy(page, code, sizeof(code));
    memcpy(page + 64, &number, sizeof(number));
    if (file < 0 || write(file, page, sizeof(page)) != sizeof(page))
        exit(2);
    close(file);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 1;
    int count = atoi(argv[1]), makes = argc > 4;
    unsigned long time = atol(argv[2]), offset = atol(argv[3]);

    alarm(240);
    puts("ready");
    fflush(stdout);
    for (int round = 0;; round++) {
        for (int number = 0; number < count; number++) {
            char name[32];
            snprintf(name, sizeof(name), "%d", number);
            if (makes && !round)
                make(name, number);
            int file = open(name, O_RDONLY);
            if (file < 0)
                return 3;
            void (*run)(unsigned long) = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset);
            close(file);
            if (run == MAP_FAILED)
                return 4;
            for (unsigned long end = now() + time; now() < end;)
                run(20000);
            munmap(run, 4096);
        }
        if (makes) {
            /* Says that all files are made, and waits. */
            close(open("done", O_WRONLY | O_CREAT, 0644));
            pause();
        }
    }
}
