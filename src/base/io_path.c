#include "base/io.h"

#include "base/checked.h"
#include "base/io_hook.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All of `text` to fd; false with errno set on failure. */
static bool append_all(int fd, const char *path, const char *p, size_t bytes)
{
    while (bytes > 0) {
        size_t most = bytes;
        const ssize_t put = ech_io_ask("append", path, &most) < 0 ? -1 : write(fd, p, most);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        p += put;
        bytes -= (size_t)put;
    }
    return true;
}

ech_status ech_append_line(const char *path, const char *line)
{
    char small[4096]; /* an event of a training step, which allocates nothing */
    ech_status st = ECH_OK;
    const size_t bytes = strlen(line);
    char *text = bytes < sizeof small ? small : malloc(bytes + 1);
    ECH_CHECK(text, ECH_E_NOMEM, "%s: no memory to append", path);
    memcpy(text, line, bytes);
    text[bytes] = '\n'; /* in the same write: lines of several writers stay whole */
    const int fd = ech_io_ask("open", path, NULL) < 0
                       ? -1
                       : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || !append_all(fd, path, text, bytes + 1))
        st = ECH_RAISE(ECH_E_IO, "%s: cannot append: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    if (text != small)
        free(text);
    return st;
}

/* mkdir; a folder that is there already is fine. */
static ech_status make_folder(const char *path)
{
    if (ech_io_ask("mkdir", path, NULL) == 0 && mkdir(path, 0777) == 0)
        return ECH_OK;
    const int why = errno;
    if (why == EEXIST && ech_path_is_folder(path))
        return ECH_OK;
    return ECH_RAISE(ECH_E_IO, "%s: cannot make the folder: %s", path, strerror(why));
}

ech_status ech_make_folders(const char *path)
{
    ech_status st = ECH_OK;
    ECH_CHECK(path[0], ECH_E_IO, "no folder named: the path is empty");
    char *copy = strdup(path);
    ECH_CHECK(copy, ECH_E_NOMEM, "no memory for the path %s", path);
    for (char *p = copy + 1; st == ECH_OK && *p; p++)
        if (*p == '/' && p[-1] != '/') {
            *p = '\0';
            if (!ech_path_is_folder(copy)) /* parents may be ones we cannot write to */
                st = make_folder(copy);
            *p = '/';
        }
    if (st == ECH_OK)
        st = make_folder(copy);
    free(copy);
    return st;
}

bool ech_path_exists(const char *path)
{
    struct stat info;
    return ech_io_ask("stat", path, NULL) == 0 && lstat(path, &info) == 0;
}

ech_status ech_path_look(const char *path, bool *exists)
{
    struct stat info;
    *exists = ech_io_ask("stat", path, NULL) == 0 && lstat(path, &info) == 0;
    ECH_CHECK(*exists || errno == ENOENT || errno == ENOTDIR, ECH_E_IO, "%s: %s", path,
              strerror(errno));
    return ECH_OK;
}

bool ech_path_is_folder(const char *path)
{
    struct stat info;
    return ech_io_ask("stat", path, NULL) == 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

ech_status ech_path_join(const char *dir, const char *name, char *buf, size_t n)
{
    const size_t bytes = strlen(dir);
    const bool alone = name[0] == '/' || bytes == 0;
    const char *slash = alone || dir[bytes - 1] == '/' ? "" : "/";
    const int put = snprintf(buf, n, "%s%s%s", alone ? "" : dir, slash, name);
    ECH_CHECK(put >= 0 && (size_t)put < n, ECH_E_USAGE, "path too long: %.200s%s%.200s", dir, slash,
              name);
    return ECH_OK;
}

ech_status ech_path_folder(const char *path, char *buf, size_t n)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') /* "a/b/" is in "a" */
        end--;
    while (end > 0 && path[end - 1] != '/')
        end--;
    while (end > 1 && path[end - 1] == '/')
        end--;
    const char *from = end > 0 ? path : ".";
    const size_t bytes = end > 0 ? end : 1;
    ECH_CHECK(bytes < n, ECH_E_USAGE, "path too long: %.200s", path);
    memmove(buf, from, bytes);
    buf[bytes] = '\0';
    return ECH_OK;
}

bool ech_path_is_plain(const char *name)
{
    const size_t bytes = strnlen(name, 256);
    if (bytes < 1 || bytes > 255 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    for (const char *p = name; *p; p++)
        if (*p == '/' || (unsigned char)*p < 0x20 || *p == 0x7f)
            return false;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Append each name of dir; what was read so far stays with the caller on failure. */
static ech_status read_names(DIR *dir, const char *path, char ***names, size_t *n)
{
    size_t capacity = 0;
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        ECH_TRY(ech_grow(names, *n, &capacity, sizeof **names));
        (*names)[*n] = strdup(entry->d_name);
        ECH_CHECK((*names)[*n], ECH_E_NOMEM, "no memory to list %s", path);
        (*n)++;
    }
    ECH_CHECK(errno == 0, ECH_E_IO, "%s: cannot list: %s", path, strerror(errno));
    return ECH_OK;
}

ech_status ech_list_folder(const char *path, char ***names, size_t *n)
{
    char **list = NULL;
    size_t count = 0;
    *names = NULL;
    *n = 0;
    DIR *dir = ech_io_ask("list", path, NULL) < 0 ? NULL : opendir(path);
    ECH_CHECK(dir, ECH_E_IO, "%s: cannot list: %s", path, strerror(errno));
    const ech_status st = read_names(dir, path, &list, &count);
    (void)closedir(dir);
    if (st < 0) {
        ech_names_destroy(&list, count);
        return st;
    }
    if (count > 0)
        qsort(list, count, sizeof *list, compare_names);
    *names = list;
    *n = count;
    return ECH_OK;
}

void ech_names_destroy(char ***names, size_t n)
{
    for (size_t i = 0; *names && i < n; i++)
        free((*names)[i]);
    free(*names);
    *names = NULL;
}
