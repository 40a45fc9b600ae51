/* Values of the planner's options: counts with a suffix, numbers, names. */
#include "cli/plan_options_private.h"

#include "base/locale.h"

#include <math.h>
#include <string.h>

static const char *const text_names[] = {
#define ECH_PLAN_TEXT_NAME(name, text) text,
    ECH_PLAN_TEXT_LIST(ECH_PLAN_TEXT_NAME)
#undef ECH_PLAN_TEXT_NAME
};
static const char *const flag_names[] = {
#define ECH_PLAN_FLAG_NAME(name, text) text,
    ECH_PLAN_FLAG_LIST(ECH_PLAN_FLAG_NAME)
#undef ECH_PLAN_FLAG_NAME
};

const char *ech_plan_text_name(ech_plan_text which)
{
    return text_names[which];
}

const char *ech_plan_flag_name(ech_plan_flag which)
{
    return flag_names[which];
}

/* --- numbers --- */

/* Powers of a thousand that a letter stands for; -1: no such letter. */
static int power_of(char letter)
{
    static const char letters[] = "kKmMgGbBtT";
    static const int powers[] = {1, 1, 2, 2, 3, 3, 3, 3, 4, 4};
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? powers[at - letters] : -1;
}

bool ech_plan_read_count(const char *text, bool binary, double *out)
{
    char *end;
    const double x = ech_c_strtod(text, &end);
    if (end == text || !isfinite(x) || x < 0.0)
        return false;
    const int power = *end ? power_of(*end) : 0;
    if (power < 0 || (*end && end[1]))
        return false;
    *out = x * pow(binary ? 1024.0 : 1000.0, power);
    return true;
}

bool ech_plan_is_byte_unit(const char *text)
{
    return ech_has_suffix(text, "B") && strlen(text) > 1 && strspn(text, "0123456789.") > 0 &&
           strpbrk(text, "KMGTkmgti") != NULL;
}

bool ech_plan_read_whole(const ech_plan_options *o, ech_plan_text which, ech_plan_range range,
                         int64_t *out, ech_findings *findings)
{
    double x;
    const char *text = o->text[which];
    if (!text)
        return false;
    if (ech_plan_read_count(text, true, &x) && x == floor(x) && x >= range.least &&
        x <= range.most) {
        *out = (int64_t)x;
        return true;
    }
    ech_findings_add(findings, "--%s %s: wanted %s, a whole number of %.0f to %.0f",
                     ech_plan_text_name(which), text, range.what, range.least, range.most);
    if (ech_plan_is_byte_unit(text))
        ech_text_add(&findings->text, "; it has no unit of bytes");
    return false;
}

bool ech_plan_read_real(const ech_plan_options *o, ech_plan_text which, const char *wanted,
                        double least, double *out, ech_findings *findings)
{
    const char *text = o->text[which];
    char *end;
    if (!text)
        return false;
    const double x = ech_c_strtod(text, &end);
    if (end != text && !*end && isfinite(x) && x >= least) {
        *out = x;
        return true;
    }
    ech_findings_add(findings, "--%s %s: wanted %s", ech_plan_text_name(which), text, wanted);
    return false;
}

/* --- names --- */

/* A value out of a list of names. */
typedef struct choice {
    ech_plan_text which;
    int n;
    const char *(*name)(int i);
} choice;

#define NAME_AT(function, type, call)                                                              \
    static const char *function(int i)                                                             \
    {                                                                                              \
        return call((type)i);                                                                      \
    }
NAME_AT(precision_at, ech_precision, ech_precision_name)
NAME_AT(system_at, ech_system, ech_system_name)
NAME_AT(generation_at, ech_generation, ech_generation_name)
NAME_AT(optimizer_at, ech_optimizer, ech_optimizer_name)
NAME_AT(schedule_at, ech_schedule_kind, ech_schedule_name)
NAME_AT(order_at, ech_order, ech_order_name)
NAME_AT(split_at, ech_stage_split, ech_stage_split_name)
NAME_AT(cp_at, ech_cp_kind, ech_cp_kind_name)
NAME_AT(offload_at, ech_offload, ech_offload_name)
#undef NAME_AT

static const char *overlap_at(int i)
{
    static const char *const names[] = {"default", "none", "async-tp"};
    return names[i];
}

enum { MOST_NAMES = 16 };

static const choice choices[] = {
    {ECH_PLAN_TEXT_PRECISION, ECH_N_PRECISIONS, precision_at},
    {ECH_PLAN_TEXT_ENGINE, ECH_N_SYSTEMS, system_at},
    {ECH_PLAN_TEXT_GENERATION, ECH_N_GENERATIONS, generation_at},
    {ECH_PLAN_TEXT_OPTIMIZER, ECH_N_OPTIMIZERS, optimizer_at},
    {ECH_PLAN_TEXT_OVERLAP, ECH_OVERLAP_ASYNC_TP + 1, overlap_at},
    {ECH_PLAN_TEXT_SCHEDULE, ECH_SCHEDULE_FILE, schedule_at},
    {ECH_PLAN_TEXT_ORDER, ECH_N_ORDERS, order_at},
    {ECH_PLAN_TEXT_SPLIT, ECH_SPLIT_LIST, split_at},
    {ECH_PLAN_TEXT_CP_KIND, ECH_CP_USP + 1, cp_at},
    {ECH_PLAN_TEXT_OFFLOAD_OPTIMIZER, ECH_OFFLOAD_NVME + 1, offload_at},
    {ECH_PLAN_TEXT_OFFLOAD_PARAMS, ECH_OFFLOAD_NVME + 1, offload_at},
    {ECH_PLAN_TEXT_OFFLOAD_ACTIVATIONS, ECH_OFFLOAD_NVME + 1, offload_at},
};

static void complain_of_name(const choice *c, const char *text, ech_findings *findings)
{
    const char *names[MOST_NAMES];
    for (int i = 0; i < c->n; i++)
        names[i] = c->name(i);
    const char *near = ech_nearest_name(text, names, (size_t)c->n);
    ech_findings_add(findings, "--%s '%.80s' is not known", ech_plan_text_name(c->which), text);
    if (near)
        ech_text_add(&findings->text, ", nearest is %s", near);
    else
        for (int i = 0; i < c->n; i++)
            ech_text_add(&findings->text, "%s%s", i ? " " : "; known: ", names[i]);
}

int ech_plan_read_choice(const ech_plan_options *o, ech_plan_text which, ech_findings *findings)
{
    const choice *c = choices;
    const char *text = o->text[which];
    if (!text)
        return -1;
    while (c->which != which)
        c++;
    for (int i = 0; i < c->n; i++)
        if (strcmp(text, c->name(i)) == 0)
            return i;
    complain_of_name(c, text, findings);
    return -1;
}
