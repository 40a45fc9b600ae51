/** @file program/compile_private.h
 *  The compiler from inside: the order of work (compile_order.c), state and its slots
 *  (compile_state.c), parameters gathered for their uses (compile_gather.c), gradients reduced
 *  (compile_reduce.c), items (compile.c).
 *  Inside program/compile* only. */
#ifndef ECH_PROGRAM_COMPILE_PRIVATE_H
#define ECH_PROGRAM_COMPILE_PRIVATE_H

#include "program/block_state.h" /* ech_axis_bit */
#include "program/compile.h"     /* ech_compile_spec */

/** Requests: of an item's own communication, of the token count, of transfers from there on. */
enum {
    REQUESTS_IN_ITEM = 8,
    REQUEST_TOKENS = REQUESTS_IN_ITEM,
    REQUEST_FIRST = REQUEST_TOKENS + 2
};

/** Blocks by index in the program; -1: not there yet. */
typedef struct block_ids {
    int embedding[2], attention[2], mlp[2], head[2]; /**< [forward, backward] */
    int prologue, tokens[2], seed, loss, norm_zero, norm_end, kv_sum;
    int zero[ECH_N_UNIT_KINDS], norm[ECH_N_UNIT_KINDS], update[ECH_N_UNIT_KINDS];
    int gather[ECH_N_UNIT_KINDS][ECH_N_PARTS][2];  /**< [start, wait] */
    int scatter[ECH_N_UNIT_KINDS][ECH_N_PARTS][2]; /**< likewise */
    int add[ECH_N_UNIT_KINDS][ECH_N_PARTS];
    int sum[ECH_N_UNIT_KINDS][ECH_N_PARTS][2]
           [2]; /**< of a flat range, over [hsdp, tp], [start, wait] */
} block_ids;

/** Slots that a micro-batch keeps from forward to backward. */
typedef struct kept_slots {
    int *x;     /**< [2 L + 1] inputs of the blocks after the embedding */
    int *saved; /**< [2 L + 1] */
    int d;      /**< gradient of the stream, as far as backward has come */
} kept_slots;

/** One piece of work: a unit's forward or backward of a micro-batch.  A schedule is a list of them;
 *  everything else that depends on order is read off it. */
typedef struct work {
    int unit, micro;
    bool is_backward;
    bool is_first, is_last; /**< of the unit's backwards: gradients begin, are complete */
} work;

/** What is communicated of one part of units [lo, hi]. */
typedef enum transfer_kind { MOVE_SCATTER, MOVE_SUM, MOVE_SUM_BUCKET, MOVE_GATHER } transfer_kind;

/** A transfer in flight: its wait, and what comes after it. */
typedef struct transfer {
    transfer_kind kind;
    ech_part part;
    int lo, hi; /**< units */
    ech_axis axis;
    unsigned done; /**< axes over which the gradient is summed before it */
    bool is_first; /**< scatter: nothing to be added to yet */
    bool is_last;  /**< of this step's reductions of these units */
    int landing;   /**< scatter: slot that it lands in before it is added; -1: in place */
    ech_item wait;
} transfer;

/** Parameters of a unit, whole, from work `first` to work `last`. */
typedef struct gathering {
    int unit, first, last;
    int slot; /**< -1: not started */
    ech_item wait[ECH_N_PARTS];
    int n_waits;
} gathering;

typedef struct compiler {
    ech_compile_spec spec; /**< block.plan points to plan */
    ech_shard_plan plan;
    ech_program *p;
    ech_run_slots *slots;
    block_ids b;
    kept_slots *kept; /**< [micro_batches] */
    int n_kept_blocks;
    ech_segment segment; /**< of items emitted now */
    bool *is_taken;      /**< [n_taken] requests in use */
    int n_taken;
    size_t taken_capacity;
    transfer *moving; /**< [first_moving, n_moving) in flight, oldest first */
    int first_moving, n_moving;
    size_t moving_capacity;
    int bucket_end[ECH_N_PARTS];
    int *whole_grads;  /**< [n_units] transient slot, -1: none */
    gathering *gather; /**< in order of first use */
    int n_gathers, next_gather;
    int first_open, begun; /**< gathers before are over; before that, have come to their use */
    int *gathered;         /**< [n_units] transient slot of whole parameters, -1: none */
    work *order;           /**< [n_work] */
    int n_work;
    int at; /**< work in hand */
} compiler;

/* compile_state.c */
ech_status compile_add_transient(compiler *c, const char *name, ech_class klass, size_t bytes,
                                 int *id);
ech_status compile_add_model_state(compiler *c, bool trains);
ech_status compile_add_batch_state(compiler *c);
ech_status compile_add_generation_state(compiler *c);
/** Bind scalars, constants, scratch; and parameters and gradients as forward and backward see them:
 *  whole. */
ech_status compile_bind_model(compiler *c, ech_item *it, int unit);
/** The same, as updates see them: where they are held between steps. */
ech_status compile_bind_state(compiler *c, ech_item *it, int unit);
/** Where a unit's part begins in the slab of a class; of flat ranges, or whole. */
ech_view compile_in_slab(const compiler *c, int slot, int unit, ech_part part, bool is_shares);
/** Where it begins in a transient slot that holds a whole unit, and that slot's size. */
size_t compile_unit_offset(const compiler *c, int unit, ech_part part);
ech_status compile_add_item(compiler *c, const ech_item *it);
size_t compile_needs(const compiler *c, int block, ech_region region);
/** The lowest request that is not in use. */
ech_status compile_take_request(compiler *c, int *request);
void compile_give_request(compiler *c, int request);

/* compile_order.c */
/** The schedule: forwards alone, each forward with its backward, or all forwards first. */
ech_status compile_plan_order(compiler *c, bool trains);

/* compile_gather.c: nothing where parameters are not sharded */
ech_status compile_plan_gathers(compiler *c);
/** Before the items that use a unit at the work in hand; then compile_bind_model finds it. */
ech_status compile_open_work(compiler *c);
void compile_close_work(compiler *c);

/* compile_reduce.c */
/** Whole gradients of a unit, zero, where they do not outlive it. */
ech_status compile_open_grads(compiler *c, int unit, int micro);
/** A backward is done: reduce the unit's gradient, where its turn has come. */
ech_status compile_reduce_unit(compiler *c, const work *w);
/** Wait for everything that moves. */
ech_status compile_await_all(compiler *c);
/** Updated parameters of a unit back to everybody, where they are held whole. */
ech_status compile_gather_updated(compiler *c, int unit);

#endif
