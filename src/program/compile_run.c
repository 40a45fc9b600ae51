/* All programs of a run: stages and schedule, one program a pipeline rank, and their proof. */
#include "base/clock.h"
#include "program/compile_private.h"
#include "program/repeat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- schedule and stages --- */

static ech_status make_schedule(const ech_compile_spec *spec, ech_mode mode, int micros,
                                ech_schedule *out)
{
    const int pp = spec->block.layout.degree[ECH_AXIS_PP];
    const ech_schedule_spec s = {.kind = spec->schedule,
                                 .ranks = pp,
                                 .micros = micros,
                                 .chunks = spec->chunks > 0 ? spec->chunks : 1,
                                 .group = spec->group};
    ech_schedule whole = {0};
    ECH_TRY(spec->schedule == ECH_SCHEDULE_FILE ? ech_schedule_copy(spec->table, &whole)
                                                : ech_schedule_make(&s, &whole));
    ech_status st = ECH_OK;
    if (whole.ranks != pp || whole.micros != micros)
        st = ECH_RAISE(ECH_E_CONFIG,
                       "schedule %s is of %d ranks and %d micro-batches, the run has %d and %d",
                       whole.name, whole.ranks, whole.micros, pp, micros);
    if (st >= 0 && spec->schedule == ECH_SCHEDULE_FILE)
        st = ech_schedule_check(&whole);
    if (st >= 0 && mode != ECH_MODE_TRAIN)
        st = ech_schedule_forwards(&whole, out);
    else if (st >= 0) {
        *out = whole;
        return ECH_OK;
    }
    ech_schedule_fini(&whole);
    return st;
}

static ech_status make_stages(const ech_compile_spec *spec, const ech_schedule *s, ech_stages *out)
{
    const ech_stages_spec stages = {.model = spec->block.model,
                                    .canon = spec->block.canon,
                                    .ranks = s->ranks,
                                    .n = s->stages,
                                    .rank_of = s->rank_of,
                                    .layers = spec->stage_layers,
                                    .seq = spec->block.seq};
    ECH_CHECK(!spec->stage_layers || spec->n_stage_layers == s->stages, ECH_E_ILLEGAL,
              "layers of %d stages are given, schedule %s has %d", spec->n_stage_layers, s->name,
              s->stages);
    return ech_stages_make(&stages, out);
}

/* --- rounds --- */

/* Any costs will do that order cells as they depend on each other; with these the rounds of the
 * usual schedules are even. */
static const ech_schedule_costs round_costs = {.of = {[ECH_WORK_FORWARD] = 1,
                                                      [ECH_WORK_BACKWARD] = 2,
                                                      [ECH_WORK_INPUT] = 1,
                                                      [ECH_WORK_WEIGHT] = 1}};

typedef struct rounds {
    double *begin, *end, *done; /* owned */
} rounds;

static void rounds_fini(rounds *r)
{
    free(r->begin);
    free(r->end);
    free(r->done);
}

static ech_status find_rounds(const ech_schedule *s, rounds *r)
{
    ech_status st = ECH_OK;
    const size_t cells = (size_t)s->first[s->ranks];
    const size_t n = 2 * (size_t)s->stages * (size_t)s->micros;
    ECH_TRY(ech_calloc(cells, sizeof *r->begin, &r->begin));
    ECH_TRY(ech_calloc(cells, sizeof *r->end, &r->end));
    ECH_TRY(ech_calloc(n, sizeof *r->done, &r->done));
    for (size_t i = 0; i < n; i++)
        r->done[i] = -1.0;
    (void)ech_schedule_times(s, &round_costs, r->begin, r->end, &st);
    for (size_t i = 0; i < cells; i++) {
        const ech_work *w = &s->work[i];
        const size_t at = 2 * ((size_t)w->stage * (size_t)s->micros + (size_t)w->micro);
        if (w->kind != ECH_WORK_WEIGHT)
            r->done[at + (w->kind != ECH_WORK_FORWARD)] = r->end[i];
    }
    return st;
}

/* --- plans --- */

static ech_status plan_rank(const ech_compile_spec *spec, const ech_stages *stages, int rank,
                            ech_shard_plan *out)
{
    const ech_layout *l = &spec->block.layout;
    const ech_shard_spec shard = {
        .model = spec->block.model,
        .canon = spec->block.canon,
        .tp = l->degree[ECH_AXIS_TP],
        .is_sequence_parallel = spec->block.policy.is_sequence_parallel,
        .shards = ech_compile_form(spec).is_sharded ? l->degree[ECH_AXIS_DP] : 1,
        .stages = stages,
        .stage_rank = rank,
    };
    ECH_TRY(ech_shard_plan_make(&shard, out));
    ECH_CHECK(out->heads.copies == l->degree[ECH_AXIS_KV], ECH_E_ILLEGAL,
              "%d neighbouring ranks of tp hold the same key/value heads, the layout says %d",
              out->heads.copies, l->degree[ECH_AXIS_KV]);
    ECH_CHECK(out->is_tied_apart == (l->degree[ECH_AXIS_TIED] > 1), ECH_E_ILLEGAL,
              "the token table is tied%s over pipeline ranks, the layout says otherwise",
              out->is_tied_apart ? "" : " on one, not");
    return ECH_OK;
}

ech_status ech_compile_plan(const ech_compile_spec *spec, ech_shard_plan *out)
{
    return plan_rank(spec, NULL, 0, out);
}

/* The pipeline rank that holds the first or the last stage. */
static int rank_of_end(const ech_compile_spec *spec, int pp, bool is_last)
{
    if (spec->schedule == ECH_SCHEDULE_FILE)
        return spec->table && spec->table->ranks
                   ? spec->table->rank_of[is_last ? spec->table->stages - 1 : 0]
                   : 0;
    const int stages = pp * ech_schedule_chunks(spec->schedule, spec->chunks);
    return ech_schedule_place(spec->schedule, pp, is_last ? stages - 1 : 0);
}

ech_status ech_compile_layout(const ech_compile_spec *pipeline, const ech_model *model,
                              ech_layout_spec degrees, ech_layout *out)
{
    degrees.kv_share = ech_shard_heads(model->heads, model->kv_heads, degrees.tp).copies;
    degrees.tied[0] = degrees.tied[1] = 0;
    if (model->tie_embeddings) {
        degrees.tied[0] = rank_of_end(pipeline, degrees.pp, false);
        degrees.tied[1] = rank_of_end(pipeline, degrees.pp, true);
    }
    return ech_layout_make(&degrees, out);
}

/* --- runs --- */

void ech_run_fini(ech_run *run)
{
    for (int k = 0; run->klass && k < run->n_classes; k++)
        ech_program_fini(&run->klass[k].program);
    free(run->klass);
    free(run->class_of);
    free((void *)run->program);
    free((void *)run->plan);
    ech_stages_fini(&run->stages);
    ech_schedule_fini(&run->schedule);
    *run = (ech_run){0};
}

ech_status ech_run_unroll(ech_run *run)
{
    for (int k = 0; k < run->n_classes; k++) {
        ech_program *p = &run->klass[k].program;
        ech_program plain;
        if (!p->repeat.times)
            continue;
        ECH_TRY(ech_program_unroll(p, p->repeat.times, &plain));
        plain.rounds = (ech_repeat){0}; /* all of them are there */
        ech_program_fini(p);
        *p = plain;
    }
    return ECH_OK;
}

const ech_run_class *ech_run_of(const ech_run *run, int rank)
{
    return &run->klass[run->class_of[rank]];
}

ech_status ech_run_chain(const ech_run *prev, const ech_run *next)
{
    for (int k = 0; k < prev->n_classes; k++)
        ECH_TRY(ech_program_chain(prev->program[k], next->program[k]));
    return ECH_OK;
}

static ech_status reserve(ech_run *r, const ech_layout *l)
{
    const size_t n = (size_t)r->n_classes;
    ECH_TRY(ech_calloc(n, sizeof *r->klass, &r->klass));
    ECH_TRY(ech_calloc(n, sizeof *r->program, (void *)&r->program));
    ECH_TRY(ech_calloc(n, sizeof *r->plan, (void *)&r->plan));
    ECH_TRY(ech_calloc((size_t)l->world, sizeof *r->class_of, &r->class_of));
    for (int rank = 0; rank < l->world; rank++) {
        int64_t coord[ECH_N_AXES];
        ech_layout_coords(l, rank, coord);
        r->class_of[rank] = (int)coord[ECH_AXIS_PP];
    }
    for (int k = 0; k < r->n_classes; k++) {
        r->program[k] = &r->klass[k].program;
        r->plan[k] = &r->klass[k].plan;
    }
    return ECH_OK;
}

/* The cell of an item: of what a chunk does with a micro-batch; -1: of none. */
static int cell_of(const ech_run *r, int rank, const ech_item *it, ech_role role)
{
    const ech_schedule *s = &r->schedule;
    int chunk = 0;
    for (int i = s->first[rank]; i < s->first[rank + 1] && it->micro >= 0; i++) {
        const ech_work *w = &s->work[i];
        chunk = 0;
        for (int k = 0; k < w->stage; k++)
            chunk += s->rank_of[k] == rank;
        const bool is_kind = w->kind == ECH_WORK_FORWARD ? role == ECH_ROLE_FORWARD
                             : w->kind == ECH_WORK_WEIGHT
                                 ? role == ECH_ROLE_BACKWARD_WEIGHT
                                 : role == ECH_ROLE_BACKWARD || role == ECH_ROLE_BACKWARD_INPUT;
        if (chunk == it->chunk && w->micro == it->micro && is_kind)
            return i;
    }
    return -1;
}

/* Say of a program that is over a cap at which cell of the schedule its rank is fullest. */
static ech_status tell_cell(ech_run *r, int rank, ech_status st)
{
    char words[512];
    char where[192];
    ech_memory m;
    static const size_t no_caps[ECH_N_SPACES];
    ech_program *p = &r->klass[rank].program;
    (void)snprintf(words, sizeof words, "%s", ech_error_message());
    if (ech_program_place(p, no_caps) < 0 || ech_program_memory(p, ECH_SPACE_DEVICE, &m) < 0)
        return st;
    const ech_item *it = &p->item[m.peak_item];
    const int i = cell_of(r, rank, it, p->block[it->block].role);
    const ech_schedule_live live = ech_schedule_live_of(&r->schedule, rank);
    return ECH_RAISE(st, "pipeline rank %d is fullest in %s, with up to %d forwards kept: %s", rank,
                     i < 0 ? ech_item_describe(p, m.peak_item, where, sizeof where)
                           : ech_schedule_where(&r->schedule, i, where, sizeof where),
                     live.both, words);
}

static ech_status compile_classes(const ech_compile_spec *spec, ech_mode mode,
                                  const run_order *order, ech_run *r, bool *is_rolled)
{
    for (int k = 0; k < r->n_classes && *is_rolled; k++) {
        const compile_class klass = {spec, order, k, &r->klass[k], is_rolled};
        ECH_TRY(plan_rank(spec, &r->stages, k, &r->klass[k].plan));
        const ech_status st = compile_program(&klass, mode);
        if (st == ECH_E_INFEASIBLE && r->n_classes > 1)
            return tell_cell(r, k, st);
        ECH_TRY(st);
    }
    return ECH_OK;
}

/* The programs of a table; *is_rolled false where they are no programs of the step. */
static ech_status compile_table(const ech_compile_spec *spec, ech_mode mode, const ech_schedule *s,
                                ech_run *r, bool *is_rolled)
{
    rounds when = {0};
    *is_rolled = true;
    ech_status st = find_rounds(s, &when);
    const run_order order = {&r->stages, s, when.begin, when.done};
    if (st >= 0)
        st = compile_classes(spec, mode, &order, r, is_rolled);
    rounds_fini(&when);
    for (int k = 0; k < r->n_classes && !*is_rolled; k++)
        ech_program_fini(&r->klass[k].program);
    return st;
}

/* --- fewer micro-batches --- */

enum {
    MORE_THAN_KEPT = 8, /* micro-batches beyond those that a rank keeps: rounds enough to be seen */
    STEPS = 12          /* what rounds of one to four micro-batches divide */
};

/* How many micro-batches a table needs so that its rounds are seen; all of them: too few. */
static int few_micros(const ech_schedule *s)
{
    int kept = 0;
    for (int k = 0; k < s->ranks; k++) {
        const int both = ech_schedule_live_of(s, k).both;
        kept = both > kept ? both : kept;
    }
    const int least = kept + MORE_THAN_KEPT;
    return least >= s->micros ? s->micros : least + (s->micros - least) % STEPS;
}

static bool is_same_work(const ech_work *a, const ech_work *b, int more)
{
    return a->kind == b->kind && a->stage == b->stage && a->micro == b->micro + more;
}

/* Is a rank's list the shorter one with cells put in that repeat those before them: from either end
 * both lists are the same as far as the shorter one goes, and in between every cell is one `period`
 * cells before it, some micro-batches on. */
static bool is_longer(const ech_work *w, int n, const ech_work *few, int n_few, int more)
{
    int head = 0;
    int tail = 0;
    while (head < n_few && is_same_work(&w[head], &few[head], 0))
        head++;
    while (tail < n_few && is_same_work(&w[n - 1 - tail], &few[n_few - 1 - tail], more))
        tail++;
    const int period = (n - n_few) / more; /* cells of a micro-batch */
    if (head + tail < n_few + period || head < period)
        return false;
    for (int i = head; i < n - tail; i++)
        if (!is_same_work(&w[i], &w[i - period], 1))
            return false;
    return true;
}

static bool is_table_longer(const ech_schedule *s, const ech_schedule *few)
{
    bool is = s->ranks == few->ranks;
    for (int r = 0; r < s->ranks && is; r++)
        is = is_longer(s->work + s->first[r], s->first[r + 1] - s->first[r],
                       few->work + few->first[r], few->first[r + 1] - few->first[r],
                       s->micros - few->micros);
    return is;
}

/* Rolled programs, made of a table of few micro-batches; *is_rolled: they are. */
static ech_status compile_few(const ech_compile_spec *spec, ech_mode mode, ech_run *r,
                              bool *is_rolled)
{
    ech_schedule few = {0};
    const int micros = few_micros(&r->schedule);
    *is_rolled = false;
    if (!spec->rolls || spec->schedule == ECH_SCHEDULE_FILE || micros == r->schedule.micros)
        return ECH_OK;
    ech_status st = make_schedule(spec, mode, micros, &few);
    if (st == ECH_E_ILLEGAL)
        return ECH_OK; /* of so many there is none */
    if (st >= 0 && is_table_longer(&r->schedule, &few))
        st = compile_table(spec, mode, &few, r, is_rolled);
    ech_schedule_fini(&few);
    return st;
}

/* Every program that leaves the compiler has been checked. */
static ech_status prove(const ech_compile_spec *spec, const ech_run *r)
{
    ech_prove_report unread;
    ech_prove_spec p = {.program = r->program,
                        .n_classes = r->n_classes,
                        .class_of = r->n_classes > 1 ? r->class_of : NULL,
                        .plan = r->plan};
    memcpy(p.cap_bytes, spec->cap_bytes, sizeof p.cap_bytes);
    return ech_prove(&p, spec->report ? spec->report : &unread);
}

static ech_status prove_timed(const ech_compile_spec *spec, ech_run *r)
{
    if (spec->purpose != ECH_COMPILE_TO_RUN)
        return ECH_OK;
    const double t0 = ech_clock_s();
    const ech_status st = prove(spec, r);
    r->prove_s += ech_clock_s() - t0;
    return st;
}

/* Rolled programs of which the proof cannot say that their rounds repeat are given up for plain ones. */
static ech_status compile_rolled(const ech_compile_spec *spec, ech_mode mode, ech_run *r,
                                 bool *is_done)
{
    ECH_TRY(compile_few(spec, mode, r, is_done));
    if (!*is_done)
        return ECH_OK;
    const ech_status st = prove_timed(spec, r);
    *is_done = st >= 0;
    if (st != ECH_E_UNSUPPORTED)
        return st;
    for (int k = 0; k < r->n_classes; k++)
        ech_program_fini(&r->klass[k].program);
    return ECH_OK;
}

static ech_status compile(const ech_compile_spec *spec, ech_mode mode, ech_run *r)
{
    bool is_done = false;
    const double t0 = ech_clock_s();
    r->form = ech_compile_form(spec);
    r->n_classes = spec->block.layout.degree[ECH_AXIS_PP];
    ECH_TRY(make_schedule(spec, mode, spec->micro_batches, &r->schedule));
    ECH_TRY(make_stages(spec, &r->schedule, &r->stages));
    ECH_TRY(reserve(r, &spec->block.layout));
    ech_status st = compile_rolled(spec, mode, r, &is_done);
    if (st >= 0 && !is_done) {
        st = compile_table(spec, mode, &r->schedule, r, &is_done);
        if (st >= 0)
            st = prove_timed(spec, r);
    }
    r->compile_s = ech_clock_s() - t0 - r->prove_s;
    return st;
}

ech_status ech_run_compile(const ech_compile_spec *spec, ech_mode mode, ech_run *out)
{
    ech_run r = {0};
    const ech_status st = compile(spec, mode, &r);
    if (st < 0)
        ech_run_fini(&r);
    else
        *out = r;
    return st;
}

/* --- the one program of a run without a pipeline --- */

static ech_status compile_one(const ech_compile_spec *spec, ech_mode mode, ech_program *out,
                              ech_run_slots *slots)
{
    ech_run r = {0};
    ECH_ASSERT(spec->block.layout.degree[ECH_AXIS_PP] == 1);
    ECH_TRY(ech_run_compile(spec, mode, &r));
    *out = r.klass[0].program;
    *slots = r.klass[0].slots;
    r.klass[0].program = (ech_program){0};
    ech_run_fini(&r);
    return ECH_OK;
}

ech_status ech_compile_train(const ech_compile_spec *spec, ech_program *out, ech_run_slots *slots)
{
    return compile_one(spec, ECH_MODE_TRAIN, out, slots);
}

ech_status ech_compile_eval(const ech_compile_spec *spec, ech_program *out, ech_run_slots *slots)
{
    return compile_one(spec, ECH_MODE_EVAL, out, slots);
}

ech_status ech_compile_generate(const ech_compile_spec *spec, ech_program *out,
                                ech_run_slots *slots)
{
    ech_compile_spec one = *spec;
    one.micro_batches = 1;
    one.block.rows = 1;
    one.block.layout = ech_layout_data_parallel(1);
    one.block.policy = (ech_shard_policy){0};
    one.schedule = ECH_SCHEDULE_1F1B;
    one.chunks = 1;
    one.stage_layers = NULL;
    return compile_one(&one, ECH_MODE_GENERATE, out, slots);
}
