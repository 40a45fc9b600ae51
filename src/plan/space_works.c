/* The space of layouts: what a rank does with a micro-batch, and how state is kept. */
#include "plan/space_private.h"

/* --- works --- */

/* Powers of two, while a rank has at most 32 k tokens of a micro-batch. */
static ech_values micro_values(const ech_space *s, const ech_mesh *mesh)
{
    enum { TOKENS = 32 * 1024 };
    ech_values list = ech_values_only(1);
    const int64_t rows = s->job.global_batch / mesh->dp;
    if (ech_is_pinned(s->spec, ECH_DIM_MICRO))
        return ech_values_only(s->spec->pin.micro);
    for (int64_t b = 2; b <= rows && b * s->job.seq / mesh->cp <= TOKENS; b *= 2)
        if (rows % b == 0)
            ech_values_add(&list, b);
    return list;
}

enum { MOST_SETS = 12 };

typedef struct recompute_set {
    uint32_t bits;
    int32_t layers;
} recompute_set;

static int add_set(recompute_set *out, int n, uint32_t bits, int32_t layers)
{
    for (int i = 0; i < n; i++)
        if (out[i].bits == bits && out[i].layers == layers)
            return n;
    out[n] = (recompute_set){bits, layers};
    return n + 1;
}

/* Parts that are cheap to compute again for what they hold. */
static int add_parts(const ech_job *job, recompute_set *out, int n)
{
    uint32_t parts = (ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT) & ech_recompute_known(job);
    const bool is_unfused = job->generation == ECH_GENERATION_MEGATRON_2021;
    if (is_unfused)
        n = add_set(out, n, ECH_RECOMPUTE_ATTENTION, 0);
    if (is_unfused && job->system == ECH_SYSTEM_MEGATRON)
        return n;
    n = add_set(out, n, parts, 0);
    if (job->model->moe.experts)
        n = add_set(out, n, parts |= ECH_RECOMPUTE_MOE, 0);
    if (job->model->mla.kv_lora_rank)
        n = add_set(out, n, parts |= ECH_RECOMPUTE_MLA, 0);
    return n;
}

/* None, parts, whole layers: all of a stage's or half of them; a quarter and three quarters too where
 * no parts come between. */
static int recompute_sets(const ech_space *s, const ech_mesh *mesh, const ech_pipe *pipe,
                          recompute_set *out)
{
    const ech_job *job = &s->job;
    const int64_t stages =
        mesh->pp == 1 ? 1 : (int64_t)mesh->pp * ech_schedule_chunks(pipe->schedule, pipe->vpp);
    const int32_t layers = (int32_t)(job->model->layers / stages);
    if (ech_is_pinned(s->spec, ECH_DIM_RECOMPUTE))
        return add_set(out, 0, s->spec->pin.recompute, s->spec->pin.recompute_layers);
    int n = add_set(out, 0, 0, 0);
    if (job->system == ECH_SYSTEM_ECHELON || job->system == ECH_SYSTEM_MEGATRON)
        n = add_parts(job, out, n);
    if (job->system == ECH_SYSTEM_FSDP2 || job->system == ECH_SYSTEM_TORCHTITAN)
        n = add_set(out, n, ECH_RECOMPUTE_OPS, 0);
    n = add_set(out, n, ECH_RECOMPUTE_FULL, 0);
    const int32_t quarters = n > 2 ? 2 : 1; /* from so many, by so many */
    for (int32_t k = quarters; k < 4; k += quarters)
        if (layers * k / 4 > 0 && layers * k / 4 < layers)
            n = add_set(out, n, ECH_RECOMPUTE_FULL, layers * k / 4);
    return n;
}

/* Kinds of context parallelism, as bits; usp only where it is asked for. */
static uint32_t cp_kinds(ech_space *s, ech_point p)
{
    uint32_t kinds = 0;
    if (ech_is_pinned(s->spec, ECH_DIM_CP_KIND) || p.cp == 1)
        return UINT32_C(1) << p.cp_kind;
    for (int k = 0; k < ECH_CP_USP; k++) {
        p.cp_kind = (ech_cp_kind)k;
        if (ech_space_takes(s, &p))
            kinds |= UINT32_C(1) << k;
    }
    return kinds;
}

/* Sequence parallelism: bit 0 without, bit 1 with; with tp 1 without. */
static uint32_t sp_ways(ech_space *s, ech_point p)
{
    uint32_t ways = 0;
    if (p.tp == 1 && !ech_is_pinned(s->spec, ECH_DIM_SP))
        return 1;
    for (int on = 0; on < 2; on++) {
        p.sequence_parallel = on;
        if ((!ech_is_pinned(s->spec, ECH_DIM_SP) || s->spec->pin.sequence_parallel == on) &&
            ech_space_takes(s, &p))
            ways |= UINT32_C(1) << on;
    }
    return ways;
}

/* Bits of ech_offload: none; the host and a node's disks where offload is open; what is pinned
 * alone. */
static uint32_t offload_ways(const ech_space *s, ech_plan_dim dim, ech_offload pin)
{
    const bool has_disks = s->job.cluster->nvme_bytes > 0.0;
    if (ech_is_pinned(s->spec, dim))
        return UINT32_C(1) << pin;
    if (!s->has_offload)
        return 1u << ECH_OFFLOAD_NONE;
    return 1u << ECH_OFFLOAD_NONE | 1u << ECH_OFFLOAD_HOST |
           (has_disks ? 1u << ECH_OFFLOAD_NVME : 0u);
}

typedef struct work_list {
    ech_space *space;
    ech_point at; /* mesh and pipe, micro */
    recompute_set set[MOST_SETS];
    int n_sets;
    uint32_t activations; /* bits */
    ech_work_way *out;
    int n;
} work_list;

static void add_work(work_list *list, ech_cp_kind kind, bool sp)
{
    ech_work_way w = {.micro = list->at.micro, .cp_kind = kind, .sequence_parallel = sp};
    for (int i = 0; i < list->n_sets; i++)
        for (int o = 0; o <= ECH_OFFLOAD_NVME; o++) {
            if (!(list->activations >> o & 1))
                continue;
            ECH_ASSERT(list->n < ECH_SPACE_WORKS);
            w.recompute = list->set[i].bits;
            w.recompute_layers = list->set[i].layers;
            w.activations = (ech_offload)o;
            list->out[list->n++] = w;
        }
}

static void keep_legal_sets(work_list *list)
{
    int n = 0;
    ech_point p = list->at;
    for (int i = 0; i < list->n_sets; i++) {
        p.recompute = list->set[i].bits;
        p.recompute_layers = list->set[i].layers;
        if (ech_space_takes(list->space, &p))
            list->set[n++] = list->set[i];
    }
    list->n_sets = n;
}

static void keep_legal_activations(work_list *list)
{
    ech_point p = list->at;
    for (int o = 0; o <= ECH_OFFLOAD_NVME; o++) {
        p.offload_activations = (ech_offload)o;
        if ((list->activations >> o & 1) && !ech_space_takes(list->space, &p))
            list->activations &= ~(UINT32_C(1) << o);
    }
}

static void add_micro(work_list *list, uint32_t kinds)
{
    if (!ech_space_takes(list->space, &list->at))
        return;
    const uint32_t ways = sp_ways(list->space, list->at);
    for (int k = 0; k <= ECH_CP_USP; k++)
        for (int on = 0; on < 2; on++)
            if ((kinds >> k & 1) && (ways >> on & 1))
                add_work(list, (ech_cp_kind)k, on);
}

int ech_space_works(ech_space *s, const ech_mesh *mesh, const ech_pipe *pipe, ech_work_way *out)
{
    const ech_values micro = micro_values(s, mesh);
    work_list list = {.space = s, .at = ech_space_plain(s, mesh), .out = out};
    ech_space_set_pipe(&list.at, pipe);
    list.n_sets = recompute_sets(s, mesh, pipe, list.set);
    list.activations =
        offload_ways(s, ECH_DIM_OFFLOAD_ACTIVATIONS, s->spec->pin.offload_activations);
    keep_legal_sets(&list);
    keep_legal_activations(&list);
    const uint32_t kinds = cp_kinds(s, list.at);
    for (int i = 0; i < micro.n; i++) {
        list.at.micro = micro.v[i];
        add_micro(&list, kinds);
    }
    return list.n;
}

/* --- states --- */

typedef struct state_list {
    ech_space *space;
    ech_point at;
    uint32_t optimizer, params; /* bits of ech_offload */
    bool is_alone;              /* nobody to share state with, and the stage is open */
    ech_state_way *out;
    int n;
} state_list;

/* Is it, over a single rank, one that is listed already: stages shard nothing there, and what is listed
 * first has the lowest that takes the offload.  DeepSpeed's stage 1 keeps gradients on the device where
 * 2 and 3 send them with the optimizer. */
static bool is_listed(const state_list *list, const ech_state_way *way)
{
    const bool sends_grads = list->space->job.system == ECH_SYSTEM_DEEPSPEED &&
                             way->optimizer != ECH_OFFLOAD_NONE && way->zero_stage >= 2;
    const bool gathers = way->params != ECH_OFFLOAD_NONE;
    for (int i = 0; i < list->n && list->is_alone; i++) {
        const ech_state_way *x = &list->out[i];
        if (x->optimizer == way->optimizer && x->params == way->params &&
            (!gathers || x->reshard == way->reshard) && (!sends_grads || x->zero_stage >= 2))
            return true;
    }
    return false;
}

/* Parameters never without the optimizer: what is offloaded first is what is needed least often. */
static void add_offloads(state_list *list, ech_state_way way)
{
    const ech_search_spec *spec = list->space->spec;
    for (int o = 0; o <= ECH_OFFLOAD_NVME; o++)
        for (int w = 0; w <= ECH_OFFLOAD_NVME; w++) {
            const bool is_asked = (list->optimizer >> o & 1) && (list->params >> w & 1);
            const bool is_odd = w != ECH_OFFLOAD_NONE && o == ECH_OFFLOAD_NONE &&
                                !ech_is_pinned(spec, ECH_DIM_OFFLOAD_OPTIMIZER);
            if (!is_asked || is_odd)
                continue;
            ECH_ASSERT(list->n < ECH_SPACE_STATES);
            way.optimizer = (ech_offload)o;
            way.params = (ech_offload)w;
            if (is_listed(list, &way))
                continue;
            ech_space_set_state(&list->at, &way);
            if (ech_space_takes(list->space, &list->at))
                list->out[list->n++] = way;
        }
}

/* What is left open at stages 2 and 3: gradients each or last, gathered weights go or stay. */
static void add_policies(state_list *list, ech_state_way way)
{
    const ech_search_spec *spec = list->space->spec;
    const ech_job *job = &list->space->job;
    const bool keeps_reshard = ech_is_pinned(spec, ECH_DIM_RESHARD);
    ech_point p = list->at;
    p.zero_stage = way.zero_stage;
    ech_point_follow_system(job, &p);
    for (int reshard = 0; reshard < 2; reshard++)
        for (int each = 0; each < 2; each++) {
            const bool has_choice = way.zero_stage >= 2 && job->system == ECH_SYSTEM_ECHELON;
            if (keeps_reshard ? reshard != spec->pin.reshard_after_forward
                              : way.zero_stage < 3 && !reshard)
                continue;
            if (ech_is_pinned(spec, ECH_DIM_REDUCE) ? each != spec->pin.reduce_each
                                                    : !has_choice && each != p.reduce_each)
                continue;
            way.reshard = reshard;
            way.reduce_each = each;
            add_offloads(list, way);
        }
}

/* All data parallel ranks, those of a node, of 8 and of 64 nodes. */
static ech_values group_values(const ech_space *s, const ech_mesh *mesh)
{
    ech_values list = ech_values_only(0);
    const int64_t ranks = (int64_t)mesh->dp * mesh->cp;
    const int64_t node = s->job.cluster->devices_per_node / mesh->tp;
    if (ech_is_pinned(s->spec, ECH_DIM_ZERO_GROUP))
        return ech_values_only(s->spec->pin.zero_group);
    for (int64_t g = node; g <= node * 64 && g > 0; g *= 8)
        if (g > 1 && g < ranks && ranks % g == 0)
            ech_values_add(&list, g);
    return list;
}

int ech_space_states(ech_space *s, const ech_mesh *mesh, ech_state_way *out)
{
    const ech_search_spec *spec = s->spec;
    state_list list = {.space = s, .at = ech_space_plain(s, mesh), .out = out};
    const ech_values groups = group_values(s, mesh);
    list.optimizer = offload_ways(s, ECH_DIM_OFFLOAD_OPTIMIZER, spec->pin.offload_optimizer);
    list.params = offload_ways(s, ECH_DIM_OFFLOAD_PARAMS, spec->pin.offload_params);
    list.is_alone = !ech_is_pinned(spec, ECH_DIM_ZERO) && list.at.dp * list.at.cp == 1 &&
                    (s->job.model->moe.experts == 0 ||
                     ech_point_edp(&list.at) == 1); /* tp's may share experts */
    for (int32_t z = 0; z < 4; z++) {
        if (ech_is_pinned(spec, ECH_DIM_ZERO) && z != spec->pin.zero_stage)
            continue;
        for (int g = 0; g < groups.n; g++)
            if (z > 0 || groups.v[g] == 0 || ech_is_pinned(spec, ECH_DIM_ZERO_GROUP))
                add_policies(&list, (ech_state_way){.zero_stage = z, .zero_group = groups.v[g]});
    }
    return list.n;
}

bool ech_space_counts(const ech_space *s, const ech_mesh *mesh, const ech_work_way *work,
                      const ech_state_way *state)
{
    if (s->job.system != ECH_SYSTEM_ECHELON || state->zero_stage < 2 ||
        ech_is_pinned(s->spec, ECH_DIM_REDUCE))
        return true;
    const bool accumulates = s->job.global_batch / mesh->dp > work->micro;
    if (!accumulates)
        return !state->reduce_each;
    return state->zero_stage == 3 || state->reduce_each;
}
