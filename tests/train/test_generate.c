/* RUN: np=1 timeout=60 tags=fast */
/* Generation against a cache: its logits are those of the whole pass that training and evaluation
 * make, however the tokens are cut into chunks; texts follow from seed and weights alone. */
#include "check.h"
#include "tiny.h"

#include "train/generate.h"
#include "train/init.h"

#include <math.h>
#include <stdlib.h>

enum { CONTEXT = 16, VOCAB = 37 };

/* Tiny models, and one that looks back three tokens only. */
enum { WINDOWED = N_TINY, N_MODELS };

static ech_model model_of(int kind)
{
    ech_model m = tiny_model(kind == WINDOWED ? TINY_LLAMA : (tiny_kind)kind, 0.0);
    if (kind == WINDOWED)
        m.window = 3;
    return m;
}

/* A generator with random weights (seed 7, as those of a tiny session) and what it stands on. */
typedef struct rig {
    ech_model model;
    ech_canon canon;
    ech_dtype real;
    int64_t chunk;
    ech_generator *g;
    ech_held held;
} rig;

static void rig_open(rig *r, int kind, ech_dtype real, int64_t chunk)
{
    *r = (rig){.model = model_of(kind), .real = real, .chunk = chunk};
    assert_ok(ech_canon_create(&r->model, &r->canon));
    const ech_generator_config c = {.model = &r->model,
                                    .canon = &r->canon,
                                    .real = real,
                                    .context = CONTEXT,
                                    .chunk = chunk,
                                    .threads = 1,
                                    .poison = true};
    assert_ok(ech_generator_create(&c, &r->g));
    r->held = ech_generator_held(r->g);
    void *flat = tiny_held_params(&r->held);
    tiny_init_model(&r->model, &r->canon, 7, real, flat);
    ech_held_take(&r->held, ECH_HELD_PARAMS, flat);
}

static void rig_close(rig *r)
{
    ech_generator_destroy(&r->g);
    ech_canon_fini(&r->canon);
}

static const int32_t words[CONTEXT] = {3, 36, 0, 17, 17, 5, 22, 8, 30, 1, 12, 3, 9, 25, 36, 2};

/* Logits after each of the first n words, [n, VOCAB] of real; owned by the caller. */
static void *all_logits(rig *r, int64_t n)
{
    const size_t row_bytes = VOCAB * ech_dtype_bytes(r->real);
    char *out = calloc((size_t)n, row_bytes);
    ech_generator_rewind(r->g, 0);
    for (int64_t at = 0; at < n; at += r->chunk) {
        const int64_t k = n - at < r->chunk ? n - at : r->chunk;
        assert_ok(ech_generator_feed(r->g, words + at, k));
        assert_int_equal(ech_generator_rows(r->g), k);
        assert_int_equal(ech_generator_position(r->g), at + k);
        for (int64_t i = 0; i < k; i++)
            memcpy(out + (size_t)(at + i) * row_bytes, ech_generator_logits(r->g, i), row_bytes);
    }
    return out;
}

/* --- against the whole pass --- */

/* -log p(word t + 1) of evaluation, which masks every other label. */
static double eval_loss(ech_session *s, int64_t t)
{
    ech_eval_result sum;
    int32_t *labels = ech_session_labels(s, 0);
    for (int64_t i = 0; i < CONTEXT - 1; i++)
        labels[i] = i == t ? words[t + 1] : -1;
    assert_ok(ech_session_eval(s, false, &sum));
    assert_int_equal(sum.tokens, 1);
    return sum.loss_sum;
}

static double loss_of(ech_dtype real, const void *logits, int64_t t)
{
    double sum = 0.0;
    for (int64_t v = 0; v < VOCAB; v++)
        sum += exp(ech_dtype_load(real, logits, (size_t)(t * VOCAB + v)));
    return log(sum) - ech_dtype_load(real, logits, (size_t)(t * VOCAB + words[t + 1]));
}

static ech_session *start_session(const ech_model *m, ech_dtype real, ech_transport **t)
{
    ech_session *s = NULL;
    const ech_session_config c = {.model = m,
                                  .compile = {.block = {.layout = ech_layout_data_parallel(1),
                                                        .real = real,
                                                        .rows = 1,
                                                        .seq = CONTEXT - 1,
                                                        .optim = ECH_UPDATE_SGD},
                                              .micro_batches = 1,
                                              .bucket_bytes = 1 << 20},
                                  .seed = 7,
                                  .threads = 1,
                                  .poison = true,
                                  .has_eval = true};
    assert_ok(ech_transport_self(t));
    assert_ok(ech_session_create(&c, t, 1, &s));
    memcpy(ech_session_tokens(s, 0), words, (CONTEXT - 1) * sizeof words[0]);
    return s;
}

static void check_against_evaluation(int kind, ech_dtype real, double limit)
{
    rig r;
    ech_transport *t;
    rig_open(&r, kind, real, 3);
    ech_session *s = start_session(&r.model, real, &t);
    assert_memory_equal(tiny_params(s, 0), tiny_held_params(&r.held),
                        (size_t)r.canon.elems * ech_dtype_bytes(real));
    void *logits = all_logits(&r, CONTEXT - 1);
    for (int64_t i = 0; i < CONTEXT - 1; i++)
        assert_near(loss_of(real, logits, i), eval_loss(s, i), limit);
    free(logits);
    ech_session_destroy(&s);
    t->destroy(t);
    rig_close(&r);
}

static void test_logits_are_those_of_the_whole_pass(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_MODELS; kind++) {
        check_against_evaluation(kind, ECH_F64, 1e-13);
        check_against_evaluation(kind, ECH_F32, 5e-6);
    }
}

/* --- chunks --- */

static void test_chunks_do_not_matter(void **state)
{
    static const int64_t chunks[] = {1, 3, CONTEXT, 5 * CONTEXT};
    (void)state;
    for (int kind = 0; kind < N_MODELS; kind++)
        for (int wide = 0; wide < 2; wide++) {
            const ech_dtype real = wide ? ECH_F64 : ECH_F32;
            void *first = NULL;
            for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
                rig r;
                rig_open(&r, kind, real, chunks[c]);
                void *logits = all_logits(&r, CONTEXT);
                if (first)
                    assert_memory_equal(logits, first, CONTEXT * VOCAB * ech_dtype_bytes(real));
                rig_close(&r);
                if (c)
                    free(logits);
                else
                    first = logits;
            }
            free(first);
        }
}

static void test_rewinding_forgets(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, TINY_QWEN, ECH_F64, 4);
    double *fresh = all_logits(&r, CONTEXT);
    ech_generator_rewind(r.g, 5);
    assert_ok(ech_generator_feed(r.g, (const int32_t[]){11, 12, 13}, 3));
    assert_true(memcmp(ech_generator_logits(r.g, 0), fresh + 5 * VOCAB, VOCAB * 8) != 0);
    ech_generator_rewind(r.g, 5);
    assert_ok(ech_generator_feed(r.g, words + 5, 3));
    for (int64_t i = 0; i < 3; i++)
        assert_memory_equal(ech_generator_logits(r.g, i), fresh + (5 + i) * VOCAB, VOCAB * 8);
    free(fresh);
    rig_close(&r);
}

/* --- texts --- */

typedef struct written {
    int32_t id[CONTEXT + 1];
    int64_t n;
    int64_t fails_at; /* take refuses the token of this number; -1: none */
} written;

static ech_status take(void *user, int32_t id)
{
    written *w = user;
    if (w->n == w->fails_at)
        return ECH_RAISE(ECH_E_IO, "no more");
    w->id[w->n++] = id;
    return ECH_OK;
}

static ech_generate_request request_of(written *w, double temperature)
{
    *w = (written){.fails_at = -1};
    ech_generate_request q = {.prompt = words,
                              .n_prompt = 4,
                              .tokens = 10,
                              .vocab = VOCAB,
                              .end = {-1, -1},
                              .sampling = ech_sampling_default(),
                              .take = take,
                              .user = w};
    q.sampling.temperature = temperature;
    return q;
}

/* The text of a fresh generator. */
static written write_on(int kind, int64_t chunk, double temperature, uint64_t seed)
{
    rig r;
    written w;
    ech_generate_end end;
    ech_generate_request q = request_of(&w, temperature);
    q.sampling.seed = seed;
    rig_open(&r, kind, ECH_F64, chunk);
    assert_ok(ech_generate(r.g, &q, &end));
    assert_int_equal(end, ECH_GENERATE_TOKENS);
    assert_int_equal(w.n, 10);
    assert_int_equal(ech_generator_position(r.g), 4 + 9); /* the last one is not fed */
    rig_close(&r);
    return w;
}

static void test_texts_do_not_depend_on_chunks(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_MODELS; kind++)
        for (int drawn = 0; drawn < 2; drawn++) {
            const written one = write_on(kind, 1, drawn, 5);
            const written three = write_on(kind, 3, drawn, 5);
            const written all = write_on(kind, CONTEXT, drawn, 5);
            assert_memory_equal(one.id, three.id, sizeof one.id);
            assert_memory_equal(one.id, all.id, sizeof one.id);
        }
    const written a = write_on(TINY_GPT2, 3, 1.0, 5);
    const written b = write_on(TINY_GPT2, 3, 1.0, 6);
    assert_true(memcmp(a.id, b.id, sizeof a.id) != 0);
    const written greedy = write_on(TINY_GPT2, 3, 0.0, 5);
    const written other_seed = write_on(TINY_GPT2, 3, 0.0, 6);
    assert_memory_equal(greedy.id, other_seed.id, sizeof greedy.id);
}

/* Greedy by hand: the largest logit after a prompt that is fed whole each time. */
static void test_greedy_text_by_hand(void **state)
{
    rig r;
    int32_t ids[CONTEXT];
    const written w = write_on(TINY_LLAMA, 3, 0.0, 1);
    (void)state;
    rig_open(&r, TINY_LLAMA, ECH_F64, CONTEXT);
    memcpy(ids, words, sizeof ids);
    for (int64_t n = 4; n < 14; n++) {
        ech_generator_rewind(r.g, 0);
        assert_ok(ech_generator_feed(r.g, ids, n));
        const double *x = ech_generator_logits(r.g, n - 1);
        int32_t best = 0;
        for (int32_t v = 1; v < VOCAB; v++)
            best = x[v] > x[best] ? v : best;
        assert_int_equal(w.id[n - 4], best);
        ids[n] = best;
    }
    rig_close(&r);
}

static void test_ends(void **state)
{
    rig r;
    written w;
    ech_generate_end end;
    const written whole = write_on(TINY_LLAMA, 3, 1.0, 5);
    (void)state;
    rig_open(&r, TINY_LLAMA, ECH_F64, 3);
    for (int which = 0; which < 2; which++) { /* either id ends it, at its first place */
        ech_generate_request q = request_of(&w, 1.0);
        int64_t first = 0;
        q.sampling.seed = 5;
        q.end[which] = whole.id[6];
        while (whole.id[first] != whole.id[6])
            first++;
        ech_generator_rewind(r.g, 0);
        assert_ok(ech_generate(r.g, &q, &end));
        assert_int_equal(end, ECH_GENERATE_END_TOKEN);
        assert_int_equal(w.n, first);
        assert_memory_equal(w.id, whole.id, (size_t)first * sizeof w.id[0]);
    }
    ech_generate_request q = request_of(&w, 1.0); /* the cache is full: one more was drawn */
    q.tokens = 100;
    ech_generator_rewind(r.g, 0);
    assert_ok(ech_generate(r.g, &q, &end));
    assert_int_equal(end, ECH_GENERATE_CONTEXT);
    assert_int_equal(w.n, CONTEXT - 4 + 1);
    q = request_of(&w, 1.0);
    w.fails_at = 3;
    ech_generator_rewind(r.g, 0);
    assert_fails(ech_generate(r.g, &q, &end), ECH_E_IO, "no more");
    assert_int_equal(w.n, 3);
    rig_close(&r);
}

/* Rows of the head beyond the vocabulary may hold anything: they are never drawn, nor do they
 * change what is. */
static void test_padding_is_never_drawn(void **state)
{
    rig r;
    written w;
    ech_generate_end end;
    const written clean = write_on(TINY_LLAMA, 3, 5.0, 1);
    ech_generate_request q = request_of(&w, 5.0);
    (void)state;
    rig_open(&r, TINY_LLAMA, ECH_F64, 3);
    const ech_param *head = ech_canon_find(&r.canon, ECH_PARAM_HEAD, -1);
    double *flat = tiny_held_params(&r.held);
    double *x = flat + head->offset;
    assert_int_equal(head->dim[0], 128);
    for (int64_t i = VOCAB * head->dim[1]; i < head->elems; i++)
        x[i] = i % 2 ? 1e6 : -1e6;
    ech_held_take(&r.held, ECH_HELD_PARAMS, flat);
    assert_ok(ech_generate(r.g, &q, &end));
    assert_memory_equal(w.id, clean.id, sizeof w.id);
    q = request_of(&w, 5.0); /* a smaller tokenizer's ids alone */
    q.vocab = 7;
    ech_generator_rewind(r.g, 0);
    assert_ok(ech_generate(r.g, &q, &end));
    for (int64_t i = 0; i < w.n; i++)
        assert_in_range(w.id[i], 0, 6);
    rig_close(&r);
}

/* --- refusals --- */

static void test_refusals(void **state)
{
    rig r;
    written w;
    ech_generate_end end;
    ech_generate_request q = request_of(&w, 1.0);
    (void)state;
    rig_open(&r, TINY_LLAMA, ECH_F64, 3);
    assert_ok(ech_generator_feed(r.g, words, 10));
    assert_fails(ech_generator_feed(r.g, words, 7), ECH_E_DATA, "the cache holds 10 of 16");
    assert_fails(ech_generator_feed(r.g, (const int32_t[]){1, VOCAB}, 2), ECH_E_DATA,
                 "token 37 at position 11: the model's vocabulary has ids 0..36");
    assert_fails(ech_generator_feed(r.g, (const int32_t[]){-1}, 1), ECH_E_DATA, "token -1");
    assert_int_equal(ech_generator_position(r.g), 10);
    ech_generator_rewind(r.g, 0);
    q.n_prompt = 0;
    assert_fails(ech_generate(r.g, &q, &end), ECH_E_DATA, "a token to begin with");
    q = request_of(&w, -1.0);
    assert_fails(ech_generate(r.g, &q, &end), ECH_E_USAGE, "temperature -1");
    double *x = tiny_held_params(&r.held);
    for (int64_t i = 0; i < r.canon.elems; i++)
        x[i] = NAN;
    ech_held_take(&r.held, ECH_HELD_PARAMS, x);
    q = request_of(&w, 1.0);
    assert_fails(ech_generate(r.g, &q, &end), ECH_E_FAILED, "no finite logits at position 4");
    assert_int_equal(w.n, 0);
    rig_close(&r);
}

static void test_sizes(void **state)
{
    rig r;
    ech_generator *g = NULL;
    (void)state;
    rig_open(&r, TINY_GPT2, ECH_F32, 3);
    ech_generator_config c = {
        .model = &r.model, .canon = &r.canon, .real = ECH_F32, .context = 17, .chunk = 1};
    assert_fails(ech_generator_create(&c, &g), ECH_E_ILLEGAL, "the model has 1..16 positions");
    c.context = 0;
    assert_fails(ech_generator_create(&c, &g), ECH_E_ILLEGAL, "a cache of 0 tokens");
    c.context = 16;
    c.chunk = 0;
    assert_fails(ech_generator_create(&c, &g), ECH_E_ILLEGAL, "0 tokens at once");
    assert_null(g);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_those_of_the_whole_pass),
        cmocka_unit_test(test_chunks_do_not_matter),
        cmocka_unit_test(test_rewinding_forgets),
        cmocka_unit_test(test_texts_do_not_depend_on_chunks),
        cmocka_unit_test(test_greedy_text_by_hand),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_padding_is_never_drawn),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
