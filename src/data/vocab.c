/* Strings by id and ids by string. */
#include "data/vocab.h"

#include "base/checked.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static bool has_string(const ech_vocab *v, int32_t id, const char *s, size_t n)
{
    const ech_vocab_item *it = &v->item[id];
    return it->bytes == n && memcmp(v->store + it->at, s, n) == 0;
}

/* Slot of a string, or the empty slot where it belongs. */
static size_t slot_of(const ech_vocab *v, const char *s, size_t n)
{
    const size_t mask = v->n_slots - 1;
    size_t i = (size_t)ech_hash64(s, n) & mask;

    while (v->slot[i] >= 0 && !has_string(v, v->slot[i], s, n))
        i = (i + 1) & mask;
    return i;
}

static ech_status rehash(ech_vocab *v, size_t n_slots)
{
    int32_t *old = v->slot;
    const size_t n_old = v->n_slots;

    ECH_TRY(ech_calloc(n_slots, sizeof *v->slot, &v->slot));
    memset(v->slot, 0xff, n_slots * sizeof *v->slot);
    v->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] < 0)
            continue;
        const ech_vocab_item *it = &v->item[old[i]];
        v->slot[slot_of(v, v->store + it->at, it->bytes)] = old[i];
    }
    free(old);
    return ECH_OK;
}

static ech_status reserve_store(ech_vocab *v, size_t bytes)
{
    if (v->store_capacity - v->used >= bytes)
        return ECH_OK;
    const size_t want = 2 * v->store_capacity + bytes + 4096;
    char *grown = realloc(v->store, want);
    ECH_CHECK(grown, ECH_E_NOMEM, "no memory for a vocabulary of %zu bytes", want);
    v->store = grown;
    v->store_capacity = want;
    return ECH_OK;
}

static ech_status reserve_items(ech_vocab *v, size_t n)
{
    if (n > v->item_capacity) {
        const size_t want = n > 2 * v->item_capacity ? n : 2 * v->item_capacity;
        ech_vocab_item *grown = realloc(v->item, want * sizeof *grown);
        ECH_CHECK(grown, ECH_E_NOMEM, "no memory for a vocabulary of %zu entries", want);
        memset(grown + v->item_capacity, 0, (want - v->item_capacity) * sizeof *grown);
        v->item = grown;
        v->item_capacity = want;
    }
    if (n > (size_t)v->n)
        v->n = (int32_t)n;
    return ECH_OK;
}

ech_status ech_vocab_add(ech_vocab *v, int64_t id, const char *string, size_t bytes)
{
    ECH_CHECK(id >= 0 && id < ECH_VOCAB_MAX, ECH_E_DATA, "token '%.*s' has id %lld, wanted 0..%d",
              bytes < 64 ? (int)bytes : 64, string, (long long)id, ECH_VOCAB_MAX - 1);
    ECH_CHECK(bytes < UINT32_MAX, ECH_E_DATA, "token %lld is %zu bytes long", (long long)id, bytes);
    ECH_TRY(reserve_items(v, (size_t)id + 1));
    ech_vocab_item *it = &v->item[id];
    if (it->is_set) {
        ECH_CHECK(has_string(v, (int32_t)id, string, bytes), ECH_E_DATA,
                  "two tokens have the id %lld; one of them is '%.*s'", (long long)id,
                  bytes < 64 ? (int)bytes : 64, string);
        return ECH_OK;
    }
    if (2 * (v->n_indexed + 1) > v->n_slots)
        ECH_TRY(rehash(v, v->n_slots ? 2 * v->n_slots : 1024));
    ECH_TRY(reserve_store(v, bytes + 1)); /* + 1: even an empty string has a place */
    memcpy(v->store + v->used, string, bytes);
    *it = (ech_vocab_item){.at = v->used, .bytes = (uint32_t)bytes, .is_set = true};
    v->used += bytes;
    const size_t slot = slot_of(v, string, bytes);
    if (v->slot[slot] < 0) {
        v->slot[slot] = (int32_t)id;
        v->n_indexed++;
    }
    return ECH_OK;
}

int32_t ech_vocab_find(const ech_vocab *v, const char *string, size_t bytes)
{
    return v->n_slots == 0 ? -1 : v->slot[slot_of(v, string, bytes)];
}

const char *ech_vocab_get(const ech_vocab *v, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= v->n || !v->item[id].is_set)
        return NULL;
    *bytes = v->item[id].bytes;
    return v->store + v->item[id].at;
}

void ech_vocab_fini(ech_vocab *v)
{
    free(v->store);
    free(v->item);
    free(v->slot);
    *v = (ech_vocab){0};
}
