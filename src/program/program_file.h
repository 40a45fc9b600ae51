/** @file program/program_file.h
 *  A placed step program as a JSON document, to be kept, compared, and proved by
 *  `echelon check --program`, also one that no compiler made.
 *
 *  {"format": "echelon program 1", "name",
 *   "layout": {"order": [axis], "degrees": {axis: n}, "nested", "node_ranks", "trees": {axis: [factor]}},
 *   "micro_batches", "rows_per_micro", "scalars": slot, "before", "after",
 *   "state_bytes", "transient_bytes", "peak_live_bytes": [a space],
 *   "slots": [{"name", "space", "class", "state", "constant", "scratch", "bytes", "offset",
 *              "life": [first, last], "place"}],
 *   "blocks": [{"name", "role", "regions": {region: bytes}, "ops":
 *     [{"op", "args": [null | {"region", "context", "type", "at", "shift": [axis, bytes], "dims",
 *                              "extent": cell, "place"}],
 *       "attr": [[[node, value]]], "real": [x], "axis", "request", "work": [at, bytes]}]}],
 *   "items": [{"block", "layer", "chunk", "micro", "segment", "request",
 *              "bind": {region: [slot, at]}}]}
 *
 *  A "place" is {"over": {axis: kind | ["S", dim, map]}, "scale": [loss_scale, per_token, aux,
 *  factor]}; what is usual may be left out.  Accesses are the op table's.  Local. */
#ifndef ECH_PROGRAM_PROGRAM_FILE_H
#define ECH_PROGRAM_PROGRAM_FILE_H

#include "base/text.h"       /* ech_text */
#include "program/program.h" /* ech_program */

/** Append the document; on lack of memory out->failed is set. */
void ech_program_write(const ech_program *p, ech_text *out);

/** Read a document.  Indices, sizes, shapes and bindings are checked, so that every check of the
 *  proof may be run on what is accepted; whether it is right is the proof's to say.
 *  @param text   borrowed
 *  @param bytes  its length
 *  @param name   for messages
 *  @param out    owned by the caller, ech_program_fini; set on success only
 *  @return ECH_OK
 *        | ECH_E_PARSE  no JSON, an unknown or missing key, a name, number or index out of range
 *        | ECH_E_PROOF  an op against its shape law, an item whose bindings have no room
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_program_read(const char *text, size_t bytes, const char *name,
                                         ech_program *out);

/** Write a file, atomically.  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_program_save(const ech_program *p, const char *path);

/** Read a file of at most ECH_NODE_FILE_BYTES.  @return as ech_program_read | ECH_E_IO */
ECH_MUST_USE ech_status ech_program_load(const char *path, ech_program *out);

#endif
