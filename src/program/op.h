/** @file program/op.h
 *  Kernel-level ops: regions, operands, dimensions, and the op table (one row per kind: arguments,
 *  shape law, FLOPs, bytes, workspace cap, placement rule).  Kernels are looked up by kind in
 *  kernels/; adding an op is adding a row, a kernel and its oracle (docs/adding.md).
 *
 *  Letters: N tokens of the micro-batch (b * s), H hidden, g KV heads (groups), r query heads per
 *  group, D head_dim, F ffn, V padded vocabulary.  Pure; every call is local. */
#ifndef ECH_PROGRAM_OP_H
#define ECH_PROGRAM_OP_H

#include "base/checked.h"      /* ech_ceil_div */
#include "base/dtype.h"        /* ech_dtype */
#include "program/expr.h"      /* ech_expr */
#include "program/placement.h" /* ech_placement */

/** Regions that an invocation binds to memory.  The three saved sets are forward -> backward,
 *  forward -> weight gradient, backward -> weight gradient. */
#define ECH_REGION_LIST(X)                                                                         \
    X(ECH_REGION_NONE, "none")   /**< an optional argument left out */                             \
    X(ECH_REGION_PARAM, "param") /**< the parts of a unit, layout/shard.h: cut over tp, */         \
    X(ECH_REGION_PARAM_SUMMED, "param_summed") /**< whole, its gradient a partial sum, */          \
    X(ECH_REGION_PARAM_WHOLE, "param_whole")   /**< whole, and so its gradient; */                 \
    X(ECH_REGION_PARAM_TIED, "param_tied")     /**< held by two stages; parts are alike below */   \
    X(ECH_REGION_GRAD, "grad")                                                                     \
    X(ECH_REGION_GRAD_SUMMED, "grad_summed")                                                       \
    X(ECH_REGION_GRAD_WHOLE, "grad_whole")                                                         \
    X(ECH_REGION_GRAD_TIED, "grad_tied")                                                           \
    X(ECH_REGION_TIED, "tied")           /**< the token table, borrowed by the head */             \
    X(ECH_REGION_TIED_GRAD, "tied_grad") /**< its gradient */                                      \
    X(ECH_REGION_MASTER, "master")                                                                 \
    X(ECH_REGION_MOMENT, "moment") /**< of a part: m, then v */                                    \
    X(ECH_REGION_MOMENT_SUMMED, "moment_summed")                                                   \
    X(ECH_REGION_MOMENT_WHOLE, "moment_whole")                                                     \
    X(ECH_REGION_MOMENT_TIED, "moment_tied")                                                       \
    X(ECH_REGION_SHARD, "shard") /**< a part's flat range: of a gradient, of parameters */         \
    X(ECH_REGION_SAVED_FB, "saved_fb")                                                             \
    X(ECH_REGION_SAVED_FW, "saved_fw")                                                             \
    X(ECH_REGION_SAVED_BW, "saved_bw")                                                             \
    X(ECH_REGION_IN, "in")                                                                         \
    X(ECH_REGION_OUT, "out")                                                                       \
    X(ECH_REGION_DIN, "din")                                                                       \
    X(ECH_REGION_DOUT, "dout")                                                                     \
    X(ECH_REGION_WORK, "work")                                                                     \
    X(ECH_REGION_DATA, "data")       /**< token ids or labels of the micro-batch */                \
    X(ECH_REGION_CACHE, "cache")     /**< keys and values of generation */                         \
    X(ECH_REGION_SCALARS, "scalars") /**< the scalar table, 8-byte cells */                        \
    X(ECH_REGION_CONST, "const")     /**< rotary tables */

typedef enum ech_region {
#define ECH_REGION_ENUM(name, text) name,
    ECH_REGION_LIST(ECH_REGION_ENUM)
#undef ECH_REGION_ENUM
        ECH_N_REGIONS
} ech_region;

/** Who writes a cell of the scalar table. */
typedef enum ech_cell_writer {
    ECH_CELL_BY_OP,   /**< an op of the step */
    ECH_CELL_BY_HOST, /**< the host, before a step, alike on every rank */
    ECH_CELL_BY_VOTE  /**< the host, each rank for itself: a partial sum */
} ech_cell_writer;

/** Who reads a cell on the host: after the reduce segment, from any rank, since it is everybody's. */
typedef enum ech_cell_reader {
    ECH_CELL_UNREAD,
    ECH_CELL_READ,         /**< of every step that has a reduce segment */
    ECH_CELL_READ_TRAINING /**< of a step that makes gradients */
} ech_cell_reader;

/** Cells of the per-rank scalar table: 8 bytes each, int64 or fp64; who writes, who reads.
 *  Neighbours that are summed together stand together. */
#define ECH_CELL_LIST(X)                                                                           \
    /** optimizer step to be made, from 0 */                                                       \
    X(ECH_CELL_STEP, "i64", ECH_CELL_BY_HOST, ECH_CELL_UNREAD)                                     \
    /** updates made before it */                                                                  \
    X(ECH_CELL_UPDATES, "i64", ECH_CELL_BY_HOST, ECH_CELL_UNREAD)                                  \
    /** unmasked tokens of this rank's step */                                                     \
    X(ECH_CELL_TOKENS_LOCAL, "i64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                               \
    /** the same over dp */                                                                        \
    X(ECH_CELL_TOKENS_DP, "i64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                  \
    /** the same over all ranks */                                                                 \
    X(ECH_CELL_TOKENS, "i64", ECH_CELL_BY_OP, ECH_CELL_READ)                                       \
    X(ECH_CELL_LOSS_SCALE, "f64", ECH_CELL_BY_HOST, ECH_CELL_UNREAD)                               \
    /** loss_scale / tokens, 0 without tokens */                                                   \
    X(ECH_CELL_LOSS_SEED, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                  \
    /** sum of this rank's token losses */                                                         \
    X(ECH_CELL_LOSS_LOCAL, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                 \
    /** 1: this rank was asked to stop */                                                          \
    X(ECH_CELL_STOP_LOCAL, "f64", ECH_CELL_BY_VOTE, ECH_CELL_UNREAD)                               \
    /** LOSS_LOCAL and STOP_LOCAL over dp */                                                       \
    X(ECH_CELL_LOSS_DP, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                    \
    X(ECH_CELL_STOP_DP, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                    \
    /** LOSS_LOCAL over dp and hsdp */                                                             \
    X(ECH_CELL_LOSS_DATA, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                  \
    /** LOSS_LOCAL over all ranks */                                                               \
    X(ECH_CELL_LOSS, "f64", ECH_CELL_BY_OP, ECH_CELL_READ)                                         \
    /** STOP_LOCAL over dp and hsdp */                                                             \
    X(ECH_CELL_STOP_DATA, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                  \
    /** STOP_LOCAL over dp, hsdp and tp */                                                         \
    X(ECH_CELL_STOP_STAGE, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                 \
    /** STOP_LOCAL over all ranks */                                                               \
    X(ECH_CELL_STOP, "f64", ECH_CELL_BY_OP, ECH_CELL_READ)                                         \
    /** squared norm of the gradient */                                                            \
    X(ECH_CELL_GRAD_SQ, "f64", ECH_CELL_BY_OP, ECH_CELL_READ_TRAINING)                             \
    /** factor: clipping and 1 / loss_scale */                                                     \
    X(ECH_CELL_CLIP, "f64", ECH_CELL_BY_OP, ECH_CELL_UNREAD)                                       \
    X(ECH_CELL_LR, "f64", ECH_CELL_BY_HOST, ECH_CELL_UNREAD)                                       \
    /** generation: tokens in the cache */                                                         \
    X(ECH_CELL_POSITION, "i64", ECH_CELL_BY_HOST, ECH_CELL_UNREAD)                                 \
    /** generation: tokens fed now (an extent) */                                                  \
    X(ECH_CELL_NEW_TOKENS, "i64", ECH_CELL_BY_HOST, ECH_CELL_UNREAD)

typedef enum ech_cell {
#define ECH_CELL_ENUM(name, type, writer, reader) name,
    ECH_CELL_LIST(ECH_CELL_ENUM)
#undef ECH_CELL_ENUM
        ECH_N_CELLS
} ech_cell;

/** Room in operands and ops. */
enum { ECH_MAX_DIMS = 4, ECH_MAX_ARGS = 10, ECH_MAX_ATTRS = 9, ECH_MAX_REALS = 4 };

enum { ECH_EXTENT_BOUND = -1 /**< an extent that is its bound */ };

/** A dimension: a static bound, and an extent that is the bound or an int64 cell of the scalar
 *  table, which the op then reads: 0 <= extent <= bound.  Only the leading dimension of a slot may have an extent below its bound. */
typedef struct ech_dim {
    int64_t bound;
    int extent; /**< ECH_EXTENT_BOUND or an ech_cell */
} ech_dim;

/** What an op does to an argument. */
typedef enum ech_access {
    ECH_READ = 1,
    ECH_WRITE = 2,     /**< every byte of the extent is written */
    ECH_READ_WRITE = 3 /**< updated in place or accumulated into */
} ech_access;

/** An operand that stands elsewhere on every rank of an axis: at offset + coordinate * bytes.  What
 *  the program is proved for is all of them at once, so it touches the whole range. */
typedef struct ech_shift {
    ech_axis axis;
    size_t bytes; /**< 0: the same everywhere */
} ech_shift;

/** An operand is a relocation: a place in a region, never an address. */
typedef struct ech_operand {
    ech_region region;
    int context; /**< 0; 1 for the second block of a zip */
    ech_access access;
    ech_dtype dtype;
    size_t offset; /**< bytes from the region's base */
    ech_shift shift;
    int rank;
    ech_dim dim[ECH_MAX_DIMS];
    ech_placement place;
} ech_operand;

/** The op kinds; arguments, attributes and reals of each stand in kernels/kernels.h, its shape law
 *  in op_table.c. */
#define ECH_OP_LIST(X)                                                                             \
    X(ECH_OP_ZERO, "zero")                                                                         \
    X(ECH_OP_COPY, "copy")                                                                         \
    X(ECH_OP_SCALE, "scale")                                                                       \
    X(ECH_OP_ADD, "add")                                                                           \
    X(ECH_OP_EMBED, "embed")                                                                       \
    X(ECH_OP_EMBED_BACKWARD, "embed_backward")                                                     \
    X(ECH_OP_POSITIONS, "positions")                                                               \
    X(ECH_OP_POSITIONS_BACKWARD, "positions_backward")                                             \
    X(ECH_OP_BIAS, "bias")                                                                         \
    X(ECH_OP_BIAS_BACKWARD, "bias_backward")                                                       \
    X(ECH_OP_LAYERNORM, "layernorm")                                                               \
    X(ECH_OP_LAYERNORM_BACKWARD, "layernorm_backward")                                             \
    X(ECH_OP_RMSNORM, "rmsnorm")                                                                   \
    X(ECH_OP_RMSNORM_BACKWARD, "rmsnorm_backward")                                                 \
    X(ECH_OP_LINEAR, "linear")                                                                     \
    X(ECH_OP_LINEAR_DGRAD, "linear_dgrad")                                                         \
    X(ECH_OP_LINEAR_WGRAD, "linear_wgrad")                                                         \
    X(ECH_OP_QK_NORM, "qk_norm")                                                                   \
    X(ECH_OP_QK_NORM_BACKWARD, "qk_norm_backward")                                                 \
    X(ECH_OP_ROPE, "rope")                                                                         \
    X(ECH_OP_ATTENTION, "attention")                                                               \
    X(ECH_OP_ATTENTION_BACKWARD, "attention_backward")                                             \
    X(ECH_OP_ATTENTION_CACHED, "attention_cached")                                                 \
    X(ECH_OP_SWIGLU, "swiglu")                                                                     \
    X(ECH_OP_SWIGLU_BACKWARD, "swiglu_backward")                                                   \
    X(ECH_OP_GELU, "gelu")                                                                         \
    X(ECH_OP_GELU_BACKWARD, "gelu_backward")                                                       \
    X(ECH_OP_DROPOUT, "dropout")                                                                   \
    X(ECH_OP_XENT_SHARD, "xent_shard")                                                             \
    X(ECH_OP_XENT, "xent")                                                                         \
    X(ECH_OP_XENT_BACKWARD, "xent_backward")                                                       \
    X(ECH_OP_COUNT_TOKENS, "count_tokens")                                                         \
    X(ECH_OP_LOSS_SEED, "loss_seed")                                                               \
    X(ECH_OP_SUM_CELLS, "sum_cells")                                                               \
    X(ECH_OP_KV_FOLD, "kv_fold")                                                                   \
    X(ECH_OP_KV_SPREAD, "kv_spread")                                                               \
    X(ECH_OP_SUMSQ, "sumsq")                                                                       \
    X(ECH_OP_CLIP, "clip")                                                                         \
    X(ECH_OP_ADAMW, "adamw")                                                                       \
    X(ECH_OP_SGD, "sgd")                                                                           \
    X(ECH_OP_ALL_REDUCE_START, "all_reduce_start")                                                 \
    X(ECH_OP_ALL_REDUCE_WAIT, "all_reduce_wait")                                                   \
    X(ECH_OP_REDUCE_SCATTER_START, "reduce_scatter_start")                                         \
    X(ECH_OP_REDUCE_SCATTER_WAIT, "reduce_scatter_wait")                                           \
    X(ECH_OP_ALL_GATHER_START, "all_gather_start")                                                 \
    X(ECH_OP_ALL_GATHER_WAIT, "all_gather_wait")                                                   \
    X(ECH_OP_SUM_SMALL_START, "sum_small_start")                                                   \
    X(ECH_OP_SUM_SMALL_WAIT, "sum_small_wait")                                                     \
    X(ECH_OP_SEND_START, "send_start")                                                             \
    X(ECH_OP_RECV_START, "recv_start")                                                             \
    X(ECH_OP_SEND_WAIT, "send_wait")                                                               \
    X(ECH_OP_RECV_WAIT, "recv_wait")

typedef enum ech_op_kind {
#define ECH_OP_ENUM(name, text) name,
    ECH_OP_LIST(ECH_OP_ENUM)
#undef ECH_OP_ENUM
        ECH_N_OPS
} ech_op_kind;

/** One op of a block. */
typedef struct ech_op {
    ech_op_kind kind;
    int n_args;
    ech_operand arg[ECH_MAX_ARGS]; /**< an absent optional argument has region NONE */
    ech_expr attr[ECH_MAX_ATTRS];
    double real[ECH_MAX_REALS];
    ech_axis axis;      /**< communication, kv_spread: the group's axis */
    int request;        /**< communication: which of its item's requests, from 0 */
    size_t work_offset; /**< kernel workspace in region WORK */
    size_t work_bytes;  /**< its cap, from the op table */
} ech_op;

/** One row of the op table.  The signature, read by op_signature.h, gives shape law, accesses and
 *  placement rule at once: arguments separated by commas, each a word of dimension labels, "~" for
 *  any shape (the same in all "~" arguments), "." for one scalar cell, with marks before it:
 *    ?  optional
 *    >  written
 *    +  accumulated into
 *    =  updated in place
 *    *  the outputs are linear in it: a partial sum may pass through
 *    &  added to the result: partial exactly where the result is
 *  Types of the arguments are one letter each:
 *    r  REAL: fp32 or fp64, one type in the op
 *    i  int32 (ids, labels)    l  int64    d  fp64
 *    a  any, one type in the op */
typedef struct ech_op_row {
    const char *signature;
    const char *types;  /**< NULL: all REAL */
    const char *summed; /**< labels that may be summed away: sharded there, the output is partial */
    bool is_start;      /**< starts communication */
    bool is_wait;       /**< waits for it */
    /** Works on sequences (position n % seq): where label n is dealt out, it is by whole ones. */
    bool whole_sequences;
    /** Two labels "vw": where v is dealt out, so is w of the outputs, one index a rank. */
    const char *dealt;
    /** A label along which outputs may be cut though no input is: each rank picks its own indices,
     *  from an attribute. */
    char picked;
    double (*flops)(const ech_op *op); /**< FLOPs at the bounds; NULL: elementwise, not counted */
    size_t (*work_bytes)(const ech_op *op); /**< workspace cap; NULL: none */
} ech_op_row;

/** Fixed partitions behind workspace caps, so that sums do not depend on threads. */
enum { ECH_ROW_BLOCKS = 16 /**< partial rows of a column sum */ };

/** A sum of squares is exact: a number of ECH_SUMSQ_LIMBS int64 words, word k worth
 *  2^(32 k + ECH_SUMSQ_EXPONENT), and one word that counts elements which are not finite or whose
 *  square is 2^ECH_SUMSQ_TOP or more.  Bits of a square below word 0 are cut off.  So neither the
 *  order of elements nor how they are dealt out over ranks changes a bit, and ranks' numbers are
 *  summed word by word. */
enum {
    ECH_SUMSQ_EXPONENT = -320,
    ECH_SUMSQ_LIMBS = 20,
    ECH_SUMSQ_TOP =
        ECH_SUMSQ_EXPONENT + 32 * ECH_SUMSQ_LIMBS - 32, /**< the top word takes carries */
    ECH_SUMSQ_WORDS = ECH_SUMSQ_LIMBS + 1
};

/** Row of a kind; static storage. */
const ech_op_row *ech_op_row_get(ech_op_kind kind);

/** "linear_dgrad" and the like; static storage. */
const char *ech_op_name(ech_op_kind kind);

/** "saved_fb" and the like; static storage. */
const char *ech_region_name(ech_region region);

/** "TOKENS" and the like; static storage. */
const char *ech_cell_name(ech_cell cell);

/** int64 or fp64. */
ech_dtype ech_cell_dtype(ech_cell cell);

/** Who writes a cell. */
ech_cell_writer ech_cell_writer_of(ech_cell cell);

/** Who reads it on the host. */
ech_cell_reader ech_cell_reader_of(ech_cell cell);

/** Does the kind send or receive. */
bool ech_op_is_comm(ech_op_kind kind);

/** Elements of an operand at its bounds. */
int64_t ech_operand_elems(const ech_operand *a);

/** Bytes of an operand at its bounds. */
size_t ech_operand_bytes(const ech_operand *a);

/** Bytes from its first to its last at any coordinate of its shift. */
size_t ech_operand_span(const ech_operand *a, const ech_layout *l);

/** The cell that an operand's leading extent is read from, or ECH_EXTENT_BOUND. */
int ech_operand_extent(const ech_operand *a);

/** Shape law of the op: every label has one size and extent; argument count, types and accesses fit
 *  the row; and what labels cannot say (op_law.h) holds.
 *  @return ECH_OK | ECH_E_PROOF naming op, argument and sizes */
ECH_MUST_USE ech_status ech_op_check_shape(const ech_op *op);

/** Placement rule: are the declared placements of all arguments what the rule gives over every
 *  axis, and does the scale follow (linear inputs equal, output the same)?
 *  @return ECH_OK | ECH_E_PROOF naming op, argument, axis, found and wanted placement */
ECH_MUST_USE ech_status ech_op_check_placement(const ech_op *op);

/** Bytes that a rank sends: payload is the size of what is communicated, wire what leaves it. */
typedef struct ech_traffic {
    int64_t payload_bytes, wire_bytes;
} ech_traffic;

/** Traffic of rank `index` of a group of n in this op; a wait has none, its start has it all. */
ech_traffic ech_op_traffic(const ech_op *op, int n, int index);

/** A reduction goes by chunks of so many elements; as many rounds of them are staged at once. */
enum { ECH_REDUCE_CHUNK_ELEMS = 65536, ECH_REDUCE_ROUNDS = 2 };

/** Reductions of an axis that are in flight at once; a further one awaits the oldest. */
enum { ECH_REDUCE_WINDOW = 2 };

/** Elements of the largest staging chunk for n_elems summed over a group of n. */
int64_t ech_reduce_chunk_elems(int64_t n_elems, int n);

/** Elements of staging for n_elems summed over a group of n: a chunk a member in every round. */
int64_t ech_reduce_staging_elems(int64_t n_elems, int n);

#endif
