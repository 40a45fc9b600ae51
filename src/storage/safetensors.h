/** @file storage/safetensors.h
 *  The safetensors format: one hostile-proof reader, one streaming writer.
 *
 *  A file is: u64 little-endian header length N, N bytes of JSON (name -> dtype, shape,
 *  data_offsets; optional __metadata__ of strings), then the tensors' bytes without gap.  The
 *  reader refuses a file unless all of these hold (the message names the rule):
 *
 *  1. length: file >= 8 bytes, N <= the cap (16 MiB by default, 100,000,000 at most), fits the file
 *  2. json: starts with '{', ends with '}' and spaces, strict UTF-8 JSON, depth <= 4, no key twice
 *  3. metadata: __metadata__ maps strings to strings; any other member is a tensor of three keys
 *  4. size: dtype from the closed list; sizes and products fit 63 bits; whole bytes;
 *     begin <= end <= data size; end - begin is the product
 *  5. cover: by offset the tensors cover the data from 0 to the end: no hole, no overlap, no tail
 *  6. name: no control character, <= 512 bytes, at most 1,000,000 tensors; never used as a path
 *
 *  Empty and rank-0 tensors are legal; NaN and infinities are data.  Nothing is allocated that the
 *  file's own bytes do not pay for; data are read into the caller's memory, never mapped.
 *  Source: the format's README (github.com/huggingface/safetensors).
 *  Local.  Readers are read-only after open and may be shared by threads. */
#ifndef ECH_STORAGE_SAFETENSORS_H
#define ECH_STORAGE_SAFETENSORS_H

#include "base/dtype.h"  /* ech_dtype */
#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Caps on what is believed. */
enum {
    ECH_ST_HEADER_CAP = 16 << 20,    /**< default cap on the header, bytes */
    ECH_ST_HEADER_LIMIT = 100000000, /**< the format's own limit */
    ECH_ST_NAME_CAP = 512,           /**< bytes of a tensor's name */
    ECH_ST_TENSORS_CAP = 1000000     /**< tensors in a file */
};

/** Enumerator, name in the file, bits of one element, ech_dtype (or ECH_N_DTYPES: not read). */
#define ECH_ST_DTYPE_LIST(X)                                                                       \
    X(ECH_ST_BOOL, "BOOL", 8, ECH_N_DTYPES)                                                        \
    X(ECH_ST_F4, "F4", 4, ECH_N_DTYPES)                                                            \
    X(ECH_ST_F6_E2M3, "F6_E2M3", 6, ECH_N_DTYPES)                                                  \
    X(ECH_ST_F6_E3M2, "F6_E3M2", 6, ECH_N_DTYPES)                                                  \
    X(ECH_ST_U8, "U8", 8, ECH_U8)                                                                  \
    X(ECH_ST_I8, "I8", 8, ECH_N_DTYPES)                                                            \
    X(ECH_ST_F8_E5M2, "F8_E5M2", 8, ECH_N_DTYPES)                                                  \
    X(ECH_ST_F8_E4M3, "F8_E4M3", 8, ECH_N_DTYPES)                                                  \
    X(ECH_ST_F8_E8M0, "F8_E8M0", 8, ECH_N_DTYPES)                                                  \
    X(ECH_ST_I16, "I16", 16, ECH_N_DTYPES)                                                         \
    X(ECH_ST_U16, "U16", 16, ECH_U16)                                                              \
    X(ECH_ST_F16, "F16", 16, ECH_F16)                                                              \
    X(ECH_ST_BF16, "BF16", 16, ECH_BF16)                                                           \
    X(ECH_ST_I32, "I32", 32, ECH_I32)                                                              \
    X(ECH_ST_U32, "U32", 32, ECH_N_DTYPES)                                                         \
    X(ECH_ST_F32, "F32", 32, ECH_F32)                                                              \
    X(ECH_ST_C64, "C64", 64, ECH_N_DTYPES)                                                         \
    X(ECH_ST_F64, "F64", 64, ECH_F64)                                                              \
    X(ECH_ST_I64, "I64", 64, ECH_I64)                                                              \
    X(ECH_ST_U64, "U64", 64, ECH_N_DTYPES)

typedef enum ech_st_dtype {
#define ECH_ST_DTYPE_ENUM(name, text, bits, dtype) name,
    ECH_ST_DTYPE_LIST(ECH_ST_DTYPE_ENUM)
#undef ECH_ST_DTYPE_ENUM
        ECH_N_ST_DTYPES
} ech_st_dtype;

/** Name as in the file ("BF16"). */
const char *ech_st_dtype_name(ech_st_dtype t);

/** One tensor of an open file; everything is owned by the reader. */
typedef struct ech_st_tensor {
    const char *name;
    ech_st_dtype dtype;
    int rank;
    const int64_t *dim; /**< [rank] */
    int64_t elems;
    int64_t offset; /**< of its first byte in the file */
    int64_t bytes;
} ech_st_tensor;

/** A pair of __metadata__. */
typedef struct ech_st_meta {
    const char *key, *value;
} ech_st_meta;

/** An open file; opaque. */
typedef struct ech_st ech_st;

/** Open a file and check all of it but the values.
 *  @param path        the file
 *  @param header_cap  bytes of header to accept at most; 0: ECH_ST_HEADER_CAP
 *  @param out         owned by the caller, ech_st_close
 *  @return ECH_OK
 *        | ECH_E_CORRUPT  a rule is broken: file and rule in the message
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_open(const char *path, int64_t header_cap, ech_st **out);

/** The same for a plain name in a folder, never through a symbolic link (ech_file_open_in).
 *  @return as above | ECH_E_ILLEGAL (not a plain name, a symbolic link) */
ECH_MUST_USE ech_status ech_st_open_in(const char *dir, const char *name, int64_t header_cap,
                                       ech_st **out);

/** Close; accepts NULL, nulls the pointer. */
void ech_st_close(ech_st **st);

/** Tensors, in order of their offset. */
int64_t ech_st_count(const ech_st *st);

/** The i-th tensor, 0 <= i < ech_st_count; borrowed. */
const ech_st_tensor *ech_st_at(const ech_st *st, int64_t i);

/** Tensor by name, or NULL; borrowed. */
const ech_st_tensor *ech_st_find(const ech_st *st, const char *name);

/** Value of a __metadata__ key, or NULL; borrowed. */
const char *ech_st_metadata(const ech_st *st, const char *key);

/** Path as opened; borrowed. */
const char *ech_st_path(const ech_st *st);

/** Read elements [first, first + n) of a tensor, converted.  Floating types convert among each
 *  other (rounded to nearest); others are read only as what they are.
 *  @param st     the file of t
 *  @param t      a tensor of st
 *  @param first  first element
 *  @param n      elements
 *  @param as     type of the elements of out
 *  @param out    [n] of as, borrowed
 *  @return ECH_OK | ECH_E_DATA (no conversion) | ECH_E_CORRUPT (the file has shrunk) | ECH_E_IO */
ECH_MUST_USE ech_status ech_st_read(const ech_st *st, const ech_st_tensor *t, int64_t first,
                                    int64_t n, ech_dtype as, void *out);

/** Check a whole file image in memory by the same rules; used by the fuzzer and by tests.
 *  @param data   the bytes of the file
 *  @param bytes  how many
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_check_bytes(const void *data, size_t bytes);

/** What a tensor to be written is called and looks like. */
typedef struct ech_st_spec {
    const char *name;
    ech_dtype dtype;
    int rank;
    const int64_t *dim; /**< [rank] */
} ech_st_spec;

/** A file being written; opaque.  Nothing stands at its path before ech_st_writer_finish. */
typedef struct ech_st_writer ech_st_writer;

/** Start a file: writes the header.  Tensors lie in the order given; the data start is 8-byte
 *  aligned.
 *  @param path    where it will stand
 *  @param spec    [n], borrowed for the call
 *  @param n       tensors
 *  @param meta    [n_meta] pairs for __metadata__, may be NULL
 *  @param n_meta  how many
 *  @param out     owned by the caller, finish or destroy it
 *  @return ECH_OK
 *        | ECH_E_ILLEGAL  a name twice or against rule 6, sizes overflow
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_writer_create(const char *path, const ech_st_spec *spec, size_t n,
                                             const ech_st_meta *meta, size_t n_meta,
                                             ech_st_writer **out);

/** Append data bytes: all tensors in order, cut anywhere.
 *  @return ECH_OK | ECH_E_FAILED (more than the tensors have) | ECH_E_IO */
ECH_MUST_USE ech_status ech_st_writer_add(ech_st_writer *w, const void *data, size_t bytes);

/** All data are there: sync and publish the file, release the writer (also on failure).
 *  @return ECH_OK | ECH_E_FAILED (too few or too many bytes were added) | ECH_E_IO */
ECH_MUST_USE ech_status ech_st_writer_finish(ech_st_writer **w);

/** Give up: nothing is left on disk; accepts NULL. */
void ech_st_writer_destroy(ech_st_writer **w);

#endif
