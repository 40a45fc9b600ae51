#include "engine/virtual.h"
#include "base/rng.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static ech_status deadlock(ech_engine *const *engine, int n)
{
    ech_text t = {0};
    char buf[512];
    for (int r = 0; r < n; r++)
        ech_text_add(&t, "%s%s", r ? "; " : "", ech_engine_describe(engine[r], buf, sizeof buf));
    const ech_status st =
        ECH_RAISE(ECH_E_DEADLOCK, "virtual ranks wait for each other: %s", ech_text_get(&t));
    ech_text_fini(&t);
    return st;
}

static int64_t activity(ech_engine *const *engine, int n)
{
    int64_t sum = 0;
    for (int r = 0; r < n; r++)
        sum += ech_engine_activity(engine[r]);
    return sum;
}

/* Each engine that has not ended its segment, once.  @return how many have ended it now, or an
 * error */
static int one_round(ech_engine *const *engine, int n, ech_status *st)
{
    int ended = 0;
    for (int r = 0; r < n && *st >= 0; r++) {
        if (ech_engine_has_ended(engine[r])) {
            ended++;
            continue;
        }
        *st = ech_engine_advance(engine[r]);
        ended += *st == ECH_DONE;
    }
    return ended;
}

ech_status ech_virtual_run(ech_engine *const *engine, int n, int program, ech_segment segment)
{
    ech_status st = ECH_OK;
    for (int r = 0; r < n; r++)
        ech_engine_begin(engine[r], program, segment);
    for (int ended = -1; ended < n && st >= 0;) {
        const int before = ended;
        const int64_t moved = activity(engine, n);
        ended = one_round(engine, n, &st);
        if (st >= 0 && ended < n && ended == before && activity(engine, n) == moved)
            st = deadlock(engine, n);
    }
    return st < 0 ? st : ECH_OK;
}

/* --- fuzzing --- */

/* Nodes of a class's segment, and who comes after each. */
typedef struct order {
    const ech_deps *d;
    int *row, *succ; /* successors in compressed rows */
    int first, last; /* nodes of the segment */
} order;

/* How far a rank is. */
typedef struct drawing {
    const order *of;
    int *left;  /* [nodes] predecessors not done */
    int *ready; /* [nodes] */
    int n_ready;
} drawing;

typedef struct fuzzer {
    const ech_virtual_orders *orders;
    order *order;     /* [n_classes] */
    drawing *drawing; /* [n] */
    int n_classes;
    int n;
} fuzzer;

static ech_status successors(order *o)
{
    const ech_deps *d = o->d;
    ECH_TRY(ech_calloc((size_t)d->n + 2, sizeof *o->row, &o->row));
    ECH_TRY(ech_calloc(d->n_edges, sizeof *o->succ, &o->succ));
    for (size_t i = 0; i < d->n_edges; i++)
        o->row[d->pred[i] + 2]++;
    for (int i = 0; i < d->n; i++)
        o->row[i + 2] += o->row[i + 1];
    for (int node = 0; node < d->n; node++)
        for (int i = d->row[node]; i < d->row[node + 1]; i++)
            o->succ[o->row[d->pred[i] + 1]++] = node;
    return ECH_OK;
}

static ech_status order_init(order *o, const ech_program *p, const ech_deps *d, ech_segment segment)
{
    o->d = d;
    while (o->first < d->n && p->item[d->item[o->first]].segment < segment)
        o->first++;
    o->last = o->first;
    while (o->last < d->n && p->item[d->item[o->last]].segment == segment)
        o->last++;
    return successors(o);
}

static ech_status drawing_init(drawing *w, const order *o)
{
    const ech_deps *d = o->d;
    w->of = o;
    ECH_TRY(ech_calloc((size_t)d->n, sizeof *w->left, &w->left));
    ECH_TRY(ech_calloc((size_t)d->n, sizeof *w->ready, &w->ready));
    for (int node = o->first; node < o->last; node++) {
        for (int i = d->row[node]; i < d->row[node + 1]; i++)
            w->left[node] += d->pred[i] >= o->first; /* earlier segments are done */
        if (!w->left[node])
            w->ready[w->n_ready++] = node;
    }
    return ECH_OK;
}

static int class_of(const fuzzer *f, int r)
{
    return f->orders->class_of ? f->orders->class_of[r] : 0;
}

static ech_status fuzzer_init(fuzzer *f, ech_segment segment)
{
    for (int r = 0; r < f->n; r++)
        f->n_classes = class_of(f, r) >= f->n_classes ? class_of(f, r) + 1 : f->n_classes;
    ECH_TRY(ech_calloc((size_t)f->n_classes, sizeof *f->order, &f->order));
    ECH_TRY(ech_calloc((size_t)f->n, sizeof *f->drawing, &f->drawing));
    for (int k = 0; k < f->n_classes; k++)
        ECH_TRY(order_init(&f->order[k], f->orders->program[k], &f->orders->deps[k], segment));
    for (int r = 0; r < f->n; r++)
        ECH_TRY(drawing_init(&f->drawing[r], &f->order[class_of(f, r)]));
    return ECH_OK;
}

static void fuzzer_fini(fuzzer *f)
{
    for (int k = 0; f->order && k < f->n_classes; k++) {
        free(f->order[k].row);
        free(f->order[k].succ);
    }
    for (int r = 0; f->drawing && r < f->n; r++) {
        free(f->drawing[r].left);
        free(f->drawing[r].ready);
    }
    free(f->order);
    free(f->drawing);
}

static void node_done(drawing *w, int node)
{
    const order *o = w->of;
    for (int i = o->row[node]; i < o->row[node + 1]; i++) {
        const int next = o->succ[i];
        if (next < o->last && --w->left[next] == 0)
            w->ready[w->n_ready++] = next;
    }
}

static ech_status turn(drawing *w, ech_engine *engine, uint32_t word, bool *moved)
{
    const ech_deps *d = w->of->d;
    const int k = (int)(word % (uint32_t)w->n_ready);
    const int node = w->ready[k];
    const ech_status st = ech_engine_run_op(engine, d->item[node], d->op[node], d->slot[node]);
    if (st < 0 || st == ECH_BLOCKED)
        return st;
    w->ready[k] = w->ready[--w->n_ready];
    node_done(w, node);
    *moved = true;
    return ECH_OK;
}

/* Draws in a row without any activity after which the ranks count as stuck: with this many, the
 * chance that some op that could move was never drawn is nil for any program that fits memory. */
static int64_t patience(const fuzzer *f)
{
    int64_t ready = 1;
    for (int r = 0; r < f->n; r++)
        ready += f->drawing[r].n_ready;
    return 100 * ready * f->n;
}

static ech_status fuzz(fuzzer *f, ech_engine *const *engine, uint64_t seed)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, 0);
    uint64_t drawn = 0;
    int64_t todo = 0;
    for (int r = 0; r < f->n; r++)
        todo += f->drawing[r].of->last - f->drawing[r].of->first;
    int64_t idle = 0;
    int64_t last_activity = -1;
    while (todo > 0) {
        bool moved = false;
        const int r = (int)(ech_rng_u32(&key, drawn++) % (uint32_t)f->n);
        if (f->drawing[r].n_ready)
            ECH_TRY(turn(&f->drawing[r], engine[r], ech_rng_u32(&key, drawn++), &moved));
        todo -= moved;
        idle = moved ? 0 : idle + 1;
        if (idle <= patience(f))
            continue;
        const int64_t now = activity(engine, f->n);
        if (now == last_activity)
            return deadlock(engine, f->n);
        last_activity = now; /* bytes still move: waits will end */
        idle = 0;
    }
    return ECH_OK;
}

ech_status ech_virtual_fuzz(ech_engine *const *engine, int n, int program, ech_segment segment,
                            const ech_virtual_orders *orders, uint64_t seed)
{
    fuzzer f = {.orders = orders, .n = n};
    ech_status st = fuzzer_init(&f, segment);
    for (int r = 0; r < n; r++)
        ech_engine_begin(engine[r], program, segment);
    if (st >= 0)
        st = fuzz(&f, engine, seed);
    fuzzer_fini(&f);
    return st;
}
