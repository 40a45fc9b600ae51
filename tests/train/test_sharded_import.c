/* RUN: np=1 timeout=120 tags=fast */
/* stories260K imported onto many layouts: every logit of its published greedy text is one rank's
 * (fp64, 1e-11), and the most likely next tokens are the published ones. */
#include "check.h"
#include "fixture.h"

#include "base/node.h"
#include "train/session.h"
#include "train/weights.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 2, SEQ = 128, VOCAB = 512, TEXT = 257 };

static char source[512]; /* llama2.c's file */
static int32_t text[TEXT];

/* What the loss kernel is handed, put where it belongs; a column no rank has stays NaN. */
static double logits[ROWS * SEQ][VOCAB];
static ech_kernel real_kernel;

static void spy(const ech_kernel_call *call)
{
    const ech_tensor *x = &call->arg[0];
    const int64_t first_row = call->rng.row0 * SEQ;
    for (int64_t n = 0; n < x->dim[0]; n++)
        for (int64_t v = 0; v < x->dim[1]; v++)
            if (call->attr[1] + v < VOCAB)
                logits[first_row + n][call->attr[1] + v] =
                    ((const double *)x->data)[n * x->dim[1] + v];
    real_kernel(call);
}

static void read_text(void)
{
    ech_node *root = NULL;
    assert_ok(ech_node_read_file(fixture_path("tests/storage/fixtures/stories260k_greedy.json"),
                                 true, &root));
    const ech_node *ids = ech_node_find(root, "ids");
    assert_int_equal(ids->n, TEXT);
    int n = 0;
    for (const ech_node *x = ids->child; x; x = x->next)
        text[n++] = (int32_t)x->integer;
    ech_node_destroy(&root);
}

#define ALONE 1, ECH_SCHEDULE_1F1B, 1

typedef struct layout_row {
    int tp, dp, group;
    ech_shard_policy policy;
    int pp;
    ech_schedule_kind schedule;
    int chunks;
} layout_row;

static ech_session_config config_of(const layout_row *row, const ech_model *m)
{
    const int last = row->schedule == ECH_SCHEDULE_ZB_V ? 0 : row->pp - 1; /* the tables are tied */
    const ech_layout_spec l = {.tp = row->tp,
                               .cp = 1,
                               .pp = row->pp,
                               .tied = {0, last},
                               .dp = row->dp,
                               .shard_group = row->group,
                               .kv_share = ech_shard_heads(m->heads, m->kv_heads, row->tp).copies};
    ech_session_config c = {.model = m, .threads = 1, .has_eval = true, .poison = true};
    c.compile.block = (ech_block_spec){
        .policy = row->policy, .real = ECH_F64, .rows = ROWS / row->dp, .seq = SEQ};
    c.compile.micro_batches = 1;
    c.compile.schedule = row->schedule;
    c.compile.chunks = row->chunks;
    c.compile.bucket_bytes = 1 << 20;
    assert_ok(ech_layout_make(&l, &c.compile.block.layout));
    return c;
}

static void feed(ech_session *s)
{
    for (int i = 0; i < s->n_local; i++) {
        const int64_t row = ech_first_row(&s->eval.klass[0].program, s->local[i].rank, 0);
        for (int64_t k = 0; k < s->config.compile.block.rows * SEQ; k++) {
            if (ech_session_tokens(s, i)) /* first stages alone take them */
                ech_session_tokens(s, i)[k] = text[row * SEQ + k];
            ech_session_labels(s, i)[k] = text[row * SEQ + k + 1];
        }
    }
}

static double evaluate(const layout_row *row)
{
    ech_weights w = {0};
    ech_transport *t[64];
    ech_eval_result r;
    ech_session *s = NULL;
    ech_held held[64];
    const int world = row->tp * row->dp * row->pp;
    assert_ok(ech_weights_open(source, &w));
    const ech_session_config c = config_of(row, &w.folder.model);
    assert_ok(ech_transport_inproc(world, t));
    assert_ok(ech_session_create(&c, t, world, &s));
    for (int i = 0; i < world; i++)
        held[i] = ech_session_held(s, i);
    assert_ok(ech_weights_load(&w, held, world, NULL));
    for (int64_t i = 0; i < ROWS * SEQ; i++)
        for (int v = 0; v < VOCAB; v++)
            logits[i][v] = (double)NAN;
    real_kernel = s->kernels.kernel[ECH_OP_XENT_SHARD];
    s->kernels.kernel[ECH_OP_XENT_SHARD] = spy;
    feed(s);
    assert_ok(ech_session_eval(s, false, &r));
    ech_session_destroy(&s);
    for (int i = 0; i < world; i++)
        t[i]->destroy(t[i]);
    ech_weights_close(&w);
    return r.loss_sum;
}

static void test_logits_on_every_layout(void **state)
{
    static const layout_row rows[] = {
        {2, 1, 0, {.zero_stage = 0}, ALONE},
        {4, 1, 0, {.is_sequence_parallel = true}, ALONE},
        {8,
         1,
         0,
         {.is_sequence_parallel = true, .keeps_inputs = true},
         ALONE}, /* 4 key/value heads */
        {1, 2, 0, {.zero_stage = 3, .prefetch = 1}, ALONE},
        {2, 2, 0, {.is_sequence_parallel = true, .zero_stage = 3}, ALONE},
        {4, 2, 1, {.zero_stage = 1}, ALONE},
        {8, 2, 0, {.is_sequence_parallel = true, .zero_stage = 3, .prefetch = 2}, ALONE},
        {1, 1, 0, {.zero_stage = 0}, 2, ECH_SCHEDULE_1F1B, 1},
        {2, 2, 0, {.zero_stage = 1}, 2, ECH_SCHEDULE_ZB_H1, 1},
        {1, 2, 0, {.zero_stage = 3}, 2, ECH_SCHEDULE_ZB_V, 2},
        {4, 1, 0, {.is_sequence_parallel = true}, 5, ECH_SCHEDULE_GPIPE, 1},
    };
    static double want[ROWS * SEQ][VOCAB];
    const layout_row alone = {1, 1, 0, {0}, ALONE};
    (void)state;
    const double loss = evaluate(&alone);
    memcpy(want, logits, sizeof want);
    for (int i = 0; i < SEQ; i++) { /* the text from its beginning: row 0 */
        int best = 0;
        for (int v = 1; v < VOCAB; v++)
            best = want[i][v] > want[i][best] ? v : best;
        assert_int_equal(best, text[i + 1]);
    }
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        assert_near(evaluate(&rows[k]), loss, 1e-10);
        for (int64_t i = 0; i < ROWS * SEQ; i++)
            for (int v = 0; v < VOCAB; v++)
                assert_near(logits[i][v], want[i][v], 1e-11 * 30.0); /* logits reach 30 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits_on_every_layout)};
    (void)snprintf(source, sizeof source, "%s", shared_path("data/stories260K/stories260K.bin"));
    read_text();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
