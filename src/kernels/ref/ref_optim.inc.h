/* Gradient norm and optimizers, elementwise over flat ranges. */

static inline double cell(const ech_kernel_call *call, int i)
{
    return *(const double *)call->arg[i].data;
}

/* sum += x[i]^2 or copies += x[i]^2, exactly, element by element */
static void sumsq(const ech_kernel_call *call)
{
    enum { ADDS = 2 /* of a square */ };
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const REAL *x = in(call, 0);
    for (int64_t i = 0; i < n;) {
        const int64_t left = n - i;
        const int64_t most = ECH_SUMSQ_ADDS / ADDS;
        const ech_sumsq_run run = ech_sumsq_run_at(call, i, i + (left < most ? left : most));
        int64_t *word = call->arg[run.is_copy ? 2 : 1].data;
        for (int64_t k = i; k < i + run.n; k++)
            ech_sumsq_add_square(word, (double)x[k]);
        ech_sumsq_carry(word);
        i += run.n;
    }
    ech_sumsq_carry(call->arg[1].data); /* also where nothing was added */
    if (call->arg[2].data)
        ech_sumsq_carry(call->arg[2].data);
}

/* Elements of a range that starts at attr 0 which decay: those before attr 1. */
static inline int64_t decayed_elems(const ech_kernel_call *call)
{
    return call->attr[1] - call->attr[0];
}

/* AdamW (Kingma & Ba 2015, arXiv:1412.6980; Loshchilov & Hutter 2019, arXiv:1711.05101):
 * g' = clip g, t = updates + 1, m = b1 m + (1 - b1) g', v = b2 v + (1 - b2) g'^2,
 * p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay p), decay 0 from `decayed` on */
static void adamw(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const double b1 = call->real[0], b2 = call->real[1];
    const double eps = call->real[2];
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
        const double decay = i < decayed_elems(call) ? call->real[3] : 0.0;
        const double step = mi / correct1 / (sqrt(vi / correct2) + eps) + decay * (double)p[i];
        m[i] = (REAL)mi;
        v[i] = (REAL)vi;
        p[i] = (REAL)((double)p[i] - lr * step);
    }
}

/* p -= lr (clip g + decay p), decay 0 from `decayed` on */
static void sgd(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const double lr = cell(call, 2), clip = cell(call, 3);
    const REAL *g = in(call, 1);
    REAL *p = out(call, 0);
    for (int64_t i = 0; i < n; i++) {
        const double decay = i < decayed_elems(call) ? call->real[0] : 0.0;
        p[i] = (REAL)((double)p[i] - lr * (clip * (double)g[i] + decay * (double)p[i]));
    }
}
