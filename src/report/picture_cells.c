#include "report/picture_cells.h"
#include "report/picture.h"

#include <math.h>

static ech_paint paint_of(ech_role role)
{
    switch (role) {
    case ECH_ROLE_FORWARD:
        return ECH_PAINT_FORWARD;
    case ECH_ROLE_BACKWARD:
        return ECH_PAINT_BACKWARD;
    case ECH_ROLE_BACKWARD_INPUT:
        return ECH_PAINT_INPUT;
    case ECH_ROLE_BACKWARD_WEIGHT:
        return ECH_PAINT_WEIGHT;
    case ECH_ROLE_RECOMPUTE:
        return ECH_PAINT_RECOMPUTE;
    case ECH_ROLE_UPDATE:
        return ECH_PAINT_UPDATE;
    default:
        return ECH_PAINT_OTHER;
    }
}

static ech_cell_box work_of(const ech_program *p, const ech_bar *b)
{
    const ech_item *it = &p->item[b->item];
    return (ech_cell_box){paint_of(p->block[it->block].role), it->chunk, it->micro, b->begin_s,
                          b->end_s};
}

static bool is_alike(const ech_cell_box *a, const ech_cell_box *b)
{
    return a->paint == b->paint && a->chunk == b->chunk && a->micro == b->micro;
}

static double length(const ech_cell_box *c)
{
    return c->end_s - c->begin_s;
}

static ech_status add(ech_cell_row *row, const ech_cell_box *c)
{
    ECH_TRY(ech_grow(&row->cell, row->n, &row->capacity, sizeof *row->cell));
    row->cell[row->n++] = *c;
    return ECH_OK;
}

/* So no two cells begin within least_s, and a row has no more of them than it has room for. */
static ech_status add_work(ech_cell_row *row, const ech_cell_box *c, double least_s)
{
    ech_cell_box *last = row->n ? &row->cell[row->n - 1] : NULL;
    if (last && is_alike(last, c) && c->begin_s - last->end_s < least_s) {
        last->end_s = c->end_s > last->end_s ? c->end_s : last->end_s;
        return ECH_OK;
    }
    if (!last || c->begin_s - last->begin_s >= least_s)
        return add(row, c);
    const double begin = last->begin_s;
    const double end = c->end_s > last->end_s ? c->end_s : last->end_s;
    if (length(c) > length(last))
        *last = *c;
    last->begin_s = begin;
    last->end_s = end;
    return ECH_OK;
}

ech_status ech_picture_cells(const ech_timeline *l, int rank, double least_s, ech_cell_row *out)
{
    const ech_program *p = ech_timeline_program(l, rank);
    out->n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const ech_bar *b = &l->bar[i];
        if (b->rank != rank || b->lane != ECH_LANE_COMPUTE)
            continue;
        const ech_cell_box c = work_of(p, b);
        ECH_TRY(add_work(out, &c, least_s));
    }
    for (size_t i = 0; i < l->n; i++) {
        const ech_bar *b = &l->bar[i];
        const ech_cell_box c = {ECH_PAINT_WAIT, 0, -1, b->begin_s, b->end_s};
        if (b->rank == rank && b->lane == ECH_LANE_WAIT && length(&c) >= least_s)
            ECH_TRY(add(out, &c));
    }
    return ECH_OK;
}

bool ech_picture_is_drawn(const ech_timeline *l, int rank)
{
    int64_t coord[ECH_N_AXES];
    const ech_layout *layout = &ech_timeline_program(l, rank)->layout;
    if (l->world <= ECH_PICTURE_ROWS)
        return true;
    ech_layout_coords(layout, rank, coord);
    for (int i = 0; i < ECH_MESH_AXES; i++)
        if (layout->order[i] != ECH_AXIS_PP && coord[layout->order[i]])
            return false;
    return coord[ECH_AXIS_PP] < ECH_PICTURE_ROWS;
}

double ech_picture_tick(double span, int *decimals)
{
    const double power = floor(log10(span / 10.0));
    const double unit = pow(10.0, power);
    double step = 10.0 * unit;
    if (span <= 10.0 * unit)
        step = unit;
    else if (span <= 20.0 * unit)
        step = 2.0 * unit;
    else if (span <= 50.0 * unit)
        step = 5.0 * unit;
    *decimals = power < 0 ? (int)-power : 0;
    return step;
}
