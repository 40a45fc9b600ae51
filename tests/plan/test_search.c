/* RUN: np=1 timeout=60 tags=fast */
/* The search against looking at everything: a naive selection over the whole space, written again
 * here, for several models, systems, clusters and wishes; what must hold of fronts and neighbours; what
 * is refused. */
#include "query_case.h"

#include "plan/space.h"

#include <math.h>

/* --- a witness: all layouts that fit, sorted, the front by its definition --- */

typedef struct priced {
    ech_point point;
    double step_s, bytes;
} priced;

typedef struct witness {
    priced *all; /* owned */
    size_t n, room;
    ech_pipe pipe[ECH_SPACE_PIPES];
    ech_work_way work[ECH_SPACE_WORKS];
    ech_state_way state[ECH_SPACE_STATES];
    ech_footprint f;
} witness;

static bool fits(const query_case *c, const ech_footprint *f)
{
    const char *binding;
    const double usable = c->cluster.device.usable_bytes;
    const ech_fit fit = ech_footprint_fit(&c->job, f, &binding);
    return f->reserved_bytes <= usable * (1 - c->spec.headroom) &&
           (fit == ECH_FIT_YES || (c->spec.wants_edge && fit == ECH_FIT_EDGE));
}

static void keep(witness *w, const query_case *c, ech_pricer *pricer, const ech_point *p)
{
    ech_step_price price;
    ech_footprint_of(&c->job, p, NULL, &w->f);
    if (!fits(c, &w->f))
        return;
    ech_pricer_step(pricer, p, NULL, &price);
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 1024;
        w->all = realloc(w->all, w->room * sizeof *w->all);
        assert_non_null(w->all);
    }
    w->all[w->n++] = (priced){*p, price.step_s, w->f.reserved_bytes};
}

static void look(witness *w, const query_case *c)
{
    ech_space s;
    ech_pricer *pricer = NULL;
    assert_ok(ech_space_make(&c->spec, c->job.gpus, c->spec.may_offload, &s));
    assert_ok(ech_pricer_create(&c->job, NULL, &pricer));
    for (size_t m = 0; m < s.n_meshes; m++) {
        const int n_pipes = ech_space_pipes(&s, &s.mesh[m], w->pipe);
        const int n_states = ech_space_states(&s, &s.mesh[m], w->state);
        for (int i = 0; i < n_pipes; i++) {
            const int n_works = ech_space_works(&s, &s.mesh[m], &w->pipe[i], w->work);
            for (int k = 0; k < n_works; k++)
                for (int z = 0; z < n_states; z++) {
                    if (!ech_space_counts(&s, &s.mesh[m], &w->work[k], &w->state[z]))
                        continue;
                    const ech_point p =
                        ech_space_point(&s, &s.mesh[m], &w->pipe[i], &w->work[k], &w->state[z]);
                    keep(w, c, pricer, &p);
                }
        }
    }
    ech_pricer_destroy(&pricer);
    ech_space_fini(&s);
}

static int by_time(const void *a, const void *b)
{
    const priced *x = a;
    const priced *y = b;
    if (x->step_s != y->step_s)
        return x->step_s < y->step_s ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static double steps_of(const query_case *c, double bytes)
{
    return ceil(bytes / c->cluster.device.usable_bytes * ECH_SEARCH_MEMORY_STEPS);
}

/* Fastest first: each needs less memory, in steps, than all before.  Compares times and bytes, since
 * layouts that are alike in both may stand for one another. */
static void check_front(const witness *w, const query_case *c, const ech_plan *plan)
{
    double least = INFINITY;
    int n = 0;
    for (size_t i = 0; i < w->n && w->all[i].step_s <= ECH_SEARCH_BAND * w->all[0].step_s; i++) {
        if (steps_of(c, w->all[i].bytes) >= least)
            continue;
        least = steps_of(c, w->all[i].bytes);
        assert_true(n < plan->n_pareto);
        assert_true(plan->pareto[n].step.step_s == w->all[i].step_s);
        assert_true(plan->pareto[n].reserved_bytes == w->all[i].bytes);
        n++;
    }
    assert_int_equal(plan->n_pareto, n);
}

static void check_best(const witness *w, const query_case *c, const ech_plan *plan)
{
    const int n = w->n < (size_t)c->spec.top ? (int)w->n : c->spec.top;
    assert_int_equal(plan->n_best, n);
    for (int i = 0; i < n; i++) {
        assert_true(plan->best[i].step.step_s == w->all[i].step_s);
        assert_true(plan->best[i].reserved_bytes == w->all[i].bytes);
    }
}

static void check_neighbours(const ech_plan *plan)
{
    for (int i = 0; i < plan->n_neighbours; i++) {
        const ech_neighbour *n = &plan->neighbour[i];
        assert_non_null(n->loses_by);
        if (n->fits)
            assert_true(n->by_s >= 0.0);
        assert_near(n->by_s, n->at.step.step_s - plan->best[0].step.step_s, 1e-12);
    }
}

/* The answer is the witness's; how many layouts fit. */
static size_t check(const query_case *c)
{
    witness *w = calloc(1, sizeof *w);
    assert_non_null(w);
    look(w, c);
    if (w->n)
        qsort(w->all, w->n, sizeof *w->all, by_time);
    ech_plan *plan = query_search(c, false);
    ech_plan *brute = query_search(c, true);
    if (w->n) { /* else offload was opened */
        check_best(w, c, plan);
        check_front(w, c, plan);
        assert_int_equal(brute->evaluated, w->n);
        assert_int_equal(plan->space, brute->space);
        assert_true(plan->evaluated <= brute->evaluated);
    }
    same_plan(plan, brute);
    check_neighbours(plan);
    const size_t n = w->n;
    free(plan);
    free(brute);
    free(w->all);
    free(w);
    return n;
}

static const query queries[] = {
    {"llama-3.2-1b", "rtx-4090", 4, 4096, 32, ECH_SYSTEM_ECHELON},
    {"llama-3.2-3b", "a100-sxm-40", 8, 4096, 64, ECH_SYSTEM_MEGATRON},
    {"llama-3-8b", "h100-sxm-80", 16, 8192, 64, ECH_SYSTEM_TORCHTITAN},
    {"llama-2-13b", "a100-pcie-40", 16, 4096, 64, ECH_SYSTEM_DEEPSPEED},
    {"llama-2-7b", "a100-sxm-80", 8, 4096, 64, ECH_SYSTEM_FSDP2},
    {"deepseek-v2-lite", "h100-sxm-80", 8, 4096, 32, ECH_SYSTEM_MEGATRON},
    {"mixtral-8x7b", "h100-sxm-80", 32, 4096, 64, ECH_SYSTEM_DEEPSPEED},
    {"llama-2-7b", "rtx-4090", 2, 4096, 16, ECH_SYSTEM_ECHELON}, /* nothing without offload */
    {"gpt2-xl", "cpu-64c-avx512", 6, 1024, 60, ECH_SYSTEM_ECHELON},
};

static void test_equals_looking_at_everything(void **state)
{
    (void)state;
    const size_t n = sizeof queries / sizeof queries[0];
    for (size_t i = 0; i < n; i++) {
        query_case *c = calloc(1, sizeof *c);
        assert_non_null(c);
        query_make(c, &queries[i]);
        if (!is_slow_build() || i % 3 == 1)
            (void)check(c);
        free(c);
    }
}

/* Wishes: few and many, head-room, edges, pins, adapters, offload. */
static void test_wishes(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &queries[1]);
    c->spec.top = 1;
    const size_t all = check(c);
    c->spec.top = ECH_SEARCH_TOP;
    assert_int_equal(check(c), all);
    c->spec.top = 10;
    c->spec.headroom = 0.3;
    const size_t roomy = check(c);
    assert_true(roomy < all && roomy > 0);
    c->spec.headroom = 0.0;
    c->spec.wants_edge = true;
    assert_true(check(c) > all);
    c->spec.wants_edge = false;
    c->spec.pinned = 1u << ECH_DIM_TP | 1u << ECH_DIM_ZERO;
    c->spec.pin.tp = 2;
    c->spec.pin.zero_stage = 1;
    assert_true(check(c) < all);
    c->spec.pinned = 0;
    c->job.tuning = ECH_TUNING_LORA;
    c->job.lora_rank = 16;
    assert_true(check(c) > all);
    free(c);
}

/* With replicas innermost tp's ranks are as far apart as dp says: no bound of another mesh holds. */
static void test_orders(void **state)
{
    (void)state;
    const query q = {"llama-3-8b", "a100-sxm-40", 24, 8192, 144, ECH_SYSTEM_ECHELON};
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &q);
    c->spec.pinned = 1u << ECH_DIM_ORDER;
    for (int o = 0; o < ECH_N_ORDERS; o++) {
        c->spec.pin.order = (ech_order)o;
        if (!is_slow_build() || o == ECH_ORDER_DP_TP_PP)
            assert_true(check(c) > 0);
    }
    free(c);
}

static void test_offload(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &queries[7]);
    ech_plan *plan = query_search(c, false);
    assert_true(plan->opened_offload && plan->n_best > 0);
    assert_true(plan->best[0].point.offload_optimizer != ECH_OFFLOAD_NONE);
    c->spec.may_offload = true;
    (void)check(c);
    ech_plan *asked = query_search(c, false);
    assert_false(asked->opened_offload);
    same_plan(plan, asked);
    free(plan);
    free(asked);
    free(c);
}

/* Fewer GPUs: nobody on the front is beaten by another there in all that counts. */
static void test_fewer_gpus(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &queries[1]);
    c->spec.may_use_fewer = true;
    ech_plan *plan = query_search(c, false);
    ech_plan *brute = query_search(c, true);
    same_plan(plan, brute);
    bool has_fewer = false;
    for (int i = 0; i < plan->n_pareto; i++) {
        const ech_candidate *a = &plan->pareto[i];
        has_fewer |= a->gpus < c->job.gpus;
        assert_near(a->dollars_per_step,
                    a->step.step_s / 3600.0 * (double)a->gpus * c->cluster.device.dollars_per_hour,
                    1e-9);
        for (int k = 0; k < plan->n_pareto; k++) {
            const ech_candidate *b = &plan->pareto[k];
            const bool beats = b->gpus <= a->gpus && b->step.step_s < a->step.step_s &&
                               steps_of(c, b->reserved_bytes) <= steps_of(c, a->reserved_bytes) &&
                               b->dollars_per_step <= a->dollars_per_step;
            assert_false(beats);
        }
    }
    assert_true(has_fewer);
    free(plan);
    free(brute);
    free(c);
}

/* Nothing fits: the nearest misses by least of all, and it is told. */
static void test_nothing_fits(void **state)
{
    (void)state;
    const query q = {"llama-2-70b", "rtx-4090", 2, 4096, 8, ECH_SYSTEM_MEGATRON};
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &q);
    ech_plan *plan = query_search(c, false);
    assert_int_equal(plan->n_best, 0);
    assert_int_equal(plan->n_pareto, 0);
    assert_true(plan->has_nearest && plan->opened_offload && plan->n_rejected > 0);
    assert_true(plan->nearest.reserved_bytes > c->cluster.device.usable_bytes ||
                plan->nearest.host_node_bytes > c->cluster.host_bytes);
    ech_plan *brute = query_search(c, true);
    same_candidate("nearest", 0, &plan->nearest, &brute->nearest);
    free(plan);
    free(brute);
    free(c);
}

static void test_illegal(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    ech_plan *plan = calloc(1, sizeof *plan);
    assert_true(c && plan);
    query_make(c, &queries[1]);
    c->spec.pinned = 1u << ECH_DIM_TP;
    c->spec.pin.tp = 3;
    assert_fails(ech_plan_search(&c->spec, plan), ECH_E_ILLEGAL,
                 "tp x cp x pp has to divide 8, as 2 and 4 do");
    c->spec.pinned = 1u << ECH_DIM_ZERO;
    c->spec.pin = ech_point_default();
    c->spec.pin.zero_stage = 3;
    assert_fails(ech_plan_search(&c->spec, plan), ECH_E_ILLEGAL, "its distributed optimizer");
    c->job.precision = ECH_PRECISION_FP8;
    assert_fails(ech_plan_search(&c->spec, plan), ECH_E_ILLEGAL, "has no units for fp8");
    free(plan);
    free(c);
}

static void test_rejections_are_counted(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &queries[1]);
    int64_t legal = 0;
    ech_plan *plan = query_search(c, false);
    ech_plan *brute = query_search(c, true);
    for (int i = 0; i < plan->n_rejected; i++)
        if (!plan->rejected[i].is_memory)
            legal += plan->rejected[i].count;
    for (int i = 0; i < brute->n_rejected; i++)
        if (!brute->rejected[i].is_memory)
            legal -= brute->rejected[i].count;
    assert_int_equal(legal, 0); /* whatever bounds skip */
    assert_true(plan->n_rejected > 1);
    free(plan);
    free(brute);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_looking_at_everything),
        cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_fewer_gpus),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_illegal),
        cmocka_unit_test(test_rejections_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
