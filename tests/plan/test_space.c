/* RUN: np=1 timeout=30 tags=fast */
/* The space of layouts: every product of its lists is legal, none comes twice, layouts that are known
 * from publications are in it, what is pinned has one value. */
#include "query_case.h"

#include "plan/space.h"

/* Lists of one mesh, on the heap. */
typedef struct lists {
    ech_pipe pipe[ECH_SPACE_PIPES];
    ech_work_way work[ECH_SPACE_WORKS];
    ech_state_way state[ECH_SPACE_STATES];
} lists;

typedef bool (*visit)(const ech_space *s, const ech_point *p, void *context);

/* All layouts of a space in turn; how many. */
static int64_t walk(const query_case *c, bool has_offload, visit see, void *context)
{
    ech_space s;
    int64_t n = 0;
    lists *l = calloc(1, sizeof *l);
    assert_non_null(l);
    assert_ok(ech_space_make(&c->spec, c->job.gpus, has_offload, &s));
    for (size_t m = 0; m < s.n_meshes; m++) {
        const ech_mesh *mesh = &s.mesh[m];
        const int n_pipes = ech_space_pipes(&s, mesh, l->pipe);
        const int n_states = ech_space_states(&s, mesh, l->state);
        assert_true(n_pipes < ECH_SPACE_PIPES && n_states < ECH_SPACE_STATES);
        for (int i = 0; i < n_pipes; i++) {
            const int n_works = ech_space_works(&s, mesh, &l->pipe[i], l->work);
            assert_true(n_works < ECH_SPACE_WORKS);
            for (int k = 0; k < n_works; k++)
                for (int z = 0; z < n_states; z++) {
                    if (!ech_space_counts(&s, mesh, &l->work[k], &l->state[z]))
                        continue;
                    const ech_point p =
                        ech_space_point(&s, mesh, &l->pipe[i], &l->work[k], &l->state[z]);
                    n++;
                    if (!see(&s, &p, context))
                        fail_msg("layout %lld", (long long)n);
                }
        }
    }
    ech_space_fini(&s);
    free(l);
    return n;
}

static bool is_legal(const ech_space *s, const ech_point *p, void *context)
{
    const char *reason = ech_point_refusal(&s->job, p);
    (void)context;
    if (reason) {
        ech_text words = {0};
        ech_point_print(p, &words);
        print_error("%s: %s\n", ech_text_get(&words), reason);
        ech_text_fini(&words);
    }
    return reason == NULL;
}

static const query small[] = {
    {"llama-3.2-1b", "a100-sxm-80", 16, 4096, 64, ECH_SYSTEM_ECHELON},
    {"llama-3-8b", "a100-sxm-80", 32, 8192, 96, ECH_SYSTEM_MEGATRON},
    {"qwen2-57b-a14b", "h100-sxm-80", 32, 4096, 64, ECH_SYSTEM_MEGATRON},
    {"deepseek-v2-lite", "h100-sxm-80", 12, 4096, 48, ECH_SYSTEM_TORCHTITAN},
    {"llama-2-13b", "rtx-4090", 8, 4096, 64, ECH_SYSTEM_FSDP2},
    {"mixtral-8x7b", "a100-sxm-80", 16, 4096, 64, ECH_SYSTEM_DEEPSPEED},
    {"gpt2-xl", "v100-sxm-32", 6, 1024, 60, ECH_SYSTEM_ECHELON},
};

static void test_all_are_legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        for (int open = 0; open < 2; open++) {
            query_case *c = calloc(1, sizeof *c);
            assert_non_null(c);
            query_make(c, &small[i]);
            if (!open || c->job.gpus < 16)
                assert_true(walk(c, open, is_legal, NULL) > 100);
            free(c);
        }
}

/* --- none twice --- */

typedef struct seen {
    uint64_t *hash; /* owned */
    size_t n, room;
} seen;

static uint64_t mix(uint64_t h, int64_t x)
{
    return (h ^ (uint64_t)x) * UINT64_C(0x100000001b3);
}

static bool remember(const ech_space *s, const ech_point *p, void *context)
{
    seen *all = context;
    const int64_t x[] = {p->tp,
                         p->pp,
                         p->vpp,
                         p->dp,
                         p->cp,
                         p->ep,
                         p->etp,
                         p->zero_stage,
                         p->zero_group,
                         p->micro,
                         p->recompute_layers,
                         p->recompute,
                         p->schedule,
                         p->cp_kind,
                         p->split,
                         p->order,
                         p->offload_optimizer,
                         p->offload_params,
                         p->offload_activations,
                         p->sequence_parallel,
                         p->reshard_after_forward,
                         p->reduce_each};
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    (void)s;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        h = mix(h, x[i]);
    assert_true(all->n < all->room);
    all->hash[all->n++] = h;
    return true;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_none_comes_twice(void **state)
{
    (void)state;
    seen all = {.room = 1 << 21};
    query_case *c = calloc(1, sizeof *c);
    all.hash = malloc(all.room * sizeof *all.hash);
    assert_true(c && all.hash);
    query_make(c, &small[0]);
    (void)walk(c, true, remember, &all);
    qsort(all.hash, all.n, sizeof *all.hash, by_value);
    for (size_t i = 1; i < all.n; i++)
        assert_true(all.hash[i] != all.hash[i - 1]);
    assert_true(all.n > 10000);
    free(all.hash);
    free(c);
}

/* Two states of one rank alone: are they the same in other words?  Stages shard nothing there, gathered
 * weights are of those that are offloaded, and DeepSpeed sends gradients with the optimizer from stage 2
 * on. */
static bool are_alike(const ech_space *s, const ech_state_way *a, const ech_state_way *b)
{
    const bool sends = s->job.system == ECH_SYSTEM_DEEPSPEED && a->optimizer != ECH_OFFLOAD_NONE;
    return a->optimizer == b->optimizer && a->params == b->params &&
           (a->params == ECH_OFFLOAD_NONE || a->reshard == b->reshard) &&
           (!sends || (a->zero_stage >= 2) == (b->zero_stage >= 2));
}

static void test_one_rank_has_each_state_once(void **state)
{
    (void)state;
    static ech_state_way way[ECH_SPACE_STATES];
    int n_alone = 0;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        for (int open = 0; open < 2; open++) {
            ech_space s;
            query_case *c = calloc(1, sizeof *c);
            assert_non_null(c);
            query_make(c, &small[i]);
            assert_ok(ech_space_make(&c->spec, c->job.gpus, open, &s));
            for (size_t m = 0; m < s.n_meshes; m++) {
                const ech_mesh *mesh = &s.mesh[m];
                const bool shares_experts =
                    c->job.model->moe.experts && mesh->tp > mesh->ep * mesh->etp;
                if (mesh->dp * mesh->cp > 1 || shares_experts)
                    continue;
                const int n = ech_space_states(&s, mesh, way);
                n_alone += n;
                for (int a = 0; a < n; a++)
                    for (int b = 0; b < a; b++)
                        assert_false(are_alike(&s, &way[a], &way[b]));
                assert_true(open || n <= 1);
            }
            ech_space_fini(&s);
            free(c);
        }
    assert_true(n_alone > 100);
}

/* --- orders that are one --- */

static int n_orders(const query *q, const ech_mesh *mesh)
{
    static ech_pipe pipe[ECH_SPACE_PIPES];
    ech_space s;
    int other = 0;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, q);
    assert_ok(ech_space_make(&c->spec, c->job.gpus, false, &s));
    const int n = ech_space_pipes(&s, mesh, pipe);
    assert_true(n > 0);
    for (int i = 0; i < n; i++)
        other += pipe[i].order != ECH_ORDER_TP_CP_DP_PP;
    ech_space_fini(&s);
    free(c);
    return other > 0 ? 2 : 1;
}

/* Inside a node, and where tp fills nodes under one network, nobody is nearer in another order. */
static void test_orders_that_are_one(void **state)
{
    (void)state;
    const query node = {"llama-3-8b", "a100-sxm-80", 8, 4096, 32, ECH_SYSTEM_MEGATRON};
    const query nodes = {"llama-3-8b", "a100-sxm-80", 32, 4096, 32, ECH_SYSTEM_MEGATRON};
    ech_mesh mesh = {.tp = 2, .pp = 2, .cp = 1, .ep = 1, .etp = 1, .dp = 2};
    assert_int_equal(n_orders(&node, &mesh), 1);
    mesh.dp = 8;
    assert_int_equal(n_orders(&nodes, &mesh), 2);
    mesh.tp = 8;
    mesh.dp = 2;
    assert_int_equal(n_orders(&nodes, &mesh), 1);
}

/* --- known layouts --- */

static bool is_same(const ech_point *a, const ech_point *b)
{
    return a->tp == b->tp && a->pp == b->pp && a->vpp == b->vpp && a->dp == b->dp &&
           a->cp == b->cp && a->ep == b->ep && a->zero_stage == b->zero_stage &&
           a->micro == b->micro && a->recompute == b->recompute &&
           a->recompute_layers == b->recompute_layers && a->schedule == b->schedule &&
           a->sequence_parallel == b->sequence_parallel && a->zero_group == b->zero_group;
}

typedef struct wanted {
    ech_point p;
    int n;
} wanted;

static bool count_wanted(const ech_space *s, const ech_point *p, void *context)
{
    wanted *w = context;
    (void)s;
    w->n += is_same(p, &w->p);
    return true;
}

static int count(const query *q, const ech_point *p)
{
    wanted w = {.p = *p};
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, q);
    /* the degrees are pinned so that the walk is short: they are values of the lists or none is found
     * by the other tests */
    c->spec.pin = *p;
    (void)walk(c, false, count_wanted, &w);
    free(c);
    return w.n;
}

/* Narayanan et al. 2021, arXiv:2104.04473, table 1 (175B on 1024, 1T on 3072 GPUs); Grattafiori et
 * al. 2024, arXiv:2407.21783, table 4 (405B on 16384 GPUs at 8k and 131k). */
static void test_known_layouts(void **state)
{
    (void)state;
    ech_point p = ech_point_default();
    p.tp = 8;
    p.pp = 16;
    p.dp = 8;
    p.recompute = ECH_RECOMPUTE_FULL;
    p.sequence_parallel = true;
    assert_true(count(&(query){"gpt3-175b", "a100-sxm-80", 1024, 2048, 1536, ECH_SYSTEM_MEGATRON},
                      &p) >= 1);
    p.pp = 64;
    p.dp = 6;
    p.vpp = 2;
    p.schedule = ECH_SCHEDULE_INTERLEAVED;
    assert_true(count(&(query){"megatron-1t", "a100-sxm-80", 3072, 2048, 3072, ECH_SYSTEM_MEGATRON},
                      &p) >= 1);
    p = ech_point_default();
    p.tp = 8;
    p.pp = 16;
    p.vpp = 4;
    p.dp = 128;
    p.schedule = ECH_SCHEDULE_INTERLEAVED;
    p.zero_stage = 3;
    p.sequence_parallel = true;
    assert_true(
        count(&(query){"llama-3.1-405b", "h100-sxm-80", 16384, 8192, 2048, ECH_SYSTEM_TORCHTITAN},
              &p) >= 1);
    p.cp = 16;
    p.dp = 8;
    assert_true(
        count(&(query){"llama-3.1-405b", "h100-sxm-80", 16384, 131072, 128, ECH_SYSTEM_TORCHTITAN},
              &p) >= 1);
}

/* --- pins --- */

typedef struct pinned {
    ech_point p;
} pinned;

static bool has_pins(const ech_space *s, const ech_point *p, void *context)
{
    const pinned *w = context;
    (void)s;
    return p->tp == w->p.tp && p->micro == w->p.micro && p->zero_stage == w->p.zero_stage &&
           p->recompute == w->p.recompute && p->order == w->p.order;
}

static void test_pins(void **state)
{
    (void)state;
    pinned w = {.p = ech_point_default()};
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &small[0]);
    w.p.tp = 2;
    w.p.micro = 2;
    w.p.zero_stage = 2;
    w.p.recompute = ECH_RECOMPUTE_NORM;
    w.p.order = ECH_ORDER_DP_TP_PP;
    c->spec.pin = w.p;
    c->spec.pinned = 1u << ECH_DIM_TP | 1u << ECH_DIM_MICRO | 1u << ECH_DIM_ZERO |
                     1u << ECH_DIM_RECOMPUTE | 1u << ECH_DIM_ORDER;
    assert_true(walk(c, false, has_pins, &w) > 10);
    free(c);
}

/* A list of stages has as many entries as pp and vpp of the pin say: nobody reads past it. */
static bool has_list(const ech_space *s, const ech_point *p, void *context)
{
    (void)s;
    (void)context;
    return p->pp == 2 && p->vpp == 2 && p->split == ECH_SPLIT_LIST && p->stage_layers != NULL;
}

static void test_listed_stages(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    int *layers = calloc(4, sizeof *layers);
    assert_true(c && layers);
    query_make(c, &small[0]);
    layers[0] = 3;
    layers[1] = layers[2] = 4;
    layers[3] = 5;
    c->spec.pin.pp = 2;
    c->spec.pin.vpp = 2;
    c->spec.pin.split = ECH_SPLIT_LIST;
    c->spec.pin.stage_layers = layers;
    c->spec.pinned = 1u << ECH_DIM_SPLIT;
    assert_true(walk(c, false, has_list, NULL) > 10);
    free(layers);
    free(c);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ech_plan_dim_name(ECH_DIM_TP), "tp");
    assert_string_equal(ech_plan_dim_name(ECH_DIM_REDUCE), "reduce");
    assert_true(ECH_N_DIMS <= 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_legal),
        cmocka_unit_test(test_none_comes_twice),
        cmocka_unit_test(test_one_rank_has_each_state_once),
        cmocka_unit_test(test_orders_that_are_one),
        cmocka_unit_test(test_known_layouts),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_listed_stages),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
