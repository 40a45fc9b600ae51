/* RUN: np=1 timeout=300 tags=fast */
/* Every layout trains what one rank trains: tensor, sequence, ZeRO, FSDP and HSDP in products, with
 * accumulation, dropout, masks, tied tables, shared key/value heads, widths that tp does not divide.
 * In fp64 every gradient before the optimizer at 1e-11, weights after five SGD steps, loss, norm.
 * Every copy of an element is the same, bit for bit. */
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 48, SEQ = 6, STEPS = 5 };

static bool most(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row * 7 + position * 3) % 5 < 3;
}

typedef struct reference {
    double *grads[STEPS];
    double *params;
    double loss[STEPS], norm[STEPS];
} reference;

static double *copy(const ech_session *s, const void *from)
{
    const size_t bytes = (size_t)s->canon.elems * sizeof(double);
    double *to = malloc(bytes);
    memcpy(to, from, bytes);
    return to;
}

/* One rank, everything in one micro-batch. */
static reference run_reference(tiny_spec spec)
{
    reference ref;
    tiny_run one;
    spec.tp = spec.dp = spec.accumulation = 1;
    spec.shard_group = 0;
    spec.policy = (ech_shard_policy){0};
    spec.rows = ROWS;
    tiny_start(&spec, &one);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&one, i, most, NULL);
        const ech_step_result r = tiny_step(&one, i, 0.05);
        ref.grads[i] = copy(one.session, tiny_all(one.session, ECH_HELD_GRADS));
        ref.loss[i] = r.loss;
        ref.norm[i] = r.grad_norm;
    }
    ref.params = copy(one.session, tiny_all(one.session, ECH_HELD_PARAMS));
    tiny_stop(&one);
    return ref;
}

static void forget(reference *ref)
{
    for (int i = 0; i < STEPS; i++)
        free(ref->grads[i]);
    free(ref->params);
}

static int failures;
static int layouts;

static void describe(const tiny_spec *s, char *buf, size_t n)
{
    const ech_shard_policy *p = &s->policy;
    (void)snprintf(
        buf, n, "model %d heads %d/%d, tp %d dp %d group %d x%d, zero %d%s%s%s%s prefetch %d",
        s->kind, s->heads, s->kv_heads, s->tp, s->dp, s->shard_group, s->accumulation,
        p->zero_stage, p->is_sequence_parallel ? " sp" : "", p->keeps_inputs ? " kept" : "",
        p->reduces_each ? " each" : "", p->reshards_after_forward ? " reshard" : "", p->prefetch);
}

static void expect(double got, double limit, const tiny_spec *s, const char *what)
{
    char name[160];
    if (got <= limit)
        return;
    describe(s, name, sizeof name);
    (void)fprintf(stderr, "%s: %s differs by %.3e (limit %.0e)\n", name, what, got, limit);
    failures++;
}

/* Elements that several ranks hold are the same bits on each. */
typedef struct copies {
    const unsigned char *all;
    int64_t wrong;
} copies;

static ech_status compare_copies(void *user, const ech_held_run *r)
{
    copies *c = user;
    const unsigned char *want = c->all + (size_t)(r->param->offset + r->first) * sizeof(double);
    c->wrong += memcmp(want, r->data, (size_t)r->elems * sizeof(double)) != 0;
    return ECH_OK;
}

static void check_copies(const tiny_spec *spec, ech_session *s, ech_held_class what)
{
    copies c = {tiny_all(s, what), 0};
    for (int i = 0; i < s->n_local; i++) {
        const ech_held h = ech_session_held(s, i);
        tiny_ok(ech_held_each(&h, what, compare_copies, &c), "copies");
    }
    expect((double)c.wrong, 0.0, spec, "a copy");
}

static void check_layout(const tiny_spec *spec, const reference *ref)
{
    tiny_run run;
    tiny_start(spec, &run);
    layouts++;
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, most, NULL);
        const ech_step_result r = tiny_step(&run, i, 0.05);
        expect(tiny_difference(run.session, tiny_all(run.session, ECH_HELD_GRADS), ref->grads[i]),
               1e-11, spec, "a gradient");
        check_copies(spec, run.session, ECH_HELD_GRADS);
        expect(fabs(r.loss - ref->loss[i]), 1e-12, spec, "the loss");
        expect(fabs(r.grad_norm - ref->norm[i]) / ref->norm[i], 1e-12, spec, "the gradient norm");
    }
    expect(tiny_difference(run.session, tiny_all(run.session, ECH_HELD_PARAMS), ref->params), 1e-11,
           spec, "a weight");
    check_copies(spec, run.session, ECH_HELD_PARAMS);
    tiny_stop(&run);
}

/* A layout of a table; rows of a micro-batch follow from the others. */
typedef struct layout_row {
    int tp, dp, group, accumulation;
    ech_shard_policy policy;
} layout_row;

static void check_rows(const tiny_spec *model, const layout_row *rows, int n, const reference *ref)
{
    for (int i = 0; i < n; i++) {
        tiny_spec spec = *model;
        spec.tp = rows[i].tp;
        spec.dp = rows[i].dp;
        spec.shard_group = rows[i].group;
        spec.accumulation = rows[i].accumulation;
        spec.policy = rows[i].policy;
        spec.rows = ROWS / (spec.dp * spec.accumulation);
        check_layout(&spec, ref);
    }
}

/* sp, kept, stage, each, reshard, prefetch */
static const layout_row rows[] = {
    {2, 1, 0, 1, {false, false, 0, false, false, 0}},
    {2, 1, 0, 1, {true, false, 0, false, false, 0}},
    {2, 1, 0, 2, {true, true, 0, false, false, 0}},
    {1, 2, 0, 1, {false, false, 1, false, false, 0}},
    {1, 3, 0, 2, {false, false, 1, false, false, 0}},
    {1, 2, 0, 1, {false, false, 2, false, false, 0}},
    {1, 2, 0, 2, {false, false, 2, true, false, 0}},
    {1, 3, 0, 2, {false, false, 2, false, false, 0}},
    {1, 2, 0, 1, {false, false, 3, false, true, 0}},
    {1, 3, 0, 2, {false, false, 3, true, true, 1}},
    {1, 2, 0, 2, {false, false, 3, false, false, 2}},
    {1, 4, 2, 1, {false, false, 3, false, true, 1}},
    {1, 4, 2, 2, {false, false, 2, true, false, 1}},
    {1, 6, 3, 1, {false, false, 1, false, false, 1}},
    {2, 2, 0, 1, {false, false, 0, false, false, 0}},
    {2, 2, 0, 2, {true, false, 1, false, false, 0}},
    {2, 2, 0, 2, {true, true, 2, true, false, 0}},
    {2, 3, 0, 1, {true, false, 3, false, true, 1}},
    {2, 4, 2, 2, {true, false, 3, true, true, 2}},
    {2, 4, 4, 1, {false, false, 3, false, false, 1}},
};

static void check_model(tiny_kind kind, int heads, int kv_heads, double dropout,
                        const layout_row *extra, int n_extra)
{
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.heads = heads;
    spec.kv_heads = kv_heads;
    spec.dropout = dropout;
    spec.poison = true;
    spec.seq = SEQ;
    reference ref = run_reference(spec);
    check_rows(&spec, rows, (int)(sizeof rows / sizeof rows[0]), &ref);
    check_rows(&spec, extra, n_extra, &ref);
    forget(&ref);
}

/* Three and four ranks of tp; widths 20 and 48, a vocabulary of 37 padded to 128. */
static const layout_row threes[] = {
    {3, 1, 0, 1, {false, false, 0, false, false, 0}},
    {3, 2, 0, 2, {true, false, 3, true, true, 1}},
    {3, 4, 2, 1, {true, true, 2, false, false, 0}},
};
static const layout_row fours[] = {
    {4, 1, 0, 2, {true, false, 0, false, false, 0}},
    {4, 2, 0, 1, {false, false, 3, false, true, 0}},
    {4, 4, 2, 1, {true, false, 1, false, false, 0}},
};
static const layout_row sixes[] = {
    {6, 1, 0, 1, {false, false, 0, false, false, 0}},
    {6, 2, 0, 2, {true, false, 2, true, false, 0}},
};

#define WITH(rows) rows, (int)(sizeof(rows) / sizeof(rows)[0])

int main(void)
{
    check_model(TINY_LLAMA, 4, 2, 0.0, WITH(fours));  /* g < t, nested */
    check_model(TINY_GPT2, 6, 6, 0.2, WITH(threes));  /* t = 3 */
    check_model(TINY_LLAMA, 6, 2, 0.1, WITH(threes)); /* heads of a rank straddle groups */
    check_model(TINY_QWEN, 12, 3, 0.0, WITH(fours));  /* the same, with biases and QK-norms */
    check_model(TINY_QWEN, 12, 4, 0.0, WITH(sixes));
    check_model(TINY_TIED_LLAMA, 4, 1, 0.1, WITH(fours)); /* one key/value head */
    (void)fprintf(stderr, "%d layouts, %d failures\n", layouts, failures);
    return failures != 0;
}
