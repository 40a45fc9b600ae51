/** @file support/hand.h
 *  Step programs written by hand, an op an item. */
#ifndef ECH_TESTS_HAND_H
#define ECH_TESTS_HAND_H

#include "comm/comm.h"       /* ech_comm */
#include "engine/engine.h"   /* ech_engine */
#include "program/program.h" /* ech_program */

/** An argument: elements [first, first + elems) of a slot. */
typedef struct hand_arg {
    int slot; /**< -1: left out */
    int64_t first, elems;
    ech_placement place;
} hand_arg;

/** What else an op needs. */
typedef struct hand_op {
    ech_op_kind kind;
    int request; /**< -1: no message */
    double real;
    ech_segment segment;
} hand_op;

/** A slot of fp64 elements; state where so said. */
int hand_slot(ech_program *p, const char *name, bool is_state, int64_t elems, ech_placement place);

/** Append an item of one op over dp; returns its index. */
int hand_add(ech_program *p, hand_op op, int n_args, const hand_arg *arg);

#define HAND_ADD(p, op, ...)                                                                       \
    hand_add((p), (op), (int)(sizeof((hand_arg[]){__VA_ARGS__}) / sizeof(hand_arg)),               \
             (hand_arg[]){__VA_ARGS__})

/** Partial over dp (I with one rank), with a scale. */
ech_placement hand_partial(int dp, double factor);

/** Engines of every rank of a program, fp64, on virtual ranks. */
typedef struct hand_run {
    int n;
    ech_transport *transport[8];
    ech_comm *comm[8];
    ech_engine *engine[8];
    ech_kernel_table kernels;
    const ech_program *program[1];
} hand_run;

void hand_start(const ech_program *p, bool poison, hand_run *out);
void hand_stop(hand_run *run);

#endif
