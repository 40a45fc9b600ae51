#include "program/once.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* An item by what it stands for. */
typedef struct run {
    int block, layer, chunk, micro, item;
} run;

static int cmp_place(const run *a, const run *b)
{
    if (a->block != b->block)
        return a->block < b->block ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

static int cmp_run(const void *a, const void *b)
{
    const run *x = a;
    const run *y = b;
    const int c = cmp_place(x, y);
    if (c)
        return c;
    if (x->micro != y->micro)
        return x->micro < y->micro ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static int list_runs(const ech_program *p, run *r)
{
    int n = 0;
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        if (p->block[it->block].role != ECH_ROLE_TRANSFER)
            r[n++] = (run){it->block, it->layer, it->chunk, it->micro, i};
    }
    qsort(r, (size_t)n, sizeof *r, cmp_run);
    return n;
}

static ech_status check_unique(const ech_program *p, const run *r, int n)
{
    char a[128];
    char b[128];
    for (int i = 1; i < n; i++)
        ECH_CHECK(cmp_place(&r[i - 1], &r[i]) || r[i - 1].micro != r[i].micro, ECH_E_PROOF,
                  "%s is run again as %s", ech_item_describe(p, r[i - 1].item, a, sizeof a),
                  ech_item_describe(p, r[i].item, b, sizeof b));
    return ECH_OK;
}

/* Runs of one block, layer and chunk, sorted by micro-batch and without repeats. */
static ech_status check_micros(const ech_program *p, const run *r, int n)
{
    char where[128];
    (void)ech_item_describe(p, r[0].item, where, sizeof where);
    ECH_CHECK(r[n - 1].micro < p->micro_batches, ECH_E_PROOF,
              "%s: the step has %d micro-batches, this one is %d", where, p->micro_batches,
              r[n - 1].micro);
    ECH_CHECK(r[0].micro < 0 ? n == 1 : n == p->micro_batches, ECH_E_PROOF,
              "%s runs for %d of %d micro-batches", where, n, p->micro_batches);
    return ECH_OK;
}

/* With more rounds there would be as many more: what micro-batches do is done in rounds, those before
 * them have been done before, those after are done behind them. */
static ech_status check_rounds(const ech_program *p, const run *r, int n)
{
    char where[128];
    const ech_repeat *o = &p->rounds;
    const int end = o->first + (o->end - o->first) * o->times;
    int in_rounds = 0;
    for (int i = 0; i < n; i++) {
        in_rounds += r[i].item >= o->first && r[i].item < end;
        ECH_CHECK(i == 0 || r[i].item > r[i - 1].item, ECH_E_PROOF,
                  "%s stands before that of the micro-batch before it, but rounds repeat",
                  ech_item_describe(p, r[i].item, where, sizeof where));
    }
    ECH_CHECK(in_rounds == (r[0].micro < 0 ? 0 : o->times * o->step), ECH_E_PROOF,
              "%s and its like run %d times in %d rounds of %d micro-batches",
              ech_item_describe(p, r[0].item, where, sizeof where), in_rounds, o->times, o->step);
    return ECH_OK;
}

static ech_status check_runs(const ech_program *p, const run *r, int n)
{
    ECH_TRY(check_unique(p, r, n));
    for (int i = 0; i < n;) {
        int k = i;
        while (k < n && cmp_place(&r[i], &r[k]) == 0)
            k++;
        ECH_TRY(check_micros(p, r + i, k - i));
        if (p->rounds.times)
            ECH_TRY(check_rounds(p, r + i, k - i));
        i = k;
    }
    return ECH_OK;
}

static ech_status check_used(const ech_program *p, bool *is_used)
{
    for (int i = 0; i < p->n_items; i++)
        is_used[p->item[i].block] = true;
    for (int b = 0; b < p->n_blocks; b++)
        ECH_CHECK(is_used[b], ECH_E_PROOF, "block %d (%s) is never run", b, p->block[b].name);
    return ECH_OK;
}

/* What an item is bound by: its layer or its micro-batch. */
typedef struct key {
    const char *name;
    size_t at; /* in ech_item */
    int n;     /* keys are [0, n); items of -1 have none */
} key;

static int key_of(const key *k, const ech_item *it)
{
    return *(const int *)((const char *)it + k->at);
}

static ech_status check_two(const ech_program *p, const key *k, ech_region r, int x, int y)
{
    char a[128];
    char b[128];
    const size_t at_x = p->item[x].bind[r].offset;
    const size_t at_y = p->item[y].bind[r].offset;
    const bool same_key = key_of(k, &p->item[x]) == key_of(k, &p->item[y]);
    ECH_CHECK(same_key == (at_x == at_y), ECH_E_PROOF,
              "%s and %s are bound to %s at %zu and %zu: the same exactly for the same %s",
              ech_item_describe(p, x, a, sizeof a), ech_item_describe(p, y, b, sizeof b),
              ech_region_name(r), at_x, at_y, k->name);
    return ECH_OK;
}

/* The first item of a key, and where it is bound. */
typedef struct binding {
    int item; /* -1: none */
    size_t offset;
} binding;

static int cmp_binding(const void *a, const void *b)
{
    const binding *x = a;
    const binding *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Every item is bound like the first of its key; then no two keys are bound alike. */
static ech_status check_binding(const ech_program *p, const key *k, ech_region r, binding *first)
{
    for (int i = 0; i < k->n; i++)
        first[i] = (binding){.item = -1};
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        const int mine = key_of(k, it);
        if (mine < 0 || !p->block[it->block].region_bytes[r] || !p->slot[it->bind[r].slot].is_state)
            continue;
        if (first[mine].item < 0)
            first[mine] = (binding){i, it->bind[r].offset};
        ECH_TRY(check_two(p, k, r, first[mine].item, i));
    }
    qsort(first, (size_t)k->n, sizeof *first, cmp_binding);
    for (int i = 1; i < k->n; i++)
        if (first[i].item >= 0 && first[i - 1].item >= 0)
            ECH_TRY(check_two(p, k, r, first[i - 1].item, first[i].item));
    return ECH_OK;
}

/* The rows of a micro-batch stand at its number times their bytes: on every class the same ones. */
static ech_status check_rows(const ech_program *p)
{
    char where[128];
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        const ech_view *v = &it->bind[ECH_REGION_DATA];
        const size_t bytes = p->block[it->block].region_bytes[ECH_REGION_DATA];
        if (it->micro < 0 || !bytes || !p->slot[v->slot].is_state)
            continue;
        ECH_CHECK(v->offset == (size_t)it->micro * bytes, ECH_E_PROOF,
                  "%s is bound to data at %zu: the rows of its micro-batch are at %zu",
                  ech_item_describe(p, i, where, sizeof where), v->offset,
                  (size_t)it->micro * bytes);
    }
    return ECH_OK;
}

/* All blocks of a layer see the same parameters, gradients and moments and no other layer's; all
 * blocks of a micro-batch its rows of the batch. */
static ech_status check_bindings(const ech_program *p)
{
    static const ech_region of_layer[] = {
        ECH_REGION_PARAM,      ECH_REGION_PARAM_SUMMED,  ECH_REGION_PARAM_WHOLE,
        ECH_REGION_GRAD,       ECH_REGION_GRAD_SUMMED,   ECH_REGION_GRAD_WHOLE,
        ECH_REGION_PARAM_TIED, ECH_REGION_GRAD_TIED,     ECH_REGION_MOMENT_TIED,
        ECH_REGION_MOMENT,     ECH_REGION_MOMENT_SUMMED, ECH_REGION_MOMENT_WHOLE,
        ECH_REGION_MASTER,     ECH_REGION_CACHE};
    key layer = {"layer", offsetof(ech_item, layer), 0};
    const key micro = {"micro-batch", offsetof(ech_item, micro), p->micro_batches};
    binding *first;
    for (int i = 0; i < p->n_items; i++)
        layer.n = p->item[i].layer >= layer.n ? p->item[i].layer + 1 : layer.n;
    ECH_TRY(ech_calloc((size_t)(layer.n > micro.n ? layer.n : micro.n), sizeof *first, &first));
    ech_status st = check_binding(p, &micro, ECH_REGION_DATA, first);
    if (st >= 0)
        st = check_rows(p);
    for (size_t r = 0; r < sizeof of_layer / sizeof of_layer[0] && st >= 0; r++)
        st = check_binding(p, &layer, of_layer[r], first);
    free(first);
    return st;
}

/* Segments are run one after the other: an item behind one of a later segment would never run. */
static ech_status check_segments(const ech_program *p)
{
    char where[128];
    for (int i = 1; i < p->n_items; i++)
        ECH_CHECK(p->item[i].segment >= p->item[i - 1].segment, ECH_E_PROOF,
                  "%s of segment %s stands behind segment %s: it would never run",
                  ech_item_describe(p, i, where, sizeof where),
                  ech_segment_name(p->item[i].segment), ech_segment_name(p->item[i - 1].segment));
    return ECH_OK;
}

/* --- ops --- */

static bool is_same_memory(const ech_operand *a, const ech_operand *b)
{
    return a->region == b->region && a->context == b->context && a->offset == b->offset;
}

static bool is_same_op(const ech_op *a, const ech_op *b)
{
    if (a->kind != b->kind || a->axis != b->axis || memcmp(a->real, b->real, sizeof a->real) != 0)
        return false;
    for (int i = 0; i < a->n_args; i++)
        if (!is_same_memory(&a->arg[i], &b->arg[i]))
            return false;
    return true;
}

/* An op that changes what it finds: again, it would change it again. */
static bool accumulates(const ech_op *op)
{
    for (int i = 0; i < op->n_args; i++)
        for (int j = 0; j < op->n_args; j++)
            if (op->arg[i].region != ECH_REGION_NONE && (op->arg[i].access & ECH_WRITE) &&
                (op->arg[j].access & ECH_READ) && is_same_memory(&op->arg[i], &op->arg[j]))
                return true;
    return false;
}

/* An op by what it does to which bytes: ops that are the same have the same hash. */
typedef struct hashed {
    uint64_t hash;
    int op;
} hashed;

static uint64_t hash_of(const ech_op *op)
{
    uint64_t h = ech_hash64(op->real, sizeof op->real);
    for (int i = 0; i < op->n_args; i++) {
        const ech_operand *a = &op->arg[i];
        const uint64_t words[4] = {h, ((uint64_t)a->region << 32) + (uint64_t)a->context, a->offset,
                                   ((uint64_t)op->kind << 32) + (uint64_t)op->axis};
        h = ech_hash64(words, sizeof words);
    }
    return h;
}

static int cmp_hashed(const void *a, const void *b)
{
    const hashed *x = a;
    const hashed *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

/* Of the first op of each hash to those behind it. */
static ech_status check_hashed(const ech_block *b, const hashed *h, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n && h[j].hash == h[i].hash; j++)
            ECH_CHECK(!is_same_op(&b->op[h[i].op], &b->op[h[j].op]), ECH_E_PROOF,
                      "block '%s': op %d (%s) is op %d once more", b->name, h[j].op,
                      ech_op_name(b->op[h[j].op].kind), h[i].op);
    return ECH_OK;
}

/* No op of a block changes the same bytes from the same bytes twice. */
static ech_status check_ops(const ech_block *b)
{
    hashed *h;
    int n = 0;
    ECH_TRY(ech_calloc((size_t)b->n_ops + 1, sizeof *h, &h));
    for (int k = 0; k < b->n_ops; k++)
        if (accumulates(&b->op[k]))
            h[n++] = (hashed){hash_of(&b->op[k]), k};
    qsort(h, (size_t)n, sizeof *h, cmp_hashed);
    const ech_status st = check_hashed(b, h, n);
    free(h);
    return st;
}

ech_status ech_once_check(const ech_program *p)
{
    run *r = NULL;
    bool *is_used = NULL;
    ech_status st;
    ECH_TRY(check_segments(p));
    for (int b = 0; b < p->n_blocks; b++)
        ECH_TRY(check_ops(&p->block[b]));
    ECH_TRY_GOTO(st, ech_calloc((size_t)p->n_items, sizeof *r, &r), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)p->n_blocks, sizeof *is_used, &is_used), done);
    st = check_runs(p, r, list_runs(p, r));
    if (st >= 0)
        st = check_used(p, is_used);
    if (st >= 0)
        st = check_bindings(p);
done:
    free(r);
    free(is_used);
    return st;
}
