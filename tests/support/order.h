/** @file support/order.h
 *  The order of a program's nodes by brute force: every pair of byte ranges is compared, and what
 *  follows is closed transitively.  Shares nothing with program/deps.c but the list of nodes. */
#ifndef ECH_TESTS_ORDER_H
#define ECH_TESTS_ORDER_H

#include "program/deps.h" /* ech_program, ech_deps */

/** Why a pair is ordered. */
enum {
    ORDER_RAW = 1,     /**< the later one reads what the earlier one writes */
    ORDER_WAR = 2,     /**< the later one writes what the earlier one reads */
    ORDER_WAW = 4,     /**< both write */
    ORDER_SENT = 8,    /**< start and its wait, or two starts on one axis */
    ORDER_SCRATCH = 16 /**< one of the bytes in question is a kernel's workspace */
};

/** A relation over n nodes: bit b of row a says that a comes before b. */
typedef struct order {
    int n;
    size_t words;  /**< of a row */
    uint64_t *bit; /**< owned, [n, words] */
} order;

/** Why must node a run before node b (a < b); 0: it need not. */
int order_reason(const ech_program *p, const ech_deps *nodes, bool on_addresses, int a, int b);

/** Transitive closure of all reasons. */
order order_by_bytes(const ech_program *p, const ech_deps *nodes, bool on_addresses);

/** Transitive closure of derived edges. */
order order_by_edges(const ech_deps *d);

bool order_has(const order *o, int a, int b);

/** Is the edge pred -> node implied by others. */
bool order_is_implied(const order *o, const ech_deps *d, int node, int pred);

void order_fini(order *o);

#endif
