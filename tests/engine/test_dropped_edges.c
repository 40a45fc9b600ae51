/* RUN: np=1 timeout=120 tags=fast */
/* Every dependence is needed: one edge at a time is dropped by hand, and poison and changed bits
 * show it.  Edges that others imply are left out.  For each of the rest an order that only this
 * edge forbids is run on one rank; orders drawn from seeds are tried as well, and both shares
 * printed. */
#include "check.h"
#include "comm/collective.h"
#include "engine/virtual.h"
#include "lazy_transport.h"
#include "order.h"
#include "tiny.h"

#include <stdlib.h>

enum { SEEDS = 6, IDLE = 2000 };

/* Edges by what they order. */
typedef enum edge_class {
    EDGE_DATA,    /* bytes that one writes and the other reads or writes */
    EDGE_STAGING, /* the same with the staging of messages, whose bytes matter for a moment only */
    EDGE_MESSAGE, /* the order of messages */
    EDGE_SUM,     /* two additions to the same bytes: they commute, but for rounding */
    EDGE_SCRATCH, /* a kernel's workspace: ops run one at a time here, so nothing can show */
    N_EDGE_CLASSES
} edge_class;
static const char *const class_names[] = {"data", "staging", "messages", "sums", "scratch"};

/* How a forbidden order is run. */
typedef struct manner {
    bool at_once; /* the later node as early as it can be, else just before the earlier one */
    bool lazy;    /* messages move in waits only; else at once, and the other ranks run ahead */
    int rank;     /* that runs it; the others keep to the program's order */
} manner;

typedef struct tally {
    int edges, by_directed, by_seeds, by_any;
} tally;

/* A run with everything needed to make one step again from the same state. */
typedef struct bench {
    tiny_spec spec;
    tiny_run run;
    ech_deps deps; /* whole */
    order before;
    unsigned char *start[4], *wanted[4];
    size_t bytes; /* of state */
    lazy_gate gate;
} bench;

static bool most(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row + position) % 3 != 0;
}

static void *state_of(const bench *b, int r)
{
    return ech_engine_state(b->run.session->local[r].engine, 0);
}

static unsigned char *copy(const void *from, size_t bytes)
{
    unsigned char *to = malloc(bytes);
    memcpy(to, from, bytes);
    return to;
}

static void set_cells(bench *b)
{
    for (int r = 0; r < b->run.world; r++) {
        ech_engine *e = b->run.session->local[r].engine;
        ech_engine_set_int(e, ECH_CELL_STEP, 0);
        ech_engine_set_int(e, ECH_CELL_UPDATES, 0);
        ech_engine_set_real(e, ECH_CELL_LR, 0.01);
        ech_engine_set_real(e, ECH_CELL_LOSS_SCALE, 4.0);
        ech_engine_set_real(e, ECH_CELL_STOP_LOCAL, 0.0);
    }
}

static void engines_of(const bench *b, ech_engine *engine[4])
{
    for (int r = 0; r < b->run.world; r++)
        engine[r] = b->run.session->local[r].engine;
}

static void bench_start(bench *b, const tiny_spec *spec)
{
    ech_engine *engine[4];
    *b = (bench){.spec = *spec, .gate = {true, -1}};
    b->spec.gate = &b->gate;
    tiny_start(&b->spec, &b->run);
    tiny_feed(&b->run, 0, most, NULL);
    set_cells(b);
    const ech_program *p = &b->run.session->train.klass[0].program;
    assert_ok(ech_deps_derive(p, ECH_DEPS_ON_ADDRESSES, &b->deps));
    b->before = order_by_edges(&b->deps);
    b->bytes = p->state_bytes[ECH_SPACE_DEVICE];
    for (int r = 0; r < b->run.world; r++)
        b->start[r] = copy(state_of(b, r), b->bytes);
    engines_of(b, engine);
    for (int s = 0; s < ECH_N_SEGMENTS; s++)
        assert_ok(ech_virtual_run(engine, b->run.world, 0, (ech_segment)s));
    for (int r = 0; r < b->run.world; r++)
        b->wanted[r] = copy(state_of(b, r), b->bytes);
}

static void bench_stop(bench *b)
{
    for (int r = 0; r < b->run.world; r++) {
        free(b->start[r]);
        free(b->wanted[r]);
    }
    order_fini(&b->before);
    ech_deps_fini(&b->deps);
    tiny_stop(&b->run);
}

/* After a failed run messages are left over, so the engines are made anew. */
static void restore(bench *b, bool failed)
{
    b->gate = (lazy_gate){true, -1};
    if (failed) {
        tiny_stop(&b->run);
        tiny_start(&b->spec, &b->run);
    }
    for (int r = 0; r < b->run.world; r++)
        memcpy(state_of(b, r), b->start[r], b->bytes);
}

/* Whether the run is as it should be: all state, to the byte. */
static bool is_right(const bench *b)
{
    for (int r = 0; r < b->run.world; r++)
        if (memcmp(state_of(b, r), b->wanted[r], b->bytes) != 0)
            return false;
    return true;
}

/* --- an order that only one edge forbids --- */

static ech_segment segment_of(const bench *b, int node)
{
    return b->run.session->train.klass[0].program.item[b->deps.item[node]].segment;
}

/* All that `late` or `early` needs, then early, then late, then the rest: early overtakes late. */
static int overtaking(const bench *b, int late, int early, bool at_once, int *list)
{
    int n = 0;
    const ech_deps *d = &b->deps;
    bool *taken = calloc((size_t)d->n, sizeof *taken);
    ech_deps cut;
    assert_ok(
        ech_deps_derive(&b->run.session->train.klass[0].program, ECH_DEPS_ON_ADDRESSES, &cut));
    assert_true(ech_deps_drop(&cut, early, late));
    order without = order_by_edges(&cut);
    assert_false(order_has(&without, late, early));
    for (int v = 0; v < early; v++)
        if (order_has(&without, v, early) || (!at_once && order_has(&without, v, late)))
            taken[v] = true;
    for (int v = 0; v < d->n; v++)
        if (taken[v] && segment_of(b, v) == segment_of(b, early))
            list[n++] = v;
    list[n++] = early;
    for (int v = 0; v < d->n; v++)
        if (!taken[v] && v != early && segment_of(b, v) == segment_of(b, early))
            list[n++] = v;
    order_fini(&without);
    ech_deps_fini(&cut);
    free(taken);
    return n;
}

static int in_order(const bench *b, ech_segment segment, int *list)
{
    int n = 0;
    for (int v = 0; v < b->deps.n; v++)
        if (segment_of(b, v) == segment)
            list[n++] = v;
    return n;
}

static const ech_op *op_of(const bench *b, int node)
{
    const ech_program *p = &b->run.session->train.klass[0].program;
    const ech_block *block = &p->block[p->item[b->deps.item[node]].block];
    return b->deps.op[node] == ECH_DEPS_RELEASE ? NULL : &block->op[b->deps.op[node]];
}

static const ech_op_row *row_of(const bench *b, int node)
{
    static const ech_op_row none = {.signature = ""};
    return op_of(b, node) ? ech_op_row_get(op_of(b, node)->kind) : &none;
}

static int request_of(const bench *b, int node)
{
    const ech_program *p = &b->run.session->train.klass[0].program;
    return p->item[b->deps.item[node]].request + op_of(b, node)->request;
}

/* Tag of the message that a wait is for: collectives of an axis are numbered as they start. */
static int tag_of(const bench *b, int wait)
{
    const ech_axis axis = op_of(b, wait)->axis;
    int64_t number = b->run.session->local[0].comm->group[axis].started;
    for (int v = 0; v < wait; v++) {
        if (!row_of(b, v)->is_start || op_of(b, v)->axis != axis)
            continue;
        if (request_of(b, v) == request_of(b, wait))
            return 2 + 2 * (int)number;
        number++;
    }
    return -1;
}

/* Nodes of a segment for the rank that misbehaves and for the others. */
typedef struct schedule {
    int *list[2];
    int n;
    int late; /* node that was overtaken; -1: none in this segment */
    manner how;
} schedule;

static ech_status run_node(bench *b, ech_engine *engine, int v, bool lazy)
{
    b->gate.is_open = !lazy || row_of(b, v)->is_wait;
    const ech_status st =
        ech_engine_run_op(engine, b->deps.item[v], b->deps.op[v], b->deps.slot[v]);
    b->gate.is_open = true;
    return st;
}

/* One turn of all ranks.  Without laziness the misbehaving rank stands at the overtaken node until
 * nothing else moves, so that the others get as far as they can. */
static ech_status take_turns(bench *b, const schedule *plan, int at[4], bool *moved)
{
    ech_engine *engine[4];
    engines_of(b, engine);
    for (int k = 1; k <= b->run.world; k++) {
        const int r = (plan->how.rank + k) % b->run.world; /* the misbehaving rank last */
        const bool is_bad = r == plan->how.rank;
        const int v = at[r] < plan->n ? plan->list[!is_bad][at[r]] : -1;
        if (v < 0 || (is_bad && !plan->how.lazy && v == plan->late && *moved))
            continue;
        if (is_bad && v == plan->late)
            b->gate.held_tag = -1;
        const ech_status st = run_node(b, engine[r], v, plan->how.lazy);
        if (st < 0)
            return st;
        at[r] += st != ECH_BLOCKED;
        *moved = *moved || st != ECH_BLOCKED;
    }
    return ECH_OK;
}

static ech_status run_schedule(bench *b, ech_segment segment, const schedule *plan)
{
    ech_engine *engine[4];
    int at[4] = {0};
    int idle = 0;
    bool left = true;
    engines_of(b, engine);
    for (int r = 0; r < b->run.world; r++)
        ech_engine_begin(engine[r], 0, segment);
    while (left && idle < IDLE) {
        bool moved = false;
        ECH_TRY(take_turns(b, plan, at, &moved));
        idle = moved ? 0 : idle + 1;
        left = false;
        for (int r = 0; r < b->run.world; r++)
            left = left || at[r] < plan->n;
    }
    return left ? ECH_E_DEADLOCK : ECH_OK;
}

static bool directed_shows(bench *b, int late, int early, manner how)
{
    ech_status st = ECH_OK;
    schedule plan = {.how = how};
    for (int k = 0; k < 2; k++)
        plan.list[k] = malloc((size_t)b->deps.n * sizeof *plan.list[k]);
    if (how.lazy && row_of(b, late)->is_wait)
        b->gate.held_tag = tag_of(b, late);
    for (int s = 0; s < ECH_N_SEGMENTS && st >= 0; s++) {
        const bool here = s == (int)segment_of(b, early);
        plan.n = in_order(b, (ech_segment)s, plan.list[1]);
        if (here)
            assert_int_equal(overtaking(b, late, early, how.at_once, plan.list[0]), plan.n);
        else
            (void)in_order(b, (ech_segment)s, plan.list[0]);
        plan.late = here ? late : -1;
        st = run_schedule(b, (ech_segment)s, &plan);
    }
    const bool shows = st < 0 || !is_right(b);
    restore(b, st < 0);
    free(plan.list[0]);
    free(plan.list[1]);
    return shows;
}

static bool any_directed_shows(bench *b, int late, int early)
{
    for (int k = 0; k < 8; k++)
        if (directed_shows(b, late, early, (manner){k & 1, k & 2, k / 4}))
            return true;
    return false;
}

static bool seed_shows(bench *b, int late, int early, uint64_t seed)
{
    ech_engine *engine[4];
    ech_deps cut;
    ech_status st = ECH_OK;
    const ech_program *p = &b->run.session->train.klass[0].program;
    assert_ok(ech_deps_derive(p, ECH_DEPS_ON_ADDRESSES, &cut));
    assert_true(ech_deps_drop(&cut, early, late));
    engines_of(b, engine);
    for (int s = 0; s < ECH_N_SEGMENTS && st >= 0; s++)
        st = s == (int)segment_of(b, early)
                 ? ech_virtual_fuzz(engine, b->run.world, 0, (ech_segment)s,
                                    &(ech_virtual_orders){&p, &cut, NULL}, seed)
                 : ech_virtual_run(engine, b->run.world, 0, (ech_segment)s);
    const bool shows = st < 0 || !is_right(b);
    ech_deps_fini(&cut);
    restore(b, st < 0);
    return shows;
}

/* --- edges --- */

static bool adds(const bench *b, int node)
{
    return strchr(row_of(b, node)->signature, '+') != NULL;
}

static bool is_comm(const bench *b, int node)
{
    return row_of(b, node)->is_start || row_of(b, node)->is_wait;
}

static bool is_release(const bench *b, int node)
{
    return b->deps.op[node] == ECH_DEPS_RELEASE;
}

static edge_class classify(const bench *b, int late, int early)
{
    const int why =
        order_reason(&b->run.session->train.klass[0].program, &b->deps, true, late, early);
    if (why & ORDER_SCRATCH)
        return EDGE_SCRATCH;
    if (why == ORDER_SENT)
        return EDGE_MESSAGE;
    if ((is_comm(b, late) && is_release(b, early)) || (is_release(b, late) && is_comm(b, early)))
        return EDGE_STAGING; /* the other bytes of messages are state, which is never released */
    if (is_comm(b, late) && is_comm(b, early) && why == ORDER_WAW)
        return EDGE_STAGING; /* two messages of a block, one after the other on the same bytes */
    return adds(b, late) && adds(b, early) ? EDGE_SUM : EDGE_DATA;
}

static void try_edge(bench *b, int late, int early, tally t[N_EDGE_CLASSES])
{
    const edge_class c = classify(b, late, early);
    bool by_seed = false;
    const bool directed = any_directed_shows(b, late, early);
    for (uint64_t seed = 1; seed <= SEEDS && !by_seed; seed++)
        by_seed = seed_shows(b, late, early, 7919 * seed);
    t[c].edges++;
    t[c].by_directed += directed;
    t[c].by_seeds += by_seed;
    t[c].by_any += directed || by_seed;
    if ((c == EDGE_DATA || c == EDGE_MESSAGE) && !directed && !by_seed)
        (void)fprintf(
            stderr,
            "not shown: item %d op %d (slot %d) before item %d op %d (slot %d), reason %d\n",
            b->deps.item[late], b->deps.op[late], b->deps.slot[late], b->deps.item[early],
            b->deps.op[early], b->deps.slot[early],
            order_reason(&b->run.session->train.klass[0].program, &b->deps, true, late, early));
}

/* Segments are run one after the other, so an edge between two of them has nothing to add. */
static bool is_needed(const bench *b, int node, int pred)
{
    return segment_of(b, node) == segment_of(b, pred) &&
           !order_is_implied(&b->before, &b->deps, node, pred);
}

/* Nothing dropped: right at once and lazily, whatever is held back. */
static void check_control(bench *b)
{
    schedule plan = {.late = -1};
    plan.list[0] = plan.list[1] = malloc((size_t)b->deps.n * sizeof *plan.list[0]);
    for (int k = 0; k < 2; k++) {
        plan.how.lazy = k;
        for (int s = 0; s < ECH_N_SEGMENTS; s++) {
            plan.n = in_order(b, (ech_segment)s, plan.list[0]);
            assert_ok(run_schedule(b, (ech_segment)s, &plan));
        }
        assert_true(is_right(b));
        restore(b, false);
    }
    free(plan.list[0]);
}

static void drop_edges(const char *title, const tiny_spec *spec, int every)
{
    bench b;
    tally t[N_EDGE_CLASSES] = {{0}};
    int needed = 0;
    bench_start(&b, spec);
    restore(&b, false);
    check_control(&b);
    for (int node = 0; node < b.deps.n; node++)
        for (int i = b.deps.row[node]; i < b.deps.row[node + 1]; i++)
            if (is_needed(&b, node, b.deps.pred[i]) && needed++ % every == 0)
                try_edge(&b, b.deps.pred[i], node, t);
    (void)printf("%s: %d nodes, %zu edges, %d of them not implied by others, every %d. tried\n",
                 title, b.deps.n, b.deps.n_edges, needed, every);
    for (int c = 0; c < N_EDGE_CLASSES; c++)
        if (t[c].edges)
            (void)printf("  %-8s %5d edges, shown by the directed order %5.1f %%, by one of %d "
                         "seeds %5.1f %%\n",
                         class_names[c], t[c].edges, 100.0 * t[c].by_directed / t[c].edges, SEEDS,
                         100.0 * t[c].by_seeds / t[c].edges);
    assert_true(t[EDGE_DATA].edges > 80 / every);
    assert_int_equal(t[EDGE_DATA].by_any, t[EDGE_DATA].edges);
    assert_int_equal(t[EDGE_MESSAGE].by_any, t[EDGE_MESSAGE].edges);
    bench_stop(&b);
}

static tiny_spec base(tiny_kind kind)
{
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.dp = 2;
    spec.accumulation = 1;
    spec.optim = ECH_UPDATE_ADAMW;
    spec.bucket_bytes = 1;
    spec.poison = true;
    spec.seq = 4;
    return spec;
}

static void test_every_edge_of_a_tiny_llama(void **state)
{
    (void)state;
    const tiny_spec spec = base(TINY_LLAMA);
    drop_edges("llama, dp 2", &spec, 1);
}

static void test_edges_of_gpt2_with_three_micro_batches(void **state)
{
    (void)state;
    tiny_spec spec = base(TINY_GPT2);
    spec.accumulation = 3;
    spec.dropout = 0.2;
    drop_edges("gpt2, tied, dropout, dp 2, 3 micro-batches", &spec, 2);
    spec = base(TINY_QWEN);
    spec.accumulation = 3;
    spec.schedule = true ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
    drop_edges("qwen, dp 2, 3 micro-batches, forward first", &spec, 2);
}

/* Tensor and sequence parallel ranks, and such as gather their parameters and share gradients out:
 * one program for all of them. */
static void test_edges_of_many_ranks(void **state)
{
    (void)state;
    tiny_spec spec = base(TINY_TIED_LLAMA);
    spec.heads = 4;
    spec.kv_heads = 1;
    spec.tp = 2;
    spec.dp = 1;
    spec.policy.is_sequence_parallel = true;
    drop_edges("llama of 4 heads on 1, tied, tp 2, sp", &spec, 1);
    spec = base(TINY_LLAMA);
    spec.accumulation = 2;
    spec.policy = (ech_shard_policy){false, false, 2, true, false, 0};
    drop_edges("llama, dp 2, ZeRO 2 each, 2 micro-batches", &spec, 2);
    spec = base(TINY_QWEN);
    spec.tp = 2;
    spec.policy = (ech_shard_policy){true, false, 3, false, true, 1};
    drop_edges("qwen, tp 2, dp 2, sp, ZeRO 3", &spec, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_edge_of_a_tiny_llama),
        cmocka_unit_test(test_edges_of_gpt2_with_three_micro_batches),
        cmocka_unit_test(test_edges_of_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
