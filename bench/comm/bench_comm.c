/* All-reduce, reduce-scatter and all-gather of fp32 side by side, in turns, in one job: ours over
 * the mpi module; a plain loop of equal semantics (parts to their owners with MPI_Isend/Irecv, sums
 * in rank order, sums back); and MPI_Reduce_scatter, MPI_Allgatherv or the two one after the other,
 * whose order of summation is MPI's own.  Run by ./run. */
#include "base/clock.h"
#include "base/status.h"
#include "comm/comm.h"
#include "program/op.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METHODS = 3, KINDS = 3, MAX_RANKS = 16, ROUNDS = 41, MAX_BYTES = 16 << 20 };

typedef struct bench {
    int rank, size;
    int64_t n;
    ech_coll_kind kind;
    float *buf, *part, *staging; /* part: apart from buf, but for all-reduce */
    size_t staging_bytes;
    ech_comm *comm;
    int count[MAX_RANKS], at[MAX_RANKS];
} bench;

static void stop(const char *what)
{
    fprintf(stderr, "bench_comm: %s: %s\n", what, ech_error_message());
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void ours(bench *b)
{
    const ech_coll c = {.kind = b->kind,
                        .axis = ECH_AXIS_DP,
                        .dtype = ECH_F32,
                        .n = b->n,
                        .buf = b->buf,
                        .part = b->part,
                        .staging = b->staging,
                        .staging_bytes = b->staging_bytes};
    int request = -1;
    if (ech_coll_start(b->comm, &c, &request) != ECH_OK)
        stop("start");
    int64_t seen = ech_comm_activity(b->comm);
    for (int idle = 0;; idle++) {
        const ech_status st = ech_coll_test(b->comm, request);
        if (st == ECH_DONE)
            return;
        if (st < 0)
            stop("test");
        if (ech_comm_activity(b->comm) != seen)
            idle = 0;
        seen = ech_comm_activity(b->comm);
        ech_clock_backoff(idle);
    }
}

/* Where this rank's part of the sum goes, or what it gathers comes from. */
static float *own(bench *b)
{
    return b->kind == ECH_COLL_ALL_REDUCE ? b->buf + b->at[b->rank] : b->part;
}

/* Needs staging for a whole part of every rank. */
static void plain_reduce(bench *b)
{
    MPI_Request request[2 * MAX_RANKS];
    const int mine = b->count[b->rank];
    const float *first = b->buf + b->at[b->rank];
    float *sum = own(b);
    int k = 0;
    for (int p = 0; p < b->size; p++) {
        if (p == b->rank)
            continue;
        MPI_Irecv(b->staging + (ptrdiff_t)p * mine, mine, MPI_FLOAT, p, 0, MPI_COMM_WORLD,
                  &request[k++]);
        MPI_Isend(b->buf + b->at[p], b->count[p], MPI_FLOAT, p, 0, MPI_COMM_WORLD, &request[k++]);
    }
    MPI_Waitall(k, request, MPI_STATUSES_IGNORE);
    for (int p = 0; p < b->size; p++) {
        const float *theirs = b->staging + (ptrdiff_t)p * mine;
        for (int i = 0; p != b->rank && i < mine; i++)
            sum[i] = first[i] + theirs[i];
        first = p != b->rank ? sum : first;
    }
}

static void plain_gather(bench *b)
{
    MPI_Request request[2 * MAX_RANKS];
    const int mine = b->count[b->rank];
    const float *part = own(b);
    int k = 0;
    for (int p = 0; p < b->size; p++) {
        if (p == b->rank)
            continue;
        MPI_Irecv(b->buf + b->at[p], b->count[p], MPI_FLOAT, p, 1, MPI_COMM_WORLD, &request[k++]);
        MPI_Isend(part, mine, MPI_FLOAT, p, 1, MPI_COMM_WORLD, &request[k++]);
    }
    if (b->kind == ECH_COLL_ALL_GATHER)
        memcpy(b->buf + b->at[b->rank], part, (size_t)mine * sizeof *part);
    MPI_Waitall(k, request, MPI_STATUSES_IGNORE);
}

static void plain_loop(bench *b)
{
    if (b->kind != ECH_COLL_ALL_GATHER)
        plain_reduce(b);
    if (b->kind != ECH_COLL_REDUCE_SCATTER)
        plain_gather(b);
}

static void library(bench *b)
{
    float *part = b->kind == ECH_COLL_ALL_REDUCE ? b->staging : b->part;
    if (b->kind != ECH_COLL_ALL_GATHER)
        MPI_Reduce_scatter(b->buf, part, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (b->kind != ECH_COLL_REDUCE_SCATTER)
        MPI_Allgatherv(part, b->count[b->rank], MPI_FLOAT, b->buf, b->count, b->at, MPI_FLOAT,
                       MPI_COMM_WORLD);
}

static void (*const method[METHODS])(bench *) = {ours, plain_loop, library};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float value(int64_t i, int rank)
{
    return (float)(i % 1000) * 0.25f + (float)rank;
}

static void fill(bench *b)
{
    for (int64_t i = 0; i < b->n; i++)
        b->buf[i] = value(i, b->rank);
    for (int64_t i = 0; i < b->count[b->rank]; i++) /* what is gathered: one value a place */
        b->part[i] = value(b->at[b->rank] + i, 0);
}

/* Small integers and quarters: exact in any order, so all methods must agree. */
static void check(bench *b, int m)
{
    const bool is_part = b->kind == ECH_COLL_REDUCE_SCATTER;
    const int64_t begin = is_part ? b->at[b->rank] : 0;
    const int64_t end = is_part ? begin + b->count[b->rank] : b->n;
    for (int64_t i = begin; i < end; i++) {
        const float sum = (float)b->size * value(i, 0) + (float)(b->size * (b->size - 1) / 2);
        const float wanted = b->kind == ECH_COLL_ALL_GATHER ? value(i, 0) : sum;
        const float got = is_part ? b->part[i - begin] : b->buf[i];
        if (got != wanted) {
            fprintf(stderr, "method %d, rank %d: [%lld] is %g, must be %g\n", m, b->rank,
                    (long long)i, (double)got, (double)wanted);
            stop("wrong result");
        }
    }
}

/* Seconds of the slowest rank. */
static double time_once(bench *b, int m)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = ech_clock_s();
    method[m](b);
    double s = ech_clock_s() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return s;
}

static void set_size(bench *b, int64_t bytes)
{
    b->n = bytes / (int64_t)sizeof(float) / b->size * b->size; /* equal shares */
    for (int p = 0; p < b->size; p++) {
        const ech_range part = ech_split(b->n, b->size, p);
        b->count[p] = (int)(part.end - part.begin);
        b->at[p] = (int)part.begin;
    }
}

static void run_size(bench *b, int64_t bytes)
{
    double s[METHODS][ROUNDS];
    set_size(b, bytes);
    for (int m = 0; m < METHODS; m++) {
        fill(b);
        (void)time_once(b, m);
        check(b, m);
    }
    memset(b->buf, 0, (size_t)bytes); /* so that sums of sums stay small */
    memset(b->part, 0, (size_t)b->count[b->rank] * sizeof *b->part);
    for (int r = 0; r < ROUNDS; r++)
        for (int m = 0; m < METHODS; m++)
            s[m][r] = time_once(b, m);
    for (int m = 0; m < METHODS; m++)
        qsort(s[m], ROUNDS, sizeof s[m][0], by_value);
    if (b->rank != 0)
        return;
    printf("%8lld", (long long)bytes / 1024);
    for (int m = 0; m < METHODS; m++)
        printf(" %9.1f %9.1f", s[m][ROUNDS / 2] * 1e6, s[m][0] * 1e6);
    for (int m = 1; m < METHODS; m++)
        printf(" %6.0f %% %6.0f %%", 100 * s[m][ROUNDS / 2] / s[0][ROUNDS / 2],
               100 * s[m][0] / s[0][0]);
    printf("\n");
    (void)fflush(stdout);
}

static const struct {
    ech_coll_kind kind;
    const char *name, *library;
} kinds[KINDS] = {{ECH_COLL_ALL_REDUCE, "all-reduce", "RS+AGv"},
                  {ECH_COLL_REDUCE_SCATTER, "reduce-scatter", "RS"},
                  {ECH_COLL_ALL_GATHER, "all-gather", "AGv"}};

static void run_kind(bench *b, int k)
{
    b->kind = kinds[k].kind;
    if (b->rank == 0)
        printf("%s\n     KiB      ours      best      loop      best %9s      best   / loop (best) "
               "   / %s (best)\n",
               kinds[k].name, kinds[k].library, kinds[k].library);
    for (int64_t bytes = 256 << 10; bytes <= MAX_BYTES; bytes *= 2)
        run_size(b, bytes);
}

static ech_transport *open_module(const char *folder)
{
    ech_status (*open)(ech_transport **) = NULL;
    ech_transport *t = NULL;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/libechelon_mpi.so", folder);
    void *module = dlopen(path, RTLD_NOW);
    if (module == NULL)
        stop(path);
    void *symbol = dlsym(module, ECH_TRANSPORT_MODULE_SYMBOL);
    memcpy(&open, &symbol, sizeof open);
    if (open == NULL || open(&t) != ECH_OK)
        stop("transport");
    return t;
}

int main(int argc, char **argv)
{
    bench b = {0};
    MPI_Init(&argc, &argv);
    if (argc != 2)
        stop("usage: bench_comm BUILD");
    ech_transport *t = open_module(argv[1]);
    const ech_layout l = ech_layout_data_parallel(t->size);
    b.rank = t->rank;
    b.size = t->size;
    if (b.size > MAX_RANKS || ech_comm_create(t, &l, 4, &b.comm) != ECH_OK)
        stop("communicator");
    b.staging_bytes = MAX_BYTES + 4096; /* the plain loop's need; ours takes 2 chunks a rank */
    if ((size_t)(2 * b.size) * ECH_REDUCE_CHUNK_ELEMS * sizeof(float) > b.staging_bytes)
        b.staging_bytes = (size_t)(2 * b.size) * ECH_REDUCE_CHUNK_ELEMS * sizeof(float);
    b.buf = calloc(1, MAX_BYTES);
    b.part = calloc(1, MAX_BYTES);
    b.staging = calloc(1, b.staging_bytes);
    if (b.buf == NULL || b.part == NULL || b.staging == NULL)
        stop("memory");
    memset(b.staging, 1, b.staging_bytes); /* touched once, here */
    if (b.rank == 0)
        printf("fp32, %d ranks, %d rounds in turns; microseconds of the slowest rank, median and "
               "best;\nspeed of ours relative to the others (above 100 %%: faster)\n",
               b.size, ROUNDS);
    for (int k = 0; k < KINDS; k++)
        run_kind(&b, k);
    ech_comm_destroy(&b.comm);
    t->destroy(t);
    free(b.buf);
    free(b.part);
    free(b.staging);
    MPI_Finalize();
    return 0;
}
