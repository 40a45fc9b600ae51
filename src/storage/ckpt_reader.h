/** @file storage/ckpt_reader.h
 *  Reading a checkpoint on any layout: of each piece only the bytes that are wanted, converted to
 *  the type that is wanted.
 *
 *  A piece that is wanted whole is checked against its hash; of a piece that is wanted in part the
 *  file's size is all that is checked, unless ech_ckpt_verify ran before.  Every failure names
 *  tensor, class, rank and file.  Local.  A reader is for one thread. */
#ifndef ECH_STORAGE_CKPT_READER_H
#define ECH_STORAGE_CKPT_READER_H

#include "storage/ckpt_manifest.h" /* ech_ckpt_manifest, ech_ckpt_span */

/** An open checkpoint; opaque. */
typedef struct ech_ckpt ech_ckpt;

/** Open a folder: its manifest is read and checked; no piece file is looked at.
 *  @param path  the checkpoint's folder
 *  @param out   owned by the caller, ech_ckpt_close
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_UNSUPPORTED (a newer version) | ECH_E_ILLEGAL | ECH_E_IO
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_open(const char *path, ech_ckpt **out);

/** Close; accepts NULL, nulls the pointer. */
void ech_ckpt_close(ech_ckpt **c);

/** Its manifest; borrowed. */
const ech_ckpt_manifest *ech_ckpt_manifest_of(const ech_ckpt *c);

/** Its path as opened; borrowed. */
const char *ech_ckpt_path_of(const ech_ckpt *c);

/** Bytes of all piece files, as the manifest tells them. */
int64_t ech_ckpt_bytes(const ech_ckpt *c);

/** Is there a folder of this format: does it hold a manifest.json?  Nothing is opened. */
bool ech_ckpt_exists(const char *path);

/** Does what the manifest says of the run hold together: no more updates than steps, as many
 *  samples as steps of its batch.global (of any one size where its configuration does not say), and
 *  the step that the folder is named after?
 *  @return ECH_OK | ECH_E_CORRUPT */
ECH_MUST_USE ech_status ech_ckpt_check_run(const ech_ckpt *c);

/** Does the run hold together (ech_ckpt_check_run), and is every piece file there, regular and of
 *  its size?
 *  @return ECH_OK | ECH_E_CORRUPT (which rank's, and the first tensor in it) | ECH_E_ILLEGAL
 *        | ECH_E_IO (it cannot be told) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_check_files(ech_ckpt *c);

/** Is it a checkpoint of this model: same tensors, and all that they compute the same (heads, norm,
 *  activation, rotary embedding)?
 *  @param c      open
 *  @param model  of the canon
 *  @param canon  canonical tensors
 *  @return ECH_OK | ECH_E_CONFIG (the first tensor or key that differs, and how) | ECH_E_CORRUPT
 *        | ECH_E_UNSUPPORTED | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_check_model(const ech_ckpt *c, const ech_model *model,
                                             const ech_canon *canon);

/** Append keys of the model that have other values and leave it the same model, as "model.context,
 *  model.dropout". */
void ech_ckpt_model_changes(const ech_ckpt *c, const ech_model *model, ech_text *out);

/** The model that the checkpoint tells of, and its canonical tensors, which are those saved.
 *  @param c      open
 *  @param model  out
 *  @param canon  out: owned by the caller, ech_canon_fini
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_UNSUPPORTED | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_model(const ech_ckpt *c, ech_model *model, ech_canon *canon);

/** Read what a span holds: this rank's share of a class on this run's layout.  Padding becomes zero.
 *  @param c      open, of the plan's model (ech_ckpt_check_model)
 *  @param cls    a class that the checkpoint has
 *  @param span   which elements
 *  @param dtype  ECH_F64 .. ECH_F16: of dst
 *  @param dst    [span->n], undefined after a failure
 *  @return ECH_OK
 *        | ECH_E_CONFIG   no such class was saved
 *        | ECH_E_CORRUPT  a file missing, of another size, a hash that differs
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_read_span(ech_ckpt *c, ech_ckpt_class cls,
                                           const ech_ckpt_span *span, ech_dtype dtype, void *dst);

/** Read a whole saved tensor, [elems of it] in canonical order (vocabulary padding left out).
 *  Parameters and errors as above. */
ECH_MUST_USE ech_status ech_ckpt_read_tensor(ech_ckpt *c, ech_ckpt_class cls, int64_t tensor,
                                             ech_dtype dtype, void *dst);

/** Something wrong with a checkpoint; valid during the call. */
typedef struct ech_ckpt_fault {
    int64_t rank;       /**< who wrote it; -1: manifest or a copy */
    const char *file;   /**< plain name */
    const char *tensor; /**< NULL: of the file as a whole */
    ech_ckpt_class cls; /**< where there is a tensor */
    int64_t offset;     /**< of the piece in the file */
    const char *what;   /**< in words */
} ech_ckpt_fault;

/** Told every fault. */
typedef void (*ech_ckpt_on_fault)(const ech_ckpt_fault *fault, void *user);

/** Read every byte, of copied files too, compare every hash, and check the run; goes on after a
 *  fault.
 *  @param c         open
 *  @param on_fault  may be NULL
 *  @param user      handed to it
 *  @return ECH_OK | ECH_E_CORRUPT (the first fault in words, and how many there are)
 *        | ECH_E_IO (some of it cannot be read, the rest is whole) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_verify(ech_ckpt *c, ech_ckpt_on_fault on_fault, void *user);

/** The same of one share of the piece files, and of these alone: file i of the manifest where i mod
 *  `shares` is `share`. So processes that each take a share read every byte once together.
 *  @param c       open
 *  @param share   0 .. shares - 1
 *  @param shares  >= 1
 *  @return as ech_ckpt_verify */
ECH_MUST_USE ech_status ech_ckpt_verify_share(ech_ckpt *c, int64_t share, int64_t shares);

#endif
