/** @file support/coll_case.h
 *  One collective as tests see it: what every member puts in, what must come out, and how many
 *  bytes leave a member.  Written apart from src/comm; shares only the types.  Local. */
#ifndef ECH_TESTS_COLL_CASE_H
#define ECH_TESTS_COLL_CASE_H

#include "comm/comm.h" /* ech_coll */

/** A collective of a group; p2p goes from each member to the next one. */
typedef struct coll_case {
    ech_coll_kind kind;
    ech_axis axis;
    ech_dtype dtype;
    int size;         /**< of the group */
    int64_t n;        /**< of buf */
    uint64_t seed;    /**< of the contributions */
    bool is_in_place; /**< SUM_SMALL: sum is buf; REDUCE_SCATTER, ALL_GATHER: part is my share */
} coll_case;

/** The smallest number of elements from n on that this kind takes in a group. */
int64_t coll_case_fit(ech_coll_kind kind, int size, int64_t n);

/** Memory of one member, and the call to make with it. */
typedef struct coll_run {
    coll_case c;
    int member;
    void *buf, *part, *sum, *staging; /**< owned, exactly as large as the contract says */
    ech_coll coll;
    int request;
    bool is_done;
} coll_run;

/** Allocate and fill a member's memory.  What is not part of its contribution is poison. */
void coll_run_init(coll_run *r, const coll_case *c, int member);
void coll_run_fini(coll_run *r);

/** Does memory hold what it must, byte by byte; prints the first difference.
 *  @param r     a finished run
 *  @param tree  of the group */
bool coll_run_is_right(const coll_run *r, const ech_tree *tree);

/** Bytes that leave a member, by the closed form. */
int64_t coll_case_wire(const coll_case *c, int member);

/** Payload of a member, by the closed form. */
int64_t coll_case_payload(const coll_case *c, int member);

/** "all_reduce fp32 n=17 of 3, seed 5" into buf; returns buf. */
const char *coll_case_format(const coll_case *c, char *buf, size_t n);

/** Sum of x[0..m-1] in the order of a tree, in fp64, fp32 or int64, element by element: the
 *  reference.
 *  @param x       [m] values of one element, destroyed
 *  @param factor  innermost first, their product is m */
void reference_tree_sum(ech_dtype dtype, void *x, int m, const int *factor, int n_factors);

#endif
