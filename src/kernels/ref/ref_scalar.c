/* Kernels that are free of REAL: bytes, labels and cells of the scalar table. */
#include "kernels/ref/ref.h"

#include "kernels/sumsq.h" /* exact sums */

#include <math.h>   /* sqrt */
#include <string.h> /* memset, memcpy */

static size_t bytes_of(const ech_tensor *t)
{
    return (size_t)ech_tensor_elems(t) * ech_dtype_bytes(t->dtype);
}

static double f64_cell(const ech_tensor *t)
{
    return *(const double *)t->data;
}

/* buf = 0 */
void ech_ref_zero(const ech_kernel_call *call)
{
    memset(call->arg[0].data, 0, bytes_of(&call->arg[0]));
}

/* y = x */
void ech_ref_copy(const ech_kernel_call *call)
{
    memcpy(call->arg[1].data, call->arg[0].data, bytes_of(&call->arg[0]));
}

/* count = sum_i [labels[i] >= 0] */
void ech_ref_count_tokens(const ech_kernel_call *call)
{
    const int32_t *labels = call->arg[0].data;
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += labels[i] >= 0;
    *(int64_t *)call->arg[1].data = count;
}

/* seed = loss_scale / tokens.  Without a token every gradient is zero, so the seed is 0, never
 * infinite: the step runs through and the host skips its update. */
void ech_ref_loss_seed(const ech_kernel_call *call)
{
    const int64_t tokens = *(const int64_t *)call->arg[0].data;
    const double loss_scale = f64_cell(&call->arg[1]);
    *(double *)call->arg[2].data = tokens > 0 ? loss_scale / (double)tokens : 0.0;
}

/* sum = ((x[0] + x[1]) + x[2]) + ... */
void ech_ref_sum_cells(const ech_kernel_call *call)
{
    const double *x = call->arg[0].data;
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    *(double *)call->arg[1].data = sum;
}

static void add_words(int64_t *total, const int64_t *more)
{
    for (int k = 0; k < ECH_SUMSQ_WORDS && more; k++)
        total[k] += more[k];
}

/* sum + copies / n + whole, rounded once.  Every element of `copies` was counted n times, so the
 * division leaves no rest. */
static double sum_of_squares(const ech_kernel_call *call)
{
    int64_t total[ECH_SUMSQ_WORDS] = {0};
    add_words(total, call->arg[1].data);
    ech_sumsq_carry(total);
    ech_sumsq_divide(total, call->attr[0]);
    add_words(total, call->arg[0].data);
    add_words(total, call->arg[2].data);
    ech_sumsq_carry(total);
    return ech_sumsq_value(total);
}

/* grad_sq; norm = sqrt(grad_sq) / loss_scale;
 * factor = min(1, max_norm / (norm + 1e-6)) / loss_scale, the first term 1 with max_norm = 0 */
void ech_ref_clip(const ech_kernel_call *call)
{
    const double grad_sq = sum_of_squares(call);
    const double loss_scale = f64_cell(&call->arg[3]);
    const double max_norm = call->real[0];
    double factor = 1.0;
    if (max_norm > 0.0) {
        const double ratio = max_norm / (sqrt(grad_sq) / loss_scale + 1e-6);
        factor = ratio >= 1.0 ? 1.0 : ratio;
    }
    *(double *)call->arg[4].data = grad_sq;
    *(double *)call->arg[5].data = factor / loss_scale;
}
