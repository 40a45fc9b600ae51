/** @file program/repeat.h
 *  Programs whose size does not grow with the number of micro-batches.
 *
 *  A step of many micro-batches does the same over and over: a pipeline rank in its steady part runs
 *  one forward and one backward in turn.  A rolled program has those items once, with how often they
 *  are run (ech_repeat).  What lives from round to round (saved sets, streams, messages under way)
 *  lies in rings: slots of `ring` elements, of which micro-batch m has the one of m mod ring.  What
 *  lives within a round lies at the same place in each.
 *
 *  A plain program has every item as often as it is run; engines run plain ones.  Rolling and
 *  unrolling go from one to the other, so a program of m micro-batches is made of one of few by
 *  rolling and lengthening, and what is proved of it is proved of the same program with few rounds,
 *  of which it is shown besides that they repeat (docs/architecture.md, "Rounds").
 *  Pure; every call is local. */
#ifndef ECH_PROGRAM_REPEAT_H
#define ECH_PROGRAM_REPEAT_H

#include "program/interval.h" /* ech_interval_map */
#include "program/program.h"  /* ech_program */

enum {
    ECH_LEAST_ROUNDS = 4 /**< that a proof looks at; of the last two it says that they repeat */
};

/** Where the element of a micro-batch begins in a slot; 0 where it is not dealt out. */
size_t ech_slot_element(const ech_slot *s, int micro);

/** Fold the rounds of a plain, unplaced program.  They begin with a forward and do all that micro-batches
 *  do: runs of items that differ in their micro-batches alone, at least ECH_LEAST_ROUNDS of them.
 *  @param p       in/out; unchanged where nothing is found
 *  @param micros  micro-batches of its items: each is in [0, micros)
 *  @param found   out: it was rolled
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_program_roll(ech_program *p, int micros, bool *found);

/** Run the rounds of a rolled program more often.
 *  @param p       in/out
 *  @param micros  more micro-batches, a multiple of repeat.step */
void ech_program_lengthen(ech_program *p, int micros);

/** The plain program of a rolled one, with as many rounds as it has or fewer: of so many
 *  micro-batches less.  Where p was placed, so is it, every byte of its slots where p has it but for
 *  state that holds fewer micro-batches.
 *  @param p      rolled
 *  @param times  in [1, repeat.times]
 *  @param out    owned by the caller (ech_program_fini), set on success
 *  @return ECH_OK | ECH_E_PROOF (what is of all micro-batches cannot be cut to fewer) |
 *          ECH_E_UNSUPPORTED (too many items to list) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_program_unroll(const ech_program *p, int times, ech_program *out);

/* --- rounds of a plain program, for proofs --- */

/** Is `item` the last of round `times` - 2 (then 1), or of the last round (then 2); else 0. */
int ech_rounds_ending(const ech_program *p, int item);

/** Is item b what item a is one round earlier: the same but for `step` micro-batches.  -1 is nothing,
 *  which only nothing follows. */
bool ech_rounds_follows(const ech_program *p, int a, int b);

/** How values of a byte are compared. */
typedef struct ech_rounds_values {
    int fresh[3]; /**< of bytes that are not named */
    /** Are they those of a byte at the end of a round and of the next. */
    bool (*same)(const void *ctx, const int before[3], const int after[3]);
    const void *ctx; /**< borrowed */
} ech_rounds_values;

/** What was known of the bytes of each slot at the end of the round before the last.  Zero-initialise;
 *  release with ech_rounds_forget. */
typedef struct ech_rounds_memory {
    ech_interval_map *map; /**< owned [n] */
    int n;
} ech_rounds_memory;

/** Called behind every item of a program whose bytes are followed: remembers what is known at the end
 *  of the round before the last, and compares it with that at the end of the last.  Of a slot dealt out
 *  by micro-batches each element is compared with that `step` elements on; others byte by byte.  What
 *  lives within a round passes.
 *  @param p       plain; without rounds nothing is done
 *  @param item    just followed
 *  @param map     in/out [n_slots] what is known; segments are cut
 *  @param values  borrowed
 *  @param m       in/out
 *  @return ECH_OK | ECH_E_PROOF (the rounds do not repeat: which slot) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_rounds_note(const ech_program *p, int item, ech_interval_map *map,
                                        const ech_rounds_values *values, ech_rounds_memory *m);

/** Release and zero. */
void ech_rounds_forget(ech_rounds_memory *m);

#endif
