/* The reference kernels for fp64 storage. */
#define REAL        double
#define REF_KERNELS ech_ref_kernels_f64
#include "kernels/ref/ref_all.inc.h"
