/* Runs a program from memory, as runc runs itself: memfd PROGRAM [ARGUMENT…]. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
	int memory = memfd_create("tool", 0), file = argc > 1 ? open(argv[1], O_RDONLY) : -1;

	if (memory < 0 || file < 0)
		return 1;
	while (sendfile(memory, file, NULL, 1 << 26) > 0)
		;
	fexecve(memory, argv + 1, environ);
	perror("fexecve");
	return 1;
}
