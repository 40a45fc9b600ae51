/* The space of layouts: values of the degrees, tried against legality; points put together. */
#include "plan/space_private.h"

#include "base/checked.h"

#include <stdlib.h>

static const char *const dim_names[] = {
#define ECH_DIM_NAME(name, text) [name] = text,
    ECH_DIM_LIST(ECH_DIM_NAME)
#undef ECH_DIM_NAME
};

const char *ech_plan_dim_name(ech_plan_dim d)
{
    return dim_names[d];
}

/* --- counting --- */

void ech_space_reject(ech_space *s, const char *reason, bool is_memory, int64_t n)
{
    for (int i = 0; i < s->n_rejected; i++)
        if (s->rejected[i].reason == reason && s->rejected[i].is_memory == is_memory) {
            s->rejected[i].count += n;
            return;
        }
    if (s->n_rejected < ECH_SEARCH_REASONS)
        s->rejected[s->n_rejected++] = (ech_rejection){reason, n, is_memory};
}

bool ech_space_takes(ech_space *s, const ech_point *p)
{
    const char *reason = ech_point_refusal(&s->job, p);
    if (reason)
        ech_space_reject(s, reason, false, 1);
    return !reason;
}

bool ech_space_is_fixed(const ech_space *s, ech_plan_dim dim)
{
    const bool has_list =
        ech_is_pinned(s->spec, ECH_DIM_SPLIT) && s->spec->pin.split == ECH_SPLIT_LIST;
    return has_list || ech_is_pinned(s->spec, dim);
}

/* --- lists of values --- */

void ech_values_add(ech_values *list, int64_t x)
{
    for (int i = 0; i < list->n; i++)
        if (list->v[i] == x)
            return;
    ECH_ASSERT(list->n < ECH_SPACE_VALUES);
    list->v[list->n++] = (int32_t)x;
}

ech_values ech_values_only(int32_t x)
{
    return (ech_values){.v = {x}, .n = 1};
}

static bool is_power(int64_t x)
{
    return (x & (x - 1)) == 0;
}

/* Ranks that reach each other over the fastest link, 8 at least: tp does not go further. */
static int64_t fast_domain(const ech_job *job)
{
    enum { LEAST = 8, MOST = 64 };
    const ech_cluster *c = job->cluster;
    int64_t span = c->n_levels > 0 && c->level[0].span > 0 ? c->level[0].span : LEAST;
    span = span < LEAST ? LEAST : span;
    return span > MOST ? MOST : span;
}

/* Powers of two, and divisors of the heads. */
static ech_values tp_values(const ech_space *s)
{
    ech_values list = {.n = 0};
    if (ech_is_pinned(s->spec, ECH_DIM_TP))
        return ech_values_only(s->spec->pin.tp);
    for (int64_t t = 1; t <= fast_domain(&s->job); t++)
        if (s->job.gpus % t == 0 && (is_power(t) || s->job.model->heads % t == 0))
            ech_values_add(&list, t);
    return list;
}

static ech_values pp_values(const ech_space *s, int64_t ranks)
{
    enum { MOST = 128 };
    ech_values list = {.n = 0};
    const int64_t layers = s->job.model->layers;
    if (ech_space_is_fixed(s, ECH_DIM_PP))
        return ech_values_only(s->spec->pin.pp);
    for (int64_t p = 1; p <= ranks && p <= layers && p <= MOST; p++)
        if (ranks % p == 0)
            ech_values_add(&list, p);
    return list;
}

/* Powers of two that leave a rank 2048 tokens of a sequence; twice as many where there are experts,
 * whose ranks share the tokens already. */
static ech_values cp_values(const ech_space *s, int64_t ranks)
{
    enum { TOKENS = 2048, MOST = 128 };
    ech_values list = ech_values_only(1);
    const int64_t least = s->job.model->moe.experts ? 2 * TOKENS : TOKENS;
    if (ech_is_pinned(s->spec, ECH_DIM_CP))
        return ech_values_only(s->spec->pin.cp);
    for (int64_t c = 2; c <= MOST && ranks % c == 0 && s->job.seq / c >= least; c *= 2)
        ech_values_add(&list, c);
    return list;
}

/* Divisors of the experts. */
static ech_values ep_values(const ech_space *s, int64_t ranks)
{
    ech_values list = ech_values_only(1);
    const int64_t experts = s->job.model->moe.experts;
    if (ech_is_pinned(s->spec, ECH_DIM_EP))
        return ech_values_only(s->spec->pin.ep);
    for (int64_t e = 2; e <= experts && e <= ranks; e++)
        if (experts % e == 0 && ranks % e == 0)
            ech_values_add(&list, e);
    return list;
}

/* None, or as dense layers where that leaves matrices that are worth a kernel. */
static ech_values etp_values(const ech_space *s, int32_t tp)
{
    enum { LEAST_WIDTH = 1024 };
    ech_values list = ech_values_only(1);
    const ech_moe *moe = &s->job.model->moe;
    if (ech_is_pinned(s->spec, ECH_DIM_ETP))
        return ech_values_only(s->spec->pin.etp);
    if (moe->experts && moe->expert_ffn / tp >= LEAST_WIDTH)
        ech_values_add(&list, tp);
    return list;
}

/* --- points of a level: the rest at values that nothing is said against --- */

ech_point ech_space_plain(const ech_space *s, const ech_mesh *mesh)
{
    ech_point p = ech_point_default();
    p.tp = mesh->tp;
    p.pp = mesh->pp;
    p.cp = mesh->cp;
    p.ep = mesh->ep;
    p.etp = mesh->etp;
    p.dp = mesh->dp;
    p.micro = ech_is_pinned(s->spec, ECH_DIM_MICRO) ? s->spec->pin.micro : 1;
    p.cp_kind = ech_is_pinned(s->spec, ECH_DIM_CP_KIND) ? s->spec->pin.cp_kind : ECH_CP_RING;
    if (ech_is_pinned(s->spec, ECH_DIM_SPLIT)) {
        p.split = s->spec->pin.split;
        p.stage_layers = s->spec->pin.stage_layers;
    }
    if (p.split == ECH_SPLIT_LIST) {
        p.vpp = s->spec->pin.vpp;
        p.schedule = ech_is_pinned(s->spec, ECH_DIM_SCHEDULE) ? s->spec->pin.schedule
                     : p.vpp > 1                              ? ECH_SCHEDULE_INTERLEAVED
                                                              : ECH_SCHEDULE_1F1B;
    }
    if (s->job.system == ECH_SYSTEM_FSDP2 || s->job.system == ECH_SYSTEM_TORCHTITAN)
        p.zero_stage = 3; /* what their other axes go with */
    ech_point_follow_system(&s->job, &p);
    if (ech_is_pinned(s->spec, ECH_DIM_SPLIT))
        p.split = s->spec->pin.split;
    if (ech_is_pinned(s->spec, ECH_DIM_CP_KIND))
        p.cp_kind = s->spec->pin.cp_kind;
    return p;
}

void ech_space_set_pipe(ech_point *p, const ech_pipe *pipe)
{
    p->vpp = pipe->vpp;
    p->schedule = pipe->schedule;
    p->split = pipe->split;
    p->order = pipe->order;
}

static void set_work(ech_point *p, const ech_work_way *w)
{
    p->micro = w->micro;
    p->sequence_parallel = w->sequence_parallel;
    p->cp_kind = w->cp_kind;
    p->recompute = w->recompute;
    p->recompute_layers = w->recompute_layers;
    p->offload_activations = w->activations;
}

void ech_space_set_state(ech_point *p, const ech_state_way *s)
{
    p->zero_stage = s->zero_stage;
    p->zero_group = s->zero_group;
    p->reshard_after_forward = s->reshard;
    p->reduce_each = s->reduce_each;
    p->offload_optimizer = s->optimizer;
    p->offload_params = s->params;
}

ech_point ech_space_point(const ech_space *s, const ech_mesh *mesh, const ech_pipe *pipe,
                          const ech_work_way *work, const ech_state_way *state)
{
    ech_point p = ech_point_default();
    p.tp = mesh->tp;
    p.pp = mesh->pp;
    p.cp = mesh->cp;
    p.ep = mesh->ep;
    p.etp = mesh->etp;
    p.dp = mesh->dp;
    ech_space_set_pipe(&p, pipe);
    set_work(&p, work);
    ech_space_set_state(&p, state);
    if (p.split == ECH_SPLIT_LIST)
        p.stage_layers = s->spec->pin.stage_layers;
    return p;
}

/* --- meshes --- */

/* Sequence parallelism of the plain point may be what is refused: Megatron needs it with experts. */
static ech_status add_mesh(ech_space *s, const ech_mesh *mesh)
{
    static const ech_cp_kind kinds[] = {ECH_CP_RING, ECH_CP_ULYSSES};
    ech_point p = ech_space_plain(s, mesh);
    const bool may_choose = mesh->cp > 1 && !ech_is_pinned(s->spec, ECH_DIM_CP_KIND);
    bool is_legal = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && may_choose && !is_legal; i++) {
        p.cp_kind = kinds[i];
        is_legal = ech_point_refusal(&s->job, &p) == NULL;
    }
    if (!is_legal && !ech_space_takes(s, &p))
        return ECH_OK;
    ECH_TRY(ech_grow(&s->mesh, s->n_meshes, &s->capacity, sizeof *s->mesh));
    s->mesh[s->n_meshes++] = *mesh;
    return ECH_OK;
}

/* Replicas make up the rest of the GPUs. */
static ech_status add_pipelines(ech_space *s, ech_mesh mesh)
{
    const int64_t inner = (int64_t)mesh.tp * mesh.cp;
    const ech_values pp = pp_values(s, inner > 0 ? s->job.gpus / inner : 1);
    for (int i = 0; i < pp.n; i++) {
        const int64_t replica = inner * pp.v[i];
        mesh.pp = pp.v[i];
        mesh.dp = replica > 0 && s->job.gpus % replica == 0 ? (int32_t)(s->job.gpus / replica) : 1;
        if (ech_is_pinned(s->spec, ECH_DIM_DP))
            mesh.dp = s->spec->pin.dp;
        ECH_TRY(add_mesh(s, &mesh));
    }
    return ECH_OK;
}

static ech_status add_experts(ech_space *s, ech_mesh mesh)
{
    const ech_values etp = etp_values(s, mesh.tp);
    const ech_values ep = ep_values(s, s->job.gpus);
    for (int i = 0; i < etp.n; i++)
        for (int k = 0; k < ep.n; k++) {
            mesh.etp = etp.v[i];
            mesh.ep = ep.v[k];
            ECH_TRY(add_pipelines(s, mesh));
        }
    return ECH_OK;
}

/* Pipelines last: layouts that differ in nothing else have the same blocks, so that their prices are
 * asked for one after the other. */
static ech_status list_meshes(ech_space *s)
{
    const ech_values tp = tp_values(s);
    for (int t = 0; t < tp.n; t++) {
        const ech_values cp = cp_values(s, s->job.gpus / (tp.v[t] > 0 ? tp.v[t] : 1));
        for (int c = 0; c < cp.n; c++)
            ECH_TRY(add_experts(s, (ech_mesh){.tp = tp.v[t], .cp = cp.v[c]}));
    }
    return ECH_OK;
}

ech_status ech_space_make(const ech_search_spec *spec, int64_t gpus, bool has_offload,
                          ech_space *out)
{
    ech_space s = {.spec = spec, .job = *spec->job, .has_offload = has_offload};
    s.job.gpus = gpus;
    s.cut[0] = calloc(2 * (size_t)ECH_SHAPE_STAGES, sizeof *s.cut[0]);
    ECH_CHECK(s.cut[0], ECH_E_NOMEM, "stages of a search");
    s.cut[1] = s.cut[0] + ECH_SHAPE_STAGES;
    const ech_status st = list_meshes(&s);
    if (st < 0)
        ech_space_fini(&s);
    *out = s;
    return st;
}

void ech_space_fini(ech_space *s)
{
    free(s->mesh);
    free(s->cut[0]);
    *s = (ech_space){0};
}
