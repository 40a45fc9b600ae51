#include "folder.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[PATH_MAX / 2]; /* "" until the first is asked for */

static bool make_folder(char *path, size_t n)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(path, n, "%s/echelon-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(path) != NULL;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_folder(const char *path)
{
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- one per test --- */

int folder_setup(void **state)
{
    char *path = malloc(PATH_MAX);
    if (!path)
        return -1;
    *state = path;
    return make_folder(path, PATH_MAX) ? 0 : -1;
}

int folder_teardown(void **state)
{
    char *path = *state;
    const int failed = remove_folder(path);
    free(path);
    return failed;
}

const char *in_folder(void **state, const char *name)
{
    static char buffers[8][PATH_MAX];
    static int next;
    char *buffer = buffers[next++ % 8];
    (void)snprintf(buffer, PATH_MAX, "%s/%s", (const char *)*state, name);
    return buffer;
}

int folder_count(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

/* --- one per process --- */

static void remove_scratch(void)
{
    (void)remove_folder(scratch);
}

const char *scratch_folder(void)
{
    if (scratch[0])
        return scratch;
    if (!make_folder(scratch, sizeof scratch)) {
        perror(scratch);
        abort();
    }
    (void)atexit(remove_scratch);
    return scratch;
}

const char *scratch_path(const char *name)
{
    static char paths[64][PATH_MAX];
    static int n;
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", scratch_folder(), name);
    for (int i = 0; i < n; i++) {
        if (strcmp(paths[i], path) == 0)
            return paths[i];
    }
    if (n == 64) {
        (void)fprintf(stderr, "scratch: more than 64 names\n");
        abort();
    }
    return strcpy(paths[n++], path);
}

const char *scratch_write(const char *name, const void *data, size_t bytes)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) {
        perror(path);
        abort();
    }
    return path;
}
