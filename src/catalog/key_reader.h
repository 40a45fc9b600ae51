/** @file catalog/key_reader.h
 *  Typed reading of the keys of a map (HF config.json, `model:` of a configuration, a calibration),
 *  every complaint gathered with its place where that is known.  A null counts as absent.  Local. */
#ifndef ECH_CATALOG_KEY_READER_H
#define ECH_CATALOG_KEY_READER_H

#include "base/node.h" /* ech_node */
#include "base/text.h" /* ech_findings */

/** What is read, and where complaints go. */
typedef struct ech_key_reader {
    const ech_node *map;    /**< borrowed: the map that holds the keys */
    const char *name;       /**< borrowed: in front of each finding */
    ech_findings *findings; /**< borrowed */
} ech_key_reader;

/** Outcome of a look-up. */
typedef enum ech_key_got {
    ECH_KEY_ABSENT, /**< no such key, or null: *out unchanged */
    ECH_KEY_GOOD,
    ECH_KEY_BAD /**< wrong type or range: a finding was added, *out unchanged */
} ech_key_got;

/** A list of names of one value, NULL at its end. */
#define ECH_KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/** The value of a key, NULL where absent or null. */
const ech_node *ech_key_find(const ech_key_reader *r, const char *key);

/** Whole number of min .. ECH_MODEL_SIZE_MAX under any of its names ("10000.0" counts); two names
 *  with different values are a finding. */
ech_key_got ech_key_int(const ech_key_reader *r, const char *const *keys, int64_t min,
                        int64_t *out);

/** Finite number of min .. max. */
ech_key_got ech_key_real(const ech_key_reader *r, const char *const *keys, double min, double max,
                         double *out);

/** true or false. */
ech_key_got ech_key_bool(const ech_key_reader *r, const char *key, bool *out);

/** A string; *out is borrowed from the tree. */
ech_key_got ech_key_string(const ech_key_reader *r, const char *const *keys, const char **out);

/** A list or a map (kind): *out is borrowed from the tree. */
ech_key_got ech_key_tree(const ech_key_reader *r, const char *key, ech_node_kind kind,
                         const ech_node **out);

/** One of n names: its index. */
ech_key_got ech_key_choice(const ech_key_reader *r, const char *key, const char *const *names,
                           size_t n, int *out);

/** Complain about each key that is none of n, with the nearest known one. */
void ech_key_check_known(const ech_key_reader *r, const char *const *known, size_t n);

/** Add a finding about a value (node NULL: about the whole map): name, words, place. */
void ech_key_complain(const ech_key_reader *r, const ech_node *node, const char *fmt, ...)
    ECH_PRINTF(3, 4);

/** The value in words, such as "-3", "'abc'" or "a list", into buf. */
const char *ech_key_describe(const ech_node *node, char *buf, size_t n);

#endif
