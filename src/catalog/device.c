/* The table of devices.
 *
 * Peaks, memory, bandwidths, links and watts are the makers' data sheets, dense and one way:
 *   A100, A800      NVIDIA A100 Tensor Core GPU data sheet, 2021 (A800: NVLink of 400 GB/s)
 *   V100            NVIDIA V100 data sheet, 2020 (SXM2)
 *   RTX 3090, 4090  NVIDIA Ampere GA102 and Ada AD102 white papers, appendix A: tensor peaks with fp32
 *                   accumulation, half of those with fp16 accumulation
 *   L40S            NVIDIA L40S data sheet, 2023
 *   H100, H800      NVIDIA H100 Tensor Core GPU data sheet and white paper, 2023; H800 as DeepSeek-V3
 *                   describes it (arXiv:2412.19437, section 3.1: NVLink 400 GB/s both ways)
 *   H200            NVIDIA H200 data sheet, 2024
 *   B200, GB200     NVIDIA DGX B200 and GB200 NVL72 data sheets, 2024: halves of the sparse figures
 *   B300, GB300     NVIDIA HGX B300 and GB300 NVL72 data sheets, 2025
 *   MI300X          AMD Instinct MI300X data sheet, 2023: 7 links of 128 GB/s both ways
 *   processors      cores x 2 FMA units x lanes x 2 x clock of a core under vector load, both sockets;
 *                   memory: channels x 8 B x transfers; Intel ARK and AMD product pages
 * The H100 of 96 GB and 500 W is no catalogue product: peak of the SXM form (its torchtitan report
 * divides by it too), memory as Yang et al. 2024 state it (arXiv:2411.01783, section 4.1).
 *
 * gemm_flops: best bf16 and fp8 products that were measured and published (A100 271, A100 PCIe 253,
 * H100 795 and 1403, H200 fp8 1453, B200 1745 and 3433, GB200 1822, MI300X 668 TFLOP/s), and the same
 * for what has the same chip at the same power: A800, H800, H200's bf16.
 *
 * usable_bytes: what a driver shows to a framework (torch's total_memory) on such a card.
 *
 * dollars_per_hour: median of public on-demand lists of 2025 and 2026, rounded; H800: the price that
 * DeepSeek-V3's report assumes (section 1).  Prices move: files override them. */
#include "catalog/device.h"

#include "base/text.h" /* ech_nearest_name */

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define GIB(x)    ((x)*1073741824.0)
#define GB_S(x)   ((x)*1e9)
#define TFLOPS(x) ((x)*1e12)

/* A peak for each precision, in TFLOP/s. */
#define PEAKS(fp32, tf32, half, fp8, mxfp8, nvfp4)                                                 \
    {                                                                                              \
        TFLOPS(fp32), TFLOPS(tf32), TFLOPS(half), TFLOPS(half), TFLOPS(fp8), TFLOPS(mxfp8),        \
            TFLOPS(nvfp4)                                                                          \
    }

#define A100_PEAKS PEAKS(19.5, 156, 312, 0, 0, 0)
#define H100_PEAKS PEAKS(66.9, 494.7, 989.4, 1978.9, 0, 0)

/* A device and the words that describe it: a name is understood when each of its words is among them
 * and no other device has them all, or all that have are forms of one chip and this is the usual. */
typedef struct device_row {
    ech_device device;
    const char *words; /* its first one is the chip */
    bool is_usual;     /* of its chip */
} device_row;

/* Sorted by name. */
static const device_row rows[] = {
    {.device = {.name = "a100-pcie-40",
                .kind = ECH_DEVICE_AMPERE,
                .units = 108,
                .peak_flops = A100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 253, 0, 0, 0),
                .memory_bytes = GIB(40),
                .usable_bytes = GIB(39.4),
                .memory_bytes_per_s = GB_S(1555),
                .link_bytes_per_s = GB_S(32),
                .watts = 250,
                .dollars_per_hour = 1.3},
     .words = "a100 pcie 40 hbm2 250w"},
    {.device = {.name = "a100-pcie-80",
                .kind = ECH_DEVICE_AMPERE,
                .units = 108,
                .peak_flops = A100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 253, 0, 0, 0),
                .memory_bytes = GIB(80),
                .usable_bytes = GIB(79.15),
                .memory_bytes_per_s = GB_S(1935),
                .link_bytes_per_s = GB_S(32),
                .watts = 300,
                .dollars_per_hour = 1.5},
     .words = "a100 pcie 80 hbm2e 300w"},
    {.device = {.name = "a100-sxm-40",
                .kind = ECH_DEVICE_AMPERE,
                .units = 108,
                .peak_flops = A100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 271, 0, 0, 0),
                .memory_bytes = GIB(40),
                .usable_bytes = GIB(39.4),
                .memory_bytes_per_s = GB_S(1555),
                .link_bytes_per_s = GB_S(32),
                .peer_bytes_per_s = GB_S(300),
                .watts = 400,
                .dollars_per_hour = 1.3},
     .words = "a100 sxm sxm4 40 hbm2 400w"},
    {.device = {.name = "a100-sxm-80",
                .kind = ECH_DEVICE_AMPERE,
                .units = 108,
                .peak_flops = A100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 271, 0, 0, 0),
                .memory_bytes = GIB(80),
                .usable_bytes = GIB(79.15),
                .memory_bytes_per_s = GB_S(2039),
                .link_bytes_per_s = GB_S(32),
                .peer_bytes_per_s = GB_S(300),
                .watts = 400,
                .dollars_per_hour = 1.8},
     .words = "a100 sxm sxm4 80 hbm2e 400w"},
    {.device = {.name = "a800-sxm-80",
                .kind = ECH_DEVICE_AMPERE,
                .units = 108,
                .peak_flops = A100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 271, 0, 0, 0),
                .memory_bytes = GIB(80),
                .usable_bytes = GIB(79.15),
                .memory_bytes_per_s = GB_S(2039),
                .link_bytes_per_s = GB_S(32),
                .peer_bytes_per_s = GB_S(200),
                .watts = 400},
     .words = "a800 sxm sxm4 80 hbm2e 400w"},
    {.device = {.name = "b200-sxm",
                .kind = ECH_DEVICE_BLACKWELL,
                .units = 148,
                .peak_flops = PEAKS(75, 1125, 2250, 4500, 4500, 9000),
                .gemm_flops = PEAKS(0, 0, 1745, 3433, 0, 0),
                .memory_bytes = GIB(180),
                .usable_bytes = GIB(178.4),
                .memory_bytes_per_s = GB_S(8000),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(900),
                .watts = 1000,
                .dollars_per_hour = 5.0},
     .words = "b200 sxm sxm6 180 192 hbm3e 1000w"},
    {.device = {.name = "b300-sxm",
                .kind = ECH_DEVICE_BLACKWELL,
                .units = 148,
                .peak_flops = PEAKS(75, 1125, 2250, 4500, 4500, 13500),
                .memory_bytes = GIB(270),
                .usable_bytes = GIB(267.7),
                .memory_bytes_per_s = GB_S(8000),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(900),
                .watts = 1100,
                .dollars_per_hour = 6.0},
     .words = "b300 sxm sxm6 ac 270 288 hbm3e 1100w"},
    /* 2 x Xeon Platinum 8480+: 56 cores at 2.0 GHz; AMX: 1024 bf16 FMA a core and cycle; 16 channels
     * DDR5-4800. */
    {.device = {.name = "cpu-112c-amx",
                .kind = ECH_DEVICE_CPU,
                .units = 112,
                .peak_flops = {TFLOPS(14.3), 0, 0, TFLOPS(458.8)},
                .memory_bytes = GIB(1024),
                .usable_bytes = GIB(1007),
                .memory_bytes_per_s = GB_S(614.4),
                .watts = 700},
     .words = "cpu node cluster 112c amx avx512 xeon sapphire"},
    /* 2 x EPYC 9654: 96 cores at 2.4 GHz with two FMA units of 256 bits; 24 channels DDR5-4800. */
    {.device = {.name = "cpu-192c-avx512",
                .kind = ECH_DEVICE_CPU,
                .units = 192,
                .peak_flops = {TFLOPS(14.7), 0, 0, TFLOPS(29.5)},
                .memory_bytes = GIB(1536),
                .usable_bytes = GIB(1511),
                .memory_bytes_per_s = GB_S(921.6),
                .watts = 720},
     .words = "cpu node cluster 192c avx512 epyc genoa"},
    /* 2 x 26 cores of Skylake at 2.0 GHz with all vector units at work, 12 channels DDR4-2666. */
    {.device = {.name = "cpu-52c-avx512",
                .kind = ECH_DEVICE_CPU,
                .units = 52,
                .peak_flops = PEAKS(6.7, 0, 0, 0, 0, 0),
                .memory_bytes = GIB(384),
                .usable_bytes = GIB(376),
                .memory_bytes_per_s = GB_S(256),
                .watts = 410},
     .words = "cpu node cluster 52c avx512 xeon skylake"},
    /* 2 x Xeon Platinum 8358: 32 cores at 2.6 GHz, 16 channels DDR4-3200. */
    {.device = {.name = "cpu-64c-avx512",
                .kind = ECH_DEVICE_CPU,
                .units = 64,
                .peak_flops = PEAKS(10.6, 0, 0, 0, 0, 0),
                .memory_bytes = GIB(512),
                .usable_bytes = GIB(503),
                .memory_bytes_per_s = GB_S(409.6),
                .watts = 500},
     .words = "cpu node cluster 64c avx512 xeon icelake",
     .is_usual = true},
    {.device = {.name = "gb200",
                .kind = ECH_DEVICE_BLACKWELL,
                .units = 152,
                .peak_flops = PEAKS(80, 1250, 2500, 5000, 5000, 10000),
                .gemm_flops = PEAKS(0, 0, 1822, 0, 0, 0),
                .memory_bytes = GIB(186),
                .usable_bytes = GIB(184.3),
                .memory_bytes_per_s = GB_S(8000),
                .link_bytes_per_s = GB_S(450),
                .peer_bytes_per_s = GB_S(900),
                .watts = 1200,
                .dollars_per_hour = 10.5},
     .words = "gb200 nvl72 186 192 hbm3e 1200w"},
    {.device = {.name = "gb300",
                .kind = ECH_DEVICE_BLACKWELL,
                .units = 152,
                .peak_flops = PEAKS(80, 1250, 2500, 5000, 5000, 15000),
                .memory_bytes = GIB(279),
                .usable_bytes = GIB(276.5),
                .memory_bytes_per_s = GB_S(8000),
                .link_bytes_per_s = GB_S(450),
                .peer_bytes_per_s = GB_S(900),
                .watts = 1400},
     .words = "gb300 nvl72 279 288 hbm3e 1400w"},
    {.device = {.name = "h100-pcie-80",
                .kind = ECH_DEVICE_HOPPER,
                .units = 114,
                .peak_flops = PEAKS(51.2, 378, 756, 1513, 0, 0),
                .memory_bytes = GIB(80),
                .usable_bytes = GIB(79.1),
                .memory_bytes_per_s = GB_S(2039),
                .link_bytes_per_s = GB_S(64),
                .watts = 350,
                .dollars_per_hour = 2.5},
     .words = "h100 pcie 80 hbm2e 350w"},
    {.device = {.name = "h100-sxm-80",
                .kind = ECH_DEVICE_HOPPER,
                .units = 132,
                .peak_flops = H100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 795, 1403, 0, 0),
                .memory_bytes = GIB(80),
                .usable_bytes = GIB(79.1),
                .memory_bytes_per_s = GB_S(3352),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(450),
                .watts = 700,
                .dollars_per_hour = 3.0},
     .words = "h100 sxm sxm5 80 hbm3 700w",
     .is_usual = true},
    {.device = {.name = "h100-sxm-96",
                .kind = ECH_DEVICE_HOPPER,
                .units = 132,
                .peak_flops = H100_PEAKS,
                .memory_bytes = GIB(96),
                .usable_bytes = GIB(95),
                .memory_bytes_per_s = GB_S(2400),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(450),
                .watts = 500},
     .words = "h100 sxm sxm5 96 hbm2e 500w"},
    {.device = {.name = "h200-sxm",
                .kind = ECH_DEVICE_HOPPER,
                .units = 132,
                .peak_flops = H100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 795, 1453, 0, 0),
                .memory_bytes = GIB(141),
                .usable_bytes = GIB(139.8),
                .memory_bytes_per_s = GB_S(4800),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(450),
                .watts = 700,
                .dollars_per_hour = 3.8},
     .words = "h200 sxm sxm5 141 hbm3e 700w"},
    {.device = {.name = "h800-sxm",
                .kind = ECH_DEVICE_HOPPER,
                .units = 132,
                .peak_flops = H100_PEAKS,
                .gemm_flops = PEAKS(0, 0, 795, 1403, 0, 0),
                .memory_bytes = GIB(80),
                .usable_bytes = GIB(79.1),
                .memory_bytes_per_s = GB_S(3352),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(200),
                .watts = 700,
                .dollars_per_hour = 2.0},
     .words = "h800 sxm sxm5 80 hbm3 700w"},
    {.device = {.name = "l40s",
                .kind = ECH_DEVICE_ADA,
                .units = 142,
                .peak_flops = PEAKS(91.6, 183, 362, 733, 0, 0),
                .memory_bytes = GIB(48),
                .usable_bytes = GIB(44.4),
                .memory_bytes_per_s = GB_S(864),
                .link_bytes_per_s = GB_S(32),
                .watts = 350,
                .dollars_per_hour = 1.0},
     .words = "l40s pcie 48 gddr6 350w"},
    {.device = {.name = "mi300x",
                .kind = ECH_DEVICE_CDNA3,
                .units = 304,
                .peak_flops = PEAKS(163.4, 653.7, 1307.4, 2614.9, 0, 0),
                .gemm_flops = PEAKS(0, 0, 668, 0, 0, 0),
                .memory_bytes = GIB(192),
                .usable_bytes = GIB(191.7),
                .memory_bytes_per_s = GB_S(5300),
                .link_bytes_per_s = GB_S(64),
                .peer_bytes_per_s = GB_S(448),
                .watts = 750,
                .dollars_per_hour = 2.5},
     .words = "mi300x amd instinct oam 192 hbm3 750w"},
    {.device = {.name = "rtx-3090",
                .kind = ECH_DEVICE_AMPERE_GX,
                .units = 82,
                .peak_flops = PEAKS(35.6, 35.6, 71.2, 0, 0, 0),
                .memory_bytes = GIB(24),
                .usable_bytes = GIB(23.7),
                .memory_bytes_per_s = GB_S(936),
                .link_bytes_per_s = GB_S(32),
                .watts = 350,
                .dollars_per_hour = 0.3},
     .words = "rtx 3090 rtx3090 geforce pcie 24 gddr6x 350w"},
    {.device = {.name = "rtx-4090",
                .kind = ECH_DEVICE_ADA,
                .units = 128,
                .peak_flops = PEAKS(82.6, 82.6, 165.2, 330.3, 0, 0),
                .memory_bytes = GIB(24),
                .usable_bytes = GIB(23.65),
                .memory_bytes_per_s = GB_S(1008),
                .link_bytes_per_s = GB_S(32),
                .watts = 450,
                .dollars_per_hour = 0.6},
     .words = "rtx 4090 rtx4090 geforce pcie 24 gddr6x 450w"},
    {.device = {.name = "v100-sxm-16",
                .kind = ECH_DEVICE_VOLTA,
                .units = 80,
                .peak_flops = {TFLOPS(15.7), 0, TFLOPS(125)},
                .memory_bytes = GIB(16),
                .usable_bytes = GIB(15.77),
                .memory_bytes_per_s = GB_S(900),
                .link_bytes_per_s = GB_S(16),
                .peer_bytes_per_s = GB_S(150),
                .watts = 300,
                .dollars_per_hour = 0.6},
     .words = "v100 tesla sxm sxm2 16 hbm2 300w"},
    {.device = {.name = "v100-sxm-32",
                .kind = ECH_DEVICE_VOLTA,
                .units = 80,
                .peak_flops = {TFLOPS(15.7), 0, TFLOPS(125)},
                .memory_bytes = GIB(32),
                .usable_bytes = GIB(31.74),
                .memory_bytes_per_s = GB_S(900),
                .link_bytes_per_s = GB_S(16),
                .peer_bytes_per_s = GB_S(150),
                .watts = 300,
                .dollars_per_hour = 0.6},
     .words = "v100 tesla sxm sxm2 32 hbm2 300w"},
};

enum { N_DEVICES = sizeof rows / sizeof rows[0], NAME_BYTES = 64 };

static const char *const device_names[] = {
    "a100-pcie-40",    "a100-pcie-80",   "a100-sxm-40",    "a100-sxm-80",
    "a800-sxm-80",     "b200-sxm",       "b300-sxm",       "cpu-112c-amx",
    "cpu-192c-avx512", "cpu-52c-avx512", "cpu-64c-avx512", "gb200",
    "gb300",           "h100-pcie-80",   "h100-sxm-80",    "h100-sxm-96",
    "h200-sxm",        "h800-sxm",       "l40s",           "mi300x",
    "rtx-3090",        "rtx-4090",       "v100-sxm-16",    "v100-sxm-32"};
_Static_assert(sizeof device_names / sizeof device_names[0] == N_DEVICES, "a name for each device");

static const char *const precision_names[ECH_N_PRECISIONS] = {
#define ECH_PRECISION_TEXT(name, text) text,
    ECH_PRECISION_LIST(ECH_PRECISION_TEXT)
#undef ECH_PRECISION_TEXT
};

const char *ech_precision_name(ech_precision p)
{
    return precision_names[p];
}

bool ech_precision_read(const char *name, ech_precision *out)
{
    for (int p = 0; p < ECH_N_PRECISIONS; p++)
        if (strcmp(name, precision_names[p]) == 0) {
            *out = (ech_precision)p;
            return true;
        }
    return false;
}

const char *const *ech_device_names(size_t *n)
{
    *n = N_DEVICES;
    return device_names;
}

static bool is_between_words(char c)
{
    return c == '-' || c == '_' || c == ' ' || c == '/';
}

/* The next word of a name in small letters, without what says nothing: "80GB" is 80.
 * Returns is there one; *s moves behind it. */
static bool next_word(const char **s, char *word, size_t n)
{
    size_t len = 0;
    while (is_between_words(**s))
        (*s)++;
    for (; **s && !is_between_words(**s); (*s)++)
        if (len + 1 < n)
            word[len++] = (char)tolower((unsigned char)**s);
    word[len] = '\0';
    if (len > 2 && isdigit((unsigned char)word[0]) && strcmp(word + len - 2, "gb") == 0)
        word[len - 2] = '\0';
    return len > 0;
}

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

/* Are all words of a name among those of a device. */
static bool describes(const char *name, const char *words)
{
    char word[NAME_BYTES];
    bool is_any = false;
    for (const char *s = name; next_word(&s, word, sizeof word); is_any = true)
        if (strcmp(word, "nvidia") != 0 && !has_word(words, word))
            return false;
    return is_any;
}

static ech_status refuse_unknown(const char *name)
{
    const char *near = ech_nearest_name(name, device_names, N_DEVICES);
    ech_text words = {0};
    for (size_t i = 0; i < N_DEVICES && !near; i++)
        ech_text_add(&words, "%s%s", i ? ", " : "", device_names[i]);
    const ech_status st =
        ECH_RAISE(ECH_E_CONFIG, "'%.60s' is no known device%s%s", name,
                  near ? ", nearest is " : "; known are ", near ? near : ech_text_get(&words));
    ech_text_fini(&words);
    return st;
}

static ech_status refuse_several(const char *name)
{
    ech_text words = {0};
    for (size_t i = 0; i < N_DEVICES; i++)
        if (describes(name, rows[i].words))
            ech_text_add(&words, "%s%s", words.bytes ? ", " : "", rows[i].device.name);
    const ech_status st =
        ECH_RAISE(ECH_E_CONFIG, "'%.60s' can mean several devices: %s", name, ech_text_get(&words));
    ech_text_fini(&words);
    return st;
}

static bool is_same_chip(const device_row *a, const device_row *b)
{
    const size_t n = strcspn(a->words, " ");
    return strncmp(a->words, b->words, n + 1) == 0;
}

ech_status ech_device_find(const char *name, ech_device *out)
{
    const device_row *usual = NULL;
    const device_row *last = NULL;
    bool is_one_chip = true;
    int n = 0;
    for (size_t i = 0; i < N_DEVICES; i++) {
        if (strcmp(name, rows[i].device.name) == 0) {
            *out = rows[i].device;
            return ECH_OK;
        }
        if (!describes(name, rows[i].words))
            continue;
        n++;
        is_one_chip = is_one_chip && (!last || is_same_chip(last, &rows[i]));
        last = &rows[i];
        usual = rows[i].is_usual ? &rows[i] : usual;
    }
    if (n == 0)
        return refuse_unknown(name);
    if (n > 1 && !(usual && is_one_chip))
        return refuse_several(name);
    *out = n == 1 ? last->device : usual->device;
    return ECH_OK;
}
