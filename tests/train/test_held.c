/* RUN: np=1 timeout=30 tags=fast */
/* From canonical elements to memory and back: every element is written as its own number on every
 * rank of several layouts, and looked for by an arithmetic of cuts of its own. */
#include "check.h"
#include "tiny.h"

#include "base/checked.h"

#include <stdlib.h>

/* tp, dp, shard group, stage, sequence parallel. */
typedef struct deal {
    tiny_kind kind;
    int heads, kv_heads; /* 0: the kind's own */
    int tp, dp, group, stage;
    bool is_sequence_parallel;
} deal;

static const deal deals[] = {
    {TINY_LLAMA, 0, 0, 1, 1, 0, 0, false},
    {TINY_TIED_LLAMA, 0, 0, 1, 3, 0, 0, false},
    {TINY_LLAMA, 0, 0, 1, 3, 0, 1, false},
    {TINY_GPT2, 0, 0, 1, 3, 0, 2, false},
    {TINY_LLAMA, 0, 0, 1, 4, 2, 3, false}, /* two replicas of a shard group of two */
    {TINY_QWEN, 0, 0, 2, 1, 0, 0, false},  /* norms of heads: partial over tp */
    {TINY_LLAMA, 0, 0, 2, 1, 0, 0, true},
    {TINY_GPT2, 0, 0, 3, 2, 0, 3, true},   /* 128 rows of the table over three: padding */
    {TINY_LLAMA, 0, 0, 4, 1, 0, 0, false}, /* two key/value heads over four */
    {TINY_QWEN, 0, 0, 4, 2, 0, 3, true},
    {TINY_QWEN, 0, 0, 4, 4, 2, 2, true},
    {TINY_LLAMA, 12, 3, 2, 2, 0, 1, true}, /* six heads a rank, groups of four */
};

#define PADDING (-7.0)

static double id_of(ech_held_class what, int64_t element)
{
    return (double)(((int64_t)what + 1) * (1 << 20) + element);
}

static void start(const deal *d, ech_update_rule optim, tiny_run *out)
{
    tiny_spec s = tiny_spec_default();
    s.kind = d->kind;
    s.heads = d->heads;
    s.kv_heads = d->kv_heads;
    s.tp = d->tp;
    s.dp = d->dp;
    s.shard_group = d->group;
    s.policy.zero_stage = d->stage;
    s.policy.is_sequence_parallel = d->is_sequence_parallel;
    s.policy.reshards_after_forward = true;
    s.seq = 12;
    s.optim = optim;
    tiny_start(&s, out);
}

/* --- what is expected --- */

static int group_of(const deal *d)
{
    return d->group ? d->group : d->dp;
}

/* Does each rank of a shard group have elements of its own? */
static bool is_dealt_out(const deal *d, ech_held_class what)
{
    return group_of(d) > 1 && d->stage >= (what == ECH_HELD_PARAMS ? 3 : 1);
}

/* Does index i of n lie at tp coordinate t, of ceil(n / tp) each? */
static bool is_at(int64_t i, int64_t n, int tp, int t)
{
    return i / ((n + tp - 1) / tp) == t;
}

/* How often query rows, or keys and values, of head group g are at tp coordinate t. */
static int held_heads(const ech_model *m, int tp, int t, int64_t g, int64_t row)
{
    const int64_t r = m->heads / m->kv_heads;
    const int64_t mine = m->heads / tp;
    const int64_t together = ech_gcd(mine, r); /* query heads with one copy of key and value */
    int copies = 0;
    if (row < r)
        return (g * r + row) / mine == t;
    for (int64_t h = t * mine; h < (t + 1) * mine; h += together)
        copies += h / r == g;
    return copies;
}

/* How often element e of a tensor is at tp coordinate t. */
static int held_at(const ech_model *m, const ech_param *p, int64_t e, int tp, int t)
{
    const int64_t inner = p->dim[p->rank - 1];
    if (tp == 1)
        return 1;
    switch (p->kind) {
    case ECH_PARAM_TOKEN_EMBED:
    case ECH_PARAM_HEAD:
    case ECH_PARAM_UP:
        return is_at(e / inner, p->dim[0], tp, t);
    case ECH_PARAM_UP_BIAS:
        return is_at(e, p->dim[0], tp, t);
    case ECH_PARAM_ATTN_OUT:
    case ECH_PARAM_DOWN:
        return is_at(e % inner, inner, tp, t);
    case ECH_PARAM_GATE_UP:
        return is_at(e / inner % p->dim[1], p->dim[1], tp, t);
    case ECH_PARAM_QKV:
        return held_heads(m, tp, t, e / inner / p->dim[2] / p->dim[1],
                          e / inner / p->dim[2] % p->dim[1]);
    case ECH_PARAM_QKV_BIAS:
        return held_heads(m, tp, t, e / inner / p->dim[1], e / inner % p->dim[1]);
    default:
        return 1;
    }
}

/* --- what is there --- */

/* Slots of a class, one a part. */
static const int *slots_of(const ech_held *h, ech_held_class what)
{
    return what == ECH_HELD_PARAMS  ? h->slots->params
           : what == ECH_HELD_GRADS ? h->slots->grads
                                    : h->slots->moments;
}

static int64_t slot_elems(const ech_session *s, int slot)
{
    return slot < 0 ? 0 : (int64_t)(s->train.klass[0].program.slot[slot].bytes / sizeof(double));
}

/* Every double of the model's state: set, or counted where it is not `value`. */
static void fill(const ech_session *s, const ech_held *h, double value)
{
    for (int c = 0; c < ECH_N_HELD; c++)
        for (int part = 0; part < ECH_N_PARTS; part++) {
            const int slot = slots_of(h, (ech_held_class)c)[part];
            for (int64_t k = 0; k < slot_elems(s, slot); k++)
                ((double *)ech_engine_state(h->engine, slot))[k] = value;
        }
}

static int64_t count_not(const ech_session *s, const ech_held *h, ech_held_class what, double value)
{
    int64_t n = 0;
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const int slot = slots_of(h, what)[part];
        for (int64_t k = 0; k < slot_elems(s, slot); k++)
            n += ((const double *)ech_engine_state(h->engine, slot))[k] != value;
    }
    return n;
}

static double *ids_of(const ech_canon *c, ech_held_class what)
{
    double *ids = malloc((size_t)c->elems * sizeof *ids);
    assert_non_null(ids);
    for (int64_t e = 0; e < c->elems; e++)
        ids[e] = id_of(what, e);
    return ids;
}

typedef struct tally {
    ech_held_class what;
    int *held, *first; /* [canon elems] of all ranks so far */
    int *mine;         /* of this rank */
    int64_t visited, firsts;
    bool has_data;
} tally;

static ech_status count_run(void *user, const ech_held_run *r)
{
    tally *t = user;
    assert_true(r->elems > 0 && r->first >= 0 && r->first + r->elems <= r->param->elems);
    assert_int_equal(r->data != NULL, t->has_data);
    for (int64_t k = 0; k < r->elems; k++) {
        const int64_t e = r->param->offset + r->first + k;
        if (r->data)
            assert_true(((const double *)r->data)[k] == id_of(t->what, e));
        t->mine[e]++;
        t->held[e]++;
        t->first[e] += r->is_first;
    }
    t->visited += r->elems;
    t->firsts += r->is_first ? r->elems : 0;
    return ECH_OK;
}

/* Put writes what the rank holds and nothing else. */
static void check_put(const ech_held *h, ech_held_class what, const int *mine)
{
    const int64_t n = h->canon->elems;
    double *all = malloc((size_t)n * sizeof *all);
    for (int64_t e = 0; e < n; e++)
        all[e] = PADDING;
    ech_held_put(h, what, all);
    for (int64_t e = 0; e < n; e++)
        assert_true(all[e] == (mine[e] ? id_of(what, e) : PADDING));
    free(all);
}

/* A part of a unit over tp as it should lie: its tensors' runs, the rest padding. */
static double *image_of(const ech_held *h, ech_held_class what, int unit, ech_part part, int t)
{
    const ech_shard_unit *u = ech_shard_unit_of(h->plan, unit);
    double *image = malloc((size_t)u->part[part].elems * sizeof *image);
    for (int64_t k = 0; k < u->part[part].elems; k++)
        image[k] = PADDING;
    for (int k = 0; k < u->n; k++) {
        const ech_shard_param *p = &h->plan->param[u->first + k];
        const int64_t at = h->canon->param[h->canon->unit_first[unit] + k].offset;
        for (int64_t i = 0; i < ech_shard_run_count(h->plan, p) && p->part == part; i++) {
            const ech_shard_run r = ech_shard_run_get(h->plan, p, t, i);
            for (int64_t e = 0; e < r.elems; e++)
                image[p->offset + r.local + e] = id_of(what, at + r.canonical + e);
        }
    }
    return image;
}

static void check_range(const ech_held *h, const deal *d, ech_held_class what, int unit,
                        ech_part part)
{
    ech_held_range r;
    const int64_t elems = ech_shard_unit_of(h->plan, unit)->part[part].elems;
    const int64_t own = elems / group_of(d);
    const bool is_own = is_dealt_out(d, what);
    assert_int_equal(ech_held_range_get(h, what, unit, part, &r), elems > 0);
    if (!elems)
        return;
    assert_int_equal(r.is_own, is_own);
    assert_int_equal(r.n, is_own ? own : elems);
    assert_int_equal(r.first, is_own ? h->rank / d->tp % group_of(d) * own : 0);
    double *image = image_of(h, what, unit, part, h->rank % d->tp);
    assert_memory_equal(r.data, image + r.first, (size_t)r.n * sizeof *image);
    free(image);
}

/* Unit by unit leaves the same bytes as all at once. */
static void check_units(const ech_session *s, const ech_held *h, ech_held_class what,
                        const double *ids)
{
    const int64_t before = count_not(s, h, what, PADDING);
    fill(s, h, PADDING);
    for (int u = 0; u < h->canon->n_units; u++)
        ech_held_take_unit(h, what, u, ids + h->canon->unit_offset[u]);
    assert_int_equal(count_not(s, h, what, PADDING), before);
}

/* --- a rank, a class --- */

static void check_class(const ech_session *s, const ech_held *h, const deal *d, tally *t)
{
    const int64_t firsts = t->firsts;
    double *ids = ids_of(h->canon, t->what);
    t->mine = calloc((size_t)h->canon->elems, sizeof *t->mine);
    t->visited = 0;
    fill(s, h, PADDING);
    ech_held_take(h, t->what, ids);
    assert_ok(ech_held_each(h, t->what, count_run, t));
    /* as many places were written as elements are visited: none twice, no padding */
    assert_int_equal(count_not(s, h, t->what, PADDING), t->visited);
    check_put(h, t->what, t->mine);
    check_units(s, h, t->what, ids);
    assert_int_equal(ech_held_first_bytes(h, t->what),
                     (t->firsts - firsts) * (int64_t)sizeof(double));
    for (int u = 0; u < h->canon->n_units; u++)
        for (int part = 0; part < ECH_N_PARTS; part++)
            check_range(h, d, t->what, u, (ech_part)part);
    ech_held_clear(h, t->what);
    assert_int_equal(count_not(s, h, t->what, 0.0), 0);
    free(t->mine);
    free(ids);
}

/* Another process's rank has no memory here: the same runs without data. */
static void check_elsewhere(ech_held h, ech_held_class what)
{
    const size_t n = (size_t)h.canon->elems;
    tally t = {.what = what};
    ech_held_range r;
    h.engine = NULL;
    t.mine = calloc(n, sizeof *t.mine);
    t.held = calloc(n, sizeof *t.held);
    t.first = calloc(n, sizeof *t.first);
    assert_ok(ech_held_each(&h, what, count_run, &t));
    assert_true(t.visited > 0);
    assert_int_equal(ech_held_first_bytes(&h, what), t.firsts * (int64_t)sizeof(double));
    assert_true(ech_held_range_get(&h, what, 0, ECH_PART_CUT, &r));
    assert_null(r.data);
    free(t.mine);
    free(t.held);
    free(t.first);
}

/* Over the world each element is held as often as its cut says, and first exactly once. */
static void check_world(const ech_session *s, const deal *d, const tally *t)
{
    const int replicas = is_dealt_out(d, t->what) ? d->dp / group_of(d) : d->dp;
    for (int i = 0; i < s->canon.n_params; i++) {
        const ech_param *p = &s->canon.param[i];
        for (int64_t e = 0; e < p->elems; e++) {
            int wanted = 0;
            for (int c = 0; c < d->tp; c++)
                wanted += held_at(&s->model, p, e, d->tp, c);
            if (t->held[p->offset + e] != wanted * replicas || t->first[p->offset + e] != 1)
                fail_msg("%s of %s[%lld]: held %d times, wanted %d, first %d times",
                         ech_held_class_name(t->what), p->name, (long long)e,
                         t->held[p->offset + e], wanted * replicas, t->first[p->offset + e]);
        }
    }
}

static void check_deal(const deal *d)
{
    tiny_run run;
    start(d, ECH_UPDATE_ADAMW, &run);
    ech_session *s = run.session;
    for (int c = 0; c < ECH_N_HELD; c++) {
        tally t = {.what = (ech_held_class)c, .has_data = true};
        t.held = calloc((size_t)s->canon.elems, sizeof *t.held);
        t.first = calloc((size_t)s->canon.elems, sizeof *t.first);
        for (int i = 0; i < s->n_local; i++) {
            const ech_held h = ech_session_held(s, i);
            check_class(s, &h, d, &t);
            check_elsewhere(h, t.what);
        }
        check_world(s, d, &t);
        free(t.held);
        free(t.first);
    }
    tiny_stop(&run);
}

static void test_every_layout(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof deals / sizeof *deals; k++)
        check_deal(&deals[k]);
}

/* m and v of a unit lie behind one another: neither is written by the other's elements. */
static void test_both_moments(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof deals / sizeof *deals; k++) {
        tiny_run run;
        start(&deals[k], ECH_UPDATE_ADAMW, &run);
        for (int i = 0; i < run.session->n_local; i++) {
            const ech_held h = ech_session_held(run.session, i);
            const ech_held_class both[2] = {ECH_HELD_M, ECH_HELD_V};
            int64_t apart = 0;
            for (int c = 0; c < 2; c++) {
                double *ids = ids_of(h.canon, both[c]);
                fill(run.session, &h, PADDING);
                ech_held_take(&h, both[c], ids);
                apart += count_not(run.session, &h, both[c], PADDING);
                free(ids);
            }
            double *m = ids_of(h.canon, ECH_HELD_M);
            double *v = ids_of(h.canon, ECH_HELD_V);
            fill(run.session, &h, PADDING);
            ech_held_take(&h, ECH_HELD_M, m);
            ech_held_take(&h, ECH_HELD_V, v);
            assert_int_equal(count_not(run.session, &h, ECH_HELD_M, PADDING), apart);
            free(m);
            free(v);
        }
        tiny_stop(&run);
    }
}

static ech_status never(void *user, const ech_held_run *r)
{
    (void)user;
    fail_msg("visited %s", r->param->name);
    return ECH_OK;
}

static ech_status stop(void *user, const ech_held_run *r)
{
    (void)r;
    ++*(int *)user;
    return ECH_E_IO;
}

static void test_without_moments(void **state)
{
    const deal d = {TINY_LLAMA, 0, 0, 1, 2, 0, 3, false};
    tiny_run run;
    ech_held_range r;
    int n = 0;
    (void)state;
    start(&d, ECH_UPDATE_SGD, &run);
    const ech_held h = ech_session_held(run.session, 1);
    assert_ok(ech_held_each(&h, ECH_HELD_M, never, NULL));
    assert_ok(ech_held_each(&h, ECH_HELD_V, never, NULL));
    assert_int_equal(ech_held_first_bytes(&h, ECH_HELD_V), 0);
    assert_false(ech_held_range_get(&h, ECH_HELD_M, 0, ECH_PART_CUT, &r));
    assert_false(ech_held_range_get(&h, ECH_HELD_PARAMS, 0, ECH_PART_WHOLE, &r)); /* tp 1 */
    assert_int_equal(ech_held_each(&h, ECH_HELD_PARAMS, stop, &n), ECH_E_IO);
    assert_int_equal(n, 1);
    tiny_stop(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout),
        cmocka_unit_test(test_both_moments),
        cmocka_unit_test(test_without_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
