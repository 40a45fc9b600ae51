/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/text.h"
#include "catalog/device.h"

static ech_device device_of(const char *name)
{
    ech_device d;
    assert_ok(ech_device_find(name, &d));
    return d;
}

/* facts.md, section 6, and the makers' sheets again: what everyone knows by heart. */
static void well_known_figures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double bf16_tflops, memory_gb, memory_gb_s, peer_gb_s, host_gb_s, watts;
    } known[] = {
        {"a100-sxm-80", 312, 80, 2039, 300, 32, 400},
        {"a100-sxm-40", 312, 40, 1555, 300, 32, 400},
        {"a100-pcie-80", 312, 80, 1935, 0, 32, 300},
        {"a800-sxm-80", 312, 80, 2039, 200, 32, 400},
        {"h100-sxm-80", 989.4, 80, 3352, 450, 64, 700},
        {"h100-pcie-80", 756, 80, 2039, 0, 64, 350},
        {"h800-sxm", 989.4, 80, 3352, 200, 64, 700},
        {"h200-sxm", 989.4, 141, 4800, 450, 64, 700},
        {"h100-sxm-96", 989.4, 96, 2400, 450, 64, 500},
        {"b200-sxm", 2250, 180, 8000, 900, 64, 1000},
        {"gb200", 2500, 186, 8000, 900, 450, 1200},
        {"mi300x", 1307.4, 192, 5300, 448, 64, 750},
        {"rtx-4090", 165.2, 24, 1008, 0, 32, 450},
        {"rtx-3090", 71.2, 24, 936, 0, 32, 350},
        {"l40s", 362, 48, 864, 0, 32, 350},
        {"v100-sxm-32", 0, 32, 900, 150, 16, 300},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const ech_device d = device_of(known[i].name);
        assert_string_equal(d.name, known[i].name);
        assert_near(d.peak_flops[ECH_PRECISION_BF16] / 1e12, known[i].bf16_tflops, 1e-6);
        assert_near(d.memory_bytes / 0x1p30, known[i].memory_gb, 1e-9);
        assert_near(d.memory_bytes_per_s / 1e9, known[i].memory_gb_s, 1e-6);
        assert_near(d.peer_bytes_per_s / 1e9, known[i].peer_gb_s, 1e-6);
        assert_near(d.link_bytes_per_s / 1e9, known[i].host_gb_s, 1e-6);
        assert_near(d.watts, known[i].watts, 1e-9);
    }
    assert_near(device_of("v100-sxm-16").peak_flops[ECH_PRECISION_FP16], 125e12, 1);
    assert_near(device_of("h100").peak_flops[ECH_PRECISION_FP8], 1978.9e12, 1e6);
    assert_near(device_of("gb300").peak_flops[ECH_PRECISION_NVFP4], 15e15, 1);
    assert_near(device_of("h100").gemm_flops[ECH_PRECISION_BF16], 795e12, 1);
}

/* "an 80 GB card shows about 79.1-79.3 GiB, a 40 GB one about 39.4, a 24 GB one about 23.7, a 16 GB
 * V100 about 15.8" (the reports of planner cases). */
static void usable_memory(void **state)
{
    (void)state;
    assert_near(device_of("a100-sxm-80").usable_bytes / 0x1p30, 79.2, 0.11);
    assert_near(device_of("h100-sxm-80").usable_bytes / 0x1p30, 79.2, 0.11);
    assert_near(device_of("a100-sxm-40").usable_bytes / 0x1p30, 39.4, 0.05);
    assert_near(device_of("rtx-4090").usable_bytes / 0x1p30, 23.7, 0.06);
    assert_near(device_of("v100-sxm-16").usable_bytes / 0x1p30, 15.8, 0.05);
}

/* What must hold of every row. */
static void every_row_is_sound(void **state)
{
    (void)state;
    size_t n;
    const char *const *names = ech_device_names(&n);
    assert_true(n >= 24);
    for (size_t i = 0; i < n; i++) {
        const ech_device d = device_of(names[i]);
        assert_string_equal(d.name, names[i]);
        assert_true(i == 0 || strcmp(names[i - 1], names[i]) < 0);
        assert_true(d.units > 0 && d.watts > 0);
        assert_true(d.usable_bytes > 0.9 * d.memory_bytes && d.usable_bytes < d.memory_bytes);
        assert_true(d.memory_bytes_per_s > 1e11 && d.memory_bytes_per_s < 1e13);
        assert_true((d.link_bytes_per_s == 0) == (d.kind == ECH_DEVICE_CPU));
        assert_true(d.peak_flops[ECH_PRECISION_FP32] > 1e12);
        for (int p = 0; p < ECH_N_PRECISIONS; p++)
            assert_true(d.gemm_flops[p] >= 0 && d.gemm_flops[p] <= 0.95 * d.peak_flops[p]);
        if (d.kind != ECH_DEVICE_CPU)
            assert_true(d.peak_flops[ECH_PRECISION_FP16] > d.peak_flops[ECH_PRECISION_FP32]);
        if (d.kind == ECH_DEVICE_HOPPER || d.kind == ECH_DEVICE_BLACKWELL)
            assert_near(d.peak_flops[ECH_PRECISION_FP8] / d.peak_flops[ECH_PRECISION_BF16], 2,
                        0.01);
    }
}

/* The spellings of published measurements. */
static void other_spellings(void **state)
{
    (void)state;
    static const char *const known[][2] = {{"A100-40GB-SXM", "a100-sxm-40"},
                                           {"A100-80GB-SXM", "a100-sxm-80"},
                                           {"B200", "b200-sxm"},
                                           {"B200-SXM", "b200-sxm"},
                                           {"B300", "b300-sxm"},
                                           {"GB200", "gb200"},
                                           {"GB300", "gb300"},
                                           {"H100", "h100-sxm-80"},
                                           {"H100-80GB-SXM", "h100-sxm-80"},
                                           {"H100-96GB-HBM2e-500W", "h100-sxm-96"},
                                           {"H100-SXM", "h100-sxm-80"},
                                           {"H200-SXM", "h200-sxm"},
                                           {"h100 pcie", "h100-pcie-80"},
                                           {"NVIDIA GeForce RTX 4090", "rtx-4090"},
                                           {"nvidia_a100_80gb_pcie", "a100-pcie-80"},
                                           {"h800", "h800-sxm"},
                                           {"NVIDIA A100-SXM4-80GB", "a100-sxm-80"},
                                           {"NVIDIA H100 80GB HBM3", "h100-sxm-80"},
                                           {"Tesla V100-SXM2-32GB", "v100-sxm-32"},
                                           {"NVIDIA B300 SXM6 AC", "b300-sxm"},
                                           {"AMD Instinct MI300X", "mi300x"},
                                           {"gb200-nvl72", "gb200"},
                                           {"h800-sxm-80", "h800-sxm"},
                                           {"3090", "rtx-3090"},
                                           {"cpu-node", "cpu-64c-avx512"},
                                           {"epyc", "cpu-192c-avx512"},
                                           {"a800", "a800-sxm-80"},
                                           {"MI300X", "mi300x"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_string_equal(device_of(known[i][0]).name, known[i][1]);
}

static void what_is_not_one_device(void **state)
{
    (void)state;
    ech_device d = {.units = 7};
    assert_fails(ech_device_find("A100", &d), ECH_E_CONFIG, "a100-sxm-40, a100-sxm-80");
    assert_fails(ech_device_find("v100", &d), ECH_E_CONFIG, "v100-sxm-16, v100-sxm-32");
    assert_fails(ech_device_find("sxm", &d), ECH_E_CONFIG, "several devices");
    assert_fails(ech_device_find("80GB", &d), ECH_E_CONFIG, "several devices");
    assert_fails(ech_device_find("h100-sxm-81", &d), ECH_E_CONFIG, "nearest is h100-sxm-80");
    assert_fails(ech_device_find("", &d), ECH_E_CONFIG, "known are a100-pcie-40");
    assert_fails(ech_device_find("---", &d), ECH_E_CONFIG, "no known device");
    char endless[5000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_fails(ech_device_find(endless, &d), ECH_E_CONFIG, "no known device");
    assert_int_equal(d.units, 7);
}

static void precisions(void **state)
{
    (void)state;
    for (int p = 0; p < ECH_N_PRECISIONS; p++) {
        ech_precision got;
        assert_true(ech_precision_read(ech_precision_name((ech_precision)p), &got));
        assert_int_equal(got, p);
    }
    ech_precision got = ECH_PRECISION_FP8;
    assert_false(ech_precision_read("bf17", &got));
    assert_int_equal(got, ECH_PRECISION_FP8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_known_figures),     cmocka_unit_test(usable_memory),
        cmocka_unit_test(every_row_is_sound),     cmocka_unit_test(other_spellings),
        cmocka_unit_test(what_is_not_one_device), cmocka_unit_test(precisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
