/* A witness at the MPI boundary: counts what a process sends, per communicator, from the arguments
 * of the MPI calls alone.  Preloaded (LD_PRELOAD) into any MPI program; it shares no code with
 * src/.  At MPI_Finalize each rank writes one JSON object to $ECH_PMPI_OUT followed by its rank:
 *   {"dp": {"bytes": 4096, "messages": 2, "others": 0}, "startup": {...}, ...}
 * The name is that of the communicator without "ech.".  "bytes" and "messages" count
 * point-to-point sends; "others" counts calls that also send but not point to point (collectives,
 * one-sided, persistent), whose bytes cannot be known out here: it must be 0 where exactness is
 * claimed.  Without ECH_PMPI_OUT nothing is written.
 *
 * $ECH_PMPI_DROP names groups between commas whose first message is not counted: a fault made on
 * purpose, which a comparison has to notice. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64 };

typedef struct count {
    char name[MPI_MAX_OBJECT_NAME];
    long long bytes, messages, others;
} count;

static count counts[MAX_NAMES];
static int n_counts;

static count *count_of(MPI_Comm comm)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    (void)PMPI_Comm_get_name(comm, name, &length);
    const char *key = strncmp(name, "ech.", 4) == 0 ? name + 4 : name;
    for (int i = 0; i < n_counts; i++)
        if (strcmp(counts[i].name, key) == 0)
            return &counts[i];
    if (n_counts == MAX_NAMES) {
        fprintf(stderr, "pmpi shim: more than %d names of communicators\n", MAX_NAMES);
        abort();
    }
    (void)snprintf(counts[n_counts].name, sizeof counts[0].name, "%s", key);
    return &counts[n_counts++];
}

static int drops(const count *c)
{
    const char *at = getenv("ECH_PMPI_DROP");
    const size_t n = strlen(c->name);
    for (; at != NULL && c->messages == 0; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, c->name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return 1;
    }
    return 0;
}

static void sent(MPI_Comm comm, int n, MPI_Datatype type)
{
    MPI_Count bytes = 0;
    count *c = count_of(comm);
    (void)PMPI_Type_size_x(type, &bytes);
    if (drops(c))
        bytes = 0;
    c->bytes += (long long)n * (long long)bytes;
    c->messages++;
}

static void other(MPI_Comm comm)
{
    count_of(comm)->others++;
}

/* --- point to point --- */

#define SEND_ARGS const void *buf, int n, MPI_Datatype type, int dest, int tag, MPI_Comm comm

int MPI_Send(SEND_ARGS)
{
    sent(comm, n, type);
    return PMPI_Send(buf, n, type, dest, tag, comm);
}

int MPI_Ssend(SEND_ARGS)
{
    sent(comm, n, type);
    return PMPI_Ssend(buf, n, type, dest, tag, comm);
}

int MPI_Rsend(SEND_ARGS)
{
    sent(comm, n, type);
    return PMPI_Rsend(buf, n, type, dest, tag, comm);
}

int MPI_Bsend(SEND_ARGS)
{
    sent(comm, n, type);
    return PMPI_Bsend(buf, n, type, dest, tag, comm);
}

int MPI_Isend(SEND_ARGS, MPI_Request *request)
{
    sent(comm, n, type);
    return PMPI_Isend(buf, n, type, dest, tag, comm, request);
}

int MPI_Issend(SEND_ARGS, MPI_Request *request)
{
    sent(comm, n, type);
    return PMPI_Issend(buf, n, type, dest, tag, comm, request);
}

int MPI_Irsend(SEND_ARGS, MPI_Request *request)
{
    sent(comm, n, type);
    return PMPI_Irsend(buf, n, type, dest, tag, comm, request);
}

int MPI_Ibsend(SEND_ARGS, MPI_Request *request)
{
    sent(comm, n, type);
    return PMPI_Ibsend(buf, n, type, dest, tag, comm, request);
}

int MPI_Sendrecv(const void *buf, int n, MPI_Datatype type, int dest, int tag, void *in, int n_in,
                 MPI_Datatype type_in, int source, int tag_in, MPI_Comm comm, MPI_Status *status)
{
    sent(comm, n, type);
    return PMPI_Sendrecv(buf, n, type, dest, tag, in, n_in, type_in, source, tag_in, comm, status);
}

int MPI_Sendrecv_replace(void *buf, int n, MPI_Datatype type, int dest, int tag, int source,
                         int tag_in, MPI_Comm comm, MPI_Status *status)
{
    sent(comm, n, type);
    return PMPI_Sendrecv_replace(buf, n, type, dest, tag, source, tag_in, comm, status);
}

/* --- everything else that sends --- */

int MPI_Send_init(SEND_ARGS, MPI_Request *request)
{
    other(comm);
    return PMPI_Send_init(buf, n, type, dest, tag, comm, request);
}

int MPI_Barrier(MPI_Comm comm)
{
    other(comm);
    return PMPI_Barrier(comm);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    other(comm);
    return PMPI_Ibarrier(comm, request);
}

int MPI_Bcast(void *buf, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    other(comm);
    return PMPI_Bcast(buf, n, type, root, comm);
}

int MPI_Reduce(const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm)
{
    other(comm);
    return PMPI_Reduce(buf, out, n, type, op, root, comm);
}

int MPI_Allreduce(const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    other(comm);
    return PMPI_Allreduce(buf, out, n, type, op, comm);
}

int MPI_Iallreduce(const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    other(comm);
    return PMPI_Iallreduce(buf, out, n, type, op, comm, request);
}

int MPI_Reduce_scatter(const void *buf, void *out, const int counts_in[], MPI_Datatype type,
                       MPI_Op op, MPI_Comm comm)
{
    other(comm);
    return PMPI_Reduce_scatter(buf, out, counts_in, type, op, comm);
}

int MPI_Reduce_scatter_block(const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm)
{
    other(comm);
    return PMPI_Reduce_scatter_block(buf, out, n, type, op, comm);
}

int MPI_Allgather(const void *buf, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm)
{
    other(comm);
    return PMPI_Allgather(buf, n, type, out, n_out, type_out, comm);
}

int MPI_Iallgather(const void *buf, int n, MPI_Datatype type, void *out, int n_out,
                   MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request)
{
    other(comm);
    return PMPI_Iallgather(buf, n, type, out, n_out, type_out, comm, request);
}

int MPI_Allgatherv(const void *buf, int n, MPI_Datatype type, void *out, const int n_out[],
                   const int at[], MPI_Datatype type_out, MPI_Comm comm)
{
    other(comm);
    return PMPI_Allgatherv(buf, n, type, out, n_out, at, type_out, comm);
}

int MPI_Alltoall(const void *buf, int n, MPI_Datatype type, void *out, int n_out,
                 MPI_Datatype type_out, MPI_Comm comm)
{
    other(comm);
    return PMPI_Alltoall(buf, n, type, out, n_out, type_out, comm);
}

int MPI_Alltoallv(const void *buf, const int n[], const int at[], MPI_Datatype type, void *out,
                  const int n_out[], const int at_out[], MPI_Datatype type_out, MPI_Comm comm)
{
    other(comm);
    return PMPI_Alltoallv(buf, n, at, type, out, n_out, at_out, type_out, comm);
}

int MPI_Win_create(void *base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
    other(comm);
    return PMPI_Win_create(base, bytes, unit, info, comm, win);
}

/* --- the end --- */

static void write_counts(const char *prefix)
{
    char path[4096];
    int rank = 0;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)snprintf(path, sizeof path, "%s%d", prefix, rank);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        fprintf(stderr, "pmpi shim: cannot write %s\n", path);
        abort();
    }
    fputs("{", out);
    for (int i = 0; i < n_counts; i++)
        fprintf(out, "%s\"%s\": {\"bytes\": %lld, \"messages\": %lld, \"others\": %lld}",
                i > 0 ? ", " : "", counts[i].name, counts[i].bytes, counts[i].messages,
                counts[i].others);
    fputs("}\n", out);
    if (fclose(out) != 0)
        abort();
}

int MPI_Finalize(void)
{
    const char *prefix = getenv("ECH_PMPI_OUT");
    if (prefix != NULL)
        write_counts(prefix);
    return PMPI_Finalize();
}
