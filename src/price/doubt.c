#include "price/doubt.h"

#include <math.h>

/* The ninth of ten relative errors (P90):
 *   stated   each family predicted by a fit without it and its siblings: "all" of the second table that
 *            `bench/fit/run` prints (bench/results/fit.txt)
 *   assumed, experts   "dense assumed" and "moe" of `echelon validate bench/fit/published.csv` */
static const double within[ECH_N_DOUBTS] = {
    [ECH_DOUBT_STATED] = 0.15,
    [ECH_DOUBT_ASSUMED] = 0.21,
    [ECH_DOUBT_EXPERTS] = 0.47,
    [ECH_DOUBT_NOTHING] = NAN,
};

/* Where steps are published whose settings are all stated (bench/fit/published.csv, dense). */
static const bool is_stated[ECH_N_DEVICE_KINDS][ECH_N_GENERATIONS] = {
    [ECH_DEVICE_AMPERE] = {[ECH_GENERATION_MEGATRON_2021] = true,
                           [ECH_GENERATION_MEGATRON_FLASH] = true,
                           [ECH_GENERATION_FSDP1] = true},
    [ECH_DEVICE_HOPPER] = {[ECH_GENERATION_FSDP1] = true, [ECH_GENERATION_FSDP2_COMPILE] = true},
    [ECH_DEVICE_BLACKWELL] = {[ECH_GENERATION_MCORE_14] = true},
};

ech_doubt ech_doubt_of(const ech_job *job)
{
    const ech_device_kind kind = job->cluster->device.kind;
    if (kind != ECH_DEVICE_AMPERE && kind != ECH_DEVICE_HOPPER && kind != ECH_DEVICE_BLACKWELL)
        return ECH_DOUBT_NOTHING;
    if (job->model->moe.experts > 0)
        return ECH_DOUBT_EXPERTS;
    return is_stated[kind][job->generation] ? ECH_DOUBT_STATED : ECH_DOUBT_ASSUMED;
}

double ech_doubt_within(ech_doubt doubt)
{
    return within[doubt];
}

void ech_doubt_print(double relative, ech_text *out)
{
    if (isnan(relative))
        ech_text_add(out, "how good is not known: no published step on such a device");
    else
        ech_text_add(out, "good to %.0f %%", 100.0 * relative);
}
