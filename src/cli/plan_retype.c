#include "cli/plan_retype.h"

#include <string.h>

void ech_shell_word(ech_text *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./:=,+%";
    if (word[0] && word[strspn(word, plain)] == '\0') {
        ech_text_add(out, "%s", word);
        return;
    }
    ech_text_add(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            ech_text_add(out, "'\\''");
        else
            ech_text_add_bytes(out, word, 1);
    ech_text_add(out, "'");
}

/* Options of a job that are told as they were typed; the others are told as they were read, or are of
 * the layout. */
static const struct {
    ech_plan_text text;
    const char *name;
} typed[] = {{ECH_PLAN_TEXT_MODEL, "model"},
             {ECH_PLAN_TEXT_CLUSTER, "cluster"},
             {ECH_PLAN_TEXT_TOKENS, "tokens"},
             {ECH_PLAN_TEXT_GENERATION, "generation"},
             {ECH_PLAN_TEXT_OVERLAP, "overlap"},
             {ECH_PLAN_TEXT_TUNING, "tuning"},
             {ECH_PLAN_TEXT_BASE_BITS, "base-bits"},
             {ECH_PLAN_TEXT_OPTIMIZER, "optimizer"},
             {ECH_PLAN_TEXT_GRADS, "grads"},
             {ECH_PLAN_TEXT_LOSS, "loss"},
             {ECH_PLAN_TEXT_MOE_BALANCE, "moe-balance"},
             {ECH_PLAN_TEXT_MOE_CAPACITY, "moe-capacity"},
             {ECH_PLAN_TEXT_HEADROOM, "headroom"}};

static const struct {
    ech_plan_flag flag;
    const char *name;
} flags[] = {{ECH_PLAN_FLAG_COMPILE, "compile"},
             {ECH_PLAN_FLAG_NO_COMPILE, "no-compile"},
             {ECH_PLAN_FLAG_NO_MASTER, "no-master"}};

void ech_plan_retype(const ech_plan_options *o, ech_text *out)
{
    const ech_job *job = &o->job;
    const char *between = "";
    for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
        if (!o->text[typed[i].text])
            continue;
        ech_text_add(out, "%s--%s ", between, typed[i].name);
        ech_shell_word(out, o->text[typed[i].text]);
        between = " ";
    }
    ech_text_add(out, "%s--seq %lld --global-batch %lld --precision %s --engine %s", between,
                 (long long)job->seq, (long long)job->global_batch,
                 ech_precision_name(job->precision), ech_system_name(job->system));
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (o->flag[flags[i].flag])
            ech_text_add(out, " --%s", flags[i].name);
}
