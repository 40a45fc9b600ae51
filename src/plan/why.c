/* Neighbours of the winner: one dimension changed to the next value that the space has, what has to
 * follow it changed too, and by which part of the step they lose. */
#include "plan/search_private.h"

#include <math.h>
#include <stdlib.h>

#define BIT(dim) (UINT32_C(1) << (dim))

/* Dimensions that may follow when one changes: replicas make up the GPUs, the shard group follows
 * them, virtual stages, schedule and cut follow pp. */
static uint32_t followers(ech_plan_dim dim)
{
    const uint32_t ranks = BIT(ECH_DIM_DP) | BIT(ECH_DIM_ZERO_GROUP);
    const uint32_t stages = BIT(ECH_DIM_SPLIT) | BIT(ECH_DIM_SCHEDULE);
    switch (dim) {
    case ECH_DIM_TP:
        return ranks | BIT(ECH_DIM_ETP) | BIT(ECH_DIM_SP);
    case ECH_DIM_PP:
        return ranks | stages | BIT(ECH_DIM_VPP) | BIT(ECH_DIM_ORDER) | BIT(ECH_DIM_REDUCE);
    case ECH_DIM_CP:
        return ranks | BIT(ECH_DIM_CP_KIND);
    case ECH_DIM_VPP:
    case ECH_DIM_SCHEDULE:
        return stages | BIT(ECH_DIM_VPP);
    case ECH_DIM_ZERO:
        return BIT(ECH_DIM_RESHARD) | BIT(ECH_DIM_REDUCE) | BIT(ECH_DIM_ZERO_GROUP);
    case ECH_DIM_MICRO:
        return BIT(ECH_DIM_REDUCE);
    case ECH_DIM_OFFLOAD_PARAMS:
        return BIT(ECH_DIM_OFFLOAD_OPTIMIZER) | BIT(ECH_DIM_ZERO);
    case ECH_DIM_OFFLOAD_OPTIMIZER:
        return BIT(ECH_DIM_OFFLOAD_PARAMS) | BIT(ECH_DIM_ZERO);
    default:
        return 0;
    }
}

/* From nothing over parts, by their number, to some and to all layers. */
static double recompute_value(const ech_point *p)
{
    const double whole = 1e3;
    double parts = 0.0;
    for (uint32_t r = p->recompute; r; r &= r - 1)
        parts += 1.0;
    if (p->recompute & ECH_RECOMPUTE_FULL)
        return p->recompute_layers ? 1e2 + p->recompute_layers : whole;
    return parts;
}

/* A number for each value of a dimension, in their order. */
static double value_of(ech_plan_dim dim, const ech_point *p)
{
    const double one[ECH_N_DIMS] = {
        [ECH_DIM_TP] = p->tp,
        [ECH_DIM_PP] = p->pp,
        [ECH_DIM_VPP] = p->vpp,
        [ECH_DIM_DP] = p->dp,
        [ECH_DIM_CP] = p->cp,
        [ECH_DIM_EP] = p->ep,
        [ECH_DIM_ETP] = p->etp,
        [ECH_DIM_ZERO] = p->zero_stage,
        [ECH_DIM_ZERO_GROUP] = p->zero_stage ? (double)ech_point_shard_group(p) : 0.0,
        [ECH_DIM_RESHARD] = p->zero_stage == 3 && p->reshard_after_forward,
        [ECH_DIM_SP] = p->sequence_parallel,
        [ECH_DIM_RECOMPUTE] = recompute_value(p),
        [ECH_DIM_OFFLOAD_OPTIMIZER] = (double)p->offload_optimizer,
        [ECH_DIM_OFFLOAD_PARAMS] = (double)p->offload_params,
        [ECH_DIM_OFFLOAD_ACTIVATIONS] = (double)p->offload_activations,
        [ECH_DIM_MICRO] = p->micro,
        [ECH_DIM_SCHEDULE] = p->pp > 1 ? (double)p->schedule : 0.0,
        [ECH_DIM_ORDER] = (double)p->order,
        [ECH_DIM_SPLIT] = p->pp > 1 ? (double)p->split : 0.0,
        [ECH_DIM_CP_KIND] = p->cp > 1 ? (double)p->cp_kind : 0.0,
        [ECH_DIM_REDUCE] = p->reduce_each,
    };
    return one[dim];
}

/* Does b differ from a in these dimensions alone. */
static bool differs_only(uint32_t dims, const ech_point *a, const ech_point *b)
{
    for (int d = 0; d < ECH_N_DIMS; d++)
        if (!(dims >> d & 1) && value_of((ech_plan_dim)d, a) != value_of((ech_plan_dim)d, b))
            return false;
    return true;
}

/* --- one dimension --- */

typedef struct side {
    bool is_found;
    double value; /* of the dimension */
    ech_neighbour at;
} side;

typedef struct seeker {
    ech_space space; /* a copy whose counts do not matter; its meshes are borrowed */
    ech_pricer *pricer;
    ech_footprint *room;
    const ech_candidate *winner;
    ech_plan_dim dim;
    uint32_t may_differ;
    side below, above;
    ech_pipe pipe[ECH_SPACE_PIPES];
    ech_work_way work[ECH_SPACE_WORKS];
    ech_state_way state[ECH_SPACE_STATES];
} seeker;

/* Nearer to the winner; as near: one that fits, the fastest. */
static bool is_better(const seeker *s, const side *to, double value, const ech_neighbour *n)
{
    const double home = value_of(s->dim, &s->winner->point);
    const double far = fabs(value - home);
    const double best = fabs(to->value - home);
    if (!to->is_found || far < best)
        return true;
    if (far > best)
        return false;
    if (n->fits != to->at.fits)
        return n->fits;
    return n->at.step.step_s < to->at.at.step.step_s;
}

static void try_point(seeker *s, const ech_point *p)
{
    const double home = value_of(s->dim, &s->winner->point);
    const double value = value_of(s->dim, p);
    side *to = value < home ? &s->below : &s->above;
    const char *binding;
    if (value == home || (to->is_found && fabs(value - home) > fabs(to->value - home)))
        return;
    ech_neighbour n = {.dim = s->dim, .is_legal = true};
    ech_search_price(s->pricer, &s->space.job, p, s->room, &n.at);
    n.fits = ech_search_fits(s->space.spec, &s->space.job, s->room, &binding);
    n.loses_by = n.fits ? NULL : binding;
    if (is_better(s, to, value, &n))
        *to = (side){.is_found = true, .value = value, .at = n};
}

/* Layouts of a mesh that differ from the winner in nothing but what may. */
static void seek_in(seeker *s, const ech_mesh *mesh)
{
    const ech_point *w = &s->winner->point;
    const int n_pipes = ech_space_pipes(&s->space, mesh, s->pipe);
    const int n_states = ech_space_states(&s->space, mesh, s->state);
    const ech_work_way some_work = {.micro = w->micro,
                                    .recompute_layers = w->recompute_layers,
                                    .recompute = w->recompute,
                                    .cp_kind = w->cp_kind,
                                    .sequence_parallel = w->sequence_parallel,
                                    .activations = w->offload_activations};
    const ech_state_way some_state = {.zero_stage = w->zero_stage,
                                      .zero_group = w->zero_group,
                                      .reshard = w->reshard_after_forward,
                                      .reduce_each = w->reduce_each,
                                      .optimizer = w->offload_optimizer,
                                      .params = w->offload_params};
    const uint32_t group = BIT(ECH_DIM_ZERO_GROUP); /* follows dp by itself */
    for (int i = 0; i < n_pipes; i++) {
        ech_point p = ech_space_point(&s->space, mesh, &s->pipe[i], &some_work, &some_state);
        if (!differs_only(s->may_differ | group, w, &p))
            continue;
        const int n_works = ech_space_works(&s->space, mesh, &s->pipe[i], s->work);
        for (int k = 0; k < n_works; k++) {
            p = ech_space_point(&s->space, mesh, &s->pipe[i], &s->work[k], &some_state);
            if (!differs_only(s->may_differ | group, w, &p))
                continue;
            for (int z = 0; z < n_states; z++) {
                p = ech_space_point(&s->space, mesh, &s->pipe[i], &s->work[k], &s->state[z]);
                if (differs_only(s->may_differ, w, &p) &&
                    ech_space_counts(&s->space, mesh, &s->work[k], &s->state[z]))
                    try_point(s, &p);
            }
        }
    }
}

/* Degrees that may differ; all others are the winner's. */
static bool is_near(const seeker *s, const ech_mesh *m)
{
    const ech_point *w = &s->winner->point;
    const int32_t a[] = {w->tp, w->pp, w->cp, w->ep, w->etp};
    const int32_t b[] = {m->tp, m->pp, m->cp, m->ep, m->etp};
    const ech_plan_dim dim[] = {ECH_DIM_TP, ECH_DIM_PP, ECH_DIM_CP, ECH_DIM_EP, ECH_DIM_ETP};
    for (int i = 0; i < 5; i++)
        if (a[i] != b[i] && !(s->may_differ >> dim[i] & 1))
            return false;
    return true;
}

/* --- why they lose --- */

typedef struct part {
    const char *name;
    double seconds;
} part;

enum { MOST_PARTS = ECH_N_AXES + 6 };

static int parts_of(const ech_step_price *p, part *out)
{
    static const char *const axis[ECH_N_AXES] = {[ECH_AXIS_TP] = "exposed tp",
                                                 [ECH_AXIS_CP] = "exposed cp",
                                                 [ECH_AXIS_EP] = "exposed ep",
                                                 [ECH_AXIS_DP] = "exposed dp",
                                                 [ECH_AXIS_PP] = "exposed pp",
                                                 [ECH_AXIS_EDP] = "exposed edp",
                                                 [ECH_AXIS_HSDP] = "exposed hsdp",
                                                 [ECH_AXIS_TIED] = "exposed tied embedding",
                                                 [ECH_AXIS_KV] = "exposed key/value heads",
                                                 [ECH_AXIS_WORLD] = "exposed world"};
    int n = 0;
    out[n++] = (part){"compute", p->compute_s};
    out[n++] = (part){"recompute", p->recompute_s};
    out[n++] = (part){"bubble", p->bubble_s};
    out[n++] = (part){"offload", p->offload_s};
    out[n++] = (part){"optimizer", p->optimizer_s};
    out[n++] = (part){"fixed costs", p->fixed_s};
    for (int a = 0; a < ECH_N_AXES; a++)
        out[n++] = (part){axis[a], p->exposed_s[a]};
    return n;
}

static void explain(const ech_candidate *winner, ech_neighbour *n)
{
    part before[MOST_PARTS];
    part after[MOST_PARTS];
    const int count = parts_of(&winner->step, before);
    (void)parts_of(&n->at.step, after);
    n->by_s = n->at.step.step_s - winner->step.step_s;
    double most = 0.0;
    for (int i = 0; i < count && n->fits; i++)
        if (after[i].seconds - before[i].seconds > most) {
            most = after[i].seconds - before[i].seconds;
            n->loses_by = after[i].name;
        }
    if (!n->loses_by) /* as fast: what else is compared */
        n->loses_by = n->at.reserved_bytes > winner->reserved_bytes ? "memory" : "more axes";
}

static void seek(seeker *s, ech_plan_dim dim, ech_plan *out)
{
    s->dim = dim;
    s->may_differ = BIT(dim) | followers(dim);
    s->below.is_found = s->above.is_found = false;
    for (size_t i = 0; i < s->space.n_meshes; i++)
        if (is_near(s, &s->space.mesh[i]))
            seek_in(s, &s->space.mesh[i]);
    side *both[] = {&s->below, &s->above};
    for (int i = 0; i < 2; i++) {
        if (!both[i]->is_found)
            continue;
        explain(s->winner, &both[i]->at);
        out->neighbour[out->n_neighbours++] = both[i]->at;
    }
}

ech_status ech_search_neighbours(const ech_space *space, ech_pricer *pricer, ech_footprint *room,
                                 ech_plan *out)
{
    seeker *s = calloc(1, sizeof *s);
    ECH_CHECK(s, ECH_E_NOMEM, "neighbours of a layout");
    s->space = *space;
    s->pricer = pricer;
    s->room = room;
    s->winner = &out->best[0];
    for (int d = 0; d < ECH_N_DIMS; d++)
        if (d != ECH_DIM_DP && !ech_is_pinned(space->spec, (ech_plan_dim)d))
            seek(s, (ech_plan_dim)d, out);
    free(s);
    return ECH_OK;
}

void ech_plan_dim_print(ech_plan_dim dim, const ech_point *p, ech_text *out)
{
    static const char *const yes_no[] = {"off", "on"};
    switch (dim) {
    case ECH_DIM_RECOMPUTE:
        ech_recompute_print(p->recompute, p->recompute_layers, out);
        return;
    case ECH_DIM_SCHEDULE:
        ech_text_add(out, "%s", ech_schedule_name(p->schedule));
        return;
    case ECH_DIM_ORDER:
        ech_text_add(out, "%s", ech_order_name(p->order));
        return;
    case ECH_DIM_SPLIT:
        ech_text_add(out, "%s", ech_stage_split_name(p->split));
        return;
    case ECH_DIM_CP_KIND:
        ech_text_add(out, "%s", ech_cp_kind_name(p->cp_kind));
        return;
    case ECH_DIM_OFFLOAD_OPTIMIZER:
        ech_text_add(out, "%s", ech_offload_name(p->offload_optimizer));
        return;
    case ECH_DIM_OFFLOAD_PARAMS:
        ech_text_add(out, "%s", ech_offload_name(p->offload_params));
        return;
    case ECH_DIM_OFFLOAD_ACTIVATIONS:
        ech_text_add(out, "%s", ech_offload_name(p->offload_activations));
        return;
    case ECH_DIM_SP:
        ech_text_add(out, "%s", yes_no[p->sequence_parallel]);
        return;
    case ECH_DIM_RESHARD:
        ech_text_add(out, "%s", yes_no[p->reshard_after_forward]);
        return;
    case ECH_DIM_REDUCE:
        ech_text_add(out, "%s", p->reduce_each ? "each" : "last");
        return;
    default:
        break;
    }
    const int32_t number[ECH_N_DIMS] = {[ECH_DIM_TP] = p->tp,
                                        [ECH_DIM_PP] = p->pp,
                                        [ECH_DIM_VPP] = p->vpp,
                                        [ECH_DIM_DP] = p->dp,
                                        [ECH_DIM_CP] = p->cp,
                                        [ECH_DIM_EP] = p->ep,
                                        [ECH_DIM_ETP] = p->etp,
                                        [ECH_DIM_ZERO] = p->zero_stage,
                                        [ECH_DIM_ZERO_GROUP] = p->zero_group,
                                        [ECH_DIM_MICRO] = p->micro};
    if (dim == ECH_DIM_ZERO_GROUP && p->zero_group == 0)
        ech_text_add(out, "all");
    else
        ech_text_add(out, "%d", number[dim]);
}
