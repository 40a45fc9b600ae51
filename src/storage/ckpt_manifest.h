/** @file storage/ckpt_manifest.h
 *  The manifest of a checkpoint: what was saved, from which run, and where every piece of it lies.
 *
 *  A checkpoint is a folder `step-00000123` with one piece file a rank, `rank-00003.bin`, and
 *  `manifest.json`:
 *
 *    {"format":"echelon-checkpoint","version":1,"hash":"<xxh3-128 of all bytes that follow>",
 *    "run":{"step":123,"generation":1,"updates":123,"samples":7872,"seed":42,
 *           "lr":0.0003,"loss_scale":1,"rotary":"half","saved":"2026-01-31T12:00:00Z"},
 *    "layout":{"world":8,"tp":2,"cp":1,"pp":1,"shards":4,"replicas":1,"sequence_parallel":true},
 *    "model":{ an HF config.json },  "config":{ the resolved configuration },
 *    "data":{"train":["<hash>"], ...},                         of what was read; may be left out
 *    "copies":[["tokenizer.json",1234,"<xxh3-128>"], ...],     bytes; may be left out
 *    "tensors":[["embed.token.weight",[50257,768]], ...],          canonical names, vocabulary unpadded
 *    "fingerprint":"<xxh3-128 of rotary, names and shapes>",
 *    "classes":[[0,"params","fp32"], ...],
 *    "files":[[0,1048576], ...],                                    rank, bytes of rank-00000.bin
 *    "pieces":[[class, tensor, rank, offset, first, n, [b0,e0,b1,e1 ...], "<xxh3-128>"], ...]}
 *
 *  A piece is elements [first, first + n) in row-major order of a box (storage/ckpt_box.h) of a
 *  tensor, little-endian in the type of its class, at `offset` of its rank's file.  Keys stand in
 *  this order, so none can be twice, unknown or missing.  File names are made from the rank, those
 *  of copies are plain: nothing in a manifest is a path.
 *
 *  Believed only when all of this holds: sizes and products stay in 63 bits; at most
 *  ECH_CKPT_TENSORS_MAX tensors, names printable and different; a piece holds 1 ..
 *  ECH_CKPT_PIECE_BYTES bytes, its box lies in its tensor, its range in its box; every class has
 *  every tensor, covered exactly once (pieces of one box by their ranges, then boxes by
 *  ech_ckpt_boxes_cover); the pieces of a file follow each other from 0 to its end, so that every
 *  byte has a hash.  The text costs memory in proportion to its own length only.  Local. */
#ifndef ECH_STORAGE_CKPT_MANIFEST_H
#define ECH_STORAGE_CKPT_MANIFEST_H

#include "base/dtype.h"        /* ech_dtype */
#include "base/text.h"         /* ech_text */
#include "storage/ckpt_hold.h" /* ech_ckpt_tensor, ech_ckpt_range */

enum {
    ECH_CKPT_VERSION = 1,
    ECH_CKPT_PIECE_BYTES = 16 << 20, /**< largest piece: a bound on every buffer */
    ECH_CKPT_TENSORS_MAX = 1000000,
    ECH_CKPT_COPIES_MAX = 16,            /**< files beside the pieces */
    ECH_CKPT_GENERATION_MAX = 1000000000 /**< more runs no folder has seen */
};
/** Largest manifest that is read. */
#define ECH_CKPT_MANIFEST_BYTES INT64_C(0x7fffffff)
#define ECH_CKPT_MANIFEST       "manifest.json"

/** State classes; the numbers are part of the format. */
#define ECH_CKPT_CLASS_LIST(X)                                                                     \
    X(ECH_CKPT_PARAMS, "params")                                                                   \
    X(ECH_CKPT_MOMENT_M, "moment_m")                                                               \
    X(ECH_CKPT_MOMENT_V, "moment_v")                                                               \
    X(ECH_CKPT_MASTER, "master")

typedef enum ech_ckpt_class {
#define ECH_CKPT_CLASS_ENUM(name, text) name,
    ECH_CKPT_CLASS_LIST(ECH_CKPT_CLASS_ENUM)
#undef ECH_CKPT_CLASS_ENUM
        ECH_N_CKPT_CLASSES
} ech_ckpt_class;

/** "params", "moment_m", ...; static storage. */
const char *ech_ckpt_class_name(ech_ckpt_class c);

/** Where the run stood. */
typedef struct ech_ckpt_position {
    int64_t step;       /**< steps made: the next one is number `step`, from 0 */
    int64_t generation; /**< of the run in its folder, from 1: orders runs that share one */
    int64_t updates;    /**< updates made: bias correction, and the position of the lr schedule */
    int64_t samples;    /**< sequences consumed: the data position */
    int64_t seed;       /**< of initialisation and dropout */
    double lr;          /**< of the last update, for people */
    double loss_scale;
    bool is_interleaved; /**< rotary pairs are neighbours (catalog/model.h) */
    char saved[24];      /**< UTC, for people */
} ech_ckpt_position;

/** On which layout it was saved; for people, loading does not depend on it. */
typedef struct ech_ckpt_layout {
    int64_t world, tp, cp, pp;
    int64_t shards, replicas; /**< dp and hsdp of layout/layout.h */
    bool is_sequence_parallel;
} ech_ckpt_layout;

/** A piece file. */
typedef struct ech_ckpt_file {
    int64_t rank, bytes;
} ech_ckpt_file;

/** A piece. */
typedef struct ech_ckpt_piece {
    ech_ckpt_range range;
    int64_t offset; /**< bytes from the start of its file */
    int32_t cls, tensor;
    int32_t rank; /**< who wrote it */
    char hash[33];
} ech_ckpt_piece;

/** A file that was copied beside the pieces: a tokenizer's. */
typedef struct ech_ckpt_copy {
    char name[256]; /**< plain (ech_path_is_plain) */
    int64_t bytes;
    char hash[33];
} ech_ckpt_copy;

/** A manifest.  Read only once made. */
typedef struct ech_ckpt_manifest {
    ech_ckpt_position run;
    ech_ckpt_layout layout;
    char *model;         /**< owned: JSON text */
    char *config;        /**< owned: JSON text */
    char *data;          /**< owned: JSON text of the data's hashes; NULL: not told */
    ech_ckpt_copy *copy; /**< owned, [n_copies] */
    int64_t n_copies;
    ech_ckpt_tensor *tensor; /**< owned, [n_tensors] */
    int64_t n_tensors;
    char fingerprint[33];                /**< as read; printing computes it */
    ech_dtype dtype[ECH_N_CKPT_CLASSES]; /**< ECH_N_DTYPES: no such class */
    ech_ckpt_file *file;                 /**< owned, [n_files], by rank */
    int64_t n_files;
    ech_ckpt_piece *piece; /**< owned, [n_pieces], by class, tensor, box, first */
    int64_t n_pieces;
    int64_t *first_piece; /**< owned, [ECH_N_CKPT_CLASSES * n_tensors + 1]: of each tensor */
} ech_ckpt_manifest;

/** Release and zero. */
void ech_ckpt_manifest_fini(ech_ckpt_manifest *m);

/** Sort the pieces and check everything that is promised above.
 *  @param m  in/out: all fields but first_piece filled in; pieces and files in any order
 *  @return ECH_OK
 *        | ECH_E_CORRUPT  the message names tensor, class and rank
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_manifest_complete(ech_ckpt_manifest *m);

/** The whole text of a complete manifest, appended to out. */
void ech_ckpt_manifest_print(const ech_ckpt_manifest *m, ech_text *out);

/** Read what follows the first line, and check it; the fingerprint is taken as it is.
 *  @param text   changed
 *  @param bytes  its length
 *  @param out    set on success; release with ech_ckpt_manifest_fini
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_manifest_parse(char *text, size_t bytes, ech_ckpt_manifest *out);

/** Read FOLDER/manifest.json: format, version and hash, then the rest.
 *  @param folder  the checkpoint
 *  @param out     as above
 *  @return ECH_OK
 *        | ECH_E_CORRUPT      damaged
 *        | ECH_E_UNSUPPORTED  a newer version
 *        | ECH_E_ILLEGAL      a symbolic link
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_manifest_read(const char *folder, ech_ckpt_manifest *out);

/** Read only where the run stood, from the first bytes of FOLDER/manifest.json.  No hash is checked:
 *  good for putting checkpoints in order, not for believing one.
 *  @return as above */
ECH_MUST_USE ech_status ech_ckpt_manifest_peek(const char *folder, ech_ckpt_position *out);

/** "rank-00003.bin" into buf. */
const char *ech_ckpt_file_name(int64_t rank, char buf[32]);

/* --- the texts of pieces, shared with the tables of ranks; inside storage --- */

/** Append "[class,tensor,...]". */
void ech_ckpt_piece_print(const ech_ckpt_piece *piece, ech_text *out);

struct ech_json; /* storage/json_cursor.h */

/** Take a list of pieces; only its form is checked.
 *  @param j      cursor
 *  @param piece  in/out: owned by the caller, grows
 *  @param n      in/out: pieces in it
 *  @return ECH_OK | ECH_E_PARSE | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_pieces_parse(struct ech_json *j, ech_ckpt_piece **piece,
                                              int64_t *n);

#endif
