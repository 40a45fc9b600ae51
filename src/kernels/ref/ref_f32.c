/* The reference kernels for fp32 storage. */
#define REAL        float
#define REF_KERNELS ech_ref_kernels_f32
#include "kernels/ref/ref_all.inc.h"
