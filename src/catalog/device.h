/** @file catalog/device.h
 *  Accelerators and processors that models are trained on: what their makers state and what has been
 *  measured on them.  One static table (device.c), each figure with its source beside it.
 *
 *  Peaks are dense: makers also print twice as much "with sparsity".  Bandwidths are one way.
 *  Pure; every call is local. */
#ifndef ECH_CATALOG_DEVICE_H
#define ECH_CATALOG_DEVICE_H

#include "base/status.h" /* ech_status */

/** What matrix products compute in. */
#define ECH_PRECISION_LIST(X)                                                                      \
    X(ECH_PRECISION_FP32, "fp32") /**< without tensor cores; processors: vector units */           \
    X(ECH_PRECISION_TF32, "tf32")                                                                  \
    X(ECH_PRECISION_FP16, "fp16")                                                                  \
    X(ECH_PRECISION_BF16, "bf16")                                                                  \
    X(ECH_PRECISION_FP8, "fp8")     /**< a scale a tensor, or blocks on Hopper */                  \
    X(ECH_PRECISION_MXFP8, "mxfp8") /**< a scale for 32 elements */                                \
    X(ECH_PRECISION_NVFP4, "nvfp4")

typedef enum ech_precision {
#define ECH_PRECISION_ENUM(name, text) name,
    ECH_PRECISION_LIST(ECH_PRECISION_ENUM)
#undef ECH_PRECISION_ENUM
        ECH_N_PRECISIONS
} ech_precision;

/** "bf16", ...; static storage. */
const char *ech_precision_name(ech_precision p);

/** Reads a name.  @return is it one */
ECH_MUST_USE bool ech_precision_read(const char *name, ech_precision *out);

/** Families of kernels that devices have: what decides how well shapes are met. */
typedef enum ech_device_kind {
    ECH_DEVICE_CPU,
    ECH_DEVICE_VOLTA,
    ECH_DEVICE_AMPERE,    /**< A100, A800 */
    ECH_DEVICE_AMPERE_GX, /**< consumer: RTX 3090 */
    ECH_DEVICE_ADA,       /**< RTX 4090, L40S */
    ECH_DEVICE_HOPPER,
    ECH_DEVICE_BLACKWELL,
    ECH_DEVICE_CDNA3, /**< MI300X */
    ECH_N_DEVICE_KINDS
} ech_device_kind;

/** One device; a CPU "device" is one node's processors. */
typedef struct ech_device {
    const char
        *name; /**< "a100-sxm-80"; static storage, or owned by the cluster read from a file */
    ech_device_kind kind;
    int units;                           /**< SMs, CUs or cores: waves of tiles */
    double peak_flops[ECH_N_PRECISIONS]; /**< FLOP/s dense; 0: it has no such units */
    double gemm_flops[ECH_N_PRECISIONS]; /**< best matrix product that was measured; 0: not known */
    double memory_bytes;                 /**< as sold; makers print GB and count in 2^30 */
    double usable_bytes;                 /**< what a framework can allocate in, context included */
    double memory_bytes_per_s;           /**< stated */
    double link_bytes_per_s;             /**< host link (PCIe, C2C), one way; 0: it is the host */
    double peer_bytes_per_s; /**< NVLink or Infinity Fabric, all its links, one way; 0: none */
    double watts;            /**< of the device's board under load */
    double dollars_per_hour; /**< a public on-demand price, of one device; 0: not known */
} ech_device;

/** A device by name; other spellings ("A100-80GB-SXM", "h100") are understood where they are
 *  unambiguous: words in any order that describe one device only.  "H100" alone is the SXM form of
 *  80 GB, as its maker means it; "A100" is refused, it is sold with 40 and 80 GB.
 *  @return ECH_OK | ECH_E_CONFIG with the nearest names, or those it may mean; *out unchanged */
ECH_MUST_USE ech_status ech_device_find(const char *name, ech_device *out);

/** Names of all devices, sorted; static storage. */
const char *const *ech_device_names(size_t *n);

#endif
