/** @file layout/legal_rules.h
 *  The rows of the legality table.  Internal to layout.  Local. */
#ifndef ECH_LAYOUT_LEGAL_RULES_H
#define ECH_LAYOUT_LEGAL_RULES_H

#include "layout/legal.h" /* ech_legal_query */

/** A row.  `find` answers whether the rule has something to say of a query and if so in which
 *  words; `nearest` gives the nearest legal values of `key`, and is asked only where `find` found
 *  something. */
typedef struct ech_legal_rule {
    const char *name;
    const char *key;  /**< the configuration's key that the finding stands at */
    const char *says; /**< the combination, for the page */
    ech_verdict verdict;
    bool is_unbuilt;
    const char *reason; /**< for the page: why, or what it costs */
    bool (*find)(const ech_legal_query *q, ech_text *words);
    void (*nearest)(const ech_legal_query *q, ech_near *out); /**< NULL: there is none to name */
} ech_legal_rule;

/* How a row begins its verdict. */
#define LEGAL   ECH_VERDICT_LEGAL, false
#define COST    ECH_VERDICT_COST, false
#define REFUSED ECH_VERDICT_REFUSED, false
#define UNBUILT ECH_VERDICT_REFUSED, true

/** The table's parts, in its order; static storage. */
const ech_legal_rule *ech_legal_mesh_rules(int *n);
const ech_legal_rule *ech_legal_tensor_rules(int *n);
const ech_legal_rule *ech_legal_state_rules(int *n);
const ech_legal_rule *ech_legal_pipeline_rules(int *n);
const ech_legal_rule *ech_legal_unbuilt_rules(int *n);

/** a b, or 0 where that is more than a world may have. */
int64_t ech_legal_ranks(int64_t a, int64_t b);

/** Ranks of one replica of the model, tp cp pp; 0: too many. */
int64_t ech_legal_replica(const ech_legal_query *q);

/** Micro-batches of a step; 0: not known or not whole. */
int64_t ech_legal_accumulation(const ech_legal_query *q);

/** Ranks of tp that hold each key/value head, as the layout would have it; 1: one, or not known. */
int ech_legal_kv_copies(const ech_legal_query *q);

/** Ranks that share state. */
int64_t ech_legal_group(const ech_legal_query *q);

/** What tp must divide: the heads, the ranks that cp and pp leave, and `also` (0: nothing else);
 *  0: nothing is known. */
int64_t ech_legal_tp_divides(const ech_legal_query *q, int64_t also);

/** Product of the tree's factors; 0: more than any group has. */
int64_t ech_legal_tree_size(const ech_legal_query *q);

/** 1. */
void ech_legal_near_one(const ech_legal_query *q, ech_near *out);

#endif
