/** @file plan/fit.h
 *  One layout, one answer: does it fit, how much of what, what decides, what would help, and what
 *  saving takes.  Pure; local. */
#ifndef ECH_PLAN_FIT_H
#define ECH_PLAN_FIT_H

#include "plan/cures.h"      /* ech_cures */
#include "plan/goal.h"       /* ech_goodput */
#include "plan/own.h"        /* ech_own */
#include "price/footprint.h" /* ech_footprint */

/** What is known of where checkpoints go.  All zero: nothing. */
typedef struct ech_fit_storage {
    double write_bytes_per_s; /**< of the whole job; 0: the cluster's, else 1 GB/s a node */
    double interval_s;        /**< between saves; 0: what failures ask for */
    int keep;                 /**< checkpoints that stay */
    double room_bytes;        /**< free for them; 0: not said */
} ech_fit_storage;

/** What is asked. */
typedef struct ech_fit_spec {
    const ech_job *job;     /**< borrowed */
    const ech_point *point; /**< borrowed, legal */
    ech_fit_storage storage;
    const ech_calibration *calibration; /**< borrowed: of the cluster; NULL: none */
    const ech_own_habits *habits;       /**< borrowed: of Echelon's; NULL: the defaults */
    ech_derivation *notes;              /**< NULL: none */
} ech_fit_spec;

/** Saving. */
typedef struct ech_fit_saving {
    double checkpoint_bytes;
    double write_bytes_per_s;
    double save_s;     /**< to write it while training stands */
    double interval_s; /**< as asked for, else what loses least where training stands */
    double lost;       /**< of the time, where training stands for all of it */
    double room_bytes; /**< for `keep` and the one being written */
    bool has_room;     /**< also where no room was stated */
} ech_fit_saving;

/** The answer.  Some 140 KiB: on the heap.  Zero-initialise; release with ech_fit_fini. */
typedef struct ech_fit_report {
    ech_own own;          /**< what Echelon's own programs say, where they could be asked */
    ech_footprint memory; /**< the same as own.memory */
    ech_fit fit;
    const char *binding;   /**< static storage */
    double capacity_bytes; /**< of a device, what can be allocated */
    double margin_bytes;   /**< capacity less reserved; below 0: so much is missing */
    /** Of held[] of the fullest stage: what twice the data parallel ranks would halve. */
    double shared[ECH_N_USES];
    double fixed_bytes;  /**< of reserved: what no number of data parallel ranks makes smaller */
    double capped_bytes; /**< experts: the worst at a capacity factor of ECH_FIT_CAPACITY; else 0 */
    ech_goodput goodput;
    ech_fit_saving saving;
    ech_findings warnings; /**< owned: what is likely to surprise, in words */
    bool has_cures;        /**< were they looked for: where it does not fit well */
    ech_cures cures;
} ech_fit_report;

/** The capacity factor at which experts' memory is told beside the dropless one. */
#define ECH_FIT_CAPACITY 1.25

/** Answer.
 *  @param spec  borrowed
 *  @param out   zero-initialised; set on success
 *  @return ECH_OK | ECH_E_NOMEM | as ech_own_answer */
ECH_MUST_USE ech_status ech_fit_make(const ech_fit_spec *spec, ech_fit_report *out);

/** Release and zero. */
void ech_fit_fini(ech_fit_report *r);

/** "yes", "edge", "no"; static storage. */
const char *ech_fit_word(ech_fit f);

#endif
