#include "program/compile_private.h"
#include "program/repeat.h"

#include <stdlib.h>
#include <string.h>

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
    return c->b.seed < 0 ? ECH_OK : scalar_item(c, c->b.seed);
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
    for (int i = 0; i < ech_shard_unit_count(&c->plan); i++)
        ECH_TRY(unit_item(c, ech_shard_unit_at(&c->plan, i), c->b.norm, ech_block_norm));
    return norm_item(c, c->b.norm_end);
}

static ech_status emit_updates(compiler *c)
{
    for (int i = 0; i < ech_shard_unit_count(&c->plan); i++) {
        const int u = ech_shard_unit_at(&c->plan, i);
        ECH_TRY(unit_item(c, u, c->b.update, ech_block_update));
        ECH_TRY(compile_gather_updated(c, u));
    }
    return compile_await_all(c);
}

/* --- blocks --- */

static ech_status add_step_blocks(compiler *c, bool trains)
{
    const ech_block_spec *s = &c->spec.block;
    ech_block block;
    const bool has_losses = c->slots->losses >= 0;
    ECH_TRY(ech_block_prologue(s, c->spec.micro_batches, trains && !s->form.shards_grads,
                               has_losses, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.prologue));
    if (has_losses) { /* backward begins here */
        ECH_TRY(ech_block_seed(s, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, &c->b.seed));
    }
    ECH_TRY(ech_block_loss(s, has_losses ? c->spec.micro_batches : 0, &block));
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

static void release(compiler *c)
{
    for (int i = 0; c->kept && i < c->n_chunks * c->micros; i++)
        free(c->kept[i].slot);
    free(c->kept);
    free(c->message_block);
    free(c->message);
    free(c->action);
    free(c->is_complete);
    free(c->n_scattered);
    free(c->is_taken);
    free(c->moving);
    free(c->whole_grads);
    free(c->gather);
    free(c->gathered);
    free(c->order);
}

/* The virtual stages of this rank, and room for what they keep. */
static ech_status init_chunks(compiler *c)
{
    const ech_stages *s = c->run.stages;
    const int head = c->spec.block.canon->n_units - 1;
    const size_t m = (size_t)c->micros;
    for (int k = 0; k < s->n; k++) {
        if (s->rank_of[k] != c->rank)
            continue;
        unit_chunk *ch = &c->chunk[c->n_chunks++];
        *ch = (unit_chunk){.stage = k, .first = s->first[k], .end = s->first[k + 1]};
        for (int u = ch->first; u < ch->end; u++)
            ch->blocks += u == 0 ? 0 : u == head ? 1 : 2;
    }
    ECH_TRY(ech_calloc((size_t)c->n_chunks * m, sizeof *c->kept, &c->kept));
    for (size_t i = 0; i < (size_t)c->n_chunks * m; i++) {
        kept_slots *kp = &c->kept[i];
        kp->d = kp->recv[0] = kp->recv[1] = -1;
        ECH_TRY(ech_calloc((size_t)KEPT_KINDS * (size_t)(c->chunk[i / m].blocks + 1), sizeof(int),
                           &kp->slot));
    }
    return ECH_OK;
}

static ech_status init_lists(compiler *c)
{
    const size_t units = (size_t)c->spec.block.canon->n_units;
    const size_t wholes =
        units * (size_t)(c->spec.block.form.shards_grads ? c->spec.micro_batches : 1);
    const size_t peers = 8 * (size_t)c->run.stages->ranks;
    c->n_bucketed = 0;
    for (int part = 0; part < ECH_N_PARTS; part++)
        c->bucket_end[part] = -1;
    ECH_TRY(ech_calloc(units, sizeof *c->is_complete, &c->is_complete));
    ECH_TRY(ech_calloc(units, sizeof *c->n_scattered, &c->n_scattered));
    ECH_TRY(ech_calloc(wholes, sizeof(int), &c->whole_grads));
    ECH_TRY(ech_calloc(units, sizeof(int), &c->gathered));
    ECH_TRY(ech_calloc(peers, sizeof(int), &c->message_block));
    for (size_t u = 0; u < units; u++)
        c->gathered[u] = -1;
    for (size_t i = 0; i < wholes; i++)
        c->whole_grads[i] = -1;
    for (size_t i = 0; i < peers; i++)
        c->message_block[i] = -1;
    return init_chunks(c);
}

static ech_status init(compiler *c, const compile_class *k, ech_mode mode)
{
    static const char *const names[] = {"train", "eval", "generate"};
    c->spec = *k->spec;
    c->run = *k->run;
    c->micros = k->run->schedule->micros;
    c->rank = k->rank;
    c->p = &k->out->program;
    c->slots = &k->out->slots;
    c->plan = k->out->plan;
    memset(c->slots, 0xff, sizeof *c->slots); /* -1 */
    memset(&c->b, 0xff, sizeof c->b);
    ech_program_init(c->p, names[mode], &c->spec.block.layout);
    c->p->micro_batches = c->spec.micro_batches;
    c->p->rows_per_micro = c->spec.block.rows;
    c->spec.block.mode = mode;
    c->spec.block.plan = &c->plan;
    c->spec.block.form = ech_compile_form(k->spec);
    c->spec.block.splits_backward = mode == ECH_MODE_TRAIN && c->run.schedule->is_split;
    c->p->before = c->p->after =
        c->spec.block.form.shards_params ? ECH_BORDER_WEIGHTS_SHARDED : ECH_BORDER_WEIGHTS_WHOLE;
    return init_lists(c);
}

static ech_status do_action(compiler *c, const action *a)
{
    switch (a->kind) {
    case ACTION_START:
        return compile_start_message(c, &c->message[a->first]);
    case ACTION_WAIT:
        return compile_await_message(c, &c->message[a->first]);
    case ACTION_TASKS:
        for (int i = a->first; i < a->end; i++)
            ECH_TRY(compile_do_task(c, &c->order[i]));
        return ECH_OK;
    }
    return ECH_OK;
}

static bool is_forward(const compiler *c, const action *a)
{
    return a->kind != ACTION_TASKS || a->first == a->end ||
           c->order[a->first].kind == ECH_WORK_FORWARD;
}

/* The loss seed wants the count of tokens, so the first backward waits for it. */
static ech_status emit_actions(compiler *c)
{
    int all_tokens = -1;
    int i = 0;
    ECH_TRY(begin_step(c, &all_tokens));
    for (; i < c->n_actions && is_forward(c, &c->action[i]); i++)
        ECH_TRY(do_action(c, &c->action[i]));
    ECH_TRY(end_tokens(c, &all_tokens));
    for (; i < c->n_actions; i++)
        ECH_TRY(do_action(c, &c->action[i]));
    return ECH_OK;
}

static ech_status emit_step(compiler *c, bool trains)
{
    ECH_TRY(emit_actions(c));
    c->segment = ECH_SEGMENT_REDUCE;
    ECH_TRY(compile_await_all(c));
    ECH_TRY(scalar_item(c, c->b.loss));
    if (!trains)
        return ECH_OK;
    ECH_TRY(emit_norm(c));
    c->segment = ECH_SEGMENT_COMMIT;
    return emit_updates(c);
}

/* Training and evaluation of a run have the same state, so that they chain. */
static ech_status compile_step(compiler *c, bool trains)
{
    ECH_TRY(compile_add_model_state(c, true));
    ECH_TRY(compile_add_batch_state(c));
    ECH_TRY(compile_add_unit_blocks(c));
    ECH_TRY(add_step_blocks(c, trains));
    ECH_TRY(compile_plan_order(c));
    ECH_TRY(compile_plan_gathers(c));
    return emit_step(c, trains);
}

static ech_status compile_generation(compiler *c)
{
    ECH_TRY(compile_add_model_state(c, false));
    ECH_TRY(compile_add_unit_blocks(c));
    ECH_TRY(compile_add_generation_state(c));
    ECH_TRY(compile_plan_order(c));
    for (int i = 0; i < c->n_actions; i++)
        ECH_TRY(do_action(c, &c->action[i]));
    return ECH_OK;
}

/* A table of fewer micro-batches than the step's stands for it where rounds repeat. */
static ech_status lengthen(compiler *c, const compile_class *k)
{
    bool found;
    if (c->micros == c->spec.micro_batches)
        return ECH_OK;
    ECH_TRY(ech_program_roll(c->p, c->micros, &found));
    if (!found)
        *k->is_rolled = false;
    else
        ech_program_lengthen(c->p, c->spec.micro_batches - c->micros);
    return ECH_OK;
}

ech_status compile_program(const compile_class *k, ech_mode mode)
{
    compiler *c;
    ECH_TRY(ech_calloc(1, sizeof *c, &c));
    ech_status st = init(c, k, mode);
    if (st >= 0)
        st = mode == ECH_MODE_GENERATE ? compile_generation(c)
                                       : compile_step(c, mode == ECH_MODE_TRAIN);
    if (st >= 0)
        st = lengthen(c, k);
    if (st >= 0 && k->spec->purpose == ECH_COMPILE_TO_SKETCH)
        ech_program_find_lives(c->p);
    else if (st >= 0)
        st = ech_program_place(c->p, c->spec.cap_bytes);
    release(c);
    free(c);
    return st;
}

int64_t ech_first_row(const ech_program *p, int rank, int micro)
{
    int64_t coord[ECH_N_AXES];
    ech_layout_coords(&p->layout, rank, coord);
    return ((int64_t)(micro < 0 ? 0 : micro) * ech_layout_data_degree(&p->layout) +
            ech_layout_data_index(&p->layout, coord)) *
           p->rows_per_micro;
}
