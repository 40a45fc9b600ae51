#include "base/dtype.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const struct {
    size_t bytes;
    const char *name;
    const char *safetensors;
} dtype_rows[] = {
#define ECH_DTYPE_ROW(name, bytes, text, st) [name] = {bytes, text, st},
    ECH_DTYPE_LIST(ECH_DTYPE_ROW)
#undef ECH_DTYPE_ROW
};

size_t ech_dtype_bytes(ech_dtype t)
{
    ECH_ASSERT((unsigned)t < ECH_N_DTYPES);
    return dtype_rows[t].bytes;
}

const char *ech_dtype_name(ech_dtype t)
{
    return (unsigned)t < ECH_N_DTYPES ? dtype_rows[t].name : "unknown";
}

const char *ech_dtype_safetensors_name(ech_dtype t)
{
    return (unsigned)t < ECH_N_DTYPES ? dtype_rows[t].safetensors : "unknown";
}

static uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float bits_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

float ech_bf16_to_f32(uint16_t bits)
{
    return bits_f32((uint32_t)bits << 16);
}

uint16_t ech_f32_to_bf16(float x)
{
    const uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) /* NaN: keep it quiet, never round it to infinity */
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float ech_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exp = (bits >> 10) & 0x1fu;
    const uint32_t man = bits & 0x3ffu;
    if (exp == 0x1f)
        return bits_f32(sign | 0x7f800000u | (man << 13));
    if (exp == 0) /* zero and subnormals: man * 2^-24 is exact in fp32 */
        return (sign ? -1.0f : 1.0f) * (float)man * 0x1p-24f;
    return bits_f32(sign | ((exp + 112u) << 23) | (man << 13));
}

uint16_t ech_f32_to_f16(float x)
{
    const uint32_t u = f32_bits(x);
    const uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: subnormal, in units of 2^-24 */
        const float scaled = bits_f32(a) * 0x1p24f;
        return (uint16_t)(sign | (uint16_t)nearbyintf(scaled));
    }
    const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000u) >> 13));
}

double ech_dtype_load(ech_dtype t, const void *array, size_t i)
{
    switch (t) {
    case ECH_F64:
        return ((const double *)array)[i];
    case ECH_F32:
        return (double)((const float *)array)[i];
    case ECH_BF16:
        return (double)ech_bf16_to_f32(((const uint16_t *)array)[i]);
    case ECH_F16:
        return (double)ech_f16_to_f32(((const uint16_t *)array)[i]);
    case ECH_I64:
        return (double)((const int64_t *)array)[i];
    case ECH_I32:
        return (double)((const int32_t *)array)[i];
    case ECH_U16:
        return (double)((const uint16_t *)array)[i];
    case ECH_U8:
        return (double)((const uint8_t *)array)[i];
    case ECH_N_DTYPES:
        break;
    }
    ECH_ASSERT(t < ECH_N_DTYPES);
    return 0.0;
}

/* To fp32, an inexact result made odd: a second rounding to fewer bits then gives what one rounding
 * would have (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"). */
static float round_to_odd(double x)
{
    const float f = (float)x;
    const uint32_t u = f32_bits(f);
    if (isnan(x) || (double)f == x || (u & 1u))
        return f;
    return bits_f32(fabs((double)f) > fabs(x) ? u - 1u : u + 1u);
}

/* Nearest integer within [low, high]; NaN gives 0. */
static int64_t round_within(double x, int64_t low, int64_t high)
{
    if (isnan(x))
        return 0;
    const double r = nearbyint(x);
    if (r <= (double)low)
        return low;
    return r >= (double)high ? high : (int64_t)r;
}

void ech_dtype_store(ech_dtype t, void *array, size_t i, double x)
{
    switch (t) {
    case ECH_F64:
        ((double *)array)[i] = x;
        return;
    case ECH_F32:
        ((float *)array)[i] = (float)x;
        return;
    case ECH_BF16:
        ((uint16_t *)array)[i] = ech_f32_to_bf16(round_to_odd(x));
        return;
    case ECH_F16:
        ((uint16_t *)array)[i] = ech_f32_to_f16(round_to_odd(x));
        return;
    case ECH_I64:
        ((int64_t *)array)[i] = round_within(x, INT64_MIN, INT64_MAX);
        return;
    case ECH_I32:
        ((int32_t *)array)[i] = (int32_t)round_within(x, INT32_MIN, INT32_MAX);
        return;
    case ECH_U16:
        ((uint16_t *)array)[i] = (uint16_t)round_within(x, 0, UINT16_MAX);
        return;
    case ECH_U8:
        ((uint8_t *)array)[i] = (uint8_t)round_within(x, 0, UINT8_MAX);
        return;
    case ECH_N_DTYPES:
        break;
    }
    ECH_ASSERT(t < ECH_N_DTYPES);
}
