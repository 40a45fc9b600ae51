/* The rotary table. */
#include "program/blocks.h"

#include <math.h>

static int64_t rotated(const ech_model *m) /* elements of a head that turn, even */
{
    return (int64_t)(m->rope.partial * (double)m->head_dim) / 2 * 2;
}

int64_t ech_rope_table_elems(const ech_model *m, int64_t seq)
{
    return m->rope.kind == ECH_ROPE_NONE ? 0 : seq * rotated(m);
}

/* Llama-3.1: wavelengths beyond original/low are slowed down by factor, those below original/high
 * kept, and what is between interpolated. */
static double llama3_frequency(const ech_rope *r, double f)
{
    const double wavelength = 2.0 * M_PI / f;
    const double original = (double)r->original_context;
    if (wavelength < original / r->high_freq_factor)
        return f;
    if (wavelength > original / r->low_freq_factor)
        return f / r->factor;
    const double smooth =
        (original / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1.0 - smooth) * f / r->factor + smooth * f;
}

void ech_rope_table_fill(const ech_model *m, int64_t seq, double *table)
{
    const int64_t half = ech_rope_table_elems(m, seq) ? rotated(m) / 2 : 0;
    for (int64_t i = 0; i < half; i++) {
        double f = pow(m->rope.theta, -2.0 * (double)i / (double)(2 * half));
        if (m->rope.kind == ECH_ROPE_LLAMA3)
            f = llama3_frequency(&m->rope, f);
        else if (m->rope.kind == ECH_ROPE_LINEAR)
            f /= m->rope.factor;
        for (int64_t p = 0; p < seq; p++) {
            table[(p * half + i) * 2] = cos((double)p * f);
            table[(p * half + i) * 2 + 1] = sin((double)p * f);
        }
    }
}
