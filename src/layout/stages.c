#include "layout/stages.h"

#include "base/checked.h"

#include <float.h>
#include <stdlib.h>

void ech_stages_fini(ech_stages *s)
{
    if (!s)
        return;
    free(s->first);
    free(s->rank_of);
    *s = (ech_stages){0};
}

int ech_stages_of_unit(const ech_stages *s, int unit)
{
    int low = 0; /* first[low] <= unit < first[high] */
    int high = s->n;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (s->first[middle] <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool ech_stages_tie_apart(const ech_stages *s, const ech_canon *canon)
{
    return !ech_canon_find(canon, ECH_PARAM_HEAD, -1) && s->rank_of[0] != s->rank_of[s->n - 1];
}

double ech_stages_unit_cost(const ech_model *m, int unit, int64_t seq)
{
    enum { BYTES = 4 }; /* of an element, whatever the precision: a matter of proportion */
    if (unit > 0)
        return ech_model_unit_flops(m, unit, seq, true);
    const double rows = (m->learned_positions ? 2 : 1) * 3 + 2;
    return rows * (double)m->hidden * BYTES * ECH_STAGES_FLOPS_PER_BYTE;
}

#define COST_MAX 1e300 /* sums of all stay finite */

/* The layers in between are cut, run k covers those from cut[k - 1] up to cut[k], counted without
 * the ends. */
typedef struct cut_problem {
    double *sum;       /* owned [layers + 1]: of the layers before */
    double head, tail; /* what the first and the last run have beside */
    int layers, parts;
} cut_problem;

/* Cost of run k (1 .. parts) over layers from .. to - 1. */
static double run_cost(const cut_problem *c, int k, int from, int to)
{
    return c->sum[to] - c->sum[from] + (k == 1 ? c->head : 0) + (k == c->parts ? c->tail : 0);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Least cost of the dearest run of the first k over `to` layers: before[from] is that of k - 1 runs
 * and rises with from, the cost of run k falls, so the best is where they cross. */
static double dearest(const cut_problem *c, const double *before, int k, int to)
{
    int low = k - 1; /* before[low] < cost of the run from there, where there is such a place */
    int high = to - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (before[middle] >= run_cost(c, k, middle, to))
            high = middle;
        else
            low = middle + 1;
    }
    const double here = larger(before[low], run_cost(c, k, low, to));
    if (low == k - 1)
        return here;
    const double left = larger(before[low - 1], run_cost(c, k, low - 1, to));
    return left < here ? left : here;
}

/* The cost that the dearest run cannot be below.  row: [2, layers + 1]. */
static double least_dearest(const cut_problem *c, double *row)
{
    double *before = row;
    double *now = row + c->layers + 1;
    for (int to = 1; to <= c->layers; to++)
        before[to] = run_cost(c, 1, 0, to);
    for (int k = 2; k <= c->parts; k++) {
        for (int to = k; to <= c->layers; to++)
            now[to] = dearest(c, before, k, to);
        double *const spare = before;
        before = now;
        now = spare;
    }
    return before[c->layers];
}

/* No run above `bound`, least sum of squares.  from: out [parts + 1, layers + 1], where run k that
 * ends there begins. */
static void least_squares(const cut_problem *c, double bound, double *row, int *from)
{
    const double scale = bound > 0 ? 1 / bound : 0; /* squares of any costs stay finite */
    double *before = row;
    double *now = row + c->layers + 1;
    for (int to = 0; to <= c->layers; to++)
        before[to] = to == 0 ? 0 : DBL_MAX;
    for (int k = 1; k <= c->parts; k++) {
        int *begin = &from[(ptrdiff_t)k * (c->layers + 1)];
        for (int to = 0; to <= c->layers; to++)
            now[to] = DBL_MAX;
        for (int to = k; to <= c->layers - (c->parts - k); to++)
            for (int at = to - 1; at >= k - 1; at--) {
                const double cost = run_cost(c, k, at, to);
                if (cost > bound)
                    break;
                const double squares = before[at] + cost * scale * (cost * scale);
                if (squares < now[to]) {
                    now[to] = squares;
                    begin[to] = at;
                }
            }
        double *const spare = before;
        before = now;
        now = spare;
    }
}

ech_status ech_stages_balance(const double *cost, int n, int parts, int *first)
{
    cut_problem c = {.layers = n - 2, .parts = parts, .head = cost[0], .tail = cost[n - 1]};
    double *row = NULL;
    int *from = NULL;
    ech_status st;
    ECH_CHECK(parts >= 1 && c.layers >= parts, ECH_E_ILLEGAL,
              "%d layers cannot be dealt out to %d stages, one at least to each", c.layers, parts);
    for (int k = 0; k < n; k++)
        ECH_CHECK(cost[k] >= 0 && cost[k] <= COST_MAX, ECH_E_ILLEGAL, "cost %g of unit %d", cost[k],
                  k);
    const size_t width = (size_t)c.layers + 1;
    ECH_TRY_GOTO(st, ech_calloc(width, sizeof *c.sum, &c.sum), done);
    ECH_TRY_GOTO(st, ech_calloc(2 * width, sizeof *row, &row), done);
    ECH_TRY_GOTO(st, ech_calloc(((size_t)parts + 1) * width, sizeof *from, &from), done);
    for (int k = 0; k < c.layers; k++)
        c.sum[k + 1] = c.sum[k] + cost[k + 1];
    least_squares(&c, least_dearest(&c, row), row, from);
    first[parts] = n;
    for (int k = parts, to = c.layers; k > 0; k--) {
        to = from[(size_t)k * width + (size_t)to];
        first[k - 1] = k == 1 ? 0 : to + 1;
    }
done:
    free(c.sum);
    free(row);
    free(from);
    return st;
}

/* Are the stages where they may be? */
static ech_status check_ranks(const ech_stages_spec *spec)
{
    int *stages = NULL; /* [ranks]: of each */
    ech_status st;
    ECH_CHECK(spec->ranks >= 1 && spec->n >= spec->ranks, ECH_E_ILLEGAL,
              "stages: %d virtual stages on %d pipeline ranks; each has at least one", spec->n,
              spec->ranks);
    ECH_TRY(ech_calloc((size_t)spec->ranks, sizeof *stages, &stages));
    st = ECH_OK;
    for (int k = 0; k < spec->n && st == ECH_OK; k++) {
        const int rank = spec->rank_of[k];
        if (rank < 0 || rank >= spec->ranks)
            st = ECH_RAISE(ECH_E_ILLEGAL, "stages: virtual stage %d on pipeline rank %d of %d", k,
                           rank, spec->ranks);
        else if (++stages[rank] > ECH_MAX_CHUNKS)
            st = ECH_RAISE(ECH_E_ILLEGAL,
                           "stages: pipeline rank %d has more than %d virtual stages; nearest "
                           "legal number: %d",
                           rank, ECH_MAX_CHUNKS, ECH_MAX_CHUNKS);
    }
    for (int r = 0; r < spec->ranks && st == ECH_OK; r++)
        if (stages[r] == 0)
            st = ECH_RAISE(ECH_E_ILLEGAL, "stages: pipeline rank %d has no virtual stage", r);
    free(stages);
    return st;
}

static ech_status cut_as_listed(const ech_stages_spec *spec, int *first)
{
    const int layers = spec->canon->n_units - 2;
    int64_t all = 0;
    for (int k = 0; k < spec->n; k++) {
        ECH_CHECK(spec->layers[k] >= 0, ECH_E_ILLEGAL,
                  "stages: %d layers for virtual stage %d; wanted 0 or more", spec->layers[k], k);
        all += spec->layers[k];
    }
    ECH_CHECK(all == layers, ECH_E_ILLEGAL,
              "stages: the %d virtual stages have %lld layers together, the model has %d", spec->n,
              (long long)all, layers);
    first[0] = 0;
    for (int k = 1; k < spec->n; k++)
        first[k] = (k == 1 ? 1 : first[k - 1]) + spec->layers[k - 1];
    first[spec->n] = spec->canon->n_units;
    return ECH_OK;
}

static ech_status cut_balanced(const ech_stages_spec *spec, int *first)
{
    const int units = spec->canon->n_units;
    double *cost;
    ECH_CHECK(
        units - 2 >= spec->n, ECH_E_ILLEGAL,
        "stages: %d layers for %d virtual stages, one at least for each; nearest legal number "
        "of stages: %d (or list the layers of each stage, where 0 is allowed)",
        units - 2, spec->n, units - 2);
    ECH_TRY(ech_calloc((size_t)units, sizeof *cost, &cost));
    for (int k = 0; k < units; k++)
        cost[k] = ech_stages_unit_cost(spec->model, k, spec->seq);
    const ech_status st = ech_stages_balance(cost, units, spec->n, first);
    free(cost);
    return st;
}

ech_status ech_stages_make(const ech_stages_spec *spec, ech_stages *out)
{
    ech_stages s = {.ranks = spec->ranks, .n = spec->n};
    ech_status st;
    ECH_TRY(check_ranks(spec));
    ECH_TRY_GOTO(st, ech_calloc((size_t)s.n + 1, sizeof *s.first, &s.first), fail);
    ECH_TRY_GOTO(st, ech_calloc((size_t)s.n, sizeof *s.rank_of, &s.rank_of), fail);
    for (int k = 0; k < s.n; k++)
        s.rank_of[k] = spec->rank_of[k];
    ECH_TRY_GOTO(st, spec->layers ? cut_as_listed(spec, s.first) : cut_balanced(spec, s.first),
                 fail);
    *out = s;
    return ECH_OK;
fail:
    ech_stages_fini(&s);
    return st;
}
