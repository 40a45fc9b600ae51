/* A step's price in the making.  Not for others. */
#ifndef ECH_PRICE_STEP_PRIVATE_H
#define ECH_PRICE_STEP_PRIVATE_H

#include "price/block_price.h" /* ech_blocks */
#include "price/compose.h"     /* ech_compose_room */
#include "price/step.h"        /* ech_pricer */
#include "price/trained.h"     /* ech_trained */

/* What was composed last, and of what. */
typedef struct step_kept {
    ech_schedule_kind kind;
    int ranks, n; /* n: virtual stages; 0: nothing */
    int64_t micros;
    double hop_s, makespan_s;
    double stage[3][ECH_SHAPE_STAGES]; /* forward, backward, weight */
} step_kept;

struct ech_pricer {
    const ech_job *job; /* borrowed */
    ech_rates rates;
    ech_block_cache *cache;              /* owned */
    double model_flops;                  /* of a step, causal half */
    ech_stage_shape *stage;              /* owned [ECH_SHAPE_STAGES] */
    double *forward, *backward, *weight; /* owned [ECH_SHAPE_STAGES] */
    ech_compose_room room;
    step_kept kept;
};

/* Sums over one virtual stage and micro-batch. */
typedef struct step_stage {
    double work, again;       /* seconds of kernels */
    double weight;            /* of it: gradients of weights */
    double forward, backward; /* with exposed messages of tp, cp, ep and what they slow down */
} step_stage;

/* What is known while a point is priced. */
typedef struct step_state {
    const ech_pricer *pricer;
    const ech_point *point;
    const ech_blocks *blocks;
    int n; /* virtual stages */
    double micros;
    ech_trained trained;
    double last_backward; /* of one micro-batch, the shortest rank's */
    ech_step_price *out;
} step_state;

/* Adds `count` blocks, `again` of them recomputed, to a stage. */
void ech_step_add_blocks(const step_state *s, const ech_block_price *b, double count, double again,
                         step_stage *to);

/* The share of a stage's layers that are computed again. */
double ech_step_again(const ech_point *p, const ech_stage_shape *v);

/* Seconds from one stage to the next. */
double ech_step_hop(const ech_pricer *pricer, const ech_point *p, const ech_blocks *b);

/* Parameters of a pipeline rank, elements: dense and of experts. */
typedef struct step_params {
    double dense, expert;
} step_params;

/* Of the fullest pipeline rank. */
step_params ech_step_params(const step_state *s);

/* Groups of the ranks that share an expert's state: they have the same shards. */
ech_group ech_step_expert_replicas(const ech_point *p);

/* Data parallel messages beside the pipeline (zero 0..2): adds to exposed_s, hidden_s, sent_bytes.
 * Returns exposed seconds. */
double ech_step_replicas(step_state *s);

/* Gathers and scatters of state: rings over all cards, or as the library can. */
ech_collective ech_step_shard_way(const step_state *s);

/* Sharded units (stage 3): lengthens forward and backward of stages, [s->n], by what gathers, scatters
 * and copies take beyond the work that hides them. */
void ech_step_units(step_state *s, double *forward, double *backward);

/* Activations that go to the host and come back: lengthens stages by what work does not hide. */
void ech_step_activations(step_state *s, double *forward, double *backward);

/* Bytes that the fullest rank sends in the pipeline and inside its blocks. */
void ech_step_sent(step_state *s);

/* Seconds of a step that parameters and the optimizer of so many elements of a rank take on their way
 * to the host and back. */
double ech_step_offload(const step_state *s, double elems);

/* Update, offload of state, fixed costs. */
double ech_step_tail(step_state *s);

/* What the step's sum has beside its price. */
typedef struct step_parts {
    double span_s;     /* until the last backward's end */
    double busiest_s;  /* of it, the slowest rank's work */
    double hop_s;      /* from stage to stage */
    double replicas_s; /* reductions that nothing hides */
} step_parts;

/* The derivation of a price that is whole. */
void ech_step_explain(const step_state *s, const step_parts *parts, ech_derivation *notes);

#endif
