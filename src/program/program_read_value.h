/** @file program/program_read_value.h
 *  Values of a program's document: each is of its kind and within its bounds, or refused with where
 *  it stands.  Internal to program/: program_read.c.  Local.
 *
 *  Every call returns ECH_OK | ECH_E_PARSE (*out is then not to be used) and borrows its arguments;
 *  the node of a value may be NULL, which is "missing".  `what` names the value in messages. */
#ifndef ECH_PROGRAM_PROGRAM_READ_VALUE_H
#define ECH_PROGRAM_PROGRAM_READ_VALUE_H

#include "base/node.h"       /* ech_node */
#include "program/program.h" /* ech_program */

/** A document that is being read. */
typedef struct ech_reader {
    const char *name; /**< of the document, borrowed */
    char where[48];   /**< "item 3" */
    ech_program *p;   /**< borrowed */
    int64_t n_items;  /**< that the document has */
    int64_t n_ops;    /**< of all items so far */
} ech_reader;

/** "NAME: item 3: life ends before it begins". */
ECH_MUST_USE ech_status ech_read_fault(const ech_reader *r, const char *what, const char *why);

/** An integer, least..most. */
ECH_MUST_USE ech_status ech_read_int(const ech_reader *r, const ech_node *n, const char *what,
                                     int64_t least, int64_t most, int64_t *out);

/** An integer of a map that may be left out: *out then stays. */
ECH_MUST_USE ech_status ech_read_int_or(const ech_reader *r, const ech_node *map, const char *key,
                                        int64_t least, int64_t most, int64_t *out);

/** A list of two integers. */
ECH_MUST_USE ech_status ech_read_pair(const ech_reader *r, const ech_node *n, const char *what,
                                      int64_t least, int64_t most, int64_t out[2]);

/** A finite number. */
ECH_MUST_USE ech_status ech_read_real(const ech_reader *r, const ech_node *n, const char *what,
                                      double *out);

/** One of these names: its index.  The message has the nearest. */
ECH_MUST_USE ech_status ech_read_name(const ech_reader *r, const ech_node *n, const char *what,
                                      const char *const *names, int n_names, int *out);

/** A member's own key, likewise. */
ECH_MUST_USE ech_status ech_read_key(const ech_reader *r, const ech_node *member,
                                     const char *const *names, int n_names, int *out);

/** A truth value of a map; left out it is false. */
ECH_MUST_USE ech_status ech_read_bool(const ech_reader *r, const ech_node *map, const char *key,
                                      bool *out);

/** A text of a map, shorter than n bytes. */
ECH_MUST_USE ech_status ech_read_text(const ech_reader *r, const ech_node *map, const char *key,
                                      char *buf, size_t n);

/** The node is there and of this kind. */
ECH_MUST_USE ech_status ech_read_want(const ech_reader *r, const ech_node *n, const char *what,
                                      ech_node_kind kind);

/** It is a list of exactly n values. */
ECH_MUST_USE ech_status ech_read_want_list(const ech_reader *r, const ech_node *list,
                                           const char *what, int64_t n);

/** It is a map of known keys alone. */
ECH_MUST_USE ech_status ech_read_check_keys(const ech_reader *r, const ech_node *map,
                                            const char *const *known, int n);

/** The same with the keys written out. */
#define ECH_READ_KEYS(r, map, ...)                                                                 \
    ech_read_check_keys((r), (map), (const char *const[]){__VA_ARGS__},                            \
                        (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

#endif
