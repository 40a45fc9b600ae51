#include "split.h"
#include "mutants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const split_maker split_makers[SPLIT_PIECES] = {ech_block_embedding, ech_block_attention,
                                                ech_block_mlp, ech_block_head};

void split_case_init(const tiny_spec *spec, split_case *out)
{
    out->model = tiny_model(spec->kind, spec->dropout);
    if (spec->heads) {
        out->model.heads = spec->heads;
        out->model.kv_heads = spec->kv_heads;
    }
    tiny_ok(ech_canon_create(&out->model, &out->canon), "canon");
    ech_compile_spec c = {.block = {.model = &out->model,
                                    .canon = &out->canon,
                                    .layout = tiny_layout(spec, &out->model),
                                    .policy = spec->policy,
                                    .real = spec->real,
                                    .mode = ECH_MODE_TRAIN,
                                    .rows = spec->rows,
                                    .seq = spec->seq,
                                    .optim = spec->optim},
                          .micro_batches = spec->accumulation};
    tiny_ok(ech_compile_plan(&c, &out->plan), "plan");
    out->block = c.block;
    out->block.plan = &out->plan;
    out->block.form = ech_compile_form(&c);
}

void split_case_fini(split_case *c)
{
    ech_canon_fini(&c->canon);
}

ech_block split_block(const split_case *c, int piece, ech_role role, bool is_split)
{
    ech_block b;
    ech_block_spec s = c->block;
    s.splits_backward = is_split;
    tiny_ok(split_makers[piece](&s, role, &b), "block");
    return b;
}

/* --- a compiled program, split --- */

/* What stands for a forward or backward block of the compiled program. */
typedef struct splitter {
    const split_case *c;
    ech_program *p;
    int from[SPLIT_PIECES][2]; /* forward, backward: block of the compiled program */
    int forward[SPLIT_PIECES], input[SPLIT_PIECES], weight[SPLIT_PIECES]; /* -1: none */
    ech_item *waiting; /* weight blocks that have not run yet, oldest first */
    int n_waiting, first_waiting;
} splitter;

static int add_block(splitter *s, int piece, ech_role role)
{
    int id;
    ech_block b = split_block(s->c, piece, role, true);
    tiny_ok(ech_program_add_block(s->p, &b, &id), "block");
    return id;
}

static int find_block(const ech_program *p, const char *name)
{
    for (int b = 0; b < p->n_blocks; b++)
        if (strcmp(p->block[b].name, name) == 0)
            return b;
    return -1;
}

static void add_blocks(splitter *s)
{
    static const char *const what[] = {"embedding", "attention", "mlp", "head"};
    for (int k = 0; k < SPLIT_PIECES; k++) {
        char name[48];
        (void)snprintf(name, sizeof name, "%s forward", what[k]);
        s->from[k][0] = find_block(s->p, name);
        (void)snprintf(name, sizeof name, "%s backward", what[k]);
        s->from[k][1] = find_block(s->p, name);
        s->forward[k] = add_block(s, k, ECH_ROLE_FORWARD);
        s->input[k] = add_block(s, k, ECH_ROLE_BACKWARD_INPUT);
        s->weight[k] = k == 0 ? -1 : add_block(s, k, ECH_ROLE_BACKWARD_WEIGHT);
    }
}

static int add_slot(splitter *s, const char *name, ech_class klass, size_t bytes)
{
    int id;
    ech_slot slot = {.klass = klass, .bytes = bytes, .place = ech_placement_invariant()};
    (void)snprintf(slot.name, sizeof slot.name, "%s", name);
    tiny_ok(ech_program_add_slot(s->p, &slot, &id), "slot");
    return id;
}

/* A slot of its own where the block wants the region. */
static void bind_new(splitter *s, ech_item *it, ech_region r, const char *name, ech_class klass)
{
    const size_t bytes = s->p->block[it->block].region_bytes[r];
    it->bind[r] = (ech_view){bytes ? add_slot(s, name, klass, bytes) : -1, 0};
}

static void put_item(splitter *s, const ech_item *it)
{
    tiny_ok(ech_program_add_item(s->p, it), "item");
}

static bool communicates(const ech_block *b)
{
    for (int k = 0; k < b->n_ops; k++)
        if (ech_op_is_comm(b->op[k].kind))
            return true;
    return false;
}

/* The item with another block in its place. */
static ech_item with_block(splitter *s, const ech_item *was, int block)
{
    ech_item it = *was;
    it.block = block;
    it.request = communicates(&s->p->block[block]) ? 0 : -1;
    bind_new(s, &it, ECH_REGION_WORK, "work", ECH_CLASS_BUFFERS);
    return it;
}

static void put_forward(splitter *s, const ech_item *was, int piece)
{
    ech_item it = with_block(s, was, s->forward[piece]);
    if (was->bind[ECH_REGION_SAVED_FB].slot >= 0)
        s->p->slot[was->bind[ECH_REGION_SAVED_FB].slot].bytes =
            s->p->block[it.block].region_bytes[ECH_REGION_SAVED_FB];
    bind_new(s, &it, ECH_REGION_SAVED_FW, "saved for weights", ECH_CLASS_ACTIVATIONS);
    put_item(s, &it);
}

/* The forward of the same piece, layer and micro-batch. */
static const ech_item *forward_of(const splitter *s, const ech_item *was, int piece)
{
    for (int i = 0; i < s->p->n_items; i++) {
        const ech_item *it = &s->p->item[i];
        if (it->block == s->forward[piece] && it->layer == was->layer && it->micro == was->micro)
            return it;
    }
    tiny_ok(ECH_E_PROOF, "no forward");
    return NULL;
}

static void run_waiting(splitter *s, int left)
{
    while (s->n_waiting - s->first_waiting > left)
        put_item(s, &s->waiting[s->first_waiting++]);
}

static void put_backward(splitter *s, const ech_item *was, int piece)
{
    ech_item it = with_block(s, was, s->input[piece]);
    it.bind[ECH_REGION_SAVED_FW] = forward_of(s, was, piece)->bind[ECH_REGION_SAVED_FW];
    bind_new(s, &it, ECH_REGION_SAVED_BW, "handed on", ECH_CLASS_ACTIVATIONS);
    put_item(s, &it);
    if (s->weight[piece] < 0)
        return;
    const ech_view fw = it.bind[ECH_REGION_SAVED_FW];
    const ech_view bw = it.bind[ECH_REGION_SAVED_BW];
    it = with_block(s, was, s->weight[piece]);
    it.bind[ECH_REGION_SAVED_FW] = fw;
    it.bind[ECH_REGION_SAVED_BW] = bw;
    s->waiting[s->n_waiting++] = it;
}

static int piece_of(const splitter *s, int block, int which)
{
    for (int k = 0; k < SPLIT_PIECES; k++)
        if (s->from[k][which] == block)
            return k;
    return -1;
}

/* Blocks of the compiled program that are not used any more go. */
static void remove_blocks(ech_program *p)
{
    int kept = 0;
    int *now = calloc((size_t)p->n_blocks, sizeof *now);
    for (int i = 0; i < p->n_items; i++)
        now[p->item[i].block] = 1;
    for (int b = 0; b < p->n_blocks; b++) {
        if (!now[b]) {
            free(p->block[b].op);
            continue;
        }
        now[b] = kept;
        p->block[kept++] = p->block[b];
    }
    for (int i = 0; i < p->n_items; i++)
        p->item[i].block = now[p->item[i].block];
    p->n_blocks = kept;
    free(now);
}

void split_program(const split_case *c, const ech_program *p, split_when when, ech_program *out)
{
    static const int most_waiting[] = {0, 2, 1 << 20};
    splitter s = {.c = c, .p = out};
    mutant_copy(p, out);
    out->n_items = 0;
    s.waiting = calloc((size_t)p->n_items, sizeof *s.waiting);
    add_blocks(&s);
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        const int forward = piece_of(&s, it->block, 0);
        const int backward = piece_of(&s, it->block, 1);
        run_waiting(&s, forward < 0 && backward < 0 ? 0 : most_waiting[when]);
        if (forward >= 0)
            put_forward(&s, it, forward);
        else if (backward >= 0)
            put_backward(&s, it, backward);
        else
            put_item(&s, it);
    }
    free(s.waiting);
    remove_blocks(out);
    tiny_ok(ech_program_place(out, NULL), "place");
}
