/* RUN: np=1 timeout=120 tags=fast */
/* Who waits for whom: a rank is held at one op after the other while the others run on until they
 * cannot; from wherever it is asked, the explanation comes to that rank. */
#include "check.h"
#include "engine/explain.h"
#include "folder.h"
#include "tiny.h"

#include <stdlib.h>

enum { TP = 2, WORLD = 4 };

/* --- a real step, held --- */

typedef struct held_run {
    tiny_run run;
    ech_flight *flight;
} held_run;

/* Two tp groups: data parallel to each other, or one pipeline rank each. */
typedef enum shape { TP_DP, TP_PP, N_SHAPES } shape;

static void start(void **state, shape form, held_run *h)
{
    static const int ranks[] = {0, 1, 2, 3};
    tiny_spec spec = tiny_spec_default();
    const ech_flight_spec flight = {
        .dir = *state, .host = "here", .rank = ranks, .n = WORLD, .world = WORLD, .run = 1};
    spec.tp = TP;
    spec.dp = form == TP_DP ? WORLD / TP : 1;
    spec.pp = form == TP_PP ? WORLD / TP : 1;
    spec.accumulation = form == TP_PP ? 3 : 2;
    tiny_start(&spec, &h->run);
    assert_ok(ech_flight_create(&flight));
    assert_ok(ech_flight_open(&flight, &h->flight));
    ech_session_set_flight(h->run.session, h->flight);
    tiny_feed(&h->run, 0, NULL, NULL);
}

static void stop(held_run *h)
{
    tiny_stop(&h->run);
    ech_flight_close(&h->flight);
}

static ech_engine *engine_of(held_run *h, int rank)
{
    return h->run.session->local[rank].engine;
}

/* All ranks but one (-1: all) as far as they come. */
static void run_others(held_run *h, int held)
{
    int64_t before = -1;
    int64_t now = 0;
    while (now != before) {
        before = now;
        now = 0;
        for (int r = 0; r < WORLD; r++) {
            if (r != held && !ech_engine_has_ended(engine_of(h, r)))
                assert_true(ech_engine_advance(engine_of(h, r)) >= 0);
            now += ech_engine_activity(engine_of(h, r));
        }
    }
}

/* The held rank's next op; the others help where it is a wait. */
static void run_one(held_run *h, int rank, int item, int op)
{
    for (;;) {
        const ech_status st = ech_engine_run_op(engine_of(h, rank), item, op, -1);
        assert_true(st >= 0);
        if (st != ECH_BLOCKED)
            return;
        run_others(h, rank);
    }
}

static const ech_program *program_of(void *user, int rank, int which)
{
    const ech_session *s = user;
    return which == 0 ? &ech_run_of(&s->train, rank)->program : NULL;
}

/* Ranks of a message over an axis, by this test's own arithmetic: tp innermost, then dp or pp. */
static bool share_group(ech_axis axis, int a, int b)
{
    return axis == ECH_AXIS_TP                          ? a / TP == b / TP
           : axis == ECH_AXIS_DP || axis == ECH_AXIS_PP ? a % TP == b % TP
                                                        : axis == ECH_AXIS_WORLD;
}

static void check_held(held_run *h, int held, bool is_stopped)
{
    char life[WORLD] = {'R', 'S', 'R', 'S'};
    char stands[64];
    char others[32] = "";
    ech_flight_view v;
    ech_explanation why;
    life[held] = is_stopped ? 'T' : 'R';
    assert_ok(ech_flight_look(h->flight, &v));
    (void)snprintf(stands, sizeof stands, "rank %d stands ", held);
    for (int r = 0; r < WORLD; r++)
        if (r != held)
            (void)snprintf(others + strlen(others), sizeof others - strlen(others), "%s%d",
                           others[0] ? ", " : "ranks ", r);
    for (int from = 0; from < WORLD; from++) {
        const ech_explain_query q = {.view = &v,
                                     .layout = &h->run.session->config.compile.block.layout,
                                     .program_of = program_of,
                                     .user = h->run.session,
                                     .life = life,
                                     .now_s = 1e9,
                                     .from = from};
        if (from == held)
            continue;
        assert_ok(ech_explain(&q, &why));
        if (why.rank != held || why.is_circle)
            fail_msg("held is rank %d, asked rank %d: %s", held, from, why.line);
        assert_true(strncmp(why.line, stands, strlen(stands)) == 0);
        assert_non_null(strstr(why.line, others));
        assert_true((strstr(why.line, "(stopped: state T)") != NULL) == is_stopped);
        const ech_flight_rank *w = &v.rank[why.waiter];
        if (w->at.state == ECH_FLIGHT_WAITS)
            assert_true(share_group(w->at.axis, why.waiter, held));
    }
    ech_flight_view_fini(&v);
}

/* Hold `held` behind its first n ops of the segment, look, and let everybody finish. */
static bool hold_at(held_run *h, int held, ech_segment segment, int n)
{
    const ech_program *p = program_of(h->run.session, held, 0);
    int done = 0;
    for (int r = 0; r < WORLD; r++)
        ech_engine_begin(engine_of(h, r), 0, segment);
    for (int i = 0; i < p->n_items && done < n; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops && p->item[i].segment == segment && done < n; k++, done++)
            run_one(h, held, i, k);
    }
    return done == n;
}

/* Each hold is a step of its own: what was begun cannot be taken back. */
static void check_rank(void **state, shape form, int held, int stride)
{
    int n = 1;
    int looks = 0;
    for (bool is_there = true; is_there; n += stride) {
        held_run h;
        start(state, form, &h);
        is_there = hold_at(&h, held, ECH_SEGMENT_ACCUMULATE, n);
        if (is_there) {
            run_others(&h, held);
            check_held(&h, held, true);
            looks++;
        }
        stop(&h);
    }
    (void)printf("%s, rank %d: held at %d of %d ops\n", form == TP_PP ? "tp x pp" : "tp x dp", held,
                 looks, n - stride);
    assert_true(looks > 10);
}

static void test_the_rank_that_is_held_is_named(void **state)
{
    for (int form = 0; form < N_SHAPES; form++)
        for (int r = 0; r < WORLD; r++)
            check_rank(state, (shape)form, r, 5 + 2 * r);
}

/* Not stopped but at a kernel: found by what it has not reached. */
static void test_a_rank_at_a_kernel(void **state)
{
    held_run h;
    start(state, TP_DP, &h);
    assert_true(hold_at(&h, 3, ECH_SEGMENT_ACCUMULATE, 2));
    run_others(&h, 3);
    check_held(&h, 3, false);
    stop(&h);
}

/* --- programs of two classes, by hand --- */

/* An op an item; a wait has the request of its start. */
typedef struct hand_op2 {
    ech_op_kind kind;
    ech_axis axis;
    int peer, request;
} hand_op2;

enum { MOST = 8 };

typedef struct hand_program {
    ech_op op[MOST];
    ech_block block[MOST];
    ech_item item[MOST];
    ech_program program;
} hand_program;

static void make(const hand_op2 *ops, int n, hand_program *h)
{
    memset(h, 0, sizeof *h);
    for (int i = 0; i < n; i++) {
        h->op[i] = (ech_op){.kind = ops[i].kind, .axis = ops[i].axis};
        h->op[i].attr[0] = ech_expr_const(ops[i].peer);
        h->block[i] = (ech_block){.op = &h->op[i], .n_ops = 1};
        h->item[i] = ech_item_make(i, ECH_SEGMENT_ACCUMULATE);
        h->item[i].request = ops[i].request;
    }
    h->program = (ech_program){.block = h->block, .n_blocks = n, .item = h->item, .n_items = n};
}

static const ech_program *class_of(void *user, int rank, int which)
{
    const hand_program *h = user;
    (void)which;
    return &h[rank].program;
}

/* Two pipeline ranks, each at an item; what comes of it when rank `from` asks. */
static void ask(const hand_program *h, const int item[2], const ech_flight_state at[2], int from,
                ech_explanation *why)
{
    ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .kv_share = 1};
    ech_layout layout;
    ech_flight_rank rank[2] = {{.rank = 0, .exit_code = -1}, {.rank = 1, .exit_code = -1}};
    const ech_flight_view v = {.world = 2, .rank = rank, .n_ranks = 2};
    assert_ok(ech_layout_make(&spec, &layout));
    for (int r = 0; r < 2; r++) {
        rank[r].at = (ech_flight_place){.state = at[r],
                                        .item = item[r],
                                        .passes = 3,
                                        .layer = -1,
                                        .micro = -1,
                                        .axis = ECH_AXIS_PP};
        rank[r].at.kind = h[r].op[item[r]].kind;
    }
    const ech_explain_query q = {.view = &v,
                                 .layout = &layout,
                                 .program_of = class_of,
                                 .user = (void *)(uintptr_t)h,
                                 .life = "RR",
                                 .from = from};
    assert_ok(ech_explain(&q, why));
}

#define SEND(request)                                                                              \
    {                                                                                              \
        ECH_OP_SEND_START, ECH_AXIS_PP, 1, (request)                                               \
    }
#define RECV(request)                                                                              \
    {                                                                                              \
        ECH_OP_RECV_START, ECH_AXIS_PP, 0, (request)                                               \
    }
#define SENT(request)                                                                              \
    {                                                                                              \
        ECH_OP_SEND_WAIT, ECH_AXIS_PP, 1, (request)                                                \
    }
#define AWAIT(request)                                                                             \
    {                                                                                              \
        ECH_OP_RECV_WAIT, ECH_AXIS_PP, 0, (request)                                                \
    }
#define WORK                                                                                       \
    {                                                                                              \
        ECH_OP_LINEAR, ECH_AXIS_DP, 0, -1                                                          \
    }

/* The second message is waited for: that the sender has begun the first does not count. */
static void test_messages_between_classes_are_counted(void **state)
{
    static const hand_op2 first[] = {SEND(0), SENT(0), WORK, SEND(1), SENT(1)};
    static const hand_op2 last[] = {RECV(0), AWAIT(0), RECV(1), AWAIT(1), WORK};
    static const ech_flight_state at[] = {ECH_FLIGHT_COMPUTES, ECH_FLIGHT_WAITS};
    hand_program h[2];
    ech_explanation why;
    (void)state;
    make(first, 5, &h[0]);
    make(last, 5, &h[1]);
    ask(h, (const int[]){2, 3}, at, 1, &why);
    assert_int_equal(why.rank, 0);
    assert_int_equal(why.waiter, 1);
    assert_non_null(strstr(why.line, "which rank 0 has not reached"));
    ask(h, (const int[]){2, 1}, at, 1, &why); /* the first is on its way; its sender computes */
    assert_int_equal(why.rank, 0);
    assert_non_null(strstr(why.line, "has begun and does not carry on"));
    ask(h, (const int[]){2, 3}, at, 0, &why); /* who computes is held up by nobody */
    assert_int_equal(why.rank, -1);
    assert_non_null(strstr(why.line, "no rank is known to hold it up"));
}

/* Both receive before they send. */
static void test_ranks_that_wait_for_each_other(void **state)
{
    static const hand_op2 zero[] = {{ECH_OP_RECV_START, ECH_AXIS_PP, 1, 0}, AWAIT(0), SEND(1)};
    static const hand_op2 one[] = {RECV(0), AWAIT(0), {ECH_OP_SEND_START, ECH_AXIS_PP, 0, 1}};
    static const ech_flight_state at[] = {ECH_FLIGHT_WAITS, ECH_FLIGHT_WAITS};
    hand_program h[2];
    ech_explanation why;
    (void)state;
    make(zero, 3, &h[0]);
    make(one, 3, &h[1]);
    ask(h, (const int[]){1, 1}, at, 0, &why);
    assert_true(why.is_circle);
    assert_non_null(strstr(why.line, "ranks wait for each other: rank 0 in item 1"));
    assert_non_null(strstr(why.line, "rank 1 in item 1"));
}

/* A place that is in no program (a damaged record) is no reason to fall over. */
static void test_places_that_cannot_be(void **state)
{
    static const hand_op2 ops[] = {RECV(0), AWAIT(0), WORK};
    static const int items[] = {-5, 3, 1 << 30};
    static const ech_flight_state at[] = {ECH_FLIGHT_WAITS, ECH_FLIGHT_WAITS};
    hand_program h[2];
    (void)state;
    make(ops, 3, &h[0]);
    make(ops, 3, &h[1]);
    for (int i = 0; i < 3; i++) {
        ech_explanation why;
        ech_flight_rank rank[2] = {{.rank = 0, .at = {.state = at[0], .item = items[i], .op = 7}},
                                   {.rank = 1, .at = {.state = at[1], .item = 1}}};
        const ech_flight_view v = {.world = 3, .rank = rank, .n_ranks = 2};
        ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = 3, .dp = 1, .kv_share = 1};
        ech_layout layout;
        assert_ok(ech_layout_make(&spec, &layout));
        const ech_explain_query q = {
            .view = &v, .layout = &layout, .program_of = class_of, .user = h, .life = "RR"};
        assert_ok(ech_explain(&q, &why));
        assert_non_null(strstr(why.line, "known here are the 2 ranks of this host of 3"));
    }
}

/* Records of ranks that the layout does not have, or without the one that asks. */
static void test_ranks_that_cannot_be(void **state)
{
    static const hand_op2 ops[] = {RECV(0), AWAIT(0), WORK};
    static const int second[] = {2, 15999999, -1};
    hand_program h[2];
    ech_layout layout;
    ech_explanation why;
    ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .kv_share = 1};
    (void)state;
    make(ops, 3, &h[0]);
    make(ops, 3, &h[1]);
    assert_ok(ech_layout_make(&spec, &layout));
    ech_flight_rank rank[2] = {{.rank = 0, .at = {.state = ECH_FLIGHT_WAITS, .item = 1}},
                               {.rank = 1, .at = {.state = ECH_FLIGHT_WAITS, .item = 1}}};
    ech_flight_view v = {.world = 16000000, .rank = rank, .n_ranks = 2};
    ech_explain_query q = {
        .view = &v, .layout = &layout, .program_of = class_of, .user = h, .life = "RR"};
    for (int i = 0; i < 3; i++) {
        rank[1].rank = second[i];
        assert_fails(ech_explain(&q, &why), ECH_E_CORRUPT, "in a layout of 2");
    }
    v.n_ranks = 1;
    q.from = 1;
    assert_fails(ech_explain(&q, &why), ECH_E_CORRUPT, "no record of rank 1, which asks");
}

/* A rank of a real run asks while another process has written into the page. */
static void test_a_page_that_was_written(void **state)
{
    static const uint64_t hostile[] = {4, 15999999, UINT64_MAX};
    static const uint32_t world = 16000000;
    char path[4096];
    held_run h;
    ech_explanation why;
    start(state, TP_PP, &h);
    assert_ok(ech_session_explain(h.run.session, h.flight, &why));
    assert_ok(ech_flight_path(*state, "here", path, sizeof path));
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, 20, SEEK_SET), 0); /* the header's world */
    assert_int_equal(fwrite(&world, sizeof world, 1, file), 1);
    for (int i = 0; i < 3; i++) {
        const long last = -(long)sizeof(ech_flight_record) + 128; /* the last record's rank */
        assert_int_equal(fseek(file, last, SEEK_END), 0);
        assert_int_equal(fwrite(&hostile[i], sizeof hostile[i], 1, file), 1);
        assert_int_equal(fflush(file), 0);
        assert_fails(ech_session_explain(h.run.session, h.flight, &why), ECH_E_CORRUPT,
                     "in a run of 4");
    }
    (void)fclose(file);
    stop(&h);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_the_rank_that_is_held_is_named),
        TEST(test_a_rank_at_a_kernel),
        TEST(test_messages_between_classes_are_counted),
        TEST(test_ranks_that_wait_for_each_other),
        TEST(test_places_that_cannot_be),
        TEST(test_ranks_that_cannot_be),
        TEST(test_a_page_that_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
