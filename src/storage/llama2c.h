/** @file storage/llama2c.h
 *  llama2.c's legacy checkpoint (stories260K.bin and its kin), read into canonical tensors.
 *
 *  Layout, little endian: seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size,
 *  negative where the classifier is not shared, seq_len), then float32 arrays, each with all layers
 *  in turn: token embedding, attention norms, wq, wk, wv, wo, ffn norms, w1, w2, w3, final norm,
 *  two old rotary tables [seq_len, head_size / 2], and the classifier if not shared.  Rotary pairs
 *  are adjacent (2i, 2i + 1) there and half-split (i, i + d/2) here: the rows of wq and wk are
 *  permuted, row s d/2 + i of a head coming from row 2i + s.  Local. */
#ifndef ECH_STORAGE_LLAMA2C_H
#define ECH_STORAGE_LLAMA2C_H

#include "catalog/canon.h" /* ech_canon */
#include "catalog/model.h" /* ech_model */

/** Read the header and check it against the file's length: the model, tied by the sign of
 *  vocab_size, RMSNorm 1e-5, rotary base 10000.
 *  @param path  the file
 *  @param out   set on success
 *  @return ECH_OK
 *        | ECH_E_CORRUPT      no such file format, impossible sizes, wrong length
 *        | ECH_E_UNSUPPORTED  a newer version of the format
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_llama2c_model(const char *path, ech_model *out);

/** Read the weights.
 *  @param path   the file
 *  @param m      as ech_llama2c_model gave it
 *  @param c      canonical tensors of m
 *  @param param  [c->n_params] buffers of float, each of its parameter's elements; filled, padding
 *                zero
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_llama2c_read(const char *path, const ech_model *m, const ech_canon *c,
                                         void *const *param);

/** Rows of one head from interleaved to half-split order: out row s d/2 + i = in row 2i + s.
 *  @param in        [head_dim, cols]
 *  @param head_dim  even
 *  @param cols      columns
 *  @param out       [head_dim, cols], not in */
void ech_rotary_to_half_split(const float *in, int64_t head_dim, int64_t cols, float *out);

#endif
