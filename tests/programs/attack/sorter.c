/* Sorts without end by the library of sorting.c: main → sort_it → sort_numbers → … → compare.
 *
 * Arguments: [SECONDS]. Says "ready" when the loop begins.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 4096 };

static unsigned numbers[COUNT];
volatile unsigned long compared;

void sort_numbers(unsigned *numbers, unsigned count, int (*compare)(unsigned, unsigned));

__attribute__((noinline)) int compare(unsigned one, unsigned other)
{
    for (int i = 0; i < 20; i++)
        compared += i;
    return (one > other) - (one < other);
}

__attribute__((noinline)) void sort_it(unsigned seed)
{
    for (int i = 0; i < COUNT; i++)
        numbers[i] = seed = seed * 1664525 + 1013904223;
    sort_numbers(numbers, COUNT, compare);
    compared++;
}

int main(int argc, char **argv)
{
    alarm(argc > 1 ? atoi(argv[1]) : 60);
    puts("ready");
    fflush(stdout);
    for (unsigned seed = 1;; seed++)
        sort_it(seed);
}
