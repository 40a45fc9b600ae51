/* Ids of pieces already encoded. */
#include "data/piece_cache.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_SLOTS = 1 << 17,
    MAX_ENTRIES = N_SLOTS / 2,
    MAX_KEYS = 1 << 20, /* bytes */
    MAX_IDS = 1 << 19
};

ech_status ech_piece_cache_init(ech_piece_cache *c)
{
    ECH_TRY(ech_calloc(N_SLOTS, sizeof *c->entry, &c->entry));
    ECH_TRY(ech_calloc(MAX_KEYS, 1, &c->keys));
    return ech_calloc(MAX_IDS, sizeof *c->ids, &c->ids);
}

/* Its entry, or the empty one where it belongs. */
static ech_piece_entry *find(const ech_piece_cache *c, const char *piece, size_t bytes,
                             uint64_t hash)
{
    size_t i = (size_t)hash & (N_SLOTS - 1);

    for (;;) {
        ech_piece_entry *e = &c->entry[i];
        if (e->bytes == 0 ||
            (e->hash == hash && e->bytes == bytes && memcmp(c->keys + e->key, piece, bytes) == 0))
            return e;
        i = (i + 1) & (N_SLOTS - 1);
    }
}

const int32_t *ech_piece_cache_get(const ech_piece_cache *c, const char *piece, size_t bytes,
                                   uint64_t hash, size_t *n)
{
    const ech_piece_entry *e = find(c, piece, bytes, hash);

    *n = e->n;
    return e->bytes == 0 ? NULL : c->ids + e->ids;
}

void ech_piece_cache_put(ech_piece_cache *c, const char *piece, size_t bytes, uint64_t hash,
                         const int32_t *ids, size_t n)
{
    if (c->n_entries == MAX_ENTRIES || c->n_keys + bytes > MAX_KEYS || c->n_ids + n > MAX_IDS) {
        memset(c->entry, 0, N_SLOTS * sizeof *c->entry);
        c->n_entries = c->n_keys = c->n_ids = 0;
    }
    ech_piece_entry *e = find(c, piece, bytes, hash);
    *e = (ech_piece_entry){.hash = hash,
                           .key = c->n_keys,
                           .ids = c->n_ids,
                           .bytes = (uint16_t)bytes,
                           .n = (uint16_t)n};
    memcpy(c->keys + c->n_keys, piece, bytes);
    memcpy(c->ids + c->n_ids, ids, n * sizeof *ids);
    c->n_keys += (uint32_t)bytes;
    c->n_ids += (uint32_t)n;
    c->n_entries++;
}

void ech_piece_cache_fini(ech_piece_cache *c)
{
    free(c->entry);
    free(c->keys);
    free(c->ids);
    *c = (ech_piece_cache){0};
}
