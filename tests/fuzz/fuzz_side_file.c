#include "fuzz.h"

#include "data/side_file.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Any bytes as a side file: refused, not ours, or its hashes cover its tokens. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    ech_side_file s = {0};
    bool found = false;
    const int fd = memfd_create("side", MFD_CLOEXEC);

    ECH_ASSERT(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ech_status st = ech_side_file_read(path, &found, &s);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_PARSE || st == ECH_E_DATA || st == ECH_E_ILLEGAL);
    if (found) {
        const int64_t size = s.n_tokens * ech_token_type_bytes(s.dtype);
        ECH_ASSERT(s.max_id < s.vocab && s.n_blocks < bytes);
        ECH_ASSERT((int64_t)s.n_blocks == (size - 1) / s.block_bytes + 1);
    }
    ech_side_file_fini(&s);
    (void)close(fd);
    return 0;
}
