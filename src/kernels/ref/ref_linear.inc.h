/* Matrix products, weights [O, I] as in torch, biases, and key/value rows of a gradient.  All inner
 * loops of products run along I, which is contiguous in x, w, dx and dw. */

/* y[n, o] = sum_i x[n, i] w[o, i] + bias[o] */
static void linear(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t n_in = call->arg[1].dim[1];
    const int64_t n_out = call->arg[1].dim[0];
    const REAL *bias = in(call, 2);
    REAL *y = out(call, 3);
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *x = in(call, 0) + n * n_in;
        for (int64_t o = 0; o < n_out; o++) {
            const double b = bias ? (double)bias[o] : 0.0;
            y[n * n_out + o] = (REAL)(dot(x, in(call, 1) + o * n_in, n_in) + b);
        }
    }
}

/* dx[n, i] = sum_o dy[n, o] w[o, i] */
static void linear_dgrad(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t n_out = call->arg[1].dim[0];
    const int64_t n_in = call->arg[1].dim[1];
    const REAL *w = in(call, 1);
    REAL *dx = out(call, 2);
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *dy = in(call, 0) + n * n_out;
        for (int64_t i = 0; i < n_in; i += TILE) {
            const int64_t width = tile_size(i, n_in);
            double acc[TILE] = {0};
            for (int64_t o = 0; o < n_out; o++)
                axpy(acc, (double)dy[o], w + o * n_in + i, width);
            store_tile(dx + n * n_in + i, 1.0, acc, width);
        }
    }
}

/* dw[o, i] += sum_n dy[n, o] x[n, i] */
static void add_weight_gradient(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t n_out = call->arg[2].dim[0];
    const int64_t n_in = call->arg[2].dim[1];
    const REAL *x = in(call, 0);
    const REAL *dy = in(call, 1);
    REAL *dw = out(call, 2);
    for (int64_t o = 0; o < n_out; o++) {
        for (int64_t i = 0; i < n_in; i += TILE) {
            const int64_t width = tile_size(i, n_in);
            double acc[TILE] = {0};
            for (int64_t n = 0; n < n_rows; n++)
                axpy(acc, (double)dy[n * n_out + o], x + n * n_in + i, width);
            add_tile(dw + o * n_in + i, acc, width);
        }
    }
}

/* dst[c] += sum_n x[n, c] */
static void add_column_sums(REAL *dst, const REAL *x, int64_t n_rows, int64_t n_cols)
{
    for (int64_t c = 0; c < n_cols; c += TILE) {
        const int64_t width = tile_size(c, n_cols);
        double acc[TILE] = {0};
        for (int64_t n = 0; n < n_rows; n++)
            axpy(acc, 1.0, x + n * n_cols + c, width);
        add_tile(dst + c, acc, width);
    }
}

/* dw += dy^T x, dbias[o] += sum_n dy[n, o] */
static void linear_wgrad(const ech_kernel_call *call)
{
    add_weight_gradient(call);
    if (call->arg[3].data)
        add_column_sums(out(call, 3), in(call, 1), call->arg[1].dim[0], call->arg[1].dim[1]);
}

/* y[n] += bias */
static void bias(const ech_kernel_call *call)
{
    const int64_t width = call->arg[1].dim[0];
    for (int64_t n = 0; n < call->arg[0].dim[0]; n++) {
        REAL *y = out(call, 0) + n * width;
        for (int64_t i = 0; i < width; i++)
            y[i] = (REAL)((double)y[i] + (double)in(call, 1)[i]);
    }
}

/* dbias += sum_n dy[n] */
static void bias_backward(const ech_kernel_call *call)
{
    add_column_sums(out(call, 1), in(call, 0), call->arg[0].dim[0], call->arg[0].dim[1]);
}

/* Groups hold copies of key and value rows: those of group j are number (first + j) / copies. */
static inline int64_t kv_number(const ech_kernel_call *call, int64_t j)
{
    return (call->attr[0] + j) / call->attr[1];
}

/* sum = 0; sum[number of j] += key and value rows of dw[j], j = 0, 1, ... */
static void kv_fold(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim; /* [g, r + 2, E] */
    const int64_t pair = 2 * dim[2];
    memset(call->arg[1].data, 0, (size_t)(dim[0] * pair) * sizeof(REAL));
    for (int64_t j = 0; j < dim[0]; j++) {
        const REAL *dw = in(call, 0) + (j + 1) * dim[1] * dim[2] - pair;
        REAL *sum = out(call, 1) + kv_number(call, j) * pair;
        for (int64_t i = 0; i < pair; i++)
            sum[i] = (REAL)((double)sum[i] + (double)dw[i]);
    }
}

/* key and value rows of dw[j] = sum[number of j] */
static void kv_spread(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[1].dim; /* [g, r + 2, E] */
    const int64_t pair = 2 * dim[2];
    for (int64_t j = 0; j < dim[0]; j++)
        memcpy(out(call, 1) + (j + 1) * dim[1] * dim[2] - pair,
               in(call, 0) + kv_number(call, j) * pair, (size_t)pair * sizeof(REAL));
}
