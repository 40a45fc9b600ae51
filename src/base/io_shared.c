#include "base/io_shared.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/io_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ech_shared {
    void *data;
    size_t bytes;
};

/* Written in full, not made by truncation: a store to a hole in a full disk would be a signal. */
ech_status ech_shared_create(const char *path, const void *first, size_t bytes)
{
    return ech_write_whole(path, first, bytes);
}

static ech_status map(int fd, const char *path, size_t bytes, void **out)
{
    struct stat info;
    ECH_CHECK(fstat(fd, &info) == 0, ECH_E_IO, "%s: %s", path, strerror(errno));
    ECH_CHECK(S_ISREG(info.st_mode) && info.st_size == (off_t)bytes, ECH_E_CORRUPT,
              "%s: has %lld bytes, wanted a file of %zu", path, (long long)info.st_size, bytes);
    void *at = ech_io_ask("map", path, NULL) < 0
                   ? MAP_FAILED
                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ECH_CHECK(at != MAP_FAILED, ECH_E_IO, "%s: cannot map: %s", path, strerror(errno));
    *out = at;
    return ECH_OK;
}

ech_status ech_shared_open(const char *path, size_t bytes, ech_shared **out)
{
    ech_shared *s;
    int fd;
    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    s->bytes = bytes;
    do
        fd = ech_io_ask("open", path, NULL) < 0 ? -1 : open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    const ech_status st = fd < 0 ? ECH_RAISE(ECH_E_IO, "%s: %s", path, strerror(errno))
                                 : map(fd, path, bytes, &s->data);
    if (fd >= 0)
        (void)close(fd);
    if (st < 0) {
        free(s);
        return st;
    }
    *out = s;
    return ECH_OK;
}

void *ech_shared_data(const ech_shared *s)
{
    return s->data;
}

void ech_shared_close(ech_shared **shared)
{
    ech_shared *s = *shared;
    *shared = NULL;
    if (!s)
        return;
    (void)munmap(s->data, s->bytes);
    free(s);
}
