/* RUN: np=1 timeout=30 tags=fast */
/* Round trips of all formats, what gets lost, and that nothing is lost silently. */
#include "exchange_case.h"

#include <stdlib.h>

static void round_trip(ech_format f, exchange_case *c, bool has_batch)
{
    ech_text text = {0};
    ech_findings lost = {0};
    exchange_read *r = calloc(1, sizeof *r);
    assert_non_null(r);
    exchange_emit(f, c, &text, &lost);
    exchange_count(&lost, 0);
    exchange_blank(r);
    r->job.model = &c->model;
    exchange_parse(f, ech_text_get(&text), r);
    exchange_same(c, r, ech_text_get(&text));
    if (has_batch)
        exchange_same_batch(c, r, ech_text_get(&text));
    exchange_release(r);
    free(r);
    ech_findings_fini(&lost);
    ech_text_fini(&text);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < ECH_N_FORMATS; i++) {
        ech_format f;
        assert_true(ech_format_read(ech_format_name((ech_format)i), &f));
        assert_int_equal(f, i);
    }
    ech_format f;
    assert_false(ech_format_read("megatron-lm", &f));
}

static void test_megatron_round_trips(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "llama-3.1-405b", 16384);
    c.job.seq = 8192;
    c.job.global_batch = 2048;
    c.job.tokens = 15.6e12;
    c.point = (ech_point){.tp = 8,
                          .pp = 16,
                          .vpp = 1,
                          .dp = 128,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .micro = 1,
                          .zero_stage = 1,
                          .split = ECH_SPLIT_ENDS,
                          .sequence_parallel = true,
                          .reshard_after_forward = true};
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
    c.point.vpp = 8; /* 128 = 16 * 8, embedding and head as a layer each */
    c.point.schedule = ECH_SCHEDULE_INTERLEAVED;
    c.point.recompute = ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ATTENTION;
    c.point.order = ECH_ORDER_TP_PP_DP;
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
    c.point.recompute = ECH_RECOMPUTE_FULL;
    c.point.recompute_layers = 1;
    c.point.cp = 2;
    c.point.cp_kind = ECH_CP_GATHER;
    c.point.dp = 64;
    c.point.zero_group = 64;
    c.job.precision = ECH_PRECISION_FP8;
    c.job.optimizer = ECH_OPTIMIZER_ADAMW_BF16;
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
    c.job.precision = ECH_PRECISION_MXFP8;
    c.job.grad_bytes = c.job.wire_bytes = 2;
    c.point.recompute_layers = 0;
    c.point.offload_optimizer = ECH_OFFLOAD_HOST;
    c.job.loss = ECH_LOSS_FUSED;
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
}

static void test_megatron_stages(void **state)
{
    (void)state;
    static const int layers[] = {7, 9, 9, 7};
    static const int chunks[] = {3, 5, 5, 4, 4, 5, 3, 3};
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "llama-2-7b", 4);
    c.point = (ech_point){.tp = 1,
                          .pp = 4,
                          .vpp = 1,
                          .dp = 1,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .micro = 1,
                          .split = ECH_SPLIT_LIST,
                          .stage_layers = layers,
                          .reshard_after_forward = true};
    ech_text text = {0};
    ech_findings lost = {0};
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
    exchange_emit(ECH_FORMAT_MEGATRON, &c, &text, &lost);
    assert_non_null(
        strstr(ech_text_get(&text), "--pipeline-model-parallel-layout \"Et*7|t*9|t*9|t*7L\""));
    c.point.vpp = 2;
    c.point.schedule = ECH_SCHEDULE_INTERLEAVED;
    c.point.stage_layers = chunks;
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
    c.point.split = ECH_SPLIT_EVEN;
    text.bytes = 0;
    exchange_emit(ECH_FORMAT_MEGATRON, &c, &text, &lost);
    assert_non_null(strstr(ech_text_get(&text), "--num-layers-per-virtual-pipeline-stage 4 "));
    exchange_count(&lost, 0);
    ech_findings_fini(&lost);
    ech_text_fini(&text);
}

static void test_experts_round_trip(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "mixtral-8x7b", 256);
    c.point = (ech_point){.tp = 4,
                          .pp = 4,
                          .vpp = 1,
                          .dp = 16,
                          .cp = 1,
                          .ep = 8,
                          .etp = 1,
                          .micro = 1,
                          .zero_stage = 1,
                          .split = ECH_SPLIT_EVEN,
                          .sequence_parallel = true,
                          .reshard_after_forward = true};
    c.job.moe_capacity = 1.25;
    round_trip(ECH_FORMAT_MEGATRON, &c, true);
    c.job.system = ECH_SYSTEM_ECHELON;
    round_trip(ECH_FORMAT_ECHELON, &c, true);
    c = exchange_make(ECH_SYSTEM_TORCHTITAN, "qwen3-30b-a3b", 32);
    c.job.global_batch = 32;
    c.point.dp = 32;
    c.point.ep = 8;
    c.point.zero_stage = 3;
    c.point.reduce_each = true;
    round_trip(ECH_FORMAT_TORCHTITAN, &c, true);
}

static void test_deepspeed_round_trips(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_DEEPSPEED, "llama-2-13b", 64);
    for (int stage = 0; stage <= 3; stage++) {
        c.point.zero_stage = stage;
        c.point.reduce_each = stage >= 2;
        c.point.micro = 2;
        c.job.seq = 4096;
        ech_text text = {0};
        ech_findings lost = {0};
        exchange_read *r = calloc(1, sizeof *r);
        assert_non_null(r);
        exchange_emit(ECH_FORMAT_DEEPSPEED, &c, &text, &lost);
        exchange_count(&lost, 1);
        exchange_says(&lost, "deepspeed: seq 4096 is not in it");
        exchange_blank(r);
        exchange_parse(ECH_FORMAT_DEEPSPEED, ech_text_get(&text), r);
        exchange_same(&c, r, ech_text_get(&text));
        assert_int_equal(r->job.global_batch, 1024);
        assert_int_equal(r->point.micro, 2);
        assert_int_equal(r->job.beside.reduce_bucket_elems, 500000000);
        exchange_release(r);
        free(r);
        ech_findings_fini(&lost);
        ech_text_fini(&text);
    }
}

/* Ulysses' degree is in the file, so that its ranks are told right and it reads back. */
static void test_deepspeed_has_ulysses(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_DEEPSPEED, "llama-2-13b", 16);
    ech_text text = {0};
    ech_findings lost = {0};
    exchange_read *r = calloc(1, sizeof *r);
    assert_non_null(r);
    c.point.dp = c.point.cp = 4;
    c.point.cp_kind = ECH_CP_ULYSSES;
    c.point.zero_stage = 3;
    c.point.reduce_each = true;
    c.point.micro = 2;
    c.job.global_batch = 64;
    exchange_emit(ECH_FORMAT_DEEPSPEED, &c, &text, &lost);
    assert_non_null(strstr(ech_text_get(&text), "\"sequence_parallel_size\": 4"));
    assert_null(strstr(ech_text_get(&lost.text), "cp"));
    exchange_blank(r);
    r->job.gpus = 16;
    exchange_parse(ECH_FORMAT_DEEPSPEED, ech_text_get(&text), r);
    assert_int_equal(r->point.cp, 4);
    assert_int_equal(r->point.cp_kind, ECH_CP_ULYSSES);
    assert_int_equal(r->point.dp, 4);
    assert_int_equal(r->job.gpus, 16);
    exchange_release(r);
    free(r);
    ech_findings_fini(&lost);
    ech_text_fini(&text);
}

static void test_torchtitan_round_trips(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_TORCHTITAN, "llama-3.1-70b", 512);
    c.job.seq = 8192;
    c.job.global_batch = 512;
    c.job.tokens = 512.0 * 8192 * 1000;
    c.point.tp = 8;
    c.point.dp = 64;
    c.point.zero_stage = 3;
    c.point.zero_group = 32;
    c.point.sequence_parallel = true;
    c.point.reduce_each = true;
    c.point.micro = 2;
    c.point.recompute = ECH_RECOMPUTE_FULL;
    round_trip(ECH_FORMAT_TORCHTITAN, &c, true);
    c.point.recompute_layers = 40; /* every second of 80 */
    c.job.is_compiled = true;
    c.job.precision = ECH_PRECISION_FP8;
    round_trip(ECH_FORMAT_TORCHTITAN, &c, true);
    c.point.pp = 8;
    c.point.vpp = 2;
    c.point.schedule = ECH_SCHEDULE_INTERLEAVED;
    c.point.split = ECH_SPLIT_EVEN;
    c.point.dp = 8;
    c.point.zero_group = 0;
    c.point.reshard_after_forward = false;
    c.point.reduce_each = false;
    c.point.recompute = ECH_RECOMPUTE_OPS;
    c.point.recompute_layers = 0;
    round_trip(ECH_FORMAT_TORCHTITAN, &c, true);
    c.point.split = ECH_SPLIT_BALANCED; /* as a list of modules */
    round_trip(ECH_FORMAT_TORCHTITAN, &c, true);
    c.point.pp = 4;
    c.point.vpp = 1;
    c.point.schedule = ECH_SCHEDULE_GPIPE;
    c.point.cp = 2;
    c.point.cp_kind = ECH_CP_GATHER;
    c.point.recompute = 0;
    c.point.offload_optimizer = c.point.offload_params = ECH_OFFLOAD_HOST;
    round_trip(ECH_FORMAT_TORCHTITAN, &c, true);
}

static void test_accelerate_round_trips(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_FSDP2, "llama-3-8b", 16);
    c.point.zero_stage = 3;
    for (int i = 0; i < 4; i++) {
        ech_text text = {0};
        ech_findings lost = {0};
        exchange_read *r = calloc(1, sizeof *r);
        assert_non_null(r);
        c.point.reshard_after_forward = i != 1;
        c.point.recompute = i == 1 ? ECH_RECOMPUTE_FULL : 0;
        c.point.zero_group = i == 2 ? 8 : 0;
        c.point.tp = i == 3 ? 4 : 1;
        c.point.dp = 16 / c.point.tp;
        c.point.sequence_parallel = c.point.tp > 1;
        c.point.offload_params = c.point.offload_optimizer =
            i == 2 ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
        c.job.is_compiled = i == 3;
        exchange_emit(ECH_FORMAT_ACCELERATE, &c, &text, &lost);
        exchange_count(&lost, 3);
        exchange_says(&lost, "accelerate: seq 2048 is not in it");
        exchange_says(&lost, "accelerate: global batch 1024 is not in it");
        exchange_says(&lost, "accelerate: micro-batch 1 is not in it");
        exchange_blank(r);
        exchange_parse(ECH_FORMAT_ACCELERATE, ech_text_get(&text), r);
        exchange_same(&c, r, ech_text_get(&text));
        exchange_release(r);
        free(r);
        ech_findings_fini(&lost);
        ech_text_fini(&text);
    }
}

static void test_echelon_round_trips(void **state)
{
    (void)state;
    static const int layers[] = {10, 12, 10};
    exchange_case c = exchange_make(ECH_SYSTEM_ECHELON, "llama-2-7b", 96);
    c.job.precision = ECH_PRECISION_FP32;
    c.job.has_master = false;
    c.point = (ech_point){.tp = 2,
                          .pp = 3,
                          .vpp = 1,
                          .dp = 16,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .micro = 4,
                          .zero_stage = 3,
                          .zero_group = 8,
                          .split = ECH_SPLIT_LIST,
                          .stage_layers = layers,
                          .sequence_parallel = true,
                          .reduce_each = true,
                          .recompute = ECH_RECOMPUTE_FULL,
                          .recompute_layers = 3,
                          .order = ECH_ORDER_DP_TP_PP};
    round_trip(ECH_FORMAT_ECHELON, &c, true);
    c.job.precision = ECH_PRECISION_BF16; /* not built yet: can be said all the same */
    c.job.has_master = true;
    c.job.wire_bytes = 2;
    c.point.split = ECH_SPLIT_BALANCED;
    c.point.schedule = ECH_SCHEDULE_ZB_V;
    c.point.vpp = 2;
    c.point.recompute = ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT;
    c.point.recompute_layers = 0;
    c.point.offload_optimizer = ECH_OFFLOAD_NVME;
    c.point.offload_activations = ECH_OFFLOAD_HOST;
    c.job.loss = ECH_LOSS_CHUNKED;
    c.job.loss_chunk = 1024;
    c.job.optimizer = ECH_OPTIMIZER_ADAMW_8BIT;
    round_trip(ECH_FORMAT_ECHELON, &c, true);
    exchange_case words = c;
    assert_ok(ech_model_load("layers=12,hidden=768,heads=12,ffn=3072,vocab=50304,arch=gpt",
                             &words.model));
    words.point = ech_point_default();
    words.point.dp = 96;
    words.job.global_batch = 96;
    round_trip(ECH_FORMAT_ECHELON, &words, true);
    c.model.hidden = 4224; /* no preset any more: written out */
    c.model.ffn = 11264;
    c.model.head_dim = 132;
    round_trip(ECH_FORMAT_ECHELON, &c, true);
}

/* What a format has no word for is told, each thing by its name. */
static void test_lost_things_are_told(void **state)
{
    (void)state;
    ech_text text = {0};
    ech_findings lost = {0};
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "llama-2-7b", 8);
    c.point.dp = 8;
    c.point.recompute = ECH_RECOMPUTE_ACT | ECH_RECOMPUTE_NORM;
    c.point.order = ECH_ORDER_DP_TP_PP;
    c.job.loss = ECH_LOSS_CHUNKED;
    c.job.loss_chunk = 512;
    exchange_emit(ECH_FORMAT_MEGATRON, &c, &text, &lost);
    exchange_says(&lost, "megatron: recomputation is norm,act here and would be norm there");
    exchange_says(&lost, "megatron: order is dp-tp-cp-pp here and would be tp-cp-dp-pp there");
    exchange_says(&lost, "megatron: loss is chunked here and would be default there");
    exchange_says(&lost, "megatron: loss chunk 512 is not in it");
    exchange_count(&lost, 4);
    ech_findings_fini(&lost);
    lost = (ech_findings){0};
    c = exchange_make(ECH_SYSTEM_ECHELON, "gemma-2-9b", 8);
    c.job.grad_bytes = c.job.wire_bytes = 4;
    exchange_emit(ECH_FORMAT_MEGATRON, &c, &text, &lost);
    exchange_says(&lost, "megatron: system is echelon here and would be megatron there");
    exchange_says(&lost, "the model gemma-2-9b is not all in it: norms would be others there");
    exchange_says(&lost, "megatron: the gate's gelu is x sigmoid(1.702 x) there");
    exchange_count(&lost, 3);
    ech_findings_fini(&lost);
    ech_text_fini(&text);
}

static void refused(ech_format f, const exchange_case *c, const char *words)
{
    exchange_case copy = *c;
    ech_text text = {0};
    ech_findings lost = {0};
    copy.job.model = &copy.model;
    assert_fails(ech_format_emit(f, &copy.job, &copy.point, &text, &lost), ECH_E_UNSUPPORTED,
                 words);
    assert_int_equal(text.bytes, 0);
    ech_findings_fini(&lost);
    ech_text_fini(&text);
}

static void test_what_a_system_cannot_do_is_refused(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "llama-2-7b", 8);
    c.point.pp = 4;
    c.point.dp = 2;
    refused(ECH_FORMAT_DEEPSPEED, &c, "deepspeed: pp 4");
    refused(ECH_FORMAT_ACCELERATE, &c, "accelerate: pp 4");
    c.point.schedule = ECH_SCHEDULE_ZB_H1;
    refused(ECH_FORMAT_MEGATRON, &c, "megatron: schedule zb-h1");
    refused(ECH_FORMAT_TORCHTITAN, &c, "torchtitan: schedule zb-h1");
    c.point.zero_stage = 1;
    refused(ECH_FORMAT_TORCHTITAN, &c, "torchtitan: zero stage 1");
    c.point.pp = 1;
    c.job.tuning = ECH_TUNING_LORA;
    refused(ECH_FORMAT_MEGATRON, &c, "megatron: frozen weights");
    refused(ECH_FORMAT_ECHELON, &c, "echelon: frozen weights");
    c.job.precision = ECH_PRECISION_FP8;
    refused(ECH_FORMAT_DEEPSPEED, &c, "deepspeed: precision fp8");
}

/* Every preset through Megatron's arguments: the same count of parameters, or a finding. */
static void test_shapes_keep_their_parameters(void **state)
{
    (void)state;
    size_t n;
    int exact = 0;
    const char *const *names = ech_model_presets(&n);
    for (size_t i = 0; i < n; i++) {
        ech_text text = {0};
        ech_findings lost = {0};
        ech_param_count want;
        ech_param_count got;
        exchange_read *r = calloc(1, sizeof *r);
        assert_non_null(r);
        exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, names[i], 8);
        exchange_emit(ECH_FORMAT_MEGATRON, &c, &text, &lost);
        exchange_blank(r);
        exchange_parse(ECH_FORMAT_MEGATRON, ech_text_get(&text), r);
        assert_true(r->into.has_model);
        assert_ptr_equal(r->job.model, &r->model);
        assert_ok(ech_model_count(&c.model, &want));
        assert_ok(ech_model_count(&r->model, &got));
        if (want.total != got.total && lost.n == 0)
            fail_msg("%s: %lld parameters became %lld and nothing was said", names[i],
                     (long long)want.total, (long long)got.total);
        exact += want.total == got.total;
        exchange_release(r);
        free(r);
        ech_findings_fini(&lost);
        ech_text_fini(&text);
    }
    if (exact < 60)
        fail_msg("%d of %zu presets keep their parameters, wanted at least 60", exact, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_megatron_round_trips),
        cmocka_unit_test(test_megatron_stages),
        cmocka_unit_test(test_experts_round_trip),
        cmocka_unit_test(test_deepspeed_round_trips),
        cmocka_unit_test(test_deepspeed_has_ulysses),
        cmocka_unit_test(test_torchtitan_round_trips),
        cmocka_unit_test(test_accelerate_round_trips),
        cmocka_unit_test(test_echelon_round_trips),
        cmocka_unit_test(test_lost_things_are_told),
        cmocka_unit_test(test_what_a_system_cannot_do_is_refused),
        cmocka_unit_test(test_shapes_keep_their_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
