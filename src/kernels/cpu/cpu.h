/** @file kernels/cpu/cpu.h
 *  The inside of the cpu set: which kinds it has and how its sources fit together.
 *
 *  Sources in simd/ are compiled once per instruction set (ECH_CPU_ISA: v3 is AVX2 + FMA, v4 is
 *  AVX-512), so every symbol they share carries the set's name: ECH_CPU(linear) is
 *  ech_cpu_linear_v4 in the one and ech_cpu_linear_v3 in the other object.  set.c chooses at load.
 *  All REAL arguments are fp32. */
#ifndef ECH_KERNELS_CPU_CPU_H
#define ECH_KERNELS_CPU_CPU_H

#include "kernels/kernels.h" /* ech_kernel_call */

/** Kinds of this set and the name of each kernel. */
#define ECH_CPU_KERNEL_LIST(X)                                                                     \
    X(ECH_OP_ZERO, zero)                                                                           \
    X(ECH_OP_COPY, copy)                                                                           \
    X(ECH_OP_SCALE, scale)                                                                         \
    X(ECH_OP_ADD, add)                                                                             \
    X(ECH_OP_EMBED, embed)                                                                         \
    X(ECH_OP_EMBED_BACKWARD, embed_backward)                                                       \
    X(ECH_OP_POSITIONS, positions)                                                                 \
    X(ECH_OP_POSITIONS_BACKWARD, positions_backward)                                               \
    X(ECH_OP_BIAS, bias)                                                                           \
    X(ECH_OP_BIAS_BACKWARD, bias_backward)                                                         \
    X(ECH_OP_LAYERNORM, layernorm)                                                                 \
    X(ECH_OP_LAYERNORM_BACKWARD, layernorm_backward)                                               \
    X(ECH_OP_RMSNORM, rmsnorm)                                                                     \
    X(ECH_OP_RMSNORM_BACKWARD, rmsnorm_backward)                                                   \
    X(ECH_OP_LINEAR, linear)                                                                       \
    X(ECH_OP_LINEAR_DGRAD, linear_dgrad)                                                           \
    X(ECH_OP_LINEAR_WGRAD, linear_wgrad)                                                           \
    X(ECH_OP_QK_NORM, qk_norm)                                                                     \
    X(ECH_OP_QK_NORM_BACKWARD, qk_norm_backward)                                                   \
    X(ECH_OP_ROPE, rope)                                                                           \
    X(ECH_OP_ATTENTION, attention)                                                                 \
    X(ECH_OP_ATTENTION_BACKWARD, attention_backward)                                               \
    X(ECH_OP_ATTENTION_CACHED, attention_cached)                                                   \
    X(ECH_OP_SWIGLU, swiglu)                                                                       \
    X(ECH_OP_SWIGLU_BACKWARD, swiglu_backward)                                                     \
    X(ECH_OP_GELU, gelu)                                                                           \
    X(ECH_OP_GELU_BACKWARD, gelu_backward)                                                         \
    X(ECH_OP_DROPOUT, dropout)                                                                     \
    X(ECH_OP_XENT_SHARD, xent_shard)                                                               \
    X(ECH_OP_XENT, xent)                                                                           \
    X(ECH_OP_XENT_BACKWARD, xent_backward)                                                         \
    X(ECH_OP_KV_FOLD, kv_fold)                                                                     \
    X(ECH_OP_KV_SPREAD, kv_spread)                                                                 \
    X(ECH_OP_SUMSQ, sumsq)                                                                         \
    X(ECH_OP_ADAMW, adamw)                                                                         \
    X(ECH_OP_SGD, sgd)

#define ECH_CPU_PASTE(name, isa) ech_cpu_##name##_##isa
#define ECH_CPU_NAME(name, isa)  ECH_CPU_PASTE(name, isa)
#define ECH_CPU(name)            ECH_CPU_NAME(name, ECH_CPU_ISA)
#define ECH_CPU_DECLARE(kind, name)                                                                \
    void ECH_CPU_PASTE(name, v3)(const ech_kernel_call *call);                                     \
    void ECH_CPU_PASTE(name, v4)(const ech_kernel_call *call);
ECH_CPU_KERNEL_LIST(ECH_CPU_DECLARE)
#undef ECH_CPU_DECLARE

/** Largest head_dim the attention kernels have scratch for. */
enum { ECH_CPU_HEAD_DIM_MAX = 512 };

/** C [m, n] = A [m, k] B [k, n] (+ bias of each column), or C += A B.  Element (i, p) of A stands
 *  at a[i * a_row + p * a_col], one of the two strides being 1; B likewise. */
typedef struct ech_cpu_gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_row, b_col;
    float *c;
    int64_t c_row;
    const float *bias; /**< [n] or NULL */
    bool is_added;     /**< C += A B; bias must be NULL */
    int threads;
} ech_cpu_gemm;

/** Run it.  Every element of C is summed in one order of p, whatever the threads. */
void ECH_CPU_PASTE(gemm, v3)(const ech_cpu_gemm *g);
void ECH_CPU_PASTE(gemm, v4)(const ech_cpu_gemm *g);

/* --- operands --- */

static inline const float *ech_cpu_in(const ech_kernel_call *call, int i)
{
    return (const float *)call->arg[i].data;
}

static inline float *ech_cpu_out(const ech_kernel_call *call, int i)
{
    return (float *)call->arg[i].data;
}

static inline double ech_cpu_cell(const ech_kernel_call *call, int i)
{
    return *(const double *)call->arg[i].data;
}

/** Elements of a tensor: the product of its extents. */
static inline int64_t ech_cpu_elems(const ech_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

static inline int64_t ech_cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ech_cpu_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
