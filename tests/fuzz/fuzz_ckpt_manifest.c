#include "fuzz.h"

#include "base/checked.h"
#include "base/text.h"
#include "storage/ckpt_manifest.h"

#include <stdlib.h>
#include <string.h>

/* Every class covers every tensor exactly once: counted by the pieces alone. */
static void check_cover(const ech_ckpt_manifest *m)
{
    for (int c = 0; c < ECH_N_CKPT_CLASSES; c++)
        for (int64_t t = 0; t < m->n_tensors; t++) {
            const int64_t *first = &m->first_piece[c * m->n_tensors + t];
            int64_t elems = 0;
            for (int64_t i = first[0]; i < first[1]; i++) {
                ECH_ASSERT(m->piece[i].cls == c && m->piece[i].tensor == t);
                elems += m->piece[i].range.n;
                for (int64_t k = first[0]; k < i && i < first[0] + 50; k++)
                    ECH_ASSERT(ech_ckpt_overlap_count(&m->piece[k].range, &m->piece[i].range) == 0);
            }
            ECH_ASSERT(elems == (m->dtype[c] == ECH_N_DTYPES ? 0 : m->tensor[t].elems));
        }
}

static ech_status parse(const void *data, size_t bytes, ech_ckpt_manifest *m)
{
    char *copy = malloc(bytes ? bytes : 1); /* of the exact size: a sanitizer sees every overrun */
    ECH_ASSERT(copy);
    memcpy(copy, data, bytes);
    const ech_status st = ech_ckpt_manifest_parse(copy, bytes, m);
    free(copy);
    return st;
}

/* Any bytes as a manifest behind its first line: refused as damaged, or sound; then its own text
 * reads back as itself. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_ckpt_manifest m;
    ech_ckpt_manifest again;
    ech_text text = {0};
    ech_text same = {0};
    const ech_status st = parse(bytes ? (const char *)data : "", bytes, &m);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_CORRUPT);
    if (st < 0) {
        ECH_ASSERT(ech_error_message()[0]);
        return 0;
    }
    check_cover(&m);
    ech_ckpt_manifest_print(&m, &text);
    const char *rest = strchr(text.data, '\n') + 1;
    ECH_ASSERT(parse(rest, text.bytes - (size_t)(rest - text.data), &again) == ECH_OK);
    ech_ckpt_manifest_print(&again, &same);
    ECH_ASSERT(text.bytes == same.bytes && memcmp(text.data, same.data, text.bytes) == 0);
    ech_ckpt_manifest_fini(&m);
    ech_ckpt_manifest_fini(&again);
    ech_text_fini(&text);
    ech_text_fini(&same);
    return 0;
}
