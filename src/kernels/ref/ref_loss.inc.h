/* Cross-entropy over logits [N, V]: columns from attr `vocab` on are padding and do not exist. */

/* log sum_v exp(x[v]) */
static double row_log_sum_exp(const REAL *x, int64_t n)
{
    double max = -INFINITY;
    for (int64_t v = 0; v < n; v++)
        max = (double)x[v] > max ? (double)x[v] : max;
    double sum = 0.0;
    for (int64_t v = 0; v < n; v++)
        sum += exp((double)x[v] - max);
    return max + log(sum);
}

/* lse[n] of every row, masked or not; loss += sum over labels >= 0 of lse[n] - logits[n, label] */
static void xent(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t stride = call->arg[0].dim[1];
    const int32_t *labels = call->arg[1].data;
    double loss = 0.0;
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *x = in(call, 0) + n * stride;
        const double lse = row_log_sum_exp(x, call->attr[0]);
        out(call, 2)[n] = (REAL)lse;
        if (labels[n] >= 0)
            loss += lse - (double)x[labels[n]];
    }
    *(double *)call->arg[3].data += loss;
}

/* dlogits[n, v] = (exp(logits[n, v] - lse[n]) - [v = label]) seed, in place; 0 in masked rows and
 * padded columns */
static void xent_backward(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t stride = call->arg[0].dim[1];
    const int64_t vocab = call->attr[0];
    const int32_t *labels = call->arg[1].data;
    const double seed = *(const double *)call->arg[3].data;
    for (int64_t n = 0; n < n_rows; n++) {
        REAL *x = out(call, 0) + n * stride;
        const double lse = (double)in(call, 2)[n];
        const int64_t live = labels[n] >= 0 ? vocab : 0;
        for (int64_t v = 0; v < live; v++)
            x[v] = (REAL)((exp((double)x[v] - lse) - (v == labels[n] ? 1.0 : 0.0)) * seed);
        memset(x + live, 0, (size_t)(stride - live) * sizeof(REAL));
    }
}
