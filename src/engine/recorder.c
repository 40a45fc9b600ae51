#include "engine/recorder.h"
#include "base/clock.h"

#include <stdlib.h>

enum { NONE = -1 };

struct ech_recorder {
    int rank;
    bool is_on;
    ech_bar *bar; /* owned [capacity] */
    size_t n, capacity;
    size_t lost;
    double begin_s, end_s;
    ech_bar *kernels;  /* of the item in work, into bar; NULL: the next kernel begins one */
    ech_bar *wait;     /* that blocks; NULL: none, or it had no room */
    bool is_blocked;   /* at a wait */
    ech_bar **message; /* owned [n_requests] into bar; NULL: not on its way, or without room */
    int *open;         /* owned [n_requests]: requests on their way that have a bar */
    int n_open;
};

/* --- creation --- */

static size_t bars_of(const ech_block *b)
{
    size_t n = 0;
    bool has_kernels = false;
    for (int k = 0; k < b->n_ops; k++) {
        const ech_op_row *row = ech_op_row_get(b->op[k].kind);
        n += row->is_wait ? 2 : row->is_start;
        has_kernels |= !row->is_start && !row->is_wait;
    }
    return n + has_kernels;
}

static ech_status init(ech_recorder *r, const ech_program *p)
{
    const size_t requests = p->n_requests > 0 ? (size_t)p->n_requests : 1;
    size_t *of_block;
    ECH_TRY(ech_calloc((size_t)p->n_blocks + 1, sizeof *of_block, &of_block));
    for (int b = 0; b < p->n_blocks; b++)
        of_block[b] = bars_of(&p->block[b]);
    for (int i = 0; i < p->n_items; i++)
        r->capacity += of_block[p->item[i].block];
    free(of_block);
    ECH_TRY(ech_calloc(r->capacity + 1, sizeof *r->bar, &r->bar));
    ECH_TRY(ech_calloc(requests, sizeof *r->message, &r->message));
    return ech_calloc(requests, sizeof *r->open, &r->open);
}

ech_status ech_recorder_create(const ech_program *p, int rank, ech_recorder **out)
{
    ech_recorder *r;
    ECH_TRY(ech_calloc(1, sizeof *r, &r));
    r->rank = rank;
    const ech_status st = init(r, p);
    if (st < 0) {
        ech_recorder_destroy(&r);
        return st;
    }
    *out = r;
    return ECH_OK;
}

void ech_recorder_destroy(ech_recorder **r)
{
    if (!*r)
        return;
    free((*r)->bar);
    free((void *)(*r)->message);
    free((*r)->open);
    free(*r);
    *r = NULL;
}

/* --- a step --- */

void ech_recorder_begin(ech_recorder *r)
{
    for (int i = 0; i < r->n_open; i++)
        r->message[r->open[i]] = NULL;
    r->n = r->lost = 0;
    r->n_open = 0;
    r->kernels = r->wait = NULL;
    r->is_blocked = false;
    r->is_on = true;
    r->begin_s = r->end_s = ech_clock_s();
}

void ech_recorder_end(ech_recorder *r)
{
    r->end_s = ech_clock_s();
    r->is_on = false;
}

bool ech_recorder_is_on(const ech_recorder *r)
{
    return r->is_on;
}

ech_recording ech_recorder_get(const ech_recorder *r)
{
    return (ech_recording){r->bar, r->n, r->lost, r->begin_s, r->end_s};
}

size_t ech_recorder_capacity(const ech_recorder *r)
{
    return r->capacity;
}

/* --- bars --- */

/* A new bar, without length yet; NULL where there is no room. */
static ech_bar *add(ech_recorder *r, ech_lane lane, const ech_op_place *at, double begin_s)
{
    if (r->n == r->capacity) {
        r->lost++;
        return NULL;
    }
    ech_bar *b = &r->bar[r->n++];
    *b = (ech_bar){.rank = r->rank,
                   .lane = lane,
                   .axis = at->axis,
                   .item = at->item,
                   .op = at->op,
                   .begin_s = begin_s,
                   .end_s = begin_s};
    return b;
}

void ech_recorder_kernel(ech_recorder *r, int item, double begin_s, double end_s)
{
    const ech_op_place at = {.item = item, .op = NONE, .request = NONE};
    if (!r->kernels || r->kernels->item != item)
        r->kernels = add(r, ECH_LANE_COMPUTE, &at, begin_s);
    if (r->kernels)
        r->kernels->end_s = end_s;
}

void ech_recorder_started(ech_recorder *r, const ech_op_place *at, double now_s)
{
    ech_bar *b = add(r, ECH_LANE_COMM, at, now_s);
    r->message[at->request] = b;
    if (b)
        r->open[r->n_open++] = at->request;
}

void ech_recorder_arrived(ech_recorder *r, int request, double now_s)
{
    if (!r->message[request])
        return;
    r->message[request]->end_s = now_s;
    r->message[request] = NULL;
    for (int i = 0; i < r->n_open; i++)
        if (r->open[i] == request)
            r->open[i] = r->open[--r->n_open];
}

void ech_recorder_blocked(ech_recorder *r, const ech_op_place *at, double now_s)
{
    if (r->is_blocked)
        return;
    r->is_blocked = true;
    r->kernels = NULL; /* what follows of the item is a bar of its own */
    r->wait = add(r, ECH_LANE_WAIT, at, now_s);
}

void ech_recorder_waited(ech_recorder *r, const ech_op_place *at, double now_s)
{
    ech_recorder_arrived(r, at->request, now_s);
    if (r->wait)
        r->wait->end_s = now_s;
    r->wait = NULL;
    r->is_blocked = false;
}

const int *ech_recorder_open(const ech_recorder *r, int *n)
{
    *n = r->n_open;
    return r->open;
}
