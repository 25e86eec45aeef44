/* Gives its thread ever new names, for as many seconds as its first argument says. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 60);
	char name[16];

	for (unsigned long i = 0; i % 1024 || time(NULL) < end; i++) {
		snprintf(name, sizeof(name), "n%014lx", i * 0x9e3779b97f4a7 & 0xffffffffffffff);
		prctl(PR_SET_NAME, name);
	}
	return 0;
}
