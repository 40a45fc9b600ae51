/** @file plan/exchange_words.h
 *  Command lines as text: words as a shell would make them, options and their values.  Reads what one
 *  finds in launch scripts: quotes, comments, continued lines, lists in parentheses, options in a
 *  quoted variable, and variables that the same text sets.  Nothing is run or expanded otherwise.
 *  Inside plan only.  Local, pure. */
#ifndef ECH_PLAN_EXCHANGE_WORDS_H
#define ECH_PLAN_EXCHANGE_WORDS_H

#include "base/text.h" /* ech_findings */

enum {
    ECH_WORDS_BYTES = 1 << 20, /**< of a text */
    ECH_WORDS_MAX = 1 << 14    /**< words */
};

/** The words of a text.  Zero-initialise. */
typedef struct ech_words {
    char **word; /**< owned [n], each borrowed from room */
    int n;
    char *room;           /**< owned */
    const char *name;     /**< borrowed: of the file */
    ech_findings *errors; /**< borrowed: values that are none */
} ech_words;

/** Split.  "--x=8" becomes two words.
 *  @param text    [bytes] borrowed
 *  @param bytes   at most ECH_WORDS_BYTES
 *  @param name    for messages
 *  @param errors  where values of a wrong kind are told
 *  @param out     owned by the caller, set on success
 *  @return ECH_OK | ECH_E_PARSE (quotes that do not close, too long, a NUL) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_words_read(const char *text, size_t bytes, const char *name,
                                       ech_findings *errors, ech_words *out);

/** Release and zero. */
void ech_words_fini(ech_words *w);

/** Is a word an option: "--name". */
bool ech_word_is_option(const char *word);

/** Index of an option's last occurrence, -1: none. */
int ech_words_find(const ech_words *w, const char *option);

/** Was it given. */
bool ech_words_has(const ech_words *w, const char *option);

/** Values behind the option: those words that are no options. */
int ech_words_values(const ech_words *w, const char *option, const char *const **values);

/** Its one value, a variable replaced; NULL: not given, or without a value (told). */
const char *ech_words_string(const ech_words *w, const char *option);

/** A whole number of min .. max.  @return is it there and good; else *out unchanged */
bool ech_words_int(const ech_words *w, const char *option, int64_t min, int64_t max, int64_t *out);

/** A finite number. */
bool ech_words_real(const ech_words *w, const char *option, double *out);

#endif
