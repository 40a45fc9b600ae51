/* RUN: np=1 timeout=60 tags=fast */
/* How many micro-batches a pipeline rank holds, counted in compiled programs by the lives of the
 * slots that forwards leave behind, against the literature's bounds: GPipe m; 1F1B and ZB-H1
 * min(m, p - i) on rank i, and ZB-H1 with what its weight gradients still want min(m, p) on all;
 * interleaved (v - 1) p + 2 (p - 1 - i) + 1 chunks; V forms 2 p chunks on every rank. */
#include "check.h"
#include "pipelines.h"

#include <stdlib.h>

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* --- counting --- */

typedef struct lives {
    int saved;    /* most (chunk, micro-batch) pairs between forward and input gradients */
    int deferred; /* and between input and weight gradients */
    int both;     /* together */
} lives;

/* Items [first, last] that a pair's slots of some regions live through. */
typedef struct life {
    int first, last;
} life;

static void widen(life *l, const ech_program *p, const ech_item *it, ech_region region)
{
    const int slot = it->bind[region].slot;
    if (slot < p->n_state || !p->block[it->block].region_bytes[region])
        return;
    l->first = l->first < 0 ? p->slot[slot].first : smaller(l->first, p->slot[slot].first);
    l->last = p->slot[slot].last > l->last ? p->slot[slot].last : l->last;
}

static life *lives_of(const ech_program *p, const ech_region *regions, int n, int pairs)
{
    life *l = calloc((size_t)pairs, sizeof *l);
    assert_non_null(l);
    for (int i = 0; i < pairs; i++)
        l[i] = (life){-1, -1};
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        const ech_role role = p->block[it->block].role;
        if (it->micro < 0 || it->chunk < 0 || role == ECH_ROLE_TRANSFER)
            continue;
        for (int k = 0; k < n; k++)
            widen(&l[it->chunk * p->micro_batches + it->micro], p, it, regions[k]);
    }
    return l;
}

static int most_alive(const ech_program *p, const life *l, int pairs)
{
    int most = 0;
    for (int i = 0; i < p->n_items; i++) {
        int alive = 0;
        for (int k = 0; k < pairs; k++)
            alive += l[k].first >= 0 && l[k].first <= i && i <= l[k].last;
        most = alive > most ? alive : most;
    }
    return most;
}

static int count(const ech_program *p, const ech_region *regions, int n, int chunks)
{
    const int pairs = chunks * p->micro_batches;
    life *l = lives_of(p, regions, n, pairs);
    const int most = most_alive(p, l, pairs);
    free(l);
    return most;
}

static lives count_lives(const ech_program *p, int chunks)
{
    static const ech_region all[] = {ECH_REGION_SAVED_FB, ECH_REGION_SAVED_BW, ECH_REGION_SAVED_FW};
    return (lives){.saved = count(p, &all[0], 1, chunks),
                   .deferred = count(p, &all[1], 1, chunks),
                   .both = count(p, all, 3, chunks)};
}

/* --- against the bounds --- */

static void check_rank(const pipeline *p, int rank, lives got)
{
    const int m = p->micros;
    const int left = p->pp - rank;
    const int group = p->group ? p->group : p->pp;
    switch (p->schedule) {
    case ECH_SCHEDULE_GPIPE:
        assert_int_equal(got.saved, m);
        break;
    case ECH_SCHEDULE_INTERLEAVED: /* of one chunk it is 1F1B */
        assert_int_equal(got.saved, p->chunks > 1 ? smaller(m * p->chunks, (p->chunks - 1) * group +
                                                                               2 * (left - 1) + 1)
                                                  : smaller(m, left));
        break;
    case ECH_SCHEDULE_1F1B:
        assert_int_equal(got.saved, smaller(m, left));
        break;
    case ECH_SCHEDULE_ZB_H1:
        assert_int_equal(got.saved, smaller(m, left));
        assert_int_equal(got.deferred, smaller(m, rank + 1));
        assert_int_equal(got.both, smaller(m, p->pp));
        break;
    default: /* chunks of half a rank's layers */
        assert_in_range(got.both, smaller(2 * m, p->pp), smaller(2 * m, 2 * p->pp));
        if (m >= 2 * p->pp) {
            assert_int_equal(got.saved, 2 * p->pp);
            assert_int_equal(got.both, 2 * p->pp);
        }
        break;
    }
}

static void check(const pipeline *p, void *user)
{
    int *programs = user;
    tiny_run run;
    const tiny_spec spec = pipeline_spec(p, TINY_LLAMA);
    if (!pipeline_is_legal(p))
        return;
    tiny_start(&spec, &run);
    const ech_run *r = &run.session->train;
    assert_int_equal(r->n_classes, p->pp);
    for (int k = 0; k < p->pp; k++, ++*programs)
        check_rank(p, k, count_lives(r->program[k], pipeline_stages(p) / p->pp));
    tiny_stop(&run);
}

static void test_lives_are_the_bounds(void **state)
{
    int programs = 0;
    (void)state;
    pipelines_each(check, &programs);
    assert_true(programs > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lives_are_the_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
