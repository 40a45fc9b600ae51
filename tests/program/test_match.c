/* RUN: np=1 timeout=20 tags=fast */
/* Matching and progress of programs written by hand: each fault is refused in the right words. */
#include "check.h"
#include "hand.h"
#include "tiny.h"
#include "base/clock.h"
#include "program/match.h"
#include "program/op_signature.h"
#include "program/prove_mesh.h"

#include <stdlib.h>

/* CPU seconds that the largest programs may take; sanitizers take several times as long. */
#ifdef __SANITIZE_ADDRESS__
#define MOST_SECONDS 3.0
#else
#define MOST_SECONDS 0.5
#endif

enum { MOST_CLASSES = 16, MOST_RANKS = 4096 };

/* A run: programs of its classes, and the class of each rank. */
typedef struct run {
    ech_layout layout;
    ech_program program[MOST_CLASSES];
    const ech_program *borrowed[MOST_CLASSES];
    int n;
    int class_of[MOST_RANKS];
    ech_match_count count;
} run;

/* A communication op in short: elements are those of one rank's share. */
typedef struct say {
    ech_op_kind kind;
    ech_axis axis;
    int request;
    int64_t elems;
    ech_expr peer;
    bool is_narrow; /* fp32, not fp64 */
} say;

static ech_layout mesh(int tp, int dp, int pp)
{
    ech_layout l;
    const ech_layout_spec spec = {.tp = tp, .cp = 1, .pp = pp, .dp = dp, .kv_share = 1};
    assert_ok(ech_layout_make(&spec, &l));
    return l;
}

/* Programs for classes [0, n); every rank's class is its coordinate along `axis`. */
static run *run_make(const ech_layout *l, int n, ech_axis axis)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->layout = *l;
    r->n = n;
    for (int c = 0; c < n; c++) {
        char name[24];
        (void)snprintf(name, sizeof name, "class %d", c);
        ech_program_init(&r->program[c], name, l);
        r->borrowed[c] = &r->program[c];
    }
    for (int k = 0; k < l->world && n > 1; k++) {
        int64_t coord[ECH_N_AXES];
        ech_layout_coords(l, k, coord);
        r->class_of[k] = (int)coord[axis];
    }
    return r;
}

static void run_free(run *r)
{
    for (int c = 0; c < r->n; c++)
        ech_program_fini(&r->program[c]);
    free(r);
}

static ech_status check(run *r, ech_match_how how)
{
    const ech_match_spec spec = {.layout = &r->layout,
                                 .program = r->borrowed,
                                 .n_classes = r->n,
                                 .class_of = r->n > 1 ? r->class_of : NULL};
    return ech_match_check(&spec, how, &r->count);
}

/* Elements of argument i of a kind, for shares of n in a group of g. */
static int64_t elems_of(const say *s, int arg, int g)
{
    switch (s->kind) {
    case ECH_OP_REDUCE_SCATTER_START:
    case ECH_OP_REDUCE_SCATTER_WAIT:
        return arg == 0 ? s->elems * g : s->elems;
    case ECH_OP_ALL_GATHER_START:
    case ECH_OP_ALL_GATHER_WAIT:
    case ECH_OP_SUM_SMALL_START:
    case ECH_OP_SUM_SMALL_WAIT:
        return arg == 1 ? s->elems * g : s->elems;
    default:
        return s->elems;
    }
}

static ech_op op_of(const ech_program *p, const say *s)
{
    const ech_signature sig = ech_signature_read(s->kind);
    ech_op op = {.kind = s->kind, .n_args = sig.n, .axis = s->axis, .request = s->request};
    op.attr[0] = s->peer;
    for (int i = 0; i < sig.n; i++)
        op.arg[i] =
            (ech_operand){.region = ECH_REGION_OUT,
                          .access = sig.arg[i].access,
                          .dtype = s->is_narrow ? ECH_F32 : ECH_F64,
                          .rank = 1,
                          .dim = {{elems_of(s, i, p->layout.degree[s->axis]), ECH_EXTENT_BOUND}},
                          .place = ech_placement_invariant()};
    return op;
}

/* One item of n ops.  Only communication is looked at: no memory is bound. */
static void add(ech_program *p, const char *name, int n, const say *s)
{
    ech_block b = {.role = ECH_ROLE_TRANSFER};
    int id;
    (void)snprintf(b.name, sizeof b.name, "%s", name);
    for (int i = 0; i < n; i++) {
        assert_ok(ech_grow(&b.op, (size_t)b.n_ops, &b.capacity, sizeof *b.op));
        b.op[b.n_ops++] = op_of(p, &s[i]);
    }
    assert_ok(ech_program_add_block(p, &b, &id));
    ech_item item = ech_item_make(id, ECH_SEGMENT_ACCUMULATE);
    item.request = 0;
    assert_ok(ech_program_add_item(p, &item));
}

#define ADD(p, name, ...)                                                                          \
    add((p), (name), (int)(sizeof((say[]){__VA_ARGS__}) / sizeof(say)), (say[]){__VA_ARGS__})

static say reduce(ech_axis axis, int request, int64_t elems)
{
    return (say){.kind = ECH_OP_ALL_REDUCE_START, .axis = axis, .request = request, .elems = elems};
}

static say send(ech_axis axis, int request, int64_t elems, ech_expr peer)
{
    return (say){ECH_OP_SEND_START, axis, request, elems, peer, false};
}

static say recv(ech_axis axis, int request, int64_t elems, ech_expr peer)
{
    return (say){ECH_OP_RECV_START, axis, request, elems, peer, false};
}

/* The wait of a start. */
static say wait_for(say s)
{
    s.kind = s.kind == ECH_OP_ALL_REDUCE_START       ? ECH_OP_ALL_REDUCE_WAIT
             : s.kind == ECH_OP_REDUCE_SCATTER_START ? ECH_OP_REDUCE_SCATTER_WAIT
             : s.kind == ECH_OP_ALL_GATHER_START     ? ECH_OP_ALL_GATHER_WAIT
             : s.kind == ECH_OP_SUM_SMALL_START      ? ECH_OP_SUM_SMALL_WAIT
             : s.kind == ECH_OP_SEND_START           ? ECH_OP_SEND_WAIT
                                                     : ECH_OP_RECV_WAIT;
    return s;
}

static void add_pair(ech_program *p, const char *name, say s)
{
    ADD(p, name, s);
    ADD(p, name, wait_for(s));
}

static void assert_both_pass(run *r)
{
    assert_ok(check(r, ECH_MATCH_RENDEZVOUS));
    assert_ok(check(r, ECH_MATCH_SERIAL));
}

/* --- collectives --- */

static void test_one_class_is_followed_once(void **state)
{
    const ech_layout l = mesh(4, 3, 1);
    run *r = run_make(&l, 1, ECH_AXIS_PP);
    const say gather = {ECH_OP_ALL_GATHER_START, ECH_AXIS_TP, 1, 5, {0}, false};
    const say scatter = {ECH_OP_REDUCE_SCATTER_START, ECH_AXIS_DP, 2, 7, {0}, false};
    const say small = {ECH_OP_SUM_SMALL_START, ECH_AXIS_WORLD, 1, 2, {0}, true};
    (void)state;
    ADD(&r->program[0], "two at once", reduce(ECH_AXIS_DP, 0, 9), gather);
    ADD(&r->program[0], "their waits", wait_for(gather), wait_for(reduce(ECH_AXIS_DP, 0, 9)));
    ADD(&r->program[0], "others", scatter, small, wait_for(small), wait_for(scatter));
    assert_both_pass(r);
    assert_int_equal(r->count.followed, 1);
    assert_int_equal(r->count.collectives, 4);
    assert_int_equal(r->count.messages, 0);
    assert_int_equal(r->count.ops, 8);
    run_free(r);
}

static void test_a_start_that_one_class_lacks(void **state)
{
    const ech_layout l = mesh(2, 2, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    (void)state;
    for (int c = 0; c < 2; c++)
        add_pair(&r->program[c], "loss", reduce(ECH_AXIS_WORLD, 0, 2));
    assert_both_pass(r);
    assert_int_equal(r->count.followed, 2);
    add_pair(&r->program[1], "norm", reduce(ECH_AXIS_WORLD, 0, 2));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "every rank like rank 4 (tp 0, dp 0, pp 1) waits in item 3 (norm), op "
                 "all_reduce_wait over world: every rank like rank 0 (tp 0, dp 0, pp 0) never "
                 "starts a second collective over world; it has come to its end");
    assert_fails(check(r, ECH_MATCH_SERIAL), ECH_E_PROOF, "waits in item 2 (norm)");
    run_free(r);
}

/* Classes 0 and 1 of pp; the same two sums, over the world and over pp, in either order. */
static run *crossing(bool waits_at_once)
{
    const ech_layout l = mesh(1, 2, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    const say a = reduce(ECH_AXIS_WORLD, 0, 3);
    const say b = reduce(ECH_AXIS_PP, 1, 3);
    for (int c = 0; c < 2; c++) {
        const say first = c ? b : a;
        const say second = c ? a : b;
        ADD(&r->program[c], "first", first);
        if (waits_at_once)
            ADD(&r->program[c], "first wait", wait_for(first));
        ADD(&r->program[c], "second", second);
        if (!waits_at_once)
            ADD(&r->program[c], "first wait", wait_for(first));
        ADD(&r->program[c], "second wait", wait_for(second));
    }
    return r;
}

static void test_two_axes_cross(void **state)
{
    run *r = crossing(true);
    (void)state;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "every rank like rank 0 (dp 0, pp 0) waits in item 1 (first wait), op "
                 "all_reduce_wait over world: every rank like rank 2 (dp 0, pp 1) never starts a "
                 "first collective over world; it stands in item 1 (first wait), op "
                 "all_reduce_wait over pp");
    run_free(r);
}

static void test_a_deadlock_of_one_queue_only(void **state)
{
    run *r = crossing(false);
    (void)state;
    assert_ok(check(r, ECH_MATCH_RENDEZVOUS));
    assert_fails(check(r, ECH_MATCH_SERIAL), ECH_E_PROOF,
                 "with the communication of a rank one after the other, every rank like rank 0 "
                 "(dp 0, pp 0) waits in item 0 (first), op all_reduce_start over world");
    run_free(r);
}

static void refuse_pair(say a, say b, const char *words)
{
    const ech_layout l = mesh(2, 1, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    add_pair(&r->program[0], "a", a);
    add_pair(&r->program[1], "b", b);
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, words);
    run_free(r);
}

static void test_collectives_that_differ(void **state)
{
    const say sum = reduce(ECH_AXIS_PP, 0, 6);
    say narrow = sum;
    say scatter = sum;
    (void)state;
    narrow.is_narrow = true;
    scatter.kind = ECH_OP_REDUCE_SCATTER_START;
    refuse_pair(
        sum, reduce(ECH_AXIS_PP, 0, 7),
        "the first collective over pp is all_reduce_start of 7 fp64 for every rank like rank 2");
    refuse_pair(sum, reduce(ECH_AXIS_PP, 0, 7),
                "but all_reduce_start of 6 fp64 for every rank like rank 0");
    refuse_pair(sum, narrow, "all_reduce_start of 6 fp32 for every rank like rank 2");
    refuse_pair(sum, scatter, "reduce_scatter_start of 12 fp64 for every rank like rank 2");
}

static void test_shares_are_one_a_member(void **state)
{
    const ech_layout l = mesh(2, 3, 1);
    run *r = run_make(&l, 1, ECH_AXIS_PP);
    const say gather = {ECH_OP_ALL_GATHER_START, ECH_AXIS_TP, 0, 6, {0}, false};
    (void)state;
    add_pair(&r->program[0], "gather", gather);
    assert_both_pass(r);
    r->program[0].block[0].op[0].axis = r->program[0].block[1].op[0].axis = ECH_AXIS_DP;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "12 elements are not a share of 6 from each of 3 ranks");
    run_free(r);
}

/* --- requests --- */

static void test_requests_are_used_again(void **state)
{
    const ech_layout l = mesh(2, 1, 1);
    run *r = run_make(&l, 1, ECH_AXIS_PP);
    (void)state;
    for (int i = 0; i < 3; i++)
        add_pair(&r->program[0], "again", reduce(ECH_AXIS_TP, 4, 6));
    assert_both_pass(r);
    ADD(&r->program[0], "one more", reduce(ECH_AXIS_TP, 4, 6));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "every rank, item 6 (one more), op all_reduce_start over tp: the message is never "
                 "awaited");
    ADD(&r->program[0], "too early", reduce(ECH_AXIS_TP, 4, 6));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "item 7 (too early), op all_reduce_start over tp: its request is in flight");
    run_free(r);
}

static void test_waits_that_are_no_starts_own(void **state)
{
    const ech_layout l = mesh(2, 2, 1);
    run *r = run_make(&l, 1, ECH_AXIS_PP);
    (void)state;
    ADD(&r->program[0], "wait", wait_for(reduce(ECH_AXIS_TP, 0, 6)));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "that was not started");
    run_free(r);

    r = run_make(&l, 1, ECH_AXIS_PP);
    ADD(&r->program[0], "start", reduce(ECH_AXIS_TP, 0, 6));
    ADD(&r->program[0], "wait", wait_for(reduce(ECH_AXIS_DP, 0, 6)));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "its request is another message's");
    run_free(r);

    r = run_make(&l, 1, ECH_AXIS_PP);
    add_pair(&r->program[0], "sum", reduce(ECH_AXIS_TP, 0, 6));
    r->program[0].item[1].segment = ECH_SEGMENT_COMMIT;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "which may be skipped");
    r->program[0].item[0].segment = ECH_SEGMENT_COMMIT;
    assert_both_pass(r);
    r->program[0].item[0].request = -1;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "communicates without a request");
    run_free(r);
}

/* --- messages between pairs --- */

static void test_a_send_that_nobody_receives(void **state)
{
    const ech_layout l = mesh(1, 1, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    const say to = send(ECH_AXIS_PP, 0, 8, ech_expr_const(1));
    const say from = recv(ECH_AXIS_PP, 0, 8, ech_expr_const(0));
    (void)state;
    add_pair(&r->program[0], "send", to);
    add_pair(&r->program[1], "receive", from);
    assert_both_pass(r);
    assert_int_equal(r->count.messages, 2);
    add_pair(&r->program[0], "send again", to);
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "rank 0 (pp 0) waits in item 3 (send again), op send_wait over pp: rank 1 (pp 1) "
                 "never receives a second message over pp with it; it has come to its end");
    run_free(r);
}

static void test_messages_match_in_order(void **state)
{
    const ech_layout l = mesh(1, 1, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    (void)state;
    ADD(&r->program[0], "send", send(ECH_AXIS_PP, 0, 8, ech_expr_const(1)),
        send(ECH_AXIS_PP, 1, 9, ech_expr_const(1)));
    ADD(&r->program[1], "receive", recv(ECH_AXIS_PP, 0, 9, ech_expr_const(0)),
        recv(ECH_AXIS_PP, 1, 8, ech_expr_const(0)));
    for (int c = 0; c < 2; c++)
        for (int q = 0; q < 2; q++)
            ADD(&r->program[c], "wait",
                wait_for(c ? recv(ECH_AXIS_PP, q, q ? 8 : 9, ech_expr_const(0))
                           : send(ECH_AXIS_PP, q, q ? 9 : 8, ech_expr_const(1))));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "send_start of 8 fp64 of rank 0 (pp 0) (item 0 (send), op send_start over pp) "
                 "meets recv_start of 9 fp64 of rank 1 (pp 1)");
    r->program[1].block[0].op[0].request = 1; /* the same two messages, received in order */
    r->program[1].block[0].op[1].request = 0;
    r->program[1].block[0].op[0].arg[0].dim[0].bound = 8;
    r->program[1].block[0].op[1].arg[0].dim[0].bound = 9;
    assert_both_pass(r);
    r->program[1].block[0].op[0].arg[0].dtype = ECH_I64; /* as many bytes of another type */
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "recv_start of 8 int64");
    run_free(r);
}

static void test_a_peer_outside_the_group(void **state)
{
    const ech_layout l = mesh(1, 1, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    (void)state;
    add_pair(&r->program[0], "send", send(ECH_AXIS_PP, 0, 8, ech_expr_const(2)));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "peer 2 of 2 is no other member of the group");
    r->program[0].block[0].op[0].attr[0] = ech_expr_const(0);
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "peer 0 of 2 is no other member of the group");
    run_free(r);
}

static ech_layout tied_mesh(void)
{
    ech_layout l;
    const ech_layout_spec spec = {
        .tp = 2, .cp = 1, .pp = 3, .dp = 1, .kv_share = 1, .tied = {0, 2}};
    assert_ok(ech_layout_make(&spec, &l));
    return l;
}

/* The first and the last of three stages sum their tables; the one between has no group there, and
 * all must be of one mind about who is tied. */
static void test_tied_stages_meet(void **state)
{
    const ech_layout l = tied_mesh();
    run *r = run_make(&l, 3, ECH_AXIS_PP);
    (void)state;
    add_pair(&r->program[0], "tie", reduce(ECH_AXIS_TIED, 0, 8));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "rank 4 (tp 0, pp 2) never starts a first collective over tied");
    add_pair(&r->program[2], "tie", reduce(ECH_AXIS_TIED, 0, 8));
    assert_ok(check(r, ECH_MATCH_RENDEZVOUS));
    assert_ok(check(r, ECH_MATCH_SERIAL));
    assert_int_equal(r->count.collectives, 2);
    add_pair(&r->program[1], "tie", reduce(ECH_AXIS_TIED, 0, 8));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "it is in no group there");
    run_free(r);
    r = run_make(&l, 3, ECH_AXIS_PP);
    add_pair(&r->program[1], "send", send(ECH_AXIS_TIED, 0, 8, ech_expr_const(1)));
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "peer 1 of 1 is no other member of the group");
    r->program[1].layout.tied[1] = 1;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "is of another layout");
    r->layout.tied[1] = 0;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "degree 2 over tied, with pipeline ranks 0 and 0");
    r->layout.tied[1] = 3;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "pipeline ranks 0 and 3 are tied, there are 3");
    run_free(r);
}

/* (coordinate + step) mod n, of a ring. */
static ech_expr around(ech_axis axis, int step, int n)
{
    const ech_expr next =
        ech_expr_binary(ECH_EXPR_ADD, ech_expr_coord(axis), ech_expr_const((int64_t)step));
    return ech_expr_binary(ECH_EXPR_MOD, next, ech_expr_const(n));
}

/* Every rank sends to the next of a ring of n and receives from `from` further on. */
static run *ring(int n, int from, bool is_one_block)
{
    const ech_layout l = mesh(n, 5, 1);
    run *r = run_make(&l, 1, ECH_AXIS_PP);
    const say out = send(ECH_AXIS_TP, 0, 8, around(ECH_AXIS_TP, 1, n));
    const say in = recv(ECH_AXIS_TP, 1, 8, around(ECH_AXIS_TP, from, n));
    if (is_one_block) {
        ADD(&r->program[0], "hop", out, in);
        ADD(&r->program[0], "wait", wait_for(in), wait_for(out));
    } else {
        ADD(&r->program[0], "out", out);
        ADD(&r->program[0], "work", (say){.kind = ECH_OP_ZERO, .elems = 1}); /* parts the group */
        ADD(&r->program[0], "in", in);
        ADD(&r->program[0], "wait", wait_for(in), wait_for(out));
    }
    return r;
}

static void test_a_ring_is_followed_along_its_axis(void **state)
{
    run *r = ring(3, 2, true);
    (void)state;
    assert_both_pass(r);
    assert_int_equal(r->count.followed, 3); /* of 15 */
    run_free(r);
    r = ring(3, 2, false); /* posted one after the other, all wait for the next one's receive */
    assert_ok(check(r, ECH_MATCH_RENDEZVOUS));
    assert_fails(check(r, ECH_MATCH_SERIAL), ECH_E_PROOF,
                 "every rank like rank 0 (tp 0, dp 0) waits in item 0 (out), op send_start over "
                 "tp: every rank like rank 1 (tp 1, dp 0) never receives a first message over tp "
                 "with it");
    run_free(r);
    r = ring(3, 1, true); /* receives from whom it sends to */
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "never sends a first message");
    run_free(r);
    r = ring(2, 1, true); /* of two that is the same */
    assert_both_pass(r);
    run_free(r);
}

/* --- pipelines --- */

enum { FORWARD = 64, BACKWARD = 65 }; /* elements of a message */

/* What stage s of p does for its neighbours in one slot: receive and send, posted together. */
static void hop(ech_program *p, bool sends, say out, bool receives, say in)
{
    if (sends && receives)
        ADD(p, "hop", out, in);
    else if (sends || receives)
        ADD(p, "hop", sends ? out : in);
    if (receives)
        ADD(p, "hop wait", wait_for(in));
    if (sends)
        ADD(p, "hop wait", wait_for(out));
}

/* One forward, one backward (Narayanan et al. 2019): stage s of p, m micro-batches; is_fused: what
 * goes forward and what comes back is posted together. */
static void stage(ech_program *p, int s, int n, int m, bool is_fused)
{
    const bool first = s == 0;
    const bool last = s == n - 1;
    const int warm = n - 1 - s < m ? n - 1 - s : m;
    const say down = send(ECH_AXIS_PP, 0, FORWARD, ech_expr_const(s + 1));
    const say from_up = recv(ECH_AXIS_PP, 1, FORWARD, ech_expr_const(s - 1));
    const say up = send(ECH_AXIS_PP, 2, BACKWARD, ech_expr_const(s - 1));
    const say from_down = recv(ECH_AXIS_PP, 3, BACKWARD, ech_expr_const(s + 1));
    for (int i = 0; i < warm; i++) {
        hop(p, false, down, !first, from_up);
        hop(p, !last, down, false, from_up);
    }
    if (warm < m)
        hop(p, false, down, !first, from_up);
    for (int i = 0; i < m - warm; i++) {
        const bool more = i < m - warm - 1;
        if (is_fused) {
            hop(p, !last, down, !last, from_down);
            hop(p, !first, up, more && !first, from_up);
            continue;
        }
        hop(p, !last, down, false, from_down);
        hop(p, false, down, !last, from_down);
        hop(p, !first, up, false, from_up);
        hop(p, false, up, more && !first, from_up);
    }
    for (int i = 0; i < warm; i++) {
        hop(p, false, up, !last, from_down);
        hop(p, !first, up, false, from_down);
    }
    add_pair(p, "norm", reduce(ECH_AXIS_WORLD, 0, 1));
}

static run *pipeline(int n, int m, bool is_fused)
{
    const ech_layout l = mesh(4, 8, n);
    run *r = run_make(&l, n, ECH_AXIS_PP);
    for (int s = 0; s < n; s++)
        stage(&r->program[s], s, n, m, is_fused);
    return r;
}

static void test_a_pipeline_is_followed_stage_by_stage(void **state)
{
    static const int stages[] = {2, 3, 5, 8};
    static const int micros[] = {1, 2, 3, 7, 20};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            run *r = pipeline(stages[i], micros[k], true);
            assert_both_pass(r);
            assert_int_equal(r->count.followed, stages[i]);
            assert_int_equal(r->count.messages, 4 * (stages[i] - 1) * micros[k]);
            run_free(r);
        }
    run *r = pipeline(4, 8, false); /* a send of activations meets a send of gradients */
    assert_fails(check(r, ECH_MATCH_SERIAL), ECH_E_PROOF, "op send_start over pp");
    run_free(r);
}

/* --- symmetry, sizes --- */

static void test_classes_and_layouts_must_fit(void **state)
{
    const ech_layout l = mesh(1, 2, 2);
    const ech_layout other = mesh(2, 1, 2);
    run *r = run_make(&l, 2, ECH_AXIS_PP);
    (void)state;
    assert_both_pass(r); /* nothing to do */
    r->class_of[3] = 2;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "rank 3 is of class 2 of 2");
    r->class_of[3] = 0; /* now along dp too */
    assert_ok(check(r, ECH_MATCH_RENDEZVOUS));
    assert_int_equal(r->count.followed, 4);
    r->program[1].layout = other;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF,
                 "program 'class 1' of class 1 is of another layout");
    r->program[1].layout = l;
    r->layout.degree[ECH_AXIS_DP] = 3;
    assert_fails(check(r, ECH_MATCH_RENDEZVOUS), ECH_E_PROOF, "multiply to 6 ranks");
    run_free(r);
}

/* Random collectives of two classes: followed by class, the verdict is that of all ranks. */
static void random_program(ech_program *p, uint32_t *seed)
{
    static const ech_axis axes[] = {ECH_AXIS_TP, ECH_AXIS_DP, ECH_AXIS_PP, ECH_AXIS_WORLD};
    say open[3];
    int n = 0;
    for (int i = 0; i < 8; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        if (n == 3 || (n > 0 && *seed >> 30 == 0)) {
            ADD(p, "wait", wait_for(open[0]));
            open[0] = open[--n];
        } else {
            int id = 0;
            for (int k = 0; k < n; k++)
                id += 1 << open[k].request;
            const int request = id & 1 ? id & 2 ? 2 : 1 : 0;
            open[n++] = reduce(axes[*seed >> 20 & 3], request, 4);
            ADD(p, "start", open[n - 1]);
        }
    }
    while (n > 0)
        ADD(p, "wait", wait_for(open[--n]));
}

static void test_the_quotient_decides_like_all_ranks(void **state)
{
    const ech_layout l = mesh(2, 2, 2);
    int passed[2] = {0};
    (void)state;
    for (uint32_t seed = 0; seed < 400; seed++) {
        run *two = run_make(&l, 2, ECH_AXIS_PP);
        run *all = run_make(&l, 8, ECH_AXIS_WORLD);
        for (int c = 0; c < 8; c++) {
            uint32_t s = seed * 2 + (c >= 4 && seed % 4); /* every fourth: both classes alike */
            random_program(&all->program[c], &s);
            s = seed * 2 + (c >= 4 && seed % 4);
            if (c % 4 == 0)
                random_program(&two->program[c / 4], &s);
        }
        for (int how = 0; how < 2; how++) {
            const ech_status a = check(two, (ech_match_how)how);
            const ech_status b = check(all, (ech_match_how)how);
            assert_int_equal(a, b);
            assert_int_equal(two->count.followed, 2);
            assert_int_equal(all->count.followed, 8);
            passed[how] += a == ECH_OK;
        }
        run_free(two);
        run_free(all);
    }
    (void)printf("of 400, %d pass by rendezvous, %d in one queue\n", passed[0], passed[1]);
    assert_true(passed[0] >= 100 && passed[0] < 400 && passed[1] >= 100 && passed[1] <= passed[0]);
}

/* The proof's own arithmetic against the layout's, which communication uses. */
static void test_groups_are_the_layouts(void **state)
{
    static const ech_axis orders[][4] = {
        {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP, ECH_AXIS_PP},
        {ECH_AXIS_PP, ECH_AXIS_DP, ECH_AXIS_CP, ECH_AXIS_TP},
        {ECH_AXIS_CP, ECH_AXIS_TP, ECH_AXIS_PP, ECH_AXIS_DP},
    };
    (void)state;
    for (int k = 0; k < 9; k++) {
        static const int tied[][2] = {{0, 2}, {2, 1}, {1, 1}};
        ech_layout l;
        ech_mesh m;
        int members[MOST_RANKS];
        ech_layout_spec spec = {
            .tp = 4, .cp = 3, .pp = 3, .dp = 6, .shard_group = 3, .kv_share = 2};
        memcpy(spec.tied, tied[k / 3], sizeof spec.tied);
        memcpy(spec.order, orders[k % 3], sizeof spec.order);
        assert_ok(ech_layout_make(&spec, &l));
        assert_ok(ech_mesh_make(&l, &m));
        for (int rank = 0; rank < l.world; rank++) {
            int64_t theirs[ECH_N_AXES];
            int64_t ours[ECH_N_AXES];
            ech_layout_coords(&l, rank, theirs);
            ech_mesh_coords(&m, rank, ours);
            assert_memory_equal(theirs, ours, sizeof ours);
            for (int a = 0; a < ECH_N_AXES; a++) {
                const int size = ech_layout_group_size(&l, rank, (ech_axis)a);
                (void)ech_layout_group(&l, rank, (ech_axis)a, members);
                assert_int_equal(ech_mesh_size(&m, rank, (ech_axis)a), size);
                for (int i = 0; i < size; i++)
                    assert_int_equal(ech_mesh_member(&m, rank, (ech_axis)a, i), members[i]);
            }
        }
    }
}

/* Attributes against ech_expr_eval, and such as no generator makes. */
static void test_attributes(void **state)
{
    const int64_t coord[ECH_N_AXES] = {[ECH_AXIS_TP] = 3, [ECH_AXIS_DP] = 2};
    const ech_expr good = ech_expr_binary(
        ECH_EXPR_ADD, ech_expr_binary(ECH_EXPR_MUL, ech_expr_const(7), ech_expr_coord(ECH_AXIS_TP)),
        ech_expr_binary(ECH_EXPR_MOD, ech_expr_micro(), ech_expr_const(4)));
    ech_expr bad = good;
    int64_t x;
    (void)state;
    assert_ok(ech_mesh_eval(&good, coord, 6, &x));
    assert_int_equal(x, 23);
    assert_int_equal(x, ech_expr_eval(&good, coord, 6));
    bad.n = 2;
    assert_fails(ech_mesh_eval(&bad, coord, 6, &x), ECH_E_PROOF, "leaves 2 values");
    bad.node[1].op = ECH_EXPR_ADD;
    assert_fails(ech_mesh_eval(&bad, coord, 6, &x), ECH_E_PROOF, "lacks operands");
    bad = good;
    bad.node[0].value = INT64_MAX;
    assert_fails(ech_mesh_eval(&bad, coord, 6, &x), ECH_E_ILLEGAL, "");
    bad = good;
    bad.node[4].value = 0;
    assert_fails(ech_mesh_eval(&bad, coord, 6, &x), ECH_E_PROOF, "divides 6 by 0");
    bad = good;
    bad.node[1].value = ECH_N_AXES;
    assert_fails(ech_mesh_eval(&bad, coord, 6, &x), ECH_E_PROOF, "names axis");
}

/* 16 stages of 512 ranks each, 200 thousand starts and waits, both ways. */
static void test_time(void **state)
{
    run *r = pipeline(16, 900, true);
    int64_t items = 0;
    (void)state;
    for (int c = 0; c < r->n; c++)
        items += r->program[c].n_items;
    const double t0 = ech_clock_cpu_s();
    assert_both_pass(r);
    const double seconds = ech_clock_cpu_s() - t0;
    (void)printf("%lld items, %lld ops, both ways: %.3f s\n", (long long)items,
                 (long long)r->count.ops, seconds);
    assert_true(r->count.ops > 100000);
    assert_true(seconds < MOST_SECONDS);
    run_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_class_is_followed_once),
        cmocka_unit_test(test_a_start_that_one_class_lacks),
        cmocka_unit_test(test_two_axes_cross),
        cmocka_unit_test(test_a_deadlock_of_one_queue_only),
        cmocka_unit_test(test_collectives_that_differ),
        cmocka_unit_test(test_shares_are_one_a_member),
        cmocka_unit_test(test_requests_are_used_again),
        cmocka_unit_test(test_waits_that_are_no_starts_own),
        cmocka_unit_test(test_a_send_that_nobody_receives),
        cmocka_unit_test(test_messages_match_in_order),
        cmocka_unit_test(test_a_peer_outside_the_group),
        cmocka_unit_test(test_tied_stages_meet),
        cmocka_unit_test(test_a_ring_is_followed_along_its_axis),
        cmocka_unit_test(test_a_pipeline_is_followed_stage_by_stage),
        cmocka_unit_test(test_classes_and_layouts_must_fit),
        cmocka_unit_test(test_the_quotient_decides_like_all_ranks),
        cmocka_unit_test(test_groups_are_the_layouts),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
