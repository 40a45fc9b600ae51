/* RUN: np=1 timeout=20 tags=fast */
/* What a row leaves open is chosen among the layouts that it can mean: against a search by hand. */
#include "check.h"
#include "folder.h"
#include "plan/validate_private.h"

#include <math.h>

static const char *const HEAD =
    "id,model,layers,hidden,ffn,heads,kv_heads,vocab,experts,topk,seq,global_batch,micro_batch,"
    "gpus,"
    "gpu_type,interconnect,tp,pp,vpp,dp,cp,ep,zero_or_fsdp,recompute,precision,schedule,"
    "measured_kind,measured_value,software\n";

/* A row of a 7B model with these settings between its GPUs and its measurement. */
static ech_validation read_one(const char *batch, const char *layout, const char *measured)
{
    char text[2048];
    ech_validation v = {0};
    const int n = snprintf(text, sizeof text,
                           "%sx-1,Llama-7B,32,4096,11008,32,32,32000,,,4096,%s,8,H100,,%s,%s,"
                           "megatron-bridge\n",
                           HEAD, batch, layout, measured);
    assert_ok(ech_validation_read(scratch_write("one.csv", text, (size_t)n), &v));
    return v;
}

static ech_fit fit_of(const ech_published *p, const ech_point *point, ech_footprint *f)
{
    const char *binding;
    ech_footprint_of(&p->job, point, NULL, f);
    return ech_footprint_fit(&p->job, f, &binding);
}

/* micro-batch 1 .. 64 of 128 / 8 sequences: 1, 2, 4, 8, 16; each with the least recomputation that
 * fits; the fastest of them is taken, and told. */
static void test_micro_and_recompute(void **state)
{
    (void)state;
    ech_validation v = read_one("128,", "1,1,,8,1,1,zero1,,bf16,none", "iter_time_s,5");
    ech_published *p = &v.row[0];
    assert_true(p->asks_micro && p->asks_recompute && !p->asks_chunks);
    assert_ok(ech_validation_price(&v, NULL));
    assert_in_range(p->n_options, 1, 10);
    double fastest = INFINITY;
    int32_t last = 0;
    bool has_recompute = false, has_layers = false;
    ech_pricer *pricer = NULL;
    assert_ok(ech_pricer_create(&p->job, NULL, &pricer));
    for (int i = 0; i < p->n_options; i++) {
        ech_footprint f;
        ech_step_price step;
        ech_point none = p->option[i];
        none.recompute = 0;
        none.recompute_layers = 0;
        assert_true(p->option[i].micro >= last && 16 % p->option[i].micro == 0);
        last = p->option[i].micro;
        assert_int_not_equal(fit_of(p, &p->option[i], &f), ECH_FIT_NO);
        if (p->option[i].recompute) { /* none, or a layer less, did not fit */
            assert_int_equal(fit_of(p, &none, &f), ECH_FIT_NO);
            has_recompute = true;
        }
        if (p->option[i].recompute_layers > 1) {
            none = p->option[i];
            none.recompute_layers--;
            assert_int_equal(fit_of(p, &none, &f), ECH_FIT_NO);
            has_layers = true;
        }
        ech_pricer_step(pricer, &p->option[i], NULL, &step);
        fastest = fmin(fastest, step.step_s);
    }
    ech_pricer_destroy(&pricer);
    assert_true(has_recompute && has_layers); /* else the row tests nothing */
    assert_near(p->predicted_s, fastest, 0.0);
    assert_near(p->predicted, fastest, 0.0);
    char words[64];
    (void)snprintf(words, sizeof words, "micro-batch %d, recompute ", p->point.micro);
    assert_memory_equal(p->assumed, words, strlen(words));
    ech_validation_fini(&v);
}

/* Interleaved, chunks not said: 32 layers on 4 ranks: 2, 4, 8; (32 + 2) divides by none. */
static void test_chunks(void **state)
{
    (void)state;
    ech_validation v =
        read_one("128,1", "1,4,,2,1,1,zero1,full,bf16,interleaved-1f1b", "iter_time_s,5");
    ech_published *p = &v.row[0];
    assert_ok(ech_validation_price(&v, NULL));
    assert_int_equal(p->n_options, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(p->option[i].vpp, 2 << i);
        assert_int_equal(p->option[i].schedule, ECH_SCHEDULE_INTERLEAVED);
        assert_int_equal(p->option[i].split, ECH_SPLIT_EVEN);
    }
    assert_memory_equal(p->assumed, "vpp ", 4);
    ech_validation_fini(&v);
}

/* Nothing is open: the row's own layout, nothing assumed, also on the second call. */
static void test_all_said(void **state)
{
    (void)state;
    ech_validation v = read_one("128,1", "1,1,,8,1,1,zero1,full,bf16,none", "tokens_s_gpu,9000");
    ech_published *p = &v.row[0];
    assert_ok(ech_validation_price(&v, NULL));
    const double first = p->predicted;
    assert_int_equal(p->n_options, 1);
    assert_string_equal(p->assumed, "");
    assert_near(first, 128.0 * 4096 / (p->predicted_s * 8), 1e-9);
    assert_ok(ech_validation_price(&v, NULL));
    assert_near(p->predicted, first, 0.0);
    assert_int_equal(p->fit, ECH_FIT_YES);
    ech_validation_fini(&v);
}

/* Nothing fits (16 GPUs' worth of sequences in one micro-batch of 512): the least is taken. */
static void test_nothing_fits(void **state)
{
    (void)state;
    ech_validation v = read_one("4096,512", "1,1,,8,1,1,zero1,,bf16,none", "iter_time_s,5");
    ech_published *p = &v.row[0];
    assert_ok(ech_validation_price(&v, NULL));
    assert_int_equal(p->n_options, 1);
    assert_int_equal(p->fit, ECH_FIT_NO);
    assert_int_equal(p->point.recompute, ECH_RECOMPUTE_FULL);
    assert_int_equal(v.family[0].false_misfits, 1);
    ech_validation_fini(&v);
}

/* 100 sequences do not divide into 8 x 3. */
static void test_no_such_layout(void **state)
{
    (void)state;
    ech_validation v = read_one("100,3", "1,1,,8,1,1,zero1,full,bf16,none", "iter_time_s,5");
    assert_ok(ech_validation_price(&v, NULL));
    assert_non_null(strstr(v.row[0].skipped, "not a legal layout: "));
    assert_true(isnan(v.row[0].predicted));
    assert_int_equal(v.family[0].n_skipped, 1);
    ech_validation_fini(&v);
}

/* Memory: the figure that was measured, of the rank that is fullest. */
static void test_memory(void **state)
{
    (void)state;
    ech_footprint f;
    ech_validation v = read_one("128,1", "1,1,,8,1,1,zero1,full,bf16,none", "peak_mem_gib,60");
    ech_published *p = &v.row[0];
    assert_ok(ech_validation_price(&v, NULL));
    (void)fit_of(p, &p->point, &f);
    assert_near(p->predicted, f.reserved_bytes / 1073741824.0, 1e-9);
    p->is_allocated = true;
    assert_near(ech_published_gib(p, &f), f.allocated_bytes / 1073741824.0, 1e-9);
    p->is_part = true;
    assert_near(ech_published_gib(p, &f), f.stage[0].held[ECH_USE_SAVED] / 1073741824.0, 1e-9);
    assert_string_equal(v.family[0].name, "x-mem");
    ech_validation_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_and_recompute),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_all_said),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_no_such_layout),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
