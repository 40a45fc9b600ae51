#include "pipelines.h"

bool pipeline_is_legal(const pipeline *p)
{
    const int group = p->group ? p->group : p->pp;
    if (p->schedule != ECH_SCHEDULE_INTERLEAVED || p->chunks < 2)
        return true;
    return group >= p->pp && (p->micros % group == 0 || p->micros % group >= p->pp);
}

int pipeline_stages(const pipeline *p)
{
    if (p->schedule == ECH_SCHEDULE_ZB_V)
        return 2 * p->pp;
    return p->pp * (p->schedule == ECH_SCHEDULE_INTERLEAVED ? p->chunks : 1);
}

tiny_spec pipeline_spec(const pipeline *p, tiny_kind kind)
{
    tiny_spec s = tiny_spec_default();
    s.kind = kind;
    s.layers = pipeline_stages(p) > 6 ? pipeline_stages(p) : 6;
    s.pp = p->pp;
    s.tp = 1;
    s.schedule = p->schedule;
    s.chunks = p->chunks;
    s.group = p->group;
    s.accumulation = p->micros;
    s.seq = 6;
    s.poison = true;
    return s;
}

void pipelines_each(pipeline_visit visit, void *user)
{
    static const struct {
        ech_schedule_kind schedule;
        int chunks, wider; /* group: pp + wider */
    } rows[] = {{ECH_SCHEDULE_GPIPE, 1, 0},       {ECH_SCHEDULE_1F1B, 1, 0},
                {ECH_SCHEDULE_INTERLEAVED, 1, 0}, {ECH_SCHEDULE_INTERLEAVED, 2, 0},
                {ECH_SCHEDULE_INTERLEAVED, 2, 1}, {ECH_SCHEDULE_INTERLEAVED, 3, 0},
                {ECH_SCHEDULE_INTERLEAVED, 3, 1}, {ECH_SCHEDULE_ZB_H1, 1, 0},
                {ECH_SCHEDULE_ZB_V, 2, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int pp = 2; pp <= 4; pp++)
            for (int m = 1; m <= 3 * pp; m++) {
                const pipeline p = {rows[i].schedule, pp, m, rows[i].chunks,
                                    rows[i].wider ? pp + rows[i].wider : 0};
                visit(&p, user);
            }
}
