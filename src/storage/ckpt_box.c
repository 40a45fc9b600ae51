#include "storage/ckpt_box.h"

#include <stdlib.h>

enum { SPLIT_LEVELS = 16 };

ech_ckpt_box ech_ckpt_box_whole(int rank, const int64_t *dim)
{
    ech_ckpt_box b = {.rank = rank};
    for (int d = 0; d < rank; d++)
        b.end[d] = dim[d];
    return b;
}

static int64_t extent(const ech_ckpt_box *b, int d)
{
    return b->end[d] > b->begin[d] ? b->end[d] - b->begin[d] : 0;
}

/* Elements of one index of dimension d - 1: the product of the dimensions from d on. */
static int64_t inner(const ech_ckpt_box *b, int d)
{
    int64_t n = 1;
    for (; d < b->rank; d++)
        n *= extent(b, d);
    return n;
}

int64_t ech_ckpt_box_elems(const ech_ckpt_box *b)
{
    return inner(b, 0);
}

int ech_ckpt_box_compare(const ech_ckpt_box *a, const ech_ckpt_box *b)
{
    for (int d = 0; d < a->rank; d++) {
        if (a->begin[d] != b->begin[d])
            return a->begin[d] < b->begin[d] ? -1 : 1;
        if (a->end[d] != b->end[d])
            return a->end[d] < b->end[d] ? -1 : 1;
    }
    return 0;
}

/* --- cover --- */

static int compare_at(const void *x, const void *y, int d)
{
    const int64_t a = ((const ech_ckpt_box *)x)->begin[d];
    const int64_t b = ((const ech_ckpt_box *)y)->begin[d];
    return a < b ? -1 : a > b;
}

static int compare_0(const void *x, const void *y)
{
    return compare_at(x, y, 0);
}

static int compare_1(const void *x, const void *y)
{
    return compare_at(x, y, 1);
}

static int compare_2(const void *x, const void *y)
{
    return compare_at(x, y, 2);
}

static int compare_3(const void *x, const void *y)
{
    return compare_at(x, y, 3);
}

/* Where a partition is being split: along dimension d, `idle` dimensions in a row gave no split. */
typedef struct split {
    int d, idle, level;
} split;

/* Boxes are cut into slabs at every place that none of them crosses; each slab is a smaller problem
 * in the next dimension.  Slabs must follow each other without gap. */
static bool cover(ech_ckpt_box *box, int64_t n, const ech_ckpt_box *region, split s)
{
    static int (*const compare[])(const void *, const void *) = {compare_0, compare_1, compare_2,
                                                                 compare_3};
    const split next = {(s.d + 1) % region->rank, 0, s.level + 1};
    ech_ckpt_box slab = *region;
    int64_t at = region->begin[s.d];
    if (n == 1)
        return ech_ckpt_box_compare(box, region) == 0;
    if (s.idle == region->rank || s.level == SPLIT_LEVELS)
        return false;
    qsort(box, (size_t)n, sizeof *box, compare[s.d]);
    for (int64_t i = 0, j; i < n; i = j) {
        int64_t end = box[i].end[s.d];
        if (box[i].begin[s.d] != at)
            return false;
        for (j = i + 1; j < n && box[j].begin[s.d] < end; j++)
            end = box[j].end[s.d] > end ? box[j].end[s.d] : end;
        slab.begin[s.d] = at;
        slab.end[s.d] = end;
        if (j - i == n)
            return end == region->end[s.d] &&
                   cover(box, n, region, (split){next.d, s.idle + 1, s.level});
        if (!cover(box + i, j - i, &slab, next))
            return false;
        at = end;
    }
    return at == region->end[s.d];
}

bool ech_ckpt_boxes_cover(ech_ckpt_box *box, int64_t n, const ech_ckpt_box *whole)
{
    return n > 0 && cover(box, n, whole, (split){0, 0, 0});
}

/* --- overlap --- */

/* The smallest box that holds a range: its first and last element tell. */
static ech_ckpt_box around(const ech_ckpt_range *r)
{
    ech_ckpt_box out = r->box;
    int64_t lo = r->first;
    int64_t hi = r->first + r->n - 1;
    for (int d = 0; d < out.rank; d++) {
        const int64_t in = inner(&r->box, d + 1);
        out.begin[d] = r->box.begin[d] + lo / in;
        out.end[d] = r->box.begin[d] + hi / in + 1;
        if (lo / in != hi / in)
            break; /* what is inside may be anything from here on */
        lo %= in;
        hi %= in;
    }
    return out;
}

void ech_ckpt_overlap_start(ech_ckpt_overlap *o, const ech_ckpt_range *a, const ech_ckpt_range *b)
{
    *o = (ech_ckpt_overlap){.a = *a, .b = *b, .row = 1};
    if (a->n <= 0 || b->n <= 0) {
        o->is_done = true;
        return;
    }
    const ech_ckpt_box x = around(a);
    const ech_ckpt_box y = around(b);
    o->meet.rank = x.rank;
    for (int d = 0; d < x.rank; d++) {
        o->meet.begin[d] = x.begin[d] > y.begin[d] ? x.begin[d] : y.begin[d];
        o->meet.end[d] = x.end[d] < y.end[d] ? x.end[d] : y.end[d];
        o->at[d] = o->meet.begin[d];
        o->is_done = o->is_done || o->meet.begin[d] >= o->meet.end[d];
    }
    if (o->is_done)
        return;
    /* Dimensions that are whole in both boxes lie together in both, and so does the one before. */
    int d = x.rank - 1;
    while (d > 0 && extent(&o->meet, d) == extent(&a->box, d) &&
           extent(&o->meet, d) == extent(&b->box, d))
        d--;
    o->fixed = d;
    o->row = inner(&o->meet, d);
}

static int64_t number_of(const ech_ckpt_box *b, const int64_t *at)
{
    int64_t n = 0;
    for (int d = 0; d < b->rank; d++)
        n = n * extent(b, d) + at[d] - b->begin[d];
    return n;
}

static void step(ech_ckpt_overlap *o)
{
    for (int d = o->fixed - 1; d >= 0; d--) {
        if (++o->at[d] < o->meet.end[d])
            return;
        o->at[d] = o->meet.begin[d];
    }
    o->is_done = true;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

bool ech_ckpt_overlap_next(ech_ckpt_overlap *o, ech_ckpt_run *out)
{
    while (!o->is_done) {
        const int64_t a = number_of(&o->a.box, o->at);
        const int64_t b = number_of(&o->b.box, o->at);
        const int64_t lo = larger(0, larger(o->a.first - a, o->b.first - b));
        const int64_t hi =
            smaller(o->row, smaller(o->a.first + o->a.n - a, o->b.first + o->b.n - b));
        step(o);
        if (lo < hi) {
            *out = (ech_ckpt_run){a + lo, b + lo, hi - lo};
            return true;
        }
    }
    return false;
}

int64_t ech_ckpt_overlap_count(const ech_ckpt_range *a, const ech_ckpt_range *b)
{
    ech_ckpt_overlap o;
    ech_ckpt_run run;
    int64_t n = 0;
    ech_ckpt_overlap_start(&o, a, b);
    while (ech_ckpt_overlap_next(&o, &run))
        n += run.n;
    return n;
}
