/** @file price/derive.h
 *  The derivation of an answer: each formula with the asker's numbers, as it was computed.
 *
 *  What prices memory or time takes an ech_derivation that may be NULL, and notes into it the very
 *  numbers it goes on with: the explanation is the computation.  Grouped in sections.  Pure; local. */
#ifndef ECH_PRICE_DERIVE_H
#define ECH_PRICE_DERIVE_H

#include "base/text.h" /* ech_text */

/** One line of it. */
typedef struct ech_derived {
    int section;        /**< index of its section */
    char *what;         /**< owned: "saved activations of a layer" */
    char *formula;      /**< owned: "2 (4h + 2 a d + 2 g d + 3f) + 4a = 2 (4 * 4096 + ...) + ..." */
    double value;       /**< as it was used */
    const char *unit;   /**< static storage: "B", "B/token", "s", "FLOP", "1" */
    const char *source; /**< static storage: paper and section, or the table it stands in */
} ech_derived;

/** A growing list.  Zero-initialise; release with ech_derivation_fini. */
typedef struct ech_derivation {
    ech_derived *line; /**< owned [n] */
    int n, capacity;
    char **section; /**< owned [n_sections] titles */
    int n_sections;
    bool failed; /**< memory ran out */
} ech_derivation;

/** Begin a section.  d may be NULL. */
void ech_derive_section(ech_derivation *d, const char *title, ...) ECH_PRINTF(2, 3);

/** Note a value with its formula.  d may be NULL (then it costs one branch). */
void ech_derive(ech_derivation *d, const char *what, double value, const char *unit,
                const char *source, const char *formula, ...) ECH_PRINTF(6, 7);

/** Append a value as people read it: "112 GB (104.3 GiB)", "1.2 TFLOP", "3.4 ms", "0.41".
 *  @param value  in the unit
 *  @param unit   as in ech_derived, borrowed
 *  @param out    appended to */
void ech_quantity_print(double value, const char *unit, ech_text *out);

/** Append it as text: sections, lines "what = formula = 3.25 GB (3.03 GiB)   [source]". */
void ech_derivation_print(const ech_derivation *d, ech_text *out);

/** Release and zero. */
void ech_derivation_fini(ech_derivation *d);

#endif
