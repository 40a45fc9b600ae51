/* RUN: np=1 timeout=30 tags=fast */
/* Pipelines of random uneven stages: composed and run through their tables. */
#include "check.h"
#include "timed.h"
#include "tiny.h"
#include "base/clock.h"
#include "price/compose.h"
#include "price/unit.h"
#include "program/compile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 16, CHUNKS = 4, STAGES = RANKS * CHUNKS };

/* A pipeline with memory for its times. */
typedef struct pipeline {
    double forward[STAGES], backward[STAGES], weight[STAGES];
    ech_compose_spec spec;
} pipeline;

typedef struct dice {
    uint64_t state;
} dice;

/* 0 .. n - 1 (SplitMix64). */
static int64_t roll(dice *d, int64_t n)
{
    uint64_t z = d->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

static double any(dice *d, double from, double to)
{
    return from + (to - from) * (double)roll(d, 1 << 20) / (1 << 20);
}

/* A table's own makespan, and when the last rank begins. */
static double table_makespan(const ech_compose_spec *c, double *last_warm)
{
    const ech_schedule_spec spec = {.kind = c->kind,
                                    .ranks = c->ranks,
                                    .micros = (int)c->micros,
                                    .chunks = c->chunks,
                                    .group = c->group};
    const ech_schedule_costs costs = {.each = {[ECH_WORK_FORWARD] = c->forward,
                                               [ECH_WORK_BACKWARD] = c->backward,
                                               [ECH_WORK_INPUT] = c->backward,
                                               [ECH_WORK_WEIGHT] = c->weight},
                                      .hop = c->hop_s};
    ech_schedule s = {0};
    ech_status st;
    assert_ok(ech_schedule_make(&spec, &s));
    const size_t n = (size_t)s.first[s.ranks];
    double *begin = calloc(n, sizeof *begin);
    double *end = calloc(n, sizeof *end);
    const double last = ech_schedule_times(&s, &costs, begin, end, &st);
    assert_ok(st);
    *last_warm = begin[s.first[s.ranks - 1]];
    free(begin);
    free(end);
    ech_schedule_fini(&s);
    return last;
}

static void assert_composed(const ech_compose_spec *c, ech_compose_room *room, int seed)
{
    double last_warm;
    const double want = table_makespan(c, &last_warm);
    const ech_composed got = ech_compose(c, room);
    if (fabs(got.makespan_s - want) > 1e-12 * want ||
        fabs(got.last_warm_s - last_warm) > 1e-12 * want)
        fail_msg("seed %d: %s p %d v %d group %d m %lld hop %g: %.17g, table %.17g (warm %.17g, "
                 "%.17g)",
                 seed, ech_schedule_name(c->kind), c->ranks, c->chunks, c->group,
                 (long long)c->micros, c->hop_s, got.makespan_s, want, got.last_warm_s, last_warm);
    assert_true(got.is_exact);
}

/* Times of stages: of all sizes; all the same but for the ends, as of a model's layers; or whole
 * numbers, which meet in many ties. */
static void fill_times(pipeline *p, dice *d)
{
    const int stages = p->spec.ranks * ech_schedule_chunks(p->spec.kind, p->spec.chunks);
    const int64_t sort = roll(d, 3);
    const double layer = any(d, 0.5, 2);
    for (int k = 0; k < stages; k++) {
        const double end = k == 0 || k == stages - 1 ? any(d, 1, 1.5) : 1;
        p->forward[k] = sort == 0 ? any(d, 0, 3) : sort == 1 ? layer * end : (double)roll(d, 4);
        p->backward[k] = sort == 0   ? any(d, 0, 5)
                         : sort == 1 ? 2 * layer * end
                                     : (double)roll(d, 6);
        p->weight[k] = sort == 0 ? any(d, 0, 3) : sort == 1 ? layer * end : (double)roll(d, 4);
    }
    p->forward[0] += 0.25; /* something takes time */
    p->spec.hop_s = roll(d, 3) == 0 ? 0 : sort == 2 ? (double)roll(d, 3) : any(d, 0, 0.4);
}

static void fill_spec(pipeline *p, dice *d)
{
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_GPIPE, ECH_SCHEDULE_1F1B,
                                              ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_H1,
                                              ECH_SCHEDULE_ZB_V};
    ech_compose_spec *c = &p->spec;
    *c = (ech_compose_spec){.kind = kinds[roll(d, 5)],
                            .ranks = (int)roll(d, RANKS) + 1,
                            .chunks = 1,
                            .micros = roll(d, 64) + 1,
                            .forward = p->forward,
                            .backward = p->backward,
                            .weight = p->weight};
    if (c->kind != ECH_SCHEDULE_INTERLEAVED)
        return;
    c->chunks = (int)roll(d, CHUNKS) + 1;
    c->group = roll(d, 3) == 0 ? c->ranks + (int)roll(d, 5) : 0;
    const int64_t group = c->group ? c->group : c->ranks;
    const int64_t rest = c->micros % group;
    if (c->chunks > 1 && rest > 0 && rest < c->ranks)
        c->micros += c->ranks - rest; /* to the next legal number */
}

static void test_random_pipelines(void **state)
{
    ech_compose_room room = {0};
    pipeline *p = calloc(1, sizeof *p);
    (void)state;
    assert_ok(ech_compose_reserve(&room, RANKS, RANKS + 5));
    for (int seed = 0; seed < 10000; seed++) {
        dice d = {.state = (uint64_t)seed};
        fill_spec(p, &d);
        fill_times(p, &d);
        assert_composed(&p->spec, &room, seed);
    }
    ech_compose_fini(&room);
    free(p);
}

/* Steps of many micro-batches: most of them are not gone through. */
static void test_many_micro_batches(void **state)
{
    ech_compose_room room = {0};
    pipeline *p = calloc(1, sizeof *p);
    int skipping = 0;
    (void)state;
    assert_ok(ech_compose_reserve(&room, RANKS, RANKS + 5));
    for (int seed = 0; seed < 400; seed++) {
        dice d = {.state = (uint64_t)seed + 100000};
        fill_spec(p, &d);
        fill_times(p, &d);
        const int64_t group = p->spec.group ? p->spec.group : p->spec.ranks;
        p->spec.micros += group * (500 / group);
        assert_composed(&p->spec, &room, seed);
        skipping += ech_compose(&p->spec, &room).skipped > 0;
    }
    assert_true(skipping > 300);
    ech_compose_fini(&room);
    free(p);
}

/* 128 ranks, one wave through all of them. */
static void test_128_ranks(void **state)
{
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_GPIPE, ECH_SCHEDULE_1F1B,
                                              ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_H1,
                                              ECH_SCHEDULE_ZB_V};
    enum { P = 128 };
    ech_compose_room room = {0};
    double *times = calloc((size_t)6 * P, sizeof *times);
    dice d = {.state = 7};
    (void)state;
    assert_ok(ech_compose_reserve(&room, P, 0));
    for (int k = 0; k < 6 * P; k++)
        times[k] = any(&d, 1, 1.25);
    for (int k = 0; k < 5; k++)
        for (int m = 100; m <= 384; m += 142)
            assert_composed(&(ech_compose_spec){.kind = kinds[k],
                                                .ranks = P,
                                                .chunks = k == 2 ? 2 : 1,
                                                .micros = k == 2 ? m / P * P + P : m,
                                                .forward = times,
                                                .backward = times + (ptrdiff_t)2 * P,
                                                .weight = times + (ptrdiff_t)4 * P,
                                                .hop_s = 0.01},
                            &room, m);
    ech_compose_fini(&room);
    free(times);
}

/* --- against programs --- */

/* Every stage its own times; messages are free (in programs one begins when its receiver asks for it,
 * in tables when its sender has ended). */
typedef struct staged {
    ech_unit unit; /* a second for each of F, I and W */
    const ech_compose_spec *spec;
} staged;

static double staged_kernel_s(void *user, const ech_program *p, const ech_item *item,
                              const ech_op *op)
{
    staged *s = user;
    const ech_costs unit = ech_unit_costs(&s->unit);
    const ech_compose_spec *c = s->spec;
    int rank = 0;
    while (s->unit.program[rank] != p)
        rank++;
    const bool is_back = c->kind == ECH_SCHEDULE_ZB_V && item->chunk > 0;
    const int stage =
        is_back ? 2 * c->ranks - 1 - rank : rank + c->ranks * (item->chunk > 0 ? item->chunk : 0);
    const double share = unit.kernel_s(unit.user, p, item, op);
    switch (p->block[item->block].role) {
    case ECH_ROLE_BACKWARD:
        return share * c->backward[stage] / 2; /* of I and W together */
    case ECH_ROLE_BACKWARD_INPUT:
        return share * c->backward[stage];
    case ECH_ROLE_BACKWARD_WEIGHT:
        return share * c->weight[stage];
    default:
        return share * c->forward[stage];
    }
}

static double free_comm_s(void *user, const ech_layout *l, const ech_op *op, int rank)
{
    (void)user;
    (void)l;
    (void)op;
    (void)rank;
    return 0.0;
}

/* The step of a compiled pipeline with a layer a stage, by the event simulation. */
static double simulated_makespan(const ech_compose_spec *c)
{
    ech_model model = tiny_model(TINY_LLAMA, 0.0);
    ech_canon canon;
    ech_run run = {0};
    staged s = {.spec = c};
    ech_step_sums sums;
    model.layers = c->ranks * ech_schedule_chunks(c->kind, c->chunks);
    assert_ok(ech_canon_create(&model, &canon));
    const ech_compile_spec spec = {.block = {.model = &model,
                                             .canon = &canon,
                                             .layout = timed_mesh(1, 1, c->ranks),
                                             .real = ECH_F32,
                                             .rows = 1,
                                             .seq = 4,
                                             .context = 16,
                                             .optim = ECH_UPDATE_ADAMW,
                                             .beta1 = 0.9,
                                             .beta2 = 0.95,
                                             .eps = 1e-8,
                                             .clip = 1.0},
                                   .micro_batches = (int)c->micros,
                                   .schedule = c->kind,
                                   .chunks = c->chunks,
                                   .bucket_bytes = 1 << 14};
    assert_ok(ech_run_compile(&spec, ECH_MODE_TRAIN, &run));
    assert_ok(ech_unit_make(run.program, run.n_classes, (ech_unit_times){1, 1, 1}, &s.unit));
    const ech_simulate_spec sim = {
        .program = run.program,
        .n_classes = run.n_classes,
        .class_of = run.class_of,
        .costs = {.user = &s, .kernel_s = staged_kernel_s, .comm_s = free_comm_s}};
    assert_ok(ech_simulate(&sim, &sums, NULL));
    ech_unit_fini(&s.unit);
    ech_run_fini(&run);
    ech_canon_fini(&canon);
    return sums.step_s;
}

/* Programs that run, simulated event by event.  (Interleaved, more than two ranks: between two,
 * forwards of one chunk and backwards of another queue for the same way.) */
static void test_event_simulation(void **state)
{
    static const ech_compose_spec points[] = {
        {.kind = ECH_SCHEDULE_GPIPE, .ranks = 3, .chunks = 1, .micros = 4},
        {.kind = ECH_SCHEDULE_1F1B, .ranks = 4, .chunks = 1, .micros = 7},
        {.kind = ECH_SCHEDULE_1F1B, .ranks = 2, .chunks = 1, .micros = 9},
        {.kind = ECH_SCHEDULE_INTERLEAVED, .ranks = 3, .chunks = 3, .micros = 6},
        {.kind = ECH_SCHEDULE_INTERLEAVED, .ranks = 3, .chunks = 2, .micros = 6},
        {.kind = ECH_SCHEDULE_ZB_H1, .ranks = 3, .chunks = 1, .micros = 6},
        {.kind = ECH_SCHEDULE_ZB_V, .ranks = 2, .chunks = 1, .micros = 5},
        {.kind = ECH_SCHEDULE_ZB_V, .ranks = 3, .chunks = 1, .micros = 3},
    };
    ech_compose_room room = {0};
    pipeline *p = calloc(1, sizeof *p);
    (void)state;
    assert_ok(ech_compose_reserve(&room, RANKS, 0));
    for (size_t k = 0; k < sizeof points / sizeof points[0]; k++) {
        dice d = {.state = k};
        p->spec = points[k];
        for (int i = 0; i < STAGES; i++) {
            p->forward[i] = any(&d, 0.5, 2);
            p->backward[i] = any(&d, 0.5, 3);
            p->weight[i] = any(&d, 0.5, 2);
        }
        p->spec.forward = p->forward;
        p->spec.backward = p->backward;
        p->spec.weight = p->weight;
        const double want = simulated_makespan(&p->spec);
        const ech_composed got = ech_compose(&p->spec, &room);
        if (fabs(got.makespan_s - want) > 1e-12 * want)
            fail_msg("point %zu: composed %.17g, simulated %.17g", k, got.makespan_s, want);
    }
    ech_compose_fini(&room);
    free(p);
}

/* Inside a search: microseconds (bench: 1f1b of 16 ranks 1.2 to 2.5). */
static void test_speed(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    const double most = 200e-6;
#else
    const double most = 20e-6;
#endif
    enum { TIMES = 500, TRIES = 8 };
    ech_compose_room room = {0};
    pipeline *p = calloc(1, sizeof *p);
    double sum = 0;
    (void)state;
    assert_ok(ech_compose_reserve(&room, RANKS, 0));
    for (int k = 0; k < STAGES; k++) {
        p->forward[k] = k == RANKS - 1 ? 1.1 : 1;
        p->backward[k] = 2 * p->forward[k];
    }
    p->spec = (ech_compose_spec){.kind = ECH_SCHEDULE_1F1B,
                                 .ranks = RANKS,
                                 .chunks = 1,
                                 .micros = 64,
                                 .forward = p->forward,
                                 .backward = p->backward,
                                 .hop_s = 0.01};
    double each =
        INFINITY; /* the quietest of some tries: other work on the machine is not the point */
    for (int try = 0; try < TRIES; try++) {
        const double t0 = ech_clock_s();
        for (int k = 0; k < TIMES; k++)
            sum += ech_compose(&p->spec, &room).makespan_s;
        each = fmin(each, (ech_clock_s() - t0) / TIMES);
    }
    (void)printf("1f1b, 16 ranks, 64 micro-batches: %.2f us\n", each * 1e6);
    assert_true(sum > 0);
    assert_true(each < most);
    ech_compose_fini(&room);
    free(p);
}

static void test_one_rank_and_files(void **state)
{
    const double forward[] = {1, 2};
    const double backward[] = {2, 3.5};
    const ech_compose_spec one = {.kind = ECH_SCHEDULE_INTERLEAVED,
                                  .ranks = 1,
                                  .chunks = 2,
                                  .micros = 3,
                                  .forward = forward,
                                  .backward = backward,
                                  .hop_s = 9};
    ech_compose_room room = {0};
    ech_compose_spec file = one;
    (void)state;
    assert_ok(ech_compose_reserve(&room, 1, 0));
    assert_near(ech_compose(&one, &room).makespan_s, 25.5, 0.0);
    assert_near(ech_compose(&one, &room).lambda_s, 8.5, 0.0);
    file.kind = ECH_SCHEDULE_FILE;
    assert_true(isnan(ech_compose(&file, &room).makespan_s));
    assert_false(ech_compose(&file, &room).is_exact);
    ech_compose_fini(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pipelines),   cmocka_unit_test(test_many_micro_batches),
        cmocka_unit_test(test_128_ranks),          cmocka_unit_test(test_event_simulation),
        cmocka_unit_test(test_one_rank_and_files), cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
