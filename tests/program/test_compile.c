/* RUN: np=1 timeout=60 tags=fast */
/* Every program the compiler makes over a grid of models and layouts: packing loss, memory against
 * a count of its own, traffic and FLOPs against closed forms. */
#include "check.h"
#include "program/compile.h"
#include "tiny.h"

#include <stdlib.h>

typedef struct grid_point {
    ech_compile_spec spec;
    ech_model model;
    ech_canon canon;
} grid_point;

static void point_init(grid_point *g, tiny_kind kind, int dp, int micros, int64_t seq)
{
    g->model = tiny_model(kind, kind == TINY_GPT2 ? 0.1 : 0.0);
    assert_ok(ech_canon_create(&g->model, &g->canon));
    g->spec = (ech_compile_spec){.block = {.model = &g->model,
                                           .canon = &g->canon,
                                           .layout = ech_layout_data_parallel(dp),
                                           .real = ECH_F32,
                                           .rows = 2,
                                           .seq = seq,
                                           .context = 16,
                                           .optim = ECH_UPDATE_ADAMW,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .clip = 1.0},
                                 .micro_batches = micros,
                                 .bucket_bytes = 1 << 14};
}

/* A shape of real proportions: hidden 256, 6 layers, vocabulary 5000. */
static void widen(grid_point *g, int64_t layers)
{
    ech_canon_fini(&g->canon);
    g->model.layers = layers;
    g->model.hidden = 252;
    g->model.heads = g->model.kv_heads = 6;
    g->model.head_dim = 42;
    g->model.ffn = g->model.arch == ECH_ARCH_GPT2 ? 1008 : 680;
    g->model.vocab = 5003;
    g->model.context = g->spec.block.context = 256;
    assert_ok(ech_canon_create(&g->model, &g->canon));
}

static double loss_of(const ech_program *p)
{
    const size_t peak = p->peak_live_bytes[ECH_SPACE_DEVICE];
    const size_t arena = p->transient_bytes[ECH_SPACE_DEVICE];
    assert_true(arena >= peak);
    return peak ? (double)arena / (double)peak - 1.0 : 0.0;
}

static double worst;
static char worst_name[160];
static int n_programs;

static void note_loss(const ech_program *p, const grid_point *g, const char *what)
{
    const double loss = loss_of(p);
    n_programs++;
    if (loss < worst || (n_programs > 1 && loss <= worst))
        return;
    worst = loss;
    (void)snprintf(worst_name, sizeof worst_name,
                   "%s, %s, %d layers, dp %d, %d micro-batches, seq %d, %s", what,
                   g->model.arch == ECH_ARCH_GPT2 ? "gpt2" : "llama", (int)g->model.layers,
                   p->layout.world, p->micro_batches, (int)g->spec.block.seq,
                   g->spec.schedule == ECH_SCHEDULE_GPIPE ? "forward first" : "in turn");
}

static void compile_all(grid_point *g)
{
    ech_program p;
    ech_run_slots slots;
    for (int order = 0; order < 2; order++) {
        g->spec.schedule = order ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
        assert_ok(ech_compile_train(&g->spec, &p, &slots));
        note_loss(&p, g, "train");
        ech_program_fini(&p);
    }
    assert_ok(ech_compile_eval(&g->spec, &p, &slots));
    note_loss(&p, g, "eval");
    ech_program_fini(&p);
    assert_ok(ech_compile_generate(&g->spec, &p, &slots));
    note_loss(&p, g, "generate");
    ech_program_fini(&p);
}

static void test_packing_loses_at_most_two_percent(void **state)
{
    static const int micros[] = {1, 2, 5};
    static const int64_t lengths[] = {1, 5, 16};
    static const int64_t wide_lengths[] = {17, 128, 256};
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int dp = 1; dp <= 4; dp++)
            for (int m = 0; m < 3; m++)
                for (int s = 0; s < 3; s++)
                    for (int wide = 0; wide < 2; wide++) {
                        grid_point g;
                        point_init(&g, (tiny_kind)kind, dp, micros[m],
                                   wide ? wide_lengths[s] : lengths[s]);
                        if (wide)
                            widen(&g, 2 + 2 * m);
                        compile_all(&g);
                        ech_canon_fini(&g.canon);
                    }
    (void)printf("%d programs, largest packing loss %.3f %% (%s)\n", n_programs, 100.0 * worst,
                 worst_name);
    assert_true(worst <= 0.02);
}

/* --- memory --- */

/* Bytes alive while item i runs: state, and transients with a user at or before i and one at or
 * after it. */
static size_t alive(const ech_program *p, int item, ech_class klass)
{
    size_t bytes = 0;
    for (int s = 0; s < p->n_slots; s++) {
        bool before = p->slot[s].is_state;
        bool after = before;
        for (int i = 0; i < p->n_items; i++)
            for (int k = 0; k < p->block[p->item[i].block].n_ops; k++) {
                const ech_op *op = &p->block[p->item[i].block].op[k];
                bool uses = ech_item_work(p, &p->item[i], op).slot == s;
                for (int a = 0; a < op->n_args; a++)
                    uses = uses || ech_item_extent(p, &p->item[i], &op->arg[a]).slot == s;
                before = before || (uses && i <= item);
                after = after || (uses && i >= item);
            }
        if (before && after && p->slot[s].klass == klass)
            bytes += p->slot[s].bytes;
    }
    return bytes;
}

static void check_memory(const ech_program *p)
{
    ech_memory m;
    size_t own[ECH_N_CLASSES] = {0};
    size_t most = 0;
    tiny_ok(ech_program_memory(p, ECH_SPACE_DEVICE, &m), "memory");
    for (int i = 0; i < p->n_items; i++) {
        size_t total = 0;
        for (int c = 0; c < ECH_N_CLASSES; c++) {
            const size_t now = alive(p, i, (ech_class)c);
            own[c] = now > own[c] ? now : own[c];
            total += now;
            if (i == m.peak_item)
                assert_int_equal(now, m.at_peak[c]);
        }
        most = total > most ? total : most;
    }
    assert_int_equal(m.total, most);
    assert_int_equal(m.arena, p->state_bytes[0] + p->transient_bytes[0]);
    assert_true(m.arena >= m.total);
    for (int c = 0; c < ECH_N_CLASSES; c++)
        assert_int_equal(m.own_max[c], own[c]);
}

static void test_memory_is_what_is_alive(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int order = 0; order < 2; order++) {
            grid_point g;
            ech_program p;
            ech_run_slots slots;
            point_init(&g, (tiny_kind)kind, 1 + kind, 2, 5);
            g.spec.schedule = order ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
            assert_ok(ech_compile_train(&g.spec, &p, &slots));
            check_memory(&p);
            /* state, by hand */
            const size_t elems = (size_t)g.canon.elems;
            ech_memory m;
            tiny_ok(ech_program_memory(&p, ECH_SPACE_DEVICE, &m), "memory");
            assert_int_equal(m.at_peak[ECH_CLASS_PARAMS], 4 * elems);
            assert_int_equal(m.at_peak[ECH_CLASS_GRADS], 4 * elems);
            assert_int_equal(m.at_peak[ECH_CLASS_OPTIMIZER], 8 * elems);
            assert_int_equal(m.at_peak[ECH_CLASS_MASTER], 0);
            tiny_ok(ech_program_memory(&p, ECH_SPACE_HOST, &m), "memory");
            assert_int_equal(m.total, 0);
            assert_int_equal(m.arena, 0);
            ech_program_fini(&p);
            assert_ok(ech_compile_eval(&g.spec, &p, &slots));
            check_memory(&p);
            ech_program_fini(&p);
            ech_canon_fini(&g.canon);
        }
}

/* Forward first keeps every micro-batch's saved values, in turn one's. */
static void test_the_order_decides_what_is_kept(void **state)
{
    size_t kept[2][2];
    (void)state;
    for (int order = 0; order < 2; order++)
        for (int m = 0; m < 2; m++) {
            grid_point g;
            ech_program p;
            ech_run_slots slots;
            ech_memory memory;
            point_init(&g, TINY_LLAMA, 1, 1 + 3 * m, 5);
            g.spec.schedule = order ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
            assert_ok(ech_compile_train(&g.spec, &p, &slots));
            tiny_ok(ech_program_memory(&p, ECH_SPACE_DEVICE, &memory), "memory");
            kept[order][m] = memory.own_max[ECH_CLASS_ACTIVATIONS];
            ech_program_fini(&p);
            ech_canon_fini(&g.canon);
        }
    assert_int_equal(kept[0][0], kept[1][0]);
    assert_int_equal(kept[0][1], kept[0][0]);
    assert_int_equal(kept[1][1], 4 * kept[1][0]);
}

/* --- traffic and FLOPs --- */

/* Buckets from the head down: closed as soon as they hold bucket_bytes, and at the embedding. */
static int64_t gradient_wire(const grid_point *g, int dp, int me)
{
    int64_t wire = 0;
    int64_t bucket = 0;
    for (int unit = g->canon.n_units - 1; unit >= 0; unit--) {
        bucket += g->canon.unit_elems[unit];
        if (unit > 0 && 4 * bucket < g->spec.bucket_bytes)
            continue;
        for (int peer = 0; peer < dp; peer++)
            if (peer != me)
                wire += 4 * (bucket / dp + (peer < bucket % dp) + bucket / dp + (me < bucket % dp));
        bucket = 0;
    }
    return wire;
}

static void test_traffic_of_a_step(void **state)
{
    static const int64_t buckets[] = {1, 1 << 12, 1 << 14, 1 << 30};
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int dp = 1; dp <= 4; dp++)
            for (int b = 0; b < 4; b++) {
                grid_point g;
                ech_program p;
                ech_run_slots slots;
                int64_t all = 0;
                point_init(&g, (tiny_kind)kind, dp, 1 + b, 5);
                g.spec.bucket_bytes = buckets[b];
                assert_ok(ech_compile_train(&g.spec, &p, &slots));
                for (int r = 0; r < dp; r++) {
                    ech_traffic t[ECH_N_AXES];
                    ech_program_traffic(&p, r, t);
                    /* besides: one cell of tokens, two of loss and wish to stop, to each peer */
                    assert_int_equal(t[ECH_AXIS_DP].wire_bytes,
                                     gradient_wire(&g, dp, r) + (8 + 16) * (dp - 1));
                    assert_int_equal(t[ECH_AXIS_DP].payload_bytes,
                                     dp > 1 ? 4 * g.canon.elems + 24 : 0);
                    all += t[ECH_AXIS_DP].wire_bytes;
                    for (int a = 0; a < ECH_N_AXES; a++)
                        assert_true(a == ECH_AXIS_DP || t[a].wire_bytes == 0);
                }
                assert_int_equal(all, 2 * (dp - 1) * 4 * g.canon.elems + 24 * dp * (dp - 1));
                ech_program_fini(&p);
                assert_ok(ech_compile_eval(&g.spec, &p, &slots));
                ech_traffic t[ECH_N_AXES];
                ech_program_traffic(&p, 0, t);
                assert_int_equal(t[ECH_AXIS_DP].wire_bytes, 24 * (dp - 1));
                ech_program_fini(&p);
                ech_canon_fini(&g.canon);
            }
}

/* 6 FLOPs a token and element of a matrix product (the padded head included), attention's causal
 * pairs 2 + 5 products of D. */
static void test_flops_of_a_step(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        grid_point g;
        ech_program p;
        ech_run_slots slots;
        double matmul = 0.0;
        point_init(&g, (tiny_kind)kind, 1, 3, 7);
        const ech_model *m = &g.model;
        for (int k = 0; k < g.canon.n_params; k++) {
            const ech_param *w = &g.canon.param[k];
            const bool is_table =
                w->kind == ECH_PARAM_TOKEN_EMBED || w->kind == ECH_PARAM_POSITION_EMBED;
            if (w->rank > 1 && !is_table && w->kind != ECH_PARAM_QKV_BIAS)
                matmul += (double)w->elems;
        }
        if (m->tie_embeddings)
            matmul += (double)(g.canon.vocab_padded * m->hidden);
        const double tokens = 3.0 * 2.0 * 7.0;
        const double pairs = 3.0 * 2.0 * 7.0 * 8.0 / 2.0 * (double)(m->layers * m->heads);
        assert_ok(ech_compile_train(&g.spec, &p, &slots));
        assert_near(ech_program_flops(&p),
                    6.0 * tokens * matmul + pairs * (double)m->head_dim * 2.0 * 7.0, 1e-6);
        ech_program_fini(&p);
        assert_ok(ech_compile_eval(&g.spec, &p, &slots));
        assert_near(ech_program_flops(&p),
                    2.0 * tokens * matmul + pairs * (double)m->head_dim * 2.0 * 2.0, 1e-6);
        ech_program_fini(&p);
        ech_canon_fini(&g.canon);
    }
}

static void test_a_cap_is_refused_before_anything_runs(void **state)
{
    grid_point g;
    ech_program p;
    ech_run_slots slots;
    (void)state;
    point_init(&g, TINY_LLAMA, 2, 2, 5);
    assert_ok(ech_compile_train(&g.spec, &p, &slots));
    const size_t need = p.state_bytes[0] + p.transient_bytes[0];
    ech_program_fini(&p);
    g.spec.cap_bytes[ECH_SPACE_DEVICE] = need;
    assert_ok(ech_compile_train(&g.spec, &p, &slots));
    ech_program_fini(&p);
    g.spec.cap_bytes[ECH_SPACE_DEVICE] = need - 1;
    assert_fails(ech_compile_train(&g.spec, &p, &slots), ECH_E_INFEASIBLE, "program 'train' needs");
    assert_null(p.item);
    ech_canon_fini(&g.canon);
}

static void test_training_and_evaluation_chain(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        grid_point g;
        ech_program a;
        ech_program b;
        ech_run_slots slots[2];
        point_init(&g, (tiny_kind)kind, 3, 2, 5);
        assert_ok(ech_compile_train(&g.spec, &a, &slots[0]));
        assert_ok(ech_compile_eval(&g.spec, &b, &slots[1]));
        assert_ok(ech_program_chain(&a, &b));
        assert_ok(ech_program_chain(&b, &a));
        assert_memory_equal(&slots[0], &slots[1], sizeof slots[0]);
        ech_program_fini(&a);
        ech_program_fini(&b);
        ech_canon_fini(&g.canon);
    }
}

/* Row i of micro-batch k of rank r is one row of the global batch, and every row is some rank's. */
static void test_rows_of_the_global_batch(void **state)
{
    bool seen[3 * 4 * 2] = {false};
    ech_program p = {.layout = ech_layout_data_parallel(3), .rows_per_micro = 2};
    (void)state;
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 2; i++) {
                const int64_t row = ech_first_row(&p, r, k) + i;
                assert_int_equal(row, (k * 3 + r) * 2 + i);
                assert_false(seen[row]);
                seen[row] = true;
            }
    for (size_t i = 0; i < sizeof seen; i++)
        assert_true(seen[i]);
}

typedef ech_status (*block_maker)(const ech_block_spec *s, ech_role role, ech_block *out);

/* A split backward or a recomputation is no backward under another name. */
static void test_roles_that_a_generator_does_not_know(void **state)
{
    static const block_maker makers[] = {ech_block_embedding, ech_block_attention, ech_block_mlp,
                                         ech_block_head};
    grid_point g;
    ech_shard_plan plan;
    (void)state;
    point_init(&g, TINY_LLAMA, 2, 1, 8);
    assert_ok(ech_compile_plan(&g.spec, &plan));
    g.spec.block.plan = &plan;
    for (size_t k = 0; k < sizeof makers / sizeof makers[0]; k++)
        for (int role = ECH_ROLE_FORWARD; role <= ECH_ROLE_HOST_SCALARS; role++) {
            ech_block block = {0};
            if (role == ECH_ROLE_FORWARD || role == ECH_ROLE_BACKWARD) {
                assert_ok(makers[k](&g.spec.block, (ech_role)role, &block));
                free(block.op);
                continue;
            }
            const bool has_none = k == 0 && role == ECH_ROLE_BACKWARD_WEIGHT; /* split or not */
            assert_fails(makers[k](&g.spec.block, (ech_role)role, &block), ECH_E_UNSUPPORTED,
                         has_none ? "all of its backward is for input"
                                  : "has a forward and a whole backward only");
            assert_null(block.op);
        }
    ech_canon_fini(&g.canon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing_loses_at_most_two_percent),
        cmocka_unit_test(test_memory_is_what_is_alive),
        cmocka_unit_test(test_the_order_decides_what_is_kept),
        cmocka_unit_test(test_traffic_of_a_step),
        cmocka_unit_test(test_flops_of_a_step),
        cmocka_unit_test(test_a_cap_is_refused_before_anything_runs),
        cmocka_unit_test(test_training_and_evaluation_chain),
        cmocka_unit_test(test_rows_of_the_global_batch),
        cmocka_unit_test(test_roles_that_a_generator_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
