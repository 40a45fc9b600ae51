/* RUN: np=1 timeout=300 tags=fast */
/* Pipelines train what one rank trains: every schedule, p 2 to 4, m from 1 to 3 p, alone; and a
 * cover of them with tensor parallel ranks, replicas, sharded state, tied tables on one and on two
 * pipeline ranks, uneven and empty stages, tables of the user's own.  pipelines_all has the whole
 * product. */
#include "check.h"
#include "equal.h"
#include "pipelines.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect_refused(const tiny_spec *spec)
{
    char name[512];
    const ech_status st = tiny_check(spec);
    failures += st != ECH_E_ILLEGAL;
    if (st != ECH_E_ILLEGAL)
        (void)fprintf(stderr, "%s: got %s, wanted that it is refused\n",
                      equal_describe(spec, name, sizeof name), ech_status_name(st));
}

/* --- every schedule --- */

static void check_alone(const pipeline *p, void *user)
{
    const tiny_spec spec = pipeline_spec(p, *(const tiny_kind *)user);
    if (pipeline_is_legal(p))
        failures += equal_to_one_rank(&spec);
    else
        expect_refused(&spec);
}

/* --- in products --- */

enum {
    G = ECH_SCHEDULE_GPIPE,
    F = ECH_SCHEDULE_1F1B,
    N = ECH_SCHEDULE_INTERLEAVED,
    H = ECH_SCHEDULE_ZB_H1,
    V = ECH_SCHEDULE_ZB_V
};

typedef struct product {
    int schedule, pp, micros, chunks, group; /* of the pipeline */
    int kind, heads, kv_heads;
    double dropout;
    int tp, dp, shard_group;
    ech_shard_policy policy; /* sp, kept, stage, each, reshard, prefetch */
} product;

#define PLAIN                                                                                      \
    {                                                                                              \
        false, false, 0, false, false, 0                                                           \
    }

static const product products[] = {
    /* tensor and sequence parallel */
    {F, 2, 3, 1, 0, TINY_LLAMA, 0, 0, 0.0, 2, 1, 0, PLAIN},
    {F, 3, 2, 1, 0, TINY_QWEN, 0, 0, 0.0, 2, 1, 0, {true, false, 0, false, false, 0}},
    {G, 2, 3, 1, 0, TINY_GPT2, 6, 6, 0.2, 3, 1, 0, {true, true, 0, false, false, 0}},
    {N, 2, 4, 2, 0, TINY_GPT2, 6, 6, 0.2, 2, 1, 0, PLAIN},
    {N, 2, 5, 3, 3, TINY_LLAMA, 4, 1, 0.1, 4, 1, 0, {true, false, 0, false, false, 0}},
    {H, 2, 5, 1, 0, TINY_QWEN, 12, 3, 0.0, 4, 1, 0, {true, false, 0, false, false, 0}},
    {H, 4, 3, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.1, 2, 1, 0, {true, true, 0, false, false, 0}},
    {V, 2, 3, 2, 0, TINY_QWEN, 0, 0, 0.0, 2, 1, 0, {true, false, 0, false, false, 0}},
    {V, 2, 5, 2, 0, TINY_TIED_LLAMA, 4, 1, 0.1, 4, 1, 0, {true, false, 0, false, false, 0}},
    {V, 3, 4, 2, 0, TINY_GPT2, 6, 6, 0.2, 2, 1, 0, {true, true, 0, false, false, 0}},
    /* replicas */
    {F, 2, 2, 1, 0, TINY_GPT2, 0, 0, 0.1, 1, 2, 0, PLAIN},
    {F, 4, 5, 1, 0, TINY_LLAMA, 0, 0, 0.0, 1, 2, 0, PLAIN},
    {G, 3, 4, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 3, 0, PLAIN},
    {N, 2, 4, 3, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, PLAIN},
    {H, 3, 5, 1, 0, TINY_QWEN, 0, 0, 0.0, 1, 2, 0, PLAIN},
    {V, 2, 4, 2, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 3, 0, PLAIN},
    {V, 3, 2, 2, 0, TINY_LLAMA, 0, 0, 0.0, 1, 2, 0, PLAIN},
    /* state dealt out once a step */
    {F, 2, 2, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 1, false, false, 0}},
    {F, 3, 4, 1, 0, TINY_GPT2, 0, 0, 0.1, 1, 3, 0, {false, false, 1, false, false, 0}},
    {G, 2, 3, 1, 0, TINY_QWEN, 0, 0, 0.0, 1, 2, 0, {false, false, 1, false, false, 0}},
    {N, 3, 3, 2, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 1, false, false, 0}},
    {H, 2, 5, 1, 0, TINY_GPT2, 0, 0, 0.1, 1, 2, 0, {false, false, 1, false, false, 0}},
    {V, 2, 3, 2, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 1, false, false, 0}},
    {F, 2, 3, 1, 0, TINY_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 2, false, false, 0}},
    {F, 2, 1, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 2, false, false, 0}},
    {H, 2, 3, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 3, false, true, 1}},
    {V, 2, 3, 2, 0, TINY_QWEN, 0, 0, 0.0, 1, 2, 0, {false, false, 3, false, false, 1}},
    /* every micro-batch */
    {F, 2, 3, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 2, true, false, 0}},
    {G, 3, 4, 1, 0, TINY_GPT2, 0, 0, 0.1, 1, 2, 0, {false, false, 3, true, true, 1}},
    {N, 2, 4, 2, 0, TINY_LLAMA, 0, 0, 0.0, 1, 3, 0, {false, false, 3, true, true, 2}},
    {H, 2, 3, 1, 0, TINY_GPT2, 0, 0, 0.1, 1, 2, 0, {false, false, 3, true, true, 1}},
    {H, 3, 4, 1, 0, TINY_QWEN, 0, 0, 0.0, 1, 2, 0, {false, false, 2, true, false, 0}},
    {V, 2, 4, 2, 0, TINY_TIED_LLAMA, 0, 0, 0.0, 1, 2, 0, {false, false, 2, true, false, 0}},
    {V, 2, 3, 2, 0, TINY_GPT2, 0, 0, 0.1, 1, 2, 0, {false, false, 3, true, true, 1}},
    /* all of it */
    {F, 2, 2, 1, 0, TINY_TIED_LLAMA, 0, 0, 0.1, 2, 2, 0, {true, false, 1, false, false, 0}},
    {F, 2, 3, 1, 0, TINY_GPT2, 6, 6, 0.1, 2, 4, 2, {true, false, 3, true, true, 1}},
    {G, 2, 2, 1, 0, TINY_QWEN, 4, 1, 0.0, 2, 4, 2, {true, true, 2, false, false, 0}},
    {N, 2, 4, 2, 0, TINY_TIED_LLAMA, 4, 1, 0.1, 2, 2, 0, {true, false, 1, false, false, 0}},
    {H, 2, 3, 1, 0, TINY_TIED_LLAMA, 4, 1, 0.0, 2, 4, 2, {true, false, 1, false, false, 0}},
    {V, 2, 3, 2, 0, TINY_GPT2, 6, 6, 0.1, 2, 4, 2, {true, false, 2, true, false, 0}},
};

static void check_products(void)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const product *r = &products[i];
        const pipeline p = {(ech_schedule_kind)r->schedule, r->pp, r->micros, r->chunks, r->group};
        tiny_spec spec = pipeline_spec(&p, (tiny_kind)r->kind);
        spec.heads = r->heads;
        spec.kv_heads = r->kv_heads;
        spec.dropout = r->dropout;
        spec.tp = r->tp;
        spec.dp = r->dp;
        spec.shard_group = r->shard_group;
        spec.policy = r->policy;
        spec.rows = i % 3 == 0 || r->tp == 4 ? 2 : 1; /* tp divides the tokens */
        spec.bucket_bytes = i % 2 ? 1 : 1 << 20;
        failures += equal_to_one_rank(&spec);
    }
}

/* --- uneven stages, and stages with nothing --- */

typedef struct uneven {
    int schedule, pp, micros, chunks, dp, stage; /* of ZeRO */
    int n, layers[9];
} uneven;

static const uneven unevens[] = {
    {F, 2, 3, 1, 1, 0, 2, {1, 5}},
    {F, 2, 3, 1, 2, 1, 2, {0, 6}}, /* the embedding alone */
    {F, 2, 3, 1, 1, 0, 2, {6, 0}}, /* the head alone */
    {G, 3, 2, 1, 2, 1, 3, {0, 6, 0}},
    {F, 3, 4, 1, 1, 0, 3, {3, 0, 3}}, /* a rank with nothing */
    {F, 3, 2, 1, 2, 1, 3, {3, 0, 3}},
    {H, 3, 4, 1, 2, 3, 3, {3, 0, 3}},
    {H, 4, 3, 1, 1, 0, 4, {0, 6, 0, 0}},
    {F, 4, 5, 1, 1, 0, 4, {0, 0, 0, 6}},
    {N, 2, 4, 2, 1, 0, 4, {1, 2, 3, 0}},
    {N, 2, 4, 2, 2, 1, 4, {0, 3, 0, 3}},
    {N, 2, 4, 3, 1, 0, 6, {2, 0, 0, 2, 2, 0}},
    {N, 3, 3, 2, 1, 0, 6, {0, 0, 6, 0, 0, 0}},
    {V, 2, 3, 2, 1, 0, 4, {1, 2, 2, 1}},
    {V, 2, 3, 2, 1, 0, 4, {3, 0, 3, 0}}, /* empty, and the next is on its rank */
    {V, 2, 3, 2, 2, 1, 4, {3, 3, 0, 0}},
    {V, 2, 2, 2, 1, 0, 4, {3, 0, 0, 3}}, /* two empty ones of a rank */
    {V, 3, 4, 2, 1, 0, 6, {0, 2, 0, 2, 0, 2}},
};

static void check_unevens(tiny_kind kind)
{
    for (size_t i = 0; i < sizeof unevens / sizeof unevens[0]; i++) {
        const uneven *u = &unevens[i];
        const pipeline p = {(ech_schedule_kind)u->schedule, u->pp, u->micros, u->chunks, 0};
        tiny_spec spec = pipeline_spec(&p, kind);
        spec.dp = u->dp;
        spec.policy.zero_stage = u->stage;
        spec.policy.reshards_after_forward = u->stage == 3;
        spec.stage_layers = u->layers;
        spec.n_stage_layers = u->n;
        failures += equal_to_one_rank(&spec);
    }
}

/* --- tables --- */

typedef struct own_table {
    const char *name, *text;
    int pp, micros, stages;
    int layers[6]; /* of 6 */
} own_table;

static const own_table tables[] = {
    {"backwards whole and in two", /* and W late, or of another stage first */
     "0F0,0F1,0F2,,,0B0,0I1,,0I2,0W2,0W1\n"
     ",1F0,1B0,1F1,1I1,1F2,1B2,1W1\n",
     2,
     3,
     2,
     {3, 3}},
    {"inverted V", /* first and last stage on the last rank */
     "1F0,2F0,1F1,2F1,1F2,2F2,2B0,1B0,2B1,1B1,2B2,1B2\n"
     "0F0,0F1,0F2,3F0,3B0,3F1,3B1,3F2,3B2,0B0,0B1,0B2\n",
     2,
     3,
     4,
     {2, 1, 2, 1}},
    {"as many stages as they like", /* neighbours on one rank; the last on the middle one */
     "0F0,0F1,0B0,0B1\n"
     "1F0,2F0,1F1,2F1,4F0,4I0,4F1,4W0,4B1,2B0,1B0,2I1,1B1,2W1\n"
     "3F0,3F1,3B0,3B1\n",
     3,
     2,
     5,
     {1, 2, 1, 1, 1}},
    {"micro-batches backwards", /* other sums, in another order on each stage */
     "0F1,0F0,0F2,0B2,0B0,0B1\n"
     "1F1,1F0,1B0,1F2,1B2,1B1\n",
     2,
     3,
     2,
     {2, 4}},
    {"nothing between", /* neighbours on one rank, two of them empty */
     "0F0,1F0,2F0,0F1,1F1,2F1,2B0,1B0,0B0,2B1,1B1,0B1\n"
     "3F0,4F0,4B0,3B0,3F1,4F1,4B1,3B1\n",
     2,
     2,
     5,
     {3, 0, 0, 0, 3}},
    {"one rank", "0F0,1F0,2F0,0F1,1F1,2F1,2B0,1I0,0I0,1W0,0W0,2B1,1B1,0B1\n", 1, 2, 3, {2, 0, 4}},
};

static void check_table(const own_table *t, tiny_kind kind, int tp, int dp, int stage)
{
    ech_schedule table = {0};
    const pipeline p = {ECH_SCHEDULE_FILE, t->pp, t->micros, 1, 0};
    tiny_spec spec = pipeline_spec(&p, kind);
    tiny_ok(ech_schedule_read(t->text, strlen(t->text), t->name, &table), t->name);
    failures += table.ranks != t->pp || table.stages != t->stages || table.micros != t->micros;
    spec.table = &table;
    spec.stage_layers = t->layers;
    spec.n_stage_layers = t->stages;
    spec.tp = tp;
    spec.dp = dp;
    spec.policy.zero_stage = stage;
    failures += equal_to_one_rank(&spec);
    ech_schedule_fini(&table);
}

static void check_tables(void)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        check_table(&tables[i], TINY_LLAMA, 1, 1, 0);
        check_table(&tables[i], TINY_TIED_LLAMA, 1, 2, 1);
        check_table(&tables[i], TINY_GPT2, 1, 1, 0);
        check_table(&tables[i], TINY_QWEN, 2, 2, 3);
    }
}

int main(void)
{
    tiny_kind llama = TINY_LLAMA;
    check_products();
    check_unevens(TINY_QWEN);
    check_unevens(TINY_TIED_LLAMA);
    check_tables();
    pipelines_each(check_alone, &llama);
    (void)fprintf(stderr, "%d pipelines, %d values differ\n", equal_count(), failures);
    equal_end();
    return failures != 0;
}
