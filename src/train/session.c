#include "train/session.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/virtual.h"
#include "program/fingerprint.h"
#include "train/gather.h"
#include "train/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- creation --- */

static ech_status compile_both(ech_session *s)
{
    ECH_TRY(ech_run_compile(&s->config.compile, ECH_MODE_TRAIN, &s->train));
    if (!s->config.has_eval)
        return ECH_OK;
    ECH_TRY(ech_run_compile(&s->config.compile, ECH_MODE_EVAL, &s->eval));
    ECH_TRY(ech_run_chain(&s->train, &s->eval));
    return ech_run_chain(&s->eval, &s->train);
}

/* Engines run plain programs. */
static ech_status compile_all(ech_session *s)
{
    ECH_TRY(compile_both(s));
    ECH_TRY(ech_run_unroll(&s->train));
    return ech_run_unroll(&s->eval);
}

static ech_status create_rank(ech_session *s, ech_local_rank *r, ech_transport *t)
{
    const ech_run_class *train = ech_run_of(&s->train, t->rank);
    const ech_program *programs[] = {
        &train->program, s->config.has_eval ? &ech_run_of(&s->eval, t->rank)->program : NULL};
    r->rank = t->rank;
    r->transport = t;
    r->klass = train;
    ECH_TRY(ech_comm_create(t, &s->config.compile.block.layout, train->program.n_requests + 1,
                            &r->comm));
    if (s->config.records)
        ECH_TRY(ech_recorder_create(&train->program, t->rank, &r->recorder));
    const ech_engine_config config = {
        .program = programs,
        .n_programs = s->config.has_eval ? 2 : 1,
        .comm = r->comm,
        .kernels = &s->kernels,
        .rank = t->rank,
        .threads = s->config.threads,
        .seed = s->config.seed,
        .poison = s->config.poison,
        .recorder = r->recorder,
    };
    return ech_engine_create(&config, &r->engine);
}

static ech_status init_run(void *user, const ech_held_run *r)
{
    const ech_session *s = user;
    ech_init_weights(&s->model, r->param, s->config.seed, s->config.compile.block.real,
                     (ech_range){r->first, r->first + r->elems}, r->data);
    return ECH_OK;
}

static ech_status fill_state(ech_session *s, int i)
{
    const ech_held held = ech_session_held(s, i);
    ech_held_clear(&held, ECH_HELD_PARAMS);
    ech_held_clear(&held, ECH_HELD_M);
    const int rope = s->local[i].klass->slots.rope;
    if (rope >= 0)
        ech_rope_table_fill(&s->model, s->config.compile.block.seq,
                            ech_engine_state(s->local[i].engine, rope));
    return ech_held_each(&held, ECH_HELD_PARAMS, init_run, s);
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
    char version[16];
    uint64_t seed, train, eval; /* of the programs: fingerprints */
} rank_word;

/* What of it differs from rank 0's, each by its name. */
static ech_status compare_word(const rank_word *a, const rank_word *zero, int rank)
{
    ECH_CHECK(strcmp(a->version, zero->version) == 0, ECH_E_CONFIG,
              "rank %d runs echelon %s, rank 0 echelon %s", rank, a->version, zero->version);
    ECH_CHECK(a->seed == zero->seed, ECH_E_CONFIG, "rank %d has train.seed %llu, rank 0 has %llu",
              rank, (unsigned long long)a->seed, (unsigned long long)zero->seed);
    ECH_CHECK(a->train == zero->train && a->eval == zero->eval, ECH_E_CONFIG,
              "rank %d holds another %s program than rank 0, of the same version and seed: its "
              "gradients are in another order or of other parameters (another configuration or "
              "another build)",
              rank, a->train == zero->train ? "evaluation" : "step");
    return ECH_OK;
}

static ech_status judge(const rank_word *all, int size, ech_status mine)
{
    ECH_TRY(mine);
    for (int r = 0; r < size; r++)
        ECH_CHECK(all[r].status >= 0, (ech_status)all[r].status, "rank %d could not start: %s", r,
                  ech_status_text((ech_status)all[r].status));
    for (int r = 1; r < size; r++)
        ECH_TRY(compare_word(&all[r], &all[0], r));
    return ECH_OK;
}

static uint64_t fingerprint(const ech_run *run)
{
    uint64_t of[2] = {0, 0};
    for (int k = 0; k < run->n_classes; k++) {
        of[1] = ech_program_fingerprint(run->program[k]);
        of[0] = ech_hash64(of, sizeof of);
    }
    return of[0];
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
    rank_word word = {.status = mine, .version = ECH_VERSION, .seed = s->config.seed};
    if (mine >= 0) {
        word.train = fingerprint(&s->train);
        word.eval = fingerprint(&s->eval);
    }
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
        ECH_TRY(fill_state(s, i));
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
        ech_recorder_destroy(&s->local[i].recorder);
    }
    free(s->local);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; s->fuzz_deps[i] && k < s->train.n_classes; k++)
            ech_deps_fini(&s->fuzz_deps[i][k]);
        free(s->fuzz_deps[i]);
    }
    ech_run_fini(&s->train);
    ech_run_fini(&s->eval);
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
    return state(s, i, s->local[i].klass->slots.tokens);
}

int32_t *ech_session_labels(ech_session *s, int i)
{
    return state(s, i, s->local[i].klass->slots.labels);
}

static ech_held held_of(ech_session *s, int rank, ech_engine *engine)
{
    return (ech_held){.canon = &s->canon,
                      .plan = &ech_run_of(&s->train, rank)->plan,
                      .layout = &s->config.compile.block.layout,
                      .slots = &ech_run_of(&s->train, rank)->slots,
                      .form = s->train.form,
                      .real = s->config.compile.block.real,
                      .rank = rank,
                      .engine = engine};
}

ech_held ech_session_held(ech_session *s, int i)
{
    return held_of(s, s->local[i].rank, s->local[i].engine);
}

/* --- collecting --- */

/* The first runs of a rank one after the other, packed or unpacked. */
typedef struct packing {
    unsigned char *packed; /* where the next run goes or comes from */
    unsigned char *whole;  /* unpacking: the model */
    size_t real;
} packing;

static ech_status pack_run(void *user, const ech_held_run *r)
{
    packing *p = user;
    const size_t bytes = (size_t)r->elems * p->real;
    if (!r->is_first)
        return ECH_OK;
    memcpy(p->packed, r->data, bytes);
    p->packed += bytes;
    return ECH_OK;
}

static ech_status unpack_run(void *user, const ech_held_run *r)
{
    packing *p = user;
    const size_t bytes = (size_t)r->elems * p->real;
    if (!r->is_first)
        return ECH_OK;
    memcpy(p->whole + (size_t)(r->param->offset + r->first) * p->real, p->packed, bytes);
    p->packed += bytes;
    return ECH_OK;
}

static ech_status collect_from(ech_session *s, ech_comm *comm, const ech_held *h,
                               ech_held_class what, packing *p)
{
    const bool is_mine = h->engine != NULL;
    const size_t bytes = ech_held_first_bytes(h, what);
    unsigned char *packed = p->packed;
    ech_coll coll = {.kind = is_mine ? ECH_COLL_SEND : ECH_COLL_RECV,
                     .axis = ECH_AXIS_WORLD,
                     .dtype = s->config.compile.block.real,
                     .n = (int64_t)(bytes / p->real),
                     .buf = packed,
                     .peer = is_mine ? 0 : h->rank};
    if (!bytes)
        return ECH_OK;
    if (is_mine)
        ECH_TRY(ech_held_each(h, what, pack_run, p));
    ECH_TRY(ech_gather_pass(s, comm, &coll));
    p->packed = packed;
    if (!is_mine)
        ECH_TRY(ech_held_each(h, what, unpack_run, p));
    p->packed = packed;
    return ECH_OK;
}

/* What a collection needs on one process. */
typedef struct collecting {
    ech_comm *comm;        /* owned */
    unsigned char *buffer; /* owned: of the rank that has most */
} collecting;

static ech_status begin_collecting(ech_session *s, ech_held_class what, collecting *c)
{
    const ech_local_rank *me = &s->local[0];
    size_t most = 1;
    for (int r = 1; r < me->transport->size; r++) {
        const ech_held h = held_of(s, r, NULL);
        const size_t bytes = ech_held_first_bytes(&h, what);
        most = bytes > most ? bytes : most;
    }
    ECH_TRY(ech_calloc(most, 1, &c->buffer));
    return ech_comm_create(me->transport, &s->config.compile.block.layout, 2, &c->comm);
}

static void end_collecting(collecting *c)
{
    ech_comm_destroy(&c->comm);
    free(c->buffer);
}

/* Rank 0 takes the ranks' elements one rank after the other.  After a failure a message may still
 * be on its way, so what it lies in stays: the job is at its end. */
static ech_status collect_over_world(ech_session *s, ech_held_class what, unsigned char *out)
{
    ech_local_rank *me = &s->local[0];
    collecting c = {0};
    packing p = {.whole = out, .real = ech_dtype_bytes(s->config.compile.block.real)};
    const ech_status ready = ech_comm_agree(me->comm, begin_collecting(s, what, &c));
    if (ready < 0) {
        end_collecting(&c);
        return ready;
    }
    p.packed = c.buffer;
    for (int r = 1; r < me->transport->size; r++) {
        const ech_held h = held_of(s, r, r == me->rank ? me->engine : NULL);
        if (me->rank == 0 || me->rank == r)
            ECH_TRY(collect_from(s, c.comm, &h, what, &p));
    }
    end_collecting(&c);
    return ECH_OK;
}

ech_status ech_session_collect(ech_session *s, ech_held_class what, void *out)
{
    const size_t bytes = (size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real);
    if (out)
        memset(out, 0, bytes);
    for (int i = 0; i < s->n_local && out; i++) {
        const ech_held h = ech_session_held(s, i);
        ech_held_put(&h, what, out);
    }
    if (s->n_local > 1 || s->local[0].transport->size == 1)
        return ECH_OK;
    return collect_over_world(s, what, out);
}

/* Elements' hashes are added up, so that no order and no share matters. */
typedef struct hashing {
    const ech_canon *canon;
    size_t real;
    uint64_t sum;
} hashing;

static ech_status hash_run(void *user, const ech_held_run *r)
{
    hashing *h = user;
    for (int64_t e = 0; e < r->elems && r->is_first; e++) {
        uint64_t word[2] = {(uint64_t)(r->param->offset + r->first + e), 0};
        memcpy(&word[1], (const unsigned char *)r->data + (size_t)e * h->real, h->real);
        h->sum += ech_hash64(word, sizeof word);
    }
    return ECH_OK;
}

ech_status ech_session_hash(ech_session *s, ech_held_class what, uint64_t *out)
{
    ech_transport *t = s->local[0].transport;
    hashing h = {&s->canon, ech_dtype_bytes(s->config.compile.block.real), 0};
    uint64_t *all;
    for (int i = 0; i < s->n_local; i++) {
        const ech_held held = ech_session_held(s, i);
        ECH_TRY(ech_held_each(&held, what, hash_run, &h));
    }
    *out = h.sum;
    if (s->n_local == t->size)
        return ECH_OK;
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    const ech_status st = t->exchange(t, &h.sum, sizeof h.sum, all);
    *out = 0;
    for (int r = 0; r < t->size && st >= 0; r++)
        *out += all[r];
    free(all);
    return st;
}

/* --- agreeing --- */

enum { AGREED_BYTES = 512 /* of a message */ };

/* A rank that has the worst status tells its message to those that have not.  Whether all have room
 * for it is agreed on first. */
static ech_status share_words(ech_session *s, ech_status mine, ech_status worst)
{
    ech_transport *t = s->local[0].transport;
    char words[AGREED_BYTES] = "";
    int r = 0;
    char(*all)[AGREED_BYTES] = calloc((size_t)t->size, sizeof *all);
    if (mine == worst)
        (void)snprintf(words, sizeof words, "%s", ech_error_message());
    ech_status st = ech_comm_agree(s->local[0].comm, all ? ECH_OK : ECH_E_NOMEM);
    if (st >= 0)
        st = t->exchange(t, words, sizeof words, all);
    while (st >= 0 && r < t->size && !all[r][0])
        r++;
    if (st >= 0 && mine == worst)
        st = ECH_RAISE(worst, "%s", words);
    else if (st >= 0)
        st = ECH_RAISE(worst, "rank %d: %s", r, r < t->size ? all[r] : ech_status_text(worst));
    free(all);
    return st;
}

ech_status ech_session_agree(ech_session *s, ech_status mine)
{
    if (s->n_local > 1)
        return mine;
    const ech_status worst = ech_comm_agree(s->local[0].comm, mine);
    const bool is_apart = worst == ECH_E_COMM || worst == ECH_E_TIMEOUT; /* nobody may answer */
    if (worst >= 0 || is_apart || s->local[0].transport->size == 1)
        return worst;
    return share_words(s, mine, worst);
}

/* --- flight recorder --- */

void ech_session_set_flight(ech_session *s, ech_flight *flight)
{
    for (int i = 0; i < s->n_local; i++) {
        s->local[i].flight = ech_flight_take(flight, s->local[i].rank);
        ech_engine_set_flight(s->local[i].engine, s->local[i].flight);
    }
}

void ech_session_say(ech_session *s, const char *words, int64_t step)
{
    for (int i = 0; i < s->n_local; i++) {
        s->local[i].step = step;
        ech_flight_post_outside(s->local[i].flight, words, step);
    }
}

void ech_session_say_end(ech_session *s, int exit_code)
{
    for (int i = 0; i < s->n_local; i++)
        ech_flight_post_end(s->local[i].flight, exit_code);
}

static const ech_program *program_of(void *user, int rank, int which)
{
    const ech_session *s = user;
    if (which == 1 && s->config.has_eval)
        return &ech_run_of(&s->eval, rank)->program;
    return which == 0 ? &ech_run_of(&s->train, rank)->program : NULL;
}

ech_status ech_session_explain(const ech_session *s, const ech_flight *flight, ech_explanation *out)
{
    ech_flight_view view;
    char *life = NULL;
    ECH_TRY(ech_flight_look(flight, &view));
    ech_status st = ech_calloc((size_t)view.n_ranks, 1, &life);
    if (st >= 0) {
        ech_explain_look(&view, life);
        const ech_explain_query query = {.view = &view,
                                         .layout = &s->config.compile.block.layout,
                                         .program_of = program_of,
                                         .user = (void *)(uintptr_t)s,
                                         .life = life,
                                         .now_s = ech_clock_s(),
                                         .from = s->local[0].rank};
        st = ech_explain(&query, out);
    }
    free(life);
    ech_flight_view_fini(&view);
    return st;
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
        if (moved)
            ech_flight_post_moved(s->local[0].flight, since);
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
    const ech_run *run = program ? &s->eval : &s->train;
    const ech_virtual_orders orders = {run->program, s->fuzz_deps[program], run->class_of};
    return ech_virtual_fuzz(engine, s->n_local, program, segment, &orders,
                            s->fuzz_seed + (uint64_t)segment);
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

static ech_status run_step(ech_session *s, const ech_step_request *r, ech_step_result *out)
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

ech_status ech_session_step(ech_session *s, const ech_step_request *r, ech_step_result *out)
{
    ECH_ASSERT(!r->records || s->config.records);
    for (int i = 0; i < s->n_local && r->records; i++)
        ech_recorder_begin(s->local[i].recorder);
    const ech_status st = run_step(s, r, out);
    for (int i = 0; i < s->n_local && r->records; i++)
        ech_recorder_end(s->local[i].recorder);
    return st;
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

static ech_status derive_orders(const ech_run *run, ech_deps **out)
{
    if (*out || !run->n_classes)
        return ECH_OK;
    ECH_TRY(ech_calloc((size_t)run->n_classes, sizeof **out, out));
    for (int k = 0; k < run->n_classes; k++)
        ECH_TRY(ech_deps_derive(run->program[k], ECH_DEPS_ON_ADDRESSES, &(*out)[k]));
    return ECH_OK;
}

ech_status ech_session_fuzz(ech_session *s, uint64_t seed)
{
    if (seed) {
        ECH_TRY(derive_orders(&s->train, &s->fuzz_deps[0]));
        ECH_TRY(derive_orders(&s->eval, &s->fuzz_deps[1]));
    }
    s->fuzz_seed = seed;
    return ECH_OK;
}

/* The first micro-batch of local rank i whose loss is not finite, -1: none. */
static int64_t nonfinite_micro(ech_session *s, int i)
{
    const double *losses = state(s, i, s->local[i].klass->slots.losses);
    for (int k = 0; losses && k < s->config.compile.micro_batches; k++)
        if (!isfinite(losses[k]))
            return k;
    return -1;
}

static void note_nonfinite(int r, int64_t at, int *rank, int *micro)
{
    if (at < 0 || *rank >= 0)
        return;
    *rank = r;
    *micro = (int)at;
}

ech_status ech_session_find_nonfinite(ech_session *s, int *rank, int *micro)
{
    ech_transport *t = s->local[0].transport;
    int64_t *all;
    const int64_t mine = nonfinite_micro(s, 0);
    *rank = *micro = -1;
    if (s->n_local == t->size) {
        for (int i = 0; i < s->n_local; i++)
            note_nonfinite(s->local[i].rank, nonfinite_micro(s, i), rank, micro);
        return ECH_OK;
    }
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    const ech_status st = t->exchange(t, &mine, sizeof mine, all);
    for (int r = 0; r < t->size && st >= 0; r++)
        note_nonfinite(r, all[r], rank, micro);
    free(all);
    return st;
}
