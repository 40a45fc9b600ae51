#include "price/predict.h"
#include "base/checked.h"
#include "price/cost.h"

#include <math.h>
#include <stdlib.h>

static ech_status predict_space(const ech_program *train, const ech_program *eval, ech_space space,
                                ech_memory *out)
{
    ech_memory other;
    ECH_TRY(ech_program_memory(train, space, out));
    if (!eval)
        return ECH_OK;
    ECH_TRY(ech_program_memory(eval, space, &other));
    const size_t arena = other.arena > out->arena ? other.arena : out->arena;
    if (other.total > out->total)
        *out = other;
    out->arena = arena;
    return ECH_OK;
}

ech_status ech_predict(const ech_run *train, const ech_run *eval, int rank, ech_prediction *out)
{
    const ech_program *trained = &ech_run_of(train, rank)->program;
    const ech_program *evaluated = eval->n_classes ? &ech_run_of(eval, rank)->program : NULL;
    for (int s = 0; s < ECH_N_SPACES; s++)
        ECH_TRY(predict_space(trained, evaluated, (ech_space)s, &out->memory[s]));
    ech_program_traffic(trained, rank, out->traffic);
    out->step_s = NAN;
    return ECH_OK;
}

static ech_status simulate(const ech_calibration *c, const ech_run *train,
                           const ech_cost_query *query, ech_step_sums *out, ech_timeline *line)
{
    const ech_simulate_spec spec = {.program = train->program,
                                    .n_classes = train->n_classes,
                                    .class_of = train->class_of,
                                    .costs = ech_calibration_costs(c)};
    ECH_TRY(ech_calibration_check(c, query));
    return ech_simulate(&spec, out, line);
}

ech_status ech_predict_step(const char *path, const ech_run *train, int threads, ech_dtype real,
                            ech_step_sums *out, ech_timeline *line)
{
    const ech_cost_query query = {
        .program = train->program, .n_classes = train->n_classes, .threads = threads, .real = real};
    ech_calibration *c;
    ech_step_sums sums;
    ECH_TRY(ech_calloc(1, sizeof *c, &c));
    ech_status st = ech_calibration_read(path, c);
    if (st >= 0) {
        st = simulate(c, train, &query, &sums, line);
        st = st == ECH_E_CONFIG ? ech_error_prefix(st, "%s: ", path) : st;
    }
    free(c);
    if (st >= 0)
        *out = sums;
    return st;
}

static bool is_fuller(const ech_prediction *a, const ech_prediction *b)
{
    for (int s = 0; s < ECH_N_SPACES; s++)
        if (a->memory[s].total != b->memory[s].total)
            return a->memory[s].total > b->memory[s].total;
    return false;
}

ech_status ech_predict_fullest(const ech_run *train, const ech_run *eval, int *rank,
                               ech_prediction *out)
{
    const int world = train->program[0]->layout.world;
    int seen = -1; /* highest class looked at: the first rank of each stands for it */
    ECH_TRY(ech_predict(train, eval, 0, out));
    *rank = 0;
    for (int r = 0; r < world; r++) {
        ech_prediction p;
        if (train->class_of[r] <= seen)
            continue;
        seen = train->class_of[r];
        ECH_TRY(ech_predict(train, eval, r, &p));
        if (!is_fuller(&p, out))
            continue;
        *out = p;
        *rank = r;
    }
    return ECH_OK;
}
