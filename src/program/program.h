/** @file program/program.h
 *  Blocks and the step program: the step as data (docs/architecture.md).
 *
 *  A block is a straight-line list of ops for one kind of model piece in one role; it knows neither
 *  its layer nor any address.  A step program is, per rank class, a list of items: a block bound to
 *  slots for a layer, chunk and micro-batch.  Transfers are blocks of one communication op.  Slots
 *  are state (laid out once per run, shared by all programs of it) or transient (per program).
 *  Pure data; no MPI, no kernels.  Every call is local. */
#ifndef ECH_PROGRAM_PROGRAM_H
#define ECH_PROGRAM_PROGRAM_H

#include "base/checked.h" /* ech_status, growth */
#include "program/op.h"   /* ech_op */

/** Memory spaces, each with one arena and one cap. */
#define ECH_SPACE_LIST(X)                                                                          \
    X(ECH_SPACE_DEVICE, "device") X(ECH_SPACE_HOST, "host") X(ECH_SPACE_NVME, "nvme")
typedef enum ech_space {
#define ECH_SPACE_ENUM(name, text) name,
    ECH_SPACE_LIST(ECH_SPACE_ENUM)
#undef ECH_SPACE_ENUM
        ECH_N_SPACES
} ech_space;

/** Memory classes: a tag on the slot. */
#define ECH_CLASS_LIST(X)                                                                          \
    X(ECH_CLASS_PARAMS, "params")                                                                  \
    X(ECH_CLASS_GRADS, "grads")                                                                    \
    X(ECH_CLASS_MASTER, "master")                                                                  \
    X(ECH_CLASS_OPTIMIZER, "optimizer")                                                            \
    X(ECH_CLASS_ACTIVATIONS, "activations")                                                        \
    X(ECH_CLASS_BUFFERS, "buffers")
typedef enum ech_class {
#define ECH_CLASS_ENUM(name, text) name,
    ECH_CLASS_LIST(ECH_CLASS_ENUM)
#undef ECH_CLASS_ENUM
        ECH_N_CLASSES
} ech_class;

/** Segments of a step; the host may branch between them on replicated scalars only. */
typedef enum ech_segment {
    ECH_SEGMENT_ACCUMULATE, /**< forward and backward of every micro-batch */
    ECH_SEGMENT_REDUCE,     /**< last waits, norm, check */
    ECH_SEGMENT_COMMIT,     /**< update; skipped where the check says so */
    ECH_N_SEGMENTS
} ech_segment;

/** What a block is of its model piece. */
typedef enum ech_role {
    ECH_ROLE_FORWARD,
    ECH_ROLE_BACKWARD,
    ECH_ROLE_BACKWARD_INPUT,
    ECH_ROLE_BACKWARD_WEIGHT,
    ECH_ROLE_RECOMPUTE,
    ECH_ROLE_UPDATE,
    ECH_ROLE_TRANSFER,
    ECH_ROLE_HOST_SCALARS /**< counts, seeds, norms */
} ech_role;

enum { ECH_ALIGN = 64 /**< bytes: alignment of every slot and of WORK operands */ };

/** A block.  Owned by its program. */
typedef struct ech_block {
    char name[48]; /**< "attention forward" */
    ech_role role;
    ech_op *op; /**< owned */
    int n_ops;
    size_t capacity;
    size_t region_bytes[ECH_N_REGIONS]; /**< size each region must have where bound */
} ech_block;

/** A slot: a named range of bytes in one space. */
typedef struct ech_slot {
    char name[48];
    ech_space space;
    ech_class klass;
    bool is_state;    /**< outlives the step */
    bool is_constant; /**< state that no step changes (rotary tables) */
    bool is_scratch;  /**< state whose contents a step may not rely on at its start */
    bool is_copy;     /**< state that ranks of another class hold too: they measure its gradient */
    size_t bytes;
    ech_placement place; /**< of state slots at the start of a step */
    size_t offset;       /**< in the space's arena, set by ech_program_place */
    int first, last;     /**< transient: first and last item that touches it (set with offset) */
    size_t micro_bytes;  /**< dealt out by micro-batches: bytes of each; 0: it is not */
    int ring; /**< elements of micro_bytes that micro-batches take in turn, m the one of m mod ring;
                   0: each has its own */
} ech_slot;

/** A place in a slot; slot < 0: unbound. */
typedef struct ech_view {
    int slot;
    size_t offset;
} ech_view;

/** One invocation. */
typedef struct ech_item {
    int block;
    int layer; /**< -1 outside layers */
    int chunk;
    int micro; /**< -1 outside micro-batches */
    ech_segment segment;
    int request; /**< its ops' requests begin here: they link a start with its wait; -1: none */
    ech_view bind[ECH_N_REGIONS];
} ech_item;

/** Items that are run over and over: each time as the time before, `step` micro-batches on. */
typedef struct ech_repeat {
    int first, end; /**< the items of one round */
    int times;      /**< 0: nothing is repeated */
    int step;       /**< micro-batches from round to round */
} ech_repeat;

/** Typed states of the run at a program's border; programs chain only where they match. */
#define ECH_BORDER_LIST(X)                                                                         \
    X(ECH_BORDER_WEIGHTS_WHOLE, "weights: whole")                                                  \
    X(ECH_BORDER_WEIGHTS_SHARDED, "weights: sharded")                                              \
    X(ECH_BORDER_WEIGHTS_GATHERED, "weights: gathered")
typedef enum ech_border {
#define ECH_BORDER_ENUM(name, text) name,
    ECH_BORDER_LIST(ECH_BORDER_ENUM)
#undef ECH_BORDER_ENUM
} ech_border;

/** A step program of one rank class. */
typedef struct ech_program {
    char name[32]; /**< "train", "eval", "generate" */
    ech_layout layout;
    ech_block *block; /**< owned */
    int n_blocks;
    size_t block_capacity;
    ech_slot *slot; /**< owned; state slots first, the same list in all programs of a run */
    int n_slots;
    size_t slot_capacity;
    int n_state;    /**< slots [0, n_state) are state */
    int scalars;    /**< slot of the scalar table, -1: none */
    ech_item *item; /**< owned */
    int n_items;
    size_t item_capacity;
    int n_requests;
    ech_repeat
        repeat; /**< of a rolled program (program/repeat.h): where its views are of slots dealt
                            out by micro-batches, they are relative to the item's own element */
    ech_repeat rounds; /**< of one that was unrolled: the first of `times` rounds, which follow each
                            other in the list of items */
    int micro_batches;
    int64_t rows_per_micro; /**< sequences in a micro-batch */
    ech_border before, after;
    size_t state_bytes[ECH_N_SPACES];     /**< set by ech_program_place */
    size_t transient_bytes[ECH_N_SPACES]; /**< arena above the state */
    size_t peak_live_bytes[ECH_N_SPACES]; /**< transient bytes alive at the fullest item */
} ech_program;

/* --- building --- */

/** An empty program; name and layout are copied. */
void ech_program_init(ech_program *p, const char *name, const ech_layout *l);

/** Release and zero. */
void ech_program_fini(ech_program *p);

/** Add a slot; state slots must come before transient ones.
 *  @param p     in/out
 *  @param slot  copied
 *  @param id    out: its index
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_ILLEGAL (a state slot after transient ones) */
ECH_MUST_USE ech_status ech_program_add_slot(ech_program *p, const ech_slot *slot, int *id);

/** Take over a block (moved; *block is zeroed); *id is its index.
 *  @return ECH_OK | ECH_E_PROOF (an op against its shape law) | ECH_E_NOMEM; *block stays the
 *          caller's on failure */
ECH_MUST_USE ech_status ech_program_add_block(ech_program *p, ech_block *block, int *id);

/** Append an item (copied).  Bindings are checked: a region the block uses must be bound to a view
 *  that has room for it.
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_PROOF naming item and region */
ECH_MUST_USE ech_status ech_program_add_item(ech_program *p, const ech_item *item);

/** An item with nothing bound. */
ech_item ech_item_make(int block, ech_segment segment);

/* --- placing --- */

/** Lay out state slots one after the other and transient slots by their lifetimes (program order),
 *  and set offsets, sizes and peaks.
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_INFEASIBLE over a cap (0: no cap) */
ECH_MUST_USE ech_status ech_program_place(ech_program *p, const size_t cap_bytes[ECH_N_SPACES]);

/** Lay out state slots anew where their sizes have changed, transient ones keep their places above
 *  them; and find lives. */
void ech_program_settle(ech_program *p);

/* --- reading --- */

/** Bytes [begin, end) of a slot; slot < 0 for no memory. */
typedef struct ech_extent {
    int slot;
    size_t begin, end;
} ech_extent;

/** What an operand of an item touches, at some coordinate. */
ech_extent ech_item_extent(const ech_program *p, const ech_item *item, const ech_operand *a);

/** The cell that a leading extent is read from, which is no operand; slot < 0: its bound. */
ech_extent ech_item_extent_cell(const ech_program *p, const ech_operand *a);

/** The kernel workspace of an op of an item, which is no operand. */
ech_extent ech_item_work(const ech_program *p, const ech_item *item, const ech_op *op);

/** "item 37 (attention backward, layer 3, micro-batch 1)" into buf; returns buf. */
const char *ech_item_describe(const ech_program *p, int item, char *buf, size_t n);

/** "activations" and the like; static storage. */
const char *ech_class_name(ech_class c);

/** "device", "host" or "nvme"; static storage. */
const char *ech_space_name(ech_space s);

/** "weights: whole" and the like; static storage. */
const char *ech_border_name(ech_border b);

/** "accumulate", "reduce", "commit"; static storage. */
const char *ech_segment_name(ech_segment s);

/** May `next` follow `prev`: the same state slots (space, bytes, class, placement), and after
 *  matches before.
 *  @return ECH_OK | ECH_E_PROOF with both borders, or the slot */
ECH_MUST_USE ech_status ech_program_chain(const ech_program *prev, const ech_program *next);

/** Find what lives when, and give state its places, without packing what is transient: enough for
 *  ech_program_memory, not to run. */
void ech_program_find_lives(ech_program *p);

/** Predicted memory of one space: bytes asked for by slots, by class. */
typedef struct ech_memory {
    size_t at_peak[ECH_N_CLASSES]; /**< by class at the instant of the peak */
    size_t own_max[ECH_N_CLASSES]; /**< each class's own maximum */
    size_t total;                  /**< sum of at_peak */
    size_t arena; /**< state + transient arena, padding and packing loss included */
    size_t state; /**< what lives from step to step */
    size_t
        peak_of[ECH_N_SEGMENTS]; /**< total at the fullest moment of each segment; 0: it has none */
    int peak_item;
} ech_memory;

/** Follow lives through a placed program.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_program_memory(const ech_program *p, ech_space space, ech_memory *out);

/** Predicted traffic that a rank sends in one run of the program, by axis. */
void ech_program_traffic(const ech_program *p, int rank, ech_traffic out[ECH_N_AXES]);

/** Items and ops of one run: those of rounds as often as they are run. */
void ech_program_count(const ech_program *p, int64_t *items, int64_t *ops);

/** FLOPs of one run at the bounds. */
double ech_program_flops(const ech_program *p);

#endif
