/* Cross-entropy over logits [N, V], the columns `first` .. of the vocabulary: columns from attr
 * `vocab` on are padding and do not exist. */

/* Columns of a share of V, from `first` on, that exist. */
static inline int64_t live_columns(int64_t vocab, int64_t first, int64_t width)
{
    const int64_t live = vocab - first;
    return live < 0 ? 0 : live < width ? live : width;
}

/* log sum_v exp(x[v]); -inf of none */
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

/* log sum_t exp(part[t]), parts `step` elements apart; of one part it is that part, bit for bit. */
static double joined_log_sum(const double *part, int64_t n, int64_t step)
{
    double max = -INFINITY;
    for (int64_t t = 0; t < n; t++)
        max = part[t * step] > max ? part[t * step] : max;
    double sum = 0.0;
    for (int64_t t = 0; t < n; t++)
        sum += exp(part[t * step] - max);
    return max + log(sum);
}

/* parts[0][0][n] = log sum exp of the row, parts[0][1][n] = logits[n, label - first] or 0; fp64,
 * since the loss is their small difference */
static void xent_shard(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    const int64_t live = live_columns(call->attr[0], call->attr[1], width);
    const int32_t *labels = call->arg[1].data;
    double *parts = call->arg[2].data;
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *x = in(call, 0) + n * width;
        const int64_t at = labels[n] >= 0 ? labels[n] - call->attr[1] : -1;
        parts[n] = row_log_sum_exp(x, live);
        parts[n_rows + n] = at >= 0 && at < live ? (double)x[at] : 0.0;
    }
}

/* lse[n] = log sum_t exp(parts[t][0][n]) of every row, masked or not.
 * loss += sum over labels >= 0 of lse[n] - sum_t parts[t][1][n], with lse[n] as it is in double */
static void xent(const ech_kernel_call *call)
{
    const int64_t n_parts = call->arg[0].dim[0];
    const int64_t n_rows = call->arg[0].dim[2];
    const int32_t *labels = call->arg[1].data;
    double loss = 0.0;
    for (int64_t n = 0; n < n_rows; n++) {
        const double *part = (const double *)call->arg[0].data + n;
        const double lse = joined_log_sum(part, n_parts, 2 * n_rows);
        double logit = 0.0;
        for (int64_t t = 0; t < n_parts; t++)
            logit += part[(2 * t + 1) * n_rows];
        out(call, 2)[n] = (REAL)lse;
        if (labels[n] >= 0)
            loss += lse - logit;
    }
    *(double *)call->arg[3].data += loss;
}

/* dlogits[n, v] = (exp(logits[n, v] - lse[n]) - [v = label - first]) seed, in place; 0 in masked
 * rows and padded columns */
static void xent_backward(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    const int64_t columns = live_columns(call->attr[0], call->attr[1], width);
    const int32_t *labels = call->arg[1].data;
    const double seed = *(const double *)call->arg[3].data;
    for (int64_t n = 0; n < n_rows; n++) {
        REAL *x = out(call, 0) + n * width;
        const double lse = (double)in(call, 2)[n];
        const int64_t label = labels[n] - call->attr[1];
        const int64_t live = labels[n] >= 0 ? columns : 0;
        for (int64_t v = 0; v < live; v++)
            x[v] = (REAL)((exp((double)x[v] - lse) - (v == label ? 1.0 : 0.0)) * seed);
        memset(x + live, 0, (size_t)(width - live) * sizeof(REAL));
    }
}
