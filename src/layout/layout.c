#include "layout/layout.h"

#include "base/checked.h"

#include <string.h>

static const char *const axis_names[] = {
#define ECH_AXIS_NAME(name, text) [name] = text,
    ECH_AXIS_LIST(ECH_AXIS_NAME)
#undef ECH_AXIS_NAME
};

const char *ech_axis_name(ech_axis axis)
{
    return (unsigned)axis < ECH_N_AXES ? axis_names[axis] : "no axis";
}

/* --- order --- */

/* Which of the axes that an order names these bytes are; ECH_N_AXES: none. */
static ech_axis named_axis(const char *word, size_t bytes)
{
    static const ech_axis named[] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_EP, ECH_AXIS_DP,
                                     ECH_AXIS_PP};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        if (bytes == strlen(axis_names[named[i]]) && memcmp(word, axis_names[named[i]], bytes) == 0)
            return named[i];
    return ECH_N_AXES;
}

bool ech_order_read(const char *words, ech_axis order[4])
{
    ech_axis found[5];
    bool seen[ECH_N_AXES] = {false};
    int n = 0;
    for (const char *at = words;; at++) {
        const size_t bytes = strcspn(at, "-");
        const ech_axis a = named_axis(at, bytes);
        if (a == ECH_N_AXES || seen[a])
            return false;
        seen[a] = true;
        found[n++] = a;
        at += bytes;
        if (!*at)
            break;
    }
    for (int i = 0, k = 0; i < n && n == 5; i++)
        if (found[i] != ECH_AXIS_EP)
            order[k++] = found[i];
    return n == 5;
}

int ech_order_stride(const ech_axis *order, int n, const int degree[ECH_N_AXES], ech_axis axis)
{
    int stride = 1;
    for (int k = 0; k < n && order[k] != axis; k++)
        stride *= degree[order[k]];
    return stride;
}

/* --- layouts --- */

static const ech_axis default_order[4] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP, ECH_AXIS_PP};

/* dp stands for the pair dp, hsdp. */
static ech_status read_order(const ech_axis given[4], ech_axis out[ECH_MESH_AXES])
{
    const bool is_default = !given[0] && !given[1] && !given[2] && !given[3];
    const ech_axis *order = is_default ? default_order : given;
    bool seen[ECH_N_AXES] = {false};
    int n = 0;
    for (int k = 0; k < 4; k++) {
        const ech_axis a = order[k];
        const bool is_mesh =
            a == ECH_AXIS_TP || a == ECH_AXIS_CP || a == ECH_AXIS_DP || a == ECH_AXIS_PP;
        ECH_CHECK(is_mesh && !seen[a], ECH_E_CONFIG,
                  "an order names tp, cp, dp and pp once each, not %s %s", ech_axis_name(a),
                  is_mesh ? "twice" : "at all");
        seen[a] = true;
        out[n++] = a;
        if (a == ECH_AXIS_DP)
            out[n++] = ECH_AXIS_HSDP;
    }
    return ECH_OK;
}

static ech_status check_tied(const ech_layout_spec *s)
{
    for (int k = 0; k < 2; k++)
        ECH_CHECK(s->tied[k] >= 0 && s->tied[k] < s->pp, ECH_E_CONFIG,
                  "pipeline rank %d holds the token table, pp is %d", s->tied[k], s->pp);
    return ECH_OK;
}

static ech_status check_degrees(const ech_layout_spec *s)
{
    int64_t world = 1;
    const int degree[] = {s->tp, s->cp, s->pp, s->dp};
    for (int k = 0; k < 4; k++) {
        ECH_CHECK(degree[k] >= 1, ECH_E_CONFIG, "a degree of %d, it must be at least 1", degree[k]);
        world *= degree[k];
        ECH_CHECK(world <= ECH_MAX_WORLD, ECH_E_ILLEGAL, "more than %d ranks", ECH_MAX_WORLD);
    }
    ECH_CHECK(s->shard_group >= 0 && (!s->shard_group || s->dp % s->shard_group == 0), ECH_E_CONFIG,
              "a shard group of %d does not divide %d data parallel ranks", s->shard_group, s->dp);
    ECH_CHECK(s->kv_share >= 1 && s->tp % s->kv_share == 0, ECH_E_CONFIG,
              "%d ranks that share key/value heads do not divide tp = %d", s->kv_share, s->tp);
    return ECH_OK;
}

/* The first factors of the tree whose product is the shard group's size sum inside it, the others
 * over the replicas. */
static void split_tree(ech_layout *l, const ech_tree *all)
{
    const int group = l->degree[ECH_AXIS_DP];
    int product = 1;
    int n = 0;
    while (n < all->n && product < group)
        product *= all->factor[n++];
    l->is_nested = product == group;
    if (!l->is_nested)
        return;
    ech_tree *inner = &l->tree[ECH_AXIS_DP];
    ech_tree *outer = &l->tree[ECH_AXIS_HSDP];
    *inner = *outer = (ech_tree){0};
    for (int k = 0; k < all->n; k++)
        if (k < n)
            inner->factor[inner->n++] = all->factor[k];
        else
            outer->factor[outer->n++] = all->factor[k];
}

ech_status ech_layout_make(const ech_layout_spec *s, ech_layout *out)
{
    ech_layout l = {0};
    ech_tree all = ech_tree_default(s->dp > 0 ? s->dp : 1);
    ECH_TRY(check_degrees(s));
    ECH_TRY(check_tied(s));
    ECH_TRY(read_order(s->order, l.order));
    if (s->n_tree)
        ECH_TRY(ech_tree_make(s->tree, s->n_tree, s->dp, &all));
    for (int a = 0; a < ECH_N_AXES; a++)
        l.degree[a] = 1;
    const int group = s->shard_group ? s->shard_group : s->dp;
    l.world = s->tp * s->cp * s->pp * s->dp;
    ECH_CHECK(s->node_ranks >= 0 && (!s->node_ranks || l.world % s->node_ranks == 0), ECH_E_CONFIG,
              "nodes of %d ranks do not make up %d ranks", s->node_ranks, l.world);
    l.node_ranks = s->node_ranks;
    l.degree[ECH_AXIS_TP] = s->tp;
    l.degree[ECH_AXIS_CP] = s->cp;
    l.degree[ECH_AXIS_PP] = s->pp;
    l.degree[ECH_AXIS_DP] = group;
    l.degree[ECH_AXIS_HSDP] = s->dp / group;
    l.degree[ECH_AXIS_KV] = s->kv_share;
    l.degree[ECH_AXIS_TIED] = s->tied[0] == s->tied[1] ? 1 : 2;
    memcpy(l.tied, s->tied, sizeof l.tied);
    l.degree[ECH_AXIS_WORLD] = l.world;
    for (int a = 0; a < ECH_N_AXES; a++)
        l.tree[a] = ech_tree_default(l.degree[a]);
    split_tree(&l, &all);
    *out = l;
    return ECH_OK;
}

ech_layout ech_layout_data_parallel(int dp)
{
    ech_layout l = {0};
    const ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = 1, .dp = dp, .kv_share = 1};
    const ech_status st = ech_layout_make(&spec, &l);
    ECH_ASSERT(st == ECH_OK);
    return l;
}

int ech_layout_data_degree(const ech_layout *l)
{
    return l->degree[ECH_AXIS_DP] * l->degree[ECH_AXIS_HSDP];
}

int64_t ech_layout_data_index(const ech_layout *l, const int64_t coord[ECH_N_AXES])
{
    return coord[ECH_AXIS_DP] + l->degree[ECH_AXIS_DP] * coord[ECH_AXIS_HSDP];
}

bool ech_layout_is_nested(const ech_layout *l)
{
    return l->is_nested;
}

bool ech_axis_contains(ech_axis outer, ech_axis inner)
{
    return outer == inner || outer == ECH_AXIS_WORLD ||
           (outer == ECH_AXIS_TP && inner == ECH_AXIS_KV) ||
           (outer == ECH_AXIS_PP && inner == ECH_AXIS_TIED);
}

/* Is a pipeline rank one of a pair. */
static bool is_tied(const ech_layout *l, int64_t pp)
{
    return l->tied[0] != l->tied[1] && (pp == l->tied[0] || pp == l->tied[1]);
}

void ech_layout_coords(const ech_layout *l, int rank, int64_t coord[ECH_N_AXES])
{
    int rest = rank;
    ECH_ASSERT(rank >= 0 && rank < l->world);
    for (int a = 0; a < ECH_N_AXES; a++)
        coord[a] = 0;
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const int d = l->degree[l->order[k]];
        coord[l->order[k]] = rest % d;
        rest /= d;
    }
    coord[ECH_AXIS_KV] = coord[ECH_AXIS_TP] % l->degree[ECH_AXIS_KV];
    coord[ECH_AXIS_TIED] =
        is_tied(l, coord[ECH_AXIS_PP]) && coord[ECH_AXIS_PP] == l->tied[1] ? 1 : 0;
    coord[ECH_AXIS_WORLD] = rank;
}

/* From a member of an axis's group to the next one. */
static int stride_of(const ech_layout *l, ech_axis axis)
{
    if (axis == ECH_AXIS_WORLD)
        return 1;
    return ech_order_stride(l->order, ECH_MESH_AXES, l->degree,
                            axis == ECH_AXIS_KV ? ECH_AXIS_TP : axis);
}

/* Runs of k members, of all groups together, are blocks of stride * k consecutive ranks: a node
 * holds whole runs exactly where it holds whole blocks. */
int ech_layout_node_run(const ech_layout *l, ech_axis axis)
{
    if (axis == ECH_AXIS_TIED)
        return 1; /* of two or one, no run is more than one and less than all */
    const int stride = stride_of(l, axis);
    if (l->node_ranks == 0 || l->node_ranks % stride != 0)
        return 1;
    const int run = (int)ech_gcd(l->degree[axis], l->node_ranks / stride);
    return run < l->degree[axis] ? run : 1;
}

int ech_layout_group_size(const ech_layout *l, int rank, ech_axis axis)
{
    int64_t coord[ECH_N_AXES];
    if (axis != ECH_AXIS_TIED)
        return l->degree[axis];
    ech_layout_coords(l, rank, coord);
    return is_tied(l, coord[ECH_AXIS_PP]) ? 2 : 1;
}

/* The two that differ on pp alone, or the rank itself. */
static int tied_group(const ech_layout *l, int rank, const int64_t coord[ECH_N_AXES], int *members)
{
    const int stride = stride_of(l, ECH_AXIS_PP);
    members[0] = rank;
    for (int i = 0; i < 2 && is_tied(l, coord[ECH_AXIS_PP]); i++)
        members[i] = rank + (l->tied[i] - (int)coord[ECH_AXIS_PP]) * stride;
    return (int)coord[ECH_AXIS_TIED];
}

int ech_layout_group(const ech_layout *l, int rank, ech_axis axis, int *members)
{
    int64_t coord[ECH_N_AXES];
    ech_layout_coords(l, rank, coord);
    if (axis == ECH_AXIS_TIED)
        return tied_group(l, rank, coord, members);
    if (axis == ECH_AXIS_WORLD) {
        for (int i = 0; i < l->world; i++)
            members[i] = i;
        return rank;
    }
    const int stride = stride_of(l, axis);
    const int me = (int)coord[axis];
    for (int i = 0; i < l->degree[axis]; i++)
        members[i] = rank + (i - me) * stride;
    return me;
}

ech_tree ech_tree_default(int n)
{
    ech_tree t = {0};
    for (int f = 2; n > 1; f++)
        while (n % f == 0) {
            t.factor[t.n++] = f;
            n /= f;
        }
    return t;
}

ech_status ech_tree_make(const int *factor, int n_factors, int n, ech_tree *out)
{
    ech_tree t = {0};
    int64_t product = 1;
    ECH_CHECK(n_factors >= 0 && n_factors <= 31, ECH_E_CONFIG,
              "a summation tree has at most 31 factors, got %d", n_factors);
    for (int i = 0; i < n_factors; i++) {
        ECH_CHECK(factor[i] >= 2, ECH_E_CONFIG, "factor %d of a summation tree must be >= 2",
                  factor[i]);
        product *= factor[i];
        ECH_CHECK(product <= n, ECH_E_CONFIG,
                  "the factors of a summation tree must multiply to the group size %d", n);
        t.factor[t.n++] = factor[i];
    }
    ECH_CHECK(product == n, ECH_E_CONFIG,
              "the factors of a summation tree multiply to %lld, the group has %d ranks",
              (long long)product, n);
    *out = t;
    return ECH_OK;
}

ech_range ech_split(int64_t n, int parts, int i)
{
    const int64_t base = n / parts;
    const int64_t more = n % parts;
    const int64_t begin = i * base + (i < more ? i : more);
    return (ech_range){begin, begin + base + (i < more ? 1 : 0)};
}
