#include "price/stage_line.h"
#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of each program, in this order. */
enum { BLOCK_FORWARD, BLOCK_BACKWARD, BLOCK_INPUT, BLOCK_WEIGHT, BLOCK_UPDATE, N_BLOCKS };

static const struct {
    const char *name;
    ech_role role;
} blocks[N_BLOCKS] = {
    [BLOCK_FORWARD] = {"stage forward", ECH_ROLE_FORWARD},
    [BLOCK_BACKWARD] = {"stage backward", ECH_ROLE_BACKWARD},
    [BLOCK_INPUT] = {"stage input gradient", ECH_ROLE_BACKWARD_INPUT},
    [BLOCK_WEIGHT] = {"stage weight gradient", ECH_ROLE_BACKWARD_WEIGHT},
    [BLOCK_UPDATE] = {"update", ECH_ROLE_UPDATE},
};

static const int block_of[ECH_N_WORK_KINDS] = {[ECH_WORK_FORWARD] = BLOCK_FORWARD,
                                               [ECH_WORK_BACKWARD] = BLOCK_BACKWARD,
                                               [ECH_WORK_INPUT] = BLOCK_INPUT,
                                               [ECH_WORK_WEIGHT] = BLOCK_WEIGHT};

/* Gradients of inputs take as many matrix products as those of weights. */
static const double half = 0.5;

enum { PART_WHOLE, PART_INPUT, PART_WEIGHT, N_PARTS };

/* A table with its times. */
typedef struct timed {
    ech_schedule table;
    double *part[N_PARTS]; /* owned [stages] */
    double *begin, *end;   /* owned [cells] */
} timed;

static void drop(timed *t)
{
    ech_schedule_fini(&t->table);
    for (int i = 0; i < N_PARTS; i++)
        free(t->part[i]);
    free(t->begin);
    free(t->end);
}

/* Both parts, and the whole for schedules that do not tell them apart. */
static ech_status split_backwards(const ech_stage_line_spec *spec, timed *t)
{
    const size_t n = (size_t)t->table.stages;
    for (int i = 0; i < N_PARTS; i++)
        ECH_TRY(ech_calloc(n, sizeof *t->part[i], &t->part[i]));
    for (size_t k = 0; k < n; k++) {
        const double weight = spec->weight ? spec->weight[k] : half * spec->backward[k];
        t->part[PART_WHOLE][k] = spec->backward[k] + (spec->weight ? weight : 0.0);
        t->part[PART_WEIGHT][k] = weight;
        t->part[PART_INPUT][k] = t->part[PART_WHOLE][k] - weight;
    }
    return ECH_OK;
}

static ech_status run_table(const ech_stage_line_spec *spec, timed *t, double *makespan_s)
{
    const ech_schedule_spec what = {
        .kind = spec->kind, .ranks = spec->ranks, .micros = spec->micros, .chunks = spec->chunks};
    ech_status st;
    ECH_TRY(ech_schedule_make(&what, &t->table));
    ECH_TRY(split_backwards(spec, t));
    const size_t cells = (size_t)t->table.first[t->table.ranks];
    ECH_TRY(ech_calloc(cells, sizeof *t->begin, &t->begin));
    ECH_TRY(ech_calloc(cells, sizeof *t->end, &t->end));
    const ech_schedule_costs costs = {.each = {[ECH_WORK_FORWARD] = spec->forward,
                                               [ECH_WORK_BACKWARD] = t->part[PART_WHOLE],
                                               [ECH_WORK_INPUT] = t->part[PART_INPUT],
                                               [ECH_WORK_WEIGHT] = t->part[PART_WEIGHT]},
                                      .hop = spec->hop_s};
    *makespan_s = ech_schedule_times(&t->table, &costs, t->begin, t->end, &st);
    return st;
}

/* --- bars --- */

static ech_status add_bar(ech_timeline *l, const ech_bar *b)
{
    if (b->end_s <= b->begin_s)
        return ECH_OK;
    ECH_TRY(ech_grow(&l->bar, l->n, &l->capacity, sizeof *l->bar));
    l->bar[l->n++] = *b;
    return ECH_OK;
}

static ech_status add_item(ech_program *p, int block, const ech_work *w, ech_segment segment)
{
    ech_item item = ech_item_make(block, segment);
    if (w) {
        item.micro = w->micro;
        item.chunk = w->stage / p->layout.degree[ECH_AXIS_PP];
    }
    return ech_program_add_item(p, &item);
}

/* A cell, and the time for which its rank stood before it. */
static ech_status draw_cell(ech_stage_line *s, const timed *t, int rank, int i, double free_s)
{
    ech_program *p = &s->program[rank];
    const ech_work *w = &t->table.work[i];
    const int item = p->n_items;
    const ech_bar wait = {rank, ECH_LANE_WAIT, ECH_AXIS_PP, item, -1, free_s, t->begin[i]};
    const ech_bar work = {rank, ECH_LANE_COMPUTE, ECH_AXIS_PP, item, -1, t->begin[i], t->end[i]};
    ECH_TRY(add_item(p, block_of[w->kind], w, ECH_SEGMENT_ACCUMULATE));
    ECH_TRY(add_bar(&s->line, &wait));
    return add_bar(&s->line, &work);
}

/* Behind the table: the last rank's end, the reductions, the update. */
static ech_status draw_end(ech_stage_line *s, const ech_stage_line_spec *spec, int rank,
                           double free_s)
{
    ech_program *p = &s->program[rank];
    const int item = p->n_items;
    const double reduced_s = s->makespan_s + spec->reduce_s;
    const ech_bar wait = {rank, ECH_LANE_WAIT, ECH_AXIS_PP, item, -1, free_s, s->makespan_s};
    const ech_bar reduce = {rank, ECH_LANE_WAIT, ECH_AXIS_DP, item, -1, s->makespan_s, reduced_s};
    const ech_bar update = {rank,      ECH_LANE_COMPUTE,          ECH_AXIS_DP, item, -1,
                            reduced_s, reduced_s + spec->update_s};
    ECH_TRY(add_item(p, BLOCK_UPDATE, NULL, ECH_SEGMENT_COMMIT));
    ECH_TRY(add_bar(&s->line, &wait));
    ECH_TRY(add_bar(&s->line, &reduce));
    return add_bar(&s->line, &update);
}

static ech_status draw_rank(ech_stage_line *s, const ech_stage_line_spec *spec, const timed *t,
                            int rank)
{
    double free_s = 0.0;
    for (int b = 0; b < N_BLOCKS; b++) {
        int id;
        ech_block block = {.role = blocks[b].role};
        (void)snprintf(block.name, sizeof block.name, "%s", blocks[b].name);
        ECH_TRY(ech_program_add_block(&s->program[rank], &block, &id));
    }
    for (int i = t->table.first[rank]; i < t->table.first[rank + 1]; i++) {
        ECH_TRY(draw_cell(s, t, rank, i, free_s));
        free_s = t->end[i];
    }
    return draw_end(s, spec, rank, free_s);
}

/* --- making --- */

static ech_status make_ranks(ech_stage_line *s)
{
    const ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = s->ranks, .dp = 1, .kv_share = 1};
    const size_t n = (size_t)s->ranks;
    ech_layout layout;
    ECH_TRY(ech_layout_make(&spec, &layout));
    ECH_TRY(ech_calloc(n, sizeof *s->program, &s->program));
    ECH_TRY(ech_calloc(n, sizeof *s->of_rank, &s->of_rank));
    ECH_TRY(ech_calloc(n, sizeof *s->class_of, &s->class_of));
    for (int r = 0; r < s->ranks; r++) {
        ech_program_init(&s->program[r], "stage", &layout);
        s->of_rank[r] = &s->program[r];
        s->class_of[r] = r;
    }
    s->line.program = s->of_rank;
    s->line.class_of = s->class_of;
    s->line.world = s->ranks;
    return ECH_OK;
}

static double work_of(const timed *t)
{
    double sum = 0.0;
    for (int i = 0; i < t->table.first[t->table.ranks]; i++)
        sum += t->end[i] - t->begin[i];
    return sum;
}

static ech_status draw(const ech_stage_line_spec *spec, const timed *t, ech_stage_line *s)
{
    ECH_TRY(make_ranks(s));
    for (int r = 0; r < s->ranks; r++)
        ECH_TRY(draw_rank(s, spec, t, r));
    s->cells = t->table.first[t->table.ranks];
    s->line.step_s = s->makespan_s + spec->reduce_s + spec->update_s;
    s->bubble = s->makespan_s > 0.0 ? 1.0 - work_of(t) / (s->ranks * s->makespan_s) : 0.0;
    return ECH_OK;
}

ech_status ech_stage_line_make(const ech_stage_line_spec *spec, ech_stage_line *out)
{
    timed t = {0};
    ech_stage_line s = {.ranks = spec->ranks};
    ech_status st = run_table(spec, &t, &s.makespan_s);
    if (st >= 0)
        st = draw(spec, &t, &s);
    drop(&t);
    if (st < 0) {
        ech_stage_line_fini(&s);
        return st;
    }
    *out = s;
    return ECH_OK;
}

/* What is reduced behind the last backward. */
static double reduce_of(const ech_step_price *s)
{
    static const ech_axis behind[] = {ECH_AXIS_DP, ECH_AXIS_EDP, ECH_AXIS_HSDP, ECH_AXIS_TIED,
                                      ECH_AXIS_WORLD};
    double sum = 0.0;
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++)
        sum += s->exposed_s[behind[i]];
    return sum;
}

static int64_t cells_of(const ech_point *p, int chunks, int64_t micros)
{
    const bool is_split = p->schedule == ECH_SCHEDULE_ZB_H1 || p->schedule == ECH_SCHEDULE_ZB_V;
    return (int64_t)p->pp * chunks * micros * (is_split ? 3 : 2);
}

ech_status ech_stage_line_of(const ech_job *job, ech_pricer *pricer, const ech_point *p,
                             const ech_step_price *step, ech_stage_line *out)
{
    const int chunks = ech_schedule_chunks(p->schedule, p->vpp);
    const size_t n = (size_t)p->pp * (size_t)chunks;
    const int64_t cells = cells_of(p, chunks, ech_point_micros(job, p));
    if (cells > ECH_STAGE_LINE_CELLS) {
        *out = (ech_stage_line){.cells = cells};
        return ECH_OK;
    }
    double *forward = NULL;
    double *backward = NULL;
    double *weight = NULL;
    double hop_s;
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc(n, sizeof *forward, &forward), done);
    ECH_TRY_GOTO(st, ech_calloc(n, sizeof *backward, &backward), done);
    ECH_TRY_GOTO(st, ech_calloc(n, sizeof *weight, &weight), done);
    ech_pricer_stages(pricer, p, forward, backward, weight, &hop_s);
    const ech_stage_line_spec spec = {
        .kind =
            p->schedule == ECH_SCHEDULE_1F1B && p->vpp > 1 ? ECH_SCHEDULE_INTERLEAVED : p->schedule,
        .ranks = p->pp,
        .chunks = chunks,
        .micros = (int)ech_point_micros(job, p),
        .forward = forward,
        .backward = backward,
        .weight = weight,
        .hop_s = hop_s,
        .reduce_s = p->zero_stage == 3 ? 0.0 : reduce_of(step),
        .update_s = step->optimizer_s + step->offload_s + step->fixed_s};
    st = ech_stage_line_make(&spec, out);
done:
    free(forward);
    free(backward);
    free(weight);
    return st;
}

void ech_stage_line_fini(ech_stage_line *s)
{
    ech_timeline_fini(&s->line);
    for (int r = 0; s->program && r < s->ranks; r++)
        ech_program_fini(&s->program[r]);
    free(s->program);
    free(s->of_rank);
    free(s->class_of);
    *s = (ech_stage_line){0};
}
