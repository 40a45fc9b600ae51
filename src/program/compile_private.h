/** @file program/compile_private.h
 *  The compiler from inside: the order of work (compile_order.c), items of units (compile_unit.c) and of
 *  messages between stages (compile_message.c), state and its slots
 *  (compile_state.c), parameters gathered for their uses (compile_gather.c), gradients reduced
 *  (compile_reduce.c), a rank's program (compile.c), all of a run (compile_run.c).
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
    int embedding[3], attention[3], mlp[3], head[3]; /**< [forward, backward or input, weight] */
    int prologue, tokens[2], seed, loss, norm_zero, norm_end, kv_sum;
    int zero[ECH_N_UNIT_KINDS], norm[ECH_N_UNIT_KINDS], update[ECH_N_UNIT_KINDS];
    int gather[ECH_N_UNIT_KINDS][ECH_N_PARTS][2];  /**< [start, wait] */
    int scatter[ECH_N_UNIT_KINDS][ECH_N_PARTS][2]; /**< likewise */
    int add[ECH_N_UNIT_KINDS][ECH_N_PARTS];
    int sum[ECH_N_UNIT_KINDS][ECH_N_PARTS][3]
           [2]; /**< of a flat range, over [hsdp, tp, tied], [start, wait] */
} block_ids;

/** A virtual stage that this rank has. */
typedef struct unit_chunk {
    int stage;
    int first, end; /**< units */
    int blocks;     /**< of layers and head */
} unit_chunk;

/** Slots that a micro-batch keeps in a chunk, by its blocks of layers and head: the stream before
 *  each and after the last, what they save for I, for W, and from I for W, the gradient of what each
 *  put out. */
typedef struct kept_slots {
    int *slot;   /**< owned [KEPT_KINDS * (blocks + 1)] */
    int d;       /**< gradient of the stream, as far as backward has come */
    int recv[2]; /**< message that brings [the stream, its gradient], -1: none */
} kept_slots;

enum { KEPT_X, KEPT_FB, KEPT_FW, KEPT_BW, KEPT_DOUT, KEPT_KINDS };

/** What of a unit's gradients is complete after a task: those of the micro-batch matter where they
 * are reduced each time. */
typedef enum work_end { ENDS_NOTHING, ENDS_MICRO, ENDS_STEP } work_end;

/** One piece of work: a unit's part in a cell of the schedule.  Everything that depends on order is
 *  read off the list of them. */
typedef struct task {
    ech_work_kind kind;
    int unit, chunk, micro;
    work_end own;   /**< of its unit */
    work_end table; /**< of the embedding, whose table the head adds to */
} task;

/** One end of a message between stages. */
typedef struct message {
    double at; /**< round: when it is made, in units of the schedule */
    bool is_send, is_gradient;
    int peer; /**< pipeline rank */
    int from; /**< virtual stage that makes it */
    int chunk, micro;
    ech_item wait;
} message;

/** What an item sequence is made of. */
typedef enum action_kind { ACTION_TASKS, ACTION_START, ACTION_WAIT } action_kind;

/** Tasks [first, end) of a cell, or a message. */
typedef struct action {
    action_kind kind;
    int first, end;
} action;

/** What is communicated of one part of units [lo, hi]. */
typedef enum transfer_kind { MOVE_SCATTER, MOVE_SUM, MOVE_SUM_BUCKET, MOVE_GATHER } transfer_kind;

/** A transfer in flight: its wait, and what comes after it. */
typedef struct transfer {
    transfer_kind kind;
    ech_part part;
    int lo, hi; /**< units */
    int micro;  /**< scatter: of the gradients, where each is dealt out */
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

/** What all classes of a run are compiled from.  Borrowed. */
typedef struct run_order {
    const ech_stages *stages;
    const ech_schedule *schedule;
    const double *begin; /**< [cells] in units of the schedule */
    const double
        *done; /**< [stages, micros, 2] when [forward, backward or input] is done; -1: never */
} run_order;

typedef struct compiler {
    ech_compile_spec spec; /**< block.plan points to plan */
    run_order run;
    int micros; /**< of the table: fewer than the step's where the program will be rolled */
    int rank;   /**< pipeline rank */
    ech_shard_plan plan;
    unit_chunk chunk[ECH_MAX_CHUNKS];
    int n_chunks;
    ech_program *p;
    ech_run_slots *slots;
    block_ids b;
    kept_slots *kept;   /**< [chunks, micro_batches] */
    int *message_block; /**< owned [pp ranks, 8]: send?, gradient?, wait? */
    message *message;   /**< owned, by round */
    int n_messages;
    action *action; /**< owned */
    int n_actions;
    size_t action_capacity;
    ech_segment segment; /**< of items emitted now */
    bool *is_taken;      /**< [n_taken] requests in use */
    int n_taken;
    size_t taken_capacity;
    transfer *moving; /**< [first_moving, n_moving) in flight, oldest first */
    int first_moving, n_moving;
    size_t moving_capacity;
    int bucket_end[ECH_N_PARTS]; /**< last unit of the next bucket */
    bool *is_complete;           /**< [n_units] its gradients are */
    int n_bucketed;              /**< held units, from the last, that buckets have seen */
    int *n_scattered;            /**< [n_units] times that its gradients were dealt out */
    transfer tied; /**< the tied table's sum over its stages, once everything else is done */
    bool has_tied; /**< there is one */
    int *
        whole_grads; /**< [n_units, micro_batches where each is reduced] transient slot, -1: none */
    gathering *gather; /**< in order of first use */
    int n_gathers, next_gather;
    int first_open, begun; /**< gathers before are over; before that, have come to their use */
    int *gathered;         /**< [n_units] transient slot of whole parameters, -1: none */
    task *order;           /**< [n_work] */
    int n_work;
    int at; /**< work in hand */
} compiler;

/** One rank's program of a run.  Borrowed. */
typedef struct compile_class {
    const ech_compile_spec *spec;
    const run_order *run;
    int rank;           /**< pipeline rank */
    ech_run_class *out; /**< plan is set */
    bool *is_rolled; /**< out: false where the table is of fewer micro-batches than the step and no
                             rounds repeat */
} compile_class;

/* compile.c */
/** Compile and place one program; it is the caller's also on failure (ech_program_fini). */
ech_status compile_program(const compile_class *k, ech_mode mode);

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
/** Tasks, messages and actions of this rank, from the schedule. */
ech_status compile_plan_order(compiler *c);

/** The stage that uses what comes to stage s on the way of step 1 (forward) or -1: s, or past stages
 *  without units as long as its rank has the next one too. */
int compile_user_of(const compiler *c, int s, int step);
/** The number of a stage among this rank's. */
int compile_chunk_of(const compiler *c, int stage);

/* compile_unit.c */
/** Blocks of units, in the roles that the schedule has. */
ech_status compile_add_unit_blocks(compiler *c);
ech_status compile_do_task(compiler *c, const task *t);
kept_slots *compile_kept(compiler *c, int chunk, int micro);
/** Slot k of a kind in it. */
int *compile_kept_slot(const compiler *c, const kept_slots *kp, int chunk, int kind, int k);
/** A new slot of the size of the stream. */
ech_status compile_new_stream(compiler *c, const char *name, ech_class klass, int *id);

/* compile_message.c */
ech_status compile_start_message(compiler *c, message *m);
ech_status compile_await_message(compiler *c, message *m);

/* compile_gather.c: nothing where parameters are not sharded */
ech_status compile_plan_gathers(compiler *c);
/** Before the items that use a unit at the work in hand; then compile_bind_model finds it. */
ech_status compile_open_work(compiler *c);
void compile_close_work(compiler *c);

/* compile_reduce.c */
/** The slot of a unit's whole gradients of a micro-batch. */
int *compile_whole_grads(const compiler *c, int unit, int micro);
/** Whole gradients of a unit, zero, where they do not outlive the micro-batch. */
ech_status compile_open_grads(compiler *c, int unit, int micro);
/** A backward is done: reduce the unit's gradient, where its turn has come. */
ech_status compile_reduce_task(compiler *c, const task *t);
/** Wait for everything that moves. */
ech_status compile_await_all(compiler *c);
/** Updated parameters of a unit back to everybody, where they are held whole. */
ech_status compile_gather_updated(compiler *c, int unit);

#endif
