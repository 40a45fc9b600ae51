/* Speed of the cpu kernel set at the shapes of GPT-2 124M with 1024 tokens, beside the machine's
 * own peak and, where it was found at build time, a library's matrix product.
 *
 * usage: bench_cpu_kernels THREADS SECONDS_PER_ROW [FILTER]
 * Each line: kind, shape, best and median by wall time, best by processor time of the caller (for a
 * machine that others use: with one thread that is all the work), in GFLOP/s or GB/s, and the share
 * of THREADS times one thread's peak. */
#include "peak.h"

#include "kernels/kernels.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef HAVE_DNNL
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#endif

enum { N = 1024, H = 768, F = 3072, V = 50304, HEADS = 12, D = 64, MAX_RUNS = 4096 };

static int threads = 1;
static double seconds = 0.3;
static const char *filter = "";
static double peak_gflops, peak_gbytes;
static const ech_kernel_set *set;

static double now(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Something to time. */
typedef void (*action)(const void *ctx);

/* One row: flop > 0 counts GFLOP/s, else bytes count GB/s. */
typedef struct row {
    const char *name, *shape;
    double flop, bytes;
} row;

static void time_row(const row *r, action act, const void *ctx)
{
    static double wall[MAX_RUNS];
    double cpu = 1e30;
    int n = 0;
    if (!strstr(r->name, filter))
        return;
    act(ctx);
    const double begin = now(CLOCK_MONOTONIC);
    while ((now(CLOCK_MONOTONIC) - begin < seconds || n < 3) && n < MAX_RUNS) {
        const double w = now(CLOCK_MONOTONIC), c = now(CLOCK_THREAD_CPUTIME_ID);
        act(ctx);
        const double used = now(CLOCK_THREAD_CPUTIME_ID) - c;
        wall[n++] = now(CLOCK_MONOTONIC) - w;
        cpu = used < cpu ? used : cpu;
    }
    qsort(wall, (size_t)n, sizeof wall[0], by_size);
    const double work = (r->flop > 0.0 ? r->flop : r->bytes) * 1e-9;
    const double peak = threads * (r->flop > 0.0 ? peak_gflops : peak_gbytes);
    printf("%-20s %-22s best %7.1f median %7.1f bycpu %7.1f %s  share %.2f  best %.3f ms\n",
           r->name, r->shape, work / wall[0], work / wall[n / 2], work / cpu,
           r->flop > 0.0 ? "GFLOP/s" : "GB/s   ", work / wall[0] / peak, wall[0] * 1e3);
    fflush(stdout);
}

static float *filled(int64_t n)
{
    enum { HUGE_PAGE = 2 << 20 };
    const size_t bytes = ((size_t)n * 4 + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    float *x = aligned_alloc(HUGE_PAGE, bytes); /* as arenas are */
    uint32_t s = 1;
    if (!x)
        exit(1);
    (void)madvise(x, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) * 0x1p-24f - 0.5f;
    }
    return x;
}

/* --- kernels of the set --- */

static void run_call(const void *ctx)
{
    const ech_kernel_call *call = ctx;
    set->kernel[call->kind](call);
}

static ech_tensor tensor(int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t n = d0 * (d1 ? d1 : 1) * (d2 ? d2 : 1) * (d3 ? d3 : 1);
    return (ech_tensor){filled(n), ECH_F32, d3 ? 4 : d2 ? 3 : d1 ? 2 : 1, {d0, d1, d2, d3}};
}

static void free_call(ech_kernel_call *call)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].rank > 0)
            free(call->arg[i].data);
}

static void run_row(const row *r, ech_kernel_call *call)
{
    static double work[1 << 20];
    call->threads = threads;
    call->work = work;
    call->work_bytes = sizeof work;
    time_row(r, run_call, call);
    free_call(call);
}

/* --- matrix products --- */

#ifdef HAVE_DNNL
typedef struct library_call {
    ech_op_kind kind;
    int64_t n, in, out;
    const float *x, *w, *dy;
    float *c;
} library_call;

static void run_library(const void *ctx)
{
    const library_call *l = ctx;
    dnnl_status_t st;
    if (l->kind == ECH_OP_LINEAR)
        st = dnnl_sgemm('N', 'T', l->n, l->out, l->in, 1.0f, l->x, l->in, l->w, l->in, 0.0f, l->c,
                        l->out);
    else if (l->kind == ECH_OP_LINEAR_DGRAD)
        st = dnnl_sgemm('N', 'N', l->n, l->in, l->out, 1.0f, l->dy, l->out, l->w, l->in, 0.0f, l->c,
                        l->in);
    else
        st = dnnl_sgemm('T', 'N', l->out, l->in, l->n, 1.0f, l->dy, l->out, l->x, l->in, 1.0f, l->c,
                        l->in);
    if (st != dnnl_success)
        exit(1);
}

static void bench_library(ech_op_kind kind, const char *shape, int64_t in, int64_t out)
{
    const ech_tensor x = tensor(N, in, 0, 0), w = tensor(out, in, 0, 0), dy = tensor(N, out, 0, 0);
    const ech_tensor c = kind == ECH_OP_LINEAR         ? tensor(N, out, 0, 0)
                         : kind == ECH_OP_LINEAR_DGRAD ? tensor(N, in, 0, 0)
                                                       : tensor(out, in, 0, 0);
    const library_call l = {kind, N, in, out, x.data, w.data, dy.data, c.data};
    char name[64];
    (void)snprintf(name, sizeof name, "%s/oneDNN", ech_op_name(kind));
    const row r = {name, shape, 2.0 * (double)(N * in * out), 0.0};
    omp_set_num_threads(threads);
    time_row(&r, run_library, &l);
    free(x.data);
    free(w.data);
    free(dy.data);
    free(c.data);
}
#endif

static void bench_linear(int64_t in, int64_t out)
{
    char shape[64];
    (void)snprintf(shape, sizeof shape, "%d x %lld -> %lld", N, (long long)in, (long long)out);
    const double flop = 2.0 * (double)(N * in * out);
    ech_kernel_call forward = {.kind = ECH_OP_LINEAR, .n_args = 4};
    forward.arg[0] = tensor(N, in, 0, 0);
    forward.arg[1] = tensor(out, in, 0, 0);
    forward.arg[2] = tensor(out, 0, 0, 0);
    forward.arg[3] = tensor(N, out, 0, 0);
    run_row(&(row){"linear", shape, flop, 0.0}, &forward);
    ech_kernel_call dgrad = {.kind = ECH_OP_LINEAR_DGRAD, .n_args = 3};
    dgrad.arg[0] = tensor(N, out, 0, 0);
    dgrad.arg[1] = tensor(out, in, 0, 0);
    dgrad.arg[2] = tensor(N, in, 0, 0);
    run_row(&(row){"linear_dgrad", shape, flop, 0.0}, &dgrad);
    ech_kernel_call wgrad = {.kind = ECH_OP_LINEAR_WGRAD, .n_args = 4};
    wgrad.arg[0] = tensor(N, in, 0, 0);
    wgrad.arg[1] = tensor(N, out, 0, 0);
    wgrad.arg[2] = tensor(out, in, 0, 0);
    wgrad.arg[3] = tensor(out, 0, 0, 0);
    run_row(&(row){"linear_wgrad", shape, flop, 0.0}, &wgrad);
#ifdef HAVE_DNNL
    bench_library(ECH_OP_LINEAR, shape, in, out);
    bench_library(ECH_OP_LINEAR_DGRAD, shape, in, out);
    bench_library(ECH_OP_LINEAR_WGRAD, shape, in, out);
#endif
}

/* --- attention --- */

static void bench_attention(int64_t seq)
{
    char shape[64];
    (void)snprintf(shape, sizeof shape, "%lld x %lld, 12 heads", (long long)(N / seq),
                   (long long)seq);
    const double flop = 4.0 * (double)N * ((double)seq + 1.0) / 2.0 * HEADS * D;
    ech_kernel_call f = {
        .kind = ECH_OP_ATTENTION, .n_args = 3, .attr = {seq, 0, 0, 0, HEADS}, .real = {0.125}};
    f.arg[0] = tensor(N, HEADS, 3, D);
    f.arg[1] = tensor(N, HEADS, D, 0);
    f.arg[2] = tensor(N, HEADS, 1, 0);
    ech_kernel_call b = f;
    b.kind = ECH_OP_ATTENTION_BACKWARD;
    b.n_args = 5;
    for (int i = 0; i < 3; i++)
        b.arg[i] = tensor(f.arg[i].dim[0], f.arg[i].dim[1], f.arg[i].dim[2], f.arg[i].dim[3]);
    b.arg[3] = tensor(N, HEADS, D, 0);
    b.arg[4] = tensor(N, HEADS, 3, D);
    run_row(&(row){"attention", shape, flop, 0.0}, &f);
    run_row(&(row){"attention_backward", shape, 2.5 * flop, 0.0}, &b);
}

/* --- bound by memory --- */

static void bench_norm(void)
{
    const double mb = 4.0 * N * H;
    ech_kernel_call f = {.kind = ECH_OP_LAYERNORM, .n_args = 6, .real = {1e-5}};
    f.arg[0] = tensor(N, H, 0, 0);
    f.arg[1] = tensor(H, 0, 0, 0);
    f.arg[2] = tensor(H, 0, 0, 0);
    f.arg[3] = tensor(N, H, 0, 0);
    f.arg[4] = tensor(N, 0, 0, 0);
    f.arg[5] = tensor(N, 0, 0, 0);
    run_row(&(row){"layernorm", "1024 x 768", 0.0, 2 * mb}, &f);
    ech_kernel_call b = {.kind = ECH_OP_LAYERNORM_BACKWARD, .n_args = 9};
    for (int i = 0; i < 9; i++)
        b.arg[i] = i == 0 || (i >= 4 && i <= 6) ? tensor(N, H, 0, 0)
                   : i == 2 || i == 3           ? tensor(N, 0, 0, 0)
                                                : tensor(H, 0, 0, 0);
    run_row(&(row){"layernorm_backward", "1024 x 768", 0.0, 4 * mb}, &b);
    ech_kernel_call r = {.kind = ECH_OP_RMSNORM, .n_args = 4, .real = {1e-5}};
    r.arg[0] = tensor(N, H, 0, 0);
    r.arg[1] = tensor(H, 0, 0, 0);
    r.arg[2] = tensor(N, H, 0, 0);
    r.arg[3] = tensor(N, 0, 0, 0);
    run_row(&(row){"rmsnorm", "1024 x 768", 0.0, 2 * mb}, &r);
}

static void bench_flat(ech_op_kind kind, int n_args, int64_t rows, int64_t width, double moved)
{
    char shape[64];
    (void)snprintf(shape, sizeof shape, "%lld x %lld", (long long)rows, (long long)width);
    ech_kernel_call c = {.kind = kind, .n_args = n_args, .attr = {256}, .real = {0.0}};
    for (int i = 0; i < n_args; i++)
        c.arg[i] = tensor(rows, width, 0, 0);
    run_row(&(row){ech_op_name(kind), shape, 0.0, moved * 4.0 * (double)(rows * width)}, &c);
}

static void bench_swiglu(void)
{
    ech_kernel_call f = {.kind = ECH_OP_SWIGLU, .n_args = 2};
    f.arg[0] = tensor(N, 2, 2048, 0);
    f.arg[1] = tensor(N, 2048, 0, 0);
    run_row(&(row){"swiglu", "1024 x 2048", 0.0, 3 * 4.0 * N * 2048}, &f);
    ech_kernel_call b = {.kind = ECH_OP_SWIGLU_BACKWARD, .n_args = 3};
    b.arg[0] = tensor(N, 2, 2048, 0);
    b.arg[1] = tensor(N, 2048, 0, 0);
    b.arg[2] = tensor(N, 2, 2048, 0);
    run_row(&(row){"swiglu_backward", "1024 x 2048", 0.0, 5 * 4.0 * N * 2048}, &b);
}

static void bench_loss(void)
{
    static int32_t labels[N];
    static double cell;
    for (int i = 0; i < N; i++)
        labels[i] = i * 37 % 50257;
    ech_kernel_call f = {.kind = ECH_OP_XENT_SHARD, .n_args = 3, .attr = {50257, 0}};
    f.arg[0] = tensor(N, V, 0, 0);
    f.arg[1] = (ech_tensor){labels, ECH_I32, 0, {N}};
    f.arg[2] = tensor(2 * 2, N, 0, 0); /* room of [1, 2, N] doubles */
    run_row(&(row){"xent_shard", "1024 x 50304", 0.0, 4.0 * N * V}, &f);
    f.kind = ECH_OP_XENT_BACKWARD;
    f.n_args = 4;
    f.arg[0] = tensor(N, V, 0, 0);
    f.arg[2] = tensor(N, 0, 0, 0);
    f.arg[3] = (ech_tensor){&cell, ECH_F64, 0, {0}};
    cell = 1e-3;
    run_row(&(row){"xent_backward", "1024 x 50304", 0.0, 2 * 4.0 * N * V}, &f);
}

/* A gradient as it is: some 30 powers of two apart, so that its exact sum takes more bins. */
static void spread_out(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = ldexpf(x[i], (int)((uint32_t)i * 2654435761u >> 27));
}

static void bench_sumsq(void)
{
    enum { E = 1 << 24 };
    static int64_t words[2][ECH_SUMSQ_WORDS];
    for (int is_spread = 0; is_spread < 2; is_spread++) {
        ech_kernel_call s = {.kind = ECH_OP_SUMSQ, .n_args = 3};
        s.arg[0] = tensor(E, 0, 0, 0);
        for (int i = 0; i < 2; i++)
            s.arg[1 + i] = (ech_tensor){words[i], ECH_I64, 0, {ECH_SUMSQ_WORDS}};
        if (is_spread)
            spread_out(s.arg[0].data, E);
        run_row(&(row){"sumsq", is_spread ? "2^24, spread" : "2^24, alike", 0.0, 4.0 * E}, &s);
    }
}

static void bench_update(void)
{
    static double lr = 1e-9, clip = 1.0;
    static int64_t updates = 10;
    enum { E = 1 << 24 };
    ech_kernel_call a = {.kind = ECH_OP_ADAMW, .n_args = 7, .real = {0.9, 0.95, 1e-8, 0.1}};
    a.attr[1] = E;
    for (int i = 0; i < 4; i++)
        a.arg[i] = tensor(E, 0, 0, 0);
    float *v = a.arg[3].data;
    for (int i = 0; i < E; i++)
        v[i] = v[i] * v[i];
    a.arg[4] = (ech_tensor){&lr, ECH_F64, 0, {0}};
    a.arg[5] = (ech_tensor){&clip, ECH_F64, 0, {0}};
    a.arg[6] = (ech_tensor){&updates, ECH_I64, 0, {0}};
    run_row(&(row){"adamw", "2^24", 0.0, 28.0 * E}, &a);
    ech_kernel_call z = {.kind = ECH_OP_ZERO, .n_args = 1};
    z.arg[0] = tensor(E, 0, 0, 0);
    run_row(&(row){"zero", "2^24", 0.0, 4.0 * E}, &z);
}

static void measure_peaks(void)
{
    const long n = 1 << 24;
    float *a = filled(n), *b = filled(n), *c = filled(n);
    peak_gflops = peak_fma_gflops();
    peak_gbytes = peak_triad_gbytes(a, b, c, n);
    free(a);
    free(b);
    free(c);
    printf("# set '%s', %d thread(s); peak of one thread: %.1f GFLOP/s, triad %.1f GB/s\n",
           set->name, threads, peak_gflops, peak_gbytes);
}

static int open_module(void)
{
    void *module = dlopen("libechelon_cpu.so", RTLD_NOW | RTLD_LOCAL);
    const ech_kernel_set *(*get)(void) = NULL;
    if (module)
        *(void **)&get = dlsym(module, ECH_KERNEL_MODULE_SYMBOL);
    set = get ? get() : NULL;
    if (!set || set->start(NULL, threads) != ECH_OK) {
        fprintf(stderr, "no kernel module: %s\n", module ? ech_error_message() : dlerror());
        return 4;
    }
    return 0;
}

int main(int argc, char **argv)
{
    threads = argc > 1 ? atoi(argv[1]) : 1;
    seconds = argc > 2 ? atof(argv[2]) : 0.3;
    filter = argc > 3 ? argv[3] : "";
    if (open_module() != 0)
        return 4;
    measure_peaks();
    static const int64_t shapes[][2] = {{H, 3 * H}, {H, H}, {H, F}, {F, H}, {H, V}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench_linear(shapes[i][0], shapes[i][1]);
    bench_attention(256);
    bench_attention(1024);
    bench_norm();
    bench_flat(ECH_OP_GELU, 2, N, F, 2);
    bench_flat(ECH_OP_GELU_BACKWARD, 3, N, F, 3);
    bench_flat(ECH_OP_ADD, 3, N, H, 3);
    bench_swiglu();
    bench_loss();
    bench_update();
    bench_sumsq();
    set->stop();
    return 0;
}
