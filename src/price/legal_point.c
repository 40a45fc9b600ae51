/* Is a layout possible: the rules that hold for every system, and the questions themselves. */
#include "price/legal_point.h"

#include <stdio.h>
#include <string.h>

void ech_point_near(ech_findings *why, ech_near near)
{
    if (near.n == 1)
        ech_text_add(&why->text, "; nearest legal value %lld", (long long)near.value[0]);
    if (near.n == 2)
        ech_text_add(&why->text, "; nearest legal values %lld and %lld", (long long)near.value[0],
                     (long long)near.value[1]);
}

void ech_point_legal(ech_findings *why, const char *words)
{
    ech_text_add(&why->text, "; legal: %s", words);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* --- degrees --- */

typedef struct named_degree {
    const char *name;
    int32_t value;
} named_degree;

/* All degrees are looked at, whatever the first says. */
static bool breaks_degrees(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const named_degree all[] = {{"tp", p->tp}, {"pp", p->pp}, {"vpp", p->vpp}, {"dp", p->dp},
                                {"cp", p->cp}, {"ep", p->ep}, {"etp", p->etp}, {"micro", p->micro}};
    bool broken = false;
    (void)job;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].value >= 1)
            continue;
        broken = true;
        if (why)
            ech_findings_add(why, "%s %d: wanted at least 1", all[i].name, all[i].value);
    }
    return broken;
}

static bool breaks_gpus(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t replica = (int64_t)p->tp * p->cp * p->pp;
    if (replica * p->dp == job->gpus)
        return false;
    if (!why)
        return true;
    ech_findings_add(why, "tp %d x cp %d x pp %d x dp %d = %lld, the job has %lld GPUs", p->tp,
                     p->cp, p->pp, p->dp, (long long)(replica * p->dp), (long long)job->gpus);
    if (job->gpus % replica == 0) {
        ech_text_add(&why->text, "; dp %lld would make them", (long long)(job->gpus / replica));
        return true;
    }
    const ech_near near = ech_near_divisors(job->gpus, replica);
    ech_text_add(&why->text, "; no dp makes them: tp x cp x pp has to divide %lld, as %lld",
                 (long long)job->gpus, (long long)near.value[0]);
    if (near.n == 2)
        ech_text_add(&why->text, " and %lld do", (long long)near.value[1]);
    else
        ech_text_add(&why->text, " does");
    return true;
}

/* --- the model's sizes --- */

static bool breaks_heads(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t heads = job->model->heads;
    if (heads % p->tp == 0)
        return false;
    if (why) {
        ech_findings_add(why, "tp %d does not divide the %lld query heads", p->tp,
                         (long long)heads);
        ech_point_near(why, ech_near_divisors(heads, p->tp));
    }
    return true;
}

/* With fewer key/value heads than ranks some hold the same head; torch's tensor parallel plans
 * cannot. */
static bool breaks_kv_heads(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t kv = job->model->kv_heads;
    const bool splits = job->system == ECH_SYSTEM_FSDP2 || job->system == ECH_SYSTEM_TORCHTITAN;
    if (job->model->mla.kv_lora_rank || kv % p->tp == 0 || (!splits && p->tp % kv == 0) ||
        job->system == ECH_SYSTEM_ECHELON)
        return false;
    if (why) {
        ech_findings_add(why, "tp %d does not divide the %lld key/value heads%s", p->tp,
                         (long long)kv, splits ? "" : ", nor is it a multiple of them");
        ech_point_near(why, ech_near_divisors(kv, p->tp));
    }
    return true;
}

static bool has_dense_layers(const ech_model *m)
{
    return m->moe.experts == 0 || m->moe.first_dense > 0 || m->moe.sparse_step > 1;
}

/* Echelon pads an MLP that tp does not divide; the others refuse. */
static bool breaks_ffn(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const ech_model *m = job->model;
    if (job->system == ECH_SYSTEM_ECHELON || !has_dense_layers(m) || m->ffn % p->tp == 0)
        return false;
    if (why) {
        ech_findings_add(why, "tp %d does not divide the MLP's width %lld", p->tp,
                         (long long)m->ffn);
        ech_point_near(why, ech_near_divisors(common_divisor(m->ffn, m->heads), p->tp));
    }
    return true;
}

/* --- experts --- */

static bool breaks_dense_ep(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (job->model->moe.experts || (p->ep == 1 && p->etp == 1))
        return false;
    if (why)
        ech_findings_add(why, "ep %d, etp %d: the model has no experts; nearest legal value 1",
                         p->ep, p->etp);
    return true;
}

static bool breaks_experts(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t experts = job->model->moe.experts;
    if (!experts || experts % p->ep == 0)
        return false;
    if (why) {
        ech_findings_add(why, "ep %d does not divide the %lld experts", p->ep, (long long)experts);
        ech_point_near(why, ech_near_divisors(experts, p->ep));
    }
    return true;
}

static bool breaks_expert_ffn(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const ech_moe *moe = &job->model->moe;
    if (!moe->experts || moe->expert_ffn % p->etp == 0)
        return false;
    if (why) {
        ech_findings_add(why, "etp %d does not divide an expert's width %lld", p->etp,
                         (long long)moe->expert_ffn);
        ech_point_near(why, ech_near_divisors(moe->expert_ffn, p->etp));
    }
    return true;
}

static bool breaks_expert_ranks(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t stage = (int64_t)p->tp * p->cp * p->dp;
    if (!job->model->moe.experts || stage % ((int64_t)p->ep * p->etp) == 0)
        return false;
    if (why) {
        ech_findings_add(why, "ep %d x etp %d does not divide tp x cp x dp = %lld", p->ep, p->etp,
                         (long long)stage);
        if (stage % p->etp == 0)
            ech_point_near(why, ech_near_divisors(stage / p->etp, p->ep));
    }
    return true;
}

/* --- batch and sequence --- */

static bool breaks_batch(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t pass = (int64_t)p->micro * p->dp;
    if (job->global_batch >= pass && job->global_batch % pass == 0)
        return false;
    if (why) {
        ech_findings_add(why, "global batch %lld is no multiple of micro %d x dp %d = %lld",
                         (long long)job->global_batch, p->micro, p->dp, (long long)pass);
        ech_point_near(why, ech_near_multiples(pass, job->global_batch));
    }
    return true;
}

/* Causal attention is shared evenly where each rank has a piece from both ends: 2 cp pieces. */
static bool breaks_cp(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t pieces = (int64_t)p->cp * (p->cp > 1 && p->cp_kind != ECH_CP_ULYSSES ? 2 : 1);
    if (job->seq % pieces == 0)
        return false;
    if (why) {
        ech_findings_add(why,
                         "sequence of %lld is not cut evenly by cp %d: wanted a multiple of "
                         "%lld",
                         (long long)job->seq, p->cp, (long long)pieces);
        ech_point_near(why, ech_near_multiples(pieces, job->seq));
    }
    return true;
}

/* Ulysses hands whole heads to the ranks; key/value heads are copied where there are too few. */
static bool breaks_ulysses(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t heads = job->model->heads / p->tp;
    const int64_t kv = job->model->kv_heads > p->tp ? job->model->kv_heads / p->tp : 1;
    const bool is_whole = heads % p->cp == 0 && (kv % p->cp == 0 || p->cp % kv == 0);
    if (p->cp_kind != ECH_CP_ULYSSES || p->cp == 1 || heads == 0 || is_whole)
        return false;
    if (why) {
        ech_findings_add(why,
                         "cp %d under ulysses does not divide the %lld query heads (%lld "
                         "key/value heads) that tp %d leaves a rank",
                         p->cp, (long long)heads, (long long)kv, p->tp);
        ech_point_near(why, ech_near_divisors(heads, p->cp));
    }
    return true;
}

/* Echelon cuts a micro-batch's tokens, the others each sequence. */
static bool breaks_sequence_parallel(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t tokens = job->seq / p->cp * (job->system == ECH_SYSTEM_ECHELON ? p->micro : 1);
    if (!p->sequence_parallel || tokens % p->tp == 0)
        return false;
    if (why) {
        ech_findings_add(why,
                         "sequence parallelism: tp %d does not divide the %lld tokens of a "
                         "rank",
                         p->tp, (long long)tokens);
        ech_point_near(why, ech_near_divisors(common_divisor(tokens, job->model->heads), p->tp));
    }
    return true;
}

/* --- the device --- */

static bool breaks_precision(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const ech_device *device = &job->cluster->device;
    (void)p;
    if (device->peak_flops[job->precision] > 0.0)
        return false;
    if (!why)
        return true;
    ech_findings_add(why, "%s has no units for %s; legal:", device->name,
                     ech_precision_name(job->precision));
    for (int i = 0; i < ECH_N_PRECISIONS; i++)
        if (device->peak_flops[i] > 0.0)
            ech_text_add(&why->text, " %s", ech_precision_name((ech_precision)i));
    return true;
}

/* --- the table --- */

static const ech_point_rule rules[] = {
    {"a degree below 1", breaks_degrees},
    {"degrees do not make up the GPUs", breaks_gpus},
    {"precision: no units for it", breaks_precision},
    {"tp does not divide the heads", breaks_heads},
    {"tp does not divide the key/value heads", breaks_kv_heads},
    {"tp does not divide the MLP", breaks_ffn},
    {"ep without experts", breaks_dense_ep},
    {"ep does not divide the experts", breaks_experts},
    {"etp does not divide an expert", breaks_expert_ffn},
    {"ep x etp does not divide tp x cp x dp", breaks_expert_ranks},
    {"micro x dp does not divide the batch", breaks_batch},
    {"cp does not divide the sequence", breaks_cp},
    {"cp does not divide the heads", breaks_ulysses},
    {"tp does not divide the tokens", breaks_sequence_parallel},
};

const ech_point_rule *ech_point_rules_common(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}

const char *ech_point_refusal(const ech_job *job, const ech_point *p)
{
    const ech_point_rule *(*const part[])(int *) = {ech_point_rules_common, ech_point_rules_system};
    for (size_t k = 0; k < sizeof part / sizeof part[0]; k++) {
        int n;
        const ech_point_rule *rule = part[k](&n);
        for (int i = 0; i < n; i++)
            if (rule[i].breaks(job, p, NULL))
                return rule[i].reason;
    }
    return NULL;
}

bool ech_point_is_legal(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const ech_point_rule *(*const part[])(int *) = {ech_point_rules_common, ech_point_rules_system};
    bool is_legal = true;
    if (!why)
        return ech_point_refusal(job, p) == NULL;
    if (breaks_degrees(job, p, why)) /* the others divide by them */
        return false;
    for (size_t k = 0; k < sizeof part / sizeof part[0]; k++) {
        int n;
        const ech_point_rule *rule = part[k](&n);
        for (int i = 0; i < n; i++)
            is_legal &= !rule[i].breaks(job, p, why);
    }
    return is_legal;
}

/* --- what the engine executes --- */

static const char *recompute_word(const ech_point *p)
{
    return p->recompute ? "recomputation" : "none";
}

static const char *offload_word(ech_offload where)
{
    static const char *const words[] = {"none", "host", "nvme"};
    return words[where];
}

static ech_legal_query query_of(const ech_job *job, const ech_point *p)
{
    ech_legal_query q = ech_legal_query_default();
    const ech_model *m = job->model;
    q.heads = m->heads;
    q.kv_heads = m->kv_heads;
    q.ffn = m->ffn;
    q.vocab = m->vocab;
    q.layers = m->layers;
    q.ranks = job->gpus;
    q.tp = p->tp;
    q.pp = p->pp;
    q.cp = p->cp;
    q.ep = p->ep;
    q.etp = p->etp;
    q.dp = p->dp;
    q.schedule = ech_schedule_name(p->schedule);
    q.virtual_stages = p->vpp;
    q.sequence_parallel = p->sequence_parallel;
    q.zero_stage = p->zero_stage;
    q.zero_group = p->zero_group;
    q.reshard_after_forward = p->reshard_after_forward;
    q.reduce_each = p->reduce_each;
    q.micro = p->micro;
    q.global = job->global_batch;
    q.seq = job->seq;
    q.recompute = recompute_word(p);
    q.offload_optimizer = offload_word(p->offload_optimizer);
    q.offload_params = offload_word(p->offload_params);
    q.offload_activations = offload_word(p->offload_activations);
    q.compute = ech_precision_name(job->precision);
    return q;
}

bool ech_point_is_executable(const ech_job *job, const ech_point *p, ech_findings *why)
{
    ech_legal_report report;
    bool runs = true;
    if (job->system != ECH_SYSTEM_ECHELON)
        return true;
    if (!job->model->is_executable) {
        runs = false;
        ech_findings_add(why, "model: %s", job->model->not_executable);
    }
    if (job->cluster->device.kind != ECH_DEVICE_CPU) {
        runs = false;
        ech_findings_add(why, "device: the engine runs on processors, not on %s",
                         job->cluster->device.name);
    }
    if (job->tuning != ECH_TUNING_FULL) {
        runs = false;
        ech_findings_add(why, "tuning: the engine trains all parameters");
    }
    const ech_legal_query q = query_of(job, p);
    ech_legal_check(&q, &report);
    for (int i = 0; i < report.n; i++) {
        if (report.item[i].verdict != ECH_VERDICT_REFUSED)
            continue;
        runs = false;
        ech_findings_add(why, "%s: %s", report.item[i].key, report.item[i].message);
    }
    return runs;
}
