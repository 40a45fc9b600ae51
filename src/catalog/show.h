/** @file catalog/show.h
 *  What `echelon model show` says of a model: shapes, exact parameter counts, memory of the
 *  training state, FLOPs per token; for people and as one JSON document.  Local. */
#ifndef ECH_CATALOG_SHOW_H
#define ECH_CATALOG_SHOW_H

#include "catalog/model.h" /* ech_model */

/** Append the words for people.
 *  @param m    a validated model
 *  @param seq  tokens for FLOPs, 1 .. context; 0: the whole context
 *  @param out  appended to, owned by the caller
 *  @return ECH_OK | ECH_E_ILLEGAL (seq, counts beyond 64 bits) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_model_show(const ech_model *m, int64_t seq, ech_text *out);

/** The same as one JSON object with a newline; parameters and errors as above. */
ECH_MUST_USE ech_status ech_model_show_json(const ech_model *m, int64_t seq, ech_text *out);

#endif
