/* ZB-V: the cells of all ranks in one order in which whatever a cell needs was done before it; ends that
 * others wait for lie in rings by micro-batch.
 *
 * The order does not depend on times, so it is kept in the room from one call to the next: with more than
 * p micro-batches a head, six units that every further micro-batch repeats, and a tail; with fewer the
 * whole of it. */
#include "price/compose_private.h"
#include "program/schedule_v.h"

#include <string.h>

enum {
    SENT = 4,  /* slots whose ends others wait for: F and I */
    UNITS = 6, /* of a period: a rank's cells of a micro-batch */
    ORDER_OF_RANKS =
        16, /* cells of an order over ranks^2: head 5, tail 10, a period; few at most 6 */
};

/* A cell's code is slot * ranks + rank; its micro-batch is how often the code came before. */
typedef struct v_run {
    const ech_compose_spec *spec;
    int depth;           /* of a ring, a power of two */
    double *free_at;     /* [ranks] */
    double *end;         /* [SENT * ranks + 2, depth]; the last two: never there, and nobody's */
    const double *cost;  /* [codes] */
    const int *rank;     /* [codes] */
    const int *in, *out; /* [codes] where in `end` the rings of its input and its end begin */
    int *done;           /* [codes] */
    int limit;           /* micro-batches from here on are left out */
} v_run;

/* In flight between two neighbours are at most as many as there are ranks. */
static int depth_of(int ranks)
{
    int depth = 8;
    while (depth < ranks)
        depth *= 2;
    return depth;
}

static size_t state_room(int ranks)
{
    return (size_t)ranks + (SENT * (size_t)ranks + 2) * (size_t)depth_of(ranks);
}

size_t ech_compose_v_room(int ranks)
{
    return 2 * state_room(ranks) + (size_t)ranks * ECH_N_V_SLOTS;
}

/* in, out, rank and done; while an order is made, cursors or cells. */
size_t ech_compose_v_counts(int ranks)
{
    const size_t cursor = sizeof(ech_v_cursor) / sizeof(int);
    return (size_t)ranks * (4 * ECH_N_V_SLOTS + cursor);
}

size_t ech_compose_v_order(int ranks)
{
    return ORDER_OF_RANKS * (size_t)ranks * (size_t)ranks;
}

/* --- the order --- */

/* One unit of the table's own time: each rank its next cell.  @return cells */
static size_t list_unit(ech_v_cursor *cursor, int ranks, int all, uint16_t *out)
{
    size_t n = 0;
    for (int r = 0; r < ranks; r++) {
        ech_v_cell cell;
        if (ech_v_next(&cursor[r], &cell))
            out[n++] = (uint16_t)((int)cell.slot * all + r);
    }
    return n;
}

/* For 2p micro-batches: one more than the fewest that the lists are written for. */
static void order_many(ech_compose_room *room, int p, ech_v_cursor *cursor)
{
    uint16_t *at = room->order;
    for (int r = 0; r < p; r++)
        cursor[r] = ech_v_begin(p, r, 2 * p);
    for (int u = 0; u < 5 * p - 1;
         u++) /* rank r begins in unit r; rank 0 is last in its steady part */
        at += list_unit(cursor, u + 1 < p ? u + 1 : p, p, at);
    room->n_head = (size_t)(at - room->order);
    for (int u = 0; u < UNITS; u++)
        at += list_unit(cursor, p, p, at);
    for (size_t n = 1; n > 0; at += n)
        n = list_unit(cursor, p, p, at);
    room->n_order = (size_t)(at - room->order);
}

static void order_few(ech_compose_room *room, int p, int micros, int *count)
{
    ech_v_cell *cell = (ech_v_cell *)(void *)count;
    ech_v_few few = {
        .ranks = p, .micros = micros, .done = count + (size_t)p * (sizeof *cell / sizeof *count)};
    memset(few.done, 0, (size_t)p * ECH_N_V_SLOTS * sizeof *few.done);
    room->n_order = 0;
    while (ech_v_few_step(&few, cell) > 0)
        for (int r = 0; r < p; r++)
            if (cell[r].slot != ECH_N_V_SLOTS)
                room->order[room->n_order++] = (uint16_t)((int)cell[r].slot * p + r);
    room->n_head = room->n_order;
}

static void list_rings(int p, int *in)
{
    const int depth = depth_of(p);
    const int codes = ECH_N_V_SLOTS * p;
    const int never = SENT * p * depth;
    int *out = in + codes;
    int *rank = out + codes;
    for (int k = 0; k < codes; k++) {
        const int from = k % p + ech_v_from((ech_v_slot)(k / p));
        const bool waits = k < SENT * p && from != k % p && from >= 0 && from < p;
        in[k] = waits ? (k / p * p + from) * depth : never;
        out[k] = k < SENT * p ? k * depth : never + depth;
        rank[k] = k % p;
    }
}

/* Micro-batches that an order is told by: many are alike. */
static void make_order(ech_compose_room *room, int p, int micros)
{
    int *scratch = room->count + (size_t)4 * ECH_N_V_SLOTS * (size_t)p;
    const int key = micros > p ? 0 : micros;
    if (room->order_ranks == p && room->order_micros == key)
        return;
    list_rings(p, room->count);
    if (key)
        order_few(room, p, micros, scratch);
    else
        order_many(room, p, (ech_v_cursor *)(void *)scratch);
    room->order_ranks = p;
    room->order_micros = key;
}

/* --- in time --- */

static inline void run_cell(v_run *v, int code, int micro)
{
    const int at = micro & (v->depth - 1);
    double *free_at = &v->free_at[v->rank[code]];
    const double begin = ech_later(*free_at, v->end[v->in[code] + at] + v->spec->hop_s);
    v->end[v->out[code] + at] = *free_at = begin + v->cost[code];
}

static void run_cells(v_run *v, const uint16_t *code, size_t n)
{
    for (size_t i = 0; i < n; i++)
        run_cell(v, code[i], v->done[code[i]]++);
}

/* Of lists that are written for more micro-batches than there are. */
static void run_some(v_run *v, const uint16_t *code, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int micro = v->done[code[i]]++;
        if (micro < v->limit)
            run_cell(v, code[i], micro);
    }
}

static double latest(const v_run *v)
{
    double last = 0;
    for (int r = 0; r < v->spec->ranks; r++)
        last = ech_later(v->free_at[r], last);
    return last;
}

/* Has every rank, and all that is waited for, moved by the same since the state `before`, `micros`
 * micro-batches earlier? */
static bool has_moved(const v_run *v, const double *before, int micros, double *shift)
{
    const int p = v->spec->ranks;
    const double *old = before + p;
    *shift = v->free_at[0] - before[0];
    for (int r = 0; r < p; r++)
        if (!ech_has_moved(v->free_at[r], before[r], *shift))
            return false;
    for (int k = 0; k < SENT * p; k++) {
        const int from = v->in[k] / v->depth; /* the code whose ends k waits for, or none */
        if (from >= SENT * p)
            continue;
        for (int j = v->done[k]; j < v->done[from]; j++)
            if (!ech_has_moved(v->end[v->in[k] + (j & (v->depth - 1))],
                               old[v->in[k] + ((j - micros) & (v->depth - 1))], *shift))
                return false;
    }
    return true;
}

/* `periods` times the six units that repeat. */
static void run_steady(v_run *v, const uint16_t *code, int64_t periods, double *before,
                       ech_composed *out)
{
    const int p = v->spec->ranks;
    const size_t ends = SENT * (size_t)p * (size_t)v->depth;
    ech_watch w = {.since = -1};
    for (; periods > 0; periods--) {
        double shift;
        if (!ech_watch_compares(&w)) {
            memcpy(before, v->free_at, ((size_t)p + ends) * sizeof *before);
        } else if (has_moved(v, before, (int)w.since, &shift)) {
            const int64_t times = periods / w.since;
            out->lambda_s = shift / (double)w.since;
            out->skipped = times * w.since;
            periods -= out->skipped;
            for (size_t k = 0; k < (size_t)p + ends; k++)
                v->free_at[k] += (double)times * shift;
            break;
        }
        run_cells(v, code, (size_t)UNITS * (size_t)p);
    }
    for (; periods > 0; periods--)
        run_cells(v, code, (size_t)UNITS * (size_t)p);
}

static void run_many(v_run *v, const ech_compose_room *room, double *before, ech_composed *out)
{
    const int64_t least = 2 * v->spec->ranks - 1;
    const uint16_t *steady = room->order + room->n_head;
    const uint16_t *tail = steady + (size_t)UNITS * (size_t)v->spec->ranks;
    const size_t n_tail = room->n_order - (size_t)(tail - room->order);
    if (v->limit < least) {
        run_some(v, room->order, room->n_head);
        run_some(v, tail, n_tail);
        return;
    }
    run_cells(v, room->order, room->n_head);
    run_steady(v, steady, v->limit - least, before, out);
    run_cells(v, tail, n_tail);
}

void ech_compose_v(const ech_compose_spec *spec, ech_compose_room *room, ech_composed *out)
{
    const int p = spec->ranks;
    const size_t codes = (size_t)ECH_N_V_SLOTS * (size_t)p;
    const double *const cost[] = {spec->forward,  spec->forward, spec->backward,
                                  spec->backward, spec->weight,  spec->weight};
    double *const costs = room->value + 2 * state_room(p);
    v_run v = {.spec = spec,
               .depth = depth_of(p),
               .free_at = room->value,
               .end = room->value + p,
               .cost = costs,
               .in = room->count,
               .out = room->count + codes,
               .rank = room->count + 2 * codes,
               .done = room->count + 3 * codes,
               .limit = (int)spec->micros};
    make_order(room, p, v.limit);
    memset(v.free_at, 0, (size_t)p * sizeof *v.free_at);
    memset(v.done, 0, codes * sizeof *v.done);
    for (int k = 0; k < v.depth; k++)
        v.end[SENT * p * v.depth + k] = -INFINITY;
    for (int k = 0; k < ECH_N_V_SLOTS; k++)
        for (int r = 0; r < p; r++)
            costs[k * p + r] = cost[k][ech_v_stage(p, r, (ech_v_slot)k)];
    if (v.limit <= p)
        run_cells(&v, room->order, room->n_order);
    else
        run_many(&v, room, room->value + state_room(p), out);
    out->makespan_s = latest(&v);
}
