#include "train/lr.h"

#include <math.h>

ech_lr ech_lr_from_config(const ech_config *cfg)
{
    const ech_config_optim *o = &cfg->optim;
    const int64_t tenth = cfg->train.steps / 10;
    const int64_t after_warmup = cfg->train.steps - o->warmup_steps;
    const int64_t auto_decay = tenth < after_warmup ? tenth : after_warmup;
    return (ech_lr){
        .schedule = o->schedule,
        .peak = o->lr,
        .min = o->min_lr,
        .warmup_steps = o->warmup_steps,
        .decay_steps = o->decay_steps == ECH_AUTO ? auto_decay : o->decay_steps,
        .total_steps = cfg->train.steps,
    };
}

/* Share of the way from step `begin` to step `end`, within 0..1; 1 where there is no way. */
static double progress(int64_t step, int64_t begin, int64_t end)
{
    if (step >= end)
        return 1;
    return step <= begin ? 0 : (double)(step - begin) / (double)(end - begin);
}

double ech_lr_at(const ech_lr *lr, int64_t step)
{
    const double pi = 3.14159265358979323846;
    const int64_t s = step < 1 ? 1 : step;
    const double span = lr->peak - lr->min;
    if (s <= lr->warmup_steps)
        return lr->peak * ((double)s / (double)lr->warmup_steps);
    switch (lr->schedule) {
    case ECH_LR_CONSTANT:
        return lr->peak;
    case ECH_LR_LINEAR:
        return lr->min + span * (1 - progress(s, lr->warmup_steps, lr->total_steps));
    case ECH_LR_COSINE:
        return lr->min +
               span * 0.5 * (1 + cos(pi * progress(s, lr->warmup_steps, lr->total_steps)));
    case ECH_LR_WSD:
        if (lr->decay_steps <= 0)
            return lr->peak;
        return lr->min +
               span * (1 - progress(s, lr->total_steps - lr->decay_steps, lr->total_steps));
    }
    ECH_ASSERT(false && "a schedule outside its enumeration");
    return 0;
}
