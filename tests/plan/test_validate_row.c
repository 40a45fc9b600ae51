/* RUN: np=1 timeout=20 tags=fast */
/* Published rows of all families as jobs: every field that a row decides, and the same jobs from notes
 * as from columns. */
#include "check.h"
#include "folder.h"
#include "plan/validate_private.h"

#include <math.h>
#include <stdlib.h>

static ech_validation notes, columns;

static const char *fixture(const char *name)
{
    static char path[512];
    const char *source = getenv("ECH_SOURCE");
    (void)snprintf(path, sizeof path, "%s/tests/plan/fixtures/%s", source ? source : ".", name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    assert_ok(ech_validation_read(fixture("notes.csv"), &notes));
    assert_ok(ech_validation_read(fixture("columns.csv"), &columns));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ech_validation_fini(&notes);
    ech_validation_fini(&columns);
    return 0;
}

static const ech_published *row(const char *id)
{
    for (int i = 0; i < notes.n; i++)
        if (strcmp(notes.row[i].id, id) == 0)
            return &notes.row[i];
    fail_msg("no row %s", id);
    return NULL;
}

/* A layout in words, which say all of it that is not usual. */
static void assert_layout(const char *id, const char *wanted)
{
    ech_text words = {0};
    ech_point_print(&row(id)->point, &words);
    assert_string_equal(ech_text_get(&words), wanted);
    ech_text_fini(&words);
}

static void test_layouts(void **state)
{
    (void)state;
    assert_layout("narayanan-t1-006",
                  "--dp 32 --tp 8 --pp 4 --vpp 3 --schedule interleaved --split "
                  "even --micro 2 --recompute full");
    assert_layout("narayanan-t2-002", "--dp 768 --zero 3 --reduce-each --micro 2 --recompute full");
    assert_layout("korthikanti-mfu-003",
                  "--dp 1 --tp 8 --sp --pp 35 --vpp 3 --schedule interleaved "
                  "--split even --micro 1 --recompute attention");
    assert_layout("llmfoundry-015", "--dp 128 --zero 3 --no-reshard --reduce-each --micro 8");
    assert_layout("bloom-111", "--dp 8 --tp 4 --pp 12 --split ends --zero 1 --micro 2 --recompute "
                               "full");
    assert_layout("mbridge-020",
                  "--dp 64 --pp 4 --vpp 4 --ep 64 --schedule interleaved --zero 1 --micro 1");
    assert_layout("simumax-075", "--dp 1 --cp 8 --cp-kind ulysses --zero 1 --micro 1");
    assert_layout("titan-001", "--dp 8 --zero 3 --micro 2 --recompute ops");
    assert_layout("titan-023", "--dp 32 --tp 8 --sp --zero 3 --micro 16 --recompute full");
    assert_layout("titan-028",
                  "--dp 8 --tp 8 --sp --pp 8 --schedule interleaved --split ends --zero "
                  "3 --no-reshard --micro 1 --recompute full");
    assert_layout("internevo-016", "--dp 1024 --zero 1 --zero-group 8 --micro 2");
}

/* What a source prints for dp may leave out cp and ep, or slip. */
static void test_dp_is_what_the_gpus_leave(void **state)
{
    (void)state;
    assert_int_equal(row("bloom-037")->point.dp, 4);         /* prints 8 of 320 = 8 * 10 * 4 */
    assert_int_equal(row("dgxc-066")->point.dp, 8);          /* prints 1, with cp 2 and ep 8 */
    assert_int_equal(row("nemo-longseq-015")->point.dp, 16); /* prints 4 of 256 = 4 * 4 * 16 */
    assert_int_equal(row("colossal-005")->point.dp, 1);      /* prints 2 of 8 = 2 * 4 */
    assert_int_equal(ech_point_micros(&row("dgxc-066")->job, &row("dgxc-066")->point), 128);
}

static void test_shapes(void **state)
{
    (void)state;
    const ech_model *mpt = &row("llmfoundry-015")->model;
    ech_param_count c;
    assert_ok(ech_model_count(mpt, &c));
    assert_near((double)c.total / 1e9, 2.65184, 1e-5); /* as its source counts */
    assert_int_equal(mpt->context, 2048);
    assert_ok(ech_model_count(&row("titan-001")->model, &c));
    assert_near((double)c.total / 1e9, 8.03, 0.005);
    const ech_model *v3 = &row("simumax-016")->model;
    assert_int_equal(v3->layers, 4);
    assert_int_equal(v3->moe.first_dense, 1); /* 3 of 61, of 4 layers: at least one */
    assert_int_equal(v3->moe.expert_ffn, 2048);
    assert_int_equal(v3->ffn, 18432);
    assert_int_equal(v3->mla.kv_lora_rank, 512);
    assert_int_equal(row("mbridge-020")->model.moe.first_dense, 3);
    const ech_model *grok = &row("dgxc-066")->model;
    assert_int_equal(grok->layers, 8);
    assert_int_equal(grok->moe.experts, 8);
    assert_int_equal(grok->moe.expert_ffn, 32768);
    assert_true(row("dgxc-066")->is_moe && !row("dgxc-159")->is_moe);
    assert_false(
        row("mcore-h100-005")->model.tie_embeddings); /* 69.8 rounds to 70, 68.8 does not */
    assert_true(row("narayanan-t1-006")->model.tie_embeddings);
}

/* (200e9 - V h) / 12 h^2 = 78.9 layers, as a multiple of 4 stages 80; 64 heads, as its software has. */
static void test_what_is_filled_in(void **state)
{
    (void)state;
    const ech_published *p = row("bloom-001");
    assert_int_equal(p->model.layers, 80);
    assert_int_equal(p->model.heads, 64);
    assert_string_equal(p->assumed, "80 layers, 64 heads");
    assert_string_equal(row("bloom-111")->assumed, "");
    assert_string_equal(row("colossal-005")->assumed, "shape of llama-2-7b, recompute full");
    assert_false(row("colossal-005")->asks_recompute); /* its FLOP/s count recomputation */
    assert_int_equal(row("colossal-005")->model.ffn, 11008);
    assert_true(row("mcore-h100-005")->asks_micro && row("mcore-h100-005")->asks_chunks &&
                row("mcore-h100-005")->asks_recompute);
    assert_true(row("titan-028")->asks_micro && row("titan-028")->asks_chunks);
    assert_false(row("titan-028")->asks_recompute);
    assert_false(row("simumax-075")->asks_recompute); /* off in the names of its cases */
    assert_true(row("dgxc-159")->asks_recompute);
}

static void test_machines(void **state)
{
    (void)state;
    const struct {
        const char *id, *device;
        double share, port; /* GB/s of a GPU into the network */
    } wanted[] = {
        {"narayanan-t1-006", "a100-sxm-80", 25.0, 25.0}, /* 8 x 200 Gb for 8 GPUs */
        {"bloom-001", "a100-sxm-80", 6.25, 12.5},        /* 4 x 100 Gb */
        {"internevo-016", "a100-sxm-80", 6.25, 12.5},
        {"vtrain-multi-022", "a100-sxm-80", 12.5, 25.0}, /* 800 Gb a node: 4 x 200 */
        {"llmfoundry-139", "a100-sxm-40", 25.0, 25.0},   /* 1600 Gb a node: 8 x 200 */
        {"titan-001", "h100-sxm-96", 50.0, 50.0},        /* 400 Gb a GPU */
        {"llmfoundry-015", "h100-sxm-80", 0.0, 0.0},     /* not stated: the catalogue's */
        {"mbridge-020", "gb200", 0.0, 0.0},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ech_cluster *c = &row(wanted[i].id)->cluster;
        const ech_link_level *l = &c->level[ech_cluster_level_of(c, 2 * c->devices_per_node)];
        assert_string_equal(c->device.name, wanted[i].device);
        if (wanted[i].share > 0.0) {
            assert_near(l->bytes_per_s, wanted[i].share * 1e9, 1.0);
            assert_near(l->alone_bytes_per_s, wanted[i].port * 1e9, 1.0);
        }
    }
}

static void test_software(void **state)
{
    (void)state;
    const struct {
        const char *id;
        ech_system system;
        ech_generation generation;
        int grads, wire;
        ech_precision precision;
    } wanted[] = {
        {"narayanan-t1-006", ECH_SYSTEM_MEGATRON, ECH_GENERATION_MEGATRON_2021, 2, 2,
         ECH_PRECISION_FP16},
        {"narayanan-t2-002", ECH_SYSTEM_DEEPSPEED, ECH_GENERATION_MEGATRON_2021, 2, 2,
         ECH_PRECISION_FP16},
        {"bloom-001", ECH_SYSTEM_DEEPSPEED, ECH_GENERATION_MEGATRON_2021, 2, 2, ECH_PRECISION_FP16},
        {"llmfoundry-015", ECH_SYSTEM_FSDP2, ECH_GENERATION_FSDP1, 4, 4, ECH_PRECISION_BF16},
        {"llmfoundry-139", ECH_SYSTEM_FSDP2, ECH_GENERATION_FSDP1, 4, 2, ECH_PRECISION_BF16},
        {"mcore-h100-005", ECH_SYSTEM_MEGATRON, ECH_GENERATION_NEMO_24, 4, 4, ECH_PRECISION_BF16},
        {"mbridge-020", ECH_SYSTEM_MEGATRON, ECH_GENERATION_MCORE_14, 2, 2, ECH_PRECISION_MXFP8},
        {"mbridge-077", ECH_SYSTEM_FSDP2, ECH_GENERATION_MCORE_14, 2, 2, ECH_PRECISION_FP8},
        {"dgxc-159", ECH_SYSTEM_FSDP2, ECH_GENERATION_FSDP2_COMPILE, 4, 4, ECH_PRECISION_BF16},
        {"titan-023", ECH_SYSTEM_TORCHTITAN, ECH_GENERATION_FSDP2_COMPILE, 4, 4, ECH_PRECISION_FP8},
        {"internevo-016", ECH_SYSTEM_MEGATRON, ECH_GENERATION_MEGATRON_FLASH, 2, 2,
         ECH_PRECISION_BF16},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ech_job *j = &row(wanted[i].id)->job;
        assert_int_equal(j->system, wanted[i].system);
        assert_int_equal(j->generation, wanted[i].generation);
        assert_int_equal(j->grad_bytes, wanted[i].grads);
        assert_int_equal(j->wire_bytes, wanted[i].wire);
        assert_int_equal(j->precision, wanted[i].precision);
    }
    assert_false(row("titan-001")->job.is_compiled);
    assert_true(row("titan-023")->job.is_compiled);
    assert_int_equal(row("titan-023")->job.overlap, ECH_OVERLAP_ASYNC_TP);
    assert_int_equal(row("simumax-075")->job.overlap, ECH_OVERLAP_NONE);
    assert_int_equal(row("nemo-h100-ft-006")->job.tuning, ECH_TUNING_LORA);
    assert_near(row("mbridge-277")->job.moe_capacity, 1.0, 0.0); /* tokendrop */
    assert_int_equal(row("llmfoundry-015")->job.loss, ECH_LOSS_FUSED);
}

/* Seconds from each unit, by formulas of their own. */
static void test_units(void **state)
{
    (void)state;
    const double b = 1792, s = 2048, l = 60, h = 10240, v = 51200;
    const double hardware = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
    assert_near(row("narayanan-t1-006")->measured_s, hardware / (140e12 * 1024), 1e-9);
    /* 72 form, at 312 TFLOP/s; the paper's time of the same run is 37.83 s */
    assert_near(row("korthikanti-mfu-003")->measured_s, 37.83, 0.05);
    assert_near(row("titan-001")->measured_s, 16.0 * 8192 / (5762.0 * 8), 1e-12);
    assert_near(row("dgxc-159")->measured_s, 7.153, 0.0);
    /* 17.13 etc. samples a second agree with this convention: 25.83 of 256 */
    assert_near(row("colossal-005")->measured_s, 256 / 25.83, 0.01);
    /* 6 N + 12 L s h a token, N with the head: 96 GPUs' worth of a table */
    const double n = 84.0 * 12 * 8192 * 8192 + 131072.0 * 8192;
    const double model = 6 * n + 12 * 84.0 * 4096 * 8192;
    assert_near(row("mcore-h100-005")->measured_s, 384.0 * 4096 * model / (419.7e12 * 768), 1e-6);
    assert_true(isnan(row("titan-028")->measured_s));
    assert_near(ech_published_seconds(row("titan-001"), row("titan-001")->measured_s), 5762, 1e-9);
}

static void test_memory_and_families(void **state)
{
    (void)state;
    assert_true(row("simumax-016")->is_allocated && !row("titan-028")->is_allocated);
    assert_true(row("korthikanti-mem-003")->is_part);
    assert_true(row("bloom-oom-001")->is_over);
    assert_near(row("bloom-oom-001")->measured, 80.0, 0.0);
    assert_string_equal(row("nemo-h100-ft-006")->family, "nemo-h100-ft");
    assert_string_equal(row("bloom-oom-001")->family, "bloom-oom");
    assert_non_null(strstr(row("mbridge-011")->skipped, "no shape: layers, hidden, heads, ffn"));
    for (int i = 0; i < notes.n; i++)
        if (strcmp(notes.row[i].id, "mbridge-011") != 0)
            assert_string_equal(notes.row[i].skipped, "");
}

static void test_notes_and_columns_agree(void **state)
{
    (void)state;
    assert_int_equal(notes.n, columns.n);
    for (int i = 0; i < notes.n; i++) {
        ech_published a = notes.row[i], b = columns.row[i];
        a.job.model = b.job.model = NULL;
        a.job.cluster = b.job.cluster = NULL;
        a.cluster.device.name = b.cluster.device.name = NULL;
        assert_memory_equal(&a.model, &b.model, sizeof a.model);
        assert_memory_equal(&a.cluster, &b.cluster, sizeof a.cluster);
        assert_memory_equal(&a.job, &b.job, sizeof a.job);
        assert_memory_equal(&a.point, &b.point, sizeof a.point);
        assert_string_equal(a.assumed, b.assumed);
        assert_string_equal(a.skipped, b.skipped);
        assert_string_equal(a.group, b.group);
        assert_true(a.is_allocated == b.is_allocated && a.is_part == b.is_part);
        assert_true(a.measured_s == b.measured_s || isnan(a.measured_s));
    }
}

/* All bad cells of a table at once, each with its place. */
static void test_bad_cells(void **state)
{
    (void)state;
    char text[2048];
    ech_validation v;
    const char *const head =
        "id,model,layers,hidden,ffn,heads,kv_heads,vocab,experts,topk,seq,global_batch,micro_batch,"
        "gpus,gpu_type,interconnect,tp,pp,vpp,dp,cp,ep,zero_or_fsdp,recompute,precision,schedule,"
        "measured_kind,measured_value,software";
    (void)snprintf(text, sizeof text,
                   "%s\n"
                   "a-1,GPT,1x,64,256,4,,512,,,128,-8,1,8,A100,,1,1,1,8,1,1,zeero,most,bf17,2f2b,"
                   "seconds,0,megatrn\n"
                   "a-2,GPT,2,64,256,4,,512,,,128,8,1,8,A100,,1,1,1,8,1,1,none,none,bf16,none,"
                   "iter_time_s,1,megatron-lm-2021\n",
                   head);
    const char *path = scratch_write("bad.csv", text, strlen(text));
    assert_fails(ech_validation_read(path, &v), ECH_E_CONFIG,
                 "bad.csv:2:9: layers '1x': wanted a whole number of 1 to 4096, or nothing");
    assert_non_null(strstr(ech_error_message(), "global_batch '-8'"));
    assert_non_null(strstr(ech_error_message(), "measured_kind 'seconds': wanted tokens_s_gpu, "));
    assert_non_null(strstr(ech_error_message(), "measured_value '0': wanted a number above 0"));
    assert_non_null(strstr(ech_error_message(), "software 'megatrn': wanted megatron-lm-2021, "));
    assert_null(strstr(ech_error_message(), "bad.csv:3"));
}

/* Words of a job are checked where there is one. */
static void test_bad_settings(void **state)
{
    (void)state;
    char text[2048];
    ech_validation v;
    (void)snprintf(text, sizeof text,
                   "id,model,layers,hidden,ffn,heads,kv_heads,vocab,experts,topk,seq,global_batch,"
                   "micro_batch,gpus,gpu_type,interconnect,tp,pp,vpp,dp,cp,ep,zero_or_fsdp,"
                   "recompute,precision,schedule,measured_kind,measured_value,software,compiled\n"
                   "a-2,GPT,2,64,256,4,,512,,,128,8,1,8,A100,,1,1,1,8,1,1,zeero,most,bf17,2f2b,"
                   "iter_time_s,1,megatron-lm-2021,maybe\n"
                   "a-3,GPT,2,64,256,4,,512,,,128,8,1,8,Z100,,1,1,1,8,1,1,none,none,bf16,none,"
                   "iter_time_s,1,megatron-lm-2021,\n"
                   "a-4,GPT,2,64,256,4,,512,,,128,8,1,8,A100,,3,1,1,8,1,1,none,none,bf16,none,"
                   "iter_time_s,1,megatron-lm-2021,\n");
    const char *path = scratch_write("words.csv", text, strlen(text));
    assert_fails(ech_validation_read(path, &v), ECH_E_CONFIG, "zero_or_fsdp 'zeero': wanted none");
    assert_non_null(strstr(ech_error_message(), "recompute 'most'"));
    assert_non_null(strstr(ech_error_message(), "precision 'bf17'"));
    assert_non_null(strstr(ech_error_message(), "schedule '2f2b'"));
    assert_non_null(strstr(ech_error_message(), "compiled 'maybe': wanted no, yes"));
    /* An unknown GPU and degrees that do not divide skip their rows alone. */
    char *good = strstr(text, "zeero,most,bf17,2f2b,iter_time_s,1,megatron-lm-2021,maybe");
    memcpy(good, "zero1,full,bf16,1f1b,iter_time_s,1,megatron-lm-2021,yes  ", 57);
    for (char *at = good; (at = strstr(at, "yes  ")) != NULL;)
        memmove(at + 3, at + 5, strlen(at + 5) + 1);
    path = scratch_write("words.csv", text, strlen(text));
    assert_ok(ech_validation_read(path, &v));
    assert_string_equal(v.row[0].skipped, "");
    assert_non_null(strstr(v.row[1].skipped, "no such GPU"));
    assert_non_null(strstr(v.row[2].skipped, "does not divide 8 GPUs"));
    ech_validation_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_dp_is_what_the_gpus_leave),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_what_is_filled_in),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_software),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_memory_and_families),
        cmocka_unit_test(test_notes_and_columns_agree),
        cmocka_unit_test(test_bad_cells),
        cmocka_unit_test(test_bad_settings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
