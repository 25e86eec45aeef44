/*
 * Tries to type into the terminal of whoever started it: by /dev/tty, and by what it has inherited. Says "typed" or "refused", and "heard"
 * with each line that it reads. Works for the seconds of its first argument at most.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(int count, char **words)
{
	int files[] = { open("/dev/tty", O_RDWR), 0, 1, 2 }, typed = 0;
	char line[100];

	alarm(count > 1 ? atoi(words[1]) : 60);
	for (int i = 0; i < 4; i++) {
		/* A session of its own could take the terminal as its own. */
		ioctl(files[i], TIOCSCTTY, 1);
		typed |= ioctl(files[i], TIOCSTI, "x") == 0;
	}
	puts(typed ? "typed" : "refused");
	fflush(stdout);
	if (fgets(line, sizeof(line), stdin)) {
		printf("heard %s", line);
		fflush(stdout);
	}
	for (volatile unsigned long i = 0;; i++) {
	}
}
