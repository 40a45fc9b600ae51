#include "program/pack.h"
#include "base/checked.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A buffer in the order in which it is placed. */
typedef struct entry {
    size_t bytes;
    int first, last;
    int index;
    int place; /* of a long life: those at one offset have the same */
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
    size_t *kept;      /* room for n offsets */
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

/* Work of one call, in pairs of buffers looked at: so many for each buffer, some tens of times what it
 * takes to sort them, and never so few that few buffers are not packed well. */
enum { MOST_ROUNDS = 128 };
static const double work_each = 4000.0;
static const double least_work = 4e6;

static double work_for(int n)
{
    return n * work_each > least_work ? n * work_each : least_work;
}

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

/* --- long lives by size --- */

/* In order of size, then birth: lives of one size take over each other's places, so that no size has
 * more of them than live at once.  Returns where they end. */
static size_t place_long(const packing *k, int n)
{
    size_t end = 0;
    int n_places = 0;
    living v = {.heap = k->placed};
    qsort(k->e, (size_t)n, sizeof *k->e, cmp_size);
    for (int i = 0; i < n; i++) {
        entry *e = &k->e[i];
        if (i && e->bytes != e[-1].bytes)
            v.n_heap = 0;
        if (v.n_heap && v.heap[0].last < e->first) {
            const entry gone = pop_heap(&v);
            e->offset = gone.offset;
            e->place = gone.place;
        } else {
            e->offset = end;
            e->place = n_places++;
            end += e->bytes;
        }
        push_heap(&v, e);
    }
    return end;
}

/* A place that is free is taken. */
static void take_place(living *v, size_t begin, size_t end)
{
    if (begin >= v->top) {
        if (begin > v->top)
            v->hole[v->n_holes++] = (hole){v->top, begin};
        v->top = end;
        return;
    }
    const int at = hole_at(v, end);
    const hole around = v->hole[at];
    remove_hole(v, at);
    if (around.end > end)
        insert_hole(v, at, (hole){end, around.end});
    if (around.begin < begin)
        insert_hole(v, at, (hole){around.begin, begin});
}

/* Long lives that begin by `last` take their places, and those that end before `first` leave them:
 * a place is free when nobody has it, holders[place] == 0.  Returns the next that is to begin. */
static int turn_long(living *v, const packing *k, int next, int n_long, int first, int last)
{
    size_t *holders = k->kept;
    for (; next < n_long && k->e[next].first <= last; next++) {
        const entry *e = &k->e[next];
        if (holders[e->place]++ == 0)
            take_place(v, e->offset, e->offset + e->bytes);
        push_heap(v, e);
    }
    while (v->n_heap && v->heap[0].last < first) {
        const entry gone = pop_heap(v);
        if (--holders[gone.place] == 0)
            free_bytes(v, gone.offset, gone.offset + gone.bytes);
    }
    return next;
}

/* The smallest room for e in what the long lives leave free and the short ones, sorted by offset, do
 * not have; else after all of them. */
static size_t hole_beside_long(const living *v, const entry *brief, int n, const entry *e)
{
    size_t end = 0; /* of what was seen so far */
    size_t best = SIZE_MAX;
    size_t best_bytes = SIZE_MAX;
    for (int h = 0, s = 0; h <= v->n_holes; h++) {
        const hole free_here = h < v->n_holes ? v->hole[h] : (hole){v->top, SIZE_MAX};
        end = free_here.begin > end ? free_here.begin : end;
        for (bool more = true; more;) {
            more = s < n && brief[s].offset < free_here.end;
            const size_t stop = more ? brief[s].offset : free_here.end;
            const bool open = stop == SIZE_MAX || stop <= end;
            if (!open && stop - end >= e->bytes && stop - end < best_bytes) {
                best = end;
                best_bytes = stop - end;
            }
            if (more && brief[s].offset + brief[s].bytes > end)
                end = brief[s].offset + brief[s].bytes;
            s += more;
        }
    }
    return best != SIZE_MAX ? best : end;
}

/* Those that live on at `first`, in their order; returns how many. */
static int drop_dead(entry *placed, int n, int first)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (placed[i].last >= first)
            placed[kept++] = placed[i];
    return kept;
}

/* In order of birth, beside the long lives that begin before the short one ends.  SIZE_MAX when the
 * budget ends first. */
static size_t place_short(packing *k, int n_long)
{
    size_t arena = 0;
    int n_living = 0;
    int next = 0; /* of the long ones */
    living v = {.hole = k->hole, .heap = k->fixed};
    memset(k->kept, 0, (size_t)k->n * sizeof *k->kept);
    qsort(k->e, (size_t)n_long, sizeof *k->e, cmp_first);
    qsort(k->e + n_long, (size_t)(k->n - n_long), sizeof *k->e, cmp_first);
    for (int i = n_long; i < k->n; i++) {
        entry *e = &k->e[i];
        e->offset = 0;
        if (!e->bytes)
            continue;
        next = turn_long(&v, k, next, n_long, e->first, e->last);
        n_living = drop_dead(k->placed, n_living, e->first);
        k->budget -= n_living + v.n_holes + 1;
        if (k->budget < 0.0)
            return SIZE_MAX;
        e->offset = hole_beside_long(&v, k->placed, n_living, e);
        insert_sorted(k->placed, n_living++, e);
        arena = e->offset + e->bytes > arena ? e->offset + e->bytes : arena;
    }
    return arena;
}

/* Lives of at least `span` items come first; returns how many there are. */
static int part_long(const packing *k, int span)
{
    int n = 0;
    int rest = 0;
    for (int i = 0; i < k->n; i++)
        if (k->e[i].bytes && k->e[i].last - k->e[i].first >= span)
            k->e[n++] = k->e[i];
        else
            k->placed[rest++] = k->e[i];
    memcpy(k->e + n, k->placed, (size_t)rest * sizeof *k->e);
    return n;
}

/* Pipelines keep many sets of a few sizes over many micro-batches, and between them what lives for a
 * few items: what is long is tried in powers of two. */
static size_t search_long(packing *k, size_t limit, ech_pack_item *item)
{
    size_t best = SIZE_MAX;
    int n_long = k->n;
    for (int span = 8; n_long && best > limit && k->budget > 0.0 && span < INT_MAX / 2; span *= 2) {
        n_long = part_long(k, span);
        const size_t end = place_long(k, n_long);
        const size_t top = place_short(k, n_long);
        keep_best(k->e, k->n, end > top ? end : top, item, &best);
    }
    return best;
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

/* --- other orders --- */

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
    const double most = work_for(n) / 8.0; /* four orders, and half of it */
    double pairs = 0.0;
    for (int i = 0, run; i < n; i += run) {
        run = run_length(e + i, n - i);
        pairs += (double)run * run;
    }
    return most / pairs < MOST_ROUNDS ? (int)(most / pairs) : MOST_ROUNDS;
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
static size_t pack_runs(packing *k, size_t peak, ech_pack_item *item)
{
    size_t arena = 0;
    entry *e = k->e;
    const int n = k->n;
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

/* Long lives by size; where that loses something, of many lives more than half a percent, runs of
 * lives one after the other. */
static size_t pack(packing *k, size_t peak, ech_pack_item *item)
{
    const entry *e = k->e;
    const int n = k->n;
    const size_t enough = n > MOST_RUN ? peak + peak / 200 : peak;
    const size_t by_span = search_long(k, enough, item);
    k->budget = work_for(n); /* as much again */
    if (by_span <= enough)
        return by_span;
    for (int i = 0; i < n; i++) /* to come back to */
        k->kept[e[i].index] = item[e[i].index].offset;
    const size_t by_run = pack_runs(k, peak, item);
    for (int i = 0; i < n && by_span < by_run; i++)
        item[i].offset = k->kept[i];
    return by_span < by_run ? by_span : by_run;
}

ech_status ech_pack(ech_pack_item *item, int n, size_t align, size_t *arena, size_t *peak)
{
    entry *e = NULL;
    packing k = {.budget = work_for(n), .n = n};
    ech_status st;
    *arena = 0;
    *peak = 0;
    if (n == 0)
        return ECH_OK;
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *e, &e), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *k.placed, &k.placed), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *k.fixed, &k.fixed), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n + 1, sizeof *k.hole, &k.hole), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *k.kept, &k.kept), done);
    for (int i = 0; i < n; i++)
        e[i] = (entry){ech_align_up(item[i].bytes, align), item[i].first, item[i].last, i, 0, 0};
    ECH_TRY_GOTO(st, live_peak(e, n, peak), done);
    k.e = e;
    *arena = pack(&k, *peak, item);
    st = ECH_OK;
done:
    free(e);
    free(k.placed);
    free(k.fixed);
    free(k.hole);
    free(k.kept);
    return st;
}
