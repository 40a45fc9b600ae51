/* Pairs of symbols, their counts, and the most frequent of them. */
#include "data/bpe_pairs.h"

#include "base/checked.h"

#include <stdlib.h>

/* --- by key --- */

static size_t hash_of(int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 24);
}

static size_t *slot_of(const ech_pairs *p, int32_t left, int32_t right)
{
    size_t i = hash_of(left, right) & (p->n_slots - 1);

    while (p->slot[i]) {
        const ech_pair *q = &p->pair[p->slot[i] - 1];
        if (q->left == left && q->right == right)
            break;
        i = (i + 1) & (p->n_slots - 1);
    }
    return &p->slot[i];
}

static ech_status grow_slots(ech_pairs *p)
{
    const size_t n = p->n_slots ? 2 * p->n_slots : 1 << 16;
    size_t *slot = NULL;

    ECH_TRY(ech_calloc(n, sizeof *slot, &slot));
    free(p->slot);
    p->slot = slot;
    p->n_slots = n;
    for (size_t k = 0; k < p->n; k++)
        *slot_of(p, p->pair[k].left, p->pair[k].right) = k + 1;
    return ECH_OK;
}

static ech_status find_or_make(ech_pairs *p, int32_t left, int32_t right, ech_pair **out)
{
    if (2 * (p->n + 1) > p->n_slots)
        ECH_TRY(grow_slots(p));
    size_t *slot = slot_of(p, left, right);
    if (!*slot) {
        ECH_TRY(ech_grow(&p->pair, p->n, &p->pair_capacity, sizeof *p->pair));
        p->pair[p->n] = (ech_pair){.left = left, .right = right};
        *slot = ++p->n;
    }
    *out = &p->pair[*slot - 1];
    return ECH_OK;
}

static ech_status note_word(ech_pair *q, uint32_t word)
{
    if (q->n_words > 0 && q->word[q->n_words - 1] == word)
        return ECH_OK;
    ECH_TRY(ech_grow(&q->word, q->n_words, &q->word_capacity, sizeof *q->word));
    q->word[q->n_words++] = word;
    return ECH_OK;
}

ech_status ech_pairs_change(ech_pairs *p, int32_t left, int32_t right, uint32_t word, int64_t by)
{
    ech_pair *q = NULL;

    ECH_TRY(find_or_make(p, left, right, &q));
    q->count += by;
    if (by < 0)
        return ECH_OK;
    ECH_TRY(note_word(q, word));
    if (q->is_touched)
        return ECH_OK;
    ECH_TRY(ech_grow(&p->touched, p->n_touched, &p->touched_capacity, sizeof *p->touched));
    p->touched[p->n_touched++] = (size_t)(q - p->pair);
    q->is_touched = true;
    return ECH_OK;
}

/* --- the most frequent --- */

static bool is_before(const ech_pair_rank *a, const ech_pair_rank *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    if (a->left != b->left)
        return a->left < b->left;
    return a->right < b->right;
}

static ech_status push(ech_pairs *p, size_t pair)
{
    const ech_pair *q = &p->pair[pair];
    const ech_pair_rank c = {.count = q->count, .left = q->left, .right = q->right, .pair = pair};

    ECH_TRY(ech_grow(&p->heap, p->n_heap, &p->heap_capacity, sizeof *p->heap));
    size_t i = p->n_heap++;
    while (i > 0 && is_before(&c, &p->heap[(i - 1) / 2])) {
        p->heap[i] = p->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->heap[i] = c;
    return ECH_OK;
}

/* Put c at the top of the first n entries and let it sink. */
static void sink(ech_pairs *p, size_t n, ech_pair_rank c)
{
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_before(&p->heap[child + 1], &p->heap[child]))
            child++;
        if (!is_before(&p->heap[child], &c))
            break;
        p->heap[i] = p->heap[child];
        i = child;
    }
    p->heap[i] = c;
}

ech_status ech_pairs_settle(ech_pairs *p)
{
    for (size_t i = 0; i < p->n_touched; i++) {
        p->pair[p->touched[i]].is_touched = false;
        ECH_TRY(push(p, p->touched[i]));
    }
    p->n_touched = 0;
    return ECH_OK;
}

size_t ech_pairs_pop(ech_pairs *p)
{
    while (p->n_heap > 0) {
        ech_pair_rank top = p->heap[0];
        const int64_t now = p->pair[top.pair].count;
        if (top.count == now && now > 0) {
            const ech_pair_rank last = p->heap[--p->n_heap];
            if (p->n_heap > 0)
                sink(p, p->n_heap, last);
            return top.pair;
        }
        /* Its count fell since, or rose, and a newer entry of it stands elsewhere: put it right. */
        if (now > 0 && now < top.count) {
            top.count = now;
            sink(p, p->n_heap, top);
        } else {
            const ech_pair_rank last = p->heap[--p->n_heap];
            if (p->n_heap > 0)
                sink(p, p->n_heap, last);
        }
    }
    return SIZE_MAX;
}

void ech_pairs_fini(ech_pairs *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->pair[i].word);
    free(p->pair);
    free(p->slot);
    free(p->heap);
    free(p->touched);
    *p = (ech_pairs){0};
}
