/* A library that keeps no frame pointers: its caller is known by its unwind information only. Built with -O2 -fomit-frame-pointer
 * -shared. */
typedef int compare_t(unsigned, unsigned);

__attribute__((noinline)) void sort_numbers(unsigned *numbers, unsigned count, compare_t *compare)
{
	unsigned last = 0, pivot;

	if (count < 2)
		return;
	pivot = numbers[count / 2];
	numbers[count / 2] = numbers[0];
	for (unsigned i = 1; i < count; i++) {
		if (compare(numbers[i], pivot) < 0) {
			unsigned number = numbers[i];
			numbers[i] = numbers[++last];
			numbers[last] = number;
		}
	}
	numbers[0] = numbers[last];
	numbers[last] = pivot;
	sort_numbers(numbers, last, compare);
	sort_numbers(numbers + last + 1, count - last - 1, compare);
	/* So that neither call is a tail call. */
	__asm__ volatile("" : : : "memory");
}
