/* RUN: np=1 timeout=60 tags=fast */
/* stories260K, a trained model with grouped queries: per-token losses of its published greedy text
 * are those of Transformers, and equal to the last bit from llama2.c's file and from the folder
 * made of it; the greedy text is the published one, token by token. */
#include "check.h"
#include "fixture.h"
#include "folder.h"
#include "hf.h"

#include "base/io.h"
#include "base/node.h"
#include "engine/module.h"
#include "train/generate.h"
#include "train/weights.h"

#include <math.h>
#include <stdlib.h>

enum { N = 257, VOCAB = 512, CHUNK = 32 };

static char source[512];          /* llama2.c's file */
static const ech_kernel_set *cpu; /* NULL: not to be had */

/* What the text is, and its mean loss as Transformers computed it. */
typedef struct expected {
    int32_t id[N];
    double mean_nll;
} expected;

static expected read_expected(void)
{
    const char *path = fixture_path("tests/storage/fixtures/stories260k_greedy.json");
    expected e;
    ech_node *root = NULL;
    assert_ok(ech_node_read_file(path, true, &root));
    const ech_node *ids = ech_node_find(root, "ids");
    assert_int_equal(ids->n, N);
    int64_t n = 0;
    for (const ech_node *x = ids->child; x; x = x->next)
        e.id[n++] = (int32_t)x->integer;
    e.mean_nll = ech_node_find(root, "mean_nll")->real;
    ech_node_destroy(&root);
    return e;
}

static ech_generator *open_generator(const char *path, ech_weights *w, const ech_kernel_set *set)
{
    ech_generator *g = NULL;
    assert_ok(ech_weights_open(path, w));
    const ech_generator_config c = {.model = &w->folder.model,
                                    .canon = &w->folder.canon,
                                    .real = ECH_F32,
                                    .context = N,
                                    .chunk = CHUNK,
                                    .kernels = set,
                                    .threads = set ? 2 : 1};
    assert_ok(ech_generator_create(&c, &g));
    const ech_held held = ech_generator_held(g);
    assert_ok(ech_weights_load(w, &held, 1, NULL));
    return g;
}

/* In the precision of the logits, as a loss kernel of fp32 would have it. */
static float loss_of(const float *logits, int32_t id)
{
    float top = logits[0];
    float sum = 0.0f;
    for (int v = 1; v < VOCAB; v++)
        top = logits[v] > top ? logits[v] : top;
    for (int v = 0; v < VOCAB; v++)
        sum += expf(logits[v] - top);
    return top + logf(sum) - logits[id];
}

static void losses_of(const char *path, const ech_kernel_set *set, const expected *e, float *loss)
{
    ech_weights w = {0};
    ech_generator *g = open_generator(path, &w, set);
    for (int64_t at = 0; at < N - 1; at += CHUNK) {
        const int64_t n = N - 1 - at < CHUNK ? N - 1 - at : CHUNK;
        assert_ok(ech_generator_feed(g, e->id + at, n));
        for (int64_t i = 0; i < n; i++)
            loss[at + i] = loss_of(ech_generator_logits(g, i), e->id[at + i + 1]);
    }
    ech_generator_destroy(&g);
    ech_weights_close(&w);
}

static void check_losses(void **state, const ech_kernel_set *set)
{
    float a[N - 1];
    float b[N - 1];
    double sum = 0.0;
    const expected e = read_expected();
    losses_of(source, set, &e, a);
    losses_of(in_folder(state, "hf"), set, &e, b);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < N - 1; i++)
        sum += (double)a[i];
    (void)printf("mean loss %.9f, Transformers %.9f\n", sum / (N - 1), e.mean_nll);
    assert_near(sum / (N - 1), e.mean_nll, 3e-6);
}

static void test_losses_ref(void **state)
{
    check_losses(state, NULL);
}

static void test_losses_cpu(void **state)
{
    if (!cpu)
        skip();
    check_losses(state, cpu);
}

/* --- text --- */

typedef struct check {
    const expected *e;
    int64_t n;
} check;

static ech_status take(void *user, int32_t id)
{
    check *c = user;
    ECH_CHECK(c->n < N && id == c->e->id[c->n], ECH_E_FAILED, "token %lld is %d, wanted %d",
              (long long)c->n, id, c->e->id[c->n]);
    c->n++;
    return ECH_OK;
}

static void check_text(const char *path, const ech_kernel_set *set)
{
    ech_weights w = {0};
    ech_generate_end end;
    const expected e = read_expected();
    check c = {&e, 1};
    ech_generator *g = open_generator(path, &w, set);
    const ech_generate_request request = {.prompt = e.id,
                                          .n_prompt = 1,
                                          .tokens = N - 1,
                                          .vocab = VOCAB,
                                          .end = {1, 2},
                                          .sampling = {.top_p = 1.0},
                                          .take = take,
                                          .user = &c};
    assert_int_equal(e.id[0], 1);
    assert_ok(ech_generate(g, &request, &end));
    assert_int_equal(c.n, N);
    assert_int_equal(end, ECH_GENERATE_TOKENS);
    ech_generator_destroy(&g);
    ech_weights_close(&w);
}

static void test_greedy_tokens(void **state)
{
    check_text(source, NULL);
    check_text(in_folder(state, "hf"), NULL);
    if (cpu) {
        check_text(source, cpu);
        check_text(in_folder(state, "hf"), cpu);
    }
}

static int setup(void **state)
{
    const int failed = folder_setup(state);
    if (!failed)
        hf_make(source, in_folder(state, "hf"));
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_ref),
        cmocka_unit_test(test_losses_cpu),
        cmocka_unit_test(test_greedy_tokens),
    };
    (void)snprintf(source, sizeof source, "%s", shared_path("data/stories260K/stories260K.bin"));
    if (ech_module_kernels("cpu", &cpu) < 0)
        (void)fprintf(stderr, "the cpu part is left out: %s\n", ech_error_message());
    else if (cpu->start && cpu->start(NULL, 2) < 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, setup, folder_teardown);
    if (cpu && cpu->stop)
        cpu->stop();
    return failed;
}
