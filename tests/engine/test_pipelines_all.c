/* RUN: np=1 timeout=3600 tags=long */
/* As pipelines, the whole product: every schedule, p 2 to 4, m from 1 to 3 p, chunks 1 to 3, each
 * alone, with tensor parallel ranks, replicas and sharded state, for models with tied and untied
 * tables. */
#include "check.h"
#include "equal.h"
#include "pipelines.h"

#include <stdio.h>
#include <stdlib.h>

/* What a pipeline is composed with. */
typedef struct with {
    const char *name;
    int tp, dp;
    ech_shard_policy policy; /* sp, kept, stage, each, reshard, prefetch */
} with;

static const with withs[] = {
    {"alone", 1, 1, {false, false, 0, false, false, 0}},
    {"tp 2", 2, 1, {true, false, 0, false, false, 0}},
    {"dp 2", 1, 2, {false, false, 0, false, false, 0}},
    {"zero 1", 1, 2, {false, false, 1, false, false, 0}},
    {"zero 3 each", 1, 2, {false, false, 3, true, true, 1}},
};

typedef struct turn {
    const with *with;
    tiny_kind kind;
    int failures;
} turn;

static void check(const pipeline *p, void *user)
{
    turn *t = user;
    tiny_spec spec = pipeline_spec(p, t->kind);
    if (!pipeline_is_legal(p))
        return;
    spec.tp = t->with->tp;
    spec.dp = t->with->dp;
    spec.policy = t->with->policy;
    spec.dropout = t->kind == TINY_GPT2 ? 0.1 : 0.0;
    spec.heads = spec.kv_heads = t->kind == TINY_GPT2 ? 4 : 0;
    t->failures += equal_to_one_rank(&spec);
}

int main(void)
{
    int failures = 0;
    for (int kind = 0; kind < N_TINY; kind++)
        for (size_t i = 0; i < sizeof withs / sizeof withs[0]; i++) {
            turn t = {&withs[i], (tiny_kind)kind, 0};
            const int before = equal_count();
            pipelines_each(check, &t);
            (void)printf("model %d, %s: %d pipelines, %d values differ\n", kind, t.with->name,
                         equal_count() - before, t.failures);
            (void)fflush(stdout);
            failures += t.failures;
        }
    equal_end();
    return failures != 0;
}
