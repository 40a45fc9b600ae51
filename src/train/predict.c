#include "train/predict.h"

#include <math.h>

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

ech_status ech_predict(const ech_program *train, const ech_program *eval, int rank,
                       ech_prediction *out)
{
    for (int s = 0; s < ECH_N_SPACES; s++)
        ECH_TRY(predict_space(train, eval, (ech_space)s, &out->memory[s]));
    ech_program_traffic(train, rank, out->traffic);
    out->step_s = NAN;
    return ECH_OK;
}
