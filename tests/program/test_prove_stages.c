/* RUN: np=1 timeout=120 tags=fast */
/* The whole proof of compiled pipelines, and faults put into one of their programs. */
#include "check.h"
#include "mutants.h"
#include "tiny.h"
#include "program/compile.h"
#include "program/prove.h"

#include <stdlib.h>
#include <string.h>

/* What a pipeline is compiled from. */
typedef struct wanted {
    tiny_kind kind;
    ech_schedule_kind schedule;
    int pp, chunks, micros, tp, dp;
    bool is_tied;
} wanted;

typedef struct made {
    ech_model model;
    ech_canon canon;
    ech_compile_spec spec;
    ech_prove_report report;
    ech_run run;
} made;

static made *make(const wanted *w)
{
    made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->model = tiny_model(w->kind, 0.0);
    m->model.layers = 6;
    m->model.tie_embeddings = w->is_tied;
    assert_ok(ech_canon_create(&m->model, &m->canon));
    const int last = w->schedule == ECH_SCHEDULE_ZB_V ? 0 : w->pp - 1;
    const ech_layout_spec layout = {.tp = w->tp,
                                    .cp = 1,
                                    .pp = w->pp,
                                    .dp = w->dp,
                                    .tied = {0, w->is_tied ? last : 0},
                                    .kv_share = 1};
    m->spec = (ech_compile_spec){.block = {.model = &m->model,
                                           .canon = &m->canon,
                                           .real = ECH_F64,
                                           .rows = 2,
                                           .seq = 6,
                                           .optim = ECH_UPDATE_ADAMW,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .weight_decay = 0.1,
                                           .clip = 1.0},
                                 .micro_batches = w->micros,
                                 .schedule = w->schedule,
                                 .chunks = w->chunks,
                                 .bucket_bytes = 1 << 20,
                                 .report = &m->report};
    assert_ok(ech_layout_make(&layout, &m->spec.block.layout));
    assert_ok(ech_run_compile(&m->spec, ECH_MODE_TRAIN, &m->run));
    return m;
}

static void made_free(made *m)
{
    ech_run_fini(&m->run);
    ech_canon_fini(&m->canon);
    free(m);
}

static void test_compiled_pipelines_are_proved(void **state)
{
    static const wanted rows[] = {
        {TINY_LLAMA, ECH_SCHEDULE_1F1B, 2, 1, 4, 1, 1, false},
        {TINY_LLAMA, ECH_SCHEDULE_GPIPE, 4, 1, 3, 1, 2, false},
        {TINY_QWEN, ECH_SCHEDULE_1F1B, 3, 1, 5, 2, 2, true},
        {TINY_LLAMA, ECH_SCHEDULE_INTERLEAVED, 2, 2, 4, 1, 1, false},
        {TINY_LLAMA, ECH_SCHEDULE_ZB_H1, 4, 1, 8, 1, 1, true},
        {TINY_LLAMA, ECH_SCHEDULE_ZB_V, 2, 2, 4, 1, 1, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        made *m = make(&rows[i]);
        for (int part = 0; part < ECH_N_PROOF_PARTS; part++)
            assert_int_equal(m->report.row[part].verdict, ECH_PROOF_HOLDS);
        assert_int_equal(m->report.followed, rows[i].pp);
        made_free(m);
    }
}

/* --- mutants --- */

enum { MOST_SITES = 6 };

/* One program of the run is a mutant: what refuses it. */
static int verdict(const made *m, int klass, const mutant_operator *op, int site)
{
    char where[160];
    ech_program mutant;
    int by;
    const ech_program *program[8];
    for (int c = 0; c < m->run.n_classes; c++)
        program[c] = m->run.program[c];
    mutant_make(m->run.program[klass], op, site, &mutant, where, sizeof where);
    program[klass] = &mutant;
    const ech_prove_spec spec = {.program = program,
                                 .n_classes = m->run.n_classes,
                                 .class_of = m->run.class_of,
                                 .plan = m->run.plan};
    const ech_status st = mutant_prove_run(&spec, &by);
    if (st >= 0)
        (void)printf("'%s' on stage %d, %s: not refused\n", op->name, klass, where);
    ech_program_fini(&mutant);
    return st < 0 ? by : N_MUTANT_CHECKS;
}

static void test_faults_of_pipelines_are_refused(void **state)
{
    static const wanted rows[] = {
        {TINY_LLAMA, ECH_SCHEDULE_1F1B, 3, 1, 4, 1, 2, true},
        {TINY_LLAMA, ECH_SCHEDULE_ZB_V, 2, 2, 3, 1, 2, false},
        {TINY_LLAMA, ECH_SCHEDULE_INTERLEAVED, 3, 2, 3, 1, 1, false},
    };
    (void)state;
    int lived = 0;
    for (int k = 0; k < n_mutant_stage_operators; k++) {
        const mutant_operator *op = &mutant_stage_operators[k];
        int by[N_MUTANT_CHECKS + 1] = {0};
        int all = 0;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            made *m = make(&rows[i]);
            for (int c = 0; c < m->run.n_classes; c++) {
                const int sites = mutant_sites(m->run.program[c], op);
                for (int s = 0; s < sites && s < MOST_SITES; s++, all++)
                    by[verdict(m, c, op, sites > MOST_SITES ? s * sites / MOST_SITES : s)]++;
            }
            made_free(m);
        }
        (void)printf("%-36s %3d:", op->name, all);
        for (int b = 0; b <= N_MUTANT_CHECKS; b++)
            if (by[b])
                (void)printf(" %s %d", mutant_check_name(b), by[b]);
        (void)printf("\n");
        assert_true(all > 0);
        lived += by[N_MUTANT_CHECKS];
    }
    assert_int_equal(lived, 0);
}

static const mutant_operator *operator_of(const char *name)
{
    for (int k = 0; k < n_mutant_stage_operators; k++)
        if (strcmp(mutant_stage_operators[k].name, name) == 0)
            return &mutant_stage_operators[k];
    fail_msg("no operator '%s'", name);
    return NULL;
}

/* Stages of one layer: a rank whose chunks run each other's layers agrees with itself, and only the
 * messages between ranks tell that one takes for layer 3's what is layer 1's. */
static void test_layers_of_other_chunks(void **state)
{
    static const wanted w = {TINY_LLAMA, ECH_SCHEDULE_INTERLEAVED, 2, 3, 2, 1, 1, false};
    const mutant_operator *op = operator_of("layer in the next one's place");
    made *m = make(&w);
    int told[2] = {0};
    (void)state;
    for (int c = 0; c < m->run.n_classes; c++) {
        const int sites = mutant_sites(m->run.program[c], op);
        for (int s = 0; s < sites; s++) {
            assert_int_equal(verdict(m, c, op, s), MUTANT_BY_PROOF + ECH_PROOF_COVER);
            const char *words = ech_error_message();
            told[0] += strstr(words, "takes as in what is of") != NULL;
            told[1] += strstr(words, "taken there for what is of") != NULL;
        }
    }
    assert_int_equal(told[0], 2); /* beside the embedding, beside the head */
    assert_int_equal(told[1], 2);
    made_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compiled_pipelines_are_proved),
        cmocka_unit_test(test_faults_of_pipelines_are_refused),
        cmocka_unit_test(test_layers_of_other_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
