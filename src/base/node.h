/** @file base/node.h
 *  One read-only tree for what is read from YAML, JSON and TOML, with the place of every value.
 *
 *  YAML (and JSON written as YAML) comes through libyaml, strict JSON through jansson, TOML through a
 *  reader of our own; neither library is seen outside base.  Caps: see below; duplicate keys are refused.
 *  Local; trees are owned by the caller. */
#ifndef ECH_BASE_NODE_H
#define ECH_BASE_NODE_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Caps on what is parsed: hostile files end in an error, not in swap. */
enum {
    ECH_NODE_MAX_DEPTH = 64,       /**< lists and maps in each other */
    ECH_NODE_MAX_NODES = 10000000, /**< values of one tree */
    ECH_NODE_FILE_BYTES = 1 << 28  /**< largest file read */
};

/** What a value is. */
typedef enum ech_node_kind {
    ECH_NODE_NULL,
    ECH_NODE_BOOL,
    ECH_NODE_INT,
    ECH_NODE_REAL,
    ECH_NODE_STRING,
    ECH_NODE_LIST,
    ECH_NODE_MAP
} ech_node_kind;

/** A value.  Read its fields directly; all of it is owned by the tree. */
typedef struct ech_node ech_node;
struct ech_node {
    ech_node_kind kind;
    int line;           /**< 1-based, of its key in a map; 0 where unknown (strict JSON) */
    int column;         /**< 1-based */
    const char *key;    /**< in a map: its key; else NULL */
    bool boolean;       /**< BOOL */
    int64_t integer;    /**< INT */
    double real;        /**< INT and REAL */
    const char *string; /**< STRING, terminated (may hold NULs); also the text of YAML scalars */
    size_t string_bytes;
    ech_node *child; /**< LIST, MAP: first member, else NULL */
    ech_node *next;  /**< next member of the same list or map */
    int64_t n;       /**< LIST, MAP: members */
};

/** Parse YAML 1.1 as libyaml reads it (anchors, tags and several documents are refused); plain
 *  scalars are typed by the YAML 1.2 core schema ("1e-5" is a real, "yes" a string, "~" null), but
 *  infinities, NaN and numbers that fit neither int64 nor double are refused.  An empty document is
 *  null.  Keys are strings, whatever they look like.
 *  @param text   borrowed, need not be terminated
 *  @param bytes  its length
 *  @param name   for messages, "file:line:column: ..."
 *  @param out    owned by the caller, release with ech_node_destroy
 *  @return ECH_OK | ECH_E_PARSE | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_node_parse_yaml(const char *text, size_t bytes, const char *name,
                                            ech_node **out);

/** Parse strict JSON (RFC 8259, any value at the top), duplicate keys, lone surrogates, invalid
 *  UTF-8 and integers beyond int64 refused; parameters and errors as above. */
ECH_MUST_USE ech_status ech_node_parse_json(const char *text, size_t bytes, const char *name,
                                            ech_node **out);

/** Parse TOML v1.0.0: tables are maps; dates and times stay strings; infinities and NaN are refused.
 *  Parameters and errors as above. */
ECH_MUST_USE ech_status ech_node_parse_toml(const char *text, size_t bytes, const char *name,
                                            ech_node **out);

/** Read a whole file (at most ECH_NODE_FILE_BYTES) and parse it: strict JSON where is_json, else
 *  YAML.
 *  @return as above | ECH_E_IO */
ECH_MUST_USE ech_status ech_node_read_file(const char *path, bool is_json, ech_node **out);

/** Release a tree; accepts NULL, nulls the pointer. */
void ech_node_destroy(ech_node **node);

/** Member of a map by key, or NULL (also when map is NULL or no map). */
const ech_node *ech_node_find(const ech_node *map, const char *key);

/** Name of a kind for messages: "a string". */
const char *ech_node_kind_name(ech_node_kind kind);

#endif
