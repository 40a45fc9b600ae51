/* Items of units: forward, backward or its two parts, with the slots they keep. */
#include "program/compile_private.h"

static size_t micro_data(const compiler *c, int micro)
{
    return 4 * (size_t)micro * (size_t)(c->spec.block.rows * c->spec.block.seq);
}

/* --- what is kept --- */

/* The residual stream between two blocks: with sequence parallelism a rank's share of the tokens. */
ech_status compile_new_stream(compiler *c, const char *name, ech_class klass, int *id)
{
    const ech_block_spec *s = &c->spec.block;
    const int64_t ranks = s->policy.is_sequence_parallel ? s->layout.degree[ECH_AXIS_TP] : 1;
    return compile_add_transient(
        c, name, klass,
        (size_t)(s->rows * s->seq / ranks * s->model->hidden) * ech_dtype_bytes(s->real), id);
}

kept_slots *compile_kept(compiler *c, int chunk, int micro)
{
    return &c->kept[(size_t)chunk * (size_t)c->micros + (size_t)micro];
}

int *compile_kept_slot(const compiler *c, const kept_slots *kp, int chunk, int kind, int k)
{
    return &kp->slot[kind * (c->chunk[chunk].blocks + 1) + k];
}

/* The number of a unit's first block in its chunk; the embedding's output stands before block 0. */
static int first_block(const compiler *c, const task *t)
{
    const int first = c->chunk[t->chunk].first;
    return 2 * (t->unit - (first > 1 ? first : 1));
}

/* A set that a block writes, new; one that it reads, where it is. */
static ech_status bind_saved(compiler *c, ech_item *it, ech_region region, bool is_new, int *slot)
{
    const size_t bytes = compile_needs(c, it->block, region);
    if (!bytes)
        return ECH_OK;
    if (is_new)
        ECH_TRY(compile_add_transient(c, "saved", ECH_CLASS_ACTIVATIONS, bytes, slot));
    it->bind[region] = (ech_view){*slot, 0};
    return ECH_OK;
}

static ech_item item_of(const compiler *c, const task *t, int block)
{
    ech_item it = ech_item_make(block, c->segment);
    it.layer =
        ech_canon_unit_kind(c->spec.block.canon, t->unit) == ECH_UNIT_LAYER ? t->unit - 1 : -1;
    it.chunk = t->chunk;
    it.micro = t->micro;
    return it;
}

/* The blocks of a task: one of the embedding and the head, two of a layer. */
typedef struct kept_view {
    int *x, *out, *fb, *fw, *bw, *dout;
} kept_view;

static kept_view view_kept(compiler *c, const task *t, int k)
{
    const kept_slots *kp = compile_kept(c, t->chunk, t->micro);
    return (kept_view){.x = compile_kept_slot(c, kp, t->chunk, KEPT_X, k),
                       .out = compile_kept_slot(c, kp, t->chunk, KEPT_X, k + 1),
                       .fb = compile_kept_slot(c, kp, t->chunk, KEPT_FB, k),
                       .fw = compile_kept_slot(c, kp, t->chunk, KEPT_FW, k),
                       .bw = compile_kept_slot(c, kp, t->chunk, KEPT_BW, k),
                       .dout = compile_kept_slot(c, kp, t->chunk, KEPT_DOUT, k)};
}

/* --- forward --- */

static ech_status forward_block(compiler *c, const task *t, int block, int k)
{
    const kept_view v = view_kept(c, t, k);
    ech_item it = item_of(c, t, block);
    ECH_TRY(compile_bind_model(c, &it, t->unit));
    it.bind[ECH_REGION_IN] = (ech_view){*v.x, 0};
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FB, true, v.fb));
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FW, true, v.fw));
    ECH_TRY(compile_new_stream(c, "activation", ECH_CLASS_ACTIVATIONS, v.out));
    it.bind[ECH_REGION_OUT] = (ech_view){*v.out, 0};
    if (c->slots->cache >= 0)
        it.bind[ECH_REGION_CACHE] = (ech_view){
            c->slots->cache, (size_t)it.layer * compile_needs(c, block, ECH_REGION_CACHE)};
    return compile_add_item(c, &it);
}

static ech_status forward_embedding(compiler *c, const task *t)
{
    const kept_view v = view_kept(c, t, 0);
    ech_item it = item_of(c, t, c->b.embedding[0]);
    ECH_TRY(compile_bind_model(c, &it, 0));
    ECH_TRY(compile_new_stream(c, "activation", ECH_CLASS_ACTIVATIONS, v.x));
    it.bind[ECH_REGION_OUT] = (ech_view){*v.x, 0};
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->tokens, micro_data(c, t->micro)};
    return compile_add_item(c, &it);
}

static ech_status forward_head(compiler *c, const task *t)
{
    const kept_view v = view_kept(c, t, first_block(c, t));
    ech_item it = item_of(c, t, c->b.head[0]);
    ECH_TRY(compile_bind_model(c, &it, t->unit));
    it.bind[ECH_REGION_IN] = (ech_view){*v.x, 0};
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FB, true, v.fb));
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FW, true, v.fw));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->labels, micro_data(c, t->micro)};
    it.bind[ECH_REGION_OUT] = c->slots->logits >= 0
                                  ? (ech_view){c->slots->logits, 0}
                                  : (ech_view){c->slots->losses, 8 * (size_t)t->micro};
    return compile_add_item(c, &it);
}

/* The chunk of this rank that takes what one puts out on the way of a step; -1: another rank's. */
static int taker_of(const compiler *c, const task *t, int step)
{
    const ech_stages *s = c->run.stages;
    const unit_chunk *ch = &c->chunk[t->chunk];
    const int next = ch->stage + step;
    if (t->unit != (step > 0 ? ch->end - 1 : ch->first) || next < 0 || next >= s->n ||
        s->rank_of[next] != c->rank)
        return -1;
    return compile_chunk_of(c, compile_user_of(c, next, step));
}

/* Between chunks of one rank nothing moves. */
static void hand_on(compiler *c, const task *t)
{
    const int to = taker_of(c, t, 1);
    if (to >= 0)
        *compile_kept_slot(c, compile_kept(c, to, t->micro), to, KEPT_X, 0) = *compile_kept_slot(
            c, compile_kept(c, t->chunk, t->micro), t->chunk, KEPT_X, c->chunk[t->chunk].blocks);
}

static ech_status forward_unit(compiler *c, const task *t)
{
    const int k = first_block(c, t);
    switch (ech_canon_unit_kind(c->spec.block.canon, t->unit)) {
    case ECH_UNIT_EMBEDDING:
        ECH_TRY(forward_embedding(c, t));
        break;
    case ECH_UNIT_HEAD:
        return forward_head(c, t);
    default:
        ECH_TRY(forward_block(c, t, c->b.attention[0], k));
        ECH_TRY(forward_block(c, t, c->b.mlp[0], k + 1));
        break;
    }
    hand_on(c, t);
    return ECH_OK;
}

/* --- backward --- */

static ech_status backward_block(compiler *c, const task *t, int block, int k)
{
    const kept_view v = view_kept(c, t, k);
    int *d = &compile_kept(c, t->chunk, t->micro)->d;
    ech_item it = item_of(c, t, block);
    ECH_TRY(compile_bind_model(c, &it, t->unit));
    it.bind[ECH_REGION_IN] = (ech_view){*v.x, 0};
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FB, false, v.fb));
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FW, false, v.fw));
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_BW, true, v.bw));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->labels, micro_data(c, t->micro)};
    it.bind[ECH_REGION_DOUT] = (ech_view){*d, 0};
    *v.dout = *d;
    ECH_TRY(compile_new_stream(c, "activation gradient", ECH_CLASS_BUFFERS, d));
    it.bind[ECH_REGION_DIN] = (ech_view){*d, 0};
    return compile_add_item(c, &it);
}

static ech_status backward_embedding(compiler *c, const task *t)
{
    ech_item it = item_of(c, t, c->b.embedding[1]);
    ECH_TRY(compile_bind_model(c, &it, 0));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->tokens, micro_data(c, t->micro)};
    it.bind[ECH_REGION_DOUT] = (ech_view){compile_kept(c, t->chunk, t->micro)->d, 0};
    return compile_add_item(c, &it);
}

static ech_status weight_block(compiler *c, const task *t, int block, int k)
{
    const kept_view v = view_kept(c, t, k);
    ech_item it = item_of(c, t, block);
    ECH_TRY(compile_bind_model(c, &it, t->unit));
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_FW, false, v.fw));
    ECH_TRY(bind_saved(c, &it, ECH_REGION_SAVED_BW, false, v.bw));
    it.bind[ECH_REGION_DATA] = (ech_view){c->slots->labels, micro_data(c, t->micro)};
    it.bind[ECH_REGION_DOUT] = (ech_view){*v.dout, 0};
    return compile_add_item(c, &it);
}

/* Gradients of the stream go the other way. */
static void hand_back(compiler *c, const task *t)
{
    const int to = taker_of(c, t, -1);
    if (to >= 0)
        compile_kept(c, to, t->micro)->d = compile_kept(c, t->chunk, t->micro)->d;
}

/* Gradients that do not outlive the unit's reduction; the head's may go to a borrowed table. */
static ech_status open_grads(compiler *c, const task *t)
{
    const bool is_head = ech_canon_unit_kind(c->spec.block.canon, t->unit) == ECH_UNIT_HEAD;
    ECH_TRY(compile_open_grads(c, t->unit, t->micro));
    if (is_head && c->spec.block.model->tie_embeddings && !c->plan.is_tied_apart)
        ECH_TRY(compile_open_grads(c, 0, t->micro));
    return ECH_OK;
}

static ech_status backward_unit(compiler *c, const task *t)
{
    const int k = first_block(c, t);
    const int role = t->kind == ECH_WORK_WEIGHT ? 2 : 1;
    ech_status (*const block)(compiler *, const task *, int, int) =
        role == 2 ? weight_block : backward_block;
    ECH_TRY(open_grads(c, t));
    switch (ech_canon_unit_kind(c->spec.block.canon, t->unit)) {
    case ECH_UNIT_EMBEDDING:
        ECH_TRY(backward_embedding(c, t));
        break;
    case ECH_UNIT_HEAD:
        ECH_TRY(block(c, t, c->b.head[role], k));
        break;
    default:
        ECH_TRY(block(c, t, c->b.mlp[role], k + 1));
        ECH_TRY(block(c, t, c->b.attention[role], k));
        break;
    }
    if (role == 1)
        hand_back(c, t);
    return ECH_OK;
}

ech_status compile_do_task(compiler *c, const task *t)
{
    const bool is_forward = t->kind == ECH_WORK_FORWARD;
    ECH_TRY(compile_open_work(c));
    ECH_TRY(is_forward ? forward_unit(c, t) : backward_unit(c, t));
    compile_close_work(c);
    return is_forward ? ECH_OK : compile_reduce_task(c, t);
}

/* --- blocks --- */

typedef ech_status (*block_maker)(const ech_block_spec *s, ech_role role, ech_block *out);

/* Which kinds of units this rank has. */
static bool has_kind(const compiler *c, ech_unit_kind kind)
{
    for (int i = 0; i < ech_shard_unit_count(&c->plan); i++)
        if (ech_canon_unit_kind(c->spec.block.canon, ech_shard_unit_at(&c->plan, i)) == kind)
            return true;
    return false;
}

ech_status compile_add_unit_blocks(compiler *c)
{
    static const struct {
        block_maker make;
        ech_unit_kind kind;
    } rows[] = {{ech_block_embedding, ECH_UNIT_EMBEDDING},
                {ech_block_attention, ECH_UNIT_LAYER},
                {ech_block_mlp, ECH_UNIT_LAYER},
                {ech_block_head, ECH_UNIT_HEAD}};
    int *const ids[] = {c->b.embedding, c->b.attention, c->b.mlp, c->b.head};
    const bool is_split = c->spec.block.splits_backward;
    const ech_role roles[] = {ECH_ROLE_FORWARD,
                              is_split ? ECH_ROLE_BACKWARD_INPUT : ECH_ROLE_BACKWARD,
                              ECH_ROLE_BACKWARD_WEIGHT};
    const int n_roles = c->spec.block.mode != ECH_MODE_TRAIN ? 1 : is_split ? 3 : 2;
    for (int k = 0; k < 4; k++)
        for (int w = 0; w < n_roles && has_kind(c, rows[k].kind); w++) {
            ech_block block;
            if (w == 2 && !ech_unit_has_weight_role(rows[k].kind))
                continue;
            ECH_TRY(rows[k].make(&c->spec.block, roles[w], &block));
            ECH_TRY(ech_program_add_block(c->p, &block, &ids[k][w]));
        }
    return ECH_OK;
}
