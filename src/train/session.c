#include "train/session.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/virtual.h"
#include "program/fingerprint.h"
#include "train/init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- creation --- */

static ech_status compile_all(ech_session *s)
{
    ech_run_slots again;
    ECH_TRY(ech_compile_train(&s->config.compile, &s->train, &s->slots));
    if (!s->config.has_eval)
        return ECH_OK;
    ECH_TRY(ech_compile_eval(&s->config.compile, &s->eval, &again));
    ECH_TRY(ech_program_chain(&s->train, &s->eval));
    return ech_program_chain(&s->eval, &s->train);
}

static ech_status create_rank(ech_session *s, ech_local_rank *r, ech_transport *t)
{
    const ech_program *programs[] = {&s->train, &s->eval};
    r->rank = t->rank;
    r->transport = t;
    ECH_TRY(ech_comm_create(t, &s->config.compile.block.layout, s->train.n_requests + 1, &r->comm));
    const ech_engine_config config = {
        .program = programs,
        .n_programs = s->config.has_eval ? 2 : 1,
        .comm = r->comm,
        .kernels = &s->kernels,
        .rank = t->rank,
        .threads = s->config.threads,
        .seed = s->config.seed,
        .poison = s->config.poison,
    };
    return ech_engine_create(&config, &r->engine);
}

static void fill_state(ech_session *s, ech_local_rank *r)
{
    const ech_block_spec *b = &s->config.compile.block;
    const size_t real = ech_dtype_bytes(b->real);
    ech_init_weights(&s->model, &s->canon, s->config.seed, b->real, (ech_range){0, s->canon.elems},
                     ech_engine_state(r->engine, s->slots.params));
    if (s->slots.moments >= 0)
        memset(ech_engine_state(r->engine, s->slots.moments), 0, 2 * (size_t)s->canon.elems * real);
    if (s->slots.rope >= 0)
        ech_rope_table_fill(&s->model, b->seq, ech_engine_state(r->engine, s->slots.rope));
}

static ech_status init_programs(ech_session *s, const ech_session_config *config)
{
    s->config = *config;
    s->model = *config->model;
    ECH_TRY(ech_canon_create(&s->model, &s->canon));
    s->config.compile.block.model = &s->model;
    s->config.compile.block.canon = &s->canon;
    return compile_all(s);
}

/* What ranks tell each other before step 0. */
typedef struct rank_word {
    int64_t status;
    uint64_t fingerprint;
} rank_word;

static ech_status judge(const rank_word *all, int size, ech_status mine)
{
    ECH_TRY(mine);
    for (int r = 0; r < size; r++)
        ECH_CHECK(all[r].status >= 0, (ech_status)all[r].status, "rank %d could not start: %s", r,
                  ech_status_text((ech_status)all[r].status));
    for (int r = 0; r < size; r++)
        ECH_CHECK(
            all[r].fingerprint == all[0].fingerprint, ECH_E_CONFIG,
            "rank %d holds another step program or seed than rank 0: its gradients are in another "
            "order or of other parameters",
            r);
    return ECH_OK;
}

/* Every rank joins, also one that failed, so that nobody waits for it.  Ranks that compiled
 * different programs (another build, another configuration) would sum gradients of different
 * parameters. */
static ech_status agree_on_start(const ech_session *s, ech_transport *t, int n_local,
                                 ech_status mine)
{
    rank_word *all = NULL;
    if (n_local != 1 || t->size == 1)
        return mine;
    rank_word word = {.status = mine};
    if (mine >= 0)
        word.fingerprint = ech_program_fingerprint(&s->train) +
                           31 * ech_program_fingerprint(&s->eval) + s->config.seed;
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    ech_status st = t->exchange(t, &word, sizeof word, all);
    if (st >= 0)
        st = judge(all, t->size, mine);
    free(all);
    return st;
}

static ech_status init(ech_session *s, const ech_session_config *config,
                       ech_transport *const *transport, int n_local)
{
    ECH_TRY(init_programs(s, config));
    ECH_TRY(ech_kernel_table_make(config->kernels, config->compile.block.real, &s->kernels));
    ECH_TRY(ech_calloc((size_t)n_local, sizeof *s->local, &s->local));
    for (int i = 0; i < n_local; i++) {
        s->n_local = i + 1;
        ECH_TRY(create_rank(s, &s->local[i], transport[i]));
        fill_state(s, &s->local[i]);
    }
    return ECH_OK;
}

ech_status ech_session_check(const ech_session_config *config)
{
    ech_session *s;
    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    const ech_status st = init_programs(s, config);
    ech_session_destroy(&s);
    return st;
}

ech_status ech_session_create(const ech_session_config *config, ech_transport *const *transport,
                              int n_local, ech_session **out)
{
    ech_session *s;
    ECH_TRY(ech_calloc(1, sizeof *s, &s));
    ech_status st = init(s, config, transport, n_local);
    st = agree_on_start(s, transport[0], n_local, st);
    if (st < 0) {
        ech_session_destroy(&s);
        return st;
    }
    *out = s;
    return ECH_OK;
}

void ech_session_destroy(ech_session **session)
{
    ech_session *s = *session;
    if (!s)
        return;
    for (int i = 0; i < s->n_local; i++) {
        ech_engine_destroy(&s->local[i].engine);
        ech_comm_destroy(&s->local[i].comm);
    }
    free(s->local);
    ech_deps_fini(&s->fuzz_deps[0]);
    ech_deps_fini(&s->fuzz_deps[1]);
    ech_program_fini(&s->train);
    ech_program_fini(&s->eval);
    ech_canon_fini(&s->canon);
    free(s);
    *session = NULL;
}

/* --- state --- */

static void *state(ech_session *s, int i, int slot)
{
    return slot >= 0 ? ech_engine_state(s->local[i].engine, slot) : NULL;
}

int32_t *ech_session_tokens(ech_session *s, int i)
{
    return state(s, i, s->slots.tokens);
}

int32_t *ech_session_labels(ech_session *s, int i)
{
    return state(s, i, s->slots.labels);
}

void *ech_session_params(ech_session *s, int i)
{
    return state(s, i, s->slots.params);
}

void *ech_session_grads(ech_session *s, int i)
{
    return state(s, i, s->slots.grads);
}

void *ech_session_moments(ech_session *s, int i)
{
    return state(s, i, s->slots.moments);
}

/* --- running --- */

static ech_status run_alone(ech_session *s, int program, ech_segment segment)
{
    char where[512];
    ech_engine *e = s->local[0].engine;
    double since = 0.0;
    int turns = 0;
    ech_engine_begin(e, program, segment);
    for (;;) {
        const int64_t before = ech_engine_activity(e);
        const ech_status st = ech_engine_advance(e);
        if (st < 0 || st == ECH_DONE)
            return st;
        const bool moved = ech_engine_activity(e) != before;
        since = moved || since <= 0.0 ? ech_clock_s() : since;
        turns = moved ? 0 : turns + 1;
        ECH_CHECK(s->config.watchdog_s <= 0.0 || ech_clock_s() - since < s->config.watchdog_s,
                  ECH_E_TIMEOUT, "no message for %.0f s: %s", s->config.watchdog_s,
                  ech_engine_describe(e, where, sizeof where));
        ech_clock_backoff(turns);
    }
}

static ech_status run_segment(ech_session *s, int program, ech_segment segment)
{
    ech_engine *engine[ECH_MAX_VIRTUAL];
    if (s->n_local == 1 && !s->fuzz_seed)
        return run_alone(s, program, segment);
    ECH_ASSERT(s->n_local <= ECH_MAX_VIRTUAL);
    for (int i = 0; i < s->n_local; i++)
        engine[i] = s->local[i].engine;
    if (!s->fuzz_seed)
        return ech_virtual_run(engine, s->n_local, program, segment);
    return ech_virtual_fuzz(engine, s->n_local, program, segment, program ? &s->eval : &s->train,
                            &s->fuzz_deps[program], s->fuzz_seed + (uint64_t)segment);
}

/* Scalars that are typed replicated: any rank's are everybody's. */
static void read_result(const ech_session *s, ech_step_result *out)
{
    const ech_engine *e = s->local[0].engine;
    const double scale = ech_engine_get_real(e, ECH_CELL_LOSS_SCALE);
    out->tokens = ech_engine_get_int(e, ECH_CELL_TOKENS);
    out->loss = ech_engine_get_real(e, ECH_CELL_LOSS) / (double)out->tokens;
    out->grad_norm = sqrt(ech_engine_get_real(e, ECH_CELL_GRAD_SQ)) / scale;
    out->is_finite = out->tokens == 0 || (isfinite(out->loss) && isfinite(out->grad_norm));
    out->is_stopping = ech_engine_get_real(e, ECH_CELL_STOP) > 0.0;
    out->is_updated = false;
}

ech_status ech_session_step(ech_session *s, const ech_step_request *r, ech_step_result *out)
{
    for (int i = 0; i < s->n_local; i++) {
        ech_engine *e = s->local[i].engine;
        ech_engine_set_int(e, ECH_CELL_STEP, r->step);
        ech_engine_set_int(e, ECH_CELL_UPDATES, r->updates);
        ech_engine_set_real(e, ECH_CELL_LR, r->lr);
        ech_engine_set_real(e, ECH_CELL_LOSS_SCALE, r->loss_scale);
        ech_engine_set_real(e, ECH_CELL_STOP_LOCAL, r->wants_stop ? 1.0 : 0.0);
    }
    ECH_TRY(run_segment(s, 0, ECH_SEGMENT_ACCUMULATE));
    ECH_TRY(run_segment(s, 0, ECH_SEGMENT_REDUCE));
    read_result(s, out);
    if (r->commit == ECH_COMMIT_NEVER || out->tokens == 0 || !out->is_finite)
        return ECH_OK;
    ECH_TRY(run_segment(s, 0, ECH_SEGMENT_COMMIT));
    out->is_updated = true;
    return ECH_OK;
}

ech_status ech_session_eval(ech_session *s, bool wants_stop, ech_eval_result *out)
{
    ECH_ASSERT(s->config.has_eval);
    for (int i = 0; i < s->n_local; i++) {
        ech_engine_set_real(s->local[i].engine, ECH_CELL_LOSS_SCALE, 1.0);
        ech_engine_set_real(s->local[i].engine, ECH_CELL_STOP_LOCAL, wants_stop ? 1.0 : 0.0);
    }
    ECH_TRY(run_segment(s, 1, ECH_SEGMENT_ACCUMULATE));
    ECH_TRY(run_segment(s, 1, ECH_SEGMENT_REDUCE));
    const ech_engine *e = s->local[0].engine;
    *out = (ech_eval_result){.loss_sum = ech_engine_get_real(e, ECH_CELL_LOSS),
                             .tokens = ech_engine_get_int(e, ECH_CELL_TOKENS),
                             .is_stopping = ech_engine_get_real(e, ECH_CELL_STOP) > 0.0};
    return ECH_OK;
}

ech_status ech_session_fuzz(ech_session *s, uint64_t seed)
{
    const ech_program *programs[] = {&s->train, &s->eval};
    for (int i = 0; i < (s->config.has_eval ? 2 : 1) && seed; i++)
        if (!s->fuzz_deps[i].n)
            ECH_TRY(ech_deps_derive(programs[i], ECH_DEPS_ON_ADDRESSES, &s->fuzz_deps[i]));
    s->fuzz_seed = seed;
    return ECH_OK;
}

void ech_session_find_nonfinite(ech_session *s, int *rank, int *micro)
{
    const int dp = s->config.compile.block.layout.degree[ECH_AXIS_DP];
    const double *by_rank = s->slots.rank_losses >= 0 ? state(s, 0, s->slots.rank_losses) : NULL;
    *rank = *micro = -1;
    for (int r = 0; by_rank && r < dp && *rank < 0; r++)
        if (!isfinite(by_rank[2 * r]))
            *rank = r;
    for (int i = 0; i < s->n_local && *micro < 0; i++) {
        const double *losses = state(s, i, s->slots.losses);
        for (int k = 0; k < s->train.micro_batches && *micro < 0; k++)
            if ((!by_rank || s->local[i].rank == *rank) && !isfinite(losses[k])) {
                *rank = s->local[i].rank;
                *micro = k;
            }
    }
}
