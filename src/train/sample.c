#include "train/sample.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

ech_sampling ech_sampling_default(void)
{
    return (ech_sampling){.temperature = 1.0, .top_p = 1.0, .seed = 1};
}

ech_status ech_sampling_validate(const ech_sampling *s)
{
    ECH_CHECK(s->temperature >= 0.0 && s->temperature < HUGE_VAL, ECH_E_USAGE,
              "temperature %g: wanted 0 (the most likely token) or more", s->temperature);
    ECH_CHECK(s->top_k >= 0, ECH_E_USAGE, "top-k %lld: wanted 0 (all) or more",
              (long long)s->top_k);
    ECH_CHECK(s->top_p > 0.0 && s->top_p <= 1.0, ECH_E_USAGE,
              "top-p %g: wanted a probability above 0, 1 for all", s->top_p);
    return ECH_OK;
}

/* A NaN is never the largest; -1: there is nothing but NaN and -inf, or an infinity wins. */
static int32_t largest(ech_dtype real, const void *logits, int64_t n)
{
    int32_t best = -1;
    double value = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        const double x = ech_dtype_load(real, logits, (size_t)i);
        if (x > value) {
            value = x;
            best = (int32_t)i;
        }
    }
    return value < HUGE_VAL ? best : -1;
}

static int by_weight(const void *a, const void *b)
{
    const ech_candidate *x = a;
    const ech_candidate *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static double total(const ech_candidate *c, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += c[i].weight;
    return sum;
}

/* First count whose weights together reach `goal`. */
static int64_t reach(const ech_candidate *c, int64_t n, double goal)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum >= goal)
            return i + 1;
    }
    return n;
}

int32_t ech_sample(const ech_sampling *s, ech_dtype real, const void *logits, int64_t n,
                   int64_t index, ech_candidate *c)
{
    const int32_t best = largest(real, logits, n);
    if (best < 0 || s->temperature == 0.0)
        return best;
    const double top = ech_dtype_load(real, logits, (size_t)best);
    for (int64_t i = 0; i < n; i++) {
        const double x = ech_dtype_load(real, logits, (size_t)i);
        const double weight = exp((x - top) / s->temperature);
        c[i] = (ech_candidate){weight >= 0.0 ? weight : 0.0, (int32_t)i}; /* NaN: never drawn */
    }
    int64_t left = n;
    if ((s->top_k > 0 && s->top_k < n) || s->top_p < 1.0)
        qsort(c, (size_t)n, sizeof *c, by_weight);
    if (s->top_k > 0 && s->top_k < n)
        left = s->top_k;
    if (s->top_p < 1.0)
        left = reach(c, left, s->top_p * total(c, left));
    const ech_rng_key key = ech_rng_key_make(s->seed, ECH_RNG_GENERATE, 0, -1);
    const double u = ech_rng_uniform(&key, (uint64_t)index);
    return c[reach(c, left, u * total(c, left)) - 1].id;
}
