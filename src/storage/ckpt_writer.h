/** @file storage/ckpt_writer.h
 *  One rank's part of a checkpoint.  Three steps, so that the middle one may run under later steps
 *  of training once the state has been copied: *list* the pieces (once a run), *write* my file
 *  (every save), and storage/ckpt_publish.h to make one checkpoint of all ranks' files.  Local. */
#ifndef ECH_STORAGE_CKPT_WRITER_H
#define ECH_STORAGE_CKPT_WRITER_H

#include "storage/ckpt_manifest.h" /* ech_ckpt_class, ech_ckpt_span */

/** A writer; opaque. */
typedef struct ech_ckpt_writer ech_ckpt_writer;

/** A writer without pieces.
 *  @param model  of the canon
 *  @param canon  canonical tensors, borrowed: outlive the writer, like every plan of a span
 *  @param rank   of the world: names the file
 *  @param out    owned by the caller, ech_ckpt_writer_destroy
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_writer_create(const ech_model *model, const ech_canon *canon,
                                               int rank, ech_ckpt_writer **out);

/** Release; accepts NULL, nulls the pointer. */
void ech_ckpt_writer_destroy(ech_ckpt_writer **w);

/** List what a span holds.  Over tp, what a rank of a lower coordinate holds too is left out; over
 *  data parallel ranks that hold the same, the caller gives each its own part of the span, or all of
 *  it to one.
 *  @param w      the writer
 *  @param cls    state class
 *  @param dtype  of data and of the file; ECH_F64 .. ECH_F16
 *  @param span   which elements
 *  @param data   [span->n], borrowed: read by every ech_ckpt_writer_write
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_writer_add(ech_ckpt_writer *w, ech_ckpt_class cls, ech_dtype dtype,
                                            const ech_ckpt_span *span, const void *data);

/** Bytes of the file to be written. */
int64_t ech_ckpt_writer_bytes(const ech_ckpt_writer *w);

/** Write the file and the table of its pieces into the folder of ech_ckpt_begin, both synced.  A
 *  rank without pieces writes its table only.  Allocates for the table only.
 *  @param w    the writer
 *  @param tmp  the folder
 *  @return ECH_OK
 *        | ECH_E_PROOF  padding is not zero: the message names tensor, class and element
 *        | ECH_E_IO | ECH_E_NOMEM;  no file of this rank's is there after a failure to write it */
ECH_MUST_USE ech_status ech_ckpt_writer_write(ech_ckpt_writer *w, const char *tmp);

#endif
