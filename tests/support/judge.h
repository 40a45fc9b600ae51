/** @file support/judge.h
 *  Mutants judged: is a fault found by the proof, or by the fp64 run on virtual ranks against one
 *  rank.  Of a pipeline, the program of one rank at a time has a fault.  Adding a layout is adding a row to judge_cases. */
#ifndef ECH_TESTS_JUDGE_H
#define ECH_TESTS_JUDGE_H

#include "mutants.h" /* operators, checks */
#include "split.h"   /* split_when */
#include "tiny.h"    /* tiny_spec */

/** A layout whose program is mutated. */
typedef struct judge_case {
    const char *title;
    tiny_kind kind;
    int heads, kv_heads; /**< 0: the kind's own */
    double dropout;
    ech_update_rule optim;
    int tp, dp, group, accumulation;
    ech_shard_policy policy;
    ech_schedule_kind schedule;
    int64_t bucket_bytes;
    bool is_split; /**< its backward in input and weight blocks */
    split_when when;
    int pp, chunks, layers; /**< 0: 1, 1, the kind's own */
} judge_case;

extern const judge_case judge_cases[];
extern const int n_judge_cases;

/** What is tried. */
typedef struct judge_plan {
    int every;     /**< one in so many places of each fault, at least one */
    int only;      /**< one of judge_cases; -1: all */
    bool thorough; /**< run what the proof refuses too, where that is safe */
} judge_plan;

/** Judge mutants of all cases and print tables by layout and by operator; survivors are told on
 *  stderr.
 *  @return 0; 1 where one survived, or the proof found less than JUDGE_BY_PROOF of a layout's */
int judge_all(const judge_plan *plan);

/** What the proof finds of a layout's mutants, at least. */
#define JUDGE_BY_PROOF 0.9

#endif
