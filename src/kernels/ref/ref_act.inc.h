/* Elementwise: activations, sums, scaling, dropout. */

/* x = factor x */
static void scale(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    REAL *x = out(call, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (REAL)((double)x[i] * call->real[0]);
}

/* y = a + b; y may lie on either */
static void add(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[2]);
    const REAL *a = in(call, 0);
    const REAL *b = in(call, 1);
    REAL *y = out(call, 2);
    for (int64_t i = 0; i < n; i++)
        y[i] = (REAL)((double)a[i] + (double)b[i]);
}

static inline double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* y = gate sigmoid(gate) up, gate = gate_up[n, 0], up = gate_up[n, 1] */
static void swiglu(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[1].dim[0];
    const int64_t width = call->arg[1].dim[1];
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *gate = in(call, 0) + 2 * n * width;
        const REAL *up = gate + width;
        REAL *y = out(call, 1) + n * width;
        for (int64_t i = 0; i < width; i++) {
            const double g = (double)gate[i];
            y[i] = (REAL)(g * sigmoid(g) * (double)up[i]);
        }
    }
}

/* With s = sigmoid(gate):  dgate = dy up s (1 + gate (1 - s)), dup = dy gate s */
static void swiglu_backward(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[1].dim[0];
    const int64_t width = call->arg[1].dim[1];
    for (int64_t n = 0; n < n_rows; n++) {
        const REAL *gate = in(call, 0) + 2 * n * width;
        const REAL *up = gate + width;
        const REAL *dy = in(call, 1) + n * width;
        REAL *dgate = out(call, 2) + 2 * n * width;
        REAL *dup = dgate + width;
        for (int64_t i = 0; i < width; i++) {
            const double g = (double)gate[i];
            const double s = sigmoid(g);
            const double d = (double)dy[i];
            dgate[i] = (REAL)(d * (double)up[i] * s * (1.0 + g * (1.0 - s)));
            dup[i] = (REAL)(d * g * s);
        }
    }
}

/* tanh of the tanh form of GELU: t = tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
static const double gelu_scale = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double gelu_cubic = 0.044715;

static inline double gelu_tanh(double x)
{
    return tanh(gelu_scale * (x + gelu_cubic * x * x * x));
}

/* y = x (1 + t) / 2 */
static void gelu(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const REAL *x = in(call, 0);
    REAL *y = out(call, 1);
    for (int64_t i = 0; i < n; i++)
        y[i] = (REAL)(0.5 * (double)x[i] * (1.0 + gelu_tanh((double)x[i])));
}

/* dx = dy ((1 + t) / 2 + x (1 - t^2) sqrt(2 / pi) (1 + 3 * 0.044715 x^2) / 2) */
static void gelu_backward(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const REAL *x = in(call, 0);
    const REAL *dy = in(call, 1);
    REAL *dx = out(call, 2);
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        const double t = gelu_tanh(v);
        const double dt = (1.0 - t * t) * gelu_scale * (1.0 + 3.0 * gelu_cubic * v * v);
        dx[i] = (REAL)((double)dy[i] * (0.5 * (1.0 + t) + 0.5 * v * dt));
    }
}

/* y = residual + keep x / (1 - p).  keep is drawn for the element's global index within the step,
 * (row s + i) H + h, which runs on from token to token: it depends on no share of the tokens. */
static void dropout(const ech_kernel_call *call)
{
    const int64_t n = ech_tensor_elems(&call->arg[0]);
    const double p = call->real[0];
    const ech_rng_key key = p > 0.0 ? dropout_key(call, call->attr[1]) : (ech_rng_key){0};
    const uint64_t first =
        (uint64_t)((call->rng.row0 * call->attr[0] + call->attr[2]) * call->arg[0].dim[1]);
    const REAL *x = in(call, 0);
    const REAL *residual = in(call, 1);
    REAL *y = out(call, 2);
    for (int64_t i = 0; i < n; i++) {
        const bool is_kept = p <= 0.0 || ech_rng_is_kept(ech_rng_u32(&key, first + (uint64_t)i), p);
        const double v = is_kept ? (double)x[i] / (1.0 - p) : 0.0;
        y[i] = (REAL)((residual ? (double)residual[i] : 0.0) + v);
    }
}
