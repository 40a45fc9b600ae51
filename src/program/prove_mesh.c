#include "program/prove_mesh.h"
#include "base/checked.h"

#include <stdio.h>

static const ech_axis mesh_axes[ECH_MESH_AXES] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP,
                                                  ECH_AXIS_HSDP, ECH_AXIS_PP};

static bool is_mesh_axis(ech_axis axis)
{
    bool found = false;
    for (int k = 0; k < ECH_MESH_AXES; k++)
        found = found || mesh_axes[k] == axis;
    return found;
}

static ech_status check_order(const ech_layout *l)
{
    bool seen[ECH_N_AXES] = {false};
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const ech_axis a = l->order[k];
        ECH_CHECK((unsigned)a < ECH_N_AXES && is_mesh_axis(a) && !seen[a], ECH_E_PROOF,
                  "the order of ranks must name tp, cp, dp, hsdp and pp once each, place %d is %s",
                  k, ech_axis_name(a));
        seen[a] = true;
    }
    return ECH_OK;
}

/* Every rank is in one group of an axis, since ranks and coordinates are one to one. */
static ech_status check_degrees(const ech_layout *l)
{
    int64_t product = 1;
    for (int a = 0; a < ECH_N_AXES; a++) {
        const int d = l->degree[a];
        ECH_CHECK(d >= 1 && d <= ECH_MAX_WORLD, ECH_E_PROOF, "degree %d over %s", d,
                  ech_axis_name((ech_axis)a));
        if (is_mesh_axis((ech_axis)a))
            product = product <= ECH_MAX_WORLD ? product * d : product;
        else if (a != ECH_AXIS_KV && a != ECH_AXIS_TIED && a != ECH_AXIS_WORLD)
            ECH_CHECK(d == 1, ECH_E_PROOF, "degree %d over %s, which has no groups of its own", d,
                      ech_axis_name((ech_axis)a));
    }
    ECH_CHECK(product == l->world && l->degree[ECH_AXIS_WORLD] == l->world, ECH_E_PROOF,
              "the degrees multiply to %lld ranks, the world has %d", (long long)product, l->world);
    ECH_CHECK(l->degree[ECH_AXIS_TP] % l->degree[ECH_AXIS_KV] == 0, ECH_E_PROOF,
              "kv groups of %d ranks do not divide tp = %d", l->degree[ECH_AXIS_KV],
              l->degree[ECH_AXIS_TP]);
    return ECH_OK;
}

static ech_status check_tied(const ech_layout *l)
{
    const int first = l->tied[0];
    const int last = l->tied[1];
    const int ranks = l->degree[ECH_AXIS_PP];
    ECH_CHECK(first >= 0 && first < ranks && last >= 0 && last < ranks, ECH_E_PROOF,
              "pipeline ranks %d and %d are tied, there are %d", first, last, ranks);
    ECH_CHECK(l->degree[ECH_AXIS_TIED] == (first == last ? 1 : 2), ECH_E_PROOF,
              "degree %d over tied, with pipeline ranks %d and %d", l->degree[ECH_AXIS_TIED], first,
              last);
    return ECH_OK;
}

static void set_strides(ech_mesh *m, const ech_layout *l)
{
    int stride = 1;
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        m->stride[l->order[k]] = stride;
        stride *= m->degree[l->order[k]];
    }
    m->world = stride;
    m->degree[ECH_AXIS_WORLD] = stride;
    m->stride[ECH_AXIS_WORLD] = 1;
    m->stride[ECH_AXIS_KV] = m->stride[ECH_AXIS_TP];
    m->tied = l->tied[0];
    m->stride[ECH_AXIS_TIED] = (l->tied[1] - l->tied[0]) * m->stride[ECH_AXIS_PP];
}

ech_status ech_mesh_make(const ech_layout *l, ech_mesh *out)
{
    ech_mesh m = {0};
    ECH_TRY(check_order(l));
    ECH_TRY(check_degrees(l));
    ECH_TRY(check_tied(l));
    for (int a = 0; a < ECH_N_AXES; a++)
        m.degree[a] = l->degree[a];
    set_strides(&m, l);
    *out = m;
    return ECH_OK;
}

ech_mesh ech_mesh_part(const ech_mesh *m, const ech_layout *l, const bool varies[ECH_N_AXES])
{
    ech_mesh part = {0};
    for (int a = 0; a < ECH_N_AXES; a++)
        part.degree[a] = varies[a] ? m->degree[a] : 1;
    part.degree[ECH_AXIS_KV] = varies[ECH_AXIS_TP] ? m->degree[ECH_AXIS_KV] : 1;
    part.degree[ECH_AXIS_TIED] = varies[ECH_AXIS_PP] ? m->degree[ECH_AXIS_TIED] : 1;
    set_strides(&part, l);
    return part;
}

/* Steps of a pair's stride from its first to the rank; anything but 0 and 1: it is in no pair. */
static int tied_steps(const ech_mesh *m, int rank)
{
    enum { IN_NONE = -1 };
    if (m->degree[ECH_AXIS_TIED] == 1)
        return IN_NONE;
    const int away = (ech_mesh_coord(m, rank, ECH_AXIS_PP) - m->tied) * m->stride[ECH_AXIS_PP];
    return away % m->stride[ECH_AXIS_TIED] ? IN_NONE : away / m->stride[ECH_AXIS_TIED];
}

int ech_mesh_coord(const ech_mesh *m, int rank, ech_axis axis)
{
    if (axis == ECH_AXIS_TIED)
        return tied_steps(m, rank) == 1;
    return m->stride[axis] ? rank / m->stride[axis] % m->degree[axis] : 0;
}

int ech_mesh_size(const ech_mesh *m, int rank, ech_axis axis)
{
    const int steps = axis == ECH_AXIS_TIED ? tied_steps(m, rank) : 0;
    return steps == 0 || steps == 1 ? m->degree[axis] : 1;
}

void ech_mesh_coords(const ech_mesh *m, int rank, int64_t coord[ECH_N_AXES])
{
    for (int a = 0; a < ECH_N_AXES; a++)
        coord[a] = ech_mesh_coord(m, rank, (ech_axis)a);
}

int ech_mesh_member(const ech_mesh *m, int rank, ech_axis axis, int index)
{
    return rank + (index - ech_mesh_coord(m, rank, axis)) * m->stride[axis];
}

const char *ech_mesh_describe(const ech_mesh *m, int rank, char *buf, size_t n)
{
    char where[96] = "";
    size_t at = 0;
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const ech_axis a = mesh_axes[k];
        if (m->degree[a] == 1 || at >= sizeof where)
            continue;
        at += (size_t)snprintf(where + at, sizeof where - at, "%s%s %d", at ? ", " : "",
                               ech_axis_name(a), ech_mesh_coord(m, rank, a));
    }
    (void)snprintf(buf, n, at ? "rank %d (%s)" : "rank %d%s", rank, where);
    return buf;
}

/* --- attributes --- */

static ech_status apply(ech_expr_op op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case ECH_EXPR_ADD:
        return ech_add_i64(a, b, out);
    case ECH_EXPR_MUL:
        return ech_mul_i64(a, b, out);
    case ECH_EXPR_DIV:
    case ECH_EXPR_MOD:
        ECH_CHECK(b > 0 && a >= 0, ECH_E_PROOF, "an attribute divides %lld by %lld", (long long)a,
                  (long long)b);
        *out = op == ECH_EXPR_DIV ? a / b : a % b;
        return ECH_OK;
    case ECH_EXPR_MIN:
        *out = a < b ? a : b;
        return ECH_OK;
    case ECH_EXPR_LE:
        *out = a <= b;
        return ECH_OK;
    case ECH_EXPR_CONST:
    case ECH_EXPR_COORD:
    case ECH_EXPR_MICRO:
        break;
    }
    return ECH_RAISE(ECH_E_PROOF, "an attribute has a node of kind %d", (int)op);
}

ech_status ech_mesh_eval(const ech_expr *e, const int64_t coord[ECH_N_AXES], int64_t micro,
                         int64_t *out)
{
    int64_t stack[ECH_EXPR_NODES] = {0};
    int top = 0;
    ECH_CHECK(e->n >= 0 && e->n <= ECH_EXPR_NODES, ECH_E_PROOF, "an attribute of %d nodes", e->n);
    for (int i = 0; i < e->n; i++) {
        const ech_expr_op op = e->node[i].op;
        const int64_t value = e->node[i].value;
        if (op == ECH_EXPR_CONST || op == ECH_EXPR_MICRO) {
            stack[top++] = op == ECH_EXPR_CONST ? value : micro;
        } else if (op == ECH_EXPR_COORD) {
            ECH_CHECK(value >= 0 && value < ECH_N_AXES, ECH_E_PROOF, "an attribute names axis %lld",
                      (long long)value);
            stack[top++] = coord[value];
        } else {
            ECH_CHECK(top >= 2, ECH_E_PROOF, "an attribute's node %d lacks operands", i);
            top--;
            ECH_TRY(apply(op, stack[top - 1], stack[top], &stack[top - 1]));
        }
    }
    ECH_CHECK(top == (e->n ? 1 : 0), ECH_E_PROOF, "an attribute leaves %d values", top);
    *out = stack[0];
    return ECH_OK;
}

void ech_mesh_note_axes(const ech_expr *e, bool varies[ECH_N_AXES])
{
    for (int i = 0; i < e->n && i < ECH_EXPR_NODES; i++) {
        if (e->node[i].op != ECH_EXPR_COORD)
            continue;
        for (int k = 0; k < ECH_MESH_AXES; k++)
            if (e->node[i].value == ECH_AXIS_WORLD || e->node[i].value == (int64_t)mesh_axes[k])
                varies[mesh_axes[k]] = true;
        if (e->node[i].value == ECH_AXIS_KV)
            varies[ECH_AXIS_TP] = true;
        if (e->node[i].value == ECH_AXIS_TIED)
            varies[ECH_AXIS_PP] = true;
    }
}
