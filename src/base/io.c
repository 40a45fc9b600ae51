#include "base/io.h"

#include "base/checked.h"
#include "base/io_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ech_file {
    int fd;
    char *path;      /* owned */
    char *temporary; /* owned; NULL once published and for files opened for reading */
    int64_t bytes;
    bool is_writable;
    bool failed; /* a write or fsync failed: what the disk holds is unknown, never publish it */
};

static ech_status file_alloc(const char *path, ech_file **out)
{
    ech_file *f;
    ECH_TRY(ech_calloc(1, sizeof *f, &f));
    f->fd = -1;
    f->path = strdup(path);
    if (!f->path) {
        free(f);
        return ECH_RAISE(ECH_E_NOMEM, "no memory to open %s", path);
    }
    *out = f;
    return ECH_OK;
}

/* One open(2), with the hook in front. */
static int open_once(const char *op, const char *path, int flags)
{
    int fd;
    do
        fd = ech_io_ask(op, path, NULL) < 0 ? -1 : open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* What was opened for reading must be a regular file. */
static ech_status check_regular(ech_file *f)
{
    struct stat info;
    ECH_CHECK(fstat(f->fd, &info) == 0, ECH_E_IO, "%s: %s", f->path, strerror(errno));
    ECH_CHECK(S_ISREG(info.st_mode), ECH_E_IO, "%s: is %s, not a regular file", f->path,
              S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    f->bytes = (int64_t)info.st_size;
    return ECH_OK;
}

ech_status ech_file_open(const char *path, ech_file **out)
{
    ech_file *f = NULL;
    ech_status st = ECH_OK;
    *out = NULL;
    ECH_TRY(file_alloc(path, &f));
    f->fd = open_once("open", path, O_RDONLY | O_NONBLOCK); /* a pipe must not block here */
    if (f->fd < 0)
        st = ECH_RAISE(ECH_E_IO, "%s: %s", path, strerror(errno));
    else
        st = check_regular(f);
    if (st < 0)
        ech_file_close(&f);
    *out = f;
    return st;
}

/* The folder first, then the name in it: the last step sees no symbolic link and no path. */
static ech_status open_name_in(ech_file *f, const char *dir, const char *name)
{
    const int dir_fd = open_once("open", dir, O_RDONLY | O_DIRECTORY);
    ECH_CHECK(dir_fd >= 0, ECH_E_IO, "%s: %s", dir, strerror(errno));
    do
        f->fd = ech_io_ask("open", f->path, NULL) < 0
                    ? -1
                    : openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    while (f->fd < 0 && errno == EINTR);
    const int why = errno;
    (void)close(dir_fd);
    ECH_CHECK(f->fd >= 0 || why != ELOOP, ECH_E_ILLEGAL,
              "%s: is a symbolic link, a file itself was wanted (cp -L makes one)", f->path);
    ECH_CHECK(f->fd >= 0, ECH_E_IO, "%s: %s", f->path, strerror(why));
    return check_regular(f);
}

ech_status ech_file_open_in(const char *dir, const char *name, ech_file **out)
{
    char path[4096];
    ech_file *f = NULL;
    *out = NULL;
    ECH_CHECK(ech_path_is_plain(name), ECH_E_ILLEGAL, "%s: '%.255s' is not a plain file name", dir,
              name);
    ECH_TRY(ech_path_join(dir, name, path, sizeof path));
    ECH_TRY(file_alloc(path, &f));
    const ech_status st = open_name_in(f, dir, name);
    if (st < 0)
        ech_file_close(&f);
    *out = f;
    return st;
}

/* "PATH.PID-N.tmp": unique in this process, and O_EXCL with the next N settles it among hosts. */
static ech_status open_temporary(ech_file *f)
{
    static atomic_uint counter;
    enum { TRIES = 1000 };
    const size_t bytes = strlen(f->path) + 48;
    ECH_TRY(ech_calloc(bytes, 1, &f->temporary));
    for (int i = 0; i < TRIES; i++) {
        (void)snprintf(f->temporary, bytes, "%s.%ld-%u.tmp", f->path, (long)getpid(),
                       atomic_fetch_add(&counter, 1u));
        f->fd = open_once("create", f->temporary, O_RDWR | O_CREAT | O_EXCL);
        if (f->fd >= 0)
            return ECH_OK;
        if (errno != EEXIST)
            break;
    }
    const int why = errno;
    free(f->temporary);
    f->temporary = NULL; /* not ours to remove */
    return ECH_RAISE(ECH_E_IO, "%s: cannot create: %s", f->path, strerror(why));
}

/* What a new file will replace: nothing or a regular file, behind a symbolic link if one stands there.
 * Renaming over a device or a pipe would put a file in its place. */
static ech_status find_target(const char *path, char *target)
{
    struct stat info;
    (void)snprintf(target, PATH_MAX, "%s", path);
    if (lstat(path, &info) != 0)
        return ECH_OK; /* creating says what is wrong, if anything is */
    if (S_ISLNK(info.st_mode)) {
        ECH_CHECK(realpath(path, target), ECH_E_IO, "%s: the symbolic link leads nowhere: %s", path,
                  strerror(errno));
        ECH_CHECK(stat(target, &info) == 0, ECH_E_IO, "%s: %s", target, strerror(errno));
    }
    ECH_CHECK(S_ISREG(info.st_mode), ECH_E_IO,
              "%s: is a %s: only a file may be replaced, nothing was written", path,
              S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
    return ECH_OK;
}

ech_status ech_file_create(const char *path, ech_file **out)
{
    ech_file *f = NULL;
    char target[PATH_MAX];
    ech_status st;
    *out = NULL;
    ECH_CHECK(strlen(path) < sizeof target, ECH_E_IO, "%.80s...: the path is too long", path);
    ECH_TRY(find_target(path, target));
    ECH_TRY(file_alloc(target, &f));
    f->is_writable = true;
    ECH_TRY_GOTO(st, open_temporary(f), fail);
    *out = f;
    return ECH_OK;
fail:
    ech_file_close(&f);
    return st;
}

int64_t ech_file_bytes(const ech_file *f)
{
    return f->bytes;
}

const char *ech_file_path(const ech_file *f)
{
    return f->path;
}

/* One pread(2); 0 at the end of the file. */
static ssize_t read_once(const ech_file *f, void *buf, size_t bytes, int64_t offset)
{
    ssize_t got;
    do
        got = ech_io_ask("read", f->path, &bytes) < 0 ? -1 : pread(f->fd, buf, bytes, offset);
    while (got < 0 && errno == EINTR);
    return got;
}

ech_status ech_file_read_at(const ech_file *f, void *buf, size_t bytes, int64_t offset)
{
    char *p = buf;
    size_t done = 0;
    ECH_CHECK(offset >= 0 && offset <= f->bytes && bytes <= (uint64_t)(f->bytes - offset),
              ECH_E_CORRUPT, "%s: ends at byte %lld, wanted %zu bytes from byte %lld", f->path,
              (long long)f->bytes, bytes, (long long)offset);
    while (done < bytes) {
        const ssize_t got = read_once(f, p + done, bytes - done, offset + (int64_t)done);
        ECH_CHECK(got >= 0, ECH_E_IO, "%s: cannot read: %s", f->path, strerror(errno));
        ECH_CHECK(got > 0, ECH_E_CORRUPT, "%s: was shortened while it was read: ends at byte %lld",
                  f->path, (long long)offset + (long long)done);
        done += (size_t)got;
    }
    return ECH_OK;
}

ech_status ech_file_write(ech_file *f, const void *buf, size_t bytes)
{
    const char *p = buf;
    ECH_ASSERT(f->is_writable && f->temporary);
    while (bytes > 0) {
        size_t most = bytes;
        const ssize_t put = ech_io_ask("write", f->path, &most) < 0 ? -1 : write(f->fd, p, most);
        if (put < 0 && errno == EINTR)
            continue;
        f->failed = f->failed || put < 0;
        ECH_CHECK(put >= 0, ECH_E_IO, "%s: cannot write: %s", f->path, strerror(errno));
        p += put;
        bytes -= (size_t)put;
        f->bytes += put;
    }
    return ECH_OK;
}

static ech_status sync_folder_of(const char *path)
{
    ech_status st = ECH_OK;
    char *folder;
    const size_t bytes = strlen(path) + 2;
    ECH_TRY(ech_calloc(bytes, 1, &folder));
    ECH_TRY_GOTO(st, ech_path_folder(path, folder, bytes), end);
    const int fd = open_once("open", folder, O_RDONLY | O_DIRECTORY);
    /* EINVAL: this file system has no such thing as syncing a folder. */
    if (fd < 0 || ech_io_ask("fsync-folder", folder, NULL) < 0 ||
        (fsync(fd) < 0 && errno != EINVAL))
        st = ECH_RAISE(ECH_E_IO, "%s: cannot flush the folder: %s", folder, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
end:
    free(folder);
    return st;
}

ech_status ech_file_publish(ech_file *f)
{
    ECH_ASSERT(f->is_writable && f->temporary);
    ECH_CHECK(!f->failed, ECH_E_IO, "%s: an earlier write failed, nothing is published", f->path);
    if (ech_io_ask("fsync", f->path, NULL) < 0 || fsync(f->fd) < 0) {
        /* The kernel may have dropped the pages: a second fsync would lie. */
        f->failed = true;
        return ECH_RAISE(ECH_E_IO, "%s: cannot flush: %s", f->path, strerror(errno));
    }
    const bool renamed =
        ech_io_ask("rename", f->path, NULL) == 0 && rename(f->temporary, f->path) == 0;
    ECH_CHECK(renamed, ECH_E_IO, "%s: cannot put in place: %s", f->path, strerror(errno));
    free(f->temporary);
    f->temporary = NULL;
    return sync_folder_of(f->path);
}

void ech_file_close(ech_file **file)
{
    ech_file *f = *file;
    *file = NULL;
    if (!f)
        return;
    if (f->temporary && ech_io_ask("unlink", f->temporary, NULL) == 0)
        (void)unlink(f->temporary); /* best effort: the name says what it is */
    if (f->fd >= 0)
        (void)close(f->fd); /* published files were synced: nothing is left to fail */
    free(f->temporary);
    free(f->path);
    free(f);
}

ech_status ech_file_map(const ech_file *f, const void **out)
{
    *out = NULL;
    if (f->bytes == 0)
        return ECH_OK;
    void *p = MAP_FAILED;
    if (ech_io_ask("map", f->path, NULL) == 0)
        p = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_PRIVATE, f->fd, 0);
    ECH_CHECK(p != MAP_FAILED, ECH_E_IO, "%s: cannot map %lld bytes: %s", f->path,
              (long long)f->bytes, strerror(errno));
    *out = p;
    return ECH_OK;
}

void ech_unmap(const void *p, int64_t bytes)
{
    void *address;
    if (!p)
        return;
    memcpy(&address, &p, sizeof address); /* munmap takes no const */
    ECH_ASSERT(munmap(address, (size_t)bytes) == 0);
}

/* Read to the end of the file, whatever size it claims (files of /proc claim 0). */
static ech_status read_to_end(const ech_file *f, int64_t max_bytes, char **data, size_t *bytes)
{
    size_t capacity = (size_t)f->bytes + 4096;
    ECH_TRY(ech_calloc(capacity, 1, data));
    for (;;) {
        const ssize_t got = read_once(f, *data + *bytes, capacity - *bytes - 1, (int64_t)*bytes);
        ECH_CHECK(got >= 0, ECH_E_IO, "%s: cannot read: %s", f->path, strerror(errno));
        *bytes += (size_t)got;
        ECH_CHECK(*bytes <= (size_t)max_bytes, ECH_E_IO, "%s: larger than %lld bytes", f->path,
                  (long long)max_bytes);
        if (got == 0)
            return ECH_OK;
        if (*bytes + 1 == capacity)
            ECH_TRY(ech_grow(data, capacity, &capacity, 1));
    }
}

ech_status ech_read_whole(const char *path, int64_t max_bytes, char **out, size_t *out_bytes)
{
    ech_file *f = NULL;
    char *data = NULL;
    size_t bytes = 0;
    ech_status st;
    *out = NULL;
    *out_bytes = 0;
    ECH_TRY(ech_file_open(path, &f));
    if (f->bytes > max_bytes)
        st = ECH_RAISE(ECH_E_IO, "%s: has %lld bytes, more than %lld are not read", path,
                       (long long)f->bytes, (long long)max_bytes);
    else
        st = read_to_end(f, max_bytes, &data, &bytes);
    ech_file_close(&f);
    if (st < 0) {
        free(data);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    data[bytes] = '\0';
    *out = data;
    *out_bytes = bytes;
    return ECH_OK;
}

ech_status ech_write_whole(const char *path, const void *data, size_t bytes)
{
    ech_file *f = NULL;
    ech_status st;
    ECH_TRY_GOTO(st, ech_file_create(path, &f), end);
    ECH_TRY_GOTO(st, ech_file_write(f, data, bytes), end);
    ECH_TRY_GOTO(st, ech_file_publish(f), end);
end:
    ech_file_close(&f);
    return st;
}
