/* Kernels as tasks: matrix products, attention, and what moves bytes (bench.h). */
#include "base/checked.h"
#include "measure/bench_private.h"

static ech_status sample_kernel(ech_bench *b, const bench_task *task, double *seconds)
{
    ech_transport *t = b->config.transport;
    const ech_op op = ech_bench_op(task->kind, &task->sizes, b->config.real);
    ECH_CHECK(ech_bench_op_bytes(&op) <= b->ring.bytes, ECH_E_ILLEGAL,
              "a ring of %zu bytes: %s wants %zu", b->ring.bytes, ech_op_name(op.kind),
              ech_bench_op_bytes(&op));
    if (t->size > 1)
        ECH_TRY(t->barrier(t)); /* all ranks at once, as in a step */
    *seconds = bench_time_kernel(b, &op, b->config.point_s);
    return ECH_OK;
}

/* --- matrix products --- */

/* No powers of two alone, whose rows share cache sets as those of models rarely do. */
static const int64_t gemm_rows[] = {16, 64, 256};
static const int64_t gemm_sizes[] = {64, 192, 768, 3072};

static ech_status add_gemms(bench_tasks *tasks, ech_op_kind kind, int n_rows, int n_sizes)
{
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i < n_sizes; i++)
            for (int o = 0; o < n_sizes; o++) {
                bench_task task = {.kind = kind};
                task.sizes.of['n'] = gemm_rows[r];
                task.sizes.of['i'] = gemm_sizes[i];
                task.sizes.of['o'] = gemm_sizes[o];
                ECH_TRY(bench_task_add(tasks, &task));
            }
    return ECH_OK;
}

ech_status ech_bench_gemm(ech_bench *b, ech_calibration *c, ech_bench_found *found)
{
    static const ech_op_kind kinds[] = {ECH_OP_LINEAR, ECH_OP_LINEAR_DGRAD, ECH_OP_LINEAR_WGRAD};
    const int n_rows = b->config.is_small ? 2 : (int)(sizeof gemm_rows / sizeof gemm_rows[0]);
    const int n_sizes = b->config.is_small ? 2 : (int)(sizeof gemm_sizes / sizeof gemm_sizes[0]);
    bench_tasks tasks = {0};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        ECH_TRY(add_gemms(&tasks, kinds[k], n_rows, n_sizes));
    return bench_run(b, &tasks, sample_kernel, c, found);
}

/* --- attention --- */

static ech_status add_attentions(bench_tasks *tasks, ech_op_kind kind, int n_seqs, int n_dims)
{
    static const int64_t seqs[] = {16, 64, 256, 1024};
    static const int64_t dims[] = {16, 64, 128};
    for (int s = 0; s < n_seqs; s++)
        for (int d = 0; d < n_dims; d++) {
            bench_task task = {.kind = kind};
            const int64_t rows = seqs[s] < 256 ? 256 / seqs[s] : 1; /* sequences */
            task.sizes.seq = seqs[s];
            task.sizes.of['n'] = rows * seqs[s];
            task.sizes.of['g'] = seqs[s] > 256 ? 1 : 4; /* heads with their own keys */
            task.sizes.of['q'] = 3;
            task.sizes.of['r'] = 1;
            task.sizes.of['d'] = task.sizes.of['e'] = dims[d];
            ECH_TRY(bench_task_add(tasks, &task));
        }
    return ECH_OK;
}

ech_status ech_bench_attention(ech_bench *b, ech_calibration *c, ech_bench_found *found)
{
    bench_tasks tasks = {0};
    const int n_seqs = b->config.is_small ? 2 : 4;
    const int n_dims = b->config.is_small ? 2 : 3;
    ECH_TRY(add_attentions(&tasks, ECH_OP_ATTENTION, n_seqs, n_dims));
    ECH_TRY(add_attentions(&tasks, ECH_OP_ATTENTION_BACKWARD, n_seqs, n_dims));
    return bench_run(b, &tasks, sample_kernel, c, found);
}

/* --- what moves bytes --- */

static ech_status add_by_bytes(bench_tasks *tasks, ech_op_kind kind, int at_most)
{
    bench_task task = {.kind = kind};
    for (int i = 0; i < at_most && ech_bench_sizes_of(kind, i, &task.sizes); i++)
        ECH_TRY(bench_task_add(tasks, &task));
    return ECH_OK;
}

ech_status ech_bench_memory(ech_bench *b, ech_calibration *c, ech_bench_found *found)
{
    bench_tasks tasks = {0};
    double op_s = 0;
    ECH_TRY(bench_time_executor(b, &op_s));
    for (int k = 0; k < ECH_N_OPS; k++)
        ECH_TRY(add_by_bytes(&tasks, (ech_op_kind)k, b->config.is_small ? 2 : 100));
    ECH_TRY(bench_run(b, &tasks, sample_kernel, c, found));
    c->op_s = op_s;
    return ECH_OK;
}
