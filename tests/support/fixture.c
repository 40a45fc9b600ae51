#include "fixture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *join(const char *folder, const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

const char *fixture_path(const char *name)
{
    const char *source = getenv("ECH_SOURCE");

    if (!source) {
        (void)fprintf(stderr, "ECH_SOURCE is not set: run through ctest\n");
        exit(1);
    }
    return join(source, name);
}

const char *shared_path(const char *name)
{
    const char *shared = getenv("ECH_SHARED");
    const char *path = join(shared ? shared : "", name);

    if (!shared || access(path, R_OK) != 0) {
        (void)fprintf(stderr, "skipped: '%s' is not there\n", path);
        exit(77);
    }
    return path;
}
