#include "tiny.h"
#include "base/rng.h"
#include "lazy_transport.h"
#include "train/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tiny_ok(ech_status st, const char *what)
{
    if (st >= 0)
        return;
    (void)fprintf(stderr, "%s: %s: %s (%s)\n", what, ech_status_name(st), ech_error_message(),
                  ech_error_trail());
    exit(1);
}

ech_model tiny_model(tiny_kind kind, double dropout)
{
    ech_model m = ech_model_default(kind == TINY_GPT2 ? ECH_ARCH_GPT2 : ECH_ARCH_LLAMA);
    ech_findings findings = {0};
    m.layers = 2;
    m.hidden = 12;
    m.heads = kind == TINY_GPT2 ? 3 : 4;
    m.kv_heads = kind == TINY_GPT2 ? 3 : 2;
    m.head_dim = kind == TINY_GPT2 ? 4 : 6; /* llama: not hidden / heads */
    m.ffn = kind == TINY_GPT2 ? 48 : 20;
    m.vocab = 37;
    m.context = 16;
    m.init_std = 0.3; /* far from zero, so that every gradient matters */
    m.dropout = dropout;
    m.tie_embeddings = kind == TINY_GPT2 || kind == TINY_TIED_LLAMA;
    m.rope.interleaved = kind == TINY_LLAMA; /* the others are half-split */
    m.qk_norm = kind == TINY_QWEN;
    m.qkv_bias = kind == TINY_QWEN || kind == TINY_GPT2;
    ech_model_validate(&m, &findings);
    tiny_ok(ech_findings_raise(&findings, ECH_E_CONFIG), "tiny model");
    return m;
}

tiny_spec tiny_spec_default(void)
{
    return (tiny_spec){.kind = TINY_LLAMA,
                       .dp = 1,
                       .accumulation = 1,
                       .rows = 1,
                       .seq = 5,
                       .real = ECH_F64,
                       .optim = ECH_UPDATE_SGD,
                       .bucket_bytes = 1 << 20};
}

ech_layout tiny_layout(const tiny_spec *spec, const ech_model *m)
{
    const int tp = spec->tp ? spec->tp : 1;
    const int pp = spec->pp ? spec->pp : 1;
    const int stages = pp * ech_schedule_chunks(spec->schedule, spec->chunks ? spec->chunks : 1);
    const int ends[2] = {spec->table ? spec->table->rank_of[0] : 0,
                         spec->table ? spec->table->rank_of[spec->table->stages - 1]
                                     : ech_schedule_place(spec->schedule, pp, stages - 1)};
    ech_layout l;
    const ech_layout_spec s = {.tp = tp,
                               .cp = 1,
                               .pp = pp,
                               .tied = {ends[0], m->tie_embeddings ? ends[1] : ends[0]},
                               .dp = spec->dp,
                               .shard_group = spec->shard_group,
                               .kv_share = ech_shard_heads(m->heads, m->kv_heads, tp).copies};
    tiny_ok(ech_layout_make(&s, &l), "layout");
    return l;
}

static ech_session_config session_config(const tiny_spec *spec, const ech_model *model)
{
    ech_session_config c = {.model = model,
                            .seed = 7,
                            .threads = 1,
                            .kernels = spec->kernels,
                            .poison = spec->poison,
                            .has_eval = spec->has_eval,
                            .records = spec->records};
    c.compile = (ech_compile_spec){.block = {.layout = tiny_layout(spec, model),
                                             .policy = spec->policy,
                                             .real = spec->real,
                                             .rows = spec->rows,
                                             .seq = spec->seq,
                                             .optim = spec->optim,
                                             .beta1 = 0.9,
                                             .beta2 = 0.95,
                                             .eps = 1e-8,
                                             .weight_decay = 0.1,
                                             .clip = spec->clip < 0   ? 0.0
                                                     : spec->clip > 0 ? spec->clip
                                                                      : 1.0},
                                   .micro_batches = spec->accumulation,
                                   .schedule = spec->schedule,
                                   .rolls = spec->rolls,
                                   .chunks = spec->chunks,
                                   .group = spec->group,
                                   .table = spec->table,
                                   .stage_layers = spec->stage_layers,
                                   .n_stage_layers = spec->n_stage_layers,
                                   .bucket_bytes = spec->bucket_bytes};
    return c;
}

static ech_model model_of(const tiny_spec *spec)
{
    ech_model model = tiny_model(spec->kind, spec->dropout);
    if (spec->layers)
        model.layers = spec->layers;
    if (spec->heads) {
        model.heads = spec->heads;
        model.kv_heads = spec->kv_heads;
    }
    return model;
}

ech_status tiny_check(const tiny_spec *spec)
{
    const ech_model model = model_of(spec);
    const ech_session_config c = session_config(spec, &model);
    return ech_session_check(&c);
}

void tiny_start_on(const tiny_spec *spec, ech_transport *const *transport, int n_local,
                   ech_session **out)
{
    static ech_model model; /* outlives the session */
    model = model_of(spec);
    const ech_session_config c = session_config(spec, &model);
    tiny_ok(ech_session_create(&c, transport, n_local, out), "session");
}

void tiny_start(const tiny_spec *spec, tiny_run *out)
{
    out->world = spec->dp * (spec->tp ? spec->tp : 1) * (spec->pp ? spec->pp : 1);
    tiny_ok(ech_transport_inproc(out->world, out->transport), "inproc");
    for (int r = 0; r < out->world && spec->gate; r++)
        out->transport[r] = lazy_transport(out->transport[r], spec->gate);
    tiny_start_on(spec, out->transport, out->world, &out->session);
}

void tiny_stop(tiny_run *run)
{
    ech_session_destroy(&run->session);
    for (int r = 0; r < run->world; r++)
        run->transport[r]->destroy(run->transport[r]);
}

void tiny_feed(tiny_run *run, int step, tiny_keep keep, void *user)
{
    ech_session *s = run->session;
    const ech_rng_key key = ech_rng_key_make(3, ECH_RNG_TEST, step, 0);
    const int64_t seq = s->config.compile.block.seq;
    const int64_t rows = s->config.compile.block.rows;
    for (int r = 0; r < s->n_local; r++) {
        int32_t *tokens = ech_session_tokens(s, r);
        int32_t *labels = ech_session_labels(s, r);
        for (int k = 0; k < s->config.compile.micro_batches; k++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t t = 0; t < seq; t++) {
                    const int64_t row =
                        ech_first_row(&s->local[r].klass->program, s->local[r].rank, k) + i;
                    const uint64_t at = (uint64_t)(row * (seq + 1) + t);
                    const int64_t to = (k * rows + i) * seq + t;
                    if (tokens)
                        tokens[to] = (int32_t)(ech_rng_u32(&key, at) % (uint32_t)s->model.vocab);
                    labels[to] = (int32_t)(ech_rng_u32(&key, at + 1) % (uint32_t)s->model.vocab);
                    if (keep && !keep(row, t, user))
                        labels[to] = -1;
                }
    }
}

static void *pooled(size_t bytes)
{
    static void *pool[64];
    static size_t next;
    void **at = &pool[next++ % 64];
    free(*at);
    *at = calloc(bytes, 1);
    return *at;
}

/* The session is only read. */
static ech_held held(const ech_session *s, int i)
{
    return ech_session_held((ech_session *)(uintptr_t)s, i);
}

static void *held_values(const ech_session *s, int i, const ech_held_class *what, int n)
{
    const size_t bytes = (size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real);
    const ech_held h = held(s, i);
    unsigned char *to = pooled((size_t)n * bytes);
    for (int k = 0; k < n; k++)
        ech_held_put(&h, what[k], to + (size_t)k * bytes);
    return to;
}

void tiny_init_model(const ech_model *m, const ech_canon *c, uint64_t seed, ech_dtype dtype,
                     void *out)
{
    for (int k = 0; k < c->n_params; k++)
        ech_init_weights(m, &c->param[k], seed, dtype, (ech_range){0, c->param[k].elems},
                         (unsigned char *)out +
                             (size_t)c->param[k].offset * ech_dtype_bytes(dtype));
}

void *tiny_held_params(const ech_held *h)
{
    void *to = pooled((size_t)h->canon->elems * ech_dtype_bytes(h->real));
    ech_held_put(h, ECH_HELD_PARAMS, to);
    return to;
}

void *tiny_params(const ech_session *s, int i)
{
    return held_values(s, i, (ech_held_class[]){ECH_HELD_PARAMS}, 1);
}

void *tiny_grads(const ech_session *s, int i)
{
    return held_values(s, i, (ech_held_class[]){ECH_HELD_GRADS}, 1);
}

void *tiny_moments(const ech_session *s, int i)
{
    return held_values(s, i, (ech_held_class[]){ECH_HELD_M, ECH_HELD_V}, 2);
}

void *tiny_all(const ech_session *s, ech_held_class what)
{
    unsigned char *to =
        pooled((size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real));
    for (int i = 0; i < s->n_local; i++) {
        const ech_held h = held(s, i);
        ech_held_put(&h, what, to);
    }
    return to;
}

void tiny_set_params(const ech_session *s, int i, const void *canonical)
{
    const ech_held h = held(s, i);
    ech_held_take(&h, ECH_HELD_PARAMS, canonical);
}

double tiny_difference(const ech_session *s, const void *a, const void *b)
{
    double all = 0.0;
    double worst = 0.0;
    const ech_dtype t = s->config.compile.block.real;
    for (int64_t e = 0; e < s->canon.elems; e++)
        all += pow(ech_dtype_load(t, b, (size_t)e), 2.0);
    for (int k = 0; k < s->canon.n_params; k++) {
        const ech_param *p = &s->canon.param[k];
        double d = 0.0;
        double n = 0.0;
        for (int64_t e = p->offset; e < p->offset + p->elems; e++) {
            const double y = ech_dtype_load(t, b, (size_t)e);
            d += pow(ech_dtype_load(t, a, (size_t)e) - y, 2.0);
            n += y * y;
        }
        const double rel = sqrt(d) / fmax(sqrt(n), 1e-6 * sqrt(all));
        worst = !(rel <= worst) ? rel : worst; /* NaN is worst */
    }
    return worst;
}

ech_status tiny_try_step(tiny_run *run, int64_t step, double lr, ech_step_result *out)
{
    const ech_step_request request = {step, step, lr, 1.0, ECH_COMMIT_IF_FINITE, false, false};
    return ech_session_step(run->session, &request, out);
}

ech_step_result tiny_step(tiny_run *run, int64_t step, double lr)
{
    ech_step_result result;
    tiny_ok(tiny_try_step(run, step, lr, &result), "step");
    return result;
}

static void remake_rank(ech_session *s, ech_local_rank *r)
{
    const ech_program *programs[] = {&r->klass->program};
    const size_t bytes = programs[0]->state_bytes[ECH_SPACE_DEVICE];
    void *state = malloc(bytes);
    memcpy(state, ech_engine_state(r->engine, 0), bytes);
    ech_engine_destroy(&r->engine);
    ech_comm_destroy(&r->comm);
    tiny_ok(
        ech_comm_create(r->transport, &programs[0]->layout, programs[0]->n_requests + 1, &r->comm),
        "communicator");
    const ech_engine_config c = {.program = programs,
                                 .n_programs = 1,
                                 .comm = r->comm,
                                 .kernels = &s->kernels,
                                 .rank = r->rank,
                                 .threads = 1,
                                 .seed = s->config.seed,
                                 .poison = s->config.poison};
    tiny_ok(ech_engine_create(&c, &r->engine), "engine");
    memcpy(ech_engine_state(r->engine, 0), state, bytes);
    free(state);
}

void tiny_replace_class(tiny_run *run, int k, ech_program *p)
{
    ech_session *s = run->session;
    ech_program was = s->train.klass[k].program;
    s->train.klass[k].program = *p;
    *p = (ech_program){0};
    for (int i = 0; i < s->n_local; i++)
        remake_rank(s, &s->local[i]);
    ech_program_fini(&was);
}

void tiny_replace(tiny_run *run, ech_program *p)
{
    tiny_replace_class(run, 0, p);
}
