/** @file storage/json_cursor.h
 *  A strict pull parser for the two JSON texts that storage reads from hostile files (safetensors
 *  header, shard index).  Unlike base/node.h it builds no tree: what a file claims costs no memory
 *  beyond the text itself, and the caller's grammar refuses anything unexpected where it stands.
 *
 *  Strict RFC 8259 in UTF-8 (no overlong forms, no surrogates); strings are decoded in place and
 *  terminated, so the text is changed; a NUL in a string is refused.  Every call that can fail
 *  returns ECH_OK or ECH_E_PARSE with the byte offset.  Private to storage.  Local, no
 *  allocation. */
#ifndef ECH_STORAGE_JSON_CURSOR_H
#define ECH_STORAGE_JSON_CURSOR_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Where the parser stands in a text. */
typedef struct ech_json {
    char *begin; /**< borrowed text, changed */
    char *at;
    char *end;
} ech_json;

/** Start at the beginning of a text. */
ech_json ech_json_start(char *text, size_t bytes);

/** Next character that is no white space (not taken), or 0 at the end. */
char ech_json_peek(ech_json *j);

/** Take the character c, or fail. */
ECH_MUST_USE ech_status ech_json_take(ech_json *j, char c);

/** Inside a list or an object: is there another member; takes commas and the closing character.
 *  @param j      cursor behind the opening character or a member
 *  @param close  ']' or '}'
 *  @param n      in/out: members so far, 0 at first
 *  @param more   out: false when the closing character was taken */
ECH_MUST_USE ech_status ech_json_more(ech_json *j, char close, int64_t *n, bool *more);

/** Take a string.
 *  @param j  cursor
 *  @param s  out: decoded and terminated, in the text */
ECH_MUST_USE ech_status ech_json_string(ech_json *j, char **s);

/** Take a member's key and its colon. */
ECH_MUST_USE ech_status ech_json_key(ech_json *j, char **s);

/** Take an integer in 0 .. 2^63 - 1 (no sign, fraction or exponent). */
ECH_MUST_USE ech_status ech_json_integer(ech_json *j, int64_t *v);

/** Take any value of at most `depth` levels below this one and drop it. */
ECH_MUST_USE ech_status ech_json_skip(ech_json *j, int depth);

/** A name for messages: control characters as \xNN, cut with "..." to fit; returns buf. */
const char *ech_json_quote(const char *name, char *buf, size_t n);

/** Does a name hold no control character (C0, DEL, C1). */
bool ech_json_is_printable(const char *name);

#endif
