/** @file base/text.h
 *  Growing strings, shortest round-trip numbers, nearest names, findings.  Local. */
#ifndef ECH_BASE_TEXT_H
#define ECH_BASE_TEXT_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** A growing, always terminated string.  Zero-initialise; release with ech_text_fini. */
typedef struct ech_text {
    char *data;      /**< owned; NULL while empty */
    size_t bytes;    /**< without the terminator */
    size_t capacity; /**< allocated */
    bool failed;     /**< memory ran out: what followed was dropped */
} ech_text;

/** Append formatted words; on lack of memory sets failed. */
void ech_text_add(ech_text *t, const char *fmt, ...) ECH_PRINTF(2, 3);

/** Append bytes (may hold NULs). */
void ech_text_add_bytes(ech_text *t, const void *data, size_t bytes);

/** Bytes of the UTF-8 character that starts at s (1..4), 0 where none does (overlong, surrogate,
 *  truncated, past U+10FFFF). */
size_t ech_utf8_step(const void *s, size_t bytes);

/** Append s as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD. */
void ech_text_add_json_string(ech_text *t, const char *s, size_t bytes);

/** Append x in its shortest form that reads back as the same double; NaN and infinities as null. */
void ech_text_add_double(ech_text *t, double x);

/** Contents, "" while empty; borrowed. */
const char *ech_text_get(const ech_text *t);

/** Release and zero. */
void ech_text_fini(ech_text *t);

/** Does s end with suffix (also where it is nothing else). */
bool ech_has_suffix(const char *s, const char *suffix);

/** Nearest of n names by edit distance (transpositions count one), or NULL where none is near
 *  (distance > 1/3 of the length + 1).
 *  @param name   what was written
 *  @param names  the known ones, borrowed
 *  @param n      how many */
const char *ech_nearest_name(const char *name, const char *const *names, size_t n);

/** All findings about an input, gathered before anything is refused. */
typedef struct ech_findings {
    ech_text text; /**< one finding a line */
    int n;         /**< findings so far */
} ech_findings;

/** Add one finding: what, where, what would be right. */
void ech_findings_add(ech_findings *f, const char *fmt, ...) ECH_PRINTF(2, 3);

/** Raise st with all of them, a line each.  @return ECH_OK where there is none | st */
ECH_MUST_USE ech_status ech_findings_raise(const ech_findings *f, ech_status st);

/** Release and zero. */
void ech_findings_fini(ech_findings *f);

/** Parse a byte size such as "8GiB", "500MB", "1.5 GB", "4096" (bytes); binary and decimal units
 *  are told apart.
 *  @return ECH_OK | ECH_E_PARSE */
ECH_MUST_USE ech_status ech_parse_bytes(const char *s, int64_t *out);

/** "1.50 GiB" and the like into buf, for people; the unit is always printed. */
const char *ech_format_bytes(double bytes, char *buf, size_t n);

#endif
