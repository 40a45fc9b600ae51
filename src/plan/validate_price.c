/* Rows priced. */
#include "plan/validate_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Tell what was chosen, behind what reading the row filled in. */
static void tell(ech_published *p)
{
    p->assumed[p->assumed_stated] = '\0';
    if (p->asks_micro)
        ech_published_assume(p, "micro-batch %d", p->point.micro);
    if (p->asks_chunks)
        ech_published_assume(p, "vpp %d", p->point.vpp);
    if (p->asks_recompute) {
        ech_text words = {0};
        ech_recompute_print(p->point.recompute, p->point.recompute_layers, &words);
        ech_published_assume(p, "recompute %s", ech_text_get(&words));
        ech_text_fini(&words);
    }
}

/* A row's option is taken: nothing to do where it was before. */
static void take(ech_published *p, int option)
{
    if (p->taken == option + 1)
        return;
    p->taken = option + 1;
    p->point = p->option[option];
    tell(p);
    if (p->kind == ECH_MEASURED_PEAK_MEM_GIB) {
        ech_footprint f;
        ech_footprint_of(&p->job, &p->point, NULL, &f);
        p->predicted = ech_published_gib(p, &f);
    }
}

/* The fastest of a row's options. */
static int fastest(ech_published *p, ech_pricer *pricer)
{
    int best = 0;
    p->predicted_s = INFINITY;
    for (int i = 0; i < p->n_options; i++) {
        ech_step_price step;
        ech_pricer_step(pricer, &p->option[i], NULL, &step);
        if (step.step_s < p->predicted_s) {
            p->predicted_s = step.step_s;
            best = i;
        }
    }
    return best;
}

/* pricer: one for all rows, made at the first. */
static ech_status price_row(ech_published *p, const struct ech_constants *constants,
                            ech_pricer **pricer)
{
    const bool is_memory = p->kind == ECH_MEASURED_PEAK_MEM_GIB;
    if (!p->option && !p->skipped[0])
        ECH_TRY(ech_published_fill(p));
    if (p->skipped[0])
        return ECH_OK;
    if (is_memory && p->n_options == 1) {
        take(p, 0);
        return ECH_OK;
    }
    if (*pricer)
        ech_pricer_rebind(*pricer, &p->job, constants);
    else
        ECH_TRY(ech_pricer_create(&p->job, constants, pricer));
    take(p, fastest(p, *pricer));
    if (!is_memory)
        p->predicted = ech_published_seconds(p, p->predicted_s);
    return ECH_OK;
}

ech_status ech_validation_price(ech_validation *v, const struct ech_constants *constants)
{
    ech_pricer *pricer = NULL;
    ech_status st = ECH_OK;
    for (int i = 0; i < v->n && st >= 0; i++)
        st = price_row(&v->row[i], constants, &pricer);
    ech_pricer_destroy(&pricer);
    ECH_TRY(st);
    return ech_validation_count(v);
}
