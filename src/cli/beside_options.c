#include "cli/beside_options.h"

#include <string.h>

size_t ech_beside_options_rows(ech_beside_options *o, ech_opt *rows)
{
    const ech_opt all[] = {
        {"save", ECH_OPT_STRING, &o->save},
        {"save-turns", ECH_OPT_INT, &o->save_turns},
        {"load-copies", ECH_OPT_INT, &o->load_copies},
        {"load-precision", ECH_OPT_STRING, &o->load_precision},
        {"optimizer-step", ECH_OPT_STRING, &o->optimizer_step},
        {"optimizer-paged", ECH_OPT_FLAG, &o->is_paged},
        {"nvme-buffer", ECH_OPT_INT, &o->nvme_buffer},
        {"nvme-param-buffers", ECH_OPT_INT, &o->nvme_param_buffers},
        {"nvme-optimizer-buffers", ECH_OPT_INT, &o->nvme_optimizer_buffers},
        {"reduce-bucket", ECH_OPT_INT, &o->reduce_bucket},
        {"live-params", ECH_OPT_INT, &o->live_params},
    };
    memcpy(rows, all, sizeof all);
    return sizeof all / sizeof all[0];
}

/* Which of two words a value is, 0 or 1; -1: none, and that is told. */
static int choose(const char *option, const char *value, const char *const word[2],
                  ech_findings *findings)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(value, word[i]) == 0)
            return i;
    const char *near = ech_nearest_name(value, word, 2);
    ech_findings_add(findings, "--%s %s: wanted %s or %s%s%s%s", option, value, word[0], word[1],
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return -1;
}

static int64_t count(const char *option, int64_t n, int64_t most, ech_findings *findings)
{
    if (n >= 0 && n <= most)
        return n;
    ech_findings_add(findings, "--%s %lld: wanted 0..%lld", option, (long long)n, (long long)most);
    return 0;
}

static void apply_words(const ech_beside_options *o, ech_job *job, ech_findings *findings)
{
    static const char *const saves[] = {"sharded", "full"};
    static const char *const steps[] = {"fused", "grouped"};
    static const char *const types[] = {"bf16", "fp32"};
    int i;
    if (o->save && (i = choose("save", o->save, saves, findings)) >= 0)
        job->beside.save = i ? ECH_SAVE_WHOLE : ECH_SAVE_SHARDED;
    if (o->optimizer_step &&
        (i = choose("optimizer-step", o->optimizer_step, steps, findings)) >= 0)
        job->is_optimizer_grouped = i == 1;
    if (o->load_precision &&
        (i = choose("load-precision", o->load_precision, types, findings)) >= 0)
        job->beside.load_bytes = i ? 4 : 2;
}

void ech_beside_options_apply(const ech_beside_options *o, ech_job *job, ech_findings *findings)
{
    enum { MOST = 1 << 20 };
    ech_beside *b = &job->beside;
    const int64_t most_elems = INT64_C(1) << 40;
    apply_words(o, job, findings);
    job->is_optimizer_paged |= o->is_paged;
    if (o->save_turns)
        b->save_turns = (int)count("save-turns", o->save_turns, MOST, findings);
    if (o->load_copies)
        b->load_copies = (int)count("load-copies", o->load_copies, MOST, findings);
    if (o->nvme_buffer)
        b->nvme_buffer_elems = count("nvme-buffer", o->nvme_buffer, most_elems, findings);
    if (o->nvme_param_buffers)
        b->nvme_param_buffers =
            (int)count("nvme-param-buffers", o->nvme_param_buffers, MOST, findings);
    if (o->nvme_optimizer_buffers)
        b->nvme_optimizer_buffers =
            (int)count("nvme-optimizer-buffers", o->nvme_optimizer_buffers, MOST, findings);
    if (o->reduce_bucket)
        b->reduce_bucket_elems = count("reduce-bucket", o->reduce_bucket, most_elems, findings);
    if (o->live_params)
        b->live_params = count("live-params", o->live_params, most_elems, findings);
}
