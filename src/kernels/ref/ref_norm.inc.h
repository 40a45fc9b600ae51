/* Norms over the last dimension.  xhat is the normalised row before gamma; D below is the length of
 * a row: H, or head_dim for the norm of queries and keys. */

/* y = (x - mean) rstd gamma + beta,  mean = sum x / H,
 * rstd = 1 / sqrt(sum (x - mean)^2 / H + eps) */
static void layernorm(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    const REAL *gamma = in(call, 1);
    const REAL *beta = in(call, 2);
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *x = in(call, 0) + n * width;
        REAL *y = out(call, 3) + n * width;
        double mean = 0.0;
        for (int64_t i = 0; i < width; i++)
            mean += (double)x[i];
        mean /= (double)width;
        double var = 0.0;
        for (int64_t i = 0; i < width; i++)
            var += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double rstd = 1.0 / sqrt(var / (double)width + call->real[0]);
        for (int64_t i = 0; i < width; i++)
            y[i] = (REAL)(((double)x[i] - mean) * rstd * (double)gamma[i] + (double)beta[i]);
        out(call, 4)[n] = (REAL)mean;
        out(call, 5)[n] = (REAL)rstd;
    }
}

/* One row of a norm as its backward sees it; RMSNorm is the case mean = 0. */
typedef struct norm_row {
    const REAL *x, *gamma, *dy;
    const REAL *dres; /* NULL: none */
    double mean, rstd;
    bool is_centred;
    int64_t width;
} norm_row;

/* With u = gamma dy:  dx = dres + rstd (u - [avg(u)] - xhat avg(u xhat)), the term in brackets for
 * LayerNorm alone.  The averages come first, so that dx may lie on dres or on dy. */
static void norm_row_backward(const norm_row *row, REAL *dx)
{
    double avg_u = 0.0;
    double avg_ux = 0.0;
    for (int64_t i = 0; i < row->width; i++) {
        const double u = (double)row->gamma[i] * (double)row->dy[i];
        avg_u += u;
        avg_ux += u * ((double)row->x[i] - row->mean) * row->rstd;
    }
    avg_u = row->is_centred ? avg_u / (double)row->width : 0.0;
    avg_ux /= (double)row->width;
    for (int64_t i = 0; i < row->width; i++) {
        const double u = (double)row->gamma[i] * (double)row->dy[i];
        const double xhat = ((double)row->x[i] - row->mean) * row->rstd;
        const double d = row->rstd * (u - avg_u - xhat * avg_ux);
        dx[i] = (REAL)((row->dres ? (double)row->dres[i] : 0.0) + d);
    }
}

/* acc[i] += dy[i] (x[i] - mean) rstd, columns from `begin` on */
static void add_gamma_row(double *acc, const norm_row *row, int64_t begin, int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        const double xhat = ((double)row->x[begin + i] - row->mean) * row->rstd;
        acc[i] += (double)row->dy[begin + i] * xhat;
    }
}

static norm_row layernorm_row(const ech_kernel_call *call, int64_t n)
{
    const int64_t width = call->arg[0].dim[1];
    const REAL *dres = in(call, 5);
    return (norm_row){.x = in(call, 0) + n * width,
                      .gamma = in(call, 1),
                      .dy = in(call, 4) + n * width,
                      .dres = dres ? dres + n * width : NULL,
                      .mean = (double)in(call, 2)[n],
                      .rstd = (double)in(call, 3)[n],
                      .is_centred = true,
                      .width = width};
}

/* dgamma += sum_n dy xhat, dbeta += sum_n dy, dx by rows */
static void layernorm_backward(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    for (int64_t c = 0; c < width; c += TILE) {
        double acc[TILE] = {0};
        for (int64_t n = 0; n < n_rows; n++) {
            const norm_row row = layernorm_row(call, n);
            add_gamma_row(acc, &row, c, tile_size(c, width));
        }
        add_tile(out(call, 7) + c, acc, tile_size(c, width));
    }
    add_column_sums(out(call, 8), in(call, 4), n_rows, width);
    for (int64_t n = 0; n < n_rows; n++) {
        const norm_row row = layernorm_row(call, n);
        norm_row_backward(&row, out(call, 6) + n * width);
    }
}

/* y = x rstd gamma, rstd = 1 / sqrt(sum x^2 / D + eps); returns rstd */
static double rms_row(const REAL *x, const REAL *gamma, double eps, int64_t width, REAL *y)
{
    const double rstd = 1.0 / sqrt(dot(x, x, width) / (double)width + eps);
    for (int64_t i = 0; i < width; i++)
        y[i] = (REAL)((double)x[i] * rstd * (double)gamma[i]);
    return rstd;
}

/* y[n] = x[n] rstd[n] gamma */
static void rmsnorm(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *x = in(call, 0) + n * width;
        const double rstd = rms_row(x, in(call, 1), call->real[0], width, out(call, 2) + n * width);
        out(call, 3)[n] = (REAL)rstd;
    }
}

static norm_row rmsnorm_row(const ech_kernel_call *call, int64_t n)
{
    const int64_t width = call->arg[0].dim[1];
    const REAL *dres = in(call, 4);
    return (norm_row){.x = in(call, 0) + n * width,
                      .gamma = in(call, 1),
                      .dy = in(call, 3) + n * width,
                      .dres = dres ? dres + n * width : NULL,
                      .rstd = (double)in(call, 2)[n],
                      .width = width};
}

/* dgamma += sum_n dy xhat, dx by rows */
static void rmsnorm_backward(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    for (int64_t c = 0; c < width; c += TILE) {
        double acc[TILE] = {0};
        for (int64_t n = 0; n < n_rows; n++) {
            const norm_row row = rmsnorm_row(call, n);
            add_gamma_row(acc, &row, c, tile_size(c, width));
        }
        add_tile(out(call, 6) + c, acc, tile_size(c, width));
    }
    for (int64_t n = 0; n < n_rows; n++) {
        const norm_row row = rmsnorm_row(call, n);
        norm_row_backward(&row, out(call, 5) + n * width);
    }
}

/* q and k heads of [N, g, r + 2, D]: RMSNorm over D with gamma_q (heads 0..r-1 of a group) or
 * gamma_k (head r); v (head r + 1) is copied.  rstd [N, g, r + 1]. */
static void qk_norm(const ech_kernel_call *call)
{
    const int64_t n_groups = call->arg[0].dim[0] * call->arg[0].dim[1];
    const int64_t r = call->arg[0].dim[2] - 2;
    const int64_t width = call->arg[0].dim[3];
    for (int64_t ng = 0; ng < n_groups; ng++) {
        const REAL *x = in(call, 0) + ng * (r + 2) * width;
        REAL *y = out(call, 3) + ng * (r + 2) * width;
        for (int64_t h = 0; h <= r; h++) {
            const REAL *gamma = in(call, h < r ? 1 : 2);
            const double rstd = rms_row(x + h * width, gamma, call->real[0], width, y + h * width);
            out(call, 4)[ng * (r + 1) + h] = (REAL)rstd;
        }
        memcpy(y + (r + 1) * width, x + (r + 1) * width, (size_t)width * sizeof(REAL));
    }
}

/* Head h of group ng of qk_norm_backward. */
static norm_row qk_row(const ech_kernel_call *call, int64_t ng, int64_t h)
{
    const int64_t r = call->arg[0].dim[2] - 2;
    const int64_t width = call->arg[0].dim[3];
    const int64_t at = (ng * (r + 2) + h) * width;
    return (norm_row){.x = in(call, 0) + at,
                      .gamma = in(call, h < r ? 1 : 2),
                      .dy = in(call, 4) + at,
                      .rstd = (double)in(call, 3)[ng * (r + 1) + h],
                      .width = width};
}

/* dgamma[i] += sum over tokens, groups and heads [begin, end) of dy xhat */
static void add_qk_gamma(const ech_kernel_call *call, int64_t begin, int64_t end, REAL *dgamma)
{
    const int64_t n_groups = call->arg[0].dim[0] * call->arg[0].dim[1];
    const int64_t width = call->arg[0].dim[3];
    for (int64_t c = 0; c < width; c += TILE) {
        double acc[TILE] = {0};
        for (int64_t ng = 0; ng < n_groups; ng++) {
            for (int64_t h = begin; h < end; h++) {
                const norm_row row = qk_row(call, ng, h);
                add_gamma_row(acc, &row, c, tile_size(c, width));
            }
        }
        add_tile(dgamma + c, acc, tile_size(c, width));
    }
}

/* dgamma first: it reads dy, on whose place dqkv is then written.  dv = dy, left as it is. */
static void qk_norm_backward(const ech_kernel_call *call)
{
    const int64_t n_groups = call->arg[0].dim[0] * call->arg[0].dim[1];
    const int64_t r = call->arg[0].dim[2] - 2;
    const int64_t width = call->arg[0].dim[3];
    add_qk_gamma(call, 0, r, out(call, 5));
    add_qk_gamma(call, r, r + 1, out(call, 6));
    for (int64_t ng = 0; ng < n_groups; ng++) {
        for (int64_t h = 0; h <= r; h++) {
            const norm_row row = qk_row(call, ng, h);
            norm_row_backward(&row, out(call, 4) + (ng * (r + 2) + h) * width);
        }
    }
}
