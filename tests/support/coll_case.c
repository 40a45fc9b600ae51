#include "coll_case.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xAB };

static size_t width(const coll_case *c)
{
    return ech_dtype_bytes(c->dtype);
}

static bool has_part(const coll_case *c)
{
    return c->kind == ECH_COLL_REDUCE_SCATTER || c->kind == ECH_COLL_ALL_GATHER;
}

int64_t coll_case_fit(ech_coll_kind kind, int size, int64_t n)
{
    const coll_case c = {.kind = kind};
    while (has_part(&c) && n % size != 0)
        n++;
    return n;
}

/* First element of member i's part of n: the first n % size parts have one more. */
static int64_t part_begin(const coll_case *c, int i)
{
    const int64_t longer = c->n % c->size;
    return c->n / c->size * i + (i < longer ? i : longer);
}

static int64_t part_elems(const coll_case *c, int i)
{
    return part_begin(c, i + 1) - part_begin(c, i);
}

/* Element e of member i's contribution: exponents far apart, so that any other order of summation
 * gives other bits. */
static void contribution(const coll_case *c, int i, int64_t e, void *out)
{
    const ech_rng_key key = ech_rng_key_make(c->seed, ECH_RNG_TEST, i, c->kind);
    uint32_t w[4];
    ech_rng_block(&key, (uint64_t)e, w);
    const double x = ((double)w[0] - 2147483648.0) * (double)(1 << (w[1] % 24)) / 65536.0;
    const float x32 = (float)x;
    if (c->dtype == ECH_F64)
        memcpy(out, &x, sizeof x);
    else if (c->dtype == ECH_F32)
        memcpy(out, &x32, sizeof x32);
    else
        memcpy(out, w, width(c));
}

static void put_in(const coll_case *c, int i, int64_t begin, int64_t end, unsigned char *buf)
{
    for (int64_t e = begin; e < end; e++)
        contribution(c, i, e, buf + (size_t)e * width(c));
}

static void *poisoned(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        abort();
    memset(p, POISON, bytes);
    return p;
}

/* The smaller of a part (rounded up) and 65536 elements, as comm.h and op.h promise. */
static size_t staging_bytes(const coll_case *c)
{
    const int64_t part = (c->n + c->size - 1) / c->size;
    const int64_t chunk = part < 65536 ? part : 65536;
    if (c->kind == ECH_COLL_SUM_SMALL)
        return (size_t)(c->size * c->n) * width(c);
    if (c->kind == ECH_COLL_ALL_REDUCE || c->kind == ECH_COLL_REDUCE_SCATTER)
        return (size_t)(2 * c->size * chunk) * width(c);
    return 0;
}

static size_t part_bytes(const coll_case *c)
{
    return has_part(c) ? (size_t)(c->n / c->size) * width(c) : 0;
}

static unsigned char *own_share(const coll_run *r)
{
    return (unsigned char *)r->buf + (size_t)r->member * part_bytes(&r->c);
}

static void fill(coll_run *r)
{
    const coll_case *c = &r->c;
    const int64_t part = part_elems(c, r->member);
    if (c->kind == ECH_COLL_ALL_GATHER) /* what a gather takes is numbered from the share's start */
        put_in(c, r->member, 0, part, c->is_in_place ? own_share(r) : r->part);
    else if (c->kind != ECH_COLL_RECV)
        put_in(c, r->member, 0, c->n, r->buf);
}

void coll_run_init(coll_run *r, const coll_case *c, int member)
{
    const size_t bytes = (size_t)c->n * width(c);
    const int step = c->kind == ECH_COLL_SEND ? 1 : c->size - 1;
    *r = (coll_run){.c = *c, .member = member, .request = -1};
    r->buf = poisoned(bytes);
    r->part = poisoned(part_bytes(c));
    r->sum = poisoned(bytes);
    r->staging = poisoned(staging_bytes(c));
    fill(r);
    r->coll = (ech_coll){.kind = c->kind,
                         .axis = c->axis,
                         .dtype = c->dtype,
                         .n = c->n,
                         .buf = r->buf,
                         .part = c->is_in_place ? own_share(r) : r->part,
                         .sum = c->is_in_place ? r->buf : r->sum,
                         .staging = r->staging,
                         .staging_bytes = staging_bytes(c),
                         .peer = (member + step) % c->size};
}

void coll_run_fini(coll_run *r)
{
    free(r->buf);
    free(r->part);
    free(r->sum);
    free(r->staging);
}

/* --- what must come out --- */

static void add_values(ech_dtype dtype, const void *a, const void *b, void *out)
{
    if (dtype == ECH_F32) {
        const float s = *(const float *)a + *(const float *)b;
        memcpy(out, &s, sizeof s);
    } else if (dtype == ECH_F64) {
        const double s = *(const double *)a + *(const double *)b;
        memcpy(out, &s, sizeof s);
    } else {
        const uint64_t s = *(const uint64_t *)a + *(const uint64_t *)b;
        memcpy(out, &s, sizeof s);
    }
}

/* x[0] = balanced sum of x[0..m-1]: the sum of the first half (the larger one) plus that of the
 * second. */
static void balanced_sum(ech_dtype dtype, unsigned char *x, int m)
{
    const size_t w = ech_dtype_bytes(dtype);
    const int left = m - m / 2;
    if (m < 2)
        return;
    balanced_sum(dtype, x, left);
    balanced_sum(dtype, x + (size_t)left * w, m / 2);
    add_values(dtype, x, x + (size_t)left * w, x);
}

void reference_tree_sum(ech_dtype dtype, void *x, int m, const int *factor, int n_factors)
{
    const size_t w = ech_dtype_bytes(dtype);
    unsigned char *v = x;
    for (int k = 0; k < n_factors; k++) {
        m /= factor[k];
        for (int group = 0; group < m; group++) {
            unsigned char *at = v + (size_t)(group * factor[k]) * w;
            balanced_sum(dtype, at, factor[k]);
            memmove(v + (size_t)group * w, at, w);
        }
    }
}

static void expected_sum(const coll_case *c, const ech_tree *tree, int64_t e, void *out)
{
    const size_t w = width(c);
    uint64_t x[64];
    for (int i = 0; i < c->size; i++)
        contribution(c, i, e, (unsigned char *)x + (size_t)i * w);
    reference_tree_sum(c->dtype, x, c->size, tree->factor, tree->n);
    memcpy(out, x, w);
}

static int owner_of(const coll_case *c, int64_t e)
{
    int i = 0;
    while (e >= part_begin(c, i + 1))
        i++;
    return i;
}

/* Element e of buf at the end. */
static void expected_buf(const coll_run *r, const ech_tree *tree, int64_t e, void *out)
{
    const coll_case *c = &r->c;
    const int owner = owner_of(c, e);
    if (c->kind == ECH_COLL_ALL_REDUCE ||
        (c->kind == ECH_COLL_REDUCE_SCATTER && c->is_in_place && owner == r->member) ||
        (c->kind == ECH_COLL_SUM_SMALL && c->is_in_place))
        expected_sum(c, tree, e, out);
    else if (c->kind == ECH_COLL_ALL_GATHER)
        contribution(c, owner, e - part_begin(c, owner), out);
    else if (c->kind == ECH_COLL_RECV) {
        const coll_case sent = {ECH_COLL_SEND, c->axis, c->dtype, c->size, c->n, c->seed, false};
        contribution(&sent, r->coll.peer, e, out);
    } else
        contribution(c, r->member, e, out);
}

/* Element e of part at the end. */
static void expected_part(const coll_run *r, const ech_tree *tree, int64_t e, void *out)
{
    if (r->c.is_in_place)
        memset(out, POISON, width(&r->c));
    else if (r->c.kind == ECH_COLL_ALL_GATHER)
        contribution(&r->c, r->member, e, out);
    else
        expected_sum(&r->c, tree, part_begin(&r->c, r->member) + e, out);
}

static bool is_same(const coll_run *r, const char *what, int64_t e, const void *got,
                    const void *wanted)
{
    char text[128];
    if (memcmp(got, wanted, width(&r->c)) == 0)
        return true;
    fprintf(stderr, "%s, member %d: %s[%lld] is %.17g, must be %.17g\n",
            coll_case_format(&r->c, text, sizeof text), r->member, what, (long long)e,
            ech_dtype_load(r->c.dtype, got, 0), ech_dtype_load(r->c.dtype, wanted, 0));
    return false;
}

bool coll_run_is_right(const coll_run *r, const ech_tree *tree)
{
    const bool has_sum = r->c.kind == ECH_COLL_SUM_SMALL && !r->c.is_in_place;
    for (int64_t e = 0; e < r->c.n; e++) {
        const size_t at = (size_t)e * width(&r->c);
        uint64_t wanted = 0;
        expected_buf(r, tree, e, &wanted);
        if (!is_same(r, "buf", e, (unsigned char *)r->buf + at, &wanted))
            return false;
        memset(&wanted, POISON, sizeof wanted);
        if (has_sum)
            expected_sum(&r->c, tree, e, &wanted);
        if (!is_same(r, "sum", e, (unsigned char *)r->sum + at, &wanted))
            return false;
    }
    for (int64_t e = 0; has_part(&r->c) && e < part_elems(&r->c, r->member); e++) {
        uint64_t wanted = 0;
        expected_part(r, tree, e, &wanted);
        if (!is_same(r, "part", e, (unsigned char *)r->part + (size_t)e * width(&r->c), &wanted))
            return false;
    }
    return true;
}

/* --- what must leave --- */

int64_t coll_case_wire(const coll_case *c, int member)
{
    const int64_t part = part_elems(c, member);
    const int64_t others = c->size - 1;
    int64_t elems = 0;
    switch (c->kind) {
    case ECH_COLL_ALL_REDUCE: /* contributions to the others' parts, then my part to each */
        elems = c->n - part + others * part;
        break;
    case ECH_COLL_REDUCE_SCATTER:
        elems = c->n - part;
        break;
    case ECH_COLL_ALL_GATHER:
        elems = others * part;
        break;
    case ECH_COLL_SUM_SMALL:
        elems = others * c->n;
        break;
    case ECH_COLL_SEND:
        return c->n * (int64_t)width(c);
    case ECH_COLL_RECV:
        return 0;
    }
    return c->size == 1 ? 0 : elems * (int64_t)width(c);
}

int64_t coll_case_payload(const coll_case *c, int member)
{
    (void)member;
    return c->kind == ECH_COLL_RECV ? 0 : c->n * (int64_t)width(c);
}

const char *coll_case_format(const coll_case *c, char *buf, size_t n)
{
    static const char *const kinds[] = {"all_reduce", "reduce_scatter", "all_gather",
                                        "sum_small",  "send",           "recv"};
    (void)snprintf(buf, n, "%s over %s %s n=%lld of %d, seed %llu%s", kinds[c->kind],
                   ech_axis_name(c->axis), ech_dtype_name(c->dtype), (long long)c->n, c->size,
                   (unsigned long long)c->seed, c->is_in_place ? ", in place" : "");
    return buf;
}
