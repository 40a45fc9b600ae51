/** @file train/schema.h
 *  The option table of the configuration: one row a key.  The reader, `--set`, the help,
 *  docs/config.md and the run record all walk it.  Local, pure. */
#ifndef ECH_TRAIN_SCHEMA_H
#define ECH_TRAIN_SCHEMA_H

#include "train/config.h" /* ech_config */

/** How a value is written, and the field it fills. */
typedef enum ech_option_type {
    ECH_OPTION_BOOL,       /**< bool */
    ECH_OPTION_INT,        /**< int64_t */
    ECH_OPTION_INT_AUTO,   /**< int64_t; "auto" is ECH_AUTO */
    ECH_OPTION_INT_NONE,   /**< int64_t; "none" (or null) is ECH_AUTO */
    ECH_OPTION_REAL,       /**< double, finite */
    ECH_OPTION_PAIR,       /**< double[2], a list of two */
    ECH_OPTION_BYTES,      /**< int64_t; "8GiB" or a number of bytes */
    ECH_OPTION_BYTES_AUTO, /**< the same or "auto" */
    ECH_OPTION_CHOICE,     /**< an enum: place of the value in `allowed` */
    ECH_OPTION_WORD,       /**< char *, owned; matches `allowed`; a list is joined with commas, a
                                FILE.csv is its path */
    ECH_OPTION_INTS_AUTO,  /**< ech_ints; a list, "2,2" or "auto" */
    ECH_OPTION_PATH,       /**< char *, owned; null: none */
    ECH_OPTION_PATH_AUTO,  /**< char *, owned; "auto" is NULL */
    ECH_OPTION_PATHS,      /**< ech_strings; a list, one path, or null: none */
    ECH_OPTION_MODEL       /**< read by ech_model_from_config: here for its help only */
} ech_option_type;

/** One key. */
typedef struct ech_option {
    const char *path; /**< "layout.zero.stage" */
    ech_option_type type;
    size_t offset;        /**< of the field in ech_config */
    const char *fallback; /**< the default, as written in YAML */
    const char *unit;     /**< "" where there is none */
    /** CHOICE, WORD: "a|b|c"; numbers: ">=1", ">0", "0..1", "0..<1"; or NULL.  WORD also:
     *  "every:N", "nvme:DIR", "FILE.csv", and one "a,b,c" that stands for every comma list of its
     *  members. */
    const char *allowed;
    const char *built; /**< values the engine acts upon, as `allowed`; NULL: all of them */
    const char *doc;
} ech_option;

/** The table, grouped by section; static storage. */
const ech_option *ech_options(size_t *n);

/** Row of a path, or NULL. */
const ech_option *ech_option_find(const char *path);

/** Is path a section: a proper prefix of rows ("layout.zero"). */
bool ech_option_is_section(const char *path);

/** Nearest known path to an unknown one: of its siblings, else a key of that name elsewhere, else
 *  NULL. */
const char *ech_option_nearest(const char *path);

/** What is legal, in words: "an integer >= 1", "adamw, sgd, muon or adam8bit". */
void ech_option_describe(const ech_option *row, ech_text *out);

#endif
