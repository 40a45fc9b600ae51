/** @file base/dtype.h
 *  Element types of slots, messages and files.  Local, pure. */
#ifndef ECH_BASE_DTYPE_H
#define ECH_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/** Enumerator, bytes, name here, name in safetensors. */
#define ECH_DTYPE_LIST(X)                                                                          \
    X(ECH_F64, 8, "fp64", "F64")                                                                   \
    X(ECH_F32, 4, "fp32", "F32")                                                                   \
    X(ECH_BF16, 2, "bf16", "BF16")                                                                 \
    X(ECH_F16, 2, "fp16", "F16")                                                                   \
    X(ECH_I64, 8, "int64", "I64")                                                                  \
    X(ECH_I32, 4, "int32", "I32")                                                                  \
    X(ECH_U16, 2, "uint16", "U16")                                                                 \
    X(ECH_U8, 1, "uint8", "U8")

typedef enum ech_dtype {
#define ECH_DTYPE_ENUM(name, bytes, text, st) name,
    ECH_DTYPE_LIST(ECH_DTYPE_ENUM)
#undef ECH_DTYPE_ENUM
        ECH_N_DTYPES
} ech_dtype;

/** Bytes of one element. */
size_t ech_dtype_bytes(ech_dtype t);

/** Name as in configs ("fp32"). */
const char *ech_dtype_name(ech_dtype t);

/** Name as in safetensors headers ("F32"). */
const char *ech_dtype_safetensors_name(ech_dtype t);

/** bf16 bits to fp32 (exact). */
float ech_bf16_to_f32(uint16_t bits);

/** fp32 to bf16 bits, round to nearest even, NaN stays NaN. */
uint16_t ech_f32_to_bf16(float x);

/** IEEE fp16 bits to fp32 (exact). */
float ech_f16_to_f32(uint16_t bits);

/** fp32 to IEEE fp16 bits, round to nearest even, overflow to infinity. */
uint16_t ech_f32_to_f16(float x);

/** Element i of an array of floating or integer type t, as a double. */
double ech_dtype_load(ech_dtype t, const void *array, size_t i);

/** Store x as element i of an array of type t, rounded once to nearest; integer types clamp at
 *  their ends and turn NaN into 0. */
void ech_dtype_store(ech_dtype t, void *array, size_t i, double x);

#endif
