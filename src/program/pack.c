#include "program/pack.h"
#include "base/checked.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A buffer in the order in which it is placed. */
typedef struct entry {
    size_t bytes;
    int first, last;
    int index;
    size_t offset;
} entry;

typedef int (*entry_order)(const void *, const void *);

static int cmp_size(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->index - y->index;
}

static int cmp_span(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    const int dx = x->last - x->first;
    const int dy = y->last - y->first;
    if (dx != dy)
        return dx < dy ? 1 : -1;
    return cmp_size(a, b);
}

static int cmp_area(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    const double ax = (double)x->bytes * (x->last - x->first + 1);
    const double ay = (double)y->bytes * (y->last - y->first + 1);
    if (ax < ay)
        return 1;
    if (ax > ay)
        return -1;
    return cmp_size(a, b);
}

static int cmp_first(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return cmp_size(a, b);
}

/* The smallest hole between the placed neighbours in time that holds e; else after all of them.
 * placed[] is sorted by offset. */
static size_t best_hole(const entry *placed, int n, const entry *e)
{
    size_t end = 0; /* of the neighbours seen so far */
    size_t best = SIZE_MAX;
    size_t best_bytes = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        if (placed[i].last < e->first || placed[i].first > e->last)
            continue;
        if (placed[i].offset > end) {
            const size_t hole = placed[i].offset - end;
            if (hole >= e->bytes && hole < best_bytes) {
                best = end;
                best_bytes = hole;
            }
        }
        if (placed[i].offset + placed[i].bytes > end)
            end = placed[i].offset + placed[i].bytes;
    }
    return best != SIZE_MAX ? best : end;
}

static void insert_sorted(entry *placed, int n, const entry *e)
{
    int i = n;
    for (; i > 0 && placed[i - 1].offset > e->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = *e;
}

/* Buffers that are to be placed, among those that are: `fixed` of them, first in `placed`. */
typedef struct packing {
    entry *e; /* [n] */
    int n;
    entry *placed; /* sorted by offset; room for fixed + n */
    entry *fixed;
    int n_fixed;
    struct hole *hole; /* room for fixed + n + 1 */
    double budget;     /* pairs of buffers that may still be looked at */
} packing;

static void begin(const packing *k)
{
    if (k->n_fixed)
        memcpy(k->placed, k->fixed, (size_t)k->n_fixed * sizeof *k->placed);
}

static size_t place_all(const packing *k)
{
    size_t arena = 0;
    entry *order = k->e;
    begin(k);
    for (int i = 0; i < k->n; i++) {
        order[i].offset = order[i].bytes ? best_hole(k->placed, k->n_fixed + i, &order[i]) : 0;
        insert_sorted(k->placed, k->n_fixed + i, &order[i]);
        if (order[i].offset + order[i].bytes > arena)
            arena = order[i].offset + order[i].bytes;
    }
    return arena;
}

/* Largest sum alive at once, by sweeping start and end events. */
typedef struct event {
    int64_t time; /* 2 * first, or 2 * last + 1 for the end */
    int64_t bytes;
} event;

static int cmp_event(const void *a, const void *b)
{
    const event *x = a;
    const event *y = b;
    return x->time < y->time ? -1 : x->time > y->time;
}

static ech_status live_peak(const entry *e, int n, size_t *peak)
{
    event *ev;
    int64_t live = 0;
    int64_t most = 0;
    ECH_TRY(ech_calloc((size_t)n * 2, sizeof *ev, &ev));
    for (int i = 0; i < n; i++) {
        ev[2 * i] = (event){2 * (int64_t)e[i].first, (int64_t)e[i].bytes};
        ev[2 * i + 1] = (event){2 * (int64_t)e[i].last + 1, -(int64_t)e[i].bytes};
    }
    qsort(ev, (size_t)n * 2, sizeof *ev, cmp_event);
    for (int i = 0; i < 2 * n; i++) {
        live += ev[i].bytes;
        if (live > most)
            most = live;
    }
    free(ev);
    *peak = (size_t)most;
    return ECH_OK;
}

/* Work of one call, and of its rounds, in pairs of buffers looked at. */
enum { MOST_ROUNDS = 128 };
static const double most_work = 3e8;
static const double most_pairs = 3e7;

/* Buffers that stick out above `limit` come earlier next time: halfway to the front each.  Returns
 * false where none does. */
static bool promote_high(entry *order, int n, size_t limit)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        const entry high = order[i];
        if (!high.bytes || high.offset + high.bytes <= limit)
            continue;
        memmove(&order[i / 2 + 1], &order[i / 2], (size_t)(i - i / 2) * sizeof *order);
        order[i / 2] = high;
        any = true;
    }
    return any;
}

static void keep_best(const entry *e, int n, size_t got, ech_pack_item *item, size_t *best)
{
    if (got >= *best)
        return;
    *best = got;
    for (int i = 0; i < n; i++)
        item[e[i].index].offset = e[i].offset;
}

/* What is free below the highest live byte, sorted by offset, and how high that is; and who dies
 * next.  In order of birth only the living are in the way, so this is all there is to know. */
typedef struct hole {
    size_t begin, end;
} hole;

typedef struct living {
    hole *hole;
    int n_holes;
    size_t top;
    entry *heap; /* least `last` first */
    int n_heap;
} living;

static void push_heap(living *v, const entry *e)
{
    int i = v->n_heap++;
    for (; i > 0 && v->heap[(i - 1) / 2].last > e->last; i = (i - 1) / 2)
        v->heap[i] = v->heap[(i - 1) / 2];
    v->heap[i] = *e;
}

static entry pop_heap(living *v)
{
    const entry first = v->heap[0];
    const entry e = v->heap[--v->n_heap];
    int i = 0;
    for (int k = 1; k < v->n_heap; i = k, k = 2 * i + 1) {
        if (k + 1 < v->n_heap && v->heap[k + 1].last < v->heap[k].last)
            k++;
        if (v->heap[k].last >= e.last)
            break;
        v->heap[i] = v->heap[k];
    }
    v->heap[i] = e;
    return first;
}

static void insert_hole(living *v, int at, hole h)
{
    memmove(&v->hole[at + 1], &v->hole[at], (size_t)(v->n_holes - at) * sizeof *v->hole);
    v->hole[at] = h;
    v->n_holes++;
}

static void remove_hole(living *v, int at)
{
    v->n_holes--;
    memmove(&v->hole[at], &v->hole[at + 1], (size_t)(v->n_holes - at) * sizeof *v->hole);
}

/* First hole that does not end before an offset. */
static int hole_at(const living *v, size_t offset)
{
    int lo = 0;
    int hi = v->n_holes;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (v->hole[mid].end < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Bytes become free: with the holes beside them one hole, and none at the top. */
static void free_bytes(living *v, size_t begin, size_t end)
{
    const int at = hole_at(v, begin);
    if (at < v->n_holes && v->hole[at].begin <= end) {
        v->hole[at].begin = v->hole[at].begin < begin ? v->hole[at].begin : begin;
        v->hole[at].end = v->hole[at].end > end ? v->hole[at].end : end;
        if (at + 1 < v->n_holes && v->hole[at + 1].begin == v->hole[at].end) {
            v->hole[at].end = v->hole[at + 1].end;
            remove_hole(v, at + 1);
        }
    } else {
        insert_hole(v, at, (hole){begin, end});
    }
    if (v->n_holes && v->hole[v->n_holes - 1].end == v->top)
        v->top = v->hole[--v->n_holes].begin;
}

/* The smallest hole that holds so many bytes, else the top. */
static size_t take_bytes(living *v, size_t bytes)
{
    int best = -1;
    for (int i = 0; i < v->n_holes; i++) {
        const size_t room = v->hole[i].end - v->hole[i].begin;
        if (room >= bytes && (best < 0 || room < v->hole[best].end - v->hole[best].begin))
            best = i;
    }
    if (best < 0) {
        v->top += bytes;
        return v->top - bytes;
    }
    const size_t at = v->hole[best].begin;
    v->hole[best].begin += bytes;
    if (v->hole[best].begin == v->hole[best].end)
        remove_hole(v, best);
    return at;
}

/* The fixed ones, sorted by offset, live to begin with. */
static void begin_living(living *v, const packing *k)
{
    v->n_holes = 0;
    v->n_heap = 0;
    v->top = 0;
    for (int i = 0; i < k->n_fixed; i++) {
        const entry *e = &k->fixed[i];
        if (!e->bytes)
            continue;
        if (e->offset > v->top)
            v->hole[v->n_holes++] = (hole){v->top, e->offset};
        v->top = e->offset + e->bytes;
        push_heap(v, e);
    }
}

/* n times the holes, where other orders look at n times n.  e is sorted by birth. */
static size_t place_by_birth(const packing *k)
{
    size_t arena = 0;
    living v = {.hole = k->hole, .heap = k->placed};
    begin_living(&v, k);
    for (int i = 0; i < k->n; i++) {
        entry *e = &k->e[i];
        while (v.n_heap && v.heap[0].last < e->first) {
            const entry gone = pop_heap(&v);
            free_bytes(&v, gone.offset, gone.offset + gone.bytes);
        }
        e->offset = 0;
        if (!e->bytes)
            continue;
        e->offset = take_bytes(&v, e->bytes);
        push_heap(&v, e);
        arena = e->offset + e->bytes > arena ? e->offset + e->bytes : arena;
    }
    return arena;
}

/* May another order be tried: there is work left for its pairs of buffers. */
static bool afford(packing *k)
{
    const double pairs = (double)k->n * (k->n + k->n_fixed);
    if (k->budget < pairs)
        return false;
    k->budget -= pairs;
    return true;
}

/* By birth, then four plain orders, then each of them followed by rounds that put first what did not
 * fit under `limit`; as far as that is needed. */
static size_t search(packing *k, int rounds, size_t limit, ech_pack_item *item)
{
    static const entry_order orders[] = {cmp_size, cmp_area, cmp_span, cmp_first};
    const size_t n_orders = sizeof orders / sizeof orders[0];
    size_t best = SIZE_MAX;
    keep_best(k->e, k->n, place_by_birth(k), item, &best);
    for (size_t o = 0; o < n_orders && best > limit && afford(k); o++) {
        qsort(k->e, (size_t)k->n, sizeof *k->e, orders[o]);
        keep_best(k->e, k->n, place_all(k), item, &best);
    }
    for (size_t o = 0; o < n_orders && best > limit && rounds && afford(k); o++) {
        qsort(k->e, (size_t)k->n, sizeof *k->e, orders[o]);
        (void)place_all(k);
        for (int i = 0; i < rounds && best > limit && promote_high(k->e, k->n, limit) && afford(k);
             i++)
            keep_best(k->e, k->n, place_all(k), item, &best);
    }
    return best;
}

/* Buffers of a run that are packed together, at least and at most, where it does not end by itself. */
enum { LEAST_RUN = 400, MOST_RUN = 2000 };

/* Where a run that begins with e[0] is to end, e sorted by birth: where no life goes on (micro-batches
 * in turn make one run each), else where the fewest do, which the next run then finds in place. */
static int run_length(const entry *e, int n)
{
    int last = e[0].last;
    int fewest = n;
    int cut = n < MOST_RUN ? n : MOST_RUN;
    for (int i = 1; i <= n && i <= MOST_RUN; i++) {
        if (i == n || e[i].first > last)
            return i;
        last = e[i].last > last ? e[i].last : last;
        if (n <= MOST_RUN || i < LEAST_RUN || e[i].first == e[i - 1].first)
            continue;
        int going_on = 0;
        for (int j = 0; j < i; j++)
            going_on += e[j].last >= e[i].first;
        if (going_on < fewest) {
            fewest = going_on;
            cut = i;
        }
    }
    return cut;
}

static int rounds_of(const entry *e, int n)
{
    double pairs = 0.0;
    for (int i = 0, run; i < n; i += run) {
        run = run_length(e + i, n - i);
        pairs += (double)run * run;
    }
    return most_pairs / pairs < MOST_ROUNDS ? (int)(most_pairs / pairs) : MOST_ROUNDS;
}

static int cmp_offset(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What of the run and of those before it lives on at `time`, at its final place. */
static int keep_living(const packing *k, int time, const ech_pack_item *item)
{
    int n = 0;
    for (int i = 0; i < k->n_fixed; i++)
        if (k->fixed[i].last >= time)
            k->fixed[n++] = k->fixed[i];
    for (int i = 0; i < k->n; i++)
        if (k->e[i].last >= time) {
            k->fixed[n] = k->e[i];
            k->fixed[n++].offset = item[k->e[i].index].offset;
        }
    qsort(k->fixed, (size_t)n, sizeof *k->fixed, cmp_offset);
    return n;
}

/* No run has to lie lower than the peak, nor than the highest before it. */
static size_t pack_runs(packing *k, entry *e, int n, size_t peak, ech_pack_item *item)
{
    size_t arena = 0;
    qsort(e, (size_t)n, sizeof *e, cmp_first);
    const int rounds = rounds_of(e, n);
    for (int i = 0; i < n; i += k->n) {
        k->e = e + i;
        k->n = run_length(k->e, n - i);
        const size_t limit = arena > peak ? arena : peak;
        const size_t got = search(k, rounds, limit, item);
        arena = got > arena ? got : arena;
        if (i + k->n < n)
            k->n_fixed = keep_living(k, e[i + k->n].first, item);
    }
    return arena;
}

ech_status ech_pack(ech_pack_item *item, int n, size_t align, size_t *arena, size_t *peak)
{
    entry *e = NULL;
    packing k = {.budget = most_work};
    ech_status st;
    *arena = 0;
    *peak = 0;
    if (n == 0)
        return ECH_OK;
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *e, &e), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *k.placed, &k.placed), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *k.fixed, &k.fixed), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n + 1, sizeof *k.hole, &k.hole), done);
    for (int i = 0; i < n; i++)
        e[i] = (entry){ech_align_up(item[i].bytes, align), item[i].first, item[i].last, i, 0};
    ECH_TRY_GOTO(st, live_peak(e, n, peak), done);
    *arena = pack_runs(&k, e, n, *peak, item);
    st = ECH_OK;
done:
    free(e);
    free(k.placed);
    free(k.fixed);
    free(k.hole);
    return st;
}
