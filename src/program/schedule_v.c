#include "program/schedule_v.h"

#include <stddef.h>

ech_work_kind ech_v_kind(ech_v_slot slot)
{
    static const ech_work_kind kind[ECH_N_V_SLOTS] = {ECH_WORK_FORWARD, ECH_WORK_FORWARD,
                                                      ECH_WORK_INPUT,   ECH_WORK_INPUT,
                                                      ECH_WORK_WEIGHT,  ECH_WORK_WEIGHT};
    return kind[slot];
}

int ech_v_stage(int ranks, int rank, ech_v_slot slot)
{
    return slot % 2 == 0 ? rank : 2 * ranks - 1 - rank;
}

int ech_v_from(ech_v_slot slot)
{
    static const int from[ECH_N_V_SLOTS] = {-1, 1, 1, -1, 0, 0};
    return from[slot];
}

/* A rank fills up with 2p chunks' activations while the first micro-batches go down the V and back;
 * then F I W of both chunks in turn keeps it full; at the end I go first and W fill what would be
 * idle. */
static const struct {
    int n;
    ech_v_slot slot[6];
} pattern[ECH_V_PHASES] = {
    {1, {ECH_V_F0}},
    {2, {ECH_V_F1, ECH_V_F0}},
    {3, {ECH_V_F1, ECH_V_I1, ECH_V_W1}},
    {6, {ECH_V_F0, ECH_V_I0, ECH_V_W0, ECH_V_F1, ECH_V_I1, ECH_V_W1}},
    {5, {ECH_V_I0, ECH_V_W0, ECH_V_F1, ECH_V_I1, ECH_V_W1}},
    {2, {ECH_V_I0, ECH_V_I1}},
    {2, {ECH_V_I0, ECH_V_W0}},
    {1, {ECH_V_W1}},
    {1, {ECH_V_W0}},
};

ech_v_cursor ech_v_begin(int ranks, int rank, int micros)
{
    const int p = ranks;
    const int r = rank;
    const int m = micros > 2 * p - 1 ? micros : 2 * p - 1;
    return (ech_v_cursor){
        .repeats = {2 * (p - r) - 1, r, p - r, m - 2 * p + r + 1, p - r - 1, r, p - r, r, r}};
}

bool ech_v_next(ech_v_cursor *c, ech_v_cell *out)
{
    while (c->repeats[c->phase] == 0)
        if (++c->phase == ECH_V_PHASES) {
            c->phase--;
            return false;
        }
    const ech_v_slot slot = pattern[c->phase].slot[c->within];
    *out = (ech_v_cell){slot, c->done[slot]++};
    if (++c->within == pattern[c->phase].n) {
        c->within = 0;
        c->repeats[c->phase]--;
    }
    return true;
}

static bool few_ready(const ech_v_few *v, int rank, ech_v_slot slot)
{
    const int *own = &v->done[(ptrdiff_t)rank * ECH_N_V_SLOTS];
    const int from = rank + ech_v_from(slot);
    const bool is_end = from < 0 || from == v->ranks;
    const int *other = is_end ? own : own + ech_v_from(slot) * ECH_N_V_SLOTS;
    switch (slot) {
    case ECH_V_F0:
        return own[slot] < (is_end ? v->micros : other[slot]);
    case ECH_V_F1:
        return own[slot] < (is_end ? own[ECH_V_F0] : other[slot]);
    case ECH_V_I1:
        return own[slot] < (is_end ? own[ECH_V_F1] : other[slot]);
    case ECH_V_I0:
        return own[slot] < (is_end ? own[ECH_V_I1] : other[slot]);
    default:
        return own[slot] < own[slot - 2]; /* W after its I */
    }
}

static ech_v_slot few_choose(const ech_v_few *v, int rank)
{
    static const ech_v_slot order[] = {ECH_V_I1, ECH_V_F1, ECH_V_I0, ECH_V_F0, ECH_V_W0, ECH_V_W1};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++)
        if (few_ready(v, rank, order[k]))
            return order[k];
    return ECH_N_V_SLOTS;
}

int ech_v_few_step(ech_v_few *v, ech_v_cell *cell)
{
    int taken = 0;
    for (int r = 0; r < v->ranks; r++) /* all see what had ended when the step began */
        cell[r].slot = few_choose(v, r);
    for (int r = 0; r < v->ranks; r++) {
        if (cell[r].slot == ECH_N_V_SLOTS)
            continue;
        cell[r].micro = v->done[(ptrdiff_t)r * ECH_N_V_SLOTS + cell[r].slot]++;
        taken++;
    }
    return taken;
}
