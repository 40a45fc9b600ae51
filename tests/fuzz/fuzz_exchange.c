/* Layouts in other systems' words.  The first byte, a digit, chooses the format; what is read and legal is
 * emitted in all formats, each of which must be readable again. */
#include "fuzz.h"

#include "plan/exchange.h"

#include <stdlib.h>

static void emit_all(const ech_job *job, const ech_point *point)
{
    for (int f = 0; f < ECH_N_FORMATS; f++) {
        ech_text text = {0};
        ech_findings lost = {0};
        const ech_status st = ech_format_emit((ech_format)f, job, point, &text, &lost);
        ECH_ASSERT(st == ECH_OK || st == ECH_E_UNSUPPORTED);
        ech_findings_fini(&lost);
        ech_text_fini(&text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_cluster cluster;
    ech_model model;
    ech_job job = ech_job_default(ECH_SYSTEM_MEGATRON);
    ech_point point = ech_point_default();
    ech_findings findings = {0};
    if (bytes == 0)
        return 0;
    ech_exchanged *into = calloc(1, sizeof *into);
    ECH_ASSERT(into && ech_cluster_load("h100-sxm-80", &cluster) == ECH_OK);
    ECH_ASSERT(ech_model_load("llama-2-7b", &model) == ECH_OK);
    job.cluster = &cluster;
    job.model = &model;
    job.gpus = 64;
    job.global_batch = 256;
    into->job = &job;
    into->point = &point;
    into->model = &model;
    const ech_status st =
        ech_format_parse((ech_format)((uint8_t)(data[0] - '0') % ECH_N_FORMATS),
                         (const char *)data + 1, bytes - 1, "input", into, &findings);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_PARSE || st == ECH_E_CONFIG || st == ECH_E_IO);
    ECH_ASSERT(st == ECH_OK || ech_error_message()[0] != '\0');
    if (st == ECH_OK && ech_point_is_legal(&job, &point, NULL))
        emit_all(&job, &point);
    ech_error_clear();
    ech_findings_fini(&findings);
    free(into);
    return 0;
}
