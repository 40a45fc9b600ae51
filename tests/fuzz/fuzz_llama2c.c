#include "fuzz.h"

#include "storage/llama2c.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Any bytes as a llama2.c checkpoint: refused, or a model whose sizes explain the file's length. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_model m = {0};
    char path[64];
    const int fd = memfd_create("llama2c", MFD_CLOEXEC);

    ECH_ASSERT(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ech_status st = ech_llama2c_model(path, &m);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_CORRUPT || st == ECH_E_UNSUPPORTED);
    if (st == ECH_OK) {
        ECH_ASSERT(m.hidden == m.heads * m.head_dim && m.heads % m.kv_heads == 0);
        ECH_ASSERT((size_t)(m.vocab * m.hidden) < bytes && (size_t)m.layers < bytes);
    }
    (void)close(fd);
    return 0;
}
