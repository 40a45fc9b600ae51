/** @file price/constants.h
 *  The one table of what machines and software reach, beside what makers state: shares of peaks,
 *  latencies, launch costs.
 *
 *  A constant belongs to a kind of device, to a generation of software or to physics; none belongs
 *  to a measurement, a paper or a model.  Each has a prior from a published measurement (mean and
 *  spread in logarithms) and, where it is free, a value fitted to published step times against that
 *  prior (bench/fit), so that what the data do not tell stays at what is known anyway.
 *  Pure; local. */
#ifndef ECH_PRICE_CONSTANTS_H
#define ECH_PRICE_CONSTANTS_H

#include "base/status.h" /* ECH_MUST_USE */

/** X(id, name, unit, prior, sigma of ln (0: not fitted), low, high, source of the prior) */
#define ECH_CONSTANT_LIST(X)                                                                       \
    X(ECH_K_GEMM_AMPERE, "gemm.ampere", "1", 0.93, 0.05, 0.6, 1.1,                                 \
      "steady share of the best measured product: clocks under load")                              \
    X(ECH_K_GEMM_HOPPER, "gemm.hopper", "1", 0.88, 0.07, 0.5, 1.1, "likewise")                     \
    X(ECH_K_GEMM_BLACKWELL, "gemm.blackwell", "1", 0.70, 0.12, 0.5, 1.1, "likewise")               \
    X(ECH_K_GEMM_OTHER, "gemm.other", "1", 0.88, 0.0, 0.5, 1.1, "likewise")                        \
    X(ECH_K_GEMM_POWER, "gemm.power", "1", 0.45, 0.0, 0.1, 1.0,                                    \
      "clock against board power: cube root of power at fixed voltage to linear")                  \
    X(ECH_K_GEMM_RAMP, "gemm.ramp", "s", 1.2e-6, 0.4, 2e-7, 5e-6,                                  \
      "a tile's prologue and epilogue: two trips to memory")                                       \
    X(ECH_K_GEMM_TAIL, "gemm.tail", "1", 0.5, 0.4, 0.05, 1.0,                                      \
      "of an unfilled last wave is lost; the rest stream-K and split-K win back")                  \
    X(ECH_K_GEMM_EPILOGUE, "gemm.epilogue", "1", 0.4, 0.4, 0.0, 1.5,                               \
      "of the writing of results nothing hides: one tile a unit at a time")                        \
    X(ECH_K_GEMM_WGRAD, "gemm.wgrad", "1", 0.95, 0.04, 0.7, 1.1,                                   \
      "weight gradients against forward products: 5-10 points lower, SimuMax's A100 table")        \
    X(ECH_K_GEMM_BENT, "gemm.bent", "1", 0.80, 0.0, 0.4, 1.0,                                      \
      "leading sizes that are no multiple of 64 elements")                                         \
    X(ECH_K_GEMM_CROOKED, "gemm.crooked", "1", 0.45, 0.0, 0.1, 1.0,                                \
      "leading sizes that are no multiple of 8 elements: no 16-byte loads")                        \
    X(ECH_K_GEMM_FP8, "gemm.fp8", "1", 0.88, 0.1, 0.4, 1.1, "fp8 against its best product")        \
    X(ECH_K_GEMM_FP8_BLACKWELL, "gemm.fp8.blackwell", "1", 0.95, 0.1, 0.4, 1.2, "likewise")        \
    X(ECH_K_GEMM_UNMEASURED, "gemm.unmeasured", "1", 0.8, 0.0, 0.5, 1.0,                           \
      "large products against the peak where none was measured: those that were, 0.51 to 0.87")    \
    X(ECH_K_MEMORY, "memory", "1", 0.83, 0.07, 0.5, 0.97,                                          \
      "element-wise kernels against the stated bandwidth: STREAM-like 0.80-0.92")                  \
    X(ECH_K_TRAFFIC_2021, "traffic.megatron-2021", "1", 1.0, 0.15, 0.5, 2.5,                       \
      "bytes moved against the listed passes")                                                     \
    X(ECH_K_ACCUMULATE, "traffic.accumulate", "1", 0.8, 0.4, 0.3, 2.0,                             \
      "adding up gradients, against kernels of their own: products that do it themselves save "    \
      "half")                                                                                      \
    X(ECH_K_TRAFFIC_EAGER, "traffic.eager", "1", 1.25, 0.2, 0.5, 2.5, "likewise")                  \
    X(ECH_K_TRAFFIC_FUSED, "traffic.fused", "1", 1.0, 0.15, 0.5, 2.5, "likewise")                  \
    X(ECH_K_SCORES_RATE, "attention.scores", "1", 0.55, 0.2, 0.2, 1.0,                             \
      "stored scores: batched products against large ones")                                        \
    X(ECH_K_HEADS_BENT, "attention.bent", "1", 0.92, 0.05, 0.5, 1.0,                               \
      "head sizes that are no multiple of 64 where scores are stored")                             \
    X(ECH_K_HEADS_CROOKED, "attention.crooked", "1", 0.13, 0.0, 0.05, 1.0,                         \
      "head sizes that are no multiple of 8: no matrix units, so fp32 units: A100 19.5 of 312 "    \
      "TFLOP/s, over the 150 that stored scores reach with them")                                  \
    X(ECH_K_FLASH_1, "attention.flash1", "1", 0.45, 0.15, 0.2, 0.8,                                \
      "FlashAttention 1 and Triton on A100, of the peak: Dao 2023, arXiv:2307.08691, fig. 4-6")    \
    X(ECH_K_FLASH_2_AMPERE, "attention.flash2.ampere", "1", 0.62, 0.0, 0.3, 0.8,                   \
      "FlashAttention 2 on A100: Dao 2023")                                                        \
    X(ECH_K_FLASH_1_HOPPER, "attention.flash1.hopper", "1", 0.27, 0.15, 0.15, 0.6,                 \
      "kernels made for A100 on H100")                                                             \
    X(ECH_K_FLASH_2_HOPPER, "attention.flash2.hopper", "1", 0.36, 0.12, 0.2, 0.7,                  \
      "FlashAttention 2 on H100: Shah et al. 2024, arXiv:2407.08608, fig. 5")                      \
    X(ECH_K_FLASH_3_HOPPER, "attention.flash3.hopper", "1", 0.58, 0.0, 0.3, 0.8,                   \
      "FlashAttention 3 and cuDNN 9 on H100: Shah et al. 2024")                                    \
    X(ECH_K_FLASH_BLACKWELL, "attention.blackwell", "1", 0.55, 0.15, 0.25, 0.8, "cuDNN 9 on B200") \
    X(ECH_K_FLASH_OTHER, "attention.other", "1", 0.35, 0.0, 0.1, 0.8, "elsewhere")                 \
    X(ECH_K_FLASH_SOFTMAX, "attention.softmax", "1", 24, 0.0, 1, 100,                              \
      "softmax costs as much as so much of a head: 64 against 128, Dao 2023, fig. 4")              \
    X(ECH_K_FLASH_BACKWARD, "attention.backward", "1", 0.82, 0.1, 0.5, 1.1,                        \
      "backward against forward rate: Dao 2023")                                                   \
    X(ECH_K_NVLINK, "link.inner", "1", 0.78, 0.06, 0.5, 1.0,                                       \
      "NCCL bus bandwidth on NVLink: A100 235/300, H200 367/450, B200 682/900")                    \
    X(ECH_K_PCIE, "link.pcie", "1", 0.7, 0.0, 0.3, 1.0, "NCCL over PCIe switches")                 \
    X(ECH_K_NETWORK, "link.network", "1", 0.82, 0.12, 0.3, 1.0, "NCCL bus bandwidth over IB")      \
    X(ECH_K_ROCE, "link.roce", "1", 0.7, 0.2, 0.2, 1.0,                                            \
      "likewise over Ethernet: line rate less congestion")                                         \
    X(ECH_K_OMNIPATH, "link.omni-path", "1", 0.35, 0.35, 0.15, 1.0,                                \
      "likewise over Omni-Path: processors move the bytes")                                        \
    X(ECH_K_REDUCTION, "link.reduction", "1", 1.3, 0.0, 1.0, 2.0,                                  \
      "all-reduce in the switch: H200 480 against 367")                                            \
    X(ECH_K_START, "link.start", "s", 2.0e-5, 0.4, 3e-6, 1e-4,                                     \
      "NCCL all-reduce of little in a node")                                                       \
    X(ECH_K_PAYLOAD, "link.payload", "s", 5.0e-5, 0.4, 1e-6, 4e-4,                                 \
      "what middle payloads cost beside: H200 curve, 8 MiB half-way")                              \
    X(ECH_K_HALF_WAY, "link.half-way", "B", 8388608, 0.0, 1e6, 1e8,                                \
      "payload that costs half of that: the same curve")                                           \
    X(ECH_K_INNER_HOP, "link.hop.inner", "s", 1e-6, 0.0, 2e-7, 1e-5,                               \
      "a further rank of a ring in a node")                                                        \
    X(ECH_K_WAIT, "link.wait", "s", 3e-4, 0.0, 1e-5, 5e-3,                                         \
      "a stage that waits for a message: device and host meet")                                    \
    X(ECH_K_HOP, "link.hop", "s", 6.0e-6, 0.0, 1e-6, 5e-5, "a further node in a ring")             \
    X(ECH_K_INTERFERENCE, "overlap.interference", "1", 0.25, 0.4, 0.0, 1.0,                        \
      "hidden communication slows compute by so much of itself: Calculon 2-15 %")                  \
    X(ECH_K_DP_HIDDEN, "overlap.dp", "1", 0.85, 0.0, 0.2, 1.0,                                     \
      "of the backward that reductions and gathers can hide under")                                \
    X(ECH_K_TP_HIDDEN, "overlap.tp", "1", 0.75, 0.0, 0.02, 0.95,                                   \
      "of tensor parallel messages under chunked products")                                        \
    X(ECH_K_TP_ASYNC, "overlap.tp.async", "1", 0.4, 0.0, 0.02, 0.95,                               \
      "likewise by asynchronous copies: torchtitan")                                               \
    X(ECH_K_LAUNCH_2021, "launch.megatron", "s", 1.3e-5, 0.3, 1e-6, 4e-5, "host time of a kernel") \
    X(ECH_K_LAUNCH_EAGER, "launch.eager", "s", 9e-6, 0.0, 1e-6, 4e-5, "likewise")                  \
    X(ECH_K_LAUNCH_FUSED, "launch.fused", "s", 6e-6, 0.0, 1e-6, 4e-5, "likewise")                  \
    X(ECH_K_KERNEL, "kernel", "s", 2.5e-6, 0.0, 5e-7, 1e-5,                                        \
      "least time of a kernel on the device")                                                      \
    X(ECH_K_OPTIMIZER, "optimizer", "1", 1.2, 0.25, 0.5, 4.0, "traffic against the listed passes") \
    X(ECH_K_STEP, "step.fixed", "s", 0.015, 0.6, 1e-3, 0.3, "data, loss, host work of a step")     \
    X(ECH_K_STRAGGLER, "step.straggler", "1", 0.003, 0.5, 1e-5, 0.03,                              \
      "a step is so much longer for each doubling of ranks")                                       \
    X(ECH_K_MICRO, "micro.fixed", "s", 1.0e-3, 0.5, 1e-5, 2e-2, "host work of a micro-batch")      \
    X(ECH_K_GROUPED, "moe.grouped", "1", 0.75, 0.0, 0.3, 1.0, "grouped products against one")      \
    X(ECH_K_ALLTOALL, "moe.alltoall", "1", 0.75, 0.0, 0.2, 1.0, "all-to-all against rings")        \
    X(ECH_K_PERMUTE, "moe.permute", "1", 1.5, 0.0, 0.5, 5.0, "passes of permuting, against listed")

typedef enum ech_constant {
#define ECH_CONSTANT_ENUM(id, name, unit, prior, sigma, low, high, source) id,
    ECH_CONSTANT_LIST(ECH_CONSTANT_ENUM)
#undef ECH_CONSTANT_ENUM
        ECH_N_CONSTANTS
} ech_constant;

/** What is known of one beside its value.  Static storage. */
typedef struct ech_constant_info {
    const char *name, *unit, *source;
    double prior;
    double sigma; /**< of the logarithm; 0: not fitted */
    double low, high;
} ech_constant_info;

/** A whole table. */
typedef struct ech_constants {
    double value[ECH_N_CONSTANTS];
} ech_constants;

/** The built-in table: fitted. */
const ech_constants *ech_constants_builtin(void);

/** All at their priors. */
ech_constants ech_constants_prior(void);

/** What is known of one. */
const ech_constant_info *ech_constant_about(ech_constant c);

#endif
