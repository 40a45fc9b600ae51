/* Merges of a byte pair encoding, applied to one piece. */
#include "data/bpe.h"

#include "base/checked.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_PIECE = 64 };

/* --- the table --- */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const ech_merges *m, uint64_t pair)
{
    const size_t mask = m->n_slots - 1;
    size_t i = (size_t)((pair * 0x9E3779B97F4A7C15u) >> 32) & mask;

    while (m->slot[i].rank >= 0 && m->slot[i].pair != pair)
        i = (i + 1) & mask;
    return i;
}

static ech_status grow_table(ech_merges *m)
{
    ech_merges bigger = {.n_slots = m->n_slots ? 2 * m->n_slots : 1024, .n = m->n};

    ECH_TRY(ech_calloc(bigger.n_slots, sizeof *bigger.slot, &bigger.slot));
    for (size_t i = 0; i < bigger.n_slots; i++)
        bigger.slot[i].rank = -1;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slot[i].rank >= 0)
            bigger.slot[slot_of(&bigger, m->slot[i].pair)] = m->slot[i];
    }
    free(m->slot);
    *m = bigger;
    return ECH_OK;
}

ech_status ech_merges_add(ech_merges *m, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    const uint64_t pair = pair_of(left, right);

    if (2 * (m->n + 1) > m->n_slots)
        ECH_TRY(grow_table(m));
    ech_merge *slot = &m->slot[slot_of(m, pair)];
    if (slot->rank >= 0)
        return ECH_OK;
    *slot = (ech_merge){.pair = pair, .rank = rank, .id = id};
    m->n++;
    return ECH_OK;
}

const ech_merge *ech_merges_find(const ech_merges *m, int32_t left, int32_t right)
{
    if (m->n_slots == 0)
        return NULL;
    const ech_merge *slot = &m->slot[slot_of(m, pair_of(left, right))];
    return slot->rank >= 0 ? slot : NULL;
}

void ech_merges_fini(ech_merges *m)
{
    free(m->slot);
    *m = (ech_merges){0};
}

/* --- short pieces: look for the lowest rank again and again --- */

static int32_t rank_of(const ech_merges *m, int32_t left, int32_t right)
{
    const ech_merge *merge = ech_merges_find(m, left, right);
    return merge ? merge->rank : INT32_MAX;
}

static void apply_short(const ech_merges *m, int32_t *ids, size_t *count)
{
    int32_t rank[SHORT_PIECE];
    size_t n = *count;

    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(m, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == INT32_MAX)
            break;
        ids[best] = ech_merges_find(m, ids[best], ids[best + 1])->id;
        memmove(&ids[best + 1], &ids[best + 2], (n - best - 2) * sizeof *ids);
        memmove(&rank[best], &rank[best + 1], (n - best - 2) * sizeof *rank);
        n--;
        if (best + 1 < n)
            rank[best] = rank_of(m, ids[best], ids[best + 1]);
        if (best > 0)
            rank[best - 1] = rank_of(m, ids[best - 1], ids[best]);
    }
    *count = n;
}

/* --- long pieces: a linked list and a heap of candidates --- */

struct ech_bpe_link {
    int32_t id; /* -1: merged into its left neighbour */
    int64_t prev, next;
};

struct ech_bpe_candidate {
    int32_t rank;
    int32_t id; /* of the merged pair */
    int64_t at; /* of the left one */
    uint64_t pair;
};

static bool is_before(const struct ech_bpe_candidate *a, const struct ech_bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static ech_status heap_push(ech_bpe_scratch *s, size_t *n, struct ech_bpe_candidate c)
{
    ECH_TRY(ech_grow(&s->heap, *n, &s->heap_capacity, sizeof *s->heap));
    size_t i = (*n)++;
    while (i > 0 && is_before(&c, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
    return ECH_OK;
}

static struct ech_bpe_candidate heap_pop(ech_bpe_scratch *s, size_t *n)
{
    const struct ech_bpe_candidate top = s->heap[0];
    const struct ech_bpe_candidate last = s->heap[--*n];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && is_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!is_before(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* Candidate of the symbol at `at` and the one after it, if they merge. */
static ech_status push_pair(const ech_merges *m, ech_bpe_scratch *s, size_t *n_heap, int64_t at)
{
    if (at < 0 || s->link[at].next < 0)
        return ECH_OK;
    const ech_merge *merge = ech_merges_find(m, s->link[at].id, s->link[s->link[at].next].id);
    if (!merge)
        return ECH_OK;
    return heap_push(s, n_heap,
                     (struct ech_bpe_candidate){
                         .rank = merge->rank, .id = merge->id, .at = at, .pair = merge->pair});
}

static bool is_current(const struct ech_bpe_link *link, const struct ech_bpe_candidate *c)
{
    const struct ech_bpe_link *left = &link[c->at];
    return left->id >= 0 && left->next >= 0 && pair_of(left->id, link[left->next].id) == c->pair;
}

static void join_with_next(struct ech_bpe_link *link, int64_t at, int32_t id)
{
    const int64_t gone = link[at].next;

    link[at].id = id;
    link[at].next = link[gone].next;
    if (link[gone].next >= 0)
        link[link[gone].next].prev = at;
    link[gone].id = -1;
}

static ech_status reserve_links(ech_bpe_scratch *s, size_t n)
{
    if (n <= s->link_capacity)
        return ECH_OK;
    free(s->link);
    s->link = NULL;
    s->link_capacity = 0;
    ECH_TRY(ech_calloc(n, sizeof *s->link, &s->link));
    s->link_capacity = n;
    return ECH_OK;
}

static ech_status apply_long(const ech_merges *m, ech_bpe_scratch *s, int32_t *ids, size_t *count)
{
    const int64_t n = (int64_t)*count;
    size_t n_heap = 0;
    size_t used = 0;

    ECH_TRY(reserve_links(s, *count));
    for (int64_t i = 0; i < n; i++)
        s->link[i] =
            (struct ech_bpe_link){.id = ids[i], .prev = i - 1, .next = i + 1 < n ? i + 1 : -1};
    for (int64_t i = 0; i + 1 < n; i++)
        ECH_TRY(push_pair(m, s, &n_heap, i));
    while (n_heap > 0) {
        const struct ech_bpe_candidate c = heap_pop(s, &n_heap);
        if (!is_current(s->link, &c))
            continue;
        join_with_next(s->link, c.at, c.id);
        ECH_TRY(push_pair(m, s, &n_heap, s->link[c.at].prev));
        ECH_TRY(push_pair(m, s, &n_heap, c.at));
    }
    for (int64_t i = 0; i >= 0; i = s->link[i].next)
        ids[used++] = s->link[i].id;
    *count = used;
    return ECH_OK;
}

ech_status ech_bpe_apply(const ech_merges *m, ech_bpe_scratch *s, int32_t *ids, size_t *n)
{
    if (*n < 2)
        return ECH_OK;
    if (*n > SHORT_PIECE)
        return apply_long(m, s, ids, n);
    apply_short(m, ids, n);
    return ECH_OK;
}

void ech_bpe_scratch_fini(ech_bpe_scratch *s)
{
    free(s->link);
    free(s->heap);
    *s = (ech_bpe_scratch){0};
}
