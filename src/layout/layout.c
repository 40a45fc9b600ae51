#include "layout/layout.h"

static const char *const axis_names[] = {
#define ECH_AXIS_NAME(name, text) [name] = text,
    ECH_AXIS_LIST(ECH_AXIS_NAME)
#undef ECH_AXIS_NAME
};

const char *ech_axis_name(ech_axis axis)
{
    return (unsigned)axis < ECH_N_AXES ? axis_names[axis] : "no axis";
}

ech_layout ech_layout_data_parallel(int dp)
{
    ech_layout l = {.world = dp, .order = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP, ECH_AXIS_PP}};
    for (int a = 0; a < ECH_N_AXES; a++)
        l.degree[a] = 1;
    l.degree[ECH_AXIS_DP] = dp;
    l.degree[ECH_AXIS_WORLD] = dp;
    for (int a = 0; a < ECH_N_AXES; a++)
        l.tree[a] = ech_tree_default(l.degree[a]);
    return l;
}

void ech_layout_coords(const ech_layout *l, int rank, int64_t coord[ECH_N_AXES])
{
    int rest = rank;
    ECH_ASSERT(rank >= 0 && rank < l->world);
    for (int a = 0; a < ECH_N_AXES; a++)
        coord[a] = 0;
    for (int k = 0; k < 4; k++) {
        const int d = l->degree[l->order[k]];
        coord[l->order[k]] = rest % d;
        rest /= d;
    }
    coord[ECH_AXIS_WORLD] = rank;
}

int ech_layout_group(const ech_layout *l, int rank, ech_axis axis, int *members)
{
    int stride = 1;
    int64_t coord[ECH_N_AXES];
    ech_layout_coords(l, rank, coord);
    if (axis == ECH_AXIS_WORLD) {
        for (int i = 0; i < l->world; i++)
            members[i] = i;
        return rank;
    }
    for (int k = 0; k < 4 && l->order[k] != axis; k++)
        stride *= l->degree[l->order[k]];
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
