/* The order of summation: a nested tree, the same bits whoever sums and in whatever pieces. */
#include "comm/comm.h"

#include <string.h>

/* Vectorised at -O3 also where the build says -O2: only additions of independent elements, so no
 * bit depends on it. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Bytes of one piece: every partial sum of it stays in the first-level cache. */
enum { PIECE_BYTES = 4096 };

typedef struct tree_work {
    const ech_tree *tree;
    ech_dtype dtype;
    void *const *in;
    size_t begin_bytes; /* of the piece in every vector */
    size_t elems;       /* in the piece */
} tree_work;

/* A node: `items` neighbours of level `level`, `leaves` leaves each, from leaf `first` on. */
typedef struct tree_node {
    int level, first, items, leaves;
} tree_node;

/* out = a + b; out is a, b or apart from both. */
static void add_f32(const float *a, const float *b, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void add_f64(const double *a, const double *b, double *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

/* int64 as unsigned: wraps instead of overflowing. */
static void add_u64(const uint64_t *a, const uint64_t *b, uint64_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void add_piece(const tree_work *w, const void *a, const void *b, void *out)
{
    switch (w->dtype) {
    case ECH_F32:
        add_f32(a, b, out, w->elems);
        return;
    case ECH_F64:
        add_f64(a, b, out, w->elems);
        return;
    case ECH_I64:
        add_u64(a, b, out, w->elems);
        return;
    default:
        ECH_ASSERT(w->dtype == ECH_F32); /* callers check: fp32, fp64 or int64 */
    }
}

/* An item alone is the whole level below it; at level 0 it is a leaf. */
static tree_node narrow(const ech_tree *tree, tree_node node)
{
    while (node.items == 1 && node.level > 0) {
        node.level--;
        node.items = tree->factor[node.level];
        node.leaves /= node.items;
    }
    return node;
}

static const void *sum_node(const tree_work *w, tree_node node, void *scratch);

/* Both halves of a node, the first one with ceil(items / 2), then their sum into out.  The halves
 * are complete before out is written, so out may be any of the vectors. */
static void sum_halves(const tree_work *w, tree_node node, void *left_scratch, void *out)
{
    _Alignas(64) unsigned char right_scratch[PIECE_BYTES];
    const int half = (node.items + 1) / 2;
    const tree_node left = {node.level, node.first, half, node.leaves};
    const tree_node right = {node.level, node.first + half * node.leaves, node.items - half,
                             node.leaves};
    const void *a = sum_node(w, left, left_scratch);
    const void *b = sum_node(w, right, right_scratch);
    add_piece(w, a, b, out);
}

/* Sum of a node: the vector itself for a leaf, else scratch. */
static const void *sum_node(const tree_work *w, tree_node node, void *scratch)
{
    node = narrow(w->tree, node);
    if (node.items == 1)
        return (const unsigned char *)w->in[node.first] + w->begin_bytes;
    sum_halves(w, node, scratch, scratch);
    return scratch;
}

static tree_node whole_tree(const ech_tree *tree, int n)
{
    int leaves = 1;
    for (int k = 0; k + 1 < tree->n; k++)
        leaves *= tree->factor[k];
    tree_node root = {.level = 0, .first = 0, .items = 1, .leaves = 1};
    if (tree->n > 0)
        root = (tree_node){tree->n - 1, 0, tree->factor[tree->n - 1], leaves};
    ECH_ASSERT(root.items * root.leaves == n);
    return narrow(tree, root);
}

void ech_tree_sum(const ech_tree *tree, ech_dtype dtype, void *const *in, int n, int64_t elems,
                  void *out)
{
    const size_t width = ech_dtype_bytes(dtype);
    const size_t total = (size_t)elems * width;
    const tree_node root = whole_tree(tree, n);
    _Alignas(64) unsigned char scratch[PIECE_BYTES];

    if (root.items == 1) {
        if (out != in[0])
            memmove(out, in[0], total);
        return;
    }
    for (size_t begin = 0; begin < total; begin += PIECE_BYTES) {
        const size_t bytes = total - begin < PIECE_BYTES ? total - begin : PIECE_BYTES;
        const tree_work w = {tree, dtype, in, begin, bytes / width};
        sum_halves(&w, root, scratch, (unsigned char *)out + begin);
    }
}
