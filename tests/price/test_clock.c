/* RUN: np=1 timeout=30 tags=fast */
/* Random programs of four ranks, simulated, against a clock that goes second by second. */
#include "check.h"
#include "timed.h"
#include "base/rng.h"

#include <stdlib.h>

/* What ranks of a pipeline do, op by op: the witness goes through it second by second. */
typedef struct tick_message {
    int missing, left; /* seconds */
    int before;        /* message on the same link, -1 */
} tick_message;

typedef struct tick_op {
    bool is_kernel, is_start;
    int seconds, message;
} tick_op;

enum { MOST_OPS = 400, MOST_MESSAGES = 400, MOST_REQUESTS = 8, TICK_RANKS = 4 };

typedef struct ticks {
    tick_op op[TICK_RANKS][MOST_OPS];
    int n[TICK_RANKS];
    tick_message message[MOST_MESSAGES];
    int n_messages;
    int last_reduce, last_pair[TICK_RANKS][TICK_RANKS];
} ticks;

static void tick_add(ticks *t, int rank, tick_op op)
{
    assert_true(t->n[rank] < MOST_OPS);
    t->op[rank][t->n[rank]++] = op;
}

static int tick_message_add(ticks *t, int members, int seconds, int *last)
{
    assert_true(t->n_messages < MOST_MESSAGES);
    t->message[t->n_messages] = (tick_message){members, seconds, *last};
    return *last = t->n_messages++;
}

static bool tick_is_done(const ticks *t, int message)
{
    return message < 0 || (t->message[message].missing == 0 && t->message[message].left == 0 &&
                           tick_is_done(t, t->message[message].before));
}

/* Everything that a rank can do at this instant. */
static bool tick_advance(ticks *t, int rank, int *at)
{
    bool moved = false;
    for (; *at < t->n[rank]; ++*at, moved = true) {
        const tick_op *op = &t->op[rank][*at];
        if (op->is_kernel && op->seconds > 0)
            return moved;
        if (!op->is_kernel && op->is_start)
            t->message[op->message].missing--;
        if (!op->is_kernel && !op->is_start && !tick_is_done(t, op->message))
            return moved;
    }
    return moved;
}

/* Seconds until all have come to their ends. */
static int tick_run(ticks *t)
{
    int at[TICK_RANKS] = {0};
    for (int now = 0;; now++) {
        bool moved = true, ended = true;
        while (moved) {
            moved = false;
            for (int r = 0; r < TICK_RANKS; r++)
                moved = tick_advance(t, r, &at[r]) || moved;
        }
        for (int r = 0; r < TICK_RANKS; r++)
            ended = ended && at[r] == t->n[r];
        if (ended)
            return now;
        assert_true(now < 100000);
        bool moves[MOST_MESSAGES];
        for (int m = 0; m < t->n_messages; m++)
            moves[m] = t->message[m].missing == 0 && tick_is_done(t, t->message[m].before);
        for (int m = 0; m < t->n_messages; m++)
            t->message[m].left -= moves[m] && t->message[m].left > 0;
        for (int r = 0; r < TICK_RANKS; r++)
            if (at[r] < t->n[r] && t->op[r][at[r]].is_kernel)
                t->op[r][at[r]].seconds--;
    }
}

/* A program that comes to an end: all ranks' ops are appended in one order, waits behind starts. */
typedef struct maker {
    timed_run *r;
    ticks *t;
    ech_rng_key key;
    uint64_t drawn;
    int open[TICK_RANKS][MOST_REQUESTS]; /* message, -1 */
    bool is_pair[TICK_RANKS][MOST_REQUESTS];
} maker;

static int draw(maker *m, int n)
{
    return (int)(ech_rng_u32(&m->key, m->drawn++) % (uint32_t)n);
}

static void make_kernel(maker *m, int rank)
{
    const int seconds = draw(m, 6);
    TIMED_ADD(&m->r->program[rank], timed_kernel(seconds));
    tick_add(m->t, rank, (tick_op){.is_kernel = true, .seconds = seconds});
}

static void make_wait(maker *m, int rank, int request)
{
    const int message = m->open[rank][request];
    TIMED_ADD(&m->r->program[rank], m->is_pair[rank][request]
                                        ? timed_arrived(request)
                                        : timed_reduced(ECH_AXIS_PP, request));
    tick_add(m->t, rank, (tick_op){.message = message});
    m->open[rank][request] = -1;
}

static int take_request(maker *m, int rank, int message, bool is_pair)
{
    const int request = draw(m, MOST_REQUESTS);
    if (m->open[rank][request] >= 0)
        make_wait(m, rank, request);
    m->open[rank][request] = message;
    m->is_pair[rank][request] = is_pair;
    tick_add(m->t, rank, (tick_op){.is_start = true, .message = message});
    return request;
}

static void make_reduce(maker *m)
{
    const int seconds = draw(m, 9);
    const int message = tick_message_add(m->t, TICK_RANKS, seconds, &m->t->last_reduce);
    for (int r = 0; r < TICK_RANKS; r++)
        TIMED_ADD(&m->r->program[r],
                  timed_reduce(ECH_AXIS_PP, take_request(m, r, message, false), seconds));
}

static void make_message(maker *m, int from, int to)
{
    const int seconds = draw(m, 9);
    const int message = tick_message_add(m->t, 2, seconds, &m->t->last_pair[from][to]);
    TIMED_ADD(&m->r->program[from], timed_send(to, take_request(m, from, message, true), seconds));
    TIMED_ADD(&m->r->program[to], timed_recv(from, take_request(m, to, message, true), seconds));
}

static void make_all(maker *m)
{
    memset(m->open, 0xff, sizeof m->open);
    memset(m->t->last_pair, 0xff, sizeof m->t->last_pair);
    m->t->last_reduce = -1;
    for (int k = 0; k < 120; k++) {
        const int rank = draw(m, TICK_RANKS);
        const int what = draw(m, 8);
        if (what < 4)
            make_kernel(m, rank);
        else if (what < 5)
            make_reduce(m);
        else
            make_message(m, rank, (rank + 1 + draw(m, TICK_RANKS - 1)) % TICK_RANKS);
    }
    for (int r = 0; r < TICK_RANKS; r++)
        for (int i = 0; i < MOST_REQUESTS; i++)
            if (m->open[r][i] >= 0)
                make_wait(m, r, i);
}

static void test_random_programs_against_a_clock(void **state)
{
    const ech_layout l = timed_mesh(1, 1, TICK_RANKS);
    ticks *t = malloc(2 * sizeof *t);
    ticks *again = t + 1;
    double longest = 0.0;
    (void)state;
    assert_non_null(t);
    for (uint64_t seed = 0; seed < 300; seed++) {
        maker m = {.r = timed_make(&l), .t = t, .key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, 0)};
        memset(t, 0, sizeof *t);
        make_all(&m);
        const ech_step_sums sums = timed_simulate(m.r, NULL);
        memcpy(again, t, sizeof *t);
        const int clock = tick_run(t);
        if (sums.step_s != clock)
            fail_msg("seed %d: %g s, by the clock %d", (int)seed, sums.step_s, clock);
        memcpy(t, again, sizeof *t);
        for (int i = 0; i < t->n_messages; i++)
            t->message[i].left = 0;
        assert_near(sums.compute_s + sums.bubble_s, tick_run(t), 1e-9);
        longest = sums.step_s > longest ? sums.step_s : longest;
        timed_free(m.r);
    }
    assert_true(longest > 100.0);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs_against_a_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
