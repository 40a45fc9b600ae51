/* Slots of a run's state, and what items are bound to. */
#include "program/compile_private.h"

#include <stdio.h>
#include <string.h>

typedef struct slot_spec {
    const char *name;
    ech_class klass;
    size_t bytes;
    ech_placement place;
    bool is_constant, is_scratch;
    size_t micro_bytes;
} slot_spec;

static ech_status add_state(compiler *c, const slot_spec *s, int *id)
{
    ech_slot slot = {.space = ECH_SPACE_DEVICE,
                     .klass = s->klass,
                     .is_state = true,
                     .bytes = s->bytes,
                     .place = s->place,
                     .is_constant = s->is_constant,
                     .is_scratch = s->is_scratch,
                     .micro_bytes = s->micro_bytes};
    (void)snprintf(slot.name, sizeof slot.name, "%s", s->name);
    *id = -1;
    return s->bytes ? ech_program_add_slot(c->p, &slot, id) : ECH_OK;
}

ech_status compile_add_transient(compiler *c, const char *name, ech_class klass, size_t bytes,
                                 int *id)
{
    ech_slot slot = {.space = ECH_SPACE_DEVICE,
                     .klass = klass,
                     .bytes = bytes,
                     .place = ech_stage_placement(&c->spec.block.layout)};
    (void)snprintf(slot.name, sizeof slot.name, "%s", name);
    return ech_program_add_slot(c->p, &slot, id);
}

/* Elements of a slab: of all units, whole or this rank's flat ranges. */
static size_t slab_bytes(const compiler *c, ech_part part, bool is_shares)
{
    const int64_t elems = c->plan.elems[part] / (is_shares ? c->plan.shards : 1);
    return (size_t)elems * ech_dtype_bytes(c->spec.block.real);
}

static ech_status add_part_state(compiler *c, ech_part part, bool trains)
{
    static const char *const words[] = {"", ", summed over tp", ", whole over tp", ", tied"};
    const ech_block_spec *s = &c->spec.block;
    const bool has_moments = trains && s->optim == ECH_UPDATE_ADAMW;
    char name[3][48];
    static const char *const what[3] = {"params", "grads", "moments"};
    for (int k = 0; k < 3; k++)
        (void)snprintf(name[k], sizeof name[k], "%s%s", what[k], words[part]);
    const slot_spec rows[] = {
        {name[0], ECH_CLASS_PARAMS, slab_bytes(c, part, s->form.shards_params),
         ech_param_place(s, part, s->form.shards_params), !trains, false, 0},
        {name[1], ECH_CLASS_GRADS, trains ? slab_bytes(c, part, s->form.shards_grads) : 0,
         ech_grad_place(s, part, ech_axes_of_gradients()), false, true, 0},
        {name[2], ECH_CLASS_OPTIMIZER, has_moments ? 2 * slab_bytes(c, part, true) : 0,
         ech_param_place(s, part, true), false, false, 0},
    };
    int *const ids[] = {&c->slots->params[part], &c->slots->grads[part], &c->slots->moments[part]};
    for (int k = 0; k < 3; k++) {
        ECH_TRY(add_state(c, &rows[k], ids[k]));
        if (*ids[k] >= 0) /* of the token table that is apart, the head's */
            c->p->slot[*ids[k]].is_copy =
                part == ECH_PART_TIED && ech_shard_has_unit(&c->plan, s->canon->n_units - 1);
    }
    return ECH_OK;
}

ech_status compile_add_model_state(compiler *c, bool trains)
{
    const ech_block_spec *s = &c->spec.block;
    const int64_t positions = s->context > s->seq ? s->context : s->seq;
    const ech_placement whole = ech_placement_invariant();
    for (int part = 0; part < ECH_N_PARTS; part++)
        ECH_TRY(add_part_state(c, (ech_part)part, trains));
    const slot_spec scalars = {
        "scalars", ECH_CLASS_BUFFERS, 8 * (size_t)ECH_N_CELLS, whole, false, false, 0};
    const slot_spec rope = {"rope",
                            ECH_CLASS_BUFFERS,
                            8 * (size_t)ech_rope_table_elems(s->model, positions),
                            whole,
                            true,
                            false,
                            0};
    ECH_TRY(add_state(c, &scalars, &c->slots->scalars));
    ECH_TRY(add_state(c, &rope, &c->slots->rope));
    c->p->scalars = c->slots->scalars;
    return ECH_OK;
}

ech_status compile_add_batch_state(compiler *c)
{
    const ech_block_spec *s = &c->spec.block;
    const size_t m = (size_t)c->spec.micro_batches;
    const size_t each = 4 * (size_t)(s->rows * s->seq);
    const ech_placement own = ech_stage_placement(&s->layout);
    const ech_placement dealt = ech_data_placement(&s->layout);
    const bool has_embedding = ech_shard_has_unit(&c->plan, 0);
    const bool has_head = ech_shard_has_unit(&c->plan, s->canon->n_units - 1);
    const slot_spec rows[] = {
        {"tokens", ECH_CLASS_BUFFERS, has_embedding ? m * each : 0, dealt, true, false, each},
        {"labels", ECH_CLASS_BUFFERS, m * each, dealt, true, false, each},
        {"losses", ECH_CLASS_BUFFERS, has_head ? 8 * m : 0, own, false, true, 8},
        {"squares", ECH_CLASS_BUFFERS, 3 * 8 * (size_t)ECH_SUMSQ_WORDS, own, false, true, 0},
    };
    int *const ids[] = {&c->slots->tokens, &c->slots->labels, &c->slots->losses, &c->slots->norm};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ECH_TRY(add_state(c, &rows[i], ids[i]));
    return ECH_OK;
}

ech_status compile_add_generation_state(compiler *c)
{
    const ech_block_spec *s = &c->spec.block;
    const ech_placement whole = ech_placement_invariant();
    const slot_spec rows[] = {
        {"tokens", ECH_CLASS_BUFFERS, 4 * (size_t)s->seq, whole, true, false, 0},
        {"cache", ECH_CLASS_BUFFERS,
         (size_t)s->model->layers * compile_needs(c, c->b.attention[0], ECH_REGION_CACHE), whole,
         false, false, 0},
        {"logits", ECH_CLASS_BUFFERS,
         (size_t)(s->seq * s->canon->vocab_padded) * ech_dtype_bytes(s->real), whole, false, true,
         0},
    };
    int *const ids[] = {&c->slots->tokens, &c->slots->cache, &c->slots->logits};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ECH_TRY(add_state(c, &rows[i], ids[i]));
    return ECH_OK;
}

/* --- where things are --- */

size_t compile_needs(const compiler *c, int block, ech_region region)
{
    return c->p->block[block].region_bytes[region];
}

ech_view compile_in_slab(const compiler *c, int slot, int unit, ech_part part, bool is_shares)
{
    const int64_t elems =
        ech_shard_unit_offset(&c->plan, unit, part) / (is_shares ? c->plan.shards : 1);
    return (ech_view){slot, (size_t)elems * ech_dtype_bytes(c->spec.block.real)};
}

size_t compile_unit_offset(const compiler *c, int unit, ech_part part)
{
    const ech_shard_unit *u = ech_shard_unit_of(&c->plan, unit);
    size_t at = 0;
    for (int k = 0; k < (int)part; k++)
        at +=
            ech_align_up((size_t)u->part[k].elems * ech_dtype_bytes(c->spec.block.real), ECH_ALIGN);
    return at;
}

static ech_status bind_common(compiler *c, ech_item *it)
{
    it->bind[ECH_REGION_SCALARS] = (ech_view){c->slots->scalars, 0};
    it->bind[ECH_REGION_CONST] = (ech_view){c->slots->rope, 0};
    if (compile_needs(c, it->block, ECH_REGION_WORK)) {
        int id;
        ECH_TRY(compile_add_transient(c, "work", ECH_CLASS_BUFFERS,
                                      compile_needs(c, it->block, ECH_REGION_WORK), &id));
        it->bind[ECH_REGION_WORK] = (ech_view){id, 0};
    }
    return ECH_OK;
}

/* A part of a unit, whole: in the slab, or in the unit's own transient slot. */
static ech_view whole_part(const compiler *c, int slab, int transient, bool is_sharded, int unit,
                           ech_part part)
{
    if (!is_sharded)
        return compile_in_slab(c, slab, unit, part, false);
    return (ech_view){transient, compile_unit_offset(c, unit, part)};
}

static ech_view whole_params(const compiler *c, int unit, ech_part part)
{
    const bool is_sharded = c->spec.block.form.shards_params;
    return whole_part(c, c->slots->params[part], is_sharded ? c->gathered[unit] : -1, is_sharded,
                      unit, part);
}

int *compile_whole_grads(const compiler *c, int unit, int micro)
{
    const bool is_each = c->spec.block.form.shards_grads;
    return &c->whole_grads[is_each ? unit * c->spec.micro_batches + micro : unit];
}

static ech_view whole_grads(const compiler *c, int unit, ech_part part, int micro)
{
    const bool is_sharded = c->spec.block.form.shards_grads;
    return whole_part(c, c->slots->grads[part],
                      is_sharded ? *compile_whole_grads(c, unit, micro) : -1, is_sharded, unit,
                      part);
}

ech_status compile_bind_model(compiler *c, ech_item *it, int unit)
{
    for (int k = 0; k < ECH_N_PARTS; k++) {
        const ech_part part = (ech_part)k;
        it->bind[ech_region_of_part(ECH_REGION_PARAM, (ech_part)k)] = whole_params(c, unit, part);
        it->bind[ech_region_of_part(ECH_REGION_GRAD, (ech_part)k)] =
            whole_grads(c, unit, part, it->micro);
    }
    if (ech_shard_has_unit(&c->plan, 0)) {
        it->bind[ECH_REGION_TIED] = whole_params(c, 0, ECH_PART_CUT);
        it->bind[ECH_REGION_TIED_GRAD] = whole_grads(c, 0, ECH_PART_CUT, it->micro);
    }
    return bind_common(c, it);
}

ech_status compile_bind_state(compiler *c, ech_item *it, int unit)
{
    const ech_state_form *form = &c->spec.block.form;
    for (int k = 0; k < ECH_N_PARTS; k++) {
        const ech_part part = (ech_part)k;
        it->bind[ech_region_of_part(ECH_REGION_PARAM, (ech_part)k)] =
            compile_in_slab(c, c->slots->params[k], unit, part, form->shards_params);
        it->bind[ech_region_of_part(ECH_REGION_GRAD, (ech_part)k)] =
            compile_in_slab(c, c->slots->grads[k], unit, part, form->shards_grads);
        ech_view *moment = &it->bind[ech_region_of_part(ECH_REGION_MOMENT, (ech_part)k)];
        *moment = compile_in_slab(c, c->slots->moments[k], unit, part, true);
        moment->offset *= 2; /* m and v */
    }
    return bind_common(c, it);
}

/* --- items and requests --- */

ech_status compile_add_item(compiler *c, const ech_item *it)
{
    ech_item now = *it;
    const ech_block *b = &c->p->block[it->block];
    now.segment = c->segment;
    for (int k = 0; k < b->n_ops && now.request < 0; k++)
        if (ech_op_is_comm(b->op[k].kind))
            now.request = 0;
    for (int k = 0; k < b->n_ops && now.request == 0; k++)
        ECH_ASSERT(b->op[k].request < REQUESTS_IN_ITEM);
    return ech_program_add_item(c->p, &now);
}

ech_status compile_take_request(compiler *c, int *request)
{
    int i = 0;
    while (i < c->n_taken && c->is_taken[i])
        i++;
    if (i == c->n_taken) {
        ECH_TRY(
            ech_grow(&c->is_taken, (size_t)c->n_taken, &c->taken_capacity, sizeof *c->is_taken));
        c->n_taken++;
    }
    c->is_taken[i] = true;
    *request = REQUEST_FIRST + i;
    return ECH_OK;
}

void compile_give_request(compiler *c, int request)
{
    c->is_taken[request - REQUEST_FIRST] = false;
}
