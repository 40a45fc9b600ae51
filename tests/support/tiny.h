/* Tiny models and sessions for tests: one line makes a run of n virtual ranks. */
#ifndef TESTS_TINY_H
#define TESTS_TINY_H

#include "train/session.h" /* ech_session */

/* What kind of tiny model. */
typedef enum tiny_kind {
    TINY_GPT2,
    TINY_LLAMA, /* rotary pairs are neighbours */
    TINY_QWEN,
    TINY_TIED_LLAMA,
    N_TINY
} tiny_kind;

ech_model tiny_model(tiny_kind kind, double dropout);

/* A run of tp x dp x pp virtual ranks. */
typedef struct tiny_spec {
    tiny_kind kind;
    double dropout;
    int heads, kv_heads;     /* 0: the kind's own */
    int layers;              /* 0: the kind's own */
    int tp;                  /* 0: 1 */
    int pp;                  /* 0: 1 */
    bool rolls;              /* programs are compiled rolled */
    int chunks, group;       /* of the schedule; 0: 1, pp */
    const int *stage_layers; /* [n_stage_layers]; NULL: balanced */
    int n_stage_layers;
    const ech_schedule *table; /* of schedule FILE */
    int dp, accumulation;
    int shard_group; /* 0: all of dp */
    ech_shard_policy policy;
    double clip;  /* 0: the default, 1; negative: off */
    int64_t rows; /* sequences a micro-batch */
    int64_t seq;
    ech_dtype real;
    ech_update_rule optim;
    int64_t bucket_bytes;
    ech_schedule_kind schedule;
    bool poison, has_eval;
    bool records; /* steps can be recorded */
    const ech_kernel_set *kernels;
    const struct lazy_gate *gate; /* messages move only while it is open; NULL: always */
} tiny_spec;

typedef struct tiny_run {
    ech_transport *transport[64];
    int world;
    ech_session *session;
} tiny_run;

tiny_spec tiny_spec_default(void);
ech_layout tiny_layout(const tiny_spec *spec, const ech_model *m);
void tiny_start(const tiny_spec *spec, tiny_run *out);

/* Would a run start? */
ech_status tiny_check(const tiny_spec *spec);

/* The session alone, on transports of the caller's (one of a process over MPI). */
void tiny_start_on(const tiny_spec *spec, ech_transport *const *transport, int n_local,
                   ech_session **out);
void tiny_stop(tiny_run *run);

/* Tokens of global row j and their labels, masked by keep(row, position): a fixed pseudo-text. */
typedef bool (*tiny_keep)(int64_t row, int64_t position, void *user);
void tiny_feed(tiny_run *run, int step, tiny_keep keep, void *user);

/* Largest relative difference of two canonical vectors, parameter by parameter:
 * |a - b| / max(|b|, 1e-6 |all b|). */
double tiny_difference(const ech_session *s, const void *a, const void *b);

/* A copy of what local rank i holds of parameters or gradients, as a whole model in canonical order
 * (what it does not hold is 0); of moments m, then v.  It stays until 64 further calls. */
void *tiny_params(const ech_session *s, int i);
void *tiny_grads(const ech_session *s, int i);
void *tiny_moments(const ech_session *s, int i);

/* The same of all local ranks together: of sharded state, everything. */
void *tiny_all(const ech_session *s, ech_held_class what);

/* Initial weights of a whole model, in canonical order: [canon elems] of dtype. */
void tiny_init_model(const ech_model *m, const ech_canon *c, uint64_t seed, ech_dtype dtype,
                     void *out);

/* A copy of what a rank holds of parameters, as tiny_params. */
void *tiny_held_params(const ech_held *h);

/* Put a whole model in canonical order in place of local rank i's parameters. */
void tiny_set_params(const ech_session *s, int i, const void *canonical);

/* One step with these settings; fails the test on an error. */
ech_step_result tiny_step(tiny_run *run, int64_t step, double lr);

/* Put another program in place of the session's training step (moved in; *p is zeroed): same state
 * slots, engines made anew, state kept. */
void tiny_replace(tiny_run *run, ech_program *p);

/* The same for the programs of pipeline rank k. */
void tiny_replace_class(tiny_run *run, int k, ech_program *p);

/* One step that may fail. */
ech_status tiny_try_step(tiny_run *run, int64_t step, double lr, ech_step_result *out);

/* Fail with the message of the last error. */
void tiny_ok(ech_status st, const char *what);

#endif
