/* Gradient norm and optimizers, elementwise over flat ranges. */

static inline double cell(const ech_kernel_call *call, int i)
{
    return *(const double *)call->arg[i].data;
}

/* sum += sum_i x[i]^2, in the order of dot() */
static void sumsq(const ech_kernel_call *call)
{
    const REAL *x = in(call, 0);
    *(double *)call->arg[1].data += dot(x, x, ech_tensor_elems(&call->arg[0]));
}

/* AdamW (Kingma & Ba 2015, arXiv:1412.6980; Loshchilov & Hutter 2019, arXiv:1711.05101):
 * g' = clip g, t = updates + 1, m = b1 m + (1 - b1) g', v = b2 v + (1 - b2) g'^2,
 * p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay p) */
static void adamw(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const double b1 = call->real[0], b2 = call->real[1];
    const double eps = call->real[2], decay = call->real[3];
    const double lr = cell(call, 4), clip = cell(call, 5);
    const double t = (double)(*(const int64_t *)call->arg[6].data + 1);
    const double correct1 = 1.0 - pow(b1, t);
    const double correct2 = 1.0 - pow(b2, t);
    const REAL *g = in(call, 1);
    REAL *p = out(call, 0), *m = out(call, 2), *v = out(call, 3);
    for (int64_t i = 0; i < n; i++) {
        const double gi = clip * (double)g[i];
        const double mi = b1 * (double)m[i] + (1.0 - b1) * gi;
        const double vi = b2 * (double)v[i] + (1.0 - b2) * gi * gi;
        const double step = mi / correct1 / (sqrt(vi / correct2) + eps) + decay * (double)p[i];
        m[i] = (REAL)mi;
        v[i] = (REAL)vi;
        p[i] = (REAL)((double)p[i] - lr * step);
    }
}

/* p -= lr (clip g + decay p) */
static void sgd(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const double decay = call->real[0];
    const double lr = cell(call, 2), clip = cell(call, 3);
    const REAL *g = in(call, 1);
    REAL *p = out(call, 0);
    for (int64_t i = 0; i < n; i++)
        p[i] = (REAL)((double)p[i] - lr * (clip * (double)g[i] + decay * (double)p[i]));
}
