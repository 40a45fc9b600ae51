/** @file data/text_source.h
 *  Documents out of text files: plain or JSONL, as they are, .gz or .zst, as a stream in bounded
 *  memory.  Local. */
#ifndef ECH_DATA_TEXT_SOURCE_H
#define ECH_DATA_TEXT_SOURCE_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** What separates documents. */
typedef enum ech_text_split {
    ECH_SPLIT_AUTO,       /**< .jsonl, .json.gz and so on: LINES_JSON, else FILE */
    ECH_SPLIT_FILE,       /**< a file is a document */
    ECH_SPLIT_BLANK_LINE, /**< blank lines separate documents */
    ECH_SPLIT_JSONL       /**< each line a JSON object, its text under `key` */
} ech_text_split;

/** How to read. */
typedef struct ech_text_options {
    ech_text_split split;
    const char *key; /**< JSONL: borrowed, "text" by default */
} ech_text_options;

/** AUTO, "text". */
ech_text_options ech_text_options_default(void);

/** A piece of a document.  Documents beyond 1 MiB come in pieces, cut before white space after an
 *  ASCII letter, where pre-tokens end in all patterns in use; where there is none, after 64 MiB. */
typedef struct ech_text_piece {
    const char *text; /**< borrowed until the next call */
    size_t bytes;
    bool begins; /**< first piece of its document */
    bool ends;   /**< last piece of its document */
} ech_text_piece;

/** An open source; opaque. */
typedef struct ech_text_source ech_text_source;

/** Open a file.  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_text_source_open(const char *path, const ech_text_options *opt,
                                             ech_text_source **out);

/** Next piece.
 *  @return ECH_OK
 *        | ECH_DONE    no more
 *        | ECH_E_DATA  damaged compression; a line that is not JSON or lacks the key, by its number
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_text_source_next(ech_text_source *s, ech_text_piece *out);

/** Bytes of the file read so far, for progress. */
int64_t ech_text_source_read_bytes(const ech_text_source *s);

/** Bytes of the file in all. */
int64_t ech_text_source_bytes(const ech_text_source *s);

/** Close; accepts NULL, nulls the pointer. */
void ech_text_source_close(ech_text_source **s);

#endif
