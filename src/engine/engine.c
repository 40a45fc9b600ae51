#include "engine/engine.h"
#include "base/clock.h"
#include "engine/arena.h"
#include "program/compile.h"
#include "program/deps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots that are born and die with each item of a program, as lists. */
typedef struct lives {
    int *birth, *death;           /* [n_items] first slot, -1: none */
    int *next_birth, *next_death; /* [n_slots] */
} lives;

struct ech_engine {
    ech_engine_config config;
    const ech_program **program; /* owned list of borrowed programs */
    lives *life;                 /* [n_programs] */
    ech_arena arena[ECH_N_SPACES];
    int64_t coord[ECH_N_AXES];
    int *request; /* [most requests] handles of comm, by item's + op's request; -1: none */
    int in_flight;
    int index;    /* program in work */
    int item, op; /* counter */
    int end;      /* one past the segment's last item */
    double blocked_since;
    ech_recorder *recorder; /* that is on; NULL: nothing is recorded */
    int64_t ops_done;       /* since creation */
    int64_t ops_reset;      /* of them at the last reset of times */
    ech_engine_times times;
    size_t live[ECH_N_SPACES][ECH_N_CLASSES];
    ech_engine_memory peak[ECH_N_SPACES];
    ech_flight_record *flight; /* borrowed; NULL: nothing is recorded */
    ech_flight_place at;       /* stored there last */
};

/* --- creation --- */

static void lives_fini(lives *l)
{
    free(l->birth);
    free(l->death);
    free(l->next_birth);
    free(l->next_death);
}

static ech_status lives_init(lives *l, const ech_program *p)
{
    ECH_TRY(ech_calloc((size_t)p->n_items, sizeof(int), &l->birth));
    ECH_TRY(ech_calloc((size_t)p->n_items, sizeof(int), &l->death));
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof(int), &l->next_birth));
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof(int), &l->next_death));
    for (int i = 0; i < p->n_items; i++)
        l->birth[i] = l->death[i] = -1;
    for (int s = p->n_state; s < p->n_slots; s++) {
        if (p->slot[s].first < 0)
            continue;
        l->next_birth[s] = l->birth[p->slot[s].first];
        l->birth[p->slot[s].first] = s;
        l->next_death[s] = l->death[p->slot[s].last];
        l->death[p->slot[s].last] = s;
    }
    return ECH_OK;
}

static ech_status reserve_arenas(ech_engine *e)
{
    for (int s = 0; s < ECH_N_SPACES; s++) {
        size_t transient = 0;
        for (int i = 0; i < e->config.n_programs; i++)
            if (e->program[i]->transient_bytes[s] > transient)
                transient = e->program[i]->transient_bytes[s];
        const size_t bytes = e->program[0]->state_bytes[s] + transient;
        if (bytes)
            ECH_TRY(ech_arena_init(&e->arena[s], bytes));
    }
    return ECH_OK;
}

static ech_status init(ech_engine *e, const ech_engine_config *config)
{
    int requests = 1;
    e->config = *config;
    ECH_TRY(ech_calloc((size_t)config->n_programs, sizeof *e->program, &e->program));
    ECH_TRY(ech_calloc((size_t)config->n_programs, sizeof *e->life, &e->life));
    for (int i = 0; i < config->n_programs; i++) {
        e->program[i] = config->program[i];
        ECH_CHECK(!e->program[i]->repeat.times, ECH_E_UNSUPPORTED,
                  "program '%s' is rolled: unroll it first", e->program[i]->name);
        ECH_TRY(ech_program_chain(e->program[0], e->program[i]));
        ECH_TRY(lives_init(&e->life[i], e->program[i]));
        if (e->program[i]->n_requests > requests)
            requests = e->program[i]->n_requests;
    }
    ech_layout_coords(&e->program[0]->layout, config->rank, e->coord);
    ECH_TRY(ech_calloc((size_t)requests, sizeof *e->request, &e->request));
    for (int i = 0; i < requests; i++)
        e->request[i] = -1;
    return reserve_arenas(e);
}

ech_status ech_engine_create(const ech_engine_config *config, ech_engine **out)
{
    ech_engine *e;
    ECH_TRY(ech_calloc(1, sizeof *e, &e));
    const ech_status st = init(e, config);
    if (st < 0) {
        ech_engine_destroy(&e);
        return st;
    }
    *out = e;
    return ECH_OK;
}

void ech_engine_destroy(ech_engine **engine)
{
    ech_engine *e = *engine;
    if (!e)
        return;
    for (int s = 0; s < ECH_N_SPACES; s++)
        ech_arena_fini(&e->arena[s]);
    for (int i = 0; e->life && i < e->config.n_programs; i++)
        lives_fini(&e->life[i]);
    free(e->life);
    free(e->program);
    free(e->request);
    free(e);
    *engine = NULL;
}

/* --- state --- */

static unsigned char *address(const ech_engine *e, const ech_program *p, int slot, size_t offset)
{
    return e->arena[p->slot[slot].space].base + p->slot[slot].offset + offset;
}

void *ech_engine_state(ech_engine *e, int slot)
{
    ECH_ASSERT(slot >= 0 && slot < e->program[0]->n_state);
    return address(e, e->program[0], slot, 0);
}

static unsigned char *cell_address(const ech_engine *e, ech_cell cell)
{
    ECH_ASSERT(e->program[0]->scalars >= 0);
    return address(e, e->program[0], e->program[0]->scalars, 8 * (size_t)cell);
}

int64_t ech_engine_get_int(const ech_engine *e, ech_cell cell)
{
    int64_t v;
    memcpy(&v, cell_address(e, cell), sizeof v);
    return v;
}

double ech_engine_get_real(const ech_engine *e, ech_cell cell)
{
    double v;
    memcpy(&v, cell_address(e, cell), sizeof v);
    return v;
}

void ech_engine_set_int(ech_engine *e, ech_cell cell, int64_t value)
{
    memcpy(cell_address(e, cell), &value, sizeof value);
}

void ech_engine_set_real(ech_engine *e, ech_cell cell, double value)
{
    memcpy(cell_address(e, cell), &value, sizeof value);
}

/* --- flight recorder --- */

void ech_engine_set_flight(ech_engine *e, ech_flight_record *flight)
{
    e->flight = flight;
    e->at.item = -1;
}

_Static_assert(sizeof((ech_block *)0)->name == ECH_FLIGHT_NAME_BYTES, "a block's name is recorded");

static void post_item(ech_engine *e, const ech_item *it)
{
    const ech_block *b = &e->program[e->index]->block[it->block];
    e->at.segment = it->segment;
    e->at.item = e->item;
    e->at.layer = it->layer;
    e->at.micro = it->micro;
    e->at.ops = e->ops_done;
    ech_flight_post(e->flight, &e->at, b->name);
}

/* The op that is about to be done, at a time that was taken anyway. */
static void note_op(ech_engine *e, const ech_item *it, const ech_op *op, double now)
{
    if (!e->flight)
        return;
    e->at.state = ech_op_row_get(op->kind)->is_wait ? ECH_FLIGHT_WAITS : ECH_FLIGHT_COMPUTES;
    e->at.kind = op->kind;
    e->at.axis = op->axis;
    e->at.op = e->op;
    e->at.since_s = now;
    if (e->at.item == e->item)
        ech_flight_post_op(e->flight, &e->at);
    else
        post_item(e, it);
}

static void note_begin(ech_engine *e)
{
    const ech_program *p = e->program[e->index];
    e->at.program = e->index;
    e->at.passes += e->item == 0;
    e->at.step = p->scalars < 0 ? 0 : ech_engine_get_int(e, ECH_CELL_STEP) + 1;
    e->at.item = -1; /* none posted yet */
}

static void note_end(ech_engine *e, double now)
{
    static const char words[ECH_FLIGHT_NAME_BYTES] = "between segments";
    if (!e->flight)
        return;
    e->at.state = ECH_FLIGHT_OUTSIDE;
    e->at.item = e->item;
    e->at.op = 0;
    e->at.ops = e->ops_done;
    e->at.since_s = now;
    ech_flight_post(e->flight, &e->at, words);
    e->at.item = -1;
}

/* --- one op --- */

static ech_tensor resolve(const ech_engine *e, const ech_program *p, const ech_item *it,
                          const ech_operand *a)
{
    ech_tensor t = {.dtype = a->dtype, .rank = a->rank};
    if (a->region == ECH_REGION_NONE)
        return t;
    const size_t shift = (size_t)e->coord[a->shift.axis] * a->shift.bytes;
    t.data =
        address(e, p, it->bind[a->region].slot, it->bind[a->region].offset + a->offset + shift);
    for (int d = 0; d < a->rank; d++)
        t.dim[d] = a->dim[d].bound;
    if (ech_operand_extent(a) != ECH_EXTENT_BOUND) { /* of the leading dimension only */
        t.dim[0] = ech_engine_get_int(e, (ech_cell)a->dim[0].extent);
        ECH_ASSERT(0 <= t.dim[0] && t.dim[0] <= a->dim[0].bound);
    }
    return t;
}

static void call_kernel(ech_engine *e, const ech_program *p, const ech_item *it, const ech_op *op)
{
    ech_kernel_call call = {.kind = op->kind,
                            .n_args = op->n_args,
                            .work_bytes = op->work_bytes,
                            .threads = e->config.threads};
    for (int i = 0; i < op->n_args; i++)
        call.arg[i] = resolve(e, p, it, &op->arg[i]);
    for (int i = 0; i < ECH_MAX_ATTRS; i++)
        call.attr[i] = ech_expr_eval(&op->attr[i], e->coord, it->micro);
    memcpy(call.real, op->real, sizeof call.real);
    if (op->work_bytes)
        call.work = address(e, p, it->bind[ECH_REGION_WORK].slot,
                            it->bind[ECH_REGION_WORK].offset + op->work_offset);
    call.rng = (ech_rng_site){.seed = e->config.seed,
                              .step = p->scalars < 0 ? 0 : ech_engine_get_int(e, ECH_CELL_STEP),
                              .layer = it->layer,
                              .row0 = ech_first_row(p, e->config.rank, it->micro)};
    const double t0 = ech_clock_s();
    note_op(e, it, op, t0);
    e->config.kernels->kernel[op->kind](&call);
    const double t1 = ech_clock_s();
    e->times.kernels_s += t1 - t0;
    if (e->recorder)
        ech_recorder_kernel(e->recorder, e->item, t0, t1);
}

ech_coll_kind ech_engine_coll_kind(ech_op_kind kind)
{
    switch (kind) {
    case ECH_OP_ALL_REDUCE_START:
        return ECH_COLL_ALL_REDUCE;
    case ECH_OP_REDUCE_SCATTER_START:
        return ECH_COLL_REDUCE_SCATTER;
    case ECH_OP_ALL_GATHER_START:
        return ECH_COLL_ALL_GATHER;
    case ECH_OP_SUM_SMALL_START:
        return ECH_COLL_SUM_SMALL;
    case ECH_OP_SEND_START:
        return ECH_COLL_SEND;
    default:
        return ECH_COLL_RECV;
    }
}

/* Which argument of a start op is what; -1: it has none. */
typedef struct message_args {
    int buf, part, staging, sum;
} message_args;

static message_args args_of(ech_op_kind kind)
{
    switch (kind) {
    case ECH_OP_ALL_REDUCE_START:
        return (message_args){.buf = 0, .part = -1, .staging = 1, .sum = -1};
    case ECH_OP_REDUCE_SCATTER_START:
        return (message_args){.buf = 0, .part = 1, .staging = 2, .sum = -1};
    case ECH_OP_ALL_GATHER_START:
        return (message_args){.buf = 1, .part = 0, .staging = -1, .sum = -1};
    case ECH_OP_SUM_SMALL_START:
        return (message_args){.buf = 0, .part = -1, .staging = 1, .sum = 2};
    default:
        return (message_args){.buf = 0, .part = -1, .staging = -1, .sum = -1};
    }
}

static void *arg_data(const ech_engine *e, const ech_program *p, const ech_item *it,
                      const ech_op *op, int arg)
{
    return arg >= 0 && arg < op->n_args ? resolve(e, p, it, &op->arg[arg]).data : NULL;
}

/* Where the handle of a communication op is kept. */
static int *request_of(const ech_engine *e, const ech_item *it, const ech_op *op)
{
    return &e->request[it->request + op->request];
}

static ech_status start_message(ech_engine *e, const ech_program *p, const ech_item *it,
                                const ech_op *op)
{
    const message_args at = args_of(op->kind);
    const ech_tensor buf = resolve(e, p, it, &op->arg[at.buf]);
    int *request = request_of(e, it, op);
    ech_coll c = {.kind = ech_engine_coll_kind(op->kind),
                  .axis = op->axis,
                  .dtype = buf.dtype,
                  .n = 1,
                  .buf = buf.data,
                  .part = arg_data(e, p, it, op, at.part),
                  .sum = arg_data(e, p, it, op, at.sum),
                  .staging = arg_data(e, p, it, op, at.staging)};
    ECH_CHECK(*request < 0, ECH_E_PROOF, "rank %d starts message %d, which is in flight",
              e->config.rank, it->request + op->request);
    for (int d = 0; d < buf.rank; d++)
        c.n *= buf.dim[d];
    if (c.staging)
        c.staging_bytes = ech_operand_bytes(&op->arg[at.staging]);
    c.peer = (int)ech_expr_eval(&op->attr[0], e->coord, it->micro);
    ECH_TRY(ech_coll_start(e->config.comm, &c, request));
    e->in_flight++;
    return ECH_OK;
}

static ech_status finish_message(ech_engine *e, const ech_item *it, const ech_op *op)
{
    int *request = request_of(e, it, op);
    ECH_CHECK(*request >= 0, ECH_E_PROOF, "rank %d waits for message %d, which it has not started",
              e->config.rank, it->request + op->request);
    const ech_status st = ech_coll_test(e->config.comm, *request);
    if (st != ECH_DONE)
        return st;
    *request = -1;
    e->in_flight--;
    return ECH_OK;
}

/* --- recording --- */

/* Messages that came through meanwhile; their waits may be far. */
static void record_arrivals(ech_engine *e, double now)
{
    int n;
    const int *open = ech_recorder_open(e->recorder, &n);
    for (int i = n - 1; i >= 0; i--) /* the last takes the place of one that is gone */
        if (ech_coll_is_done(e->config.comm, e->request[open[i]]))
            ech_recorder_arrived(e->recorder, open[i], now);
}

/* What a communication op came to that began at t[0] and was back at t[1]. */
static void record_message(ech_engine *e, const ech_item *it, const ech_op *op, ech_status st,
                           const double t[2])
{
    const ech_op_place at = {e->item, e->op, op->axis, it->request + op->request};
    const bool is_start = ech_op_row_get(op->kind)->is_start;
    if (st >= 0 && is_start)
        ech_recorder_started(e->recorder, &at, t[0]);
    else if (st == ECH_BLOCKED)
        ech_recorder_blocked(e->recorder, &at, t[0]);
    else if (st >= 0)
        ech_recorder_waited(e->recorder, &at, t[1]);
    record_arrivals(e, t[1]);
}

static ech_status run_op(ech_engine *e, const ech_item *it, const ech_op *op)
{
    const ech_program *p = e->program[e->index];
    const ech_op_row *row = ech_op_row_get(op->kind);
    if (row->is_start || row->is_wait) {
        const double t0 = ech_clock_s();
        if (e->blocked_since <= 0.0) /* else it stands there already */
            note_op(e, it, op, t0);
        const ech_status st =
            row->is_start ? start_message(e, p, it, op) : finish_message(e, it, op);
        const double t1 = ech_clock_s();
        if (e->recorder)
            record_message(e, it, op, st, (const double[2]){t0, t1});
        if (st == ECH_BLOCKED && e->blocked_since <= 0.0)
            e->blocked_since = t0; /* asking in vain is waiting: it may have given the core away */
        else if (st != ECH_BLOCKED && e->blocked_since <= 0.0)
            e->times.comm_s += t1 - t0;
        e->ops_done += st == ECH_OK;
        e->times.polls += st == ECH_BLOCKED;
        return st;
    }
    call_kernel(e, p, it, op);
    e->ops_done++;
    if (!e->in_flight)
        return ECH_OK;
    const double t0 = ech_clock_s();
    const ech_status st = ech_comm_progress(e->config.comm);
    const double t1 = ech_clock_s();
    e->times.comm_s += t1 - t0;
    if (e->recorder)
        record_arrivals(e, t1);
    return st;
}

/* --- lives --- */

static void poison(ech_engine *e, int slot)
{
    const ech_program *p = e->program[e->index];
    if (e->config.poison)
        memset(address(e, p, slot, 0), 0xff, p->slot[slot].bytes);
}

/* The fullest moment so far, by class. */
static void note_peak(ech_engine *e)
{
    for (int sp = 0; sp < ECH_N_SPACES; sp++) {
        size_t total = 0;
        for (int c = 0; c < ECH_N_CLASSES; c++)
            total += e->live[sp][c];
        if (total <= e->peak[sp].total)
            continue;
        e->peak[sp].total = total;
        memcpy(e->peak[sp].at_peak, e->live[sp], sizeof e->live[sp]);
    }
}

/* Executed lifetimes: what is alive from now on. */
static void begin_item(ech_engine *e)
{
    const ech_program *p = e->program[e->index];
    const lives *l = &e->life[e->index];
    if (l->birth[e->item] < 0)
        return;
    for (int s = l->birth[e->item]; s >= 0; s = l->next_birth[s])
        e->live[p->slot[s].space][p->slot[s].klass] += p->slot[s].bytes;
    note_peak(e);
}

static void end_item(ech_engine *e)
{
    const ech_program *p = e->program[e->index];
    const lives *l = &e->life[e->index];
    for (int s = l->death[e->item]; s >= 0; s = l->next_death[s]) {
        e->live[p->slot[s].space][p->slot[s].klass] -= p->slot[s].bytes;
        poison(e, s);
    }
}

static void enter_program(ech_engine *e)
{
    const ech_program *p = e->program[e->index];
    memset(e->live, 0, sizeof e->live);
    for (int s = 0; s < p->n_state; s++)
        e->live[p->slot[s].space][p->slot[s].klass] += p->slot[s].bytes;
    note_peak(e); /* a program without transient slots is fullest at once */
    for (int sp = 0; sp < ECH_N_SPACES && e->config.poison; sp++)
        if (e->arena[sp].base)
            memset(e->arena[sp].base + p->state_bytes[sp], 0xff,
                   e->arena[sp].bytes - p->state_bytes[sp]);
}

void ech_engine_begin(ech_engine *e, int index, ech_segment segment)
{
    const ech_program *p = e->program[index];
    e->index = index;
    e->item = 0;
    while (e->item < p->n_items && p->item[e->item].segment < segment)
        e->item++;
    e->end = e->item;
    while (e->end < p->n_items && p->item[e->end].segment == segment)
        e->end++;
    e->op = 0;
    e->blocked_since = 0.0;
    const bool records = index == 0 && e->config.recorder;
    e->recorder = records && ech_recorder_is_on(e->config.recorder) ? e->config.recorder : NULL;
    note_begin(e);
    if (e->item == 0)
        enter_program(e);
}

ech_status ech_engine_advance(ech_engine *e)
{
    const ech_program *p = e->program[e->index];
    const double t0 = e->blocked_since > 0.0 ? e->blocked_since : ech_clock_s();
    for (; e->item < e->end; e->item++, e->op = 0) {
        const ech_item *it = &p->item[e->item];
        const ech_block *b = &p->block[it->block];
        if (e->op == 0 && e->blocked_since <= 0.0)
            begin_item(e);
        for (; e->op < b->n_ops; e->op++) {
            const ech_status st = run_op(e, it, &b->op[e->op]);
            const double now = st == ECH_BLOCKED || e->blocked_since > 0.0 ? ech_clock_s() : 0.0;
            if (e->blocked_since > 0.0)
                e->times.blocked_s += now - e->blocked_since;
            e->blocked_since = st == ECH_BLOCKED ? now : 0.0;
            if (st < 0 || st == ECH_BLOCKED) {
                e->times.total_s += now > 0.0 ? now - t0 : 0.0;
                return st;
            }
        }
        end_item(e);
    }
    const double t1 = ech_clock_s();
    e->times.total_s += t1 - t0;
    note_end(e, t1);
    return ECH_DONE;
}

bool ech_engine_has_ended(const ech_engine *e)
{
    return e->item >= e->end;
}

ech_status ech_engine_run_op(ech_engine *e, int item, int op, int slot)
{
    const ech_program *p = e->program[e->index];
    if (op == ECH_DEPS_RELEASE) {
        poison(e, slot);
        return ECH_OK;
    }
    e->recorder = NULL; /* it stands nowhere, so it never waits */
    e->item = item;     /* where it stands, should it be asked */
    e->op = op;
    return run_op(e, &p->item[item], &p->block[p->item[item].block].op[op]);
}

/* --- reports --- */

const char *ech_engine_describe(const ech_engine *e, char *buf, size_t n)
{
    const ech_program *p = e->program[e->index];
    char where[128];
    char what[256] = "";
    if (e->item >= e->end) {
        (void)snprintf(buf, n, "rank %d stands at the end of its segment", e->config.rank);
        return buf;
    }
    const ech_item *it = &p->item[e->item];
    const ech_block *b = &p->block[it->block];
    const int *request =
        it->request >= 0 && e->op < b->n_ops ? request_of(e, it, &b->op[e->op]) : NULL;
    if (request && *request >= 0)
        (void)ech_coll_describe(e->config.comm, *request, what, sizeof what);
    (void)snprintf(buf, n, "rank %d, %s, op %d: %s", e->config.rank,
                   ech_item_describe(p, e->item, where, sizeof where), e->op, what);
    return buf;
}

int64_t ech_engine_activity(const ech_engine *e)
{
    return e->ops_done + ech_comm_activity(e->config.comm);
}

ech_engine_times ech_engine_times_get(const ech_engine *e)
{
    ech_engine_times t = e->times;
    t.ops = e->ops_done - e->ops_reset;
    return t;
}

void ech_engine_times_reset(ech_engine *e)
{
    e->times = (ech_engine_times){0};
    e->ops_reset = e->ops_done;
}

void ech_engine_memory_get(const ech_engine *e, ech_space space, ech_engine_memory *out)
{
    const ech_program *p = e->program[0];
    *out = e->peak[space];
    out->arena = e->arena[space].bytes;
    for (int s = 0; s < p->n_state; s++)
        if (p->slot[s].space == space)
            out->touched_state[p->slot[s].klass] += ech_arena_touched(
                &e->arena[space], p->slot[s].offset, p->slot[s].offset + p->slot[s].bytes);
    if (e->arena[space].base)
        out->touched_transient =
            ech_arena_touched(&e->arena[space], p->state_bytes[space], e->arena[space].bytes);
}

ech_status ech_engine_check(const ech_engine *e)
{
    for (int s = 0; s < ECH_N_SPACES; s++)
        ECH_TRY(ech_arena_check(&e->arena[s]));
    return ECH_OK;
}
