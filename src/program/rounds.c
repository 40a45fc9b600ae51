/* Rounds of a plain program: is what is known of its bytes at the end of a round what it is at the end
 * of the next. */
#include "program/repeat.h"

#include <stdlib.h>
#include <string.h>

int ech_rounds_ending(const ech_program *p, int item)
{
    const ech_repeat *r = &p->rounds;
    const int last = r->first + (r->end - r->first) * r->times - 1;
    if (r->times < 2)
        return 0;
    return item == last ? 2 : item == last - (r->end - r->first) ? 1 : 0;
}

bool ech_rounds_follows(const ech_program *p, int a, int b)
{
    if (a < 0 || b < 0)
        return a == b;
    const ech_item *x = &p->item[a];
    const ech_item *y = &p->item[b];
    return x->block == y->block && x->layer == y->layer && x->chunk == y->chunk &&
           y->micro == (x->micro < 0 ? x->micro : x->micro + p->rounds.step);
}

/* A slot's bytes at the end of a round and of the next. */
typedef struct two_rounds {
    const ech_program *p;
    const ech_rounds_values *values;
    int slot;
    ech_interval_map *before, *after;
} two_rounds;

static ech_status fault(const two_rounds *t, size_t byte)
{
    return ECH_RAISE(ECH_E_PROOF,
                     "items %d to %d repeat %d times, but the last time leaves byte %zu of slot %d "
                     "('%s') otherwise than the time before",
                     t->p->rounds.first, t->p->rounds.end - 1, t->p->rounds.times, byte, t->slot,
                     t->p->slot[t->slot].name);
}

/* Bytes of which one thing is known against those that begin at `to` a round later. */
static ech_status compare_segment(const two_rounds *t, const ech_bytes_segment *seg, size_t to)
{
    ech_interval_at at;
    int n;
    ECH_TRY(
        ech_interval_cover(t->after, to, to + (seg->end - seg->begin), t->values->fresh, &at, &n));
    for (; n > 0; n--)
        if (!t->values->same(t->values->ctx, seg->value, ech_interval_next(t->after, &at)->value))
            return fault(t, to);
    return ECH_OK;
}

/* Bytes [begin, end) against those that begin at `to` a round later. */
static ech_status compare_range(const two_rounds *t, size_t begin, size_t end, size_t to)
{
    ech_interval_at at;
    int n;
    ECH_TRY(ech_interval_cover(t->before, begin, end, t->values->fresh, &at, &n));
    for (; n > 0; n--) {
        const ech_bytes_segment seg = *ech_interval_next(t->before, &at);
        ECH_TRY(compare_segment(t, &seg, to + (seg.begin - begin)));
    }
    return ECH_OK;
}

/* Does a transient slot live within one round, or outside of them all. */
static bool is_within(const ech_program *p, int slot, bool *crosses)
{
    const ech_repeat *r = &p->rounds;
    const ech_slot *s = &p->slot[slot];
    const int n = r->end - r->first;
    const int end = r->first + n * r->times;
    *crosses = false;
    if (s->is_state || s->ring)
        return false;
    if (s->first < 0 || s->last < r->first || s->first >= end)
        return true;
    *crosses = s->first >= r->first &&
               (s->last >= end || (s->first - r->first) / n != (s->last - r->first) / n);
    return s->first >= r->first;
}

static ech_status compare_slot(const two_rounds *t)
{
    bool crosses;
    const ech_slot *s = &t->p->slot[t->slot];
    const ech_repeat *r = &t->p->rounds;
    const bool is_passed = is_within(t->p, t->slot, &crosses);
    ECH_CHECK(!crosses, ECH_E_PROOF,
              "items %d to %d repeat %d times, but slot %d ('%s') goes from one time to the next "
              "and is no ring",
              r->first, r->end - 1, r->times, t->slot, s->name);
    size_t on = s->micro_bytes * (size_t)r->step;
    if (s->ring)
        on %= s->bytes;
    if (is_passed || s->bytes <= on) /* no element has one that follows */
        return ECH_OK;
    ECH_TRY(compare_range(t, 0, s->bytes - on, on));
    return s->ring ? compare_range(t, s->bytes - on, s->bytes, 0) : ECH_OK;
}

static ech_status keep(const ech_program *p, const ech_interval_map *map, ech_rounds_memory *m)
{
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof *m->map, &m->map));
    m->n = p->n_slots;
    for (int s = 0; s < p->n_slots; s++)
        ECH_TRY(ech_interval_copy(&map[s], &m->map[s]));
    return ECH_OK;
}

ech_status ech_rounds_note(const ech_program *p, int item, ech_interval_map *map,
                           const ech_rounds_values *values, ech_rounds_memory *m)
{
    const int ending = ech_rounds_ending(p, item);
    if (ending == 1)
        return keep(p, map, m);
    for (int s = 0; s < p->n_slots && ending == 2; s++) {
        const two_rounds t = {p, values, s, &m->map[s], &map[s]};
        ECH_TRY(compare_slot(&t));
    }
    return ECH_OK;
}

void ech_rounds_forget(ech_rounds_memory *m)
{
    for (int s = 0; m->map && s < m->n; s++)
        ech_interval_fini(&m->map[s]);
    free(m->map);
    *m = (ech_rounds_memory){0};
}
