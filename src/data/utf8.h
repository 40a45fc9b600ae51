/** @file data/utf8.h
 *  Internal to data: just enough UTF-8.  Local, pure. */
#ifndef ECH_DATA_UTF8_H
#define ECH_DATA_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Length of the valid UTF-8 character at s (n >= 1 bytes left), and its code point; 0: there is
 *  none (overlong forms, surrogates and values beyond U+10FFFF are none). */
int ech_utf8_char(const char *s, size_t n, uint32_t *code);

/** Bytes from the start of s that are valid UTF-8. */
size_t ech_utf8_valid(const char *s, size_t n);

/** Write a code point (a valid one) into out; returns its length. */
int ech_utf8_put(uint32_t code, char out[4]);

/** Is code white space by Unicode's White_Space property. */
bool ech_utf8_is_space(uint32_t code);

#endif
