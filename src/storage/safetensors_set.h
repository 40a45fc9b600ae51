/** @file storage/safetensors_set.h
 *  The tensors of a model folder: one model.safetensors, or shards under
 *  model.safetensors.index.json.
 *
 *  Reading: model.safetensors is taken where it exists (as Transformers does), else the index; the
 *  index and its shards must agree exactly, and a shard's name is a plain file name in the folder,
 *  no symbolic link.  Files that the index does not name are ignored.  Local. */
#ifndef ECH_STORAGE_SAFETENSORS_SET_H
#define ECH_STORAGE_SAFETENSORS_SET_H

#include "storage/safetensors.h" /* ech_st, ech_st_spec */

/** Open files of one folder; opaque. */
typedef struct ech_st_set ech_st_set;

/** Open all files, check each and the index against them.  Nothing of a tensor is read.
 *  @param dir  a folder with the files, or one .safetensors file
 *  @param out  owned by the caller, ech_st_set_close
 *  @return ECH_OK
 *        | ECH_E_CORRUPT  with all findings: shard absent, index stale, tensor not in the shard's
 *                         header, shard's tensor not in the index, file refused
 *        | ECH_E_IO       no such files
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_set_open(const char *dir, ech_st_set **out);

/** Is there anything of that kind in a folder?  Nothing is opened. */
bool ech_st_set_exists(const char *dir);

/** Close; accepts NULL, nulls the pointer. */
void ech_st_set_close(ech_st_set **set);

/** Tensors in all files. */
int64_t ech_st_set_count(const ech_st_set *set);

/** The i-th tensor (files in order of name, tensors in order of offset) and its file; borrowed. */
const ech_st_tensor *ech_st_set_at(const ech_st_set *set, int64_t i, const ech_st **file);

/** Tensor by name and its file, or NULL; borrowed. */
const ech_st_tensor *ech_st_set_find(const ech_st_set *set, const char *name, const ech_st **file);

/** A folder's tensors being written; opaque. */
typedef struct ech_st_set_writer ech_st_set_writer;

/** Start writing: model.safetensors, or model-00001-of-0000N.safetensors and the index where the
 *  data exceed max_shard_bytes (a tensor is never split: a larger one has a shard of its own).
 *  @param dir              an existing folder; make it under a temporary name where a crash must
 *                          not show
 *  @param spec             [n], in order; names and dims are borrowed until finish
 *  @param n                tensors
 *  @param max_shard_bytes  > 0
 *  @param out              owned by the caller, finish or destroy it
 *  @return ECH_OK | ECH_E_ILLEGAL | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_set_writer_create(const char *dir, const ech_st_spec *spec, size_t n,
                                                 int64_t max_shard_bytes, ech_st_set_writer **out);

/** Append data bytes: all tensors in order, cut anywhere.
 *  @return ECH_OK | ECH_E_FAILED (too many, or an earlier write failed) | ECH_E_ILLEGAL | ECH_E_IO
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_set_writer_add(ech_st_set_writer *w, const void *data, size_t bytes);

/** Publish the last file and the index, release the writer (also on failure).
 *  @return ECH_OK | ECH_E_FAILED (too few bytes, or an earlier write failed) | ECH_E_ILLEGAL
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_set_writer_finish(ech_st_set_writer **w);

/** Give up; published shards stay (remove the folder); accepts NULL. */
void ech_st_set_writer_destroy(ech_st_set_writer **w);

#endif
