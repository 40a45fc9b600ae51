/* RUN: np=1 timeout=30 tags=fast */
/* Which elements a rank holds: by hand for a few, and for many models and degrees that every
 * canonical element is held, once as the first, at a place of its own. */
#include "check.h"

#include "layout/shard.h"

#include <stdlib.h>
#include <string.h>

static ech_model model_of(bool is_gpt, int64_t heads, int64_t kv_heads, int64_t ffn)
{
    ech_model m = ech_model_default(is_gpt ? ECH_ARCH_GPT2 : ECH_ARCH_LLAMA);
    ech_findings findings = {0};
    m.layers = 2;
    m.hidden = 24;
    m.heads = heads;
    m.kv_heads = kv_heads;
    m.head_dim = is_gpt ? 24 / heads : 4;
    m.ffn = ffn;
    m.vocab = 37;
    m.context = 8;
    m.qkv_bias = true;
    m.qk_norm = !is_gpt;
    ech_model_validate(&m, &findings);
    assert_ok(ech_findings_raise(&findings, ECH_E_CONFIG));
    return m;
}

static ech_shard_plan plan_of(const ech_model *m, const ech_canon *c, int tp, bool sp, int shards)
{
    ech_shard_plan plan;
    const ech_shard_spec spec = {
        .model = m, .canon = c, .tp = tp, .is_sequence_parallel = sp, .shards = shards};
    assert_ok(ech_shard_plan_make(&spec, &plan));
    return plan;
}

/* --- head groups, by hand --- */

static void test_head_groups(void **state)
{
    static const struct {
        int64_t heads, kv;
        int tp;
        ech_head_split want;
    } rows[] = {
        {8, 8, 2, {4, 1, 1}},  /* one query head a group */
        {8, 2, 2, {1, 4, 1}},  /* a whole group each */
        {8, 2, 4, {1, 2, 2}},  /* half a group: two ranks hold its key and value */
        {8, 1, 8, {1, 1, 8}},  /* one key/value head, on all */
        {12, 3, 2, {3, 2, 2}}, /* six heads of groups of four: three halves */
        {12, 4, 6, {2, 1, 3}}, /* heads of two groups on one rank */
        {12, 4, 3, {4, 1, 3}}, /* four heads of groups of three */
        {40, 10, 4, {5, 2, 2}},
    };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const ech_head_split got = ech_shard_heads(rows[k].heads, rows[k].kv, rows[k].tp);
        assert_int_equal(got.groups, rows[k].want.groups);
        assert_int_equal(got.per_group, rows[k].want.per_group);
        assert_int_equal(got.copies, rows[k].want.copies);
    }
}

/* Rank 1 of 2 with twelve heads in three groups of four: queries 6..7 of group 1, then 8..11. */
static void test_runs_of_straddling_heads(void **state)
{
    const ech_model m = model_of(false, 12, 3, 20);
    const int64_t head = 4 * 24; /* head_dim rows of hidden columns */
    ech_canon c;
    (void)state;
    assert_ok(ech_canon_create(&m, &c));
    const ech_shard_plan plan = plan_of(&m, &c, 2, false, 1);
    const ech_shard_param *p = ech_shard_find(&plan, ECH_PARAM_QKV);
    const ech_shard_run want[] = {
        {(6 + 2) * head, 0, 2 * head, true},           /* q6 q7: group 1 begins at row 6 */
        {(6 + 4) * head, 2 * head, 2 * head, false},   /* its key and value: rank 0 has them too */
        {12 * head, 4 * head, 2 * head, true},         /* q8 q9 */
        {(12 + 4) * head, 6 * head, 2 * head, true},   /* key and value of group 2 */
        {(12 + 2) * head, 8 * head, 2 * head, true},   /* q10 q11 */
        {(12 + 4) * head, 10 * head, 2 * head, false}, /* the same key and value again */
    };
    assert_int_equal(ech_shard_run_count(&plan, p), 6);
    for (int i = 0; i < 6; i++) {
        const ech_shard_run got = ech_shard_run_get(&plan, p, 1, i);
        assert_int_equal(got.canonical, want[i].canonical);
        assert_int_equal(got.local, want[i].local);
        assert_int_equal(got.elems, want[i].elems);
        assert_int_equal(got.is_first, want[i].is_first);
    }
    ech_canon_fini(&c);
}

/* Five rows over four ranks: 2, 2, 1, 0. */
static void test_a_rank_that_holds_padding_alone(void **state)
{
    const ech_model m = model_of(true, 4, 4, 5);
    static const int64_t rows[] = {2, 2, 1, 0};
    ech_canon c;
    (void)state;
    assert_ok(ech_canon_create(&m, &c));
    const ech_shard_plan plan = plan_of(&m, &c, 4, false, 1);
    const ech_shard_param *p = ech_shard_find(&plan, ECH_PARAM_UP);
    assert_int_equal(p->dim[0], 2);
    for (int t = 0; t < 4; t++) {
        const ech_shard_run r = ech_shard_run_get(&plan, p, t, 0);
        assert_int_equal(r.elems, rows[t] * 24);
        assert_true(rows[t] == 0 || r.canonical == 2 * t * 24);
    }
    ech_canon_fini(&c);
}

/* --- every model and degree --- */

/* How often each canonical element of a tensor is held, and as the first; no two local places the
 * same. */
static void check_tensor(const ech_shard_plan *plan, const ech_shard_param *p)
{
    const ech_param *whole = &plan->canon->param[p->param];
    int *held = calloc((size_t)whole->elems, sizeof *held);
    int *first = calloc((size_t)whole->elems, sizeof *first);
    for (int t = 0; t < plan->tp; t++) {
        int *used = calloc((size_t)p->elems, sizeof *used);
        for (int64_t i = 0; i < ech_shard_run_count(plan, p); i++) {
            const ech_shard_run r = ech_shard_run_get(plan, p, t, i);
            for (int64_t e = 0; e < r.elems; e++) {
                assert_in_range(r.canonical + e, 0, whole->elems - 1);
                assert_in_range(r.local + e, 0, p->elems - 1);
                assert_int_equal(used[r.local + e]++, 0);
                held[r.canonical + e]++;
                first[r.canonical + e] += r.is_first;
            }
        }
        free(used);
    }
    for (int64_t e = 0; e < whole->elems; e++) {
        assert_int_equal(first[e], 1);
        assert_true(held[e] == 1 || held[e] == plan->tp || held[e] == plan->heads.copies);
    }
    free(held);
    free(first);
}

/* Tensors of a part follow one another without a gap, those that decay first; parts are whole flat
 * ranges, and units stand behind one another in the slab. */
static void check_units(const ech_shard_plan *plan)
{
    for (int part = 0; part < ECH_N_PARTS; part++) {
        int64_t at = 0;
        for (int u = 0; u < plan->canon->n_units; u++) {
            const ech_shard_unit *unit = ech_shard_unit_of(plan, u);
            int64_t elems = 0;
            int64_t decayed = 0;
            for (int k = unit->first; k < unit->first + unit->n; k++) {
                const ech_shard_param *p = &plan->param[k];
                const bool decays = plan->canon->param[p->param].is_decayed;
                if (p->part != (ech_part)part)
                    continue;
                elems += p->elems;
                decayed += decays ? p->elems : 0;
                assert_true(decays ? p->offset + p->elems <= unit->part[part].decayed
                                   : p->offset >= unit->part[part].decayed);
            }
            assert_int_equal(unit->part[part].decayed, decayed);
            assert_int_equal(unit->part[part].shard * plan->shards, unit->part[part].elems);
            assert_true(unit->part[part].elems >= elems &&
                        unit->part[part].elems < elems + plan->shards);
            assert_int_equal(ech_shard_unit_offset(plan, u, (ech_part)part), at);
            at += unit->part[part].elems;
        }
        assert_int_equal(plan->elems[part], at);
    }
}

/* What a gradient is over tp decides the part. */
static void check_parts(const ech_shard_plan *plan, bool sp)
{
    for (int k = 0; k < plan->n_params; k++) {
        const ech_shard_param *p = &plan->param[k];
        const ech_param_kind kind = plan->canon->param[p->param].kind;
        const bool is_of_heads = kind == ECH_PARAM_Q_NORM || kind == ECH_PARAM_K_NORM;
        ech_part want = ECH_PART_CUT;
        if (plan->tp > 1 && p->cut == ECH_CUT_NONE)
            want = is_of_heads || sp ? ECH_PART_SUMMED : ECH_PART_WHOLE;
        assert_int_equal(p->part, want);
    }
}

static void check_plan(const ech_model *m, int tp, bool sp, int shards)
{
    ech_canon c;
    assert_ok(ech_canon_create(m, &c));
    const ech_shard_plan plan = plan_of(m, &c, tp, sp, shards);
    assert_int_equal(plan.n_params, c.unit_first[2] + c.n_params - c.unit_first[c.n_units - 1]);
    for (int k = 0; k < plan.n_params; k++)
        check_tensor(&plan, &plan.param[k]);
    check_units(&plan);
    check_parts(&plan, sp);
    ech_canon_fini(&c);
}

static void test_every_element_is_held(void **state)
{
    static const int heads[][2] = {{4, 4}, {8, 2}, {12, 3}, {12, 4}, {6, 1}};
    (void)state;
    for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
        for (int gpt = 0; gpt < 2; gpt++) {
            if (gpt && heads[h][0] != heads[h][1])
                continue;
            const ech_model m = model_of(gpt == 1, heads[h][0], heads[h][1], 17);
            for (int tp = 1; tp <= heads[h][0]; tp++)
                for (int shards = 1; shards <= 5 && heads[h][0] % tp == 0; shards += 2)
                    check_plan(&m, tp, tp > 1 && shards == 3, shards);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_groups),
        cmocka_unit_test(test_runs_of_straddling_heads),
        cmocka_unit_test(test_a_rank_that_holds_padding_alone),
        cmocka_unit_test(test_every_element_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
