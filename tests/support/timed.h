/** @file support/timed.h
 *  Programs written by hand whose ops say what they take, and their simulation. */
#ifndef ECH_TESTS_TIMED_H
#define ECH_TESTS_TIMED_H

#include "price/simulate.h" /* ech_simulate_spec */

enum { TIMED_CLASSES = 8, TIMED_RANKS = 64 };

/** A run: programs of its classes, a class a pipeline rank, and the class of each rank. */
typedef struct timed_run {
    ech_layout layout;
    ech_program program[TIMED_CLASSES];
    const ech_program *borrowed[TIMED_CLASSES];
    int n;
    int class_of[TIMED_RANKS];
    int asked; /**< kernels that simulations have asked for */
} timed_run;

ech_layout timed_mesh(int tp, int dp, int pp);
timed_run *timed_make(const ech_layout *l);
void timed_free(timed_run *r);

/** Ops: a kernel, and messages, of so many seconds; peers along pp. */
ech_op timed_kernel(double seconds);
ech_op timed_reduce(ech_axis axis, int request, double seconds);
ech_op timed_reduced(ech_axis axis, int request);
ech_op timed_send(int peer, int request, double seconds);
ech_op timed_recv(int peer, int request, double seconds);
ech_op timed_arrived(int request); /**< the wait of either end: they are alike in time */

/** An item of n ops. */
void timed_add(ech_program *p, ech_role role, ech_segment segment, int n, const ech_op *op);

/** The program's first item, n times more. */
void timed_repeat(ech_program *p, int n);

#define TIMED_ADD(p, ...)                                                                          \
    timed_add((p), ECH_ROLE_FORWARD, ECH_SEGMENT_ACCUMULATE,                                       \
              (int)(sizeof((ech_op[]){__VA_ARGS__}) / sizeof(ech_op)), (ech_op[]){__VA_ARGS__})

/** What to simulate: kernels and messages take what their ops say. */
ech_simulate_spec timed_spec(timed_run *r);

/** What holds for every program: the shares add up to the step, and so does the critical path. */
void timed_check_sums(const ech_step_sums *s);

/** Simulate, and check that.
 *  @param line  NULL: not wanted */
ech_step_sums timed_simulate(timed_run *r, ech_timeline *line);

#endif
