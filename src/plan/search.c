/* Exact search.  Meshes, pipes, works and states in turn (plan/space.h).  What is skipped cannot be
 * among the best or on the front:
 *
 *  - a state whose weights, gradients, master and moments alone do not fit: they do not depend on the
 *    micro-batch or on what is recomputed;
 *  - a work that is too slow even with state that costs no time: what replicas, updates and offload
 *    take comes on top of the pipeline;
 *  - the two together, stage by stage, where less memory would have to be had for the time.
 *
 * tests/plan/test_search.c holds the answer equal to that of looking at every layout. */
#include "base/clock.h"
#include "plan/search_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums are not associative: a bound is so much below what it bounds. */
#define BELOW (1.0 - 1e-9)

/* What replicas, update and offload take is charged with stragglers on top, at most so much. */
#define ADDED 1.25

/* The least doubt of a verdict: what holds more than the capacity less this does not fit. */
static const double least_doubt = 0.03, most_doubt = 0.25;

/* Bounds of works on one kind of mesh: asked for again under each pipe. */
enum { KEPT_BOUNDS = 1024 };

typedef struct kept_bound {
    uint64_t key; /* 0: empty */
    double seconds;
} kept_bound;

typedef struct searcher {
    const ech_search_spec *spec;
    ech_space space;
    ech_pricer *pricer; /* owned: of space.job */
    ech_plan *out;
    ech_frontier frontier;
    double room_bytes; /* what holds more does not fit */
    bool is_first_look;
    int64_t misfits;
    double least_miss; /* by which the nearest layout misses */
    ech_footprint footprint, light;
    ech_pipe pipe[ECH_SPACE_PIPES];
    ech_work_way work[ECH_SPACE_WORKS];
    ech_state_way state[ECH_SPACE_STATES];
    int n_pipes, n_works, n_states;
    int lightest;                             /* state */
    int layers[ECH_SHAPE_STAGES];             /* of each stage of the pipe in hand */
    ech_stage_shape cut[2][ECH_SHAPE_STAGES]; /* of this pipe and the one before */
    int at, n_cut;
    bool fits_alone[ECH_SPACE_STATES]; /* state alone */
    ech_mesh kept_for;                 /* pp and dp do not matter */
    kept_bound kept[KEPT_BOUNDS];
    double held[ECH_SPACE_STATES][ECH_FOOTPRINT_STAGES]; /* bytes of it, a stage */
} searcher;

/* --- verdicts --- */

bool ech_search_fits(const ech_search_spec *spec, const ech_job *job, const ech_footprint *f,
                     const char **binding)
{
    const double usable = job->cluster->device.usable_bytes;
    const ech_fit fit = ech_footprint_fit(job, f, binding);
    const bool has_room = f->reserved_bytes <= usable * (1.0 - spec->headroom);
    return has_room && (fit == ECH_FIT_YES || (fit == ECH_FIT_EDGE && spec->wants_edge));
}

static double room_of(const ech_search_spec *spec)
{
    const double usable = spec->job->cluster->device.usable_bytes;
    const double doubt =
        spec->wants_edge ? usable / (1.0 - most_doubt) : usable / (1.0 + least_doubt);
    return fmin(doubt, usable * (1.0 - spec->headroom));
}

void ech_search_price(ech_pricer *pricer, const ech_job *job, const ech_point *point,
                      ech_footprint *room, ech_candidate *out)
{
    const char *binding;
    *out = (ech_candidate){.point = *point, .gpus = job->gpus};
    ech_pricer_step(pricer, point, NULL, &out->step);
    ech_footprint_of(job, point, NULL, room);
    out->reserved_bytes = room->reserved_bytes;
    out->allocated_bytes = room->allocated_bytes;
    out->host_node_bytes = room->host_node_bytes;
    out->fit = ech_footprint_fit(job, room, &binding);
    out->dollars_per_step =
        out->step.step_s / 3600.0 * (double)job->gpus * job->cluster->device.dollars_per_hour;
}

/* --- layouts --- */

/* Cut the layers of a pipe once for all that is asked about it.  Returns whether the stages are others
 * than those of the pipe before. */
static bool cut_layers(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe)
{
    static const ech_work_way work = {.micro = 1};
    static const ech_state_way state = {.reshard = true};
    ech_stage_shape *before = s->cut[s->at];
    ech_stage_shape *now = s->cut[s->at = !s->at];
    const ech_point p = ech_space_point(&s->space, mesh, pipe, &work, &state);
    const int n = ech_shape_cut(&s->space.job, &p, now);
    for (int i = 0; i < n; i++)
        s->layers[i] = now[i].dense + now[i].sparse;
    const bool is_same = s->n_cut == n && memcmp(before, now, (size_t)n * sizeof *now) == 0;
    s->n_cut = n;
    return !is_same;
}

/* The layout with its stages listed, which asks for the same with less work. */
static ech_point listed(const searcher *s, const ech_mesh *mesh, const ech_pipe *pipe,
                        const ech_work_way *work, const ech_state_way *state)
{
    ech_point p = ech_space_point(&s->space, mesh, pipe, work, state);
    p.split = ECH_SPLIT_LIST;
    p.stage_layers = s->layers;
    return p;
}

/* --- bounds --- */

static double state_bytes(const ech_footprint_stage *s)
{
    return s->held[ECH_USE_PARAMS] + s->held[ECH_USE_GRADS] + s->held[ECH_USE_MASTER] +
           s->held[ECH_USE_OPTIMIZER];
}

static double work_bytes(const ech_footprint_stage *s)
{
    return s->held[ECH_USE_SAVED];
}

/* The work with the largest micro-batch accumulates least: gradients are then no more than under any
 * other. */
static const ech_work_way *least_accumulating(const searcher *s)
{
    const ech_work_way *least = &s->work[0];
    for (int i = 1; i < s->n_works; i++)
        if (s->work[i].micro > least->micro)
            least = &s->work[i];
    return least;
}

/* What each state holds of itself under a pipe, and whether that fits. */
static void bound_states(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe)
{
    const ech_work_way *work = least_accumulating(s);
    for (int i = 0; i < s->n_states; i++) {
        double most = 0.0;
        const ech_point p = listed(s, mesh, pipe, work, &s->state[i]);
        ech_footprint_of(&s->space.job, &p, NULL, &s->footprint);
        for (int k = 0; k < s->footprint.n_stages; k++) {
            s->held[i][k] = state_bytes(&s->footprint.stage[k]);
            most = fmax(most, s->held[i][k]);
        }
        s->fits_alone[i] = most * BELOW <= s->room_bytes;
    }
}

/* Where tp's ranks are matters too: with replicas innermost they are as far apart as dp says, which is
 * another number under each mesh. */
static uint64_t key_of(const ech_work_way *w, const ech_mesh *mesh, ech_order order)
{
    const uint64_t apart = order == ECH_ORDER_DP_TP_PP ? (uint64_t)mesh->dp : 0;
    return UINT64_C(1) << 63 | apart << 38 | (uint64_t)w->micro << 20 |
           (uint64_t)w->recompute << 8 | (uint64_t)(w->recompute_layers > 0) << 5 |
           (uint64_t)w->cp_kind << 2 | (uint64_t)w->sequence_parallel << 1;
}

static void forget_bounds(searcher *s, const ech_mesh *mesh)
{
    const ech_mesh *k = &s->kept_for;
    if (k->tp == mesh->tp && k->cp == mesh->cp && k->ep == mesh->ep && k->etp == mesh->etp)
        return;
    memset(s->kept, 0, sizeof s->kept);
    s->kept_for = *mesh;
}

/* What the mean rank works and waits for tp, cp and ep: asked for once for all pipes. */
static double bound_mean(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe,
                         const ech_work_way *work)
{
    static const ech_state_way nothing = {.reshard = true};
    const uint64_t key = key_of(work, mesh, pipe->order);
    kept_bound *kept = &s->kept[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
    if (kept->key != key) {
        const ech_point p = listed(s, mesh, pipe, work, &nothing);
        *kept = (kept_bound){key, ech_pricer_bound(s->pricer, &p) * BELOW};
    }
    return kept->seconds;
}

/* Seconds of a work whatever its state. */
static double bound_time(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe,
                         const ech_work_way *work)
{
    static const ech_state_way nothing = {.reshard = true};
    ech_step_price price;
    const ech_point p = listed(s, mesh, pipe, work, &nothing);
    ech_pricer_step(s->pricer, &p, NULL, &price);
    const double added = price.exposed_s[ECH_AXIS_DP] + price.exposed_s[ECH_AXIS_EDP] +
                         price.exposed_s[ECH_AXIS_HSDP] + price.optimizer_s;
    return (price.step_s - ADDED * added) * BELOW;
}

/* Bytes of a state and a work together on the fullest stage; s->light: of the work, under the state
 * that holds least. */
static double bound_bytes(const searcher *s, int state)
{
    double most = 0.0;
    for (int k = 0; k < s->light.n_stages; k++)
        most = fmax(most, s->held[state][k] + work_bytes(&s->light.stage[k]));
    return most * BELOW;
}

static int lightest_state(const searcher *s)
{
    int least = -1;
    double bytes = INFINITY;
    for (int i = 0; i < s->n_states; i++)
        if (s->fits_alone[i] && s->held[i][0] < bytes) {
            bytes = s->held[i][0];
            least = i;
        }
    return least;
}

/* --- one layout --- */

/* Memory first, time of what fits and can still get in.  `split`: how the pipe is cut. */
static void look_at(searcher *s, const ech_point *p, ech_stage_split split, double bound_s)
{
    const char *binding;
    ech_step_price price;
    ech_footprint_of(&s->space.job, p, NULL, &s->footprint);
    if (!ech_search_fits(s->spec, &s->space.job, &s->footprint, &binding)) {
        s->misfits += !s->is_first_look;
        ech_space_reject(&s->space, binding, true, !s->is_first_look);
        return;
    }
    if (!s->spec->is_brute &&
        !ech_frontier_takes(&s->frontier, bound_s, s->footprint.reserved_bytes)) {
        s->out->pruned += !s->is_first_look;
        return;
    }
    ech_pricer_step(s->pricer, p, NULL, &price);
    s->out->evaluated += !s->is_first_look;
    if (s->is_first_look)
        ech_frontier_seed(&s->frontier, price.step_s, s->footprint.reserved_bytes);
    else {
        ech_found x = {*p, price.step_s, s->footprint.reserved_bytes};
        x.point.split = split;
        x.point.stage_layers = split == ECH_SPLIT_LIST ? s->spec->pin.stage_layers : NULL;
        ech_frontier_add(&s->frontier, &x);
    }
}

static void skip(searcher *s, int64_t n)
{
    s->out->pruned += s->is_first_look ? 0 : n;
}

/* All states of a work. */
static void skip_work(searcher *s, const ech_mesh *mesh, const ech_work_way *work)
{
    for (int i = 0; i < s->n_states && !s->is_first_look; i++)
        skip(s, ech_space_counts(&s->space, mesh, work, &s->state[i]));
}

/* States of a work.  A first look takes every third. */
static void look_at_states(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe,
                           const ech_work_way *work, double bound_s)
{
    for (int i = 0; i < s->n_states; i += s->is_first_look ? 3 : 1) {
        if (!ech_space_counts(&s->space, mesh, work, &s->state[i]))
            continue;
        if (!s->spec->is_brute && !s->fits_alone[i]) {
            ech_space_reject(&s->space, "model state", true, !s->is_first_look);
            skip(s, 1);
            continue;
        }
        if (!s->spec->is_brute && !ech_frontier_takes(&s->frontier, bound_s, bound_bytes(s, i))) {
            skip(s, 1);
            continue;
        }
        const ech_point p = listed(s, mesh, pipe, work, &s->state[i]);
        look_at(s, &p, pipe->split, bound_s);
    }
}

/* The least bytes that a state and the work hold together; INFINITY: no state fits. */
static double bound_work(const searcher *s)
{
    double least = INFINITY;
    for (int i = 0; i < s->n_states; i++)
        if (s->fits_alone[i])
            least = fmin(least, bound_bytes(s, i));
    return least <= s->room_bytes ? least : INFINITY;
}

/* One order of a pipe: what is cheap to ask comes first.  s->light holds the work's bytes where
 * `has_light` says so. */
static void look_at_order(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe,
                          const ech_work_way *work, bool *has_light)
{
    const double least = s->held[s->lightest][0];
    const double mean_s = bound_mean(s, mesh, pipe, work);
    if (!ech_frontier_takes(&s->frontier, mean_s, least)) {
        skip_work(s, mesh, work);
        return;
    }
    if (!*has_light) {
        const ech_point p = listed(s, mesh, pipe, work, &s->state[s->lightest]);
        ech_footprint_of(&s->space.job, &p, NULL, &s->light);
        *has_light = true;
    }
    const double bytes = bound_work(s);
    if (isinf(bytes)) {
        const int64_t before = s->out->pruned;
        skip_work(s, mesh, work);
        ech_space_reject(&s->space, ech_use_name(ECH_USE_SAVED), true, s->out->pruned - before);
        return;
    }
    const double bound_s = ech_frontier_takes(&s->frontier, mean_s, bytes)
                               ? bound_time(s, mesh, pipe, work)
                               : INFINITY;
    if (ech_frontier_takes(&s->frontier, bound_s, bytes))
        look_at_states(s, mesh, pipe, work, bound_s);
    else
        skip_work(s, mesh, work);
}

/* Every layout of a pipe. */
static void look_at_all_works(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe)
{
    for (int k = 0; k < s->n_works; k++)
        look_at_states(s, mesh, pipe, &s->work[k], 0.0);
}

/* Pipes that differ in their order alone: memory is the same. */
static void look_at_works(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe, int n,
                          bool is_cut_anew)
{
    if (is_cut_anew) /* else they hold what they held */
        bound_states(s, mesh, pipe);
    s->lightest = lightest_state(s);
    if (s->lightest < 0) {
        const int64_t before = s->out->pruned;
        for (int k = 0; k < n * s->n_works; k++)
            skip_work(s, mesh, &s->work[k / n]);
        ech_space_reject(&s->space, "model state", true, s->out->pruned - before);
        return;
    }
    for (int k = 0; k < s->n_works; k += s->is_first_look ? 4 : 1) {
        bool has_light = false;
        for (int i = 0; i < (s->is_first_look ? 1 : n); i++)
            look_at_order(s, mesh, &pipe[i], &s->work[k], &has_light);
    }
}

static bool differs_in_order(const ech_pipe *a, const ech_pipe *b)
{
    return a->vpp == b->vpp && a->schedule == b->schedule && a->split == b->split;
}

/* A first look takes every third pipe and every fourth work. */
static void look_at_mesh(searcher *s, const ech_mesh *mesh)
{
    s->n_states = ech_space_states(&s->space, mesh, s->state);
    s->n_pipes = ech_space_pipes(&s->space, mesh, s->pipe);
    forget_bounds(s, mesh);
    s->n_cut = 0;
    for (int i = 0, n = 1; i < s->n_pipes; i += s->is_first_look ? n + 2 : n) {
        const ech_pipe *pipe = &s->pipe[i];
        for (n = 1; i + n < s->n_pipes && differs_in_order(pipe, &pipe[n]); n++)
            ;
        s->n_works = ech_space_works(&s->space, mesh, pipe, s->work);
        if (s->n_works == 0)
            continue;
        const bool is_cut_anew = cut_layers(s, mesh, pipe);
        if (!s->spec->is_brute)
            look_at_works(s, mesh, pipe, n, is_cut_anew);
        else
            for (int k = 0; k < n; k++)
                look_at_all_works(s, mesh, &pipe[k]);
    }
}

/* --- one number of GPUs --- */

/* All meshes; before, a few layouts of each, so that limits are tight from the start. */
static void look_everywhere(searcher *s)
{
    ech_rejection rejected[ECH_SEARCH_REASONS]; /* of meshes; a first look counts none */
    const int n_rejected = s->space.n_rejected;
    memcpy(rejected, s->space.rejected, sizeof rejected);
    s->is_first_look = !s->spec->is_brute;
    for (size_t i = 0; s->is_first_look && i < s->space.n_meshes; i++)
        look_at_mesh(s, &s->space.mesh[i]);
    s->is_first_look = false;
    memcpy(s->space.rejected, rejected, sizeof rejected);
    s->space.n_rejected = n_rejected;
    for (size_t i = 0; i < s->space.n_meshes; i++)
        look_at_mesh(s, &s->space.mesh[i]);
}

/* --- where nothing fits --- */

static void note_miss(searcher *s, const ech_point *p)
{
    const ech_cluster *c = s->space.job.cluster;
    ech_footprint_of(&s->space.job, p, NULL, &s->footprint);
    const double device = s->footprint.reserved_bytes / s->room_bytes;
    const double host = c->host_bytes > 0.0 ? s->footprint.host_node_bytes / c->host_bytes : 0.0;
    const double tie = 1e-3; /* as far over in one: the one that is lower in the other */
    const double miss = fmax(device, host) + tie * fmin(device, host);
    if (miss >= s->least_miss)
        return;
    s->least_miss = miss;
    s->out->nearest.point = *p;
    s->out->has_nearest = true;
}

/* Layouts of a pipe, by memory alone; states that miss by more are skipped. */
static void seek_nearest_in(searcher *s, const ech_mesh *mesh, const ech_pipe *pipe)
{
    s->n_works = ech_space_works(&s->space, mesh, pipe, s->work);
    if (s->n_works == 0)
        return;
    (void)cut_layers(s, mesh, pipe);
    bound_states(s, mesh, pipe);
    for (int i = 0; i < s->n_states; i++)
        for (int k = 0; k < s->n_works && s->held[i][0] < s->least_miss * s->room_bytes; k++) {
            const ech_point p = ech_space_point(&s->space, mesh, pipe, &s->work[k], &s->state[i]);
            if (ech_space_counts(&s->space, mesh, &s->work[k], &s->state[i]))
                note_miss(s, &p);
        }
}

/* The layout that misses by least. */
static void seek_nearest(searcher *s)
{
    s->least_miss = INFINITY;
    for (size_t m = 0; m < s->space.n_meshes; m++) {
        const ech_mesh *mesh = &s->space.mesh[m];
        s->n_states = ech_space_states(&s->space, mesh, s->state);
        s->n_pipes = ech_space_pipes(&s->space, mesh, s->pipe);
        for (int i = 0; i < s->n_pipes; i++)
            seek_nearest_in(s, mesh, &s->pipe[i]);
    }
    if (s->out->has_nearest)
        ech_search_price(s->pricer, &s->space.job, &s->out->nearest.point, &s->footprint,
                         &s->out->nearest);
}

static void keep_rejections(const ech_space *from, ech_plan *out)
{
    for (int i = 0; i < from->n_rejected; i++) {
        int k = 0;
        while (k < out->n_rejected && out->rejected[k].reason != from->rejected[i].reason)
            k++;
        if (k == ECH_SEARCH_REASONS)
            continue;
        if (k == out->n_rejected)
            out->rejected[out->n_rejected++] =
                (ech_rejection){from->rejected[i].reason, 0, from->rejected[i].is_memory};
        out->rejected[k].count += from->rejected[i].count;
    }
}

static void keep_front(searcher *s)
{
    const ech_found *member[ECH_SEARCH_MEMORY_STEPS + 1];
    const int n = ech_frontier_members(&s->frontier, member);
    for (int i = 0; i < n && s->out->n_pareto < ECH_SEARCH_PARETO; i++)
        ech_search_price(s->pricer, &s->space.job, &member[i]->point, &s->footprint,
                         &s->out->pareto[s->out->n_pareto++]);
}

static ech_status keep_best(searcher *s)
{
    for (int i = 0; i < s->frontier.n_best; i++)
        ech_search_price(s->pricer, &s->space.job, &s->frontier.best[i].point, &s->footprint,
                         &s->out->best[i]);
    s->out->n_best = s->frontier.n_best;
    return s->out->n_best > 0 ? ech_search_neighbours(&s->space, s->pricer, &s->footprint, s->out)
                              : ECH_OK;
}

/* So many GPUs; the best are those of all. */
static ech_status search_gpus(searcher *s, int64_t gpus, bool has_offload, bool is_all)
{
    ECH_TRY(ech_space_make(s->spec, gpus, has_offload, &s->space));
    ech_status st = ech_pricer_create(&s->space.job, s->spec->constants, &s->pricer);
    if (st == ECH_OK) {
        s->room_bytes = room_of(s->spec);
        s->kept_for = (ech_mesh){0};
        ech_frontier_init(&s->frontier, is_all ? s->spec->top : 0,
                          s->spec->job->cluster->device.usable_bytes);
        look_everywhere(s);
        keep_front(s);
        if (is_all) {
            keep_rejections(&s->space, s->out);
            st = keep_best(s);
        }
        if (is_all && s->out->n_best == 0 && has_offload)
            seek_nearest(s);
    }
    ech_pricer_destroy(&s->pricer);
    ech_space_fini(&s->space);
    return st;
}

/* --- all --- */

static bool dominates(const ech_candidate *a, const ech_candidate *b, const ech_frontier *f)
{
    const int x = ech_frontier_step(f, a->reserved_bytes);
    const int y = ech_frontier_step(f, b->reserved_bytes);
    const bool is_as_good = a->gpus <= b->gpus && a->step.step_s <= b->step.step_s && x <= y &&
                            a->dollars_per_step <= b->dollars_per_step;
    return is_as_good && (a->gpus < b->gpus || a->step.step_s < b->step.step_s || x < y);
}

/* Among different numbers of GPUs. */
static void thin_front(const searcher *s, ech_plan *out)
{
    int n = 0;
    for (int i = 0; i < out->n_pareto; i++) {
        bool is_beaten = false;
        for (int k = 0; k < out->n_pareto; k++)
            is_beaten |= k != i && dominates(&out->pareto[k], &out->pareto[i], &s->frontier);
        if (!is_beaten)
            out->pareto[n++] = out->pareto[i];
    }
    out->n_pareto = n;
}

static ech_status search_all(searcher *s)
{
    enum { FEWER = 6 /* GPUs / 64 */ };
    const int64_t gpus = s->spec->job->gpus;
    const bool is_open = s->spec->may_offload;
    ECH_TRY(search_gpus(s, gpus, is_open, true));
    if (s->out->n_best == 0 && !is_open && !s->spec->keeps_closed) {
        s->out->opened_offload = true;
        s->out->n_rejected = 0;
        ECH_TRY(search_gpus(s, gpus, true, true));
    }
    for (int k = 1; s->spec->may_use_fewer && k <= FEWER && gpus >> k > 0; k++)
        if (gpus % (INT64_C(1) << k) == 0)
            ECH_TRY(search_gpus(s, gpus >> k, is_open || s->out->opened_offload, false));
    thin_front(s, s->out);
    return ECH_OK;
}

/* Nothing is legal: the pins say why, or what was refused most often. */
static ech_status refuse(const ech_search_spec *spec, const ech_plan *out)
{
    ech_findings why = {0};
    ech_point p = spec->pin;
    const int64_t replica = (int64_t)p.tp * p.pp * p.cp;
    if (!ech_is_pinned(spec, ECH_DIM_DP) && replica > 0 && spec->job->gpus % replica == 0)
        p.dp = (int32_t)(spec->job->gpus / replica);
    const bool is_legal = ech_point_is_legal(spec->job, &p, &why);
    if (is_legal)
        ech_findings_add(&why, "no layout is legal");
    for (int i = 0; is_legal && i < out->n_rejected; i++)
        ech_findings_add(&why, "%lld times: %s", (long long)out->rejected[i].count,
                         out->rejected[i].reason);
    const ech_status st = ech_findings_raise(&why, ECH_E_ILLEGAL);
    ech_findings_fini(&why);
    return st;
}

ech_status ech_plan_search(const ech_search_spec *spec, ech_plan *out)
{
    const double t0 = ech_clock_cpu_s();
    searcher *s = calloc(1, sizeof *s);
    ECH_CHECK(s, ECH_E_NOMEM, "a search");
    *out = (ech_plan){.n_best = 0};
    s->spec = spec;
    s->out = out;
    ech_status st = search_all(s);
    out->space = out->evaluated + out->pruned + s->misfits;
    if (st == ECH_OK && out->space == 0)
        st = refuse(spec, out);
    free(s);
    out->seconds = ech_clock_cpu_s() - t0;
    return st;
}
