/* Points in rounds, on all ranks at once, and grids made of them (bench.h). */
#include "base/clock.h"
#include "measure/bench_private.h"
#include "measure/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COPIES = 64, LEAST_CALLS = 3 };

ech_bench_config ech_bench_config_default(void)
{
    return (ech_bench_config){.threads = 1,
                              .real = ECH_F32,
                              .rounds = 3,
                              .point_s = 0.002,
                              .ring_bytes = (size_t)64 << 20};
}

ech_status ech_bench_open(const ech_bench_config *config, ech_bench *out)
{
    const ech_layout l = ech_layout_data_parallel(config->transport->size);
    ECH_CHECK(config->rounds >= 1 && config->rounds <= ECH_BENCH_MAX_ROUNDS, ECH_E_ILLEGAL,
              "%d rounds, wanted 1..%d", config->rounds, ECH_BENCH_MAX_ROUNDS);
    out->config = *config;
    ECH_TRY(ech_kernel_table_make(config->kernels, config->real, &out->table));
    ECH_TRY(ech_comm_create(config->transport, &l, 8, &out->comm));
    ECH_TRY(ech_arena_init(&out->ring, config->ring_bytes / 64 * 64));
    for (size_t i = 0; i < out->ring.bytes / ech_dtype_bytes(config->real); i++)
        ech_dtype_store(config->real, out->ring.base, i, 0.25 + 0.5 * (double)(i % 1021) / 1021.0);
    return ECH_OK;
}

void ech_bench_close(ech_bench *b)
{
    ech_arena_fini(&b->ring);
    ech_comm_destroy(&b->comm);
    *b = (ech_bench){0};
}

void ech_bench_found_fini(ech_bench_found *f)
{
    free(f->point);
    *f = (ech_bench_found){0};
}

ech_status bench_task_add(bench_tasks *t, const bench_task *task)
{
    ECH_TRY(ech_grow(&t->task, t->n, &t->capacity, sizeof *t->task));
    t->task[t->n++] = *task;
    return ECH_OK;
}

/* --- timing --- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double ech_bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* What others' processes take of the processors is not this machine's speed.  A call of one thread
 * tells it, unless ranks share processors in training too. */
static bool tells_cpu_time(const ech_bench *b)
{
    ech_machine m;
    ech_machine_get(&m);
    return b->config.threads == 1 && b->config.transport->size <= m.cores_usable;
}

/* The copies of a call that lie in the ring. */
static int place_copies(const ech_bench *b, const ech_op *op, ech_kernel_call call[MAX_COPIES])
{
    ech_bench_sizes any;
    const size_t bytes = ech_bench_op_bytes(op);
    const int copies =
        (int)(b->ring.bytes / bytes < MAX_COPIES ? b->ring.bytes / bytes : MAX_COPIES);
    ECH_ASSERT(copies > 0);
    for (int i = 0; i < copies; i++) {
        unsigned char *at = b->ring.base + (size_t)i * bytes;
        if (ech_bench_sizes_of(op->kind, 0, &any)) /* products do not look at values */
            ech_bench_fill(op, at);
        ech_bench_call(op, at, b->config.threads, &call[i]);
    }
    return copies;
}

double bench_time_kernel(const ech_bench *b, const ech_op *op, double seconds)
{
    double wall[BENCH_MAX_CALLS];
    double cpu[BENCH_MAX_CALLS];
    ech_kernel_call call[MAX_COPIES];
    const int copies = place_copies(b, op, call);
    int n = 0;
    b->table.kernel[op->kind](&call[copies - 1]);
    const double begin = ech_clock_s();
    while (n < LEAST_CALLS || (ech_clock_s() - begin < seconds && n < BENCH_MAX_CALLS)) {
        const double cpu_before = ech_clock_cpu_s();
        const double before = ech_clock_s();
        b->table.kernel[op->kind](&call[n % copies]);
        wall[n] = ech_clock_s() - before;
        cpu[n++] = ech_clock_cpu_s() - cpu_before;
    }
    const double s = ech_bench_median(wall, n);
    return tells_cpu_time(b) ? fmin(s, ech_bench_median(cpu, n)) : s;
}

ech_status bench_finish(ech_bench *b, int request)
{
    int64_t seen = -1;
    for (int idle = 0;; idle++) {
        const ech_status st = ech_coll_test(b->comm, request);
        if (st != ECH_BLOCKED)
            return st == ECH_DONE ? ECH_OK : st;
        if (ech_comm_activity(b->comm) != seen)
            idle = 0;
        seen = ech_comm_activity(b->comm);
        ech_clock_backoff(idle);
    }
}

ech_status bench_exchange(ech_bench *b, const double *mine, size_t n, double *all)
{
    ech_transport *t = b->config.transport;
    if (t->size > 1)
        return t->exchange(t, mine, n * sizeof *mine, all);
    memcpy(all, mine, n * sizeof *mine);
    return ECH_OK;
}

/* --- tasks to points --- */

static ech_op op_of(const ech_bench *b, const bench_task *task)
{
    if (!ech_op_is_comm(task->kind))
        return ech_bench_op(task->kind, &task->sizes, b->config.real);
    ech_op op = {.kind = task->kind, .n_args = 1, .axis = ECH_AXIS_DP};
    const bool deals_out =
        task->kind == ECH_OP_ALL_REDUCE_START || task->kind == ECH_OP_REDUCE_SCATTER_START;
    op.arg[0] = (ech_operand){.region = ECH_REGION_WORK, .dtype = b->config.real, .rank = 1};
    op.arg[0].dim[0].bound = task->elems * (deals_out ? b->config.transport->size : 1);
    return op;
}

static ech_bench_point point_of(const ech_bench *b, const bench_task *task)
{
    const ech_op op = op_of(b, task);
    const ech_op_row *row = ech_op_row_get(task->kind);
    ech_bench_point p = {.kind = task->kind};
    const bool is_comm = ech_op_is_comm(task->kind);
    p.pieces = ech_op_coordinates(&op, is_comm ? b->config.transport->size : 1, p.at);
    p.work = row->flops ? row->flops(&op) : p.at[0];
    return p;
}

/* Medians of rounds to a point's seconds: [ranks][tasks] of seconds and spreads. */
static ech_status join_ranks(ech_bench *b, const double *mine, size_t n, ech_bench_point *point)
{
    const size_t ranks = (size_t)b->config.transport->size;
    double *all;
    ECH_TRY(ech_calloc(ranks * 2 * n, sizeof *all, &all));
    const ech_status st = bench_exchange(b, mine, 2 * n, all);
    for (size_t i = 0; i < n && st >= 0; i++) {
        const bool is_comm = ech_op_is_comm(point[i].kind);
        double sum = 0;
        double most = 0;
        for (size_t r = 0; r < ranks; r++) {
            const double s = all[2 * (r * n + i)];
            sum += s;
            most = s > most ? s : most;
            point[i].spread = fmax(point[i].spread, all[2 * (r * n + i) + 1]);
        }
        /* a collective ends with its last member */
        point[i].seconds = (is_comm ? most : sum / (double)ranks) / point[i].pieces;
    }
    free(all);
    return st;
}

/* Where a value stands on an axis, adding it behind the others. */
static void note_place(ech_grid *g, int axis, double x)
{
    for (int i = 0; i < g->n[axis]; i++)
        if (g->at[axis][i] >= x) {
            ECH_ASSERT(g->at[axis][i] == x); /* tasks come in the order of their grid */
            return;
        }
    ECH_ASSERT(g->n[axis] < ECH_GRID_POINTS);
    g->at[axis][g->n[axis]++] = x;
}

static void make_grids(const ech_bench_point *point, size_t n, ech_calibration *c)
{
    const char *names[ECH_GRID_AXES];
    int filled = 0;
    for (size_t i = 0; i < n; i++) {
        ech_grid *g = &c->cost[point[i].kind];
        if (i == 0 || point[i].kind != point[i - 1].kind) {
            *g = (ech_grid){.n_axes = ech_grid_axes_of(point[i].kind, names)};
            filled = 0;
        }
        for (int a = 0; a < g->n_axes; a++)
            note_place(g, a, point[i].at[a]);
        ECH_ASSERT(filled < ECH_GRID_VALUES);
        g->seconds[filled++] = point[i].seconds;
    }
}

static ech_status measure(ech_bench *b, const bench_tasks *tasks, bench_sampler sample,
                          double *seconds, double *mine)
{
    const size_t rounds = (size_t)b->config.rounds;
    for (size_t r = 0; r < rounds; r++)
        for (size_t i = 0; i < tasks->n; i++)
            ECH_TRY(sample(b, &tasks->task[i], &seconds[i * rounds + r]));
    for (size_t i = 0; i < tasks->n; i++) {
        double *s = &seconds[i * rounds];
        mine[2 * i] = ech_bench_median(s, b->config.rounds);
        mine[2 * i + 1] = (s[rounds - 1] - s[0]) / mine[2 * i];
    }
    return ECH_OK;
}

static ech_status run(ech_bench *b, const bench_tasks *tasks, bench_sampler sample,
                      ech_calibration *c, ech_bench_found *found)
{
    const size_t rounds = (size_t)b->config.rounds;
    const size_t first = found->n;
    double *seconds;
    for (size_t i = 0; i < tasks->n; i++) {
        ECH_TRY(ech_grow(&found->point, found->n, &found->capacity, sizeof *found->point));
        found->point[found->n++] = point_of(b, &tasks->task[i]);
    }
    ECH_TRY(ech_calloc(tasks->n * (rounds + 2), sizeof *seconds, &seconds));
    double *mine = seconds + tasks->n * rounds;
    ech_status st = measure(b, tasks, sample, seconds, mine);
    if (st >= 0)
        st = join_ranks(b, mine, tasks->n, found->point + first);
    if (st >= 0) {
        make_grids(found->point + first, tasks->n, c);
        bench_set_head(b, c);
    }
    free(seconds);
    return st;
}

ech_status bench_run(ech_bench *b, bench_tasks *tasks, bench_sampler sample, ech_calibration *c,
                     ech_bench_found *found)
{
    const ech_status st = run(b, tasks, sample, c, found);
    free(tasks->task);
    *tasks = (bench_tasks){0};
    return st;
}

/* --- the head of the file --- */

void bench_set_head(const ech_bench *b, ech_calibration *c)
{
    ech_machine m;
    ech_machine_get(&m);
    (void)snprintf(c->echelon, sizeof c->echelon, "%s", ECH_VERSION);
    ech_clock_utc(c->date, sizeof c->date);
    (void)snprintf(c->host, sizeof c->host, "%.63s", m.host);
    (void)snprintf(c->cpu, sizeof c->cpu, "%.127s", m.cpu);
    (void)snprintf(c->kernels, sizeof c->kernels, "%.31s",
                   b->config.kernels ? b->config.kernels->name : "ref");
    if (b->config.transport->size > 1)
        (void)snprintf(c->transport, sizeof c->transport, "%.15s", b->config.transport->name);
    c->ranks = b->config.transport->size;
    c->threads = b->config.threads;
    c->real = b->config.real;
    c->memory_bytes = m.limit_bytes > 0 && m.limit_bytes < m.memory_bytes ? (double)m.limit_bytes
                      : m.memory_bytes > 0                                ? (double)m.memory_bytes
                                                                          : NAN;
}
