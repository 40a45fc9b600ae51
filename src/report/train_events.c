#include "report/train_events.h"

#include <math.h>

/* --- fragments --- */

static void classes(ech_jout *j, const char *key, const size_t bytes[ECH_N_CLASSES])
{
    ech_jout_open(j, key, '{');
    for (int c = 0; c < ECH_N_CLASSES; c++)
        ech_jout_int(j, ech_class_name((ech_class)c), (int64_t)bytes[c]);
    ech_jout_close(j);
}

static void memory_space(ech_jout *j, const ech_memory *m)
{
    for (int c = 0; c < ECH_N_CLASSES; c++)
        ech_jout_int(j, ech_class_name((ech_class)c), (int64_t)m->at_peak[c]);
    ech_jout_int(j, "total", (int64_t)m->total);
    ech_jout_int(j, "arena", (int64_t)m->arena);
    classes(j, "own_max", m->own_max);
    ech_jout_open(j, "kind", '{');
    for (int c = 0; c < ECH_N_CLASSES; c++) /* no shape of this model depends on data */
        ech_jout_string(j, ech_class_name((ech_class)c), "exact");
    ech_jout_close(j);
}

static void traffic(ech_jout *j, const char *key, const int64_t *payload, const int64_t *wire,
                    size_t stride)
{
    ech_jout_open(j, key, '{');
    for (int a = 0; a < ECH_N_AXES; a++) {
        ech_jout_open(j, ech_axis_name((ech_axis)a), '{');
        ech_jout_int(j, "payload", payload[(size_t)a * stride]);
        ech_jout_int(j, "wire", wire[(size_t)a * stride]);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

void ech_jout_memory(ech_jout *j, const char *key, const ech_memory *memory)
{
    ech_jout_open(j, key, '{');
    for (int s = 0; s < ECH_N_SPACES; s++) {
        if (!memory[s].arena)
            continue;
        ech_jout_open(j, ech_space_name((ech_space)s), '{');
        memory_space(j, &memory[s]);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

void ech_jout_prediction(ech_jout *j, const char *key, const ech_prediction *p)
{
    ech_jout_open(j, key, '{');
    ech_jout_memory(j, "memory_bytes", p->memory);
    traffic(j, "comm_bytes", &p->traffic[0].payload_bytes, &p->traffic[0].wire_bytes,
            sizeof(ech_traffic) / sizeof(int64_t));
    ech_jout_real(j, "step_s", p->step_s);
    ech_jout_close(j);
}

void ech_jout_layout(ech_jout *j, const char *key, const ech_layout *l)
{
    static const ech_axis axes[] = {ECH_AXIS_TP, ECH_AXIS_PP, ECH_AXIS_CP, ECH_AXIS_EP,
                                    ECH_AXIS_DP};
    ech_jout_open(j, key, '{');
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        ech_jout_int(j, ech_axis_name(axes[i]),
                     axes[i] == ECH_AXIS_DP ? ech_layout_data_degree(l) : l->degree[axes[i]]);
    ech_jout_int(j, "shard_group", l->degree[ECH_AXIS_DP]);
    ech_jout_close(j);
}

void ech_jout_predictions(ech_jout *j, const ech_prediction *p, int n)
{
    ech_jout_open(j, "by_rank", '[');
    for (int r = 0; r < n; r++)
        ech_jout_prediction(j, NULL, &p[r]);
    ech_jout_close(j);
}

/* What is legal at a cost, or without effect. */
static void costs(ech_jout *j, const ech_legal_report *legal)
{
    ech_jout_open(j, "costs", '[');
    for (int i = 0; legal && i < legal->n; i++) {
        const ech_legal_finding *f = &legal->item[i];
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "rule", f->rule);
        ech_jout_string(j, "key", f->key);
        ech_jout_string(j, "verdict", ech_verdict_name(f->verdict));
        ech_jout_string(j, "message", f->message);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

void ech_jout_run(ech_jout *j, const ech_event_start *e)
{
    ech_jout_int(j, "ranks", e->ranks);
    ech_jout_layout(j, "layout", e->layout);
    if (e->layout_auto)
        ech_jout_string(j, "layout_auto", e->layout_auto);
    costs(j, e->legal);
    ech_jout_int(j, "params", e->params);
    ech_jout_int(j, "params_active", e->params_active);
    ech_jout_real(j, "flops_per_token", e->flops_per_token);
    ech_jout_string(j, "flops_convention", e->flops_convention);
    ech_jout_real(j, "peak_flops", e->peak_flops);
}

/* --- events --- */

static ech_status on_start(void *user, const ech_event_start *e)
{
    ech_jout *j = ech_metrics_begin(user, "start");
    ech_jout_run(j, e);
    ech_jout_int(j, "step", e->step);
    ech_jout_string(j, "resumed_from", e->resumed_from);
    ech_jout_string(j, "kernels", e->kernels);
    ech_jout_string(j, "transport", e->transport);
    ech_jout_int(j, "threads", e->threads);
    ech_jout_prediction(j, "predicted", e->predicted);
    if (e->by_rank)
        ech_jout_predictions(j, e->by_rank, e->ranks);
    return ech_metrics_end(user);
}

static ech_status on_step(void *user, const ech_event_step *e)
{
    ech_jout *j = ech_metrics_begin(user, "step");
    ech_jout_int(j, "step", e->step);
    ech_jout_real(j, "loss", e->loss);
    ech_jout_real(j, "grad_norm", e->grad_norm);
    ech_jout_real(j, "lr", e->lr);
    ech_jout_int(j, "tokens", e->tokens);
    ech_jout_real(j, "tokens_per_s", e->tokens_per_s);
    ech_jout_real(j, "mfu", e->mfu);
    ech_jout_real(j, "hfu", e->hfu);
    ech_jout_real(j, "step_s", e->step_s);
    ech_jout_real(j, "exposed_comm_s", e->exposed_comm_s);
    ech_jout_real(j, "loss_scale", e->loss_scale);
    ech_jout_bool(j, "skipped", e->skipped);
    return ech_metrics_end(user);
}

static ech_status on_eval(void *user, const ech_event_eval *e)
{
    ech_jout *j = ech_metrics_begin(user, "eval");
    ech_jout_int(j, "step", e->step);
    ech_jout_real(j, "loss", e->loss);
    ech_jout_real(j, "perplexity", e->perplexity);
    return ech_metrics_end(user);
}

static ech_status on_checkpoint(void *user, const ech_event_checkpoint *e)
{
    ech_jout *j = ech_metrics_begin(user, "checkpoint");
    ech_jout_int(j, "step", e->step);
    ech_jout_string(j, "path", e->path);
    ech_jout_int(j, "bytes", e->bytes);
    ech_jout_real(j, "stall_s", e->stall_s);
    ech_jout_real(j, "write_s", e->write_s);
    return ech_metrics_end(user);
}

static ech_status on_fault(void *user, const ech_event_fault *e)
{
    ech_jout *j = ech_metrics_begin(user, "fault");
    ech_jout_string(j, "kind", e->kind);
    if (e->rank >= 0)
        ech_jout_int(j, "rank", e->rank);
    else
        ech_jout_null(j, "rank");
    ech_jout_int(j, "step", e->step);
    ech_jout_string(j, "action", e->action);
    ech_jout_string(j, "detail", e->detail);
    return ech_metrics_end(user);
}

static void allocated(ech_jout *j, const ech_engine_memory *memory)
{
    ech_jout_open(j, "allocated", '{');
    for (int s = 0; s < ECH_N_SPACES; s++) {
        if (!memory[s].arena)
            continue;
        ech_jout_open(j, ech_space_name((ech_space)s), '{');
        for (int c = 0; c < ECH_N_CLASSES; c++)
            ech_jout_int(j, ech_class_name((ech_class)c), (int64_t)memory[s].at_peak[c]);
        ech_jout_int(j, "total", (int64_t)memory[s].total);
        ech_jout_int(j, "arena", (int64_t)memory[s].arena);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

static void touched(ech_jout *j, const ech_engine_memory *memory)
{
    ech_jout_open(j, "touched", '{');
    for (int s = 0; s < ECH_N_SPACES; s++) {
        size_t total = memory[s].touched_transient;
        if (!memory[s].arena)
            continue;
        for (int c = 0; c < ECH_N_CLASSES; c++)
            total += memory[s].touched_state[c];
        ech_jout_open(j, ech_space_name((ech_space)s), '{');
        classes(j, "state", memory[s].touched_state);
        ech_jout_int(j, "transient", (int64_t)memory[s].touched_transient);
        ech_jout_int(j, "total", (int64_t)total);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

static void figures_of_ranks(ech_jout *j, const ech_event_end *e)
{
    ech_jout_open(j, "by_rank", '[');
    for (int r = 0; r < e->ranks; r++) {
        const ech_rank_figures *f = &e->by_rank[r];
        ech_jout_open(j, NULL, '{');
        ech_jout_prediction(j, "predicted", &f->predicted);
        allocated(j, f->memory);
        touched(j, f->memory);
        ech_jout_int(j, "rss_bytes", f->rss_bytes);
        traffic(j, "sent", f->sent.payload_bytes, f->sent.wire_bytes, 1);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

static ech_status on_end(void *user, const ech_event_end *e)
{
    ech_jout *j = ech_metrics_begin(user, "end");
    ech_jout_int(j, "steps", e->steps);
    ech_jout_real(j, "loss", e->loss);
    ech_jout_prediction(j, "predicted", e->predicted);
    allocated(j, e->memory);
    touched(j, e->memory);
    ech_jout_int(j, "rss_bytes", e->rss_bytes);
    traffic(j, "sent", e->sent->payload_bytes, e->sent->wire_bytes, 1);
    ech_jout_int(j, "memory_diff_bytes", e->memory_diff_bytes);
    ech_jout_int(j, "comm_diff_bytes", e->comm_diff_bytes);
    ech_jout_open(j, "time_share", '{');
    ech_jout_real(j, "kernels", e->kernel_share);
    ech_jout_real(j, "comm", e->comm_share);
    ech_jout_real(j, "blocked", e->blocked_share);
    ech_jout_real(j, "executor", 1.0 - e->kernel_share - e->comm_share - e->blocked_share);
    ech_jout_close(j);
    ech_jout_int(j, "skipped", e->skipped);
    ech_jout_int(j, "nonfinite", e->nonfinite);
    if (e->by_rank)
        figures_of_ranks(j, e);
    return ech_metrics_end(user);
}

ech_train_sink ech_train_events_sink(ech_metrics *m)
{
    return (ech_train_sink){m, on_start, on_step, on_eval, on_checkpoint, on_fault, on_end, NULL};
}
