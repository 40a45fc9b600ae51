/** @file price/legal_point.h
 *  The rules of legality of a layout, as a table.  Internal to price.
 *
 *  Each rule looks at plain numbers; with `why` NULL nothing allocates, so that a search can ask for
 *  millions of layouts.  Pure; local. */
#ifndef ECH_PRICE_LEGAL_POINT_H
#define ECH_PRICE_LEGAL_POINT_H

#include "layout/legal.h" /* ech_near */
#include "price/job.h"    /* ech_job, ech_point */

/** A rule. */
typedef struct ech_point_rule {
    const char *reason; /**< what is wrong where it is broken; static storage */
    /** Is it broken; then, unless `why` is NULL, one finding or more is added. */
    bool (*breaks)(const ech_job *job, const ech_point *p, ech_findings *why);
} ech_point_rule;

/** Rules of every system: degrees, the model's sizes, batch.
 *  @param n  out: how many
 *  @return static storage; the first is about degrees below 1, after which no other is asked */
const ech_point_rule *ech_point_rules_common(int *n);

/** Rules of pipelines, sharding, recomputation and offload, and of what single systems can do.
 *  @param n  out: how many
 *  @return static storage */
const ech_point_rule *ech_point_rules_system(int *n);

/** Append "; nearest legal values 4 and 8" to the last finding; nothing where none is known. */
void ech_point_near(ech_findings *why, ech_near near);

/** Append "; legal: WORDS" to the last finding. */
void ech_point_legal(ech_findings *why, const char *words);

#endif
