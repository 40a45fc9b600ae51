#include "fuzz.h"

#include "data/token_file.h"
#include "data/token_form.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Any bytes as a .bin without index: refused, or every token is an id. */
static void as_tokens(const char *path)
{
    ech_token_file *f = NULL;
    const ech_status st = ech_token_file_open(path, NULL, &f);

    ECH_ASSERT(st == ECH_OK || st == ECH_E_DATA);
    if (st != ECH_OK)
        return;
    const int64_t n = ech_token_file_info(f)->n_tokens;
    double entropy = -1;
    int64_t distinct = 0;
    ECH_ASSERT(n > 0);
    ECH_ASSERT(ech_token_file_unigram(f, &entropy, &distinct) == ECH_OK);
    ECH_ASSERT(entropy >= 0 && distinct >= 1 && distinct <= n);
    ech_token_file_close(&f);
}

/* Any bytes as an index: refused, or its documents cover the tokens from the first to the last. */
static void as_index(const char *path, int64_t bin_bytes)
{
    ech_token_layout lay;
    ech_file *idx = NULL;
    int64_t at = 0;

    ECH_ASSERT(ech_file_open(path, &idx) == ECH_OK);
    const ech_status st = ech_token_index_check(idx, bin_bytes, &lay);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_DATA || st == ECH_E_ILLEGAL);
    for (int64_t i = 0; st == ECH_OK && i < lay.n_documents; i++) {
        int64_t start = -1;
        int64_t n = -1;
        ECH_ASSERT(ech_token_index_document(idx, &lay, i, &start, &n) == ECH_OK);
        ECH_ASSERT(start == at && n >= 0);
        at += n;
    }
    ECH_ASSERT(st != ECH_OK || at == lay.n_tokens);
    ech_file_close(&idx);
}

/* First byte: bytes of the .bin an index is checked against (times 2); 0: the rest is the .bin. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];

    if (bytes == 0)
        return 0;
    const int fd = memfd_create("tokens", MFD_CLOEXEC);
    ECH_ASSERT(fd >= 0 && write(fd, data + 1, bytes - 1) == (ssize_t)(bytes - 1));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (data[0] == 0)
        as_tokens(path);
    else
        as_index(path, 2 * data[0]);
    (void)close(fd);
    return 0;
}
