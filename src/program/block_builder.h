/** @file program/block_builder.h
 *  What block generators share: operands of parameters, activations and temporaries with their
 *  placements, emission of ops, and the layout of saved and work regions.  Internal to program/.
 *
 *  Temporaries live in WORK from the op that first names them to the last; their offsets are packed
 *  when the block is finished, kernel workspaces with them. */
#ifndef ECH_PROGRAM_BLOCK_BUILDER_H
#define ECH_PROGRAM_BLOCK_BUILDER_H

#include "base/rng.h"        /* purposes of dropout */
#include "catalog/canon.h"   /* canonical parameters */
#include "program/blocks.h"  /* ech_block_spec */
#include "program/program.h" /* ech_block */

enum { ECH_MAX_TEMPS = 96 };

/** What an op of a backward is there for. */
typedef enum ech_purpose {
    ECH_FOR_INPUT = 1,  /**< the gradient of the block's input, and what falls off on the way */
    ECH_FOR_WEIGHT = 2, /**< gradients of linear layers' weights and biases */
    ECH_FOR_BOTH = 3
} ech_purpose;

/** A block in the making.  The first failure is kept in st; later calls do nothing. */
typedef struct ech_builder {
    const ech_block_spec *spec; /**< borrowed */
    ech_block block;
    size_t temp_bytes[ECH_MAX_TEMPS];
    int n_temps;
    int n_requests;
    bool keeps;          /**< what is kept goes to saved sets (training), else to WORK */
    ech_purpose makes;   /**< what its role is there for; other ops are left out */
    ech_purpose purpose; /**< of ops emitted now */
    ech_status st;
} ech_builder;

/** Start a block named "<what> <role>". */
void ech_builder_init(ech_builder *b, const ech_block_spec *spec, const char *what, ech_role role);

/** Pack WORK, check every op's shape and hand the block over; on failure nothing is left to free.
 *  @param b    not to be used again
 *  @param out  set on success; owned by the caller: ech_program_add_block takes it, or free its op
 *  @return ECH_OK | the first failure: ECH_E_NOMEM | ECH_E_PROOF (a shape) */
ECH_MUST_USE ech_status ech_builder_finish(ech_builder *b, ech_block *out);

/** A block that is all forward's, or backward's: all of it, or of its ops those for one purpose.
 *  @param spec      borrowed
 *  @param what      model piece, for the name
 *  @param role      FORWARD, BACKWARD, or where it is split BACKWARD_INPUT, BACKWARD_WEIGHT
 *  @param forward   emits the ops of FORWARD
 *  @param backward  emits the ops of BACKWARD, each behind ech_emit_for where backward is split
 *  @param out       as ech_builder_finish
 *  @return as ech_builder_finish | ECH_E_UNSUPPORTED (another role) */
ECH_MUST_USE ech_status ech_builder_make(const ech_block_spec *spec, const char *what,
                                         ech_role role, void (*forward)(ech_builder *b),
                                         void (*backward)(ech_builder *b), ech_block *out);

/** Dimensions, at most four, ended by -1; the leading one is the token count where n_tokens. */
ech_operand ech_shape(ech_dtype dtype, int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3);

/** The same memory under another shape. */
ech_operand ech_reshape(ech_operand a, int rank, int64_t d1, int64_t d2, int64_t d3);

/** No argument. */
ech_operand ech_absent(void);

/** Cut over tp: dimension dim by a map; whole with one rank. */
ech_operand ech_cut_over_tp(const ech_builder *b, ech_operand a, int dim, ech_index_map map);

/** The residual stream [N, H] in region at offset 0: with sequence parallelism a rank's N / tp
 *  tokens. */
ech_operand ech_stream(const ech_builder *b, ech_region region);

/** A vector [N] with an element for each token of the stream. */
ech_operand ech_stream_vector(const ech_builder *b, ech_region region);

/** First token of the stream in the micro-batch: 0, or with sequence parallelism tp * N / tp. */
ech_expr ech_first_token(const ech_builder *b);

/** Activation of shape [N, d1, d2, d3] in region at offset 0, of all the micro-batch's tokens,
 *  sharded over dp on N; d = 0 ends. */
ech_operand ech_activation(const ech_builder *b, ech_region region, int64_t d1, int64_t d2,
                           int64_t d3);

/** The gradient of an activation: the same with scale loss_scale / tokens. */
ech_operand ech_activation_grad(const ech_builder *b, ech_region region, int64_t d1, int64_t d2,
                                int64_t d3);

/** Turn an activation into one with a gradient's scale. */
ech_operand ech_as_grad(ech_operand a);

/** Put an activation-shaped operand behind what the region holds already. */
ech_operand ech_append(ech_builder *b, ech_region region, ech_operand shape);

/** A value of forward that input gradients need: appended to SAVED_FB when training, else a
 *  temporary. */
ech_operand ech_keep(ech_builder *b, ech_operand shape);

/** A value of forward that weight gradients need: the same, but in SAVED_FW where backward is
 *  split. */
ech_operand ech_keep_for_weight(ech_builder *b, ech_operand shape);

/** A value made for ECH_FOR_INPUT that weight gradients need: appended to SAVED_BW where backward
 *  is split, else a temporary. */
ech_operand ech_hand_on(ech_builder *b, ech_operand shape);

/** A temporary in WORK. */
ech_operand ech_temp(ech_builder *b, ech_operand shape);

/** Parameter of a kind in the block's unit (layer 0 stands for all layers); absent if the model has
 *  none. */
ech_operand ech_param_operand(const ech_builder *b, ech_param_kind kind);

/** Its gradient, likewise. */
ech_operand ech_param_grad(const ech_builder *b, ech_param_kind kind);

/** A cell of the scalar table: I, scale 1. */
ech_operand ech_cell_operand(ech_cell cell);

/** What ops emitted from here on are for.  Saved sets do not depend on it: all roles lay them out
 *  alike. */
void ech_emit_for(ech_builder *b, ech_purpose purpose);

/** Append an op with these arguments; accesses are set from the op table.  Returns it for
 *  attributes and reals (a throw-away op after a failure, or where the role does not make what it
 *  is for). */
ech_op *ech_emit(ech_builder *b, ech_op_kind kind, int n_args, const ech_operand *arg);

/** A vector of n elements that a message of `like` is staged in: a stage's own where that is. */
ech_operand ech_staging_of(const ech_operand *like, ech_dtype dtype, int64_t n);

/** What a stage has of its own: V over pp and tied, I over every other axis; without a pipeline I. */
ech_placement ech_stage_placement(const ech_layout *l);

/** p, the same on every stage. */
ech_placement ech_placement_on_stages(ech_placement p);

/** Token ids and labels: as ech_token_placement, but the same on every stage. */
ech_placement ech_data_placement(const ech_layout *l);

/** Token placement over dp and hsdp: S(0, sequences) with more than one rank, else I; a stage's own
 *  over pp. */
ech_placement ech_token_placement(const ech_layout *l);

/** Placement of a partial sum over dp and hsdp (I with one rank). */
ech_placement ech_partial_placement(const ech_layout *l);

/* --- between stream and full --- */

/** Is the stream dealt out by tokens over tp: a value of all of them must be gathered. */
bool ech_is_dealt(const ech_builder *b);

/** The shape of a stream-shaped value's gathering. */
ech_operand ech_all_tokens(const ech_builder *b, ech_operand stream);

/** All tokens of a stream-shaped value, on every rank of tp: gathered with sequence parallelism into
 *  `to` (absent: a temporary), else the value itself. */
ech_operand ech_emit_gather(ech_builder *b, ech_operand stream, ech_operand to);

/** Shares of the ranks of tp, one after the other, on all of them: start and wait. */
void ech_emit_gather_over_tp(ech_builder *b, ech_operand share, ech_operand whole);

/** A sum over tp that moves. */
typedef struct ech_pending_sum {
    ech_op_kind wait; /**< ECH_N_OPS: nothing to wait for */
    ech_operand arg[3];
    int n_args, request;
} ech_pending_sum;

/** Start the sum of a partial [N, H] over tp into a stream-shaped operand.  With one rank of tp there
 *  is nothing to do.
 *  @param b        builder
 *  @param partial  P over tp, [N, H]
 *  @param to       stream-shaped; without sequence parallelism the same memory as partial
 *  @return what ech_emit_sum_wait wants */
ech_pending_sum ech_emit_sum_start(ech_builder *b, ech_operand partial, ech_operand to);

/** Wait for it. */
void ech_emit_sum_wait(ech_builder *b, const ech_pending_sum *sum);

/** Where a row-parallel product goes before it is summed into `to`: `to` itself, marked P over tp,
 *  or a temporary [N, H]. */
ech_operand ech_partial_for(ech_builder *b, ech_operand to);

/** ech_emit with the arguments written out. */
#define ECH_EMIT(b, kind, ...)                                                                     \
    ech_emit((b), (kind), (int)(sizeof((ech_operand[]){__VA_ARGS__}) / sizeof(ech_operand)),       \
             (ech_operand[]){__VA_ARGS__})

/** Parameters of a norm. */
typedef struct ech_norm_params {
    ech_param_kind weight, bias;
} ech_norm_params;

/** What a norm leaves for its backward: y of its own tokens, or of all (the policy's inputs kept). */
typedef struct ech_norm_saved {
    ech_operand y, mean, rstd;
} ech_norm_saved;

/** Keep y, rstd [N] and, for LayerNorm, mean [N]. */
ech_norm_saved ech_keep_norm(ech_builder *b);

/** norm(x), of all tokens: what a column-parallel product reads. */
ech_operand ech_emit_norm(ech_builder *b, ech_norm_params p, ech_operand x,
                          const ech_norm_saved *s);

/** The same for its weight gradient: kept, or gathered again. */
ech_operand ech_normed_again(ech_builder *b, const ech_norm_saved *s);

/** DIN = dres + norm'(IN) dy, gradients of the parameters; dres may be absent. */
void ech_emit_norm_backward(ech_builder *b, ech_norm_params p, const ech_norm_saved *s,
                            ech_operand dy, ech_operand dres);

/** Backward of a product: its input of all tokens, the gradient of its output, its parameters. */
typedef struct ech_linear_grad {
    ech_operand x, dy;
    ech_operand w, dw, dbias; /**< dbias may be absent */
} ech_linear_grad;

/** dx = dy w, summed over tp under the weight gradient, if the block makes both: dw += dy^T x,
 *  dbias += column sums of dy.
 *  @param b   builder
 *  @param g   column-parallel
 *  @param dx  stream-shaped */
void ech_emit_column_backward(ech_builder *b, const ech_linear_grad *g, ech_operand dx);

/** Does the block drop anything: training with a probability above 0. */
bool ech_has_dropout(const ech_builder *b);

/** Attributes and reals of a dropout op. */
void ech_set_dropout(const ech_builder *b, ech_op *op, ech_rng_purpose purpose);

#endif
