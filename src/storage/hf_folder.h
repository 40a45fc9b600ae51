/** @file storage/hf_folder.h
 *  A model as a Hugging Face folder: config.json, safetensors, tokenizer.  Written under a
 *  temporary name and put in place whole: after a crash the folder is absent, old or new, never
 *  half.  Local. */
#ifndef ECH_STORAGE_HF_FOLDER_H
#define ECH_STORAGE_HF_FOLDER_H

#include "storage/hf_weights.h" /* ech_hf_map, ech_hf_values */

/** Largest shard written by default: 5 GB, as Transformers does. */
#define ECH_HF_SHARD_BYTES INT64_C(5000000000)

/** What goes into a folder beside the weights. */
typedef struct ech_hf_folder_spec {
    ech_dtype file_dtype;    /**< of the tensors in the file */
    int64_t max_shard_bytes; /**< 0: ECH_HF_SHARD_BYTES */
    const char *tokenizer;   /**< file or folder, borrowed; NULL: none.  tokenizer.json (any other
                                  name ending in .json becomes that), encoder.json, vocab.json or
                                  llama2.c's .bin (becomes tokenizer.bin), and what stands beside
                                  it: tokenizer_config.json, vocab.bpe, merges.txt */
    bool tokenizer_is_optional; /**< a folder without one is fine */
} ech_hf_folder_spec;

/** Write a folder.  One that stands at dir is replaced if it holds nothing but such files, else
 *  refused.
 *  @param dir   where it will stand; parents are made
 *  @param m     the model
 *  @param c     its canonical tensors
 *  @param from  their values
 *  @param spec  types and extras
 *  @return ECH_OK
 *        | ECH_E_UNSUPPORTED  no HF form
 *        | ECH_E_ILLEGAL      dir holds other files
 *        | ECH_E_IO | ECH_E_NOMEM;  nothing at dir changed on failure */
ECH_MUST_USE ech_status ech_hf_folder_write(const char *dir, const ech_model *m, const ech_canon *c,
                                            const ech_hf_values *from,
                                            const ech_hf_folder_spec *spec);

/** Copy a tokenizer's files into a folder, under the names that ech_tokenizer_open knows.
 *  @param tokenizer    file or folder, as in ech_hf_folder_spec
 *  @param is_optional  a folder without one is fine
 *  @param dir          is there
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM | ECH_E_USAGE (a path too long) */
ECH_MUST_USE ech_status ech_hf_tokenizer_copy(const char *tokenizer, bool is_optional,
                                              const char *dir);

/** A model read from a folder, all of it owned. */
typedef struct ech_hf_folder {
    ech_model model;
    ech_canon canon;
    ech_hf_map map;
    ech_st_set *set;
} ech_hf_folder;

/** Open a folder: config, header of every file, names and shapes against the map.  No weight is
 *  read and no buffer of the model's size allocated.
 *  @param dir  the folder
 *  @param out  set on success; release with ech_hf_folder_fini
 *  @return ECH_OK | ECH_E_CONFIG | ECH_E_UNSUPPORTED | ECH_E_CORRUPT | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_folder_open(const char *dir, ech_hf_folder *out);

/** Release and zero. */
void ech_hf_folder_fini(ech_hf_folder *f);

/** Open, allocate one flat buffer of the whole model in canonical order and read the weights.
 *  @param dir      the folder
 *  @param dtype    ECH_F32 or ECH_F64
 *  @param out      as by ech_hf_folder_open
 *  @param weights  [out->canon.elems] of dtype, owned by the caller, free()
 *  @return as ech_hf_folder_open */
ECH_MUST_USE ech_status ech_hf_folder_read(const char *dir, ech_dtype dtype, ech_hf_folder *out,
                                           void **weights);

/** Pointers to each parameter in a flat buffer in canonical order.
 *  @param c     canonical tensors
 *  @param dtype of the buffer
 *  @param flat  [c->elems], borrowed
 *  @param out   [c->n_params] pointers, owned by the caller, free()
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_flat_params(const ech_canon *c, ech_dtype dtype, void *flat,
                                           void ***out);

#endif
