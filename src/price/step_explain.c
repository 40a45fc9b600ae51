/* The derivation of a step's price, from the very numbers it is made of. */
#include "price/step_private.h"

static const char table[] = "price/constants.c";

static void explain_work(const step_state *s, ech_derivation *notes)
{
    const ech_job *job = s->pricer->job;
    const ech_point *p = s->point;
    const ech_block_price *b = s->blocks->block;
    ech_derive_section(notes, "Work of a step");
    ech_derive(notes, "micro-batches", s->micros, "1", "", "B / (dp b) = %lld / (%d * %d)",
               (long long)job->global_batch, p->dp, p->micro);
    ech_derive(notes, "model FLOPs", s->out->model_flops, "FLOP",
               "Chowdhery et al. 2022, arXiv:2204.02311, appendix B",
               "(6 N_matmul + 6 L s a d_h, causal half) * %lld * %lld tokens",
               (long long)job->global_batch, (long long)job->seq);
    for (int sparse = 0; sparse < 2; sparse++) {
        const ech_block_price *l = &b[sparse ? ECH_BLOCK_SPARSE : ECH_BLOCK_DENSE];
        if (l->work_s[ECH_PASS_FORWARD] <= 0)
            continue;
        ech_derive(notes, sparse ? "a sparse layer, forward" : "a layer, forward",
                   l->work_s[ECH_PASS_FORWARD], "s", table,
                   "%.4g FLOP on a rank, each kernel by its own roofline",
                   l->flops[ECH_PASS_FORWARD]);
        ech_derive(notes, sparse ? "a sparse layer, backward" : "a layer, backward",
                   l->work_s[ECH_PASS_INPUT] * s->trained.backward_share +
                       l->work_s[ECH_PASS_WEIGHT] * s->trained.weight_share,
                   "s", table, "gradients of inputs %.4g s * %.3g, of weights %.4g s * %.3g",
                   l->work_s[ECH_PASS_INPUT], s->trained.backward_share, l->work_s[ECH_PASS_WEIGHT],
                   s->trained.weight_share);
    }
    ech_derive(notes, "compute, mean of ranks", s->out->compute_s, "s", "the sum",
               "all stages' layers, embedding and head * %g micro-batches / pp %d", s->micros,
               p->pp);
    if (s->out->recompute_s > 0)
        ech_derive(notes, "computed again", s->out->recompute_s, "s", "the sum",
                   "forward kernels once more * %g / pp %d", s->micros, p->pp);
}

static void explain_messages(const step_state *s, ech_derivation *notes)
{
    const ech_step_price *o = s->out;
    bool is_first = true;
    for (int a = 0; a < ECH_N_AXES; a++) {
        if (o->sent_bytes[a] <= 0 && o->exposed_s[a] <= 0)
            continue;
        if (is_first)
            ech_derive_section(notes, "Messages of a step");
        is_first = false;
        const char *name = ech_axis_name((ech_axis)a);
        ech_derive(notes, name, o->exposed_s[a], "s", table,
                   "%.4g B sent by the fullest rank; %.4g s hidden under kernels, exposed",
                   o->sent_bytes[a], o->hidden_s[a]);
    }
}

static void explain_pipeline(const step_state *s, const step_parts *t, ech_derivation *notes)
{
    const ech_point *p = s->point;
    ech_derive_section(notes, "The step");
    ech_derive(notes, "slowest rank", t->busiest_s, "s", "the largest sum over its stages",
               "(forward + backward, their exposed messages) * %g micro-batches", s->micros);
    if (p->pp > 1)
        ech_derive(notes, "filling and draining", t->span_s - t->busiest_s, "s",
                   "Narayanan et al. 2021, arXiv:2104.04473, section 2.2", "p %d, v %d, hop %.4g s",
                   p->pp, s->n / p->pp, t->hop_s);
    if (t->replicas_s > 0)
        ech_derive(notes, "reductions behind it", t->replicas_s, "s", table,
                   "what backward does not hide");
    ech_derive(notes, "update", s->out->optimizer_s, "s", table,
               "bytes of state on the rank / memory bandwidth");
    if (s->out->offload_s > 0)
        ech_derive(notes, "offload", s->out->offload_s, "s", "links and host of the cluster",
                   "gradients out, weights in, state over host memory or drives");
    ech_derive(notes, "fixed", s->out->fixed_s, "s", table,
               "a step's and a micro-batch's own costs, stragglers of %lld ranks",
               (long long)s->pricer->job->gpus);
    ech_derive(notes, "step", s->out->step_s, "s", "the sum",
               "slowest rank, filling, reductions, update, offload, fixed");
    ech_derive(notes, "bubble, mean of ranks", s->out->bubble_s, "s", "the rest",
               "step less compute, recompute, exposed, update, offload, fixed");
}

void ech_step_explain(const step_state *s, const step_parts *parts, ech_derivation *notes)
{
    explain_work(s, notes);
    explain_messages(s, notes);
    explain_pipeline(s, parts, notes);
}
