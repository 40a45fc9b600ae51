#include "price/constants.h"

static const ech_constant_info about[] = {
#define ECH_CONSTANT_INFO(id, name_, unit_, prior_, sigma_, low_, high_, source_)                  \
    [id] = {.name = (name_),                                                                       \
            .unit = (unit_),                                                                       \
            .source = (source_),                                                                   \
            .prior = (prior_),                                                                     \
            .sigma = (sigma_),                                                                     \
            .low = (low_),                                                                         \
            .high = (high_)},
    ECH_CONSTANT_LIST(ECH_CONSTANT_INFO)
#undef ECH_CONSTANT_INFO
};

/* Written by bench/fit: the values of the free ones, and the priors of the others. */
static const ech_constants builtin = {.value = {
#include "price/constants_fitted.inc"
                                      }};

const ech_constants *ech_constants_builtin(void)
{
    return &builtin;
}

ech_constants ech_constants_prior(void)
{
    ech_constants c;
    for (int i = 0; i < ECH_N_CONSTANTS; i++)
        c.value[i] = about[i].prior;
    return c;
}

const ech_constant_info *ech_constant_about(ech_constant c)
{
    return &about[c];
}
