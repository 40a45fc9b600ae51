/* RUN: np=1 timeout=20 tags=fast */
/* Layouts that a search might find, emitted in every format.  With a folder as argument they are
 * written there with the values that the systems' own parsers should find in them: see
 * test_accept_emitted.py. */
#include "exchange_case.h"

#include <stdlib.h>

/* Values by plain names, for the script: of the case, not of the text. */
static void expected(const exchange_case *c, ech_text *out)
{
    const ech_job *j = &c->job;
    const ech_point *p = &c->point;
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"gpus", j->gpus},
                   {"seq", j->seq},
                   {"global", j->global_batch},
                   {"grad_bytes", j->grad_bytes},
                   {"compiled", j->is_compiled},
                   {"tp", p->tp},
                   {"pp", p->pp},
                   {"vpp", p->vpp},
                   {"dp", p->dp},
                   {"cp", p->cp},
                   {"ep", p->ep},
                   {"etp", p->etp},
                   {"zero", p->zero_stage},
                   {"group", ech_point_shard_group(p)},
                   {"micro", p->micro},
                   {"micros", ech_point_micros(j, p)},
                   {"recompute", p->recompute},
                   {"recompute_layers", p->recompute_layers},
                   {"sp", p->sequence_parallel},
                   {"reshard", p->reshard_after_forward},
                   {"offload_optimizer", p->offload_optimizer},
                   {"offload_params", p->offload_params},
                   {"layers", c->model.layers},
                   {"hidden", c->model.hidden},
                   {"heads", c->model.heads},
                   {"kv_heads", c->model.kv_heads},
                   {"ffn", c->model.ffn},
                   {"experts", c->model.moe.experts}};
    ech_text_add(out, "{");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ech_text_add(out, "\"%s\": %lld, ", numbers[i].key, (long long)numbers[i].value);
    ech_text_add(out, "\"schedule\": \"%s\", \"precision\": \"%s\", \"optimizer\": \"%s\"}\n",
                 ech_schedule_name(p->schedule), ech_precision_name(j->precision),
                 ech_optimizer_name(j->optimizer));
}

static const char *folder;

static void write_file(const char *name, const char *extension, const ech_text *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.%s", folder, name, extension);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(ech_text_get(text), 1, text->bytes, f), text->bytes);
    assert_int_equal(fclose(f), 0);
}

static void emit(ech_format f, const char *name, exchange_case *c)
{
    static const char *const extensions[] = {"sh", "json", "toml", "yaml", "yaml"};
    ech_text text = {0};
    ech_text values = {0};
    ech_findings lost = {0};
    char file[128];
    c->job.model = &c->model;
    ech_cluster_rebind(&c->cluster);
    c->job.cluster = &c->cluster;
    if (!ech_point_is_legal(&c->job, &c->point, &lost))
        fail_msg("%s: %s", name, ech_text_get(&lost.text));
    exchange_emit(f, c, &text, &lost);
    if (folder) {
        (void)snprintf(file, sizeof file, "%s-%s", ech_format_name(f), name);
        write_file(file, extensions[f], &text);
        expected(c, &values);
        write_file(file, "want", &values);
    }
    ech_findings_fini(&lost);
    ech_text_fini(&values);
    ech_text_fini(&text);
}

static void test_megatron(void **state)
{
    (void)state;
    static const int layers[] = {7, 9, 9, 7};
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "llama-2-7b", 8);
    emit(ECH_FORMAT_MEGATRON, "plain", &c);
    c.point.zero_stage = 1;
    c.point.recompute = ECH_RECOMPUTE_FULL;
    c.point.offload_optimizer = ECH_OFFLOAD_HOST;
    emit(ECH_FORMAT_MEGATRON, "offload", &c);
    c.point = ech_point_default();
    c.point.pp = 4;
    c.point.dp = 2;
    c.point.split = ECH_SPLIT_LIST;
    c.point.stage_layers = layers;
    emit(ECH_FORMAT_MEGATRON, "uneven", &c);
    c = exchange_make(ECH_SYSTEM_MEGATRON, "gpt3-175b", 1024);
    c.point.tp = 8;
    c.point.pp = 8;
    c.point.vpp = 2;
    c.point.schedule = ECH_SCHEDULE_INTERLEAVED;
    c.point.split = ECH_SPLIT_EVEN;
    c.point.dp = 16;
    c.point.zero_stage = 1;
    c.point.sequence_parallel = true;
    c.point.recompute = ECH_RECOMPUTE_ATTENTION;
    emit(ECH_FORMAT_MEGATRON, "175b", &c);
    c = exchange_make(ECH_SYSTEM_MEGATRON, "llama-3.1-405b", 16384);
    c.job.seq = 8192;
    c.job.global_batch = 2048;
    c.point.tp = 8;
    c.point.pp = 16;
    c.point.vpp = 8;
    c.point.schedule = ECH_SCHEDULE_INTERLEAVED;
    c.point.split = ECH_SPLIT_ENDS;
    c.point.dp = 128;
    c.point.zero_stage = 1;
    c.point.zero_group = 64;
    c.point.sequence_parallel = true;
    c.point.recompute = ECH_RECOMPUTE_FULL;
    c.point.recompute_layers = 1;
    emit(ECH_FORMAT_MEGATRON, "405b", &c);
    c.job.seq = 131072;
    c.job.global_batch = 128;
    c.point.cp = 16;
    c.point.cp_kind = ECH_CP_GATHER;
    c.point.dp = 8;
    c.point.zero_group = 0;
    emit(ECH_FORMAT_MEGATRON, "405b-long", &c);
}

static void test_megatron_experts(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_MEGATRON, "mixtral-8x22b", 256);
    c.job.seq = 4096;
    c.point.tp = 4;
    c.point.pp = 4;
    c.point.dp = 16;
    c.point.ep = 8;
    c.point.split = ECH_SPLIT_EVEN;
    c.point.zero_stage = 1;
    c.point.sequence_parallel = true;
    emit(ECH_FORMAT_MEGATRON, "experts", &c);
    c = exchange_make(ECH_SYSTEM_MEGATRON, "deepseek-v3", 2048);
    c.job.seq = 4096;
    c.job.global_batch = 8192;
    c.point.tp = 2;
    c.point.pp = 16;
    c.point.dp = 64;
    c.point.ep = 64;
    c.point.zero_stage = 1;
    c.point.sequence_parallel = true;
    c.point.recompute = ECH_RECOMPUTE_MOE | ECH_RECOMPUTE_MLA | ECH_RECOMPUTE_NORM;
    emit(ECH_FORMAT_MEGATRON, "deepseek", &c);
}

static void test_deepspeed(void **state)
{
    (void)state;
    static const char *const names[] = {"zero0", "zero1", "zero2", "zero3"};
    exchange_case c = exchange_make(ECH_SYSTEM_DEEPSPEED, "llama-2-7b", 64);
    for (int stage = 0; stage <= 3; stage++) {
        c.point.zero_stage = stage;
        c.point.reduce_each = stage >= 2;
        c.point.micro = 1 << stage;
        c.point.recompute = stage > 1 ? ECH_RECOMPUTE_FULL : 0;
        c.point.offload_optimizer = stage == 2 ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
        c.point.offload_params = stage == 3 ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
        emit(ECH_FORMAT_DEEPSPEED, names[stage], &c);
    }
}

static void test_torchtitan(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_TORCHTITAN, "llama-3.1-8b", 64);
    c.job.seq = 8192;
    c.point.zero_stage = 3;
    c.point.micro = 2;
    c.point.reduce_each = true;
    c.point.recompute = ECH_RECOMPUTE_OPS;
    c.job.is_compiled = true;
    emit(ECH_FORMAT_TORCHTITAN, "8b", &c);
    c.point.zero_group = 8;
    c.point.recompute = ECH_RECOMPUTE_FULL;
    c.job.precision = ECH_PRECISION_FP8;
    emit(ECH_FORMAT_TORCHTITAN, "8b-hsdp", &c);
    c = exchange_make(ECH_SYSTEM_TORCHTITAN, "llama-3.1-405b", 512);
    c.job.seq = 8192;
    c.job.global_batch = 512;
    c.point.tp = 8;
    c.point.pp = 8;
    c.point.vpp = 2;
    c.point.dp = 8;
    c.point.schedule = ECH_SCHEDULE_INTERLEAVED;
    c.point.zero_stage = 3;
    c.point.sequence_parallel = true;
    c.point.reshard_after_forward = false;
    emit(ECH_FORMAT_TORCHTITAN, "405b", &c);
}

static void test_accelerate(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_FSDP2, "llama-3-8b", 16);
    c.point.zero_stage = 3;
    c.point.recompute = ECH_RECOMPUTE_FULL;
    emit(ECH_FORMAT_ACCELERATE, "full", &c);
    c.point.zero_group = 8;
    c.point.reshard_after_forward = false;
    c.point.offload_params = c.point.offload_optimizer = ECH_OFFLOAD_HOST;
    emit(ECH_FORMAT_ACCELERATE, "hybrid", &c);
    c = exchange_make(ECH_SYSTEM_FSDP2, "llama-3-8b", 32);
    c.point.zero_stage = 3;
    c.point.tp = 4;
    c.point.dp = 8;
    c.point.sequence_parallel = true;
    emit(ECH_FORMAT_ACCELERATE, "tp", &c);
}

static void test_echelon(void **state)
{
    (void)state;
    exchange_case c = exchange_make(ECH_SYSTEM_ECHELON, "llama-3.2-1b", 16);
    c.job.precision = ECH_PRECISION_FP32;
    c.job.has_master = false;
    c.point.tp = 2;
    c.point.pp = 2;
    c.point.dp = 4;
    c.point.zero_stage = 2;
    c.point.sequence_parallel = true;
    emit(ECH_FORMAT_ECHELON, "built", &c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_megatron),   cmocka_unit_test(test_megatron_experts),
        cmocka_unit_test(test_deepspeed),  cmocka_unit_test(test_torchtitan),
        cmocka_unit_test(test_accelerate), cmocka_unit_test(test_echelon),
    };
    folder = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
