#include "plan/own.h"
#include "base/checked.h"
#include "base/clock.h"
#include "plan/own_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory --- */

static double at_peak(const ech_memory *m, ech_class klass)
{
    return (double)m->at_peak[klass];
}

/* A pipeline rank's programs in place of its formulas.  Checkpoints are written from the state's own
 * slots and read into them. */
static void put_stage(const ech_memory *device, const ech_memory *host, ech_footprint_stage *s)
{
    const double reduce = (double)device->peak_of[ECH_SEGMENT_REDUCE];
    const double accumulate = (double)device->peak_of[ECH_SEGMENT_ACCUMULATE];
    memset(s->held, 0, sizeof s->held);
    s->held[ECH_USE_PARAMS] = at_peak(device, ECH_CLASS_PARAMS);
    s->held[ECH_USE_GRADS] = at_peak(device, ECH_CLASS_GRADS);
    s->held[ECH_USE_MASTER] = at_peak(device, ECH_CLASS_MASTER);
    s->held[ECH_USE_OPTIMIZER] = at_peak(device, ECH_CLASS_OPTIMIZER);
    s->held[ECH_USE_SAVED] = at_peak(device, ECH_CLASS_ACTIVATIONS);
    s->held[ECH_USE_BUCKETS] = at_peak(device, ECH_CLASS_BUFFERS);
    s->peak[ECH_MOMENT_STEP] = accumulate > reduce ? accumulate : reduce;
    s->peak[ECH_MOMENT_OPTIMIZER] = (double)device->peak_of[ECH_SEGMENT_COMMIT];
    s->peak[ECH_MOMENT_START] = s->peak[ECH_MOMENT_SAVE] = s->peak[ECH_MOMENT_LOAD] =
        (double)device->state;
    s->fullest = ECH_MOMENT_STEP;
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        if (s->peak[m] > s->peak[s->fullest])
            s->fullest = (ech_moment)m;
    s->host_bytes = (double)host->total;
}

static ech_status put_memory(const ech_run *run, ech_own *out)
{
    ech_footprint *f = &out->memory;
    double arena = 0;
    f->allocated_bytes = 0;
    for (int k = 0; k < run->n_classes && k < f->n_stages; k++) {
        ech_memory m[ECH_N_SPACES];
        for (int s = 0; s < ECH_N_SPACES; s++)
            ECH_TRY(ech_program_memory(run->program[k], (ech_space)s, &m[s]));
        const ech_memory *device = &m[ECH_SPACE_DEVICE];
        put_stage(device, &m[ECH_SPACE_HOST], &f->stage[k]);
        arena = (double)device->arena > arena ? (double)device->arena : arena;
        if ((double)device->total <= f->allocated_bytes)
            continue;
        f->allocated_bytes = (double)device->total;
        f->fullest = k;
    }
    f->reserved_bytes = f->worst_bytes = arena; /* what train holds against a cap */
    f->uncertainty = 0;
    f->is_exact = true;
    return ECH_OK;
}

/* --- what else programs say --- */

static double recompute_flops(const ech_program *p)
{
    double sum = 0;
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops && b->role == ECH_ROLE_RECOMPUTE; k++) {
            const ech_op_row *row = ech_op_row_get(b->op[k].kind);
            sum += row->flops ? row->flops(&b->op[k]) : 0;
        }
    }
    return sum;
}

static void count_flops(const ech_run *run, ech_own *out)
{
    const int ranks = run->program[0]->layout.world / run->n_classes;
    for (int k = 0; k < run->n_classes; k++) {
        out->flops += ranks * ech_program_flops(run->program[k]);
        out->recompute_flops += ranks * recompute_flops(run->program[k]);
    }
}

static ech_status simulate(const ech_own_spec *spec, ech_run *run, ech_own *out)
{
    const ech_own_habits *habits = spec->habits;
    ECH_TRY(ech_run_unroll(run)); /* what is simulated is what engines run */
    const ech_cost_query query = {.program = run->program,
                                  .n_classes = run->n_classes,
                                  .threads = habits ? habits->threads : 0,
                                  .real = habits ? habits->real : ECH_F32};
    const ech_simulate_spec sim = {.program = run->program,
                                   .n_classes = run->n_classes,
                                   .class_of = run->class_of,
                                   .costs = ech_calibration_costs(spec->calibration)};
    ECH_TRY(ech_calibration_check(spec->calibration, &query));
    ECH_TRY(ech_simulate(&sim, &out->sums, spec->line ? &spec->line->line : NULL));
    out->predicted.step_s = out->sums.step_s;
    out->is_timed = true;
    return ECH_OK;
}

static void note(const ech_own *own, ech_derivation *notes)
{
    static const char *const source = "the compiled program of the fullest rank";
    const ech_memory *m = &own->predicted.memory[ECH_SPACE_DEVICE];
    ech_derive_section(notes, "Memory, read off the programs");
    for (int c = 0; c < ECH_N_CLASSES; c++)
        if (m->at_peak[c])
            ech_derive(notes, ech_class_name((ech_class)c), at_peak(m, (ech_class)c), "B", source,
                       "slots that live at its fullest moment");
    ech_derive(notes, "allocated", (double)m->total, "B", source, "their sum");
    ech_derive(notes, "arena", (double)m->arena, "B", source, "with padding and gaps");
    ech_derive_section(notes, "Traffic, read off the programs");
    for (int a = 0; a < ECH_N_AXES; a++)
        if (own->predicted.traffic[a].wire_bytes)
            ech_derive(notes, ech_axis_name((ech_axis)a),
                       (double)own->predicted.traffic[a].wire_bytes, "B", source,
                       "sent by it over this group in a step");
}

void ech_own_line_fini(ech_own_line *l)
{
    ech_timeline_fini(&l->line);
    ech_run_fini(&l->run);
}

/* --- the whole --- */

static ech_status read_off(const ech_own_spec *spec, ech_run *run, ech_own *out)
{
    const ech_run no_eval = {0};
    ECH_TRY(ech_predict_fullest(run, &no_eval, &out->fullest_rank, &out->predicted));
    ECH_TRY(put_memory(run, out));
    count_flops(run, out);
    out->is_exact = true;
    return spec->calibration ? simulate(spec, run, out) : ECH_OK;
}

/* Stages or a schedule that cannot be are no failure: formulas may have them. */
static ech_status compile(const ech_own_spec *spec, ech_own *out)
{
    ech_own_compile c = {0};
    ech_run run = {0};
    ech_status st = ech_own_compile_make(spec, &c);
    if (st >= 0) {
        const double t0 = ech_clock_s();
        st = ech_run_compile(&c.spec, ECH_MODE_TRAIN, &run);
        out->compile_s = ech_clock_s() - t0;
    }
    if (st == ECH_E_ILLEGAL) {
        (void)snprintf(out->marked, sizeof out->marked, "%s", ech_error_message());
        ech_error_clear();
        st = ECH_OK;
    } else if (st >= 0)
        st = read_off(spec, &run, out);
    if (st >= 0 && spec->line && out->is_timed)
        spec->line->run = run;
    else
        ech_run_fini(&run);
    ech_own_compile_fini(&c);
    return st;
}

static void mark(const ech_findings *why, ech_own *out)
{
    (void)snprintf(out->marked, sizeof out->marked, "the engine does not run this yet: %s",
                   ech_text_get(&why->text));
    for (char *at = strchr(out->marked, '\n'); at; at = strchr(at, '\n'))
        *at = ';';
}

ech_status ech_own_answer(const ech_own_spec *spec, ech_derivation *notes, ech_own *out)
{
    ech_findings why = {0};
    memset(out, 0, sizeof *out);
    out->predicted.step_s = NAN;
    ech_footprint_of(spec->job, spec->point, notes, &out->memory);
    if (spec->job->system != ECH_SYSTEM_ECHELON)
        return ECH_OK;
    ech_status st = ECH_OK;
    if (ech_own_can(spec, &why))
        st = compile(spec, out);
    else
        mark(&why, out);
    ech_findings_fini(&why);
    out->memory.marked = out->marked[0] ? out->marked : NULL;
    if (st >= 0 && out->is_exact && notes)
        note(out, notes);
    return st;
}

void ech_own_price(const ech_own *own, ech_step_price *step)
{
    const ech_step_sums *s = &own->sums;
    if (!own->is_exact)
        return;
    for (int a = 0; a < ECH_N_AXES; a++)
        step->sent_bytes[a] = (double)own->predicted.traffic[a].wire_bytes;
    if (!own->is_timed)
        return;
    step->step_s = s->step_s;
    step->compute_s = s->compute_s - s->recompute_s;
    step->recompute_s = s->recompute_s;
    step->bubble_s = s->bubble_s;
    step->optimizer_s = s->optimizer_s;
    step->offload_s = step->fixed_s = 0;
    for (int a = 0; a < ECH_N_AXES; a++) {
        step->exposed_s[a] = s->exposed_s[a];
        step->hidden_s[a] = 0;
    }
}
