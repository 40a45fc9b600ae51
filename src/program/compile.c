#include "program/compile_private.h"

#include <stdlib.h>
#include <string.h>

/* --- items --- */

static size_t micro_data(const compiler *c, int micro)
{
    return 4 * (size_t)micro * (size_t)(c->spec.block.rows * c->spec.block.seq);
}

/* The residual stream between two blocks: with sequence parallelism a rank's share of the tokens. */
static ech_status new_activation(compiler *c, const char *name, ech_class klass, int *id)
{
    const ech_block_spec *s = &c->spec.block;
    const int64_t ranks = s->policy.is_sequence_parallel ? s->layout.degree[ECH_AXIS_TP] : 1;
    return compile_add_transient(
        c, name, klass,
        (size_t)(s->rows * s->seq / ranks * s->model->hidden) * ech_dtype_bytes(s->real), id);
}

/* What a block keeps for backward; none in evaluation. */
static ech_status bind_saved(compiler *c, ech_item *it, int *saved)
{
    const size_t bytes = compile_needs(c, it->block, ECH_REGION_SAVED_FB);
    if (!bytes)
        return ECH_OK;
    ECH_TRY(compile_add_transient(c, "saved", ECH_CLASS_ACTIVATIONS, bytes, saved));
    it->bind[ECH_REGION_SAVED_FB] = (ech_view){*saved, 0};
    return ECH_OK;
}

static ech_status forward_block(compiler *c, int block, int layer, int micro, int k)
{
    kept_slots *kp = &c->kept[micro];
    ech_item it = ech_item_make(block, c->segment);
    it.layer = layer;
    it.micro = micro;
    ECH_TRY(compile_bind_model(c, &it, layer + 1));
    it.bind[ECH_REGION_IN] = (ech_view){kp->x[k], 0};
    ECH_TRY(bind_saved(c, &it, &kp->saved[k]));
    ECH_TRY(new_activation(c, "activation", ECH_CLASS_ACTIVATIONS, &kp->x[k + 1]));
    it.bind[ECH_REGION_OUT] = (ech_view){kp->x[k + 1], 0};
    if (c->slots->cache >= 0)
        it.bind[ECH_REGION_CACHE] =
            (ech_view){c->slots->cache, (size_t)layer * compile_needs(c, block, ECH_REGION_CACHE)};
    return compile_add_item(c, &it);
}

static ech_status forward_embedding(compiler *c, int micro)
{
    ech_item it = ech_item_make(c->b.embedding[0], c->segment);
    it.micro = micro;
    ECH_TRY(compile_bind_model(c, &it, 0));
    ECH_TRY(new_activation(c, "activation", ECH_CLASS_ACTIVATIONS, &c->kept[micro].x[0]));
    it.bind[ECH_REGION_OUT] = (ech_view){c->kept[micro].x[0], 0};
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->tokens, micro_data(c, micro)};
    return compile_add_item(c, &it);
}

static ech_status forward_head(compiler *c, int micro)
{
    const int k = c->n_kept_blocks - 1;
    ech_item it = ech_item_make(c->b.head[0], c->segment);
    it.micro = micro;
    ECH_TRY(compile_bind_model(c, &it, c->spec.block.canon->n_units - 1));
    it.bind[ECH_REGION_IN] = (ech_view){c->kept[micro].x[k], 0};
    ECH_TRY(bind_saved(c, &it, &c->kept[micro].saved[k]));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->labels, micro_data(c, micro)};
    it.bind[ECH_REGION_OUT] = c->slots->logits >= 0
                                  ? (ech_view){c->slots->logits, 0}
                                  : (ech_view){c->slots->losses, 8 * (size_t)micro};
    return compile_add_item(c, &it);
}

static ech_status forward_unit(compiler *c, int micro, int unit)
{
    const int l = unit - 1;
    if (unit == 0)
        return forward_embedding(c, micro);
    if (unit == c->spec.block.canon->n_units - 1)
        return forward_head(c, micro);
    ECH_TRY(forward_block(c, c->b.attention[0], l, micro, 2 * l));
    return forward_block(c, c->b.mlp[0], l, micro, 2 * l + 1);
}

static ech_status backward_block(compiler *c, int block, int unit, int micro, int k, int *d)
{
    const kept_slots *kp = &c->kept[micro];
    ech_item it = ech_item_make(block, c->segment);
    it.layer = ech_canon_unit_kind(c->spec.block.canon, unit) == ECH_UNIT_LAYER ? unit - 1 : -1;
    it.micro = micro;
    ECH_TRY(compile_bind_model(c, &it, unit));
    it.bind[ECH_REGION_IN] = (ech_view){kp->x[k], 0};
    it.bind[ECH_REGION_SAVED_FB] = (ech_view){kp->saved[k], 0};
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->labels, micro_data(c, micro)};
    it.bind[ECH_REGION_DOUT] = (ech_view){*d, 0};
    ECH_TRY(new_activation(c, "activation gradient", ECH_CLASS_BUFFERS, d));
    it.bind[ECH_REGION_DIN] = (ech_view){*d, 0};
    return compile_add_item(c, &it);
}

static ech_status backward_embedding(compiler *c, int micro, int d)
{
    ech_item it = ech_item_make(c->b.embedding[1], c->segment);
    it.micro = micro;
    ECH_TRY(compile_bind_model(c, &it, 0));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->tokens, micro_data(c, micro)};
    it.bind[ECH_REGION_DOUT] = (ech_view){d, 0};
    return compile_add_item(c, &it);
}

static ech_status backward_unit(compiler *c, int micro, int unit)
{
    const int l = unit - 1;
    const bool is_head = ech_canon_unit_kind(c->spec.block.canon, unit) == ECH_UNIT_HEAD;
    int *d = &c->kept[micro].d;
    ECH_TRY(compile_open_grads(c, unit, micro));
    if (is_head && c->spec.block.model->tie_embeddings)
        ECH_TRY(compile_open_grads(c, 0, micro));
    if (unit == 0)
        return backward_embedding(c, micro, *d);
    if (is_head)
        return backward_block(c, c->b.head[1], unit, micro, c->n_kept_blocks - 1, d);
    ECH_TRY(backward_block(c, c->b.mlp[1], unit, micro, 2 * l + 1, d));
    return backward_block(c, c->b.attention[1], unit, micro, 2 * l, d);
}

/* The work in hand, between the gathers before it and the reductions after it. */
static ech_status do_work(compiler *c, const work *w)
{
    ECH_TRY(compile_open_work(c));
    ECH_TRY(w->is_backward ? backward_unit(c, w->micro, w->unit)
                           : forward_unit(c, w->micro, w->unit));
    compile_close_work(c);
    return w->is_backward ? compile_reduce_unit(c, w) : ECH_OK;
}

/* --- scalars and updates --- */

static ech_status scalar_item(compiler *c, int block)
{
    ech_item it = ech_item_make(block, c->segment);
    ECH_TRY(compile_bind_state(c, &it, 0));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->labels, 0};
    it.bind[ECH_REGION_OUT] = (ech_view){c->slots->losses, 0};
    it.bind[ECH_REGION_IN] = (ech_view){c->slots->losses, 0};
    return compile_add_item(c, &it);
}

/* The count moves under the first forward; `all` holds every rank's in between. */
static ech_status token_item(compiler *c, bool is_wait, int *all)
{
    ech_item it = ech_item_make(c->b.tokens[is_wait], c->segment);
    if (it.block < 0)
        return ECH_OK;
    const size_t bytes = compile_needs(c, it.block, ECH_REGION_OUT);
    if (bytes && !is_wait)
        ECH_TRY(compile_add_transient(c, "tokens of each rank", ECH_CLASS_BUFFERS, bytes, all));
    ECH_TRY(compile_bind_state(c, &it, 0));
    it.bind[ECH_REGION_OUT] = (ech_view){*all, 0};
    it.request = ech_layout_data_degree(&c->spec.block.layout) > 1 ? REQUEST_TOKENS : -1;
    return compile_add_item(c, &it);
}

static ech_status begin_step(compiler *c, int *all_tokens)
{
    c->segment = ECH_SEGMENT_ACCUMULATE;
    ECH_TRY(scalar_item(c, c->b.prologue));
    return token_item(c, false, all_tokens);
}

static ech_status end_tokens(compiler *c, int *all_tokens)
{
    ECH_TRY(token_item(c, true, all_tokens));
    return scalar_item(c, c->b.seed);
}

/* One block for each kind of unit: a norm's summand, an update. */
static ech_status unit_item(compiler *c, int unit, int ids[ECH_N_UNIT_KINDS],
                            ech_status (*make)(const ech_block_spec *, int, ech_block *))
{
    const ech_unit_kind kind = ech_canon_unit_kind(c->spec.block.canon, unit);
    if (ids[kind] < 0) {
        ech_block block;
        ECH_TRY(make(&c->spec.block, unit, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, &ids[kind]));
    }
    ech_item it = ech_item_make(ids[kind], c->segment);
    it.layer = kind == ECH_UNIT_LAYER ? unit - 1 : -1;
    ECH_TRY(compile_bind_state(c, &it, unit));
    it.bind[ECH_REGION_OUT] = (ech_view){c->slots->norm, 0};
    return compile_add_item(c, &it);
}

static ech_status norm_item(compiler *c, int block)
{
    ech_item it = ech_item_make(block, c->segment);
    ECH_TRY(compile_bind_state(c, &it, 0));
    it.bind[ECH_REGION_OUT] = (ech_view){c->slots->norm, 0};
    return compile_add_item(c, &it);
}

static ech_status emit_norm(compiler *c)
{
    ECH_TRY(norm_item(c, c->b.norm_zero));
    for (int u = 0; u < c->spec.block.canon->n_units; u++)
        ECH_TRY(unit_item(c, u, c->b.norm, ech_block_norm));
    return norm_item(c, c->b.norm_end);
}

static ech_status emit_updates(compiler *c)
{
    for (int u = 0; u < c->spec.block.canon->n_units; u++) {
        ECH_TRY(unit_item(c, u, c->b.update, ech_block_update));
        ECH_TRY(compile_gather_updated(c, u));
    }
    return compile_await_all(c);
}

/* --- blocks --- */

typedef ech_status (*block_maker)(const ech_block_spec *s, ech_role role, ech_block *out);

static ech_status add_model_blocks(compiler *c, bool trains)
{
    static const block_maker makers[] = {ech_block_embedding, ech_block_attention, ech_block_mlp,
                                         ech_block_head};
    int *const ids[] = {c->b.embedding, c->b.attention, c->b.mlp, c->b.head};
    for (int k = 0; k < 4; k++)
        for (int w = 0; w < (trains ? 2 : 1); w++) {
            ech_block block;
            ECH_TRY(makers[k](&c->spec.block, w ? ECH_ROLE_BACKWARD : ECH_ROLE_FORWARD, &block));
            ECH_TRY(ech_program_add_block(c->p, &block, &ids[k][w]));
        }
    return ECH_OK;
}

static ech_status add_step_blocks(compiler *c, bool trains)
{
    const ech_block_spec *s = &c->spec.block;
    ech_block block;
    ECH_TRY(ech_block_prologue(s, c->spec.micro_batches, trains && !s->form.shards_grads, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.prologue));
    ECH_TRY(ech_block_seed(s, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.seed));
    ECH_TRY(ech_block_loss(s, c->spec.micro_batches, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.loss));
    for (int w = 0; w < (ech_layout_data_degree(&s->layout) > 1 ? 2 : 1); w++) {
        ECH_TRY(ech_block_tokens(s, w == 1, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, &c->b.tokens[w]));
    }
    if (!trains)
        return ECH_OK;
    ECH_TRY(ech_block_norm_zero(s, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.norm_zero));
    ECH_TRY(ech_block_norm_end(s, &block));
    return ech_program_add_block(c->p, &block, &c->b.norm_end);
}

/* --- programs --- */

ech_state_form ech_compile_form(const ech_compile_spec *spec)
{
    const ech_shard_policy *p = &spec->block.policy;
    const int stage = spec->block.layout.degree[ECH_AXIS_DP] > 1 ? p->zero_stage : 0;
    const bool reduces_once = spec->micro_batches > 1 && !p->reduces_each;
    return (ech_state_form){.is_sharded = stage >= 1,
                            .shards_grads = stage >= 2 && !reduces_once,
                            .shards_params = stage >= 3};
}

ech_status ech_compile_plan(const ech_compile_spec *spec, ech_shard_plan *out)
{
    const ech_layout *l = &spec->block.layout;
    const ech_shard_spec shard = {
        .model = spec->block.model,
        .canon = spec->block.canon,
        .tp = l->degree[ECH_AXIS_TP],
        .is_sequence_parallel = spec->block.policy.is_sequence_parallel,
        .shards = ech_compile_form(spec).is_sharded ? l->degree[ECH_AXIS_DP] : 1,
    };
    ECH_TRY(ech_shard_plan_make(&shard, out));
    ECH_CHECK(out->heads.copies == l->degree[ECH_AXIS_KV], ECH_E_ILLEGAL,
              "%d neighbouring ranks of tp hold the same key/value heads, the layout says %d",
              out->heads.copies, l->degree[ECH_AXIS_KV]);
    return ECH_OK;
}

static void release(compiler *c)
{
    for (int m = 0; c->kept && m < c->spec.micro_batches; m++) {
        free(c->kept[m].x);
        free(c->kept[m].saved);
    }
    free(c->kept);
    free(c->is_taken);
    free(c->moving);
    free(c->whole_grads);
    free(c->gather);
    free(c->gathered);
    free(c->order);
}

static ech_status init(compiler *c, const ech_compile_spec *spec, ech_program *p,
                       ech_run_slots *slots, ech_mode mode)
{
    static const char *const names[] = {"train", "eval", "generate"};
    const size_t units = (size_t)spec->block.canon->n_units;
    c->spec = *spec;
    c->p = p;
    c->slots = slots;
    c->n_kept_blocks = 2 * (int)spec->block.model->layers + 1;
    memset(slots, 0xff, sizeof *slots); /* -1 */
    memset(&c->b, 0xff, sizeof c->b);
    ech_program_init(p, names[mode], &spec->block.layout);
    p->micro_batches = spec->micro_batches;
    p->rows_per_micro = spec->block.rows;
    ECH_TRY(ech_compile_plan(spec, &c->plan));
    c->spec.block.mode = mode;
    c->spec.block.plan = &c->plan;
    c->spec.block.form = ech_compile_form(spec);
    p->before = p->after =
        c->spec.block.form.shards_params ? ECH_BORDER_WEIGHTS_SHARDED : ECH_BORDER_WEIGHTS_WHOLE;
    for (int part = 0; part < ECH_N_PARTS; part++)
        c->bucket_end[part] = (int)units - 1;
    ECH_TRY(ech_calloc(units, sizeof(int), &c->whole_grads));
    ECH_TRY(ech_calloc(units, sizeof(int), &c->gathered));
    for (size_t u = 0; u < units; u++)
        c->whole_grads[u] = c->gathered[u] = -1;
    ECH_TRY(ech_calloc((size_t)spec->micro_batches, sizeof *c->kept, &c->kept));
    for (int m = 0; m < spec->micro_batches; m++) {
        c->kept[m].d = -1;
        ECH_TRY(ech_calloc((size_t)c->n_kept_blocks + 1, sizeof(int), &c->kept[m].x));
        ECH_TRY(ech_calloc((size_t)c->n_kept_blocks, sizeof(int), &c->kept[m].saved));
    }
    return ECH_OK;
}

static ech_status emit_work(compiler *c)
{
    for (int i = 0; i < c->n_work; i++)
        ECH_TRY(do_work(c, &c->order[i]));
    return ECH_OK;
}

/* The loss seed wants the count of tokens, so the first backward waits for it. */
static ech_status emit_train(compiler *c)
{
    int all_tokens = -1;
    int i = 0;
    ECH_TRY(begin_step(c, &all_tokens));
    for (; i < c->n_work && !c->order[i].is_backward; i++)
        ECH_TRY(do_work(c, &c->order[i]));
    ECH_TRY(end_tokens(c, &all_tokens));
    for (; i < c->n_work; i++)
        ECH_TRY(do_work(c, &c->order[i]));
    c->segment = ECH_SEGMENT_REDUCE;
    ECH_TRY(compile_await_all(c));
    ECH_TRY(scalar_item(c, c->b.loss));
    ECH_TRY(emit_norm(c));
    c->segment = ECH_SEGMENT_COMMIT;
    return emit_updates(c);
}

static ech_status emit_eval(compiler *c)
{
    int all_tokens = -1;
    ECH_TRY(begin_step(c, &all_tokens));
    ECH_TRY(emit_work(c));
    ECH_TRY(end_tokens(c, &all_tokens));
    c->segment = ECH_SEGMENT_REDUCE;
    return scalar_item(c, c->b.loss);
}

/* Place and prove: every program that leaves the compiler has been checked. */
static ech_status finish(compiler *c)
{
    ech_prove_report unread;
    const ech_program *p = c->p;
    ech_prove_spec spec = {.program = &p, .n_classes = 1, .plan = &c->plan};
    ECH_TRY(ech_program_place(c->p, c->spec.cap_bytes));
    memcpy(spec.cap_bytes, c->spec.cap_bytes, sizeof spec.cap_bytes);
    return ech_prove(&spec, c->spec.report ? c->spec.report : &unread);
}

/* Training and evaluation of a run have the same state, so that they chain. */
static ech_status compile_step(compiler *c, bool trains)
{
    ECH_TRY(compile_add_model_state(c, true));
    ECH_TRY(compile_add_batch_state(c));
    ECH_TRY(add_model_blocks(c, trains));
    ECH_TRY(add_step_blocks(c, trains));
    ECH_TRY(compile_plan_order(c, trains));
    ECH_TRY(compile_plan_gathers(c));
    ECH_TRY(trains ? emit_train(c) : emit_eval(c));
    return finish(c);
}

static ech_status compile_generate(compiler *c)
{
    ECH_TRY(compile_add_model_state(c, false));
    ECH_TRY(add_model_blocks(c, false));
    ECH_TRY(compile_add_generation_state(c));
    ECH_TRY(compile_plan_order(c, false));
    ECH_TRY(emit_work(c));
    return finish(c);
}

static ech_status compile(const ech_compile_spec *spec, ech_mode mode, ech_program *out,
                          ech_run_slots *slots)
{
    compiler c = {0};
    ech_status st = init(&c, spec, out, slots, mode);
    if (st >= 0)
        st = mode == ECH_MODE_GENERATE ? compile_generate(&c)
                                       : compile_step(&c, mode == ECH_MODE_TRAIN);
    release(&c);
    if (st < 0)
        ech_program_fini(out);
    return st;
}

ech_status ech_compile_train(const ech_compile_spec *spec, ech_program *out, ech_run_slots *slots)
{
    return compile(spec, ECH_MODE_TRAIN, out, slots);
}

ech_status ech_compile_eval(const ech_compile_spec *spec, ech_program *out, ech_run_slots *slots)
{
    return compile(spec, ECH_MODE_EVAL, out, slots);
}

ech_status ech_compile_generate(const ech_compile_spec *spec, ech_program *out,
                                ech_run_slots *slots)
{
    ech_compile_spec one = *spec;
    one.micro_batches = 1;
    one.block.rows = 1;
    one.block.layout = ech_layout_data_parallel(1);
    one.block.policy = (ech_shard_policy){0};
    return compile(&one, ECH_MODE_GENERATE, out, slots);
}

int64_t ech_first_row(const ech_program *p, int rank, int micro)
{
    int64_t coord[ECH_N_AXES];
    ech_layout_coords(&p->layout, rank, coord);
    return ((int64_t)(micro < 0 ? 0 : micro) * ech_layout_data_degree(&p->layout) +
            ech_layout_data_index(&p->layout, coord)) *
           p->rows_per_micro;
}
