#include "program/placement.h"

#include <stdio.h>

static const char *const map_names[] = {
    [ECH_MAP_SEQUENCES] = "sequences", [ECH_MAP_CONTIGUOUS] = "contiguous",
    [ECH_MAP_ZIGZAG] = "zig-zag",      [ECH_MAP_HEAD_GROUP] = "head group",
    [ECH_MAP_GATE_UP] = "gate-up",     [ECH_MAP_FLAT] = "flat",
    [ECH_MAP_SLICES] = "slices",
};

ech_place ech_place_of(ech_place_kind kind)
{
    return (ech_place){.kind = kind};
}

ech_place ech_place_sharded(int dim, ech_index_map map)
{
    return (ech_place){ECH_PLACE_SHARDED, dim, map};
}

ech_placement ech_placement_invariant(void)
{
    ech_placement p = {.scale = {.factor = 1.0}};
    for (int a = 0; a < ECH_N_AXES; a++)
        p.over[a] = ech_place_of(ECH_PLACE_INVARIANT);
    return p;
}

ech_scale ech_grad_scale(void)
{
    return (ech_scale){.loss_scale = 1, .per_token = 1, .factor = 1.0};
}

ech_placement ech_placement_with(ech_placement p, ech_axis axis, ech_place place)
{
    p.over[axis] = place;
    return p;
}

bool ech_place_is_equal(ech_place a, ech_place b)
{
    if (a.kind != b.kind)
        return false;
    return a.kind != ECH_PLACE_SHARDED || (a.dim == b.dim && a.map == b.map);
}

bool ech_scale_is_equal(ech_scale a, ech_scale b)
{
    const double d = a.factor - b.factor;
    return a.loss_scale == b.loss_scale && a.per_token == b.per_token && a.aux == b.aux &&
           d < 1e-12 && d > -1e-12;
}

bool ech_placement_is_equal(const ech_placement *a, const ech_placement *b)
{
    for (int x = 0; x < ECH_N_AXES; x++)
        if (!ech_place_is_equal(a->over[x], b->over[x]))
            return false;
    return ech_scale_is_equal(a->scale, b->scale);
}

const char *ech_place_format(ech_place p, char *buf, size_t n)
{
    static const char *const names[] = {
        [ECH_PLACE_INVARIANT] = "I", [ECH_PLACE_REPLICATED] = "R",     [ECH_PLACE_SHARDED] = "S",
        [ECH_PLACE_PARTIAL] = "P",   [ECH_PLACE_PARTIAL_MAX] = "Pmax", [ECH_PLACE_UNRELATED] = "V",
    };
    if (p.kind == ECH_PLACE_SHARDED)
        (void)snprintf(buf, n, "S(%d, %s)", p.dim, map_names[p.map]);
    else
        (void)snprintf(buf, n, "%s", names[p.kind]);
    return buf;
}

const char *ech_scale_format(ech_scale s, char *buf, size_t n)
{
    char factor[40] = "";
    char loss_scale[24] = "";
    char tokens[24] = "";
    char aux[24] = "";
    if (s.factor < 1.0 - 1e-12 || s.factor > 1.0 + 1e-12)
        (void)snprintf(factor, sizeof factor, " x %.6g", s.factor);
    if (s.loss_scale)
        (void)snprintf(loss_scale, sizeof loss_scale, " x loss_scale^%d", s.loss_scale);
    if (s.per_token)
        (void)snprintf(tokens, sizeof tokens, " x (1/tokens)^%d", s.per_token);
    if (s.aux)
        (void)snprintf(aux, sizeof aux, " x aux^%d", s.aux);
    (void)snprintf(buf, n, "1%s%s%s%s", loss_scale, tokens, aux, factor);
    return buf;
}
