#include "price/compose.h"
#include "base/checked.h"
#include "price/compose_private.h"

#include <stdlib.h>

static ech_status grow_values(ech_compose_room *room, size_t n)
{
    double *value;
    if (n <= room->capacity)
        return ECH_OK;
    ECH_TRY(ech_calloc(n, sizeof *value, &value));
    free(room->value);
    room->value = value;
    room->capacity = n;
    return ECH_OK;
}

static ech_status grow_counts(ech_compose_room *room, size_t n)
{
    int *count;
    if (n <= room->count_capacity)
        return ECH_OK;
    ECH_TRY(ech_calloc(n, sizeof *count, &count));
    free(room->count);
    room->count = count;
    room->count_capacity = n;
    room->order_ranks = 0; /* rings are listed there */
    return ECH_OK;
}

static ech_status grow_order(ech_compose_room *room, size_t n)
{
    uint16_t *order;
    if (n <= room->order_capacity)
        return ECH_OK;
    ECH_TRY(ech_calloc(n, sizeof *order, &order));
    free(room->order);
    room->order = order;
    room->order_capacity = n;
    room->order_ranks = 0;
    return ECH_OK;
}

ech_status ech_compose_reserve(ech_compose_room *room, int ranks, int group)
{
    const size_t lanes = ech_compose_lanes_room(ranks, group > ranks ? group : ranks);
    const size_t v = ech_compose_v_room(ranks);
    ECH_TRY(grow_values(room, lanes > v ? lanes : v));
    ECH_TRY(grow_counts(room, ech_compose_v_counts(ranks)));
    return grow_order(room, ech_compose_v_order(ranks));
}

void ech_compose_fini(ech_compose_room *room)
{
    free(room->value);
    free(room->count);
    free(room->order);
    *room = (ech_compose_room){0};
}

static bool is_split(ech_schedule_kind kind)
{
    return kind == ECH_SCHEDULE_ZB_H1 || kind == ECH_SCHEDULE_ZB_V;
}

/* Work of the busiest rank for one micro-batch. */
static double busiest(const ech_compose_spec *spec, int chunks)
{
    const int stages = spec->ranks * chunks;
    double most = 0;
    for (int r = 0; r < spec->ranks; r++) {
        double work = 0;
        for (int k = 0; k < chunks; k++) {
            const int turn = k * spec->ranks;
            const int s = spec->kind == ECH_SCHEDULE_ZB_V && k ? stages - 1 - r : turn + r;
            work +=
                spec->forward[s] + spec->backward[s] + (is_split(spec->kind) ? spec->weight[s] : 0);
        }
        most = ech_later(work, most);
    }
    return most;
}

/* The longest way through m equal jobs in a row of machines, there and back, is straight but for the
 * slowest stage, where it stays for all of them; the way back begins where the way there ends, and
 * every stage further on makes both longer. */
static void compose_gpipe(const ech_compose_spec *spec, ech_composed *out)
{
    double sum = 0;
    double forward = 0;
    double backward = 0;
    for (int r = 0; r < spec->ranks; r++) {
        sum += spec->forward[r] + spec->backward[r];
        forward = ech_later(spec->forward[r], forward);
        backward = ech_later(spec->backward[r], backward);
    }
    out->lambda_s = forward + backward;
    out->makespan_s =
        sum + 2 * (spec->ranks - 1) * spec->hop_s + (double)(spec->micros - 1) * out->lambda_s;
    out->skipped = spec->micros - 1;
}

static void compose(const ech_compose_spec *spec, int chunks, ech_compose_room *room,
                    ech_composed *out)
{
    if (spec->ranks == 1) {
        out->makespan_s = (double)spec->micros * out->lambda_s;
        out->skipped = spec->micros - 1;
        return;
    }
    switch (spec->kind) {
    case ECH_SCHEDULE_GPIPE:
        compose_gpipe(spec, out);
        break;
    case ECH_SCHEDULE_ZB_V:
        ech_compose_v(spec, room, out);
        break;
    default:
        if (chunks > 1)
            ech_compose_interleaved(spec, room, out);
        else
            ech_compose_1f1b(spec, room, out);
    }
}

ech_composed ech_compose(const ech_compose_spec *spec, ech_compose_room *room)
{
    const int chunks = ech_schedule_chunks(spec->kind, spec->chunks);
    if (spec->kind == ECH_SCHEDULE_FILE)
        return (ech_composed){.makespan_s = NAN, .last_warm_s = NAN, .lambda_s = NAN};
    ech_composed out = {.lambda_s = busiest(spec, chunks), .is_exact = true};
    for (int r = 0; r + 1 < spec->ranks; r++)
        out.last_warm_s += spec->forward[r] + spec->hop_s;
    compose(spec, chunks, room, &out);
    return out;
}
