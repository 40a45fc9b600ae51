/* Messages over MPI: the module that echelon opens when a run has several processes.
 * One communicator per axis, "ech.dp" and so on, so that a tool at the MPI boundary sees which
 * traffic is whose; start-up and agreement go over "ech.startup".  One thread calls MPI, and all
 * waits back off: more ranks than cores is the normal case. */
#include "comm/comm.h"

#include "base/checked.h"
#include "base/clock.h"
#include "comm/mpi/mpi_split.h"
#include "comm/transport.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, CALLS = 2, MOST_NAMED = 8 };

/* A message in flight. */
typedef struct message {
    MPI_Request call[CALLS]; /* blocks and rest, or rest alone in the second */
    ech_mpi_split split;
    bool is_used, is_send;
    ech_axis axis;
    int peer, tag;
    int64_t generation; /* of this use, to catch stale handles */
    int64_t next;       /* free ones */
} message;

typedef struct mpi_state {
    bool owns_mpi; /* it was not started before us */
    MPI_Comm axis[ECH_N_AXES];
    MPI_Comm startup;
    MPI_Datatype block;
    MPI_Request *greeting; /* [2, size] owned: of one exchange, receives and then sends */
    char *here;            /* [size] owned: what a barrier receives */
    message *message;      /* [capacity] owned */
    int64_t capacity, used, free_head;
} mpi_state;

ech_status ech_transport_module(ech_transport **out);

/* --- errors --- */

static ech_status raise_mpi(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return ECH_RAISE(ECH_E_COMM, "mpi: %s: %s", what, text);
}

static ech_status check_mpi(int code, const char *what)
{
    return code == MPI_SUCCESS ? ECH_OK : raise_mpi(code, what);
}

static ech_status check_message(int code, const ech_transport *t, const message *m)
{
    char what[160];
    if (code == MPI_SUCCESS)
        return ECH_OK;
    (void)snprintf(what, sizeof what, "rank %d %s rank %d over %s (%zu bytes, tag %d)", t->rank,
                   m->is_send ? "sends to" : "receives from", m->peer, ech_axis_name(m->axis),
                   m->split.blocks * ECH_MPI_BLOCK_BYTES + m->split.rest_bytes, m->tag);
    return raise_mpi(code, what);
}

/* --- the table of messages --- */

static ech_status take_message(mpi_state *s, int64_t *out)
{
    int64_t i = s->free_head;
    if (i != NONE) {
        s->free_head = s->message[i].next;
    } else {
        ECH_CHECK(s->used < s->capacity, ECH_E_COMM, "mpi: all %lld requests are in flight",
                  (long long)s->capacity);
        i = s->used++;
    }
    *out = i;
    return ECH_OK;
}

static void give_message(mpi_state *s, int64_t i)
{
    s->message[i].is_used = false;
    s->message[i].next = s->free_head;
    s->free_head = i;
}

/* --- sending and receiving --- */

static int post_send(const mpi_state *s, message *m, const unsigned char *buf)
{
    const ech_mpi_split split = m->split;
    const size_t head = split.blocks * ECH_MPI_BLOCK_BYTES;
    int code = MPI_SUCCESS;
    if (split.blocks > 0)
        code = MPI_Isend(buf, (int)split.blocks, s->block, m->peer, m->tag, s->axis[m->axis],
                         &m->call[0]);
    if (code != MPI_SUCCESS)
        return code;
    return MPI_Isend(buf + head, (int)split.rest_bytes, MPI_BYTE, m->peer, m->tag, s->axis[m->axis],
                     &m->call[1]);
}

static int post_recv(const mpi_state *s, message *m, unsigned char *buf)
{
    const ech_mpi_split split = m->split;
    const size_t head = split.blocks * ECH_MPI_BLOCK_BYTES;
    int code = MPI_SUCCESS;
    if (split.blocks > 0)
        code = MPI_Irecv(buf, (int)split.blocks, s->block, m->peer, m->tag, s->axis[m->axis],
                         &m->call[0]);
    if (code != MPI_SUCCESS)
        return code;
    return MPI_Irecv(buf + head, (int)split.rest_bytes, MPI_BYTE, m->peer, m->tag, s->axis[m->axis],
                     &m->call[1]);
}

static ech_status open_message(ech_transport *t, const message *what, size_t bytes,
                               ech_p2p_request *out)
{
    mpi_state *s = t->state;
    int64_t i = NONE;
    ECH_CHECK(bytes / ECH_MPI_BLOCK_BYTES <= INT_MAX, ECH_E_COMM,
              "mpi: a message of %zu bytes to or from rank %d", bytes, what->peer);
    ECH_TRY(take_message(s, &i));
    message *m = &s->message[i];
    const int64_t generation = m->generation + 1;
    *m = *what;
    m->call[0] = m->call[1] = MPI_REQUEST_NULL;
    m->split = ech_mpi_split_make(bytes, INT_MAX);
    m->is_used = true;
    m->generation = generation;
    *out = (ech_p2p_request){{i, generation, 0, 0}};
    return ECH_OK;
}

static ech_status mpi_isend(ech_transport *t, ech_axis axis, int peer, int tag, const void *buf,
                            size_t bytes, ech_p2p_request *out)
{
    mpi_state *s = t->state;
    const message what = {.is_send = true, .axis = axis, .peer = peer, .tag = tag};
    ECH_TRY(open_message(t, &what, bytes, out));
    message *m = &s->message[out->word[0]];
    return check_message(post_send(s, m, buf), t, m);
}

static ech_status mpi_irecv(ech_transport *t, ech_axis axis, int peer, int tag, void *buf,
                            size_t bytes, ech_p2p_request *out)
{
    mpi_state *s = t->state;
    const message what = {.axis = axis, .peer = peer, .tag = tag};
    ECH_TRY(open_message(t, &what, bytes, out));
    message *m = &s->message[out->word[0]];
    return check_message(post_recv(s, m, buf), t, m);
}

/* A shorter message than was waited for is no error to MPI; a longer one is. */
static ech_status check_count(const ech_transport *t, const message *m, int call, MPI_Status *got)
{
    const mpi_state *s = t->state;
    const size_t wanted = call == 0 ? m->split.blocks : m->split.rest_bytes;
    int count = 0;
    if (m->is_send)
        return ECH_OK;
    ECH_TRY(check_mpi(MPI_Get_count(got, call == 0 ? s->block : MPI_BYTE, &count), "count"));
    ECH_CHECK(count >= 0 && (size_t)count == wanted, ECH_E_COMM,
              "mpi: rank %d waits for %zu %s of rank %d over %s (tag %d), which sends %d", t->rank,
              wanted, call == 0 ? "MiB" : "bytes", m->peer, ech_axis_name(m->axis), m->tag, count);
    return ECH_OK;
}

static ech_status mpi_test(ech_transport *t, ech_p2p_request *request, bool *done)
{
    mpi_state *s = t->state;
    const int64_t i = request->word[0];
    ECH_ASSERT(i >= 0 && i < s->used && s->message[i].generation == request->word[1]);
    message *m = &s->message[i];
    ECH_ASSERT(m->is_used);
    *done = true;
    for (int c = 0; c < CALLS; c++) {
        MPI_Status got;
        int is_through = 0;
        if (m->call[c] == MPI_REQUEST_NULL)
            continue;
        ECH_TRY(check_message(MPI_Test(&m->call[c], &is_through, &got), t, m));
        if (is_through)
            ECH_TRY(check_count(t, m, c, &got));
        *done = *done && is_through;
    }
    if (*done) {
        give_message(s, i);
        request->word[0] = NONE;
    }
    return ECH_OK;
}

/* --- start-up and end --- */

/* Has rank r not sent its value, or not taken ours. */
static bool is_missing(const ech_transport *t, int r)
{
    const mpi_state *s = t->state;
    return s->greeting[r] != MPI_REQUEST_NULL || s->greeting[t->size + r] != MPI_REQUEST_NULL;
}

/* The first missing ranks, in words. */
static const char *name_missing(const ech_transport *t, char *buf, size_t n)
{
    int missing = 0;
    size_t used = 0;
    buf[0] = '\0';
    for (int r = 0; r < t->size; r++) {
        if (!is_missing(t, r))
            continue;
        if (++missing <= MOST_NAMED && used < n)
            used += (size_t)snprintf(buf + used, n - used, "%s%d", missing > 1 ? ", " : "", r);
    }
    if (missing > MOST_NAMED && used < n)
        (void)snprintf(buf + used, n - used, " and %d more", missing - MOST_NAMED);
    return buf;
}

/* Is somebody missing whom the deadline concerns, or who will not come. */
static bool is_late(const ech_transport *t, double since)
{
    const bool is_over = t->deadline_s > 0.0 && ech_clock_s() - since >= t->deadline_s;
    if (!is_over && !t->is_lost)
        return false;
    for (int r = 0; r < t->size; r++) {
        const bool is_spared = t->deadline_s <= 0.0 || (t->spares_root && r == 0);
        if (!is_missing(t, r))
            continue;
        if (is_spared ? t->is_lost && t->is_lost(t->lost_user, r) : is_over)
            return true;
    }
    return false;
}

static void drop_greetings(const ech_transport *t)
{
    mpi_state *s = t->state;
    for (int i = 0; i < 2 * t->size; i++) {
        if (s->greeting[i] == MPI_REQUEST_NULL)
            continue;
        if (i < t->size)
            (void)MPI_Cancel(&s->greeting[i]);
        (void)MPI_Request_free(&s->greeting[i]);
    }
}

static ech_status wait_politely(ech_transport *t, const char *what)
{
    mpi_state *s = t->state;
    char missing[256];
    const double since = ech_clock_s();
    int done = 0;
    for (int turns = 0; done < 2 * t->size; turns++) {
        done = 0;
        for (int i = 0; i < 2 * t->size; i++) {
            int is_through = 0;
            ECH_TRY(check_mpi(MPI_Test(&s->greeting[i], &is_through, MPI_STATUS_IGNORE), what));
            done += is_through;
        }
        ECH_CHECK(!is_late(t, since), ECH_E_TIMEOUT, "rank %d waited %.0f s in %s for rank %s",
                  t->rank, ech_clock_s() - since, what, name_missing(t, missing, sizeof missing));
        ech_clock_backoff(turns);
    }
    return ECH_OK;
}

static ech_status post_greetings(ech_transport *t, const void *value, int bytes, char *out)
{
    mpi_state *s = t->state;
    for (int r = 0; r < t->size; r++)
        ECH_TRY(check_mpi(MPI_Irecv(out + (size_t)r * (size_t)bytes, bytes, MPI_BYTE, r, 0,
                                    s->startup, &s->greeting[r]),
                          "exchange"));
    for (int r = 0; r < t->size; r++)
        ECH_TRY(check_mpi(
            MPI_Isend(value, bytes, MPI_BYTE, r, 0, s->startup, &s->greeting[t->size + r]),
            "exchange"));
    return ECH_OK;
}

/* Everyone to everyone, and not MPI's own collective: who is missing must be known. */
static ech_status greet(ech_transport *t, const void *value, size_t bytes, void *out,
                        const char *what)
{
    ECH_CHECK(bytes <= INT_MAX, ECH_E_COMM, "mpi: exchange of %zu bytes", bytes);
    ech_status st = post_greetings(t, value, (int)bytes, out);
    if (st >= 0)
        st = wait_politely(t, what);
    if (st < 0)
        drop_greetings(t);
    return st;
}

static ech_status mpi_exchange(ech_transport *t, const void *value, size_t bytes, void *out)
{
    return greet(t, value, bytes, out, "an exchange");
}

static ech_status mpi_barrier(ech_transport *t)
{
    const mpi_state *s = t->state;
    return greet(t, "", 1, s->here, "a barrier");
}

static void mpi_abort(ech_transport *t, int exit_code)
{
    (void)t;
    (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
}

/* What is still in flight when a run ends in order is nobody's: its buffers may go. */
static void drop_messages(mpi_state *s)
{
    for (int64_t i = 0; i < s->used; i++)
        for (int c = 0; s->message[i].is_used && c < CALLS; c++) {
            MPI_Request *call = &s->message[i].call[c];
            if (*call == MPI_REQUEST_NULL)
                continue;
            if (!s->message[i].is_send)
                (void)MPI_Cancel(call);
            (void)MPI_Request_free(call);
        }
}

static void state_destroy(mpi_state *s)
{
    drop_messages(s);
    for (int a = 0; a < ECH_N_AXES; a++)
        if (s->axis[a] != MPI_COMM_NULL)
            (void)MPI_Comm_free(&s->axis[a]);
    if (s->startup != MPI_COMM_NULL)
        (void)MPI_Comm_free(&s->startup);
    if (s->block != MPI_DATATYPE_NULL)
        (void)MPI_Type_free(&s->block);
    if (s->owns_mpi)
        (void)MPI_Finalize();
    free(s->message);
    free(s->greeting);
    free(s->here);
    free(s);
}

static void mpi_destroy(ech_transport *t)
{
    state_destroy(t->state);
    free(t);
}

static ech_status name_world(const char *axis, MPI_Comm *out)
{
    char name[32];
    (void)snprintf(name, sizeof name, "ech.%s", axis);
    ECH_TRY(check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, out), "communicator"));
    ECH_TRY(check_mpi(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), "error handler"));
    return check_mpi(MPI_Comm_set_name(*out, name), "name of a communicator");
}

/* MPI may have been started by the program around us; then it also ends it. */
static ech_status start_mpi(mpi_state *s)
{
    int is_started = 0, is_ended = 0, level = MPI_THREAD_SINGLE;
    ECH_TRY(check_mpi(MPI_Finalized(&is_ended), "is it over"));
    ECH_CHECK(!is_ended, ECH_E_ENV, "mpi: cannot be started a second time in one process");
    ECH_TRY(check_mpi(MPI_Initialized(&is_started), "is it started"));
    if (is_started)
        return check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "errors");
    ECH_TRY(check_mpi(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "start"));
    s->owns_mpi = true;
    ECH_CHECK(level >= MPI_THREAD_FUNNELED, ECH_E_ENV,
              "mpi: this library knows no threads (level %d)", level);
    return check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "errors");
}

static ech_status open_state(mpi_state *s, int *rank, int *size)
{
    ECH_TRY(start_mpi(s));
    ECH_TRY(check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, rank), "rank"));
    ECH_TRY(check_mpi(MPI_Comm_size(MPI_COMM_WORLD, size), "size"));
    for (int a = 0; a < ECH_N_AXES; a++)
        ECH_TRY(name_world(ech_axis_name((ech_axis)a), &s->axis[a]));
    ECH_TRY(name_world("startup", &s->startup));
    ECH_TRY(check_mpi(MPI_Type_contiguous(ECH_MPI_BLOCK_BYTES, MPI_BYTE, &s->block), "type"));
    ECH_TRY(check_mpi(MPI_Type_commit(&s->block), "type"));
    ECH_TRY(ech_calloc((size_t)*size, sizeof *s->here, &s->here));
    ECH_TRY(ech_calloc(2 * (size_t)*size, sizeof(MPI_Request), &s->greeting));
    for (int i = 0; i < 2 * *size; i++)
        s->greeting[i] = MPI_REQUEST_NULL;
    s->capacity = (int64_t)ech_comm_request_bound(*size);
    return ech_calloc((size_t)s->capacity, sizeof *s->message, &s->message);
}

static ech_status state_create(mpi_state **out, int *rank, int *size)
{
    ech_status st = ECH_OK;
    mpi_state *s = NULL;
    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    for (int a = 0; a < ECH_N_AXES; a++)
        s->axis[a] = MPI_COMM_NULL;
    s->startup = MPI_COMM_NULL;
    s->block = MPI_DATATYPE_NULL;
    s->free_head = NONE;
    ECH_TRY_GOTO(st, open_state(s, rank, size), fail);
    *out = s;
    return ECH_OK;
fail:
    state_destroy(s);
    return st;
}

ech_status ech_transport_module(ech_transport **out)
{
    ech_transport *t = NULL;
    mpi_state *s = NULL;
    int rank = 0, size = 1;
    ech_status st = ECH_OK;
    ECH_TRY(ech_calloc(1, sizeof *t, &t));
    ECH_TRY_GOTO(st, state_create(&s, &rank, &size), fail);
    *t = (ech_transport){.name = "mpi",
                         .rank = rank,
                         .size = size,
                         .state = s,
                         .isend = mpi_isend,
                         .irecv = mpi_irecv,
                         .test = mpi_test,
                         .exchange = mpi_exchange,
                         .barrier = mpi_barrier,
                         .abort = mpi_abort,
                         .destroy = mpi_destroy};
    *out = t;
    return ECH_OK;
fail:
    free(t);
    return st;
}
