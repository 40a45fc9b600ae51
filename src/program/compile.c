#include "program/compile.h"
#include "program/block_builder.h"
#include "program/deps.h"
#include "program/lives.h"
#include "program/once.h"
#include "program/types.h"

#include <stdio.h>
#include <stdlib.h>

/* Blocks of the model, by index in the program; -1: not there. */
typedef struct blocks {
    int embedding[2], attention[2], mlp[2], head[2]; /* [forward, backward] */
    int prologue, tokens_start, tokens_wait, seed, loss, loss_start, loss_wait, norm;
} blocks;

/* Slots that a micro-batch keeps from forward to backward. */
typedef struct kept {
    int *x;     /* [2 L + 1] inputs of the blocks after the embedding */
    int *saved; /* [2 L + 1] */
} kept;

typedef struct compiler {
    ech_compile_spec spec;
    ech_program *p;
    ech_run_slots *slots;
    blocks b;
    kept *kept; /* [micro_batches] */
    int n_kept_blocks;
    int request;
    /* gradient buckets in flight: wait blocks with their views */
    ech_item *waits; /* [n_units] */
    int first_wait, n_waits;
} compiler;

/* --- slots --- */

typedef struct slot_spec {
    const char *name;
    ech_class klass;
    size_t bytes;
    ech_placement place;
    bool is_constant, is_scratch;
} slot_spec;

static ech_status add_state(compiler *c, const slot_spec *s, int *id)
{
    ech_slot slot = {.space = ECH_SPACE_DEVICE,
                     .klass = s->klass,
                     .is_state = true,
                     .bytes = s->bytes,
                     .place = s->place,
                     .is_constant = s->is_constant,
                     .is_scratch = s->is_scratch};
    (void)snprintf(slot.name, sizeof slot.name, "%s", s->name);
    *id = -1;
    return s->bytes ? ech_program_add_slot(c->p, &slot, id) : ECH_OK;
}

static ech_status add_transient(compiler *c, const char *name, ech_class klass, size_t bytes,
                                int *id)
{
    ech_slot slot = {.space = ECH_SPACE_DEVICE,
                     .klass = klass,
                     .bytes = bytes,
                     .place = ech_placement_invariant()};
    (void)snprintf(slot.name, sizeof slot.name, "%s", name);
    return ech_program_add_slot(c->p, &slot, id);
}

static ech_status add_model_state(compiler *c, bool trains)
{
    const ech_block_spec *s = &c->spec.block;
    const size_t real = ech_dtype_bytes(s->real);
    const size_t elems = (size_t)s->canon->elems;
    const int64_t positions = s->context > s->seq ? s->context : s->seq;
    const ech_placement whole = ech_placement_invariant();
    const slot_spec rows[] = {
        {"params", ECH_CLASS_PARAMS, elems * real, whole, !trains, false},
        {"grads", ECH_CLASS_GRADS, trains ? elems * real : 0, whole, false, true},
        {"moments", ECH_CLASS_OPTIMIZER,
         trains && s->optim == ECH_UPDATE_ADAMW ? 2 * elems * real : 0, whole, false, false},
        {"scalars", ECH_CLASS_BUFFERS, 8 * (size_t)ECH_N_CELLS, whole, false, false},
        {"rope", ECH_CLASS_BUFFERS, 8 * (size_t)ech_rope_table_elems(s->model, positions), whole,
         true, false},
    };
    int *const ids[] = {&c->slots->params, &c->slots->grads, &c->slots->moments, &c->slots->scalars,
                        &c->slots->rope};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ECH_TRY(add_state(c, &rows[i], ids[i]));
    c->p->scalars = c->slots->scalars;
    return ECH_OK;
}

static ech_status add_batch_state(compiler *c)
{
    const ech_block_spec *s = &c->spec.block;
    const size_t m = (size_t)c->spec.micro_batches;
    const size_t tokens = m * (size_t)(s->rows * s->seq);
    const size_t dp = (size_t)s->layout.degree[ECH_AXIS_DP];
    const ech_placement whole = ech_placement_invariant();
    const ech_placement dealt = ech_token_placement(&s->layout);
    const slot_spec rows[] = {
        {"tokens", ECH_CLASS_BUFFERS, 4 * tokens, dealt, true, false},
        {"labels", ECH_CLASS_BUFFERS, 4 * tokens, dealt, true, false},
        {"losses", ECH_CLASS_BUFFERS, 8 * m, whole, false, true},
        {"loss of each rank", ECH_CLASS_BUFFERS, dp > 1 ? 16 * dp : 0, whole, false, true},
        {"tokens of each rank", ECH_CLASS_BUFFERS, dp > 1 ? 8 * dp : 0, whole, false, true},
    };
    int *const ids[] = {&c->slots->tokens, &c->slots->labels, &c->slots->losses,
                        &c->slots->rank_losses, &c->slots->rank_tokens};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ECH_TRY(add_state(c, &rows[i], ids[i]));
    return ECH_OK;
}

/* --- items --- */

static size_t needs(const compiler *c, int block, ech_region region)
{
    return c->p->block[block].region_bytes[region];
}

static ech_view view(int slot, size_t offset)
{
    return (ech_view){slot, offset};
}

/* Bind what every block of a unit may want: parameters, gradients, tables, scalars, scratch. */
static ech_status bind_common(compiler *c, ech_item *it, int unit)
{
    const ech_block_spec *s = &c->spec.block;
    const size_t real = ech_dtype_bytes(s->real);
    const size_t at = (size_t)s->canon->unit_offset[unit] * real;
    it->bind[ECH_REGION_PARAM] = view(c->slots->params, at);
    it->bind[ECH_REGION_GRAD] = view(c->slots->grads, at);
    it->bind[ECH_REGION_TIED] = view(c->slots->params, 0);
    it->bind[ECH_REGION_TIED_GRAD] = view(c->slots->grads, 0);
    it->bind[ECH_REGION_MOMENT] = view(c->slots->moments, 2 * at);
    it->bind[ECH_REGION_SCALARS] = view(c->slots->scalars, 0);
    it->bind[ECH_REGION_CONST] = view(c->slots->rope, 0);
    if (needs(c, it->block, ECH_REGION_WORK)) {
        int id;
        ECH_TRY(
            add_transient(c, "work", ECH_CLASS_BUFFERS, needs(c, it->block, ECH_REGION_WORK), &id));
        it->bind[ECH_REGION_WORK] = view(id, 0);
    }
    return ECH_OK;
}

static size_t micro_data(const compiler *c, int micro)
{
    return 4 * (size_t)micro * (size_t)(c->spec.block.rows * c->spec.block.seq);
}

static ech_status new_activation(compiler *c, const char *name, ech_class klass, int *id)
{
    const ech_block_spec *s = &c->spec.block;
    return add_transient(c, name, klass,
                         (size_t)(s->rows * s->seq * s->model->hidden) * ech_dtype_bytes(s->real),
                         id);
}

/* What a block keeps for backward; none in evaluation. */
static ech_status bind_saved(compiler *c, ech_item *it, int *saved)
{
    const size_t bytes = needs(c, it->block, ECH_REGION_SAVED_FB);
    if (!bytes)
        return ECH_OK;
    ECH_TRY(add_transient(c, "saved", ECH_CLASS_ACTIVATIONS, bytes, saved));
    it->bind[ECH_REGION_SAVED_FB] = view(*saved, 0);
    return ECH_OK;
}

static ech_status forward_block(compiler *c, int block, int layer, int micro, int k)
{
    kept *kp = &c->kept[micro];
    ech_item it = ech_item_make(block, ECH_SEGMENT_ACCUMULATE);
    it.layer = layer;
    it.micro = micro;
    ECH_TRY(bind_common(c, &it, layer + 1));
    it.bind[ECH_REGION_IN] = view(kp->x[k], 0);
    ECH_TRY(bind_saved(c, &it, &kp->saved[k]));
    ECH_TRY(new_activation(c, "activation", ECH_CLASS_ACTIVATIONS, &kp->x[k + 1]));
    it.bind[ECH_REGION_OUT] = view(kp->x[k + 1], 0);
    if (c->slots->cache >= 0)
        it.bind[ECH_REGION_CACHE] =
            view(c->slots->cache, (size_t)layer * needs(c, block, ECH_REGION_CACHE));
    return ech_program_add_item(c->p, &it);
}

static ech_status forward_embedding(compiler *c, int micro)
{
    ech_item it = ech_item_make(c->b.embedding[0], ECH_SEGMENT_ACCUMULATE);
    it.micro = micro;
    ECH_TRY(bind_common(c, &it, 0));
    ECH_TRY(new_activation(c, "activation", ECH_CLASS_ACTIVATIONS, &c->kept[micro].x[0]));
    it.bind[ECH_REGION_OUT] = view(c->kept[micro].x[0], 0);
    it.bind[ECH_REGION_DATA] = view(c->slots->tokens, micro_data(c, micro));
    return ech_program_add_item(c->p, &it);
}

static ech_status forward_head(compiler *c, int micro)
{
    const int k = c->n_kept_blocks - 1;
    ech_item it = ech_item_make(c->b.head[0], ECH_SEGMENT_ACCUMULATE);
    it.micro = micro;
    ECH_TRY(bind_common(c, &it, c->spec.block.canon->n_units - 1));
    it.bind[ECH_REGION_IN] = view(c->kept[micro].x[k], 0);
    ECH_TRY(bind_saved(c, &it, &c->kept[micro].saved[k]));
    it.bind[ECH_REGION_DATA] = view(c->slots->labels, micro_data(c, micro));
    it.bind[ECH_REGION_OUT] = c->slots->logits >= 0 ? view(c->slots->logits, 0)
                                                    : view(c->slots->losses, 8 * (size_t)micro);
    return ech_program_add_item(c->p, &it);
}

static ech_status forward(compiler *c, int micro)
{
    const int layers = (int)c->spec.block.model->layers;
    ECH_TRY(forward_embedding(c, micro));
    for (int l = 0; l < layers; l++) {
        ECH_TRY(forward_block(c, c->b.attention[0], l, micro, 2 * l));
        ECH_TRY(forward_block(c, c->b.mlp[0], l, micro, 2 * l + 1));
    }
    return forward_head(c, micro);
}

/* --- gradient reduction --- */

static const char *unit_name(const ech_canon *canon, int unit, char *buf, size_t n)
{
    if (unit > 0 && unit < canon->n_units - 1)
        (void)snprintf(buf, n, "layer %d", unit - 1);
    else
        (void)snprintf(buf, n, "%s", unit ? "head" : "embedding");
    return buf;
}

/* "all-reduce of layer 3..head: start": a bucket is no layer's alone, so messages name its ends. */
static void name_bucket(const ech_canon *canon, int lo, int hi, bool is_wait, ech_block *block)
{
    char a[24];
    char b[24];
    (void)snprintf(block->name, sizeof block->name, "all-reduce of %s%s%s: %s",
                   unit_name(canon, lo, a, sizeof a), lo == hi ? "" : "..",
                   lo == hi ? "" : unit_name(canon, hi, b, sizeof b), is_wait ? "wait" : "start");
}

/* Await the oldest bucket in flight, in this segment. */
static ech_status await_oldest(compiler *c, ech_segment segment)
{
    ech_item it = c->waits[c->first_wait++];
    it.segment = segment;
    return ech_program_add_item(c->p, &it);
}

/* All-reduce of the gradients of units [lo, hi]: the start now, the wait when ECH_REDUCE_WINDOW further
 * buckets have been started (no more of them move at once, and each holds its staging), or in the
 * reduce segment. */
static ech_status start_bucket(compiler *c, int lo, int hi)
{
    const ech_canon *canon = c->spec.block.canon;
    const size_t real = ech_dtype_bytes(c->spec.block.real);
    const int64_t elems = canon->unit_offset[hi] + canon->unit_elems[hi] - canon->unit_offset[lo];
    ech_block block;
    int id[2];
    int staging;
    for (int w = 0; w < 2; w++) {
        ECH_TRY(ech_block_all_reduce(&c->spec.block, elems, w == 1, &block));
        name_bucket(canon, lo, hi, w == 1, &block);
        ECH_TRY(ech_program_add_block(c->p, &block, &id[w]));
    }
    ech_item it = ech_item_make(id[0], ECH_SEGMENT_ACCUMULATE);
    ECH_TRY(
        add_transient(c, "staging", ECH_CLASS_BUFFERS, needs(c, id[0], ECH_REGION_OUT), &staging));
    it.bind[ECH_REGION_GRAD] = view(c->slots->grads, (size_t)canon->unit_offset[lo] * real);
    it.bind[ECH_REGION_OUT] = view(staging, 0);
    it.request = c->request++;
    if (c->n_waits - c->first_wait == ECH_REDUCE_WINDOW)
        ECH_TRY(await_oldest(c, ECH_SEGMENT_ACCUMULATE));
    ECH_TRY(ech_program_add_item(c->p, &it));
    it.block = id[1];
    c->waits[c->n_waits++] = it;
    return ECH_OK;
}

/* Called when a unit's gradient is complete, from the head down to the embedding: started as soon
 * as the last writer is done, so that it runs under the backward of the layers before it; awaited
 * late, so that nothing else has to wait for it. */
static ech_status unit_done(compiler *c, int unit, int *bucket_end)
{
    const ech_canon *canon = c->spec.block.canon;
    if (c->spec.block.layout.degree[ECH_AXIS_DP] == 1)
        return ECH_OK;
    const int64_t elems =
        canon->unit_offset[*bucket_end] + canon->unit_elems[*bucket_end] - canon->unit_offset[unit];
    if (unit > 0 && elems * (int64_t)ech_dtype_bytes(c->spec.block.real) < c->spec.bucket_bytes)
        return ECH_OK;
    ECH_TRY(start_bucket(c, unit, *bucket_end));
    *bucket_end = unit - 1;
    return ECH_OK;
}

/* --- backward --- */

static ech_status backward_block(compiler *c, int block, int layer, int micro, int k, int *d)
{
    const kept *kp = &c->kept[micro];
    ech_item it = ech_item_make(block, ECH_SEGMENT_ACCUMULATE);
    const bool is_head = block == c->b.head[1];
    it.layer = layer;
    it.micro = micro;
    ECH_TRY(bind_common(c, &it, is_head ? c->spec.block.canon->n_units - 1 : layer + 1));
    it.bind[ECH_REGION_IN] = view(kp->x[k], 0);
    it.bind[ECH_REGION_SAVED_FB] = view(kp->saved[k], 0);
    it.bind[ECH_REGION_DATA] = view(c->slots->labels, micro_data(c, micro));
    it.bind[ECH_REGION_DOUT] = view(*d, 0);
    ECH_TRY(new_activation(c, "activation gradient", ECH_CLASS_BUFFERS, d));
    it.bind[ECH_REGION_DIN] = view(*d, 0);
    return ech_program_add_item(c->p, &it);
}

static ech_status backward_embedding(compiler *c, int micro, int d)
{
    ech_item it = ech_item_make(c->b.embedding[1], ECH_SEGMENT_ACCUMULATE);
    it.micro = micro;
    ECH_TRY(bind_common(c, &it, 0));
    it.bind[ECH_REGION_DATA] = view(c->slots->tokens, micro_data(c, micro));
    it.bind[ECH_REGION_DOUT] = view(d, 0);
    return ech_program_add_item(c->p, &it);
}

static ech_status backward(compiler *c, int micro, bool is_last)
{
    const int layers = (int)c->spec.block.model->layers;
    int d = -1;
    int bucket_end = layers + 1;
    ECH_TRY(backward_block(c, c->b.head[1], -1, micro, c->n_kept_blocks - 1, &d));
    if (is_last)
        ECH_TRY(unit_done(c, layers + 1, &bucket_end));
    for (int l = layers - 1; l >= 0; l--) {
        ECH_TRY(backward_block(c, c->b.mlp[1], l, micro, 2 * l + 1, &d));
        ECH_TRY(backward_block(c, c->b.attention[1], l, micro, 2 * l, &d));
        if (is_last)
            ECH_TRY(unit_done(c, l + 1, &bucket_end));
    }
    ECH_TRY(backward_embedding(c, micro, d));
    return is_last ? unit_done(c, 0, &bucket_end) : ECH_OK;
}

/* --- scalars and updates --- */

static ech_status scalar_item(compiler *c, int block, ech_segment segment)
{
    ech_item it = ech_item_make(block, segment);
    ECH_TRY(bind_common(c, &it, 0));
    it.bind[ECH_REGION_GRAD] = view(c->slots->grads, 0);
    it.bind[ECH_REGION_DATA] = view(c->slots->labels, 0);
    it.bind[ECH_REGION_OUT] = view(c->slots->losses, 0);
    it.bind[ECH_REGION_IN] = view(c->slots->losses, 0);
    return ech_program_add_item(c->p, &it);
}

/* Sum of a cell over dp: with one rank, a copy (the "start" block does all of it). */
static ech_status sum_item(compiler *c, int block, int gathered, int request, ech_segment segment)
{
    ech_item it = ech_item_make(block, segment);
    it.bind[ECH_REGION_SCALARS] = view(c->slots->scalars, 0);
    it.bind[ECH_REGION_OUT] = view(gathered, 0);
    it.request = gathered >= 0 ? request : -1;
    return ech_program_add_item(c->p, &it);
}

static ech_status begin_step(compiler *c, int *tokens_request)
{
    *tokens_request = c->request++;
    ECH_TRY(scalar_item(c, c->b.prologue, ECH_SEGMENT_ACCUMULATE));
    return sum_item(c, c->b.tokens_start, c->slots->rank_tokens, *tokens_request,
                    ECH_SEGMENT_ACCUMULATE);
}

static ech_status end_tokens(compiler *c, int request)
{
    if (c->slots->rank_tokens >= 0)
        ECH_TRY(
            sum_item(c, c->b.tokens_wait, c->slots->rank_tokens, request, ECH_SEGMENT_ACCUMULATE));
    return scalar_item(c, c->b.seed, ECH_SEGMENT_ACCUMULATE);
}

static ech_status sum_losses(compiler *c)
{
    const int request = c->request++;
    ECH_TRY(scalar_item(c, c->b.loss, ECH_SEGMENT_REDUCE));
    ECH_TRY(sum_item(c, c->b.loss_start, c->slots->rank_losses, request, ECH_SEGMENT_REDUCE));
    if (c->slots->rank_losses < 0)
        return ECH_OK;
    return sum_item(c, c->b.loss_wait, c->slots->rank_losses, request, ECH_SEGMENT_REDUCE);
}

static ech_status add_updates(compiler *c)
{
    const ech_canon *canon = c->spec.block.canon;
    int id[3] = {-1, -1, -1}; /* embedding, layers, head: all layers share one block */
    for (int unit = 0; unit < canon->n_units; unit++) {
        const int kind = unit == 0 ? 0 : unit == canon->n_units - 1 ? 2 : 1;
        ech_block block;
        if (id[kind] < 0) {
            ECH_TRY(ech_block_update(&c->spec.block, unit, &block));
            ECH_TRY(ech_program_add_block(c->p, &block, &id[kind]));
        }
        ech_item it = ech_item_make(id[kind], ECH_SEGMENT_COMMIT);
        it.layer = kind == 1 ? unit - 1 : -1;
        ECH_TRY(bind_common(c, &it, unit));
        ECH_TRY(ech_program_add_item(c->p, &it));
    }
    return ECH_OK;
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

static ech_status add_sum_blocks(compiler *c, ech_cell from, ech_cell to, int n, int *const ids[2])
{
    for (int w = 0; w < (c->spec.block.layout.degree[ECH_AXIS_DP] > 1 ? 2 : 1); w++) {
        ech_block block;
        ECH_TRY(ech_block_sum_cells(&c->spec.block, from, to, n, w == 1, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, ids[w]));
    }
    return ECH_OK;
}

static ech_status add_step_blocks(compiler *c, bool trains)
{
    ech_block block;
    ECH_TRY(ech_block_prologue(&c->spec.block, c->spec.micro_batches, trains, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.prologue));
    ECH_TRY(ech_block_seed(&c->spec.block, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.seed));
    ECH_TRY(ech_block_loss(&c->spec.block, c->spec.micro_batches, &block));
    ECH_TRY(ech_program_add_block(c->p, &block, &c->b.loss));
    int *const tokens[2] = {&c->b.tokens_start, &c->b.tokens_wait};
    int *const losses[2] = {&c->b.loss_start, &c->b.loss_wait};
    ECH_TRY(add_sum_blocks(c, ECH_CELL_TOKENS_LOCAL, ECH_CELL_TOKENS, 1, tokens));
    ECH_TRY(add_sum_blocks(c, ECH_CELL_LOSS_LOCAL, ECH_CELL_LOSS, 2, losses)); /* and STOP */
    if (!trains)
        return ECH_OK;
    ECH_TRY(ech_block_norm(&c->spec.block, &block));
    return ech_program_add_block(c->p, &block, &c->b.norm);
}

/* --- programs --- */

static void release(compiler *c)
{
    for (int m = 0; c->kept && m < c->spec.micro_batches; m++) {
        free(c->kept[m].x);
        free(c->kept[m].saved);
    }
    free(c->kept);
    free(c->waits);
}

static ech_status init(compiler *c, const ech_compile_spec *spec, ech_program *p,
                       ech_run_slots *slots, ech_mode mode)
{
    static const char *const names[] = {"train", "eval", "generate"};
    c->spec = *spec;
    c->spec.block.mode = mode;
    c->p = p;
    c->slots = slots;
    c->n_kept_blocks = 2 * (int)spec->block.model->layers + 1;
    *slots = (ech_run_slots){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    ech_program_init(p, names[mode], &spec->block.layout);
    p->micro_batches = spec->micro_batches;
    p->rows_per_micro = spec->block.rows;
    ECH_TRY(ech_calloc((size_t)spec->micro_batches, sizeof *c->kept, &c->kept));
    ECH_TRY(ech_calloc((size_t)spec->block.canon->n_units, sizeof *c->waits, &c->waits));
    for (int m = 0; m < spec->micro_batches; m++) {
        ECH_TRY(ech_calloc((size_t)c->n_kept_blocks + 1, sizeof(int), &c->kept[m].x));
        ECH_TRY(ech_calloc((size_t)c->n_kept_blocks, sizeof(int), &c->kept[m].saved));
    }
    return ECH_OK;
}

static ech_status emit_train(compiler *c)
{
    const int m = c->spec.micro_batches;
    int tokens_request;
    ECH_TRY(begin_step(c, &tokens_request));
    for (int i = 0; c->spec.all_forward_first && i < m; i++)
        ECH_TRY(forward(c, i));
    for (int i = 0; i < m; i++) {
        if (!c->spec.all_forward_first)
            ECH_TRY(forward(c, i));
        if (i == 0)
            ECH_TRY(end_tokens(c, tokens_request));
        ECH_TRY(backward(c, i, i == m - 1));
    }
    while (c->first_wait < c->n_waits)
        ECH_TRY(await_oldest(c, ECH_SEGMENT_REDUCE));
    ECH_TRY(sum_losses(c));
    ECH_TRY(scalar_item(c, c->b.norm, ECH_SEGMENT_REDUCE));
    return add_updates(c);
}

static ech_status emit_eval(compiler *c)
{
    int tokens_request;
    ECH_TRY(begin_step(c, &tokens_request));
    for (int i = 0; i < c->spec.micro_batches; i++)
        ECH_TRY(forward(c, i));
    ECH_TRY(end_tokens(c, tokens_request));
    return sum_losses(c);
}

/* Place and prove: every program that leaves the compiler has been checked. */
static ech_status finish(compiler *c)
{
    ech_deps deps;
    ECH_TRY(ech_program_place(c->p, c->spec.cap_bytes));
    ECH_TRY(ech_lives_check(c->p));
    ECH_TRY(ech_once_check(c->p));
    ECH_TRY(ech_types_check(c->p));
    ECH_TRY(ech_deps_derive(c->p, ECH_DEPS_ON_ADDRESSES, &deps));
    ech_deps_fini(&deps);
    return ECH_OK;
}

/* Training and evaluation of a run have the same state, so that they chain. */
static ech_status compile_step(compiler *c, bool trains)
{
    ECH_TRY(add_model_state(c, true));
    ECH_TRY(add_batch_state(c));
    ECH_TRY(add_model_blocks(c, trains));
    ECH_TRY(add_step_blocks(c, trains));
    ECH_TRY(trains ? emit_train(c) : emit_eval(c));
    return finish(c);
}

static ech_status compile_generate(compiler *c)
{
    const ech_block_spec *s = &c->spec.block;
    const size_t real = ech_dtype_bytes(s->real);
    const ech_placement whole = ech_placement_invariant();
    ECH_TRY(add_model_state(c, false));
    ECH_TRY(add_model_blocks(c, false));
    const slot_spec rows[] = {
        {"tokens", ECH_CLASS_BUFFERS, 4 * (size_t)s->seq, whole, true, false},
        {"cache", ECH_CLASS_BUFFERS,
         (size_t)s->model->layers * needs(c, c->b.attention[0], ECH_REGION_CACHE), whole, false,
         false},
        {"logits", ECH_CLASS_BUFFERS, (size_t)(s->seq * s->canon->vocab_padded) * real, whole,
         false, true},
    };
    int *const ids[] = {&c->slots->tokens, &c->slots->cache, &c->slots->logits};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ECH_TRY(add_state(c, &rows[i], ids[i]));
    ECH_TRY(forward(c, 0));
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
    return compile(&one, ECH_MODE_GENERATE, out, slots);
}

int64_t ech_first_row(const ech_program *p, int rank, int micro)
{
    int64_t coord[ECH_N_AXES];
    ech_layout_coords(&p->layout, rank, coord);
    return ((int64_t)(micro < 0 ? 0 : micro) * p->layout.degree[ECH_AXIS_DP] + coord[ECH_AXIS_DP]) *
           p->rows_per_micro;
}
