#include "base/io_folder.h"

#include "base/io.h"
#include "base/io_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of path without the slashes at its end. */
static size_t trimmed(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

ech_status ech_folder_create(const char *path, char *tmp, size_t n)
{
    char parent[4096];
    const size_t end = trimmed(path);
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    ECH_CHECK(end > start, ECH_E_USAGE, "'%s' names no folder that could be made", path);
    ECH_TRY(ech_path_folder(path, parent, sizeof parent));
    ECH_TRY(ech_make_folders(parent));
    const int put =
        snprintf(tmp, n, "%s/.%.*s.tmp-XXXXXX", parent, (int)(end - start), path + start);
    ECH_CHECK(put > 0 && (size_t)put < n, ECH_E_USAGE, "path too long: %.200s", path);
    ECH_CHECK(ech_io_ask("mkdir", tmp, NULL) == 0 && mkdtemp(tmp), ECH_E_IO,
              "%s: cannot make a folder in it: %s", parent, strerror(errno));
    /* mkdtemp makes it private; what it becomes has the usual mode. */
    const mode_t mask = umask(0);
    (void)umask(mask);
    ECH_CHECK(chmod(tmp, 0777 & ~mask) == 0, ECH_E_IO, "%s: %s", tmp, strerror(errno));
    return ECH_OK;
}

static ech_status sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = fd >= 0 && ech_io_ask("fsync-folder", path, NULL) == 0 &&
                    (fsync(fd) == 0 || errno == EINVAL); /* EINVAL: not known to this file system */
    const int why = errno;
    if (fd >= 0)
        (void)close(fd);
    ECH_CHECK(ok, ECH_E_IO, "%s: cannot flush the folder: %s", path, strerror(why));
    return ECH_OK;
}

/* tmp to path; the folder that stood there, if any, is at tmp afterwards.  Without an exchange in
 * this file system (EINVAL) the old folder steps aside first: a crash in between leaves path
 * absent, both folders whole under their temporary names. */
static int exchange(const char *tmp, const char *path)
{
    char aside[4096];
    if (ech_io_ask("exchange", path, NULL) == 0 &&
        renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    const int put = snprintf(aside, sizeof aside, "%s.old", tmp);
    if (put < 0 || (size_t)put >= sizeof aside) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (ech_io_ask("rename", aside, NULL) < 0 || rename(path, aside) < 0)
        return -1;
    if (ech_io_ask("rename", path, NULL) == 0 && rename(tmp, path) == 0)
        return rename(aside, tmp);
    const int why = errno;
    (void)rename(aside, path); /* back to where it was; the first failure is what is reported */
    errno = why;
    return -1;
}

/* tmp to path where nothing stands there, or an empty folder. */
static int put_in_place(const char *tmp, const char *path)
{
    return ech_io_ask("rename", path, NULL) < 0 ? -1 : rename(tmp, path);
}

ech_status ech_folder_publish(const char *tmp, const char *path)
{
    char parent[4096];
    ECH_TRY(ech_path_folder(path, parent, sizeof parent));
    ECH_TRY(sync_folder(tmp));
    const bool replaces = ech_path_exists(path);
    ECH_CHECK((replaces ? exchange(tmp, path) : put_in_place(tmp, path)) == 0, ECH_E_IO,
              "%s: cannot put in place: %s", path, strerror(errno));
    ECH_TRY(sync_folder(parent));
    return replaces ? ech_folder_remove(tmp) : ECH_OK;
}

ech_status ech_folder_remove(const char *path)
{
    char **names = NULL;
    char file[4096];
    size_t n = 0;
    ech_status st = ECH_OK;
    if (!ech_path_exists(path))
        return ECH_OK;
    ECH_TRY(ech_list_folder(path, &names, &n));
    for (size_t i = 0; st == ECH_OK && i < n; i++) {
        st = ech_path_join(path, names[i], file, sizeof file);
        if (st == ECH_OK && (ech_io_ask("unlink", file, NULL) < 0 || unlink(file) < 0))
            st = ECH_RAISE(ECH_E_IO, "%s: cannot remove: %s", file, strerror(errno));
    }
    ech_names_destroy(&names, n);
    ECH_TRY(st);
    ECH_CHECK(ech_io_ask("rmdir", path, NULL) == 0 && rmdir(path) == 0, ECH_E_IO,
              "%s: cannot remove: %s", path, strerror(errno));
    return ECH_OK;
}
