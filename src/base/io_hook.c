#include "base/io_hook.h"

#include "base/io.h"

#include <errno.h>

static ech_io_hook io_hook;
static void *io_hook_user;

void ech_io_set_hook(ech_io_hook hook, void *user)
{
    io_hook = hook;
    io_hook_user = user;
}

int ech_io_ask(const char *op, const char *path, size_t *bytes)
{
    if (!io_hook)
        return 0;
    const int answer = io_hook(op, path, bytes ? (int64_t)*bytes : 0, io_hook_user);
    if (answer < 0) {
        errno = -answer;
        return -1;
    }
    if (answer > 0 && bytes && (size_t)answer < *bytes)
        *bytes = (size_t)answer;
    return 0;
}
