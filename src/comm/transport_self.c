/* Alone: no peer, so no message. */
#include "comm/comm.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

static ech_status self_isend(ech_transport *t, ech_axis axis, int peer, int tag, const void *buf,
                             size_t bytes, ech_p2p_request *out)
{
    (void)t, (void)tag, (void)buf, (void)out;
    return ECH_RAISE(ECH_E_COMM, "self: %zu bytes over %s to rank %d, but rank 0 is alone", bytes,
                     ech_axis_name(axis), peer);
}

static ech_status self_irecv(ech_transport *t, ech_axis axis, int peer, int tag, void *buf,
                             size_t bytes, ech_p2p_request *out)
{
    (void)t, (void)tag, (void)buf, (void)out;
    return ECH_RAISE(ECH_E_COMM, "self: %zu bytes over %s from rank %d, but rank 0 is alone", bytes,
                     ech_axis_name(axis), peer);
}

static ech_status self_test(ech_transport *t, ech_p2p_request *request, bool *done)
{
    (void)t, (void)request, (void)done;
    return ECH_RAISE(ECH_E_COMM, "self: no message can be in flight");
}

static ech_status self_exchange(ech_transport *t, const void *value, size_t bytes, void *out)
{
    (void)t;
    memcpy(out, value, bytes);
    return ECH_OK;
}

static ech_status self_barrier(ech_transport *t)
{
    (void)t;
    return ECH_OK;
}

static void self_destroy(ech_transport *t)
{
    free(t);
}

ech_status ech_transport_self(ech_transport **out)
{
    ech_transport *t = NULL;
    ECH_TRY(ech_calloc(1, sizeof *t, &t));
    *t = (ech_transport){.name = "self",
                         .size = 1,
                         .isend = self_isend,
                         .irecv = self_irecv,
                         .test = self_test,
                         .exchange = self_exchange,
                         .barrier = self_barrier,
                         .destroy = self_destroy};
    *out = t;
    return ECH_OK;
}
