#include "equal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool equal_keep(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row * 7 + position * 3) % 5 < 3;
}

const char *equal_describe(const tiny_spec *s, char *buf, size_t n)
{
    const ech_shard_policy *p = &s->policy;
    int at = snprintf(buf, n, "model %d of %d layers, heads %d/%d, dropout %g, ", s->kind,
                      s->layers, s->heads, s->kv_heads, s->dropout);
    at += snprintf(buf + at, n - (size_t)at, "%s pp %d chunks %d group %d, tp %d dp %d in %d x%d, ",
                   s->table ? s->table->name : ech_schedule_name(s->schedule), s->pp, s->chunks,
                   s->group, s->tp, s->dp, s->shard_group, s->accumulation);
    at += snprintf(buf + at, n - (size_t)at, "zero %d%s%s%s%s prefetch %d", p->zero_stage,
                   p->is_sequence_parallel ? " sp" : "", p->keeps_inputs ? " kept" : "",
                   p->reduces_each ? " each" : "", p->reshards_after_forward ? " reshard" : "",
                   p->prefetch);
    for (int i = 0; i < s->n_stage_layers; i++)
        at += snprintf(buf + at, n - (size_t)at, "%s%d", i ? "," : ", layers ", s->stage_layers[i]);
    return buf;
}

/* --- what one rank comes to --- */

typedef struct reference {
    tiny_spec of; /* the one rank's */
    double *grads[EQUAL_STEPS], *params;
    ech_step_result step[EQUAL_STEPS];
} reference;

enum { MOST_REFERENCES = 512 };
static reference kept[MOST_REFERENCES];
static int n_kept;
static int n_compared;

static double *copy(const ech_session *s, const void *from)
{
    const size_t bytes = (size_t)s->canon.elems * sizeof(double);
    double *to = malloc(bytes);
    if (!to)
        abort();
    memcpy(to, from, bytes);
    return to;
}

/* Everything in one micro-batch. */
static tiny_spec alone(const tiny_spec *spec)
{
    tiny_spec one = tiny_spec_default();
    one.kind = spec->kind;
    one.dropout = spec->dropout;
    one.heads = spec->heads;
    one.kv_heads = spec->kv_heads;
    one.layers = spec->layers;
    one.clip = spec->clip;
    one.seq = spec->seq;
    one.rows = spec->rows * spec->dp * spec->accumulation;
    return one;
}

static bool is_alike(const tiny_spec *a, const tiny_spec *b)
{
    return a->kind == b->kind && !(a->dropout < b->dropout || a->dropout > b->dropout) &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->layers == b->layers &&
           !(a->clip < b->clip || a->clip > b->clip) && a->seq == b->seq && a->rows == b->rows;
}

static const reference *reference_of(const tiny_spec *spec)
{
    const tiny_spec one = alone(spec);
    tiny_run run;
    for (int i = 0; i < n_kept; i++)
        if (is_alike(&kept[i].of, &one))
            return &kept[i];
    if (n_kept == MOST_REFERENCES)
        equal_end();
    reference *ref = &kept[n_kept++];
    ref->of = one;
    tiny_start(&one, &run);
    for (int i = 0; i < EQUAL_STEPS; i++) {
        tiny_feed(&run, i, equal_keep, NULL);
        ref->step[i] = tiny_step(&run, i, 0.05);
        ref->grads[i] = copy(run.session, tiny_all(run.session, ECH_HELD_GRADS));
    }
    ref->params = copy(run.session, tiny_all(run.session, ECH_HELD_PARAMS));
    tiny_stop(&run);
    return ref;
}

int equal_count(void)
{
    return n_compared;
}

void equal_end(void)
{
    for (int k = 0; k < n_kept; k++) {
        for (int i = 0; i < EQUAL_STEPS; i++)
            free(kept[k].grads[i]);
        free(kept[k].params);
    }
    n_kept = 0;
}

/* --- copies --- */

typedef struct copies {
    const unsigned char *all;
    size_t real;
    int64_t wrong;
} copies;

static ech_status compare_copies(void *user, const ech_held_run *r)
{
    copies *c = user;
    const unsigned char *want = c->all + (size_t)(r->param->offset + r->first) * c->real;
    c->wrong += memcmp(want, r->data, (size_t)r->elems * c->real) != 0;
    return ECH_OK;
}

int64_t equal_wrong_copies(ech_session *s, ech_held_class what)
{
    copies c = {tiny_all(s, what), ech_dtype_bytes(s->config.compile.block.real), 0};
    for (int i = 0; i < s->n_local; i++) {
        const ech_held h = ech_session_held(s, i);
        tiny_ok(ech_held_each(&h, what, compare_copies, &c), "copies");
    }
    return c.wrong;
}

/* --- comparing --- */

static int expect(double got, double limit, const tiny_spec *s, int step, const char *what)
{
    char name[512];
    if (got <= limit)
        return 0;
    (void)fprintf(stderr, "%s: step %d: %s differs by %.3e (limit %.0e)\n",
                  equal_describe(s, name, sizeof name), step, what, got, limit);
    return 1;
}

static int compare_step(const tiny_spec *spec, tiny_run *run, const reference *ref, int i)
{
    ech_session *s = run->session;
    const ech_step_result *want = &ref->step[i];
    tiny_feed(run, i, equal_keep, NULL);
    const ech_step_result r = tiny_step(run, i, 0.05);
    return expect(tiny_difference(s, tiny_all(s, ECH_HELD_GRADS), ref->grads[i]), 1e-11, spec, i,
                  "a gradient") +
           expect((double)equal_wrong_copies(s, ECH_HELD_GRADS), 0.0, spec, i,
                  "a copy of a gradient") +
           expect((double)equal_wrong_copies(s, ECH_HELD_PARAMS), 0.0, spec, i,
                  "a copy of a weight") +
           expect(fabs(r.loss - want->loss), 1e-12, spec, i, "the loss") +
           expect(fabs(r.grad_norm / want->grad_norm - 1.0), 1e-12, spec, i, "the norm") +
           expect((double)llabs((long long)(r.tokens - want->tokens)), 0.0, spec, i,
                  "the number of tokens") +
           expect(r.is_updated ? 0.0 : 1.0, 0.0, spec, i, "that it was updated");
}

/* What does not even run ends the test: say which it was. */
static const tiny_spec *in_hand;

static void tell_layout(void)
{
    char name[512];
    if (in_hand)
        (void)fprintf(stderr, "in %s\n", equal_describe(in_hand, name, sizeof name));
}

int equal_to_one_rank(const tiny_spec *spec)
{
    tiny_run run;
    int wrong = 0;
    const reference *ref = reference_of(spec);
    if (!n_compared++)
        (void)atexit(tell_layout);
    in_hand = spec;
    tiny_start(spec, &run);
    for (int i = 0; i < EQUAL_STEPS; i++)
        wrong += compare_step(spec, &run, ref, i);
    wrong +=
        expect(tiny_difference(run.session, tiny_all(run.session, ECH_HELD_PARAMS), ref->params),
               1e-11, spec, EQUAL_STEPS, "a weight");
    for (int k = 0; k < run.world; k++)
        tiny_ok(ech_engine_check(run.session->local[k].engine), "an arena");
    tiny_stop(&run);
    in_hand = NULL;
    return wrong;
}
