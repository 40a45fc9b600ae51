/* The space of layouts: how layers are cut and run under a mesh. */
#include "plan/space_private.h"

typedef struct pipe_list {
    ech_space *space;
    const ech_mesh *mesh;
    ech_pipe *out;
    int n;
} pipe_list;

static void add_pipe(pipe_list *list, const ech_pipe *pipe)
{
    ech_point p = ech_space_plain(list->space, list->mesh);
    ech_space_set_pipe(&p, pipe);
    if (!ech_space_takes(list->space, &p))
        return;
    ECH_ASSERT(list->n < ECH_SPACE_PIPES);
    list->out[list->n++] = *pipe;
}

/* Does it matter what of dp and pp comes first?  Not where no border of the machine cuts through what
 * both have below them: whoever differs in either is as far away. */
static bool order_matters(const ech_space *s, const ech_mesh *mesh)
{
    const ech_cluster *c = s->job.cluster;
    const int64_t inner = (int64_t)mesh->tp * mesh->cp;
    if (mesh->pp == 1 || mesh->dp == 1)
        return false;
    for (int i = 0; i < c->n_levels; i++) {
        const int64_t span = c->level[i].span;
        if (span > 0 && span < s->job.gpus && inner % span != 0)
            return true;
    }
    return false;
}

/* By default replicas lie between the stages of a pipeline; stages as neighbours instead. */
static void add_orders(pipe_list *list, ech_pipe pipe)
{
    const ech_space *s = list->space;
    const bool is_pinned = ech_is_pinned(s->spec, ECH_DIM_ORDER);
    pipe.order = is_pinned ? s->spec->pin.order : ECH_ORDER_TP_CP_DP_PP;
    add_pipe(list, &pipe);
    if (is_pinned || !order_matters(s, list->mesh) ||
        (s->job.system != ECH_SYSTEM_ECHELON && s->job.system != ECH_SYSTEM_MEGATRON))
        return;
    pipe.order = ECH_ORDER_TP_PP_DP;
    add_pipe(list, &pipe);
}

/* Do two cuts give every stage as many layers? */
static bool cuts_alike(const pipe_list *list, const ech_pipe *a, const ech_pipe *b)
{
    ech_point p = ech_space_plain(list->space, list->mesh);
    ech_stage_shape *x = list->space->cut[0];
    ech_stage_shape *y = list->space->cut[1];
    ech_space_set_pipe(&p, a);
    const int n = ech_shape_cut(&list->space->job, &p, x);
    ech_space_set_pipe(&p, b);
    (void)ech_shape_cut(&list->space->job, &p, y);
    for (int i = 0; i < n; i++)
        if (x[i].dense != y[i].dense || x[i].sparse != y[i].sparse)
            return false;
    return true;
}

/* By cost where the system can; even where layers divide; the ends as a layer each where those do;
 * each cut once. */
static void add_splits(pipe_list *list, ech_pipe pipe)
{
    static const ech_stage_split even[] = {ECH_SPLIT_EVEN, ECH_SPLIT_ENDS};
    const ech_space *s = list->space;
    const int64_t stages = (int64_t)list->mesh->pp * ech_schedule_chunks(pipe.schedule, pipe.vpp);
    const int64_t layers = s->job.model->layers;
    const bool has_balanced = list->mesh->pp == 1 || s->job.system != ECH_SYSTEM_MEGATRON ||
                              s->job.generation == ECH_GENERATION_MCORE_14;
    if (ech_is_pinned(s->spec, ECH_DIM_SPLIT)) {
        pipe.split = s->spec->pin.split;
        add_orders(list, pipe);
        return;
    }
    const ech_pipe balanced = pipe;
    if (has_balanced)
        add_orders(list, balanced);
    for (int i = 0; i < 2 && list->mesh->pp > 1 && stages <= layers; i++) {
        pipe.split = even[i];
        if ((layers + 2 * i) % stages == 0 && !(has_balanced && cuts_alike(list, &balanced, &pipe)))
            add_orders(list, pipe);
    }
}

/* 1f1b, interleaved by v where stages can be cut evenly or v is a small power of two, and what has no
 * bubble to speak of.  gpipe takes as long as 1f1b and holds more: only where it is asked for. */
static void add_schedules(pipe_list *list, int32_t v)
{
    const ech_space *s = list->space;
    const bool is_pinned = ech_is_pinned(s->spec, ECH_DIM_SCHEDULE);
    static const ech_schedule_kind one[] = {ECH_SCHEDULE_1F1B, ECH_SCHEDULE_ZB_H1};
    static const ech_schedule_kind several[] = {ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_V};
    const ech_schedule_kind *kinds = v == 1 ? one : several;
    const int n = list->mesh->pp == 1 ? 1 : v > 2 ? 1 : 2;
    if (is_pinned) {
        add_splits(list, (ech_pipe){.vpp = v, .schedule = s->spec->pin.schedule});
        return;
    }
    for (int i = 0; i < n; i++) {
        const bool has =
            s->job.system == ECH_SYSTEM_ECHELON ||
            (kinds[i] == ECH_SCHEDULE_ZB_V && s->job.system == ECH_SYSTEM_TORCHTITAN) ||
            (kinds[i] == ECH_SCHEDULE_INTERLEAVED && s->job.system != ECH_SYSTEM_DEEPSPEED) ||
            kinds[i] == ECH_SCHEDULE_1F1B;
        if (has)
            add_splits(list, (ech_pipe){.vpp = v, .schedule = kinds[i]});
    }
}

int ech_space_pipes(ech_space *s, const ech_mesh *mesh, ech_pipe *out)
{
    enum { MOST_CHUNKS = 10 /* of a rank: more save little and send more */ };
    pipe_list list = {.space = s, .mesh = mesh, .out = out};
    const int64_t layers = s->job.model->layers;
    const int64_t most = layers / mesh->pp < MOST_CHUNKS ? layers / mesh->pp : MOST_CHUNKS;
    if (ech_space_is_fixed(s, ECH_DIM_VPP)) {
        add_schedules(&list, s->spec->pin.vpp);
        return list.n;
    }
    add_schedules(&list, 1);
    for (int32_t v = 2; v <= most && mesh->pp > 1; v++) {
        const int64_t stages = (int64_t)v * mesh->pp;
        if (layers % stages == 0 || (layers + 2) % stages == 0 || v == 2 || v == 4)
            add_schedules(&list, v);
    }
    return list.n;
}
