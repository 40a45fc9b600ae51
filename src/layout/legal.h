/** @file layout/legal.h
 *  The legality table: which products of parallelisms are legal, legal at a named cost, or refused,
 *  why, and what the nearest legal value is.
 *
 *  One static table of rules (legal_*.c).  Each looks at a plain description of model, layout,
 *  batch and machine, and finds something or not; all findings come at once.  What is not known
 *  (0 or NULL) no rule looks at.  docs/layouts.md is this table, printed.
 *  Sources: tp and sequence parallelism: Shoeybi et al. 2019, arXiv:1909.08053, Korthikanti et al.
 *  2022, arXiv:2205.05198; ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054; sharding with replicas:
 *  Zhao et al. 2023, arXiv:2304.11277; pipelines: Huang et al. 2018, arXiv:1811.06965, Narayanan
 *  et al. 2021, arXiv:2104.04473, Qi et al. 2023, arXiv:2401.10241.
 *  Pure arithmetic: nothing allocates but the texts; every call is local. */
#ifndef ECH_LAYOUT_LEGAL_H
#define ECH_LAYOUT_LEGAL_H

#include "base/text.h"     /* ech_text */
#include "layout/layout.h" /* ECH_MAX_WORLD */
#include "layout/place.h"  /* ech_node_run */

#include <stdbool.h>
#include <stdint.h>

/** What a rule says of what it found. */
typedef enum ech_verdict {
    ECH_VERDICT_LEGAL, /**< legal, and without effect here: worth a word */
    ECH_VERDICT_COST,  /**< legal, at the cost that the message names */
    ECH_VERDICT_REFUSED
} ech_verdict;

/** What is asked about: plain values; 0 or NULL is "not known" where the field says so. */
typedef struct ech_legal_query {
    /* model; 0: not known */
    int64_t heads, kv_heads, ffn, vocab, layers, context;
    /* ranks */
    int64_t ranks;               /**< of the run; 0: not known */
    int64_t tp, pp, cp, ep, etp; /**< each at least 1 */
    int64_t dp;                  /**< all data parallel ranks; 0: not known */
    const char *order;           /**< "tp-cp-ep-dp-pp", borrowed; NULL: the default */
    const int64_t *tree;         /**< [n_tree] borrowed: factors of dp, innermost first */
    int n_tree;                  /**< 0: prime factors */
    const ech_node_run *node;    /**< [n_nodes] borrowed, ascending ranks */
    int n_nodes;                 /**< runs; 0: not known */
    bool may_oversubscribe;      /**< more ranks than slots were asked for in words */
    int64_t node_cores;          /**< processors of this node; 0: not known */
    /* the pipeline */
    const char *schedule;        /**< "1f1b", or the name of a file, borrowed; NULL: 1f1b */
    bool is_schedule_file;       /**< a table of the user's own */
    int64_t file_ranks;          /**< pipeline ranks of that table; 0: not known */
    int64_t file_stages;         /**< its virtual stages; 0: not known */
    int64_t file_micros;         /**< its micro-batches; 0: not known */
    int64_t virtual_stages;      /**< chunks of a pipeline rank, at least 1 */
    const int64_t *stage_layers; /**< [n_stage_layers] borrowed: layers of each stage, >= 0 */
    int n_stage_layers;          /**< 0: balanced */
    int64_t
        schedule_group; /**< interleaved: micro-batches that go through a chunk together; 0: pp */
    /* sharding of activations and state */
    bool sequence_parallel, keep_inputs;
    int64_t zero_stage, zero_group; /**< group 0: all of dp */
    int64_t prefetch;               /**< units */
    bool reshard_after_forward, reduce_each;
    /* batch; 0: not known */
    int64_t micro, global, seq;
    /* in words, borrowed; NULL: none */
    const char *recompute, *offload_optimizer, *offload_params, *offload_activations, *compute;
} ech_legal_query;

enum { ECH_LEGAL_WORDS = 640, ECH_LEGAL_MAX = 64 /**< findings at most: one a rule */ };

/** The nearest legal values of a finding's key. */
typedef struct ech_near {
    int n;            /**< numbers: 0, 1 or 2, ascending */
    int64_t value[2]; /**< each makes the rule find nothing, the rest as it is */
    const char *word; /**< in words instead, static storage; NULL: none */
} ech_near;

/** One finding. */
typedef struct ech_legal_finding {
    const char *rule; /**< static storage */
    const char *key;  /**< of the configuration, static storage */
    ech_verdict verdict;
    bool is_unbuilt;               /**< refused only because it is not built yet */
    char message[ECH_LEGAL_WORDS]; /**< what, with its numbers, and why */
    ech_near near;
} ech_legal_finding;

/** All findings, in the order of the table. */
typedef struct ech_legal_report {
    int n;
    ech_legal_finding item[ECH_LEGAL_MAX];
} ech_legal_report;

/** Nothing known, every degree 1, nothing sharded: no rule finds anything. */
ech_legal_query ech_legal_query_default(void);

/** Ask all rules.
 *  @param query  borrowed
 *  @param out    set */
void ech_legal_check(const ech_legal_query *query, ech_legal_report *out);

/** Virtual stages of the pipeline under the schedule that is asked for; 0: not known. */
int64_t ech_legal_stages(const ech_legal_query *query);

/** How many findings have this verdict. */
int ech_legal_count(const ech_legal_report *report, ech_verdict verdict);

/** "no effect", "legal at a cost", "refused"; static storage. */
const char *ech_verdict_name(ech_verdict verdict);

/** Append the message and "; nearest legal value 4", "; nearest legal values 4 and 8", "; legal: WORD"
 *  or nothing; after a message of several lines on a line of its own. */
void ech_legal_print(const ech_legal_finding *finding, ech_text *out);

/** Divisors of n around x: the largest up to it and the smallest from it on (one number where x
 *  itself is one, or lies outside).  n > 0, x > 0. */
ech_near ech_near_divisors(int64_t n, int64_t x);

/** Multiples of n around x, both at least n.  n > 0, x > 0. */
ech_near ech_near_multiples(int64_t n, int64_t x);

/** The table as the page docs/layouts.md. */
void ech_legal_markdown(ech_text *out);

#endif
