/* Faults that only pipelines can have: what stages send each other, and what is summed over them. */
#include "mutants.h"

/* --- sums over stages --- */

/* Start and wait, one behind the other, of a sum over an axis of the stages. */
static bool is_sum_over(const ech_program *p, int block, int op, ech_axis axis)
{
    const ech_block *b = &p->block[block];
    return b->op[op].kind == ECH_OP_SUM_SMALL_START && b->op[op].axis == axis &&
           op + 1 < b->n_ops && b->op[op + 1].kind == ECH_OP_SUM_SMALL_WAIT;
}

static bool drop_sum(ech_program *p, int block, int op, bool apply)
{
    if (!is_sum_over(p, block, op, ECH_AXIS_PP))
        return false;
    for (int k = 0; k < 2 && apply; k++)
        block_remove(&p->block[block], op);
    return true;
}

/* This stage's value where that of all is wanted. */
static bool own_for_sum(ech_program *p, int block, int op, bool apply)
{
    if (!is_sum_over(p, block, op, ECH_AXIS_PP))
        return false;
    ech_op *start = &p->block[block].op[op];
    if (apply) {
        start->kind = ECH_OP_COPY;
        start->arg[1] = start->arg[2];
        start->n_args = 2;
        block_remove(&p->block[block], op + 1);
    }
    return true;
}

static bool sum_over_dp(ech_program *p, int block, int op, bool apply)
{
    if (!is_sum_over(p, block, op, ECH_AXIS_PP))
        return false;
    for (int k = 0; k < 2 && apply; k++)
        p->block[block].op[op + k].axis = ECH_AXIS_DP;
    return true;
}

/* --- messages --- */

static bool is_message(const ech_op *op)
{
    return op->kind == ECH_OP_SEND_START || op->kind == ECH_OP_RECV_START;
}

static const ech_op *op_of(const ech_program *p, int item)
{
    return &p->block[p->item[item].block].op[0];
}

/* The item that waits for the message that an item starts; -1: it starts none. */
static int wait_of(const ech_program *p, int item)
{
    if (!is_message(op_of(p, item)))
        return -1;
    for (int i = item + 1; i < p->n_items; i++)
        if (ech_op_row_get(op_of(p, i)->kind)->is_wait && p->item[i].request >= 0 &&
            p->item[i].request + op_of(p, i)->request ==
                p->item[item].request + op_of(p, item)->request)
            return i;
    return -1;
}

/* The next item of the same block. */
static int next_alike(const ech_program *p, int item)
{
    for (int i = item + 1; i < p->n_items; i++)
        if (p->item[i].block == p->item[item].block)
            return i;
    return -1;
}

static bool other_peer(ech_program *p, int block, int op, bool apply)
{
    ech_op *o = &p->block[block].op[op];
    const int n = p->layout.degree[ECH_AXIS_PP];
    if (!is_message(o) || o->attr[0].n != 1 || o->attr[0].node[0].op != ECH_EXPR_CONST)
        return false;
    if (apply)
        o->attr[0].node[0].value = (o->attr[0].node[0].value + 1) % n;
    return true;
}

static bool drop_message(ech_program *p, int item, int unused, bool apply)
{
    const int wait = wait_of(p, item);
    (void)unused;
    if (wait >= 0 && apply) {
        program_remove(p, wait);
        program_remove(p, item);
    }
    return wait >= 0;
}

static bool drop_wait(ech_program *p, int item, int unused, bool apply)
{
    const int wait = wait_of(p, item);
    (void)unused;
    if (wait >= 0 && apply)
        program_remove(p, wait);
    return wait >= 0;
}

/* One message in the place of the next of its kind. */
static bool swap_messages(ech_program *p, int item, int unused, bool apply)
{
    const int next = wait_of(p, item) < 0 ? -1 : next_alike(p, item);
    const int waits[2] = {wait_of(p, item), next < 0 ? -1 : wait_of(p, next)};
    (void)unused;
    if (next < 0 || waits[1] < 0)
        return false;
    if (apply) {
        program_swap(p, item, next);
        program_swap(p, waits[0], waits[1]);
    }
    return true;
}

/* Its buffer is that of the next message of its kind; at its wait too. */
static bool other_slot(ech_program *p, int item, int unused, bool apply)
{
    const int wait = wait_of(p, item);
    const int next = wait < 0 ? -1 : next_alike(p, item);
    const ech_region r = op_of(p, item)->arg[0].region;
    (void)unused;
    if (next < 0 || p->item[next].bind[r].slot == p->item[item].bind[r].slot)
        return false;
    if (apply)
        p->item[item].bind[r] = p->item[wait].bind[r] = p->item[next].bind[r];
    return true;
}

/* A message that says it is of the micro-batch after, at start and wait. */
static bool other_micro(ech_program *p, int item, int unused, bool apply)
{
    const int wait = wait_of(p, item);
    (void)unused;
    if (wait < 0 || p->item[item].micro + 1 >= p->micro_batches)
        return false;
    if (apply)
        p->item[wait].micro = ++p->item[item].micro;
    return true;
}

/* A block that reads what came from another stage reads that of the next micro-batch. */
static bool read_other(ech_program *p, int item, int unused, bool apply)
{
    static const ech_region regions[] = {ECH_REGION_IN, ECH_REGION_DOUT};
    (void)unused;
    for (int k = 0; k < 2; k++) {
        const int slot = p->item[item].bind[regions[k]].slot;
        const ech_block *b = &p->block[p->item[item].block];
        if (b->role == ECH_ROLE_TRANSFER || slot < 0 || !b->region_bytes[regions[k]])
            continue;
        for (int i = 0; i < item; i++) {
            const ech_view from = p->item[i].bind[op_of(p, i)->arg[0].region];
            const int next =
                op_of(p, i)->kind == ECH_OP_RECV_WAIT && from.slot == slot ? next_alike(p, i) : -1;
            if (next < 0)
                continue;
            const ech_view other = p->item[next].bind[op_of(p, i)->arg[0].region];
            if (other.slot == slot)
                continue;
            if (apply)
                p->item[item].bind[regions[k]] = other;
            return true;
        }
    }
    return false;
}

/* --- data --- */

static bool takes_data(const ech_program *p, int item, int micro)
{
    const ech_item *it = &p->item[item];
    return it->micro == micro && p->block[it->block].region_bytes[ECH_REGION_DATA] > 0;
}

/* Every item of micro-batches 0 and 1 takes the other one's rows: tokens on the first stage, labels
 * on the last, so that a stage alone agrees with itself. */
static bool exchange_rows(ech_program *p, int item, int unused, bool apply)
{
    int other = 0;
    (void)unused;
    for (int i = 0; i < item; i++)
        if (takes_data(p, i, 0))
            return false; /* one site */
    while (other < p->n_items && !takes_data(p, other, 1))
        other++;
    if (!takes_data(p, item, 0) || other == p->n_items)
        return false;
    const size_t at[2] = {p->item[item].bind[ECH_REGION_DATA].offset,
                          p->item[other].bind[ECH_REGION_DATA].offset};
    for (int i = 0; i < p->n_items && apply; i++)
        for (int micro = 0; micro < 2; micro++)
            if (takes_data(p, i, micro))
                p->item[i].bind[ECH_REGION_DATA].offset = at[1 - micro];
    return true;
}

/* --- the order of layers --- */

static bool runs_layer(const ech_program *p, int item, int layer)
{
    return p->item[item].micro >= 0 && p->item[item].layer == layer;
}

/* The next layer after `layer` of the program, in any chunk; -1: none. */
static int layer_behind(const ech_program *p, int layer, bool far)
{
    int found = -1;
    for (int i = 0; i < p->n_items; i++) {
        const int l = p->item[i].micro < 0 ? -1 : p->item[i].layer;
        if (l > layer && (found < 0 || (far ? l > found : l < found)))
            found = l;
    }
    return found;
}

/* All blocks of two layers of a class run in each other's place, forward and backward. */
static bool exchange_layers(ech_program *p, int item, bool far, bool apply)
{
    const int a = p->item[item].layer;
    const int b = a < 0 || p->item[item].micro < 0 ? -1 : layer_behind(p, a, far);
    int other = 0;
    for (int i = 0; i < item; i++)
        if (runs_layer(p, i, a))
            return false; /* one site a layer */
    if (b < 0)
        return false;
    while (!runs_layer(p, other, b))
        other++;
    const ech_item first = p->item[item];
    const ech_item second = p->item[other];
    for (int i = 0; i < p->n_items && apply; i++) {
        ech_item *it = &p->item[i];
        const ech_item *as = runs_layer(p, i, a) ? &second : runs_layer(p, i, b) ? &first : NULL;
        for (int r = 0; r < ECH_N_REGIONS && as; r++)
            if (it->bind[r].slot >= 0 && p->slot[it->bind[r].slot].is_state &&
                as->bind[r].slot == it->bind[r].slot)
                it->bind[r] = as->bind[r];
        it->layer = as ? as->layer : it->layer;
    }
    return true;
}

static bool exchange_near(ech_program *p, int item, int unused, bool apply)
{
    (void)unused;
    return exchange_layers(p, item, false, apply);
}

static bool exchange_far(ech_program *p, int item, int unused, bool apply)
{
    (void)unused;
    return exchange_layers(p, item, true, apply);
}

/* --- the tied table --- */

static bool drop_tied_sum(ech_program *p, int item, int unused, bool apply)
{
    (void)unused;
    if (op_of(p, item)->kind != ECH_OP_ALL_REDUCE_START || op_of(p, item)->axis != ECH_AXIS_TIED)
        return false;
    int wait = item + 1;
    while (wait < p->n_items && (op_of(p, wait)->kind != ECH_OP_ALL_REDUCE_WAIT ||
                                 p->item[wait].request != p->item[item].request))
        wait++;
    if (wait == p->n_items)
        return false;
    if (apply) {
        program_remove(p, wait);
        program_remove(p, item);
    }
    return true;
}

static bool copy_is_own(ech_program *p, int slot, int unused, bool apply)
{
    bool any = false;
    (void)unused;
    if (slot != p->n_state) /* one site */
        return false;
    for (int s = 0; s < p->n_state; s++) {
        any = any || p->slot[s].is_copy;
        p->slot[s].is_copy = p->slot[s].is_copy && !apply;
    }
    return any;
}

const mutant_operator mutant_stage_operators[] = {
    {"sum over stages left out", MUTANT_OP, false, drop_sum},
    {"own value for the stages' sum", MUTANT_OP, false, own_for_sum},
    {"stages' sum over dp", MUTANT_OP, false, sum_over_dp},
    {"message: another peer", MUTANT_OP, false, other_peer},
    {"message: left out", MUTANT_ITEM, false, drop_message},
    {"message: not awaited", MUTANT_ITEM, false, drop_wait},
    {"message: in the next one's place", MUTANT_ITEM, false, swap_messages},
    {"message: the next one's buffer", MUTANT_ITEM, false, other_slot},
    {"message: another micro-batch", MUTANT_ITEM, false, other_micro},
    {"stage reads another message", MUTANT_ITEM, false, read_other},
    {"two micro-batches' rows exchanged", MUTANT_ITEM, false, exchange_rows},
    {"layer in the next one's place", MUTANT_ITEM, false, exchange_near},
    {"layer in the last one's place", MUTANT_ITEM, false, exchange_far},
    {"tied gradient not summed", MUTANT_ITEM, false, drop_tied_sum},
    {"copy taken for its own", MUTANT_SLOT, false, copy_is_own},
};
const int n_mutant_stage_operators =
    sizeof mutant_stage_operators / sizeof mutant_stage_operators[0];
