#include "train/init.h"
#include "base/rng.h"

/* Elements of a table that stand for real tokens: the padded rows behind them are zero. */
static int64_t real_elems(const ech_model *m, const ech_param *p)
{
    const bool is_table = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
    return is_table ? m->vocab * p->dim[1] : p->elems;
}

static double initial(const ech_model *m, const ech_param *p, const ech_rng_key *key, int64_t i)
{
    if (p->init == ECH_INIT_ONE)
        return 1.0;
    if (p->init == ECH_INIT_ZERO || i >= real_elems(m, p))
        return 0.0;
    return p->init_std * ech_rng_normal(key, (uint64_t)(p->offset + i));
}

void ech_init_weights(const ech_model *m, const ech_param *p, uint64_t seed, ech_dtype dtype,
                      ech_range range, void *out)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_INIT, 0, 0);
    for (int64_t e = range.begin; e < range.end; e++)
        ech_dtype_store(dtype, out, (size_t)(e - range.begin), initial(m, p, &key, e));
}
