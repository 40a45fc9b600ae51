/* Loss masks: one byte a token beside a token file. */
#include "base/checked.h"
#include "base/io.h"
#include "data/token_file.h"

#include <stdlib.h>

struct ech_mask_file {
    ech_file *file; /* owned */
    int64_t n_tokens;
};

ech_status ech_mask_file_open(const char *path, int64_t n_tokens, ech_mask_file **out)
{
    ech_mask_file *m = NULL;
    ech_status st = ECH_OK;

    ECH_CHECK(ech_path_exists(path), ECH_E_DATA, "mask file '%s' does not exist", path);
    ECH_CHECK(!ech_path_is_folder(path), ECH_E_DATA, "mask file '%s' is a folder", path);
    ECH_TRY(ech_calloc(1, sizeof *m, &m));
    m->n_tokens = n_tokens;
    ECH_TRY_GOTO(st, ech_file_open(path, &m->file), fail);
    if (ech_file_bytes(m->file) != n_tokens) {
        st = ECH_RAISE(ECH_E_DATA,
                       "%s: a mask has one byte a token: %lld bytes for a file of %lld tokens",
                       path, (long long)ech_file_bytes(m->file), (long long)n_tokens);
        goto fail;
    }
    *out = m;
    return ECH_OK;
fail:
    ech_mask_file_close(&m);
    return st;
}

ech_status ech_mask_file_read(const ech_mask_file *m, int64_t start, int64_t n, uint8_t *out)
{
    ECH_ASSERT(start >= 0 && n >= 0 && n <= m->n_tokens - start);
    ECH_TRY(ech_file_read_at(m->file, out, (size_t)n, start));
    return ECH_OK;
}

void ech_mask_file_close(ech_mask_file **m)
{
    if (!*m)
        return;
    ech_file_close(&(*m)->file);
    free(*m);
    *m = NULL;
}
