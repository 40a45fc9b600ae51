/** @file comm/transport.h
 *  What transports share inside comm.  Local, pure. */
#ifndef ECH_COMM_TRANSPORT_H
#define ECH_COMM_TRANSPORT_H

#include <stddef.h>

/** Messages in flight that one rank of a world of `size` may have: collectives hold at most
 *  ECH_COMM_WINDOW * ECH_COMM_STREAMS * ECH_COMM_DEPTH per peer and axis, the degrees of all axes
 *  add up to at most four worlds, and there is room for p2p beside them.  Transports reserve this
 *  many requests when they are made. */
static inline size_t ech_comm_request_bound(int size)
{
    return 64 * (size_t)size + 1024;
}

#endif
