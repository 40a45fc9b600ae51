/* Shared by the families: operands as REAL, sums in double.  Included with REAL defined.
 *
 * Column sums (a gradient of a weight is one) need an accumulator per column.  Kernels allocate
 * nothing, so columns are taken TILE at a time with the accumulators on the stack. */

enum { TILE = 256 };

static inline const REAL *in(const ech_kernel_call *call, int i)
{
    return call->arg[i].data;
}

static inline REAL *out(const ech_kernel_call *call, int i)
{
    return call->arg[i].data;
}

/* Key of the call's dropout.  Made only where p > 0: evaluation has no step to draw for. */
static inline ech_rng_key dropout_key(const ech_kernel_call *call, int64_t purpose)
{
    return ech_rng_key_make(call->rng.seed, (ech_rng_purpose)purpose, call->rng.step,
                            call->rng.layer);
}

static inline int64_t tile_size(int64_t begin, int64_t end)
{
    return end - begin < TILE ? end - begin : TILE;
}

/* sum_k a[k] b[k] in eight interleaved chains: independent additions, in one fixed order. */
static inline double dot(const REAL *a, const REAL *b, int64_t n)
{
    double s[8] = {0};
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (int c = 0; c < 8; c++)
            s[c] += (double)a[k + c] * (double)b[k + c];
    double tail = 0.0;
    for (; k < n; k++)
        tail += (double)a[k] * (double)b[k];
    return (((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]))) + tail;
}

/* acc[k] += f x[k]; chunks of eight so that the compiler sees a fixed trip count. */
static inline void axpy(double *restrict acc, double f, const REAL *restrict x, int64_t n)
{
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (int c = 0; c < 8; c++)
            acc[k + c] += f * (double)x[k + c];
    for (; k < n; k++)
        acc[k] += f * (double)x[k];
}

/* y[k] += acc[k] */
static inline void add_tile(REAL *restrict y, const double *restrict acc, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        y[k] = (REAL)((double)y[k] + acc[k]);
}

/* y[k] = f acc[k] */
static inline void store_tile(REAL *restrict y, double f, const double *restrict acc, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        y[k] = (REAL)(f * acc[k]);
}
