/** @file storage/hf_weights.h
 *  Canonical tensors <-> Hugging Face tensors: names, row order, transposes, padding.
 *
 *  One table (hf_weights.c) says, per architecture, which HF tensor holds which part of which
 *  canonical parameter.  From it a map is built: per HF tensor a list of boxes, each a strided
 *  block that pairs HF elements with elements of one canonical parameter.  Export gathers along the
 *  boxes, import scatters; both work on any range of HF elements, so that a rank can read only what
 *  it needs.
 *
 *  - llama: model.embed_tokens, model.layers.N.{input_layernorm, self_attn.{q,k,v,o}_proj,
 *    self_attn.{q,k}_norm, post_attention_layernorm, mlp.{gate,up,down}_proj}, model.norm, lm_head
 *  - gpt2: transformer.{wte, wpe, h.N.{ln_1, attn.{c_attn,c_proj}, ln_2, mlp.{c_fc,c_proj}}, ln_f},
 *    matrices stored [in, out] ("Conv1D")
 *
 *  Rotary pairs are half-split in HF: rows of a model with rope.interleaved are permuted on the
 *  way.  The prefix (model. or transformer.) is always written and may be absent when reading.
 *  Vocabulary padding is not exported and is zero after import; a tied table is one tensor.  The
 *  same serves gradients.  Local. */
#ifndef ECH_STORAGE_HF_WEIGHTS_H
#define ECH_STORAGE_HF_WEIGHTS_H

#include "catalog/canon.h"           /* ech_canon */
#include "catalog/model.h"           /* ech_model */
#include "storage/safetensors_set.h" /* ech_st_set */

/** A strided block: HF element hf_first + sum i_k hf_stride[k] is canonical element
 *  canon_first + sum i_k canon_stride[k] of parameter `param`, 0 <= i_k < count[k].  In HF order:
 *  the strides fall from k = 0, hf_stride[2] is 1. */
typedef struct ech_hf_box {
    int param; /**< index in ech_canon.param */
    int64_t hf_first, canon_first;
    int64_t count[3], hf_stride[3], canon_stride[3];
} ech_hf_box;

/** One HF tensor. */
typedef struct ech_hf_tensor {
    char name[96];
    int rank; /**< 1 or 2 */
    int64_t dim[2];
    int64_t elems;
    size_t first_box; /**< its boxes in ech_hf_map.box */
    size_t n_boxes;
} ech_hf_tensor;

/** All HF tensors of a model, in the order of the canonical parameters. */
typedef struct ech_hf_map {
    ech_hf_tensor *tensor; /**< owned */
    size_t n_tensors;
    ech_hf_box *box; /**< owned */
    size_t n_boxes;
    const char *prefix; /**< static: what may be absent in front of names when reading */
    bool is_tied;       /**< lm_head.weight may stand beside the token table, if it is equal */
} ech_hf_map;

/** Build the map; it covers every canonical element but the vocabulary padding exactly once.
 *  @param m    the model of c
 *  @param c    its canonical tensors
 *  @param out  set on success; release with ech_hf_map_fini
 *  @return ECH_OK | ECH_E_UNSUPPORTED (a parameter with no HF name) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_map_create(const ech_model *m, const ech_canon *c, ech_hf_map *out);

/** Release and zero. */
void ech_hf_map_fini(ech_hf_map *map);

/** Canonical values, one buffer a parameter, each [elems of the parameter] of dtype, in the order
 *  of ech_canon.param; borrowed.  NULL: not wanted (importing only).  A flat buffer of the whole model gives them through ech_canon
 *  offsets. */
typedef struct ech_hf_values {
    ech_dtype dtype; /**< ECH_F32 or ECH_F64 */
    void *const *param;
} ech_hf_values;

/** Gather HF elements [first, first + n) of a tensor from canonical buffers.
 *  @param map    the map
 *  @param t      index of the HF tensor
 *  @param first  first HF element
 *  @param n      elements
 *  @param from   canonical values
 *  @param out    [n] of from->dtype, borrowed */
void ech_hf_gather(const ech_hf_map *map, size_t t, int64_t first, int64_t n,
                   const ech_hf_values *from, void *out);

/** Scatter HF elements [first, first + n) of a tensor into canonical buffers; parameters as above,
 *  `in` is [n] of to->dtype.  Padding is not touched. */
void ech_hf_scatter(const ech_hf_map *map, size_t t, int64_t first, int64_t n, const void *in,
                    const ech_hf_values *to);

/** Are the tensors of a set those of the map: missing, extra, of another shape, not floating; all
 *  findings, by name.  Buffers that HF keeps beside weights (rotary_emb.inv_freq, attn.bias masks)
 *  are passed over.
 *  @return ECH_OK, also with findings | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_check(const ech_hf_map *map, const ech_st_set *set,
                                     ech_findings *findings);

/** Read all weights (after ech_hf_check; it is called here too, before anything is read).
 *  @param map  the map
 *  @param c    canonical tensors of the map
 *  @param set  open files
 *  @param to   filled, padding rows zero; undefined after a failure
 *  @return ECH_OK | ECH_E_CORRUPT with all findings | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_import(const ech_hf_map *map, const ech_canon *c,
                                      const ech_st_set *set, const ech_hf_values *to);

/** Where exported bytes go: all tensors of the map in order, cut anywhere. */
typedef struct ech_hf_sink {
    ech_status (*add)(void *writer, const void *data, size_t bytes);
    void *writer; /**< borrowed */
} ech_hf_sink;

/** Name, type and shape of each HF tensor, for a writer.
 *  @param map      the map; names and dims are borrowed from it
 *  @param file_dt  element type in the file
 *  @param out      [n_tensors], owned by the caller, free()
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_specs(const ech_hf_map *map, ech_dtype file_dt, ech_st_spec **out);

/** Gather all values, convert them and hand them to a sink.
 *  @param map      the map
 *  @param from     canonical values
 *  @param file_dt  ECH_F64, ECH_F32, ECH_BF16 or ECH_F16, not wider than the values
 *  @param sink     takes the bytes
 *  @return ECH_OK | ECH_E_ILLEGAL | ECH_E_NOMEM | what the sink returns */
ECH_MUST_USE ech_status ech_hf_export(const ech_hf_map *map, const ech_hf_values *from,
                                      ech_dtype file_dt, const ech_hf_sink *sink);

/** Write all values as one safetensors file (gradients, `train --dump-grads`), atomically.
 *  @param map      the map
 *  @param from     canonical values
 *  @param file_dt  as in ech_hf_export
 *  @param path     the file
 *  @return ECH_OK | ECH_E_ILLEGAL | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_hf_export_file(const ech_hf_map *map, const ech_hf_values *from,
                                           ech_dtype file_dt, const char *path);

#endif
