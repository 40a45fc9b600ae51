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

typedef struct fuzzer {
    const ech_program *p;
    const ech_deps *d;
    int *row, *succ; /* successors in compressed rows */
    int *left;       /* [n ranks * nodes] predecessors not done */
    int *ready;      /* [n ranks * nodes] */
    int *n_ready;    /* [n ranks] */
    int first, last; /* nodes of the segment */
    int n;
} fuzzer;

static ech_status successors(fuzzer *f)
{
    const ech_deps *d = f->d;
    ECH_TRY(ech_calloc((size_t)d->n + 2, sizeof *f->row, &f->row));
    ECH_TRY(ech_calloc(d->n_edges, sizeof *f->succ, &f->succ));
    for (size_t i = 0; i < d->n_edges; i++)
        f->row[d->pred[i] + 2]++;
    for (int i = 0; i < d->n; i++)
        f->row[i + 2] += f->row[i + 1];
    for (int node = 0; node < d->n; node++)
        for (int i = d->row[node]; i < d->row[node + 1]; i++)
            f->succ[f->row[d->pred[i] + 1]++] = node;
    return ECH_OK;
}

static ech_status fuzzer_init(fuzzer *f, ech_segment segment)
{
    const ech_deps *d = f->d;
    const size_t cells = (size_t)f->n * (size_t)d->n;
    f->first = 0;
    while (f->first < d->n && f->p->item[d->item[f->first]].segment < segment)
        f->first++;
    f->last = f->first;
    while (f->last < d->n && f->p->item[d->item[f->last]].segment == segment)
        f->last++;
    ECH_TRY(successors(f));
    ECH_TRY(ech_calloc(cells, sizeof *f->left, &f->left));
    ECH_TRY(ech_calloc(cells, sizeof *f->ready, &f->ready));
    ECH_TRY(ech_calloc((size_t)f->n, sizeof *f->n_ready, &f->n_ready));
    for (int r = 0; r < f->n; r++)
        for (int node = f->first; node < f->last; node++) {
            int *left = &f->left[(size_t)r * (size_t)d->n + (size_t)node];
            for (int i = d->row[node]; i < d->row[node + 1]; i++)
                *left += d->pred[i] >= f->first; /* earlier segments are done */
            if (!*left)
                f->ready[(size_t)r * (size_t)d->n + (size_t)f->n_ready[r]++] = node;
        }
    return ECH_OK;
}

static void node_done(fuzzer *f, int r, int node)
{
    int *ready = &f->ready[(size_t)r * (size_t)f->d->n];
    int *left = &f->left[(size_t)r * (size_t)f->d->n];
    for (int i = f->row[node]; i < f->row[node + 1]; i++) {
        const int next = f->succ[i];
        if (next < f->last && --left[next] == 0)
            ready[f->n_ready[r]++] = next;
    }
}

static ech_status turn(fuzzer *f, ech_engine *const *engine, int r, uint32_t word, bool *moved)
{
    int *ready = &f->ready[(size_t)r * (size_t)f->d->n];
    const int k = (int)(word % (uint32_t)f->n_ready[r]);
    const int node = ready[k];
    const ech_status st =
        ech_engine_run_op(engine[r], f->d->item[node], f->d->op[node], f->d->slot[node]);
    if (st < 0 || st == ECH_BLOCKED)
        return st;
    ready[k] = ready[--f->n_ready[r]];
    node_done(f, r, node);
    *moved = true;
    return ECH_OK;
}

/* Draws in a row without any activity after which the ranks count as stuck: with this many, the
 * chance that some op that could move was never drawn is nil for any program that fits memory. */
static int64_t patience(const fuzzer *f)
{
    int64_t ready = 1;
    for (int r = 0; r < f->n; r++)
        ready += f->n_ready[r];
    return 100 * ready * f->n;
}

static ech_status fuzz(fuzzer *f, ech_engine *const *engine, uint64_t seed)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, 0);
    uint64_t drawn = 0;
    int64_t todo = (int64_t)f->n * (f->last - f->first);
    int64_t idle = 0;
    int64_t last_activity = -1;
    while (todo > 0) {
        bool moved = false;
        const int r = (int)(ech_rng_u32(&key, drawn++) % (uint32_t)f->n);
        if (f->n_ready[r])
            ECH_TRY(turn(f, engine, r, ech_rng_u32(&key, drawn++), &moved));
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
                            const ech_program *p, const ech_deps *deps, uint64_t seed)
{
    fuzzer f = {.p = p, .d = deps, .n = n};
    ech_status st = fuzzer_init(&f, segment);
    for (int r = 0; r < n; r++)
        ech_engine_begin(engine[r], program, segment);
    if (st >= 0)
        st = fuzz(&f, engine, seed);
    free(f.row);
    free(f.succ);
    free(f.left);
    free(f.ready);
    free(f.n_ready);
    return st;
}
