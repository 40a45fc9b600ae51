/** @file support/equal.h
 *  Does a layout train what one rank trains?  In fp64, after every step: each gradient before the
 *  optimizer at 1e-11, loss and norm at 1e-12, weights in the end; and all copies of an element the
 *  same bits.  What one rank comes to is kept, so that many layouts of one batch are cheap. */
#ifndef ECH_TESTS_EQUAL_H
#define ECH_TESTS_EQUAL_H

#include "tiny.h" /* tiny_spec */

enum { EQUAL_STEPS = 3 };

/** Train a layout for EQUAL_STEPS steps of SGD and compare.
 *  @param spec  fp64; its global batch is dp * accumulation * rows sequences
 *  @return values that differ, each told on stderr with the layout */
int equal_to_one_rank(const tiny_spec *spec);

/** The layout in words, into buf; returns buf. */
const char *equal_describe(const tiny_spec *spec, char *buf, size_t n);

/** The tokens that count: three of five. */
bool equal_keep(int64_t row, int64_t position, void *user);

/** Some rank's copy of an element of a class has other bits than another's: how many runs. */
int64_t equal_wrong_copies(ech_session *s, ech_held_class what);

/** Layouts compared so far. */
int equal_count(void);

/** Forget what is kept. */
void equal_end(void);

#endif
