#include "train/generate.h"
#include "base/checked.h"
#include "engine/engine.h"
#include "program/compile.h"

#include <stdlib.h>
#include <string.h>

struct ech_generator {
    ech_generator_config config;
    ech_program program;
    ech_run_slots slots;
    ech_shard_plan plan;
    ech_kernel_table kernels;
    ech_transport *transport;
    ech_comm *comm;
    ech_engine *engine;
    ech_candidate *candidate; /* [vocab] */
    int64_t position, rows;
};

/* --- creation --- */

static ech_status compile(ech_generator *g)
{
    const ech_generator_config *c = &g->config;
    const ech_compile_spec spec = {.block = {.model = c->model,
                                             .layout = ech_layout_data_parallel(1),
                                             .canon = c->canon,
                                             .real = c->real,
                                             .seq = c->chunk,
                                             .context = c->context}};
    ECH_TRY(ech_compile_generate(&spec, &g->program, &g->slots));
    return ech_compile_plan(&spec, &g->plan);
}

static ech_status create_engine(ech_generator *g)
{
    const ech_program *program = &g->program;
    ECH_TRY(ech_kernel_table_make(g->config.kernels, g->config.real, &g->kernels));
    ECH_TRY(ech_transport_self(&g->transport));
    ECH_TRY(ech_comm_create(g->transport, &g->program.layout, 1, &g->comm));
    const ech_engine_config config = {.program = &program,
                                      .n_programs = 1,
                                      .comm = g->comm,
                                      .kernels = &g->kernels,
                                      .threads = g->config.threads,
                                      .poison = g->config.poison};
    return ech_engine_create(&config, &g->engine);
}

static ech_status init(ech_generator *g, const ech_generator_config *config)
{
    ECH_CHECK(config->context >= 1 && config->context <= config->model->context, ECH_E_ILLEGAL,
              "a cache of %lld tokens: the model has 1..%lld positions", (long long)config->context,
              (long long)config->model->context);
    ECH_CHECK(config->chunk >= 1, ECH_E_ILLEGAL, "%lld tokens at once: wanted 1 or more",
              (long long)config->chunk);
    g->config = *config;
    if (g->config.chunk > g->config.context)
        g->config.chunk = g->config.context;
    ECH_TRY(compile(g));
    ECH_TRY(create_engine(g));
    ECH_TRY(ech_calloc((size_t)config->model->vocab, sizeof *g->candidate, &g->candidate));
    memset(ech_engine_state(g->engine, g->slots.scalars), 0, 8 * (size_t)ECH_N_CELLS);
    if (g->slots.rope >= 0)
        ech_rope_table_fill(config->model, g->config.context,
                            ech_engine_state(g->engine, g->slots.rope));
    return ECH_OK;
}

ech_status ech_generator_create(const ech_generator_config *config, ech_generator **out)
{
    ech_generator *g;
    ECH_TRY(ech_calloc(1, sizeof *g, &g));
    const ech_status st = init(g, config);
    if (st < 0) {
        ech_generator_destroy(&g);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = g;
    return ECH_OK;
}

void ech_generator_destroy(ech_generator **generator)
{
    ech_generator *g = *generator;
    if (!g)
        return;
    ech_engine_destroy(&g->engine);
    ech_comm_destroy(&g->comm);
    if (g->transport)
        g->transport->destroy(g->transport);
    ech_program_fini(&g->program);
    free(g->candidate);
    free(g);
    *generator = NULL;
}

/* --- tokens --- */

ech_held ech_generator_held(ech_generator *g)
{
    return (ech_held){.canon = g->config.canon,
                      .plan = &g->plan,
                      .layout = &g->program.layout,
                      .slots = &g->slots,
                      .real = g->config.real,
                      .engine = g->engine};
}

int64_t ech_generator_position(const ech_generator *g)
{
    return g->position;
}

void ech_generator_rewind(ech_generator *g, int64_t position)
{
    ECH_ASSERT(position >= 0 && position <= g->position);
    g->position = position;
    g->rows = 0;
}

static ech_status check_tokens(const ech_generator *g, const int32_t *ids, int64_t n)
{
    const int64_t vocab = g->config.model->vocab;
    ECH_CHECK(n <= g->config.context - g->position, ECH_E_DATA,
              "%lld tokens more do not fit: the cache holds %lld of %lld", (long long)n,
              (long long)g->position, (long long)g->config.context);
    for (int64_t i = 0; i < n; i++)
        ECH_CHECK(ids[i] >= 0 && ids[i] < vocab, ECH_E_DATA,
                  "token %d at position %lld: the model's vocabulary has ids 0..%lld", ids[i],
                  (long long)(g->position + i), (long long)vocab - 1);
    return ECH_OK;
}

static ech_status feed_chunk(ech_generator *g, const int32_t *ids, int64_t n)
{
    memcpy(ech_engine_state(g->engine, g->slots.tokens), ids, (size_t)n * sizeof *ids);
    ech_engine_set_int(g->engine, ECH_CELL_POSITION, g->position);
    ech_engine_set_int(g->engine, ECH_CELL_NEW_TOKENS, n);
    ech_engine_begin(g->engine, 0, ECH_SEGMENT_ACCUMULATE);
    ECH_TRY(ech_engine_advance(g->engine)); /* no messages: it cannot be blocked */
    g->position += n;
    g->rows = n;
    return ECH_OK;
}

ech_status ech_generator_feed(ech_generator *g, const int32_t *ids, int64_t n)
{
    ECH_TRY(check_tokens(g, ids, n));
    for (int64_t at = 0; at < n; at += g->config.chunk) {
        const int64_t left = n - at;
        ECH_TRY(feed_chunk(g, ids + at, left < g->config.chunk ? left : g->config.chunk));
    }
    return ECH_OK;
}

int64_t ech_generator_rows(const ech_generator *g)
{
    return g->rows;
}

const void *ech_generator_logits(const ech_generator *g, int64_t row)
{
    ECH_ASSERT(row >= 0 && row < g->rows);
    const char *logits = ech_engine_state(g->engine, g->slots.logits);
    return logits + (size_t)(row * g->config.canon->vocab_padded) * ech_dtype_bytes(g->config.real);
}

/* --- texts --- */

/* The number drawn for a token has the position it will stand at as its index. */
static ech_status draw(ech_generator *g, const ech_generate_request *r, int32_t *id)
{
    *id = ech_sample(&r->sampling, g->config.real, ech_generator_logits(g, g->rows - 1), r->vocab,
                     g->position, g->candidate);
    ECH_CHECK(*id >= 0, ECH_E_FAILED,
              "the model gives no finite logits at position %lld: are its weights whole?",
              (long long)g->position);
    return ECH_OK;
}

static ech_status check_request(const ech_generator *g, const ech_generate_request *r)
{
    ECH_TRY(ech_sampling_validate(&r->sampling));
    ECH_CHECK(r->n_prompt > 0 || g->rows > 0, ECH_E_DATA, "a text needs a token to begin with");
    ECH_ASSERT(r->vocab >= 1 && r->vocab <= g->config.model->vocab);
    return ECH_OK;
}

ech_status ech_generate(ech_generator *g, const ech_generate_request *r, ech_generate_end *end)
{
    int32_t id;
    ECH_TRY(check_request(g, r));
    ECH_TRY(ech_generator_feed(g, r->prompt, r->n_prompt));
    for (int64_t n = 0; n < r->tokens; n++) {
        if (n > 0) {
            *end = ECH_GENERATE_CONTEXT;
            if (g->position == g->config.context)
                return ECH_OK;
            ECH_TRY(ech_generator_feed(g, &id, 1));
        }
        ECH_TRY(draw(g, r, &id));
        *end = ECH_GENERATE_END_TOKEN;
        if (id == r->end[0] || id == r->end[1])
            return ECH_OK;
        ECH_TRY(r->take(r->user, id));
    }
    *end = ECH_GENERATE_TOKENS;
    return ECH_OK;
}
