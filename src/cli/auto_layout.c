#include "cli/auto_layout.h"

#include "base/checked.h"
#include "measure/machine.h"
#include "train/resume.h"

#include <math.h>
#include <stdlib.h>

/* Installed, or what its control group may have: what is free changes from start to start. */
static double memory_of_machine(void)
{
    ech_machine m;
    ech_machine_get(&m);
    const int64_t bytes =
        m.limit_bytes > 0 && m.limit_bytes < m.memory_bytes ? m.limit_bytes : m.memory_bytes;
    return bytes > 0 ? (double)bytes : 0;
}

static ech_status choose(ech_config *cfg, const ech_cli_auto *ask, const ech_calibration *c,
                         ech_text *words)
{
    const int here = ask->ranks_here > 0 ? ask->ranks_here : ask->ranks;
    const ech_auto_spec spec = {.ranks = ask->ranks,
                                .calibration = c,
                                .calibration_name = ask->cluster,
                                .memory_bytes = c && isfinite(c->memory_bytes)
                                                    ? c->memory_bytes / c->ranks
                                                    : memory_of_machine() / here,
                                .resume = ask->resume ? ask->resume : ECH_RESUME_AUTO};
    return ech_auto_choose(cfg, &spec, words);
}

ech_status ech_cli_auto_layout(ech_config *cfg, const ech_cli_auto *ask, ech_text *words)
{
    ech_calibration *c = NULL;
    if (!cfg->layout.is_auto)
        return ECH_OK;
    ECH_CHECK(ask->ranks > 0, ECH_E_USAGE,
              "layout: auto wants --ranks: a layout is searched for a number of ranks");
    if (!ask->cluster)
        return choose(cfg, ask, NULL, words);
    ECH_TRY(ech_calloc(1, sizeof *c, &c));
    ech_status st = ech_calibration_read(ask->cluster, c);
    if (st >= 0)
        st = choose(cfg, ask, c, words);
    free(c);
    return st;
}
