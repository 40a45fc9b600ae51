/** @file support/lazy_transport.h
 *  A transport whose messages start to move only while a gate is open: the slowest network that the
 *  program must be right on, as an eager one is the fastest. */
#ifndef ECH_TESTS_LAZY_TRANSPORT_H
#define ECH_TESTS_LAZY_TRANSPORT_H

#include "comm/comm.h" /* ech_transport */

/** What may move. */
typedef struct lazy_gate {
    bool is_open;
    int held_tag; /**< even: messages of this tag and the next stay behind even so; -1: none */
} lazy_gate;

/** Wrap a transport (taken: destroyed with the wrapper).
 *  @param gate  borrowed; what was held back follows when it lets it */
ech_transport *lazy_transport(ech_transport *inner, const lazy_gate *gate);

#endif
