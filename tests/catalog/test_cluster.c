/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "fixture.h"

#include "base/io.h"
#include "catalog/cluster.h"
#include "catalog/cluster_file.h"

#include <stdlib.h>

static ech_cluster cluster_of(const char *name)
{
    ech_cluster c;
    assert_ok(ech_cluster_load(name, &c));
    return c;
}

/* Nodes as their makers describe them, GB/s one way. */
static void well_known_clusters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int per_node;
        int64_t domain;
        const char *inner;
        double inner_gb_s, network_gb_s;
    } known[] = {
        {"h100-sxm-80", 8, 8, "nvlink", 450, 50},   {"a100-sxm-80", 8, 8, "nvlink", 300, 25},
        {"a100-sxm-40", 8, 8, "nvlink", 300, 25},   {"h800-sxm", 8, 8, "nvlink", 200, 50},
        {"h200-sxm", 8, 8, "nvlink", 450, 50},      {"b200-sxm", 8, 8, "nvlink", 900, 50},
        {"b300-sxm", 8, 8, "nvlink", 900, 100},     {"gb200", 4, 72, "nvlink", 900, 50},
        {"gb300", 4, 72, "nvlink", 900, 100},       {"mi300x", 8, 8, "xgmi", 448, 50},
        {"a100-pcie-80", 8, 8, "pcie", 16, 6.25},   {"rtx-4090", 8, 8, "pcie", 16, 1.5625},
        {"v100-sxm-32", 8, 8, "nvlink", 150, 6.25},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const ech_cluster c = cluster_of(known[i].name);
        assert_string_equal(c.name, known[i].name);
        assert_string_equal(c.device.name, known[i].name);
        assert_int_equal(c.devices_per_node, known[i].per_node);
        assert_int_equal(c.n_levels, 2);
        assert_string_equal(c.level[0].name, known[i].inner);
        assert_int_equal(c.level[0].span, known[i].domain);
        assert_int_equal(c.level[1].span, 0);
        assert_near(c.level[0].bytes_per_s / 1e9, known[i].inner_gb_s, 1e-9);
        assert_near(c.level[1].bytes_per_s / 1e9, known[i].network_gb_s, 1e-9);
        assert_near(c.failure_hours, 51000, 0);
    }
    const ech_cluster cpu = cluster_of("cpu");
    assert_string_equal(cpu.name, "cpu-64c-avx512");
    assert_int_equal(cpu.n_levels, 1);
    assert_near(cpu.level[0].bytes_per_s, 12.5e9, 0);
}

/* What must hold of every cluster. */
static void every_cluster_is_sound(void **state)
{
    (void)state;
    size_t n;
    const char *const *names = ech_cluster_names(&n);
    assert_true(n >= 24);
    for (size_t i = 0; i < n; i++) {
        const ech_cluster c = cluster_of(names[i]);
        assert_true(i == 0 || strcmp(names[i - 1], names[i]) < 0);
        assert_true(c.n_levels >= 1 && c.devices == 0 && c.power_overhead >= 1 && c.node_watts > 0);
        for (int l = 0; l < c.n_levels; l++) {
            assert_true(c.level[l].bytes_per_s > 1e9 && c.level[l].latency_s > 1e-6);
            assert_true(c.level[l].alone_bytes_per_s >= c.level[l].bytes_per_s);
        }
        assert_true((c.host_bytes == 0) == (c.device.kind == ECH_DEVICE_CPU));
    }
}

/* A line and an object for each. */
static void the_list(void **state)
{
    (void)state;
    size_t n;
    const char *const *names = ech_cluster_names(&n);
    ech_text text = {0};
    ech_text json = {0};
    ech_node *node = NULL;
    assert_ok(ech_cluster_list(false, &text));
    assert_ok(ech_cluster_list(true, &json));
    assert_ok(ech_node_parse_json(json.data, json.bytes, "list", &node));
    assert_int_equal(node->n, n);
    const char *line = ech_text_get(&text);
    const ech_node *x = node->child;
    for (size_t i = 0; i < n; i++, x = x->next) {
        assert_int_equal(strncmp(line, names[i], strlen(names[i])), 0);
        line = strchr(line, '\n') + 1;
        assert_string_equal(ech_node_find(x, "name")->string, names[i]);
        assert_true(ech_node_find(x, "levels")->n >= 1);
    }
    assert_non_null(strstr(ech_text_get(&text), "h100-sxm-80       8 a node, 79.1 GiB usable, "
                                                "989.4 TFLOP/s bf16, nvlink 450 GB/s over 8, ib "
                                                "50 GB/s a device\n"));
    ech_node_destroy(&node);
    ech_text_fini(&text);
    ech_text_fini(&json);
}

static void levels_by_span(void **state)
{
    (void)state;
    const ech_cluster c = cluster_of("h100-sxm-80");
    assert_int_equal(ech_cluster_level_of(&c, 1), 0);
    assert_int_equal(ech_cluster_level_of(&c, 8), 0);
    assert_int_equal(ech_cluster_level_of(&c, 9), 1);
    assert_int_equal(ech_cluster_level_of(&c, 100000), 1);
    const ech_cluster nvl = cluster_of("gb200");
    assert_int_equal(ech_cluster_level_of(&nvl, 72), 0);
    assert_int_equal(ech_cluster_level_of(&nvl, 73), 1);
}

/* Four ports of 100 Gbit/s for eight GPUs: 6.25 GB/s each, 12.5 for one alone. */
static void another_network(void **state)
{
    (void)state;
    ech_cluster c = cluster_of("A100-80GB-SXM:4x100");
    assert_string_equal(c.name, "a100-sxm-80:4x100");
    assert_near(c.level[1].bytes_per_s, 6.25e9, 0);
    assert_near(c.level[1].alone_bytes_per_s, 12.5e9, 0);
    assert_ok(ech_cluster_set_network(&c, 8, 25e9));
    assert_near(c.level[1].bytes_per_s, 25e9, 0);
    assert_near(c.level[1].alone_bytes_per_s, 25e9, 0);
    assert_fails(ech_cluster_set_network(&c, 0, 25e9), ECH_E_CONFIG, "must be positive");
    assert_fails(ech_cluster_set_network(&c, 1, -1), ECH_E_CONFIG, "must be positive");
    assert_near(c.level[1].bytes_per_s, 25e9, 0);
    assert_fails(ech_cluster_load("h100:4x", &c), ECH_E_CONFIG, "PORTSxGBIT");
    assert_fails(ech_cluster_load("h100:0x100", &c), ECH_E_CONFIG, "PORTSxGBIT");
    assert_fails(ech_cluster_load("h101-sxm-80", &c), ECH_E_CONFIG, "nearest is h100-sxm-80");
    assert_fails(ech_cluster_load("nowhere/c.yaml", &c), ECH_E_IO, "nowhere/c.yaml");
}

static ech_status parse(const char *text, ech_cluster *out)
{
    return ech_cluster_parse(text, strlen(text), "c.yaml", out);
}

static void a_file_changes_its_base(void **state)
{
    (void)state;
    ech_cluster c;
    assert_ok(parse("base: h100-sxm-80\n"
                    "name: ours\n"
                    "nodes: 16\n"
                    "device: {memory: 96 GB, memory_bandwidth: 2400 GB/s, power: 500 W,\n"
                    "         dollars_per_hour: 2.1, peak: {bf16: 900 TFLOP/s}}\n"
                    "levels:\n"
                    "  - {name: nvlink, bandwidth: 450 GB/s}\n"
                    "  - {name: leaf, span: 256, bandwidth: 400 Gb/s, latency: 10 us}\n"
                    "  - {name: spine, span: all, bandwidth: 400 Gb/s, oversubscription: 4,\n"
                    "     latency_s: 14e-6}\n"
                    "host: {memory: 1.5 TB, bandwidth_bytes_per_s: 5e11, compute: 10 TFLOP/s}\n"
                    "nvme: none\n"
                    "storage: {read: 1 TB/s, write: 500 GB/s}\n"
                    "failure_hours: 20000\nnode_watts: 4000\npower_overhead: 1.1\n",
                    &c));
    assert_string_equal(c.name, "ours");
    assert_string_equal(c.device.name, "h100-sxm-80");
    assert_int_equal(c.devices, 128);
    assert_near(c.device.memory_bytes, 96 * 0x1p30, 1);
    assert_near(c.device.usable_bytes / 0x1p30, 79.1 * 96 / 80, 1e-6);
    assert_near(c.device.memory_bytes_per_s, 2.4e12, 1);
    assert_near(c.device.peak_flops[ECH_PRECISION_BF16], 900e12, 1);
    assert_near(c.device.gemm_flops[ECH_PRECISION_BF16], 795e12 * 900 / 989.4, 1e3);
    assert_near(c.device.dollars_per_hour, 2.1, 0);
    assert_int_equal(c.n_levels, 3);
    assert_int_equal(c.level[0].span, 8);
    assert_true(c.level[0].has_reduction);
    assert_near(c.level[0].latency_s, 3.4e-6, 1e-18);
    assert_int_equal(c.level[1].span, 256);
    assert_near(c.level[1].latency_s, 10e-6, 1e-18);
    assert_int_equal(c.level[2].span, 0);
    assert_near(c.level[2].bytes_per_s, 12.5e9, 1);
    assert_near(c.level[2].alone_bytes_per_s, 50e9, 1);
    assert_near(c.host_bytes, 1.5e12, 1);
    assert_near(c.host_bytes_per_s, 5e11, 1);
    assert_near(c.nvme_bytes, 0, 0);
    assert_near(c.storage_write_bytes_per_s, 5e11, 1);
    assert_near(c.failure_hours, 20000, 0);
}

/* The file in docs/clusters.md is one. */
static void the_documented_file(void **state)
{
    (void)state;
    size_t bytes;
    char *page = NULL;
    ech_cluster c;
    assert_ok(ech_read_whole(fixture_path("docs/clusters.md"), 1 << 20, &page, &bytes));
    const char *from = strstr(page, "```yaml\n") + 8;
    assert_ok(ech_cluster_parse(from, (size_t)(strstr(from, "```") - from), "page", &c));
    free(page);
    assert_string_equal(c.name, "ours");
    assert_int_equal(c.devices, 128);
    assert_int_equal(c.n_levels, 3);
    assert_near(c.level[2].bytes_per_s, 12.5e9, 1);
    assert_near(c.device.gemm_flops[ECH_PRECISION_BF16], 740e12, 1);
    assert_near(c.nvme_bytes, 30e12, 1);
}

static void memory_is_what_the_maker_prints(void **state)
{
    (void)state;
    ech_cluster c;
    assert_ok(parse("base: a100-sxm-80\ndevice: {memory: 80 GB}\n", &c));
    assert_near(c.device.usable_bytes / 0x1p30, 79.15, 1e-9);
    assert_ok(parse("base: a100-sxm-80\ndevice: {memory: 80GB, usable_memory: 79.33 GiB}\n", &c));
    assert_near(c.device.usable_bytes / 0x1p30, 79.33, 1e-9);
    assert_fails(parse("base: a100-sxm-80\ndevice: {memory: 80GiB}\n", &c), ECH_E_CONFIG,
                 "79.15 GiB can be used");
    assert_fails(parse("base: a100-sxm-80\ndevice: {usable_memory: 80GiB}\n", &c), ECH_E_CONFIG,
                 "only 79.15 GiB can be used");
}

static void nodes_of_other_sizes(void **state)
{
    (void)state;
    ech_cluster c;
    assert_ok(parse("base: h100-sxm-80\ndevices_per_node: 4\n", &c));
    assert_int_equal(c.level[0].span, 4);
    assert_near(c.level[1].bytes_per_s, 50e9, 0);
    assert_ok(parse("base: h100-sxm-80\ndevices_per_node: 1\nnodes: 3\n", &c));
    assert_int_equal(c.n_levels, 1);
    assert_string_equal(c.level[0].name, "ib");
    assert_int_equal(c.devices, 3);
    assert_ok(
        parse("base: a100-sxm-80\nnetwork: {ports: 4, bandwidth: 100 Gb/s, latency: 20 us}\n", &c));
    assert_near(c.level[1].bytes_per_s, 6.25e9, 0);
    assert_near(c.level[1].latency_s, 20e-6, 1e-18);
}

/* One fault a file; the message says what would be right. */
static void faults_of_files(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"base: h100-sxm-80\nlevels: [{name: nvlink, bandwidth: 900 GB/s}, {name: ib}]",
         "both directions of nvlink together; one way is 450 GB/s"},
        {"base: a100-sxm-80\nlevels: [{name: nvlink, bandwidth: 600 GB/s}, {name: ib}]",
         "one way is 300 GB/s"},
        {"base: h800\nlevels: [{name: nvlink, bandwidth: 900 GB/s}, {name: ib}]",
         "more than nvlink has one way: 200 GB/s"},
        {"base: h100-sxm-80\ndevice: {host_link: 128 GB/s}", "one way is 64 GB/s"},
        {"base: a100-pcie-80\nlevels: [{name: pcie, bandwidth: 64 GB/s}, {name: ib}]",
         "one way is 32 GB/s"},
        {"base: h100-sxm-80\nnetwork: {ports: 8, bandwidth: 400 GB/s}", "is Gb/s meant"},
        {"base: h100-sxm-80\nlevels: [{name: nvlink}, {name: ib, bandwidth: 400 GB/s}]",
         "is Gb/s meant"},
        {"base: h100-sxm-80\nlevels: [{name: nvlink, bandwith: 450 GB/s}, {name: ib}]",
         "levels[0]: unknown key 'bandwith', nearest is 'bandwidth'"},
        {"base: h100-sxm-80\nlevels: [{name: nvlink, bandwidth: 450}, {name: ib}]",
         "without a unit"},
        {"base: h100-sxm-80\nlevels: [{name: nvlink, bandwidth: 450 GB}, {name: ib}]",
         "wanted a bandwidth"},
        {"base: h100-sxm-80\nlevels: [{name: x, span: 8, latency: 3 us}, {name: ib}]",
         "bandwidth is missing"},
        {"base: h100-sxm-80\nlevels: [{name: x, span: 8, bandwidth: 9 GB/s}, {name: ib}]",
         "latency is missing"},
        {"base: h100-sxm-80\nlevels: [{name: nvlink}, {name: ib, span: 12}]",
         "the last level's must be all"},
        {"base: h100-sxm-80\nlevels: [{name: nvlink}, {name: leaf, span: 12, bandwidth: 50 GB/s, "
         "latency: 9 us}, {name: ib}]",
         "wanted a multiple of the level before: 8"},
        {"base: h100-sxm-80\nlevels: []", "levels has 0"},
        {"base: h100-sxm-80\nlevels: [3, {name: ib}]", "levels[0]: "},
        {"base: h100-sxm-80\nlevels: [{name: nvlink}, {name: ib, alone_bandwidth: 1 GB/s}]",
         "below bandwidth"},
        {"base: h100-sxm-80\nmemroy: 3", "unknown key 'memroy'"},
        {"base: h100-sxm-80\ndevice: {memory: 80}", "without a unit"},
        {"base: h100-sxm-80\ndevice: {memory: 80 GB, memory_bytes: 80e9}", "keep one"},
        {"base: h100-sxm-80\ndevice: {memory_bytes: 80 GB}", "wanted a plain number"},
        {"base: h100-sxm-80\ndevice: {memory: 0 GB}", "above 0"},
        {"base: h100-sxm-80\ndevice: {memory: -80 GB}", "wanted a size"},
        {"base: h100-sxm-80\ndevice: {gemm: {bf16: 1200 TFLOP/s}}", "more than the dense peak"},
        {"base: h100-sxm-80\ndevice: {peak: {bf17: 1 TFLOP/s}}", "nearest is 'bf16'"},
        {"base: h100-sxm-80\nnodes: 3\ndevices: 25", "3 nodes of 8 have 24"},
        {"base: cpu\ndevices_per_node: 4", "say in levels what joins them"},
        {"base: h100-sxm-80\npower_overhead: 0.5", "power_overhead is 0.5"},
        {"base: h100-sxm-80\nnetwork: {ports: 8}", "wanted ports (of a node) and bandwidth"},
        {"base: h100-sxm-81", "nearest is h100-sxm-80"},
        {"name: ours", "base is missing"},
        {"[1, 2]", "begins with base"},
        {"echelon: 0.1.0\nop_s: 1e-7\ncost: {}", "calibration of one machine"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ech_cluster c = {.n_levels = 77};
        assert_fails(parse(bad[i][0], &c), ECH_E_CONFIG, bad[i][1]);
        if (strchr(ech_error_message(), '\n')) /* several come under a heading */
            fail_msg("%s: more than one finding: %s", bad[i][0], ech_error_message());
        assert_non_null(strstr(ech_error_message(), "c.yaml"));
        assert_int_equal(c.n_levels, 77);
    }
}

static void faults_come_together(void **state)
{
    (void)state;
    ech_cluster c;
    const char text[] = "base: h100-sxm-80\nspeed: 3\ndevice: {memory: 80GiB}\n"
                        "levels: [{name: nvlink, bandwidth: 900 GB/s}, {name: ib}]\n";
    assert_fails(parse(text, &c), ECH_E_CONFIG, "unknown key 'speed'");
    assert_non_null(strstr(ech_error_message(), "80 GiB"));
    assert_non_null(strstr(ech_error_message(), "both directions"));
    assert_non_null(strstr(ech_error_message(), "line 4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_known_clusters),
        cmocka_unit_test(every_cluster_is_sound),
        cmocka_unit_test(the_list),
        cmocka_unit_test(levels_by_span),
        cmocka_unit_test(another_network),
        cmocka_unit_test(a_file_changes_its_base),
        cmocka_unit_test(the_documented_file),
        cmocka_unit_test(memory_is_what_the_maker_prints),
        cmocka_unit_test(nodes_of_other_sizes),
        cmocka_unit_test(faults_of_files),
        cmocka_unit_test(faults_come_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
