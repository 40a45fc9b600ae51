/* Counts of distinct pieces. */
#include "data/word_count.h"

#include "base/checked.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static ech_status grow_slots(ech_word_count *w)
{
    uint32_t *slot = NULL;
    const size_t n = w->n_slots ? 2 * w->n_slots : 4096;

    ECH_CHECK(w->n < UINT32_MAX / 2, ECH_E_NOMEM, "more than %zu distinct words", w->n);
    ECH_TRY(ech_calloc(n, sizeof *slot, &slot));
    for (size_t k = 0; k < w->n; k++) {
        size_t i = (size_t)w->word[k].hash & (n - 1);
        while (slot[i])
            i = (i + 1) & (n - 1);
        slot[i] = (uint32_t)(k + 1);
    }
    free(w->slot);
    w->slot = slot;
    w->n_slots = n;
    return ECH_OK;
}

static ech_status store(ech_word_count *w, const char *piece, size_t bytes)
{
    if (w->store_capacity - w->used < bytes) {
        const size_t want = 2 * w->store_capacity + bytes;
        char *grown = realloc(w->store, want);
        ECH_CHECK(grown, ECH_E_NOMEM, "no memory for %zu bytes of words", want);
        w->store = grown;
        w->store_capacity = want;
    }
    memcpy(w->store + w->used, piece, bytes);
    w->used += bytes;
    return ECH_OK;
}

ech_status ech_word_count_add(ech_word_count *w, const char *piece, size_t bytes)
{
    const uint64_t hash = ech_hash64(piece, bytes);

    ECH_CHECK(bytes < UINT32_MAX, ECH_E_DATA, "a word of %zu bytes", bytes);
    if (2 * (w->n + 1) > w->n_slots)
        ECH_TRY(grow_slots(w));
    size_t i = (size_t)hash & (w->n_slots - 1);
    for (; w->slot[i]; i = (i + 1) & (w->n_slots - 1)) {
        ech_word *word = &w->word[w->slot[i] - 1];
        if (word->hash == hash && word->bytes == bytes &&
            memcmp(w->store + word->at, piece, bytes) == 0) {
            word->count++;
            return ECH_OK;
        }
    }
    ECH_TRY(ech_grow(&w->word, w->n, &w->word_capacity, sizeof *w->word));
    w->word[w->n] = (ech_word){.hash = hash, .at = w->used, .bytes = (uint32_t)bytes, .count = 1};
    ECH_TRY(store(w, piece, bytes));
    w->slot[i] = (uint32_t)++w->n;
    return ECH_OK;
}

void ech_word_count_fini(ech_word_count *w)
{
    free(w->word);
    free(w->store);
    free(w->slot);
    *w = (ech_word_count){0};
}
