/* Messages and collectives as tasks (bench.h). */
#include "base/checked.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "measure/bench_private.h"

#include <math.h>

enum { LEAST_MESSAGES = 8 };

/* Bytes of one call's buffers one after the other: buf, part or sum, staging. */
typedef struct buffers {
    size_t buf, part, staging, all;
} buffers;

static buffers buffers_of(const ech_coll *c, int ranks, int64_t elems)
{
    const size_t width = ech_dtype_bytes(c->dtype);
    const bool is_small = c->kind == ECH_COLL_SUM_SMALL;
    const bool is_reduction = c->kind == ECH_COLL_ALL_REDUCE || c->kind == ECH_COLL_REDUCE_SCATTER;
    buffers b = {.buf = ech_align_up((size_t)c->n * width, 64),
                 .part = ech_align_up((size_t)elems * width, 64)};
    if (is_reduction)
        b.staging = (size_t)ech_reduce_staging_elems(c->n, ranks) * width;
    else if (is_small)
        b.staging = (size_t)ranks * (size_t)c->n * width;
    b.staging = ech_align_up(b.staging, 64);
    b.all = b.buf + b.part + b.staging;
    return b;
}

static ech_coll coll_for(const ech_bench *b, const bench_task *task)
{
    const ech_coll_kind kind = ech_engine_coll_kind(task->kind);
    const bool is_whole = kind == ECH_COLL_ALL_REDUCE || kind == ECH_COLL_REDUCE_SCATTER ||
                          kind == ECH_COLL_ALL_GATHER;
    return (ech_coll){.kind = kind,
                      .axis = ECH_AXIS_DP,
                      .dtype = b->config.real,
                      .n = task->elems * (is_whole ? b->config.transport->size : 1)};
}

/* Number i of the calls, round the ring. */
static void place(const ech_bench *b, const buffers *size, int i, ech_coll *c)
{
    const size_t copies = b->ring.bytes / size->all;
    unsigned char *at = b->ring.base + (size_t)i % copies * size->all;
    c->buf = at;
    c->part = c->sum = at + size->buf;
    c->staging = at + size->buf + size->part;
    c->staging_bytes = size->staging;
}

static ech_status exchange_once(ech_bench *b, const ech_coll *c)
{
    int request = -1;
    ECH_TRY(ech_coll_start(b->comm, c, &request));
    return bench_finish(b, request);
}

/* There and back between neighbours: two messages one after the other. */
static ech_status ping_pong(ech_bench *b, const ech_coll *c)
{
    const int me = b->config.transport->rank;
    ech_coll mine = *c;
    mine.peer = me ^ 1;
    if (mine.peer >= b->config.transport->size)
        return ECH_OK;
    for (int turn = 0; turn < 2; turn++) {
        mine.kind = (me & 1) == turn ? ECH_COLL_SEND : ECH_COLL_RECV;
        ECH_TRY(exchange_once(b, &mine));
    }
    return ECH_OK;
}

/* Everybody must make as many calls: rank 0's time says how many. */
static ech_status calls_of(ech_bench *b, double first_s, int *out)
{
    double all[1024];
    ECH_CHECK(b->config.transport->size <= 1024, ECH_E_ILLEGAL, "%d ranks, wanted at most 1024",
              b->config.transport->size);
    ECH_TRY(bench_exchange(b, &first_s, 1, all));
    const double n = b->config.point_s / fmax(all[0], 1e-7);
    *out = n > BENCH_MAX_CALLS ? BENCH_MAX_CALLS : n < LEAST_MESSAGES ? LEAST_MESSAGES : (int)n;
    return ECH_OK;
}

static ech_status sample_comm(ech_bench *b, const bench_task *task, double *seconds)
{
    double took[BENCH_MAX_CALLS];
    ech_coll c = coll_for(b, task);
    const buffers size = buffers_of(&c, b->config.transport->size, task->elems);
    const bool is_p2p = c.kind == ECH_COLL_SEND;
    int calls = LEAST_MESSAGES;
    ECH_ASSERT(size.all <= b->ring.bytes);
    double before = 0;
    for (int i = 0; i < 2; i++) { /* the first one is slow */
        before = ech_clock_s();
        place(b, &size, i, &c);
        ECH_TRY(is_p2p ? ping_pong(b, &c) : exchange_once(b, &c));
    }
    ECH_TRY(calls_of(b, ech_clock_s() - before, &calls));
    double now = ech_clock_s();
    for (int i = 0; i < calls; i++) {
        before = now;
        place(b, &size, i, &c);
        ECH_TRY(is_p2p ? ping_pong(b, &c) : exchange_once(b, &c));
        now = ech_clock_s();
        took[i] = (now - before) / (is_p2p ? 2 : 1);
    }
    *seconds = ech_bench_median(took, calls);
    return ECH_OK;
}

/* --- how much of it occupies the processors --- */

/* One all-reduce under kernels as the engine has them: progress between calls, then the wait.
 * Returns what the whole took beyond the kernels themselves. */
static ech_status time_under_kernels(ech_bench *b, const ech_coll *c, const ech_op *op, int kernels,
                                     double *over)
{
    ech_kernel_call call;
    int request = -1;
    double kernels_s = 0;
    ech_bench_call(op, b->ring.base, b->config.threads, &call);
    const double begin = ech_clock_s();
    ECH_TRY(ech_coll_start(b->comm, c, &request));
    for (int i = 0; i < kernels; i++) {
        const double before = ech_clock_s();
        b->table.kernel[op->kind](&call);
        kernels_s += ech_clock_s() - before;
        ECH_TRY(ech_comm_progress(b->comm));
    }
    ECH_TRY(bench_finish(b, request));
    *over = ech_clock_s() - begin - kernels_s;
    return ECH_OK;
}

static ech_status measure_busy(ech_bench *b, double *out)
{
    enum { TIMES = 9 };
    double alone[TIMES];
    double under[TIMES];
    double all[1024];
    const int64_t elems = b->config.is_small ? 4096 : 262144;
    const bench_task task = {.kind = ECH_OP_ALL_REDUCE_START, .elems = elems};
    ech_bench_sizes sizes = {0};
    sizes.of['n'] = 64;
    sizes.of['i'] = sizes.of['o'] = 192;
    const ech_op op = ech_bench_op(ECH_OP_LINEAR, &sizes, b->config.real);
    ech_coll c = coll_for(b, &task);
    const buffers size = buffers_of(&c, b->config.transport->size, elems);
    const double kernel_s = bench_time_kernel(b, &op, 0.001);
    for (int i = 0; i < TIMES; i++) {
        place(b, &size, i, &c);
        ECH_TRY(b->config.transport->barrier(b->config.transport));
        ECH_TRY(time_under_kernels(b, &c, &op, 0, &alone[i]));
        const double kernels = b->config.is_small ? 4 : fmin(2 * alone[i] / kernel_s, 10000);
        place(b, &size, i + 1, &c);
        ECH_TRY(b->config.transport->barrier(b->config.transport));
        ECH_TRY(time_under_kernels(b, &c, &op, (int)kernels + 1, &under[i]));
    }
    const double mine = ech_bench_median(under, TIMES) / ech_bench_median(alone, TIMES);
    ECH_TRY(bench_exchange(b, &mine, 1, all));
    double sum = 0;
    for (int r = 0; r < b->config.transport->size; r++)
        sum += fmin(all[r], 1.0);
    *out = sum / b->config.transport->size;
    return ECH_OK;
}

ech_status ech_bench_comm(ech_bench *b, ech_calibration *c, ech_bench_found *found)
{
    static const ech_op_kind kinds[] = {ECH_OP_ALL_REDUCE_START, ECH_OP_REDUCE_SCATTER_START,
                                        ECH_OP_ALL_GATHER_START, ECH_OP_SUM_SMALL_START,
                                        ECH_OP_SEND_START};
    /* 4 B, then 64 B to 4 MiB in fp32 */
    static const int64_t elems[] = {1, 16, 256, 2048, 8192, 32768, 131072, 1048576};
    const int n = b->config.is_small ? 3 : (int)(sizeof elems / sizeof elems[0]);
    bench_tasks tasks = {0};
    double busy = 0;
    ECH_CHECK(b->config.transport->size > 1, ECH_E_ILLEGAL,
              "one rank has nobody to talk to: wanted two or more");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int i = 0; i < n; i++)
            ECH_TRY(bench_task_add(&tasks, &(bench_task){.kind = kinds[k], .elems = elems[i]}));
    ECH_TRY(measure_busy(b, &busy));
    ECH_TRY(bench_run(b, &tasks, sample_comm, c, found));
    c->comm_busy = busy;
    return ECH_OK;
}
