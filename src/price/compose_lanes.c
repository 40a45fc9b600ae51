/* 1F1B, ZB-H1 and interleaved 1F1B: all ranks advance together, one lane each.
 *
 * Cells are dealt out to steps so that whatever a cell needs of another rank was done one step
 * before, and ranks begin, change chunk and end one after the other, at most one in a step:
 *
 *     interleaved  forward k of rank r in step k + r;  backward q in step q + D - r,
 *                  D = 2 (p - 1) + (v - 1) group
 *     1f1b         forward k of rank r in step 2 k + r; backward q in step 2 q + 2 (p - 1) - r,
 *                  so that even ranks work in even steps, odd ranks in odd ones
 *
 * A lane that has nothing to do costs nothing and waits for nothing (-infinity). */
#include "price/compose_private.h"

#include <string.h>

enum {
    BLOCK = 8, /* lanes that are done at once */
    PAD = 8    /* before the first lane and behind the last: what does not come from a neighbour */
};

/* Some lanes; every array [-PAD .. lanes + PAD). */
typedef struct lanes {
    double *free_at;        /* a rank may go on */
    double *f, *b;          /* ends of its last forward and backward */
    double *f_hop, *f_cost; /* of the one that it does in this step */
    double *b_hop, *b_cost;
    double *after; /* further work behind the backward, which nobody waits for */
} lanes;

enum { LANE_ARRAYS = 8 };

static size_t width_of(int n)
{
    return (size_t)(n + BLOCK - 1) / BLOCK * BLOCK + 2 * PAD;
}

size_t ech_compose_lanes_room(int ranks, int group)
{
    const size_t w = width_of(ranks);
    return 2 * LANE_ARRAYS * w + 3 * w + 4 * (size_t)(group + 2);
}

static void fill(double *at, size_t n, double value)
{
    for (size_t k = 0; k < n; k++)
        at[k] = value;
}

/* Lanes with nothing to do out of the room at *at. */
static lanes take_lanes(double **at, int n)
{
    const size_t w = width_of(n);
    double *v = *at;
    lanes l;
    double **const array[LANE_ARRAYS] = {&l.free_at, &l.f,     &l.b,     &l.f_cost,
                                         &l.b_cost,  &l.after, &l.f_hop, &l.b_hop};
    for (size_t k = 0; k < LANE_ARRAYS; k++) {
        *array[k] = v + k * w + PAD;
        fill(v + k * w, w, k < 6 ? 0 : -INFINITY);
    }
    *at = v + LANE_ARRAYS * w;
    return l;
}

/* One step of the lanes: f_in and b_in are where each lane's input ended. */
static void advance(const lanes *l, int n, const double *f_in, const double *b_in, const lanes *out)
{
    for (int begin = 0; begin < n; begin += BLOCK) {
        double *restrict free_at = l->free_at + begin;
        double *restrict f = out->f + begin;
        double *restrict b = out->b + begin;
        const double *restrict fi = f_in + begin;
        const double *restrict bi = b_in + begin;
        const double *restrict fh = l->f_hop + begin;
        const double *restrict fc = l->f_cost + begin;
        const double *restrict bh = l->b_hop + begin;
        const double *restrict bc = l->b_cost + begin;
        const double *restrict after = l->after + begin;
        for (int k = 0; k < BLOCK; k++) {
            const double forward = ech_later(free_at[k], fi[k] + fh[k]) + fc[k];
            const double backward = ech_later(forward, bi[k] + bh[k]) + bc[k];
            f[k] = forward;
            b[k] = backward;
            free_at[k] = backward + after[k];
        }
    }
}

static bool all_moved(const double *now, const double *before, int n, double shift)
{
    for (int k = 0; k < n; k++)
        if (!ech_has_moved(now[k], before[k], shift))
            return false;
    return true;
}

static void move_all(double *at, int n, double by)
{
    for (int k = 0; k < n; k++)
        at[k] += by;
}

/* --- 1F1B and ZB-H1 --- */

typedef struct one_run {
    const ech_compose_spec *spec;
    int n[2];       /* lanes of even and odd ranks */
    lanes set[2];   /* rank r is lane r / 2 of set[r % 2] */
    double *before; /* the remembered state: ends of set 0 and 1 and f of set 1 */
    int64_t step;
} one_run;

static void set_forward(one_run *o, int64_t rank, bool works)
{
    const lanes *l = &o->set[rank & 1];
    if (rank < 0 || rank >= o->spec->ranks)
        return;
    l->f_cost[rank / 2] = works ? o->spec->forward[rank] : 0;
    l->f_hop[rank / 2] = works && rank > 0 ? o->spec->hop_s : -INFINITY;
}

static void set_backward(one_run *o, int64_t rank, bool works)
{
    const lanes *l = &o->set[rank & 1];
    if (rank < 0 || rank >= o->spec->ranks)
        return;
    l->b_cost[rank / 2] = works ? o->spec->backward[rank] : 0;
    l->b_hop[rank / 2] = works && rank + 1 < o->spec->ranks ? o->spec->hop_s : -INFINITY;
}

/* ZB-H1: W behind I from micro-batch `rank` on, up to the last but one. */
static void set_weight(one_run *o, int64_t rank, bool works)
{
    if (rank < 0 || rank >= o->spec->ranks)
        return;
    o->set[rank & 1].after[rank / 2] =
        works && rank + 1 < o->spec->micros ? o->spec->weight[rank] : 0;
}

/* Who begins and ends what in this step. */
static void set_step(one_run *o)
{
    const int64_t p = o->spec->ranks;
    const int64_t m = o->spec->micros;
    const int64_t back = 2 * (p - 1) - o->step; /* the rank whose first backward is in this step */
    set_forward(o, o->step, true);
    set_forward(o, o->step - 2 * m, false);
    set_backward(o, back, true);
    set_backward(o, back + 2 * m, false);
    if (o->spec->kind != ECH_SCHEDULE_ZB_H1)
        return;
    set_weight(o, -back, true); /* micro-batch r of rank r: step 2 r + 2 (p - 1) - r */
    set_weight(o, back + 2 * (m - 1), false);
}

/* Has the state moved everywhere by the same since it was remembered; *shift: by how much. */
static bool one_has_moved(const one_run *o, double *shift)
{
    const double *b0 = o->before;
    const double *b1 = b0 + o->n[0];
    const double *f1 = b1 + o->n[1];
    *shift = o->set[0].b[0] - b0[0];
    return all_moved(o->set[1].f, f1, o->n[1], *shift) &&
           all_moved(o->set[0].b, b0, o->n[0], *shift) &&
           all_moved(o->set[1].b, b1, o->n[1], *shift);
}

static void one_remember(one_run *o)
{
    double *at = o->before;
    memcpy(at, o->set[0].b, (size_t)o->n[0] * sizeof *at);
    memcpy(at + o->n[0], o->set[1].b, (size_t)o->n[1] * sizeof *at);
    memcpy(at + o->n[0] + o->n[1], o->set[1].f, (size_t)o->n[1] * sizeof *at);
}

/* Leave out `times` repetitions of `micros` micro-batches that take `shift` each. */
static void one_skip(one_run *o, int64_t times, int64_t micros, double shift)
{
    for (int k = 0; k < 2; k++) {
        move_all(o->set[k].b, o->n[k], (double)times * shift);
        move_all(o->set[k].f, o->n[k], (double)times * shift);
        move_all(o->set[k].free_at, o->n[k], (double)times * shift);
    }
    o->step += 2 * times * micros;
}

static void advance_one(one_run *o)
{
    const lanes *even = &o->set[0];
    const lanes *odd = &o->set[1];
    if (o->step % 2 == 0)
        advance(even, o->n[0], odd->f - 1, odd->b, even);
    else
        advance(odd, o->n[1], even->f, even->b + 1, odd);
}

/* From the step in which all ranks do everything to the first in which one does not. */
static void run_steady(one_run *o, ech_composed *out)
{
    const int64_t p = o->spec->ranks;
    const int64_t m = o->spec->micros;
    const bool is_split = o->spec->kind == ECH_SCHEDULE_ZB_H1;
    const int64_t end = is_split && 2 * (m - 1) + p - 1 < 2 * m ? 2 * (m - 1) + p - 1 : 2 * m;
    ech_watch w = {.since = -1};
    bool found = false;
    while (o->step + 1 < end) {
        double shift;
        for (int k = 0; k < 2; k++, o->step++) /* an even step and an odd one: a micro-batch */
            advance_one(o);
        if (found)
            continue;
        if (!ech_watch_compares(&w)) {
            one_remember(o);
            continue;
        }
        if (!one_has_moved(o, &shift))
            continue;
        const int64_t times = (end - o->step) / (2 * w.since);
        found = true;
        out->lambda_s = shift / (double)w.since;
        out->skipped = times * w.since;
        one_skip(o, times, w.since, shift);
    }
}

/* W that are left behind the last I. */
static double last_end(const one_run *o)
{
    double last = o->set[0].b[0];
    if (o->spec->kind != ECH_SCHEDULE_ZB_H1)
        return last;
    for (int r = 0; r < o->spec->ranks; r++) {
        const int64_t left = o->spec->micros < r + 1 ? o->spec->micros : r + 1;
        last = ech_later(o->set[r & 1].b[r / 2] + (double)left * o->spec->weight[r], last);
    }
    return last;
}

void ech_compose_1f1b(const ech_compose_spec *spec, ech_compose_room *room, ech_composed *out)
{
    const int64_t p = spec->ranks;
    const int64_t steps = 2 * (spec->micros - 1) + 2 * (p - 1) + 1;
    /* Behind it every backward has begun, and with ZB-H1 every W; an even number, to end a micro-batch
     * with an odd step. */
    const int64_t steady = spec->kind == ECH_SCHEDULE_ZB_H1 ? 3 * (p - 1) + 1 : 2 * (p - 1) + 1;
    double *at = room->value;
    one_run o = {.spec = spec, .n = {(spec->ranks + 1) / 2, spec->ranks / 2}};
    for (int k = 0; k < 2; k++)
        o.set[k] = take_lanes(&at, o.n[k]);
    o.before = at;
    for (; o.step < steps; o.step++) {
        if (o.step == steady + steady % 2)
            run_steady(&o, out);
        set_step(&o);
        advance_one(&o);
    }
    out->makespan_s = last_end(&o);
}

/* --- interleaved --- */

/* Where forwards (or backwards) of a rank change chunk. */
typedef struct chunk_walk {
    int64_t begin; /* number of the first cell of the present one */
    int64_t size;  /* cells of it: micro-batches of its group; 0: all is done */
    int turn;      /* 0 .. chunks - 1; backwards begin with the last chunk */
    int64_t group_begin;
} chunk_walk;

typedef struct many_run {
    const ech_compose_spec *spec;
    int64_t group, total, lag; /* lag: D of above */
    lanes set[2];              /* costs in the first; ends in either, in turn */
    double *f_old, *b_old;     /* [depth] ends on the last rank and on the first, by step */
    int64_t depth;
    double *before;
    chunk_walk f, b;
    int64_t step;
} many_run;

static int64_t size_at(const many_run *o, int64_t group_begin)
{
    const int64_t left = o->total / o->spec->chunks - group_begin;
    return left < o->group ? left : o->group;
}

/* To the cell with this number: does a chunk begin there? */
static bool walk_to(const many_run *o, chunk_walk *w, int64_t cell)
{
    if (cell != (w->size ? w->begin + w->size : 0) || cell > o->total || cell < 0)
        return false;
    w->begin = cell;
    if (cell == o->total)
        w->size = 0;
    else if (cell > 0 && ++w->turn == o->spec->chunks) {
        w->turn = 0;
        w->group_begin += w->size;
    }
    if (cell < o->total)
        w->size = size_at(o, w->group_begin);
    return true;
}

static void set_many(many_run *o)
{
    const ech_compose_spec *s = o->spec;
    const int p = s->ranks;
    const lanes *l = &o->set[0];
    const int64_t back = o->step - (o->lag - (p - 1)); /* the cell of the last rank */
    (void)walk_to(o, &o->f, o->step);
    (void)walk_to(o, &o->b, back);
    const int64_t fr = o->step - o->f.begin;
    if (fr < p) {
        const bool works = o->f.size > 0;
        l->f_cost[fr] = works ? s->forward[o->f.turn * p + fr] : 0;
        l->f_hop[fr] = works && (fr > 0 || o->f.turn > 0) ? s->hop_s : -INFINITY;
    }
    const int64_t br = p - 1 - (back - o->b.begin);
    if (back >= 0 && br >= 0) {
        const bool works = o->b.size > 0;
        const int chunk = s->chunks - 1 - o->b.turn;
        l->b_cost[br] = works ? s->backward[chunk * p + br] : 0;
        l->b_hop[br] = works && (br < p - 1 || o->b.turn > 0) ? s->hop_s : -INFINITY;
    }
}

static void advance_many(many_run *o)
{
    const int p = o->spec->ranks;
    const lanes *was = &o->set[o->step & 1];
    const lanes *is = &o->set[~o->step & 1];
    /* The first rank's forward follows one of the last rank, of the chunk before; the other way
     * round backwards. */
    was->f[-1] = o->f.size ? o->f_old[(o->step + p - 1 + o->depth - o->f.size) % o->depth] : 0;
    was->b[p] = o->b.size ? o->b_old[(o->step + p - 1 + o->depth - o->b.size) % o->depth] : 0;
    advance(&o->set[0], p, was->f - 1, was->b + 1, is);
    o->f_old[o->step % o->depth] = is->f[p - 1];
    o->b_old[o->step % o->depth] = is->b[0];
}

/* [2 p + 2 depth] the state, what is old in order of age. */
static bool many_has_moved(const many_run *o, double *shift)
{
    const int p = o->spec->ranks;
    const lanes *l = &o->set[o->step & 1];
    const double *old = o->before + (ptrdiff_t)2 * p;
    *shift = l->b[0] - o->before[p];
    if (!all_moved(l->f, o->before, p, *shift) || !all_moved(l->b, o->before + p, p, *shift))
        return false;
    for (int64_t k = 0; k < o->depth; k++) {
        const int64_t at = (o->step + k) % o->depth;
        if (!ech_has_moved(o->f_old[at], old[k], *shift) ||
            !ech_has_moved(o->b_old[at], old[k + o->depth], *shift))
            return false;
    }
    return true;
}

static void many_remember(many_run *o)
{
    const int p = o->spec->ranks;
    const lanes *l = &o->set[o->step & 1];
    double *old = o->before + (ptrdiff_t)2 * p;
    memcpy(o->before, l->f, (size_t)p * sizeof *l->f);
    memcpy(o->before + p, l->b, (size_t)p * sizeof *l->b);
    for (int64_t k = 0; k < o->depth; k++) {
        old[k] = o->f_old[(o->step + k) % o->depth];
        old[k + o->depth] = o->b_old[(o->step + k) % o->depth];
    }
}

/* Leave out `times` repetitions of `groups` groups that take `shift` each.  Steps go on counting
 * where they are; what lies ahead comes nearer. */
static void many_skip(many_run *o, int64_t times, int64_t groups, double shift)
{
    const int p = o->spec->ranks;
    const lanes *l = &o->set[o->step & 1];
    const double by = (double)times * shift;
    move_all(l->f, p, by);
    move_all(l->b, p, by);
    move_all(o->set[0].free_at, p, by);
    move_all(o->f_old, (int)o->depth, by);
    move_all(o->b_old, (int)o->depth, by);
    o->total -= times * groups * o->group * o->spec->chunks;
}

/* Whole groups after which no rank changes to a smaller group or ends. */
static int64_t many_left(const many_run *o)
{
    const int64_t whole = o->total / o->spec->chunks / o->group * o->group * o->spec->chunks;
    return (whole - o->step) / (o->group * o->spec->chunks);
}

void ech_compose_interleaved(const ech_compose_spec *spec, ech_compose_room *room,
                             ech_composed *out)
{
    const int p = spec->ranks;
    const int64_t group = spec->group ? spec->group : p;
    const int64_t period = group * spec->chunks;
    double *at = room->value;
    many_run o = {.spec = spec,
                  .group = group,
                  .total = spec->micros * spec->chunks,
                  .lag = 2 * (p - 1) + (spec->chunks - 1) * group,
                  .depth = group - p + 1};
    ech_watch w = {.since = -1};
    bool found = false;
    for (int k = 0; k < 2; k++)
        o.set[k] = take_lanes(&at, p);
    o.f_old = at;
    o.b_old = at + o.depth;
    o.before = at + 2 * o.depth;
    fill(at, (size_t)(2 * o.depth), 0);
    for (; o.step < o.total + o.lag; o.step++) {
        double shift;
        if (!found && o.step % period == 0 && o.step >= o.lag && many_left(&o) > 0) {
            if (!ech_watch_compares(&w))
                many_remember(&o);
            else if (many_has_moved(&o, &shift)) {
                const int64_t times = many_left(&o) / w.since;
                found = true;
                out->lambda_s = shift / (double)(w.since * group);
                out->skipped = times * w.since * group;
                many_skip(&o, times, w.since, shift);
            }
        }
        set_many(&o);
        advance_many(&o);
    }
    out->makespan_s = o.set[o.step & 1].b[0];
}
