/* Calls `work` of the library that is its second argument, for as many seconds as its first says. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
	unsigned long (*work)(unsigned long) = library ? (unsigned long (*)(unsigned long))dlsym(library, "work") : NULL;
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 60);

	if (!work) {
		fprintf(stderr, "no library: %s\n", dlerror());
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (time(NULL) < end)
		work(1000000);
	return 0;
}
