/* Bytes that the fullest rank sends inside its blocks and between stages, wire (facts, section 4). */
#include "price/footprint.h" /* ECH_FOOTPRINT_STAGES */
#include "price/step_private.h"

#include <math.h>

static double of_block(const ech_block_messages *m, double again)
{
    return m->sent_bytes[0] + m->sent_bytes[1] + again * m->sent_bytes[2];
}

/* Sums of a pipeline rank: tp, cp, ep, messages between stages. */
typedef struct rank_sum {
    double sent[4];
} rank_sum;

/* Messages of a stage: forward but for the last, backward but for the first, unless the next stage is
 * on the same rank (schedules in V). */
static double borders(const step_state *s, int i)
{
    const ech_stage_shape *v = s->pricer->stage;
    return (i + 1 < s->n && v[i + 1].rank != v[i].rank) + (i > 0 && v[i - 1].rank != v[i].rank);
}

void ech_step_sent(step_state *s)
{
    static const ech_axis axes[] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_EP, ECH_AXIS_PP};
    const ech_block_price *b = s->blocks->block;
    const ech_block_messages *of[2][3] = {
        {&b[ECH_BLOCK_DENSE].tp, &b[ECH_BLOCK_DENSE].cp, &b[ECH_BLOCK_DENSE].ep},
        {&b[ECH_BLOCK_SPARSE].tp, &b[ECH_BLOCK_SPARSE].cp, &b[ECH_BLOCK_SPARSE].ep}};
    const double message = (double)s->blocks->shape.micro_tokens * (double)s->blocks->shape.hidden *
                           s->pricer->rates.act_bytes / s->point->tp;
    rank_sum sum[ECH_FOOTPRINT_STAGES];
    for (int rank = 0; rank < s->point->pp; rank++)
        sum[rank] = (rank_sum){0};
    for (int i = 0; i < s->n; i++) {
        const ech_stage_shape *v = &s->pricer->stage[i];
        const double again = ech_step_again(s->point, v);
        double *to = sum[v->rank].sent;
        for (int a = 0; a < 3; a++)
            to[a] += v->dense * of_block(of[0][a], again) + v->sparse * of_block(of[1][a], again);
        to[3] += borders(s, i) * message;
    }
    for (int rank = 0; rank < s->point->pp; rank++)
        for (int a = 0; a < 4; a++)
            s->out->sent_bytes[axes[a]] =
                fmax(s->out->sent_bytes[axes[a]], s->micros * sum[rank].sent[a]);
}
