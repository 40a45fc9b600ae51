/* Micro-batches in flight. */
#include "price/footprint_private.h"

double ech_live_micros(const ech_point *p, int64_t micros, int rank)
{
    const double m = (double)micros;
    const int pp = p->pp;
    const int v = ech_shape_chunks(p);
    switch (p->schedule) {
    case ECH_SCHEDULE_GPIPE:
        return m;
    case ECH_SCHEDULE_INTERLEAVED:
        if (v > 1)
            return ech_smaller(m, ((v - 1.0) * pp + 2.0 * (pp - 1 - rank) + 1) / v);
        return ech_smaller(m, pp - rank);
    case ECH_SCHEDULE_ZB_V:
    case ECH_SCHEDULE_FILE: /* not looked into: a table that holds no more than a V form */
        return ech_smaller(m, pp);
    default:
        return ech_smaller(m, pp - rank);
    }
}

double ech_live_deferred(const ech_point *p, int64_t micros, int rank)
{
    if (p->schedule != ECH_SCHEDULE_ZB_H1)
        return 0;
    return ech_smaller((double)micros, p->pp) - ech_live_micros(p, micros, rank);
}
