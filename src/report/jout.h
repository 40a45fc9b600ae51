/** @file report/jout.h
 *  Writing one JSON document field by field, numbers in shortest round-trip form, what is not known
 *  as null.  The memory is kept between documents: after the longest one nothing is allocated.
 *  Local. */
#ifndef ECH_REPORT_JOUT_H
#define ECH_REPORT_JOUT_H

#include "base/text.h" /* ech_text */

#include <stdint.h>

enum { ECH_JOUT_MAX_DEPTH = 16 /**< objects and lists in each other */ };

/** A document being written.  Zero-initialise; release with ech_jout_fini. */
typedef struct ech_jout {
    ech_text text;
    int depth;
    char open[ECH_JOUT_MAX_DEPTH];       /**< '{' or '[' of each open level */
    bool has_member[ECH_JOUT_MAX_DEPTH]; /**< of each open level */
} ech_jout;

/** Forget the document, keep the memory. */
void ech_jout_reset(ech_jout *j);

/** Open an object or a list.
 *  @param j        the document
 *  @param key      in an object the member's name; NULL in a list and at the top
 *  @param bracket  '{' or '[' */
void ech_jout_open(ech_jout *j, const char *key, char bracket);

/** Close the innermost one. */
void ech_jout_close(ech_jout *j);

/** Add an integer; key as above, here and below. */
void ech_jout_int(ech_jout *j, const char *key, int64_t x);

/** Add a number in its shortest form; null where it is not finite. */
void ech_jout_real(ech_jout *j, const char *key, double x);

/** Add true or false. */
void ech_jout_bool(ech_jout *j, const char *key, bool x);

/** Add a string; null where s is NULL. */
void ech_jout_string(ech_jout *j, const char *key, const char *s);

/** Add null. */
void ech_jout_null(ech_jout *j, const char *key);

/** Add a value that is JSON already. */
void ech_jout_raw(ech_jout *j, const char *key, const char *json);

/** The document; every level must be closed.  Borrowed. */
const char *ech_jout_get(const ech_jout *j);

/** Release and zero. */
void ech_jout_fini(ech_jout *j);

#endif
