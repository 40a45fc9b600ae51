/* RUN: np=1 timeout=60 tags=fast */
/* Derived dependences against brute force over all pairs of byte ranges, on slots and on addresses,
 * for random and compiled programs; and what may not be done to a message in flight. */
#include "base/rng.h"
#include "check.h"
#include "hand.h"
#include "order.h"
#include "tiny.h"

#include <stdlib.h>

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    const ech_rng_key key = ech_rng_key_make(5, ECH_RNG_TEST, 0, 0);
    return ech_rng_u32(&key, drawn++) % below;
}

/* Nodes as they should be: the ops of each item, then the ends of lives. */
static void check_nodes(const ech_program *p, const ech_deps *d, bool on_addresses)
{
    int n = 0;
    for (int i = 0; i < p->n_items; i++) {
        for (int k = 0; k < p->block[p->item[i].block].n_ops; k++, n++) {
            assert_int_equal(d->item[n], i);
            assert_int_equal(d->op[n], k);
            assert_int_equal(d->slot[n], -1);
        }
        for (int s = p->n_state; s < p->n_slots && on_addresses; s++) {
            if (p->slot[s].first < 0 || p->slot[s].last != i)
                continue;
            assert_int_equal(d->op[n], ECH_DEPS_RELEASE);
            assert_int_equal(d->slot[n], s);
            n++;
        }
    }
    assert_int_equal(d->n, n);
    for (int v = 0; v < d->n; v++)
        for (int i = d->row[v]; i < d->row[v + 1]; i++) {
            assert_true(d->pred[i] >= 0 && d->pred[i] < v);
            assert_true(i == d->row[v] || d->pred[i] > d->pred[i - 1]);
        }
}

static void check_order(const ech_program *p, ech_deps_on on)
{
    ech_deps d;
    const bool on_addresses = on == ECH_DEPS_ON_ADDRESSES;
    assert_ok(ech_deps_derive(p, on, &d));
    check_nodes(p, &d, on_addresses);
    order wanted = order_by_bytes(p, &d, on_addresses);
    order got = order_by_edges(&d);
    for (int a = 0; a < d.n; a++)
        for (int b = a + 1; b < d.n; b++)
            if (order_has(&wanted, a, b) != order_has(&got, a, b))
                fail_msg("%s: node %d (item %d, op %d) before node %d (item %d, op %d): bytes say "
                         "%d, edges say %d",
                         p->name, a, d.item[a], d.op[a], b, d.item[b], d.op[b],
                         order_has(&wanted, a, b), order_has(&got, a, b));
    order_fini(&wanted);
    order_fini(&got);
    ech_deps_fini(&d);
}

/* --- random programs --- */

enum { SLOTS = 7, ELEMS = 40 };

static hand_arg random_arg(int64_t elems)
{
    const ech_placement i = ech_placement_invariant();
    return (hand_arg){(int)draw(SLOTS), (int64_t)draw((uint32_t)(ELEMS - elems + 1)), elems, i};
}

static void random_op(ech_program *p)
{
    const int64_t elems = 1 + (int64_t)draw(12);
    const hand_op plain[] = {{.kind = ECH_OP_ZERO, .request = -1},
                             {.kind = ECH_OP_COPY, .request = -1},
                             {.kind = ECH_OP_SCALE, .request = -1, .real = 2.0},
                             {.kind = ECH_OP_ADD, .request = -1}};
    const hand_op op = plain[draw(4)];
    const hand_arg arg[3] = {random_arg(elems), random_arg(elems), random_arg(elems)};
    (void)hand_add(p, op, op.kind == ECH_OP_COPY ? 2 : op.kind == ECH_OP_ADD ? 3 : 1, arg);
}

static void random_program(ech_program *p, int ops)
{
    const ech_layout alone = ech_layout_data_parallel(1);
    ech_program_init(p, "random", &alone);
    for (int s = 0; s < SLOTS; s++)
        (void)hand_slot(p, "x", s < 2, ELEMS, ech_placement_invariant());
    for (int i = 0; i < ops; i++)
        random_op(p);
}

static void test_random_programs(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        ech_program p;
        random_program(&p, 5 + (int)draw(40));
        check_order(&p, ECH_DEPS_ON_SLOTS);
        assert_ok(ech_program_place(&p, NULL));
        check_order(&p, ECH_DEPS_ON_ADDRESSES);
        ech_program_fini(&p);
    }
}

/* Two transients that never live together share their bytes: on slots they are strangers, on
 * addresses the second waits for the end of the first. */
static void test_reuse_orders_strangers(void **state)
{
    ech_program p;
    ech_deps d;
    const ech_layout alone = ech_layout_data_parallel(1);
    const ech_placement i = ech_placement_invariant();
    const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};
    (void)state;
    ech_program_init(&p, "reuse", &alone);
    const int x = hand_slot(&p, "x", true, 8, i);
    const int y = hand_slot(&p, "y", true, 16, i);
    const int s = hand_slot(&p, "s", false, 8, i);
    const int t = hand_slot(&p, "t", false, 8, i);
    (void)HAND_ADD(&p, copy, {x, 0, 8, i}, {s, 0, 8, i});
    (void)HAND_ADD(&p, copy, {s, 0, 8, i}, {y, 0, 8, i});
    (void)HAND_ADD(&p, copy, {x, 0, 8, i}, {t, 0, 8, i});
    (void)HAND_ADD(&p, copy, {t, 0, 8, i}, {y, 8, 8, i});
    assert_ok(ech_program_place(&p, NULL));
    assert_int_equal(p.slot[s].offset, p.slot[t].offset);
    assert_ok(ech_deps_derive(&p, ECH_DEPS_ON_SLOTS, &d));
    order free_order = order_by_edges(&d);
    assert_false(order_has(&free_order, 1, 2));
    order_fini(&free_order);
    ech_deps_fini(&d);
    assert_ok(ech_deps_derive(&p, ECH_DEPS_ON_ADDRESSES, &d));
    order tied = order_by_edges(&d);
    assert_int_equal(d.op[2], ECH_DEPS_RELEASE); /* after copy, copy */
    assert_true(order_has(&tied, 1, 2));         /* read before it ends */
    assert_true(order_has(&tied, 2, 3));         /* ended before it is written again */
    order_fini(&tied);
    ech_deps_fini(&d);
    ech_program_fini(&p);
}

/* --- compiled programs --- */

static void test_compiled_programs(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int dp = 1; dp <= 2; dp++) {
            tiny_run run;
            tiny_spec spec = tiny_spec_default();
            spec.kind = (tiny_kind)kind;
            spec.dp = dp;
            spec.accumulation = dp;
            spec.schedule = kind % 2 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
            spec.bucket_bytes = kind % 2 ? 1 : 1 << 20;
            spec.dropout = kind == TINY_GPT2 ? 0.1 : 0.0;
            spec.has_eval = true;
            tiny_start(&spec, &run);
            check_order(&run.session->train.klass[0].program, ECH_DEPS_ON_SLOTS);
            check_order(&run.session->train.klass[0].program, ECH_DEPS_ON_ADDRESSES);
            check_order(&run.session->eval.klass[0].program, ECH_DEPS_ON_ADDRESSES);
            tiny_stop(&run);
        }
}

/* Tensor and sequence parallel, shared heads, state dealt out. */
static void test_compiled_programs_of_many_ranks(void **state)
{
    static const struct {
        tiny_kind kind;
        int tp, dp, group, accumulation;
        ech_shard_policy policy;
    } rows[] = {{TINY_TIED_LLAMA, 2, 1, 0, 1, {false, false, 0, false, false, 0}},
                {TINY_QWEN, 4, 1, 0, 1, {true, true, 0, false, false, 0}},
                {TINY_LLAMA, 1, 2, 0, 2, {false, false, 1, false, false, 0}},
                {TINY_GPT2, 3, 2, 0, 2, {true, false, 2, true, false, 0}},
                {TINY_LLAMA, 2, 4, 2, 2, {true, false, 3, true, true, 1}}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_run run;
        tiny_spec spec = tiny_spec_default();
        spec.kind = rows[i].kind;
        spec.tp = rows[i].tp;
        spec.dp = rows[i].dp;
        spec.shard_group = rows[i].group;
        spec.accumulation = rows[i].accumulation;
        spec.policy = rows[i].policy;
        spec.rows = 2;
        spec.seq = 6;
        spec.optim = ECH_UPDATE_ADAMW;
        tiny_start(&spec, &run);
        check_order(&run.session->train.klass[0].program, ECH_DEPS_ON_SLOTS);
        check_order(&run.session->train.klass[0].program, ECH_DEPS_ON_ADDRESSES);
        tiny_stop(&run);
    }
}

/* out[0, n) = x[0, n), n in a cell that an op writes before and another after. */
static void test_extents_are_read(void **state)
{
    ech_program p;
    ech_deps d;
    const ech_layout alone = ech_layout_data_parallel(1);
    const ech_placement i = ech_placement_invariant();
    const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};
    (void)state;
    ech_program_init(&p, "extents", &alone);
    const int x = hand_slot(&p, "x", true, 9, i);
    const int y = hand_slot(&p, "y", true, 8, i);
    p.scalars = hand_slot(&p, "scalars", true, ECH_N_CELLS, i);
    (void)HAND_ADD(&p, copy, {x, 8, 1, i}, {p.scalars, ECH_CELL_NEW_TOKENS, 1, i});
    const int item = HAND_ADD(&p, copy, {x, 0, 8, i}, {y, 0, 8, i});
    (void)HAND_ADD(&p, copy, {x, 8, 1, i}, {p.scalars, ECH_CELL_NEW_TOKENS, 1, i});
    for (int a = 0; a < 2; a++)
        p.block[p.item[item].block].op[0].arg[a].dim[0].extent = ECH_CELL_NEW_TOKENS;
    assert_ok(ech_program_place(&p, NULL));
    check_order(&p, ECH_DEPS_ON_SLOTS);
    check_order(&p, ECH_DEPS_ON_ADDRESSES);
    assert_ok(ech_deps_derive(&p, ECH_DEPS_ON_ADDRESSES, &d));
    assert_int_equal(d.n, 3);
    assert_int_equal(d.row[2] - d.row[1], 1);
    assert_int_equal(d.pred[d.row[1]], 0);
    assert_int_equal(d.pred[d.row[3] - 1], 1);
    ech_deps_fini(&d);
    ech_program_fini(&p);
}

static void test_an_edge_is_dropped_alone(void **state)
{
    ech_program p;
    ech_deps d;
    (void)state;
    random_program(&p, 30);
    assert_ok(ech_program_place(&p, NULL));
    assert_ok(ech_deps_derive(&p, ECH_DEPS_ON_ADDRESSES, &d));
    const size_t edges = d.n_edges;
    int node = d.n - 1;
    while (d.row[node + 1] - d.row[node] < 2)
        node--;
    const int pred = d.pred[d.row[node]];
    const int kept = d.pred[d.row[node] + 1];
    const int rest = d.row[d.n] - d.row[node + 1];
    assert_true(ech_deps_drop(&d, node, pred));
    assert_false(ech_deps_drop(&d, node, pred));
    assert_int_equal(d.n_edges, edges - 1);
    assert_int_equal(d.pred[d.row[node]], kept);
    assert_int_equal(d.row[d.n] - d.row[node + 1], rest);
    assert_int_equal(d.row[d.n], edges - 1);
    ech_deps_fini(&d);
    ech_program_fini(&p);
}

/* --- messages in flight --- */

typedef struct flight {
    ech_program p;
    int x, y, staging, sum, gathered;
} flight;

static const hand_op copy_op = {.kind = ECH_OP_COPY, .request = -1};

static hand_op comm(ech_op_kind kind, int request)
{
    return (hand_op){.kind = kind, .request = request};
}

static void flight_init(flight *f)
{
    const ech_layout two = ech_layout_data_parallel(2);
    const ech_placement i = ech_placement_invariant();
    ech_program_init(&f->p, "flight", &two);
    f->x = hand_slot(&f->p, "x", true, 16, i);
    f->y = hand_slot(&f->p, "y", true, 16, i);
    f->staging = hand_slot(&f->p, "staging", true, 32, i);
    f->sum = hand_slot(&f->p, "sum", true, 16, i);
    f->gathered = hand_slot(&f->p, "gathered", true, 32, i);
}

static void reduce(flight *f, ech_op_kind kind, int request, int64_t first, int64_t elems)
{
    const ech_placement i = ech_placement_invariant();
    (void)HAND_ADD(&f->p, comm(kind, request), {f->x, first, elems, i},
                   {f->staging, 16 * (request & 1), 2 * 2 * ((elems + 1) / 2), i});
}

static void small(flight *f, ech_op_kind kind, int request)
{
    const ech_placement i = ech_placement_invariant();
    (void)HAND_ADD(&f->p, comm(kind, request), {f->x, 0, 4, i},
                   {f->gathered, 8 * (request & 1), 8, i}, {f->sum, 4 * (request & 1), 4, i});
}

/* x[0, 8) summed into this rank's half of it, which lands in y from `at`. */
static void scatter(flight *f, ech_op_kind kind, int64_t at)
{
    const ech_placement i = ech_placement_invariant();
    (void)HAND_ADD(&f->p, comm(kind, 0), {f->x, 0, 8, i}, {f->y, at, 4, i}, {f->staging, 0, 16, i});
}

/* x[0, 4) of every rank into y[4, 12). */
static void gather(flight *f, ech_op_kind kind)
{
    const ech_placement i = ech_placement_invariant();
    (void)HAND_ADD(&f->p, comm(kind, 0), {f->x, 0, 4, i}, {f->y, 4, 8, i});
}

static void copy(flight *f, int from, int64_t at, int to, int64_t at_to)
{
    const ech_placement i = ech_placement_invariant();
    (void)HAND_ADD(&f->p, copy_op, {from, at, 2, i}, {to, at_to, 2, i});
}

static void assert_order_fails(flight *f, const char *a, const char *b)
{
    ech_deps d;
    assert_ok(ech_program_place(&f->p, NULL));
    for (int on = 0; on < 2; on++) {
        assert_fails(ech_deps_derive(&f->p, (ech_deps_on)on, &d), ECH_E_PROOF, a);
        assert_non_null(strstr(ech_error_message(), b));
        assert_null(d.pred);
        assert_int_equal(d.n, 0);
    }
    ech_program_fini(&f->p);
}

static void assert_order_holds(flight *f)
{
    assert_ok(ech_program_place(&f->p, NULL));
    check_order(&f->p, ECH_DEPS_ON_SLOTS);
    check_order(&f->p, ECH_DEPS_ON_ADDRESSES);
    ech_program_fini(&f->p);
}

static void test_bytes_in_flight_are_not_read(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    copy(&f, f.x, 10, f.y, 0);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 8);
    assert_order_fails(&f,
                       "item 1 (hand-written copy), op copy touches bytes of a message in "
                       "flight",
                       "started by item 0 (hand-written all_reduce_start), op all_reduce_start");
}

static void test_bytes_in_flight_are_not_written(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    copy(&f, f.y, 0, f.x, 3);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 8);
    assert_order_fails(&f, "item 1 (hand-written copy)", "started by item 0");
}

static void test_staging_in_flight_is_not_touched(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    copy(&f, f.staging, 0, f.y, 0);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 8);
    assert_order_fails(&f, "item 1 (hand-written copy)", "started by item 0");
}

static void test_neighbours_of_bytes_in_flight_are_free(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    copy(&f, f.x, 2, f.y, 0);
    copy(&f, f.y, 0, f.x, 12);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 8);
    copy(&f, f.x, 4, f.y, 2);
    assert_order_holds(&f);
}

/* What a message only reads may be read by others, among them other messages, but not written until
 * the last of them is through. */
static void test_bytes_that_are_sent_may_be_read(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    small(&f, ECH_OP_SUM_SMALL_START, 0);
    copy(&f, f.x, 0, f.y, 0);
    small(&f, ECH_OP_SUM_SMALL_START, 1);
    small(&f, ECH_OP_SUM_SMALL_WAIT, 1);
    small(&f, ECH_OP_SUM_SMALL_WAIT, 0);
    copy(&f, f.y, 0, f.x, 0);
    assert_order_holds(&f);
}

static void test_bytes_sent_twice_are_held_by_the_first_too(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    small(&f, ECH_OP_SUM_SMALL_START, 0);
    small(&f, ECH_OP_SUM_SMALL_START, 1);
    small(&f, ECH_OP_SUM_SMALL_WAIT, 1);
    copy(&f, f.y, 0, f.x, 0);
    small(&f, ECH_OP_SUM_SMALL_WAIT, 0);
    assert_order_fails(&f, "item 3 (hand-written copy)", "started by item 0");
}

/* A share that is dealt out may land anywhere, also within what it is dealt from; what was there is
 * read until the wait, the share itself is written. */
static void test_shares_in_flight(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    scatter(&f, ECH_OP_REDUCE_SCATTER_START, 4);
    copy(&f, f.x, 2, f.sum, 0);
    copy(&f, f.y, 2, f.sum, 2);
    scatter(&f, ECH_OP_REDUCE_SCATTER_WAIT, 4);
    copy(&f, f.y, 4, f.x, 0);
    assert_order_holds(&f);
    for (int write = 0; write < 2; write++) {
        flight_init(&f);
        scatter(&f, ECH_OP_REDUCE_SCATTER_START, 4);
        copy(&f, write ? f.sum : f.y, 4, write ? f.x : f.sum, write ? 6 : 0);
        scatter(&f, ECH_OP_REDUCE_SCATTER_WAIT, 4);
        assert_order_fails(&f, "item 1 (hand-written copy)", "op reduce_scatter_start");
    }
    flight_init(&f);
    scatter(&f, ECH_OP_REDUCE_SCATTER_START, 4);
    scatter(&f, ECH_OP_REDUCE_SCATTER_WAIT, 6);
    assert_order_fails(&f, "op reduce_scatter_wait over dp waits for another message", "item 0");
}

/* In place: shares stand within the whole, each rank's at its own coordinate. */
static void test_shares_in_place(void **state)
{
    flight f;
    const ech_placement i = ech_placement_invariant();
    (void)state;
    for (int touches = 0; touches < 2; touches++) {
        flight_init(&f);
        for (int w = 0; w < 2; w++) {
            const ech_op_kind kind = w ? ECH_OP_ALL_GATHER_WAIT : ECH_OP_ALL_GATHER_START;
            const int item = HAND_ADD(&f.p, comm(kind, 0), {f.x, 0, 4, i}, {f.x, 0, 8, i});
            ech_block *b = &f.p.block[f.p.item[item].block];
            b->op[0].arg[0].shift = (ech_shift){ECH_AXIS_DP, 32};
            b->region_bytes[ECH_REGION_IN] = 64;
            if (!w)
                copy(&f, f.x, touches ? 7 : 8, f.y, 0);
        }
        if (touches)
            assert_order_fails(&f, "item 1 (hand-written copy)", "op all_gather_start");
        else
            assert_order_holds(&f);
    }
}

static void test_what_is_gathered_in_flight(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    gather(&f, ECH_OP_ALL_GATHER_START);
    copy(&f, f.x, 1, f.sum, 0);
    copy(&f, f.y, 2, f.sum, 2);
    gather(&f, ECH_OP_ALL_GATHER_WAIT);
    copy(&f, f.y, 10, f.x, 0);
    assert_order_holds(&f);
    for (int write = 0; write < 2; write++) {
        flight_init(&f);
        gather(&f, ECH_OP_ALL_GATHER_START);
        copy(&f, write ? f.sum : f.y, 10, write ? f.x : f.sum, write ? 3 : 0);
        gather(&f, ECH_OP_ALL_GATHER_WAIT);
        assert_order_fails(&f, "item 1 (hand-written copy)", "op all_gather_start");
    }
}

static void test_a_wait_needs_a_start(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 8);
    assert_order_fails(&f, "item 0 (hand-written all_reduce_wait) waits for request 0",
                       "not started");
}

static void test_a_start_needs_a_wait(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    assert_order_fails(&f, "item 0 (hand-written all_reduce_start)", "never awaited");
}

static void test_a_request_carries_one_message(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 0, 4);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 8, 4);
    assert_order_fails(&f, "item 1 (hand-written all_reduce_start)", "which is in flight");
}

static void test_a_request_is_used_again(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    for (int i = 0; i < 2; i++) {
        reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4 * i, 4);
        reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4 * i, 4);
    }
    assert_order_holds(&f);
}

static void test_a_wait_stands_for_what_was_started(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 6);
    assert_order_fails(&f, "waits for another message", "item 0 (hand-written all_reduce_start)");
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    scatter(&f, ECH_OP_REDUCE_SCATTER_WAIT, 4);
    assert_order_fails(&f, "op reduce_scatter_wait over dp waits for another message",
                       "op all_reduce_start");
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    reduce(&f, ECH_OP_ALL_REDUCE_WAIT, 0, 4, 8);
    f.p.block[1].op[0].axis = ECH_AXIS_TP;
    assert_order_fails(&f, "over tp waits for another message", "over dp");
}

static void test_communication_needs_a_request(void **state)
{
    flight f;
    (void)state;
    flight_init(&f);
    reduce(&f, ECH_OP_ALL_REDUCE_START, 0, 4, 8);
    f.p.item[0].request = -1;
    assert_order_fails(&f, "communicates without a request", "item 0");
}

/* A transient whose message is still in flight when its life ends. */
static void test_a_life_outlasts_its_messages(void **state)
{
    ech_program p;
    ech_deps d;
    const ech_layout two = ech_layout_data_parallel(2);
    const ech_placement i = ech_placement_invariant();
    (void)state;
    ech_program_init(&p, "short", &two);
    const int s = hand_slot(&p, "staging", true, 8, i);
    const int t = hand_slot(&p, "t", false, 4, i);
    (void)HAND_ADD(&p, comm(ECH_OP_ALL_REDUCE_START, 0), {t, 0, 4, i}, {s, 0, 8, i});
    (void)HAND_ADD(&p, comm(ECH_OP_ALL_REDUCE_WAIT, 0), {t, 0, 4, i}, {s, 0, 8, i});
    assert_ok(ech_program_place(&p, NULL));
    assert_ok(ech_deps_derive(&p, ECH_DEPS_ON_ADDRESSES, &d));
    ech_deps_fini(&d);
    p.slot[t].last = 0;
    assert_fails(ech_deps_derive(&p, ECH_DEPS_ON_ADDRESSES, &d), ECH_E_PROOF,
                 "end of 't' touches bytes of a message in flight");
    ech_program_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_reuse_orders_strangers),
        cmocka_unit_test(test_compiled_programs),
        cmocka_unit_test(test_compiled_programs_of_many_ranks),
        cmocka_unit_test(test_extents_are_read),
        cmocka_unit_test(test_an_edge_is_dropped_alone),
        cmocka_unit_test(test_bytes_in_flight_are_not_read),
        cmocka_unit_test(test_bytes_in_flight_are_not_written),
        cmocka_unit_test(test_staging_in_flight_is_not_touched),
        cmocka_unit_test(test_neighbours_of_bytes_in_flight_are_free),
        cmocka_unit_test(test_bytes_that_are_sent_may_be_read),
        cmocka_unit_test(test_bytes_sent_twice_are_held_by_the_first_too),
        cmocka_unit_test(test_shares_in_flight),
        cmocka_unit_test(test_shares_in_place),
        cmocka_unit_test(test_what_is_gathered_in_flight),
        cmocka_unit_test(test_a_wait_needs_a_start),
        cmocka_unit_test(test_a_start_needs_a_wait),
        cmocka_unit_test(test_a_request_carries_one_message),
        cmocka_unit_test(test_a_request_is_used_again),
        cmocka_unit_test(test_a_wait_stands_for_what_was_started),
        cmocka_unit_test(test_communication_needs_a_request),
        cmocka_unit_test(test_a_life_outlasts_its_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
