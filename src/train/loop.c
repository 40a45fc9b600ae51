#include "train/loop.h"
#include "base/clock.h"
#include "base/log.h"
#include "price/rate.h" /* ECH_FLOPS_CONVENTION */
#include "train/checkpoint.h"
#include "train/config_layout.h"
#include "train/lr.h"
#include "price/predict.h"
#include "train/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Of every step; gradients are divided by it again where they are used. */
static const double LOSS_SCALE = 1.0;

/* Skipped one after the other: no update came between, so the weights are the fault, not a batch. */
enum { MAX_SKIPS = 10 };

/* A run in progress. */
typedef struct loop {
    const ech_loop_config *config;
    const ech_config *cfg;
    ech_session *s;
    bool is_root; /* tells events, writes files */
    ech_lr lr;
    ech_prediction predicted; /* of the fullest rank */
    int fullest;
    int64_t step;    /* made */
    int64_t updates; /* made */
    int64_t skipped, nonfinite;
    int nonfinite_in_a_row;
    double loss;     /* of the last step */
    char lost[1024]; /* why the last checkpoint was not saved; "": it was */
    int64_t worst_comm_diff;
    ech_sent *sent; /* owned [n_local]: of the last step */
    ech_engine_times times;
} loop;

#define TELL(l, name, event)                                                                       \
    ((l)->is_root && (l)->config->sink.name                                                        \
         ? (l)->config->sink.name((l)->config->sink.user, (event))                                 \
         : ECH_OK)

/* --- before the run --- */

static size_t cap(int64_t bytes, int64_t headroom)
{
    if (bytes < 0)
        return 0;
    return (size_t)(bytes > headroom ? bytes - headroom : 1);
}

ech_session_config ech_loop_session_config(const ech_config *cfg, const ech_kernel_set *kernels,
                                           int threads, int node_ranks)
{
    ech_layout layout;
    /* the configuration has been validated, and with it the layout */
    ECH_ASSERT(ech_config_layout_make(cfg, node_ranks, &layout) >= 0);
    ech_session_config c = {.model = &cfg->model,
                            .seed = (uint64_t)cfg->train.seed,
                            .kernels = kernels,
                            .threads = threads,
                            .watchdog_s = cfg->faults.watchdog_s,
                            .has_eval = cfg->data.valid.n > 0};
    c.compile = (ech_compile_spec){
        .block = {.layout = layout,
                  .policy = ech_config_policy(cfg),
                  .real = cfg->precision.compute == ECH_COMPUTE_FP64 ? ECH_F64 : ECH_F32,
                  .rows = cfg->batch.micro,
                  .seq = cfg->batch.seq,
                  .optim = cfg->optim.name == ECH_OPTIM_SGD ? ECH_UPDATE_SGD : ECH_UPDATE_ADAMW,
                  .beta1 = cfg->optim.betas[0],
                  .beta2 = cfg->optim.betas[1],
                  .eps = cfg->optim.eps,
                  .weight_decay = cfg->optim.weight_decay,
                  .clip = cfg->optim.clip},
        .micro_batches = (int)ech_config_accumulation(cfg),
        .rolls = ech_config_accumulation(cfg) >= ECH_COMPILE_ROLLED_FROM,
        .bucket_bytes = (int64_t)ech_config_bucket_bytes(cfg),
    };
    ech_config_pipeline(cfg, &c.compile);
    const ech_config_memory *m = &cfg->memory;
    c.compile.cap_bytes[ECH_SPACE_DEVICE] = cap(m->device_bytes, m->headroom_bytes);
    c.compile.cap_bytes[ECH_SPACE_HOST] = cap(m->host_bytes, m->headroom_bytes);
    c.compile.cap_bytes[ECH_SPACE_NVME] = cap(m->nvme_bytes, m->headroom_bytes);
    return c;
}

ech_status ech_loop_describe(const ech_model *model, int64_t seq, ech_event_start *out)
{
    ech_param_count count;
    ECH_TRY(ech_model_count(model, &count));
    out->params = count.total;
    out->params_active = count.active;
    out->flops_per_token = ech_model_flops_per_token(model, seq, false);
    out->flops_convention = ECH_FLOPS_CONVENTION;
    out->peak_flops = NAN;
    return ECH_OK;
}

static ech_status predict(const loop *l, int rank, ech_prediction *out)
{
    ECH_TRY(ech_predict(&l->s->train, &l->s->eval, rank, out));
    if (l->config->step_s)
        out->step_s = *l->config->step_s;
    return ECH_OK;
}

static ech_status predict_ranks(const loop *l, int ranks, ech_prediction **out)
{
    *out = NULL;
    if (!l->config->wants_ranks)
        return ECH_OK;
    ECH_TRY(ech_calloc((size_t)ranks, sizeof **out, out));
    for (int r = 0; r < ranks; r++)
        ECH_TRY(predict(l, r, &(*out)[r]));
    return ECH_OK;
}

static ech_status tell_start(loop *l)
{
    ech_prediction *by_rank;
    ech_event_start e = {
        .layout_auto = l->config->layout_auto,
        .legal = l->config->legal,
        .ranks = l->s->config.compile.block.layout.world,
        .layout = &l->s->config.compile.block.layout,
        .predicted = &l->predicted,
        .step = l->step,
        .resumed_from = l->config->from->path[0] ? l->config->from->path : NULL,
        .kernels = l->config->kernels,
        .transport = l->config->transport,
        .threads = l->s->config.threads,
    };
    ECH_TRY(ech_loop_describe(&l->s->model, l->cfg->batch.seq, &e));
    ech_status st = predict_ranks(l, e.ranks, &by_rank);
    e.by_rank = by_rank;
    if (st >= 0)
        st = TELL(l, start, &e);
    free(by_rank);
    return st;
}

/* Each checkpoint that was passed over, a line each. */
static ech_status tell_passed_over(loop *l)
{
    char line[1024];
    const char *at = ech_text_get(&l->config->from->passed_over);
    const ech_event_fault e = {
        .kind = "checkpoint", .rank = -1, .step = l->step, .action = "pass over", .detail = line};
    for (; *at; at += strcspn(at, "\n") + 1) {
        (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        ECH_TRY(TELL(l, fault, &e));
    }
    return ECH_OK;
}

/* --- a step --- */

static int64_t largest_comm_diff(const ech_session *s, int i)
{
    ech_traffic predicted[ECH_N_AXES];
    int64_t worst = 0;
    const ech_sent *sent = ech_comm_sent(s->local[i].comm);
    ech_program_traffic(&s->local[i].klass->program, s->local[i].rank, predicted);
    for (int a = 0; a < ECH_N_AXES; a++) {
        const int64_t d = llabs(predicted[a].wire_bytes - sent->wire_bytes[a]);
        worst = d > worst ? d : worst;
    }
    return worst;
}

/* The largest of every process's value. */
static ech_status largest_of_all(loop *l, int64_t mine, int64_t *out)
{
    ech_transport *t = l->s->local[0].transport;
    int64_t *all;
    *out = mine;
    if (l->s->n_local > 1 || t->size == 1)
        return ECH_OK;
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    const ech_status st = t->exchange(t, &mine, sizeof mine, all);
    for (int r = 0; r < t->size && st >= 0; r++)
        *out = all[r] > *out ? all[r] : *out;
    free(all);
    return st;
}

/* The first tensor, in the model's order, of which a rank here holds a gradient that is not finite. */
typedef struct suspect {
    const ech_canon *canon;
    ech_dtype real;
    int64_t param; /* -1: none */
} suspect;

static ech_status inspect(void *user, const ech_held_run *r)
{
    suspect *s = user;
    const int64_t param = r->param - s->canon->param;
    for (int64_t e = 0; e < r->elems && (s->param < 0 || param < s->param); e++)
        if (!isfinite(ech_dtype_load(s->real, r->data, (size_t)e)))
            s->param = param;
    return ECH_OK;
}

/* Ranks hold parts of the gradient, so they tell each other; largest_of_all of the negative. */
static ech_status name_gradient(loop *l, char *buf, size_t n)
{
    ech_session *s = l->s;
    const int64_t none = s->canon.n_params;
    suspect found = {&s->canon, s->config.compile.block.real, -1};
    int64_t first;
    for (int i = 0; i < s->n_local; i++) {
        const ech_held held = ech_session_held(s, i);
        ECH_TRY(ech_held_each(&held, ECH_HELD_GRADS, inspect, &found));
    }
    ECH_TRY(largest_of_all(l, found.param < 0 ? -none : -found.param, &first));
    if (-first < none)
        (void)snprintf(buf, n, "the loss is finite, the gradient of %s is not",
                       s->canon.param[-first].name);
    else
        (void)snprintf(buf, n, "the squared gradient norm overflows");
    return ECH_OK;
}

static void name_samples(const loop *l, int rank, int micro, char *buf, size_t n)
{
    const int64_t row = ech_first_row(&ech_run_of(&l->s->train, rank)->program, rank, micro);
    int used = snprintf(buf, n, "the loss of rank %d, micro-batch %d is not finite: sample%s", rank,
                        micro, l->cfg->batch.micro > 1 ? "s" : "");
    for (int64_t i = 0; i < l->cfg->batch.micro && used > 0 && (size_t)used < n; i++)
        used += snprintf(buf + used, n - (size_t)used, "%s %lld", i ? "," : "",
                         (long long)ech_feed_sample(l->config->feed, l->step, row + i));
}

/* What is not finite, in words; every process says the same.  *Collective*. */
static ech_status name_nonfinite(loop *l, char *buf, size_t n, int *rank)
{
    int micro;
    ECH_TRY(ech_session_find_nonfinite(l->s, rank, &micro));
    if (*rank < 0)
        return name_gradient(l, buf, n);
    name_samples(l, *rank, micro, buf, n);
    return ECH_OK;
}

/* A loss or gradient that is not finite: every rank sees the same sums and decides alike. */
static ech_status on_nonfinite(loop *l)
{
    char detail[256];
    int rank;
    const bool may_skip = l->cfg->faults.nan == ECH_ON_NAN_SKIP;
    l->nonfinite++;
    l->nonfinite_in_a_row++;
    const bool stops = !may_skip || l->nonfinite_in_a_row >= MAX_SKIPS;
    ECH_TRY(name_nonfinite(l, detail, sizeof detail, &rank));
    ech_log_root(ECH_LOG_ERROR, "step %lld: %s", (long long)l->step + 1, detail);
    const ech_event_fault e = {.kind = "nan",
                               .rank = rank,
                               .step = l->step + 1,
                               .action = stops ? "stop" : "skip",
                               .detail = detail};
    ECH_TRY(TELL(l, fault, &e));
    ECH_CHECK(!stops || may_skip, ECH_E_FAILED, "step %lld diverged: %s (faults.nan: stop)",
              (long long)l->step + 1, detail);
    ECH_CHECK(!stops, ECH_E_FAILED,
              "step %lld diverged, as did the %d before it: %s (faults.nan: skip gives up after %d "
              "in a row)",
              (long long)l->step + 1, MAX_SKIPS - 1, detail, MAX_SKIPS);
    return ECH_OK;
}

static ech_status on_no_tokens(loop *l)
{
    const ech_event_fault e = {.kind = "no tokens",
                               .rank = -1,
                               .step = l->step + 1,
                               .action = "skip",
                               .detail = "no token of the step is unmasked: no update"};
    ech_log_root(ECH_LOG_WARN, "step %lld: no token is unmasked: no update",
                 (long long)l->step + 1);
    return TELL(l, fault, &e);
}

static ech_status tell_step(loop *l, const ech_step_result *r, double lr, double step_s)
{
    const ech_engine_times t = ech_engine_times_get(l->s->local[0].engine);
    const double positions = (double)(l->cfg->batch.global * l->cfg->batch.seq);
    const ech_event_step e = {.step = l->step + 1,
                              .loss = r->loss,
                              .grad_norm = r->grad_norm,
                              .lr = lr,
                              .tokens = r->tokens,
                              .tokens_per_s = positions / step_s,
                              .mfu = NAN,
                              .hfu = NAN,
                              .step_s = step_s,
                              .exposed_comm_s = t.blocked_s,
                              .loss_scale = LOSS_SCALE,
                              .skipped = !r->is_updated};
    l->times.kernels_s += t.kernels_s;
    l->times.comm_s += t.comm_s;
    l->times.blocked_s += t.blocked_s;
    l->times.total_s += t.total_s;
    if ((l->step + 1) % l->cfg->train.log_every && l->step + 1 < l->config->steps)
        return ECH_OK;
    return TELL(l, step, &e);
}

static ech_status make_step(loop *l, bool *stopping)
{
    ech_step_result r;
    const double t0 = ech_clock_s();
    const double lr = ech_lr_at(&l->lr, l->updates + 1);
    const ech_step_request request = {.step = l->step,
                                      .updates = l->updates,
                                      .lr = lr,
                                      .loss_scale = LOSS_SCALE,
                                      .commit = ECH_COMMIT_IF_FINITE,
                                      .wants_stop = *l->config->stop != 0,
                                      .records = l->step + 1 == l->config->trace_step};
    ech_log_set_step((long)l->step + 1);
    for (int i = 0; i < l->s->n_local; i++) {
        ech_comm_sent_reset(l->s->local[i].comm);
        ech_engine_times_reset(l->s->local[i].engine);
    }
    ech_session_say(l->s, "loading a batch", l->step + 1);
    ECH_TRY(ech_feed_step(l->config->feed, l->s, l->step));
    ECH_TRY(ech_session_step(l->s, &request, &r));
    for (int i = 0; i < l->s->n_local; i++) {
        const int64_t d = largest_comm_diff(l->s, i);
        l->worst_comm_diff = d > l->worst_comm_diff ? d : l->worst_comm_diff;
    }
    for (int i = 0; i < l->s->n_local; i++)
        l->sent[i] = *ech_comm_sent(l->s->local[i].comm);
    ech_session_say(l->s, "after a step", l->step + 1);
    if (r.tokens == 0)
        ECH_TRY(on_no_tokens(l));
    else if (!r.is_finite)
        ECH_TRY(on_nonfinite(l));
    else
        l->nonfinite_in_a_row = 0;
    ECH_TRY(tell_step(l, &r, lr, ech_clock_s() - t0));
    l->loss = r.loss;
    l->updates += r.is_updated;
    l->skipped += !r.is_updated;
    l->step++;
    *stopping = r.is_stopping;
    return ECH_OK;
}

/* --- between steps --- */

/* A wish to stop ends it early, and untold. */
static ech_status evaluate(loop *l, bool *stopping)
{
    double sum = 0.0;
    int64_t tokens = 0;
    const int64_t batches = ech_feed_eval_batches(l->config->feed, l->s);
    for (int64_t i = 0; i < batches; i++) {
        ech_eval_result r;
        ech_session_say(l->s, "loading a batch of evaluation", l->step);
        ECH_TRY(ech_feed_eval(l->config->feed, l->s, i));
        ECH_TRY(ech_session_eval(l->s, *l->config->stop != 0, &r));
        sum += r.loss_sum;
        tokens += r.tokens;
        *stopping = r.is_stopping && i + 1 < batches;
        if (*stopping)
            return ECH_OK;
    }
    const double loss = sum / (double)tokens;
    const ech_event_eval e = {l->step, loss, exp(loss)};
    return batches ? TELL(l, eval, &e) : ECH_OK;
}

static ech_ckpt_position position_of(const loop *l)
{
    return (ech_ckpt_position){.step = l->step,
                               .generation = l->config->from->generation,
                               .updates = l->updates,
                               .samples = l->step * l->cfg->batch.global,
                               .seed = l->cfg->train.seed,
                               .lr = ech_lr_at(&l->lr, l->updates),
                               .loss_scale = LOSS_SCALE};
}

/* Who failed, by the words that all ranks have agreed on ("rank N: ..."); rank 0's own have no such
 * beginning.  -1: ranks have lost each other. */
static int rank_of(ech_status st, const char *words)
{
    int rank;
    if (st == ECH_E_COMM || st == ECH_E_TIMEOUT)
        return -1;
    return sscanf(words, "rank %d", &rank) == 1 ? rank : 0;
}

/* Older ones stand: training goes on, unless none will follow: then the run ends as it would have,
 * and fails.  Every rank decides alike; where the ranks have lost each other none can go on. */
static ech_status on_failed_save(loop *l, ech_status st, bool must)
{
    char detail[1024];
    if (st == ECH_E_TIMEOUT) /* no matter of files: who is waited for is told where the run ends */
        return st;
    const bool can_end = st == ECH_E_IO || st == ECH_E_CORRUPT || st == ECH_E_NOMEM;
    const bool goes_on = !must && can_end;
    (void)snprintf(detail, sizeof detail, "%s", ech_error_message());
    ech_log_root(ECH_LOG_ERROR, "NO CHECKPOINT of step %lld: %s%s", (long long)l->step, detail,
                 goes_on ? "; older ones stand, training goes on" : "");
    const ech_event_fault e = {.kind = "checkpoint",
                               .rank = rank_of(st, detail),
                               .step = l->step,
                               .action = goes_on ? "go on" : "stop",
                               .detail = detail};
    ECH_TRY(TELL(l, fault, &e));
    ECH_CHECK(can_end, must ? ECH_E_FAILED : st, "the checkpoint of step %lld was not saved: %s",
              (long long)l->step, detail);
    if (must)
        memcpy(l->lost, detail, sizeof l->lost);
    ech_error_clear();
    return ECH_OK;
}

/* `must`: it is the last one. */
static ech_status save(loop *l, bool must)
{
    ech_ckpt_saved saved = {.path = ""};
    const ech_ckpt_position at = position_of(l);
    const double t0 = ech_clock_s();
    ech_session_say(l->s, "writing a checkpoint", l->step);
    const ech_status st = ech_checkpoint_save(l->cfg, l->s, &at, l->config->data, &saved);
    if (st < 0)
        return on_failed_save(l, st, must);
    const double took = ech_clock_s() - t0;
    const ech_event_checkpoint e = {l->step, saved.path, saved.bytes, took, took};
    return TELL(l, checkpoint, &e);
}

/* Who is asked to stop has little time: state is saved, nothing is evaluated. */
static ech_status after_step(loop *l, bool is_last, bool *stopping)
{
    const int64_t eval_every = l->cfg->train.eval_every;
    const int64_t save_every = l->cfg->checkpoint.every_steps;
    if (!*stopping && (is_last || (eval_every > 0 && l->step % eval_every == 0)))
        ECH_TRY(evaluate(l, stopping));
    if (save_every > 0 && (is_last || *stopping || l->step % save_every == 0))
        ECH_TRY(save(l, is_last || *stopping));
    return ECH_OK;
}

/* The step that was to be recorded, if it was the last one made.  Rank 0 writes meanwhile. */
static ech_status trace(loop *l)
{
    ech_timeline line;
    if (l->step != l->config->trace_step)
        return ECH_OK;
    ECH_TRY(ech_trace_gather(l->s, l->step, &line));
    const ech_event_trace e = {l->step, &line};
    const ech_status st = TELL(l, trace, &e);
    ech_timeline_fini(&line);
    return st;
}

/* --- after the run --- */

static bool has_stepped(const loop *l)
{
    return l->step > l->config->from->at.step;
}

/* Without a step there is no peak yet: what the engine has is laid out as predicted. */
static void foresee(const ech_memory *p, ech_engine_memory *m)
{
    memcpy(m->at_peak, p->at_peak, sizeof m->at_peak);
    m->total = p->total;
}

/* Largest |predicted - allocated| over spaces and classes, and of the arenas themselves. */
static int64_t largest_memory_diff(const loop *l, int i, const ech_prediction *predicted,
                                   ech_engine_memory memory[ECH_N_SPACES])
{
    int64_t worst = 0;
    for (int sp = 0; sp < ECH_N_SPACES; sp++) {
        const ech_memory *p = &predicted->memory[sp];
        ech_engine_memory_get(l->s->local[i].engine, (ech_space)sp, &memory[sp]);
        if (!has_stepped(l))
            foresee(p, &memory[sp]);
        for (int c = 0; c < ECH_N_CLASSES; c++) {
            const int64_t d = llabs((int64_t)p->at_peak[c] - (int64_t)memory[sp].at_peak[c]);
            worst = d > worst && memory[sp].arena ? d : worst;
        }
        const int64_t d = llabs((int64_t)p->arena - (int64_t)memory[sp].arena);
        worst = d > worst ? d : worst;
    }
    return worst;
}

static int64_t resident_bytes(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

/* Figures of the ranks that live here, and the largest difference in memory among them. */
static ech_status local_figures(const loop *l, ech_rank_figures *out, int64_t *diff)
{
    *diff = 0;
    for (int i = 0; i < l->s->n_local; i++) {
        ECH_TRY(predict(l, l->s->local[i].rank, &out[i].predicted));
        const int64_t d = largest_memory_diff(l, i, &out[i].predicted, out[i].memory);
        *diff = d > *diff ? d : *diff;
        ECH_TRY(ech_engine_check(l->s->local[i].engine));
        out[i].sent = l->sent[i];
        out[i].rss_bytes = resident_bytes();
    }
    return ECH_OK;
}

/* Every rank's figures. */
static ech_status all_figures(const loop *l, const ech_rank_figures *mine, ech_rank_figures **out)
{
    ech_transport *t = l->s->local[0].transport;
    const int n = l->s->n_local;
    *out = NULL;
    ECH_TRY(ech_calloc((size_t)(n > 1 ? n : t->size), sizeof **out, out));
    if (n == 1 && t->size > 1)
        return t->exchange(t, mine, sizeof *mine, *out);
    memcpy(*out, mine, (size_t)n * sizeof *mine);
    return ECH_OK;
}

static ech_status tell_figures(loop *l, const ech_rank_figures *mine, int64_t diff)
{
    ech_rank_figures *by_rank;
    ech_event_end e = {.steps = l->step,
                       .loss = l->loss,
                       .predicted = &l->predicted,
                       .ranks = l->s->config.compile.block.layout.world,
                       .kernel_share = l->times.kernels_s / l->times.total_s,
                       .comm_share = l->times.comm_s / l->times.total_s,
                       .blocked_share = l->times.blocked_s / l->times.total_s,
                       .skipped = l->skipped,
                       .nonfinite = l->nonfinite};
    ECH_TRY(largest_of_all(l, diff, &e.memory_diff_bytes));
    ECH_TRY(largest_of_all(l, l->worst_comm_diff, &e.comm_diff_bytes));
    ech_status st = all_figures(l, mine, &by_rank);
    if (st >= 0) {
        const ech_rank_figures *fullest = &by_rank[l->fullest];
        e.memory = fullest->memory;
        e.rss_bytes = fullest->rss_bytes;
        e.sent = &fullest->sent;
        e.by_rank = l->config->wants_ranks ? by_rank : NULL;
        st = TELL(l, end, &e);
    }
    free(by_rank);
    return st;
}

static ech_status tell_end(loop *l)
{
    ech_rank_figures *mine;
    int64_t diff;
    ECH_TRY(ech_calloc((size_t)l->s->n_local, sizeof *mine, &mine));
    ech_status st = local_figures(l, mine, &diff);
    if (st >= 0)
        st = tell_figures(l, mine, diff);
    free(mine);
    return st;
}

static ech_status run(loop *l, ech_loop_end *end)
{
    bool stopping = false;
    const ech_loop_config *config = l->config;
    ECH_TRY(ech_predict_fullest(&l->s->train, &l->s->eval, &l->fullest, &l->predicted));
    if (l->config->step_s)
        l->predicted.step_s = *l->config->step_s;
    ECH_TRY(tell_start(l));
    ECH_TRY(tell_passed_over(l));
    ECH_CHECK(!config->dump_grads || l->step < config->steps, ECH_E_USAGE,
              "--dump-grads: %s is at step %lld already, no step is made; --resume no starts anew",
              config->from->path, (long long)l->step);
    ECH_CHECK(!config->trace_step || l->step < config->trace_step, ECH_E_USAGE,
              "--trace: %s is at step %lld already, step %lld is not made; --resume no starts anew",
              config->from->path, (long long)l->step, (long long)config->trace_step);
    while (l->step < config->steps && !stopping) {
        ECH_TRY(make_step(l, &stopping));
        const bool is_last = l->step == config->steps;
        stopping = stopping && !is_last; /* then nothing is left to stop */
        ECH_TRY(after_step(l, is_last, &stopping));
        ECH_TRY(trace(l));
    }
    if (l->step < config->trace_step)
        ech_log_root(ECH_LOG_WARN, "no trace: the run stopped after step %lld, before step %lld",
                     (long long)l->step, (long long)config->trace_step);
    ech_session_say(l->s, "ending", l->step);
    if (config->dump_grads)
        ECH_TRY(ech_checkpoint_dump_grads(l->s, 1.0 / LOSS_SCALE, config->dump_grads));
    l->s->local[0].transport->spares_root = true; /* which may still be at its gradients' file */
    ECH_TRY(tell_end(l));
    ECH_CHECK(!l->lost[0], ECH_E_FAILED, "the checkpoint of step %lld was not saved: %s",
              (long long)l->step, l->lost);
    *end = stopping ? ECH_LOOP_STOPPED : ECH_LOOP_FINISHED;
    return ECH_OK;
}

ech_status ech_loop_run(const ech_loop_config *config, ech_loop_end *end)
{
    loop l = {.config = config,
              .cfg = config->cfg,
              .s = config->session,
              .is_root = config->session->local[0].rank == 0,
              .lr = ech_lr_from_config(config->cfg),
              .step = config->from->at.step,
              .updates = config->from->at.updates,
              .skipped = config->from->at.step - config->from->at.updates,
              .loss = NAN};
    ECH_TRY(ech_calloc((size_t)l.s->n_local, sizeof *l.sent, &l.sent));
    const ech_status st = run(&l, end);
    free(l.sent);
    return st;
}
