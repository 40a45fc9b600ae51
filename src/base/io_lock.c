#include "base/io_lock.h"

#include "base/checked.h"
#include "base/io_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct ech_lock {
    int fd;
    char *path; /* owned */
};

/* What an attempt came to. */
typedef enum attempt { HELD, BUSY, NONE, GONE, FAILED } attempt;

/* The file may have been removed, or another put there, between open and lock: then what is held is
 * no longer what stands at the path. */
static bool stands_at(int fd, const char *path)
{
    struct stat here;
    struct stat there;
    return fstat(fd, &here) == 0 && lstat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

static attempt try_once(const char *path, int *fd)
{
    int got = -1;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return FAILED;
    do
        got = ech_io_ask("lock", path, NULL) < 0 ? -1 : flock(*fd, LOCK_EX | LOCK_NB);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return stands_at(*fd, path) ? HELD : GONE;
    if (errno == EWOULDBLOCK)
        return BUSY;
    return errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL ? NONE
                                                                                        : FAILED;
}

static void read_words(int fd, char *buf, size_t n)
{
    const ssize_t got = pread(fd, buf, n - 1, 0);
    buf[got > 0 ? got : 0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
}

static ech_status keep(int fd, const char *path, const char *words, ech_lock **out)
{
    ech_lock *lock = calloc(1, sizeof *lock);
    char *copy = strdup(path);
    const size_t bytes = strlen(words);
    if (!lock || !copy) {
        free(lock);
        free(copy);
        (void)close(fd);
        return ECH_RAISE(ECH_E_NOMEM, "no memory to lock %s", path);
    }
    *lock = (ech_lock){fd, copy};
    *out = lock;
    /* words are for people: without them the lock holds all the same */
    const bool is_told = ftruncate(fd, 0) == 0 && pwrite(fd, words, bytes, 0) >= 0;
    (void)is_told;
    return ECH_OK;
}

ech_status ech_lock_take(const char *path, const char *words, ech_lock **out, char *holder,
                         size_t n)
{
    attempt how = GONE;
    int fd = -1;
    *out = NULL;
    holder[0] = '\0';
    for (int i = 0; i < 100 && how == GONE; i++) {
        how = try_once(path, &fd);
        if (how == GONE)
            (void)close(fd);
    }
    if (how == HELD)
        return keep(fd, path, words, out);
    const int why = how == GONE ? EBUSY : errno;
    if (how == BUSY)
        read_words(fd, holder, n);
    if (how != GONE && fd >= 0)
        (void)close(fd);
    if (how == BUSY)
        return ECH_BLOCKED;
    if (how == NONE)
        (void)unlink(path); /* nobody can hold it: it would say nothing */
    ECH_CHECK(how == NONE, ECH_E_IO, "%s: cannot lock: %s", path, strerror(why));
    return ECH_OK;
}

void ech_lock_release(ech_lock **lock)
{
    ech_lock *l = *lock;
    *lock = NULL;
    if (!l)
        return;
    if (stands_at(l->fd, l->path))
        (void)unlink(l->path); /* while it is held: nobody else has it */
    (void)close(l->fd);
    free(l->path);
    free(l);
}
