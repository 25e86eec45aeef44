/* Code that is loaded and unloaded: libraries opened and closed, functions bound when they are first called.
 *
 *   churn DIRECTORY     libraries churn0.so to churn7.so, one after the other, often at the same address
 *   bind DIRECTORY      binds.so, which calls five hundred functions of bound.so for the first time, again and again
 */
#include "truth.h"

#include <dlfcn.h>

static void *load(const char *directory, const char *name, int flags)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s.so", directory, name);
	void *library = dlopen(path, flags);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return library;
}

NOINLINE void called_back(long n)
{
	burn(3000);
	sink += n;
}
//= called_back > burn

typedef void enter(void (*)(long), long);

/* If each library is closed before the next is opened, all get the same address. Their sizes differ, so that the table of another
 * library would be wrong. */
NOINLINE void churn_mode(const char *directory)
{
	for (long n = 0;; n++) {
		char name[32];

		snprintf(name, sizeof(name), "churn%ld", n % 8);
		void *library = load(directory, name, RTLD_NOW);
		snprintf(name, sizeof(name), "churn%ld_enter", n % 8);
		((enter *)dlsym(library, name))(called_back, n);
		dlclose(library);
	}
}
//= main > churn_mode | bind_mode > load > <libc,ld,gcc:dl>
//= churn_mode > <libc,ld,gcc:dl>
//= <libc,ld,gcc:dl> > <rest:dl> > <libc,ld,gcc:dl>
//= churn_mode > churn0_enter > churn0_middle > churn0_inner > called_back
//= churn_mode > churn1_enter > churn1_middle > churn1_inner > called_back
//= churn_mode > churn2_enter > churn2_middle > churn2_inner > called_back
//= churn_mode > churn3_enter > churn3_middle > churn3_inner > called_back
//= churn_mode > churn4_enter > churn4_middle > churn4_inner > called_back
//= churn_mode > churn5_enter > churn5_middle > churn5_inner > called_back
//= churn_mode > churn6_enter > churn6_middle > churn6_inner > called_back
//= churn_mode > churn7_enter > churn7_middle > churn7_inner > called_back

NOINLINE void bind_mode(const char *directory)
{
	load(directory, "bound", RTLD_LAZY | RTLD_GLOBAL);
	for (;;) {
		void *library = load(directory, "binds", RTLD_LAZY);
		sink += ((long (*)(long))dlsym(library, "binds_all"))(sink);
		dlclose(library);
	}
}
//= bind_mode > <libc,ld,gcc:dl> | binds_all
/* The declarations of binds_all's calls are generated with it. */

int main(int argc, char **argv)
{
	const char *mode = begin(argc, argv);

	if (!strcmp(mode, "churn") && argc > 2)
		churn_mode(argv[2]);
	else if (!strcmp(mode, "bind") && argc > 2)
		bind_mode(argv[2]);
	return 2;
}
//= main > <libc:main>
