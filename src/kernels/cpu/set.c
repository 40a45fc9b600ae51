/* The module's entry: chooses the instruction set at load. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#include <stdio.h>

/* ECH_CPU_LEVEL: the highest instruction set this build of the module may choose. */
static bool has_v4(void)
{
    return ECH_CPU_LEVEL >= 4 && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool is_usable(char *why, size_t n)
{
    if (has_v3())
        return true;
    (void)snprintf(why, n, "this processor has no AVX2 and FMA (x86-64-v3)");
    return false;
}

static bool is_supported(ech_op_kind kind, ech_dtype real)
{
    (void)kind;
    return real == ECH_F32;
}

#define ROW_V3(kind, name) [kind] = ECH_CPU_PASTE(name, v3),
#define ROW_V4(kind, name) [kind] = ECH_CPU_PASTE(name, v4),

static const ech_kernel_set set_v3 = {.name = "cpu (AVX2)",
                                      .priority = 10,
                                      .is_usable = is_usable,
                                      .supports = is_supported,
                                      .start = ech_team_start,
                                      .stop = ech_team_stop,
                                      .kernel = {ECH_CPU_KERNEL_LIST(ROW_V3)}};

static const ech_kernel_set set_v4 = {.name = "cpu (AVX-512)",
                                      .priority = 10,
                                      .is_usable = is_usable,
                                      .supports = is_supported,
                                      .start = ech_team_start,
                                      .stop = ech_team_stop,
                                      .kernel = {ECH_CPU_KERNEL_LIST(ROW_V4)}};

/** The one symbol of the module. */
__attribute__((visibility("default"))) const ech_kernel_set *ech_kernel_module(void);

const ech_kernel_set *ech_kernel_module(void)
{
    __builtin_cpu_init();
    return has_v4() ? &set_v4 : &set_v3;
}
