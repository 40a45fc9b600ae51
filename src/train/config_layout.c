#include "train/config_layout.h"

enum { MAX_FACTORS = 31 };

static const char *compute_name(ech_compute compute)
{
    static const char *const name[] = {"fp64", "fp32", "bf16", "fp16", "fp8"};
    return name[compute];
}

/* ECH_AUTO and other negatives are what the table knows as "not known". */
static int64_t known(int64_t x)
{
    return x > 0 ? x : 0;
}

ech_legal_query ech_config_legal_query(const ech_config *cfg, int ranks)
{
    const ech_model *m = &cfg->model;
    const ech_config_layout *l = &cfg->layout;
    return (ech_legal_query){
        .heads = known(m->heads),
        .kv_heads = known(m->kv_heads),
        .ffn = known(m->ffn),
        .vocab = known(m->vocab),
        .layers = known(m->layers),
        .context = known(m->context),
        .ranks = ranks,
        .tp = l->tp,
        .pp = l->pp,
        .cp = l->cp,
        .ep = l->ep,
        .etp = l->etp,
        .dp = known(l->dp),
        .order = l->order,
        .schedule = l->schedule,
        .is_schedule_file = ech_schedule_kind_of(l->schedule) == ECH_SCHEDULE_FILE,
        .file_ranks = l->table.ranks,
        .file_stages = l->table.stages,
        .file_micros = l->table.micros,
        .virtual_stages = l->virtual_stages,
        .stage_layers = l->stages.item,
        .n_stage_layers = l->stages.n,
        .schedule_group = l->schedule_group,
        .tree = cfg->comm.tree.item,
        .n_tree = cfg->comm.tree.n,
        .sequence_parallel = l->sequence_parallel,
        .keep_inputs = l->sequence_parallel_inputs == ECH_SP_KEEP,
        .zero_stage = l->zero.stage,
        .zero_group = l->zero.group,
        .prefetch = l->zero.prefetch,
        .reshard_after_forward = l->zero.reshard_after_forward,
        .reduce_each = l->zero.reduce == ECH_ZERO_REDUCE_EACH,
        .micro = known(cfg->batch.micro),
        .global = known(cfg->batch.global),
        .seq = known(cfg->batch.seq),
        .recompute = l->recompute,
        .offload_optimizer = l->offload_optimizer,
        .offload_params = l->offload_params,
        .offload_activations = l->offload_activations,
        .compute = compute_name(cfg->precision.compute),
    };
}

/* --- the pipeline --- */

ech_schedule_kind ech_config_schedule(const ech_config *cfg)
{
    const ech_config_layout *l = &cfg->layout;
    const ech_schedule_kind kind = ech_schedule_kind_of(l->schedule);
    const bool is_alone = l->pp == 1 && kind != ECH_SCHEDULE_GPIPE && kind != ECH_SCHEDULE_FILE;
    const bool has_one_chunk = kind == ECH_SCHEDULE_INTERLEAVED && l->virtual_stages == 1;
    return is_alone || has_one_chunk ? ECH_SCHEDULE_1F1B : kind;
}

void ech_config_pipeline(const ech_config *cfg, ech_compile_spec *spec)
{
    const ech_config_layout *l = &cfg->layout;
    spec->schedule = ech_config_schedule(cfg);
    spec->chunks = ech_schedule_chunks(spec->schedule, (int)l->virtual_stages);
    spec->group = (int)l->schedule_group;
    spec->table = spec->schedule == ECH_SCHEDULE_FILE ? &l->table : NULL;
    spec->stage_layers = l->stage_layers;
    spec->n_stage_layers = l->stage_layers ? l->stages.n : 0;
}

/* --- the layout --- */

ech_status ech_config_layout_make(const ech_config *cfg, int node_ranks, ech_layout *out)
{
    int factor[MAX_FACTORS];
    const ech_config_layout *l = &cfg->layout;
    const ech_ints *tree = &cfg->comm.tree;
    ECH_CHECK(cfg->model.heads % l->tp == 0, ECH_E_CONFIG, "tp = %lld does not divide %lld heads",
              (long long)l->tp, (long long)cfg->model.heads);
    ECH_CHECK(tree->n <= MAX_FACTORS, ECH_E_CONFIG, "a summation tree of %d factors", tree->n);
    for (int i = 0; i < tree->n; i++)
        factor[i] = (int)tree->item[i];
    ech_compile_spec pipeline = {0};
    ech_layout_spec spec = {
        .tp = (int)l->tp,
        .cp = (int)l->cp,
        .pp = (int)l->pp,
        .dp = (int)l->dp,
        .shard_group = l->zero.stage ? (int)l->zero.group : 0,
        .tree = factor,
        .n_tree = tree->n,
        .node_ranks = node_ranks,
    };
    ECH_CHECK(ech_order_read(l->order, spec.order), ECH_E_CONFIG, "'%s' is no order of axes",
              l->order);
    ech_config_pipeline(cfg, &pipeline);
    return ech_compile_layout(&pipeline, &cfg->model, spec, out);
}

ech_shard_policy ech_config_policy(const ech_config *cfg)
{
    const ech_config_layout *l = &cfg->layout;
    const bool is_sequence_parallel = l->sequence_parallel && l->tp > 1;
    return (ech_shard_policy){
        .is_sequence_parallel = is_sequence_parallel,
        .keeps_inputs = is_sequence_parallel && l->sequence_parallel_inputs == ECH_SP_KEEP,
        .zero_stage = (int)l->zero.stage,
        .reduces_each = l->zero.reduce == ECH_ZERO_REDUCE_EACH,
        .reshards_after_forward = l->zero.reshard_after_forward,
        .prefetch = (int)l->zero.prefetch,
    };
}
