/* What to type: the layout in words, in the formats of all systems, and the commands that look closer. */
#include "plan/exchange.h"
#include "report/html.h"
#include "report/plan_page_part.h"

#include <string.h>

/* --- the layout in words --- */

static const struct {
    ech_plan_dim dim;
    const char *words;
} said[] = {{ECH_DIM_TP, "tensor"},
            {ECH_DIM_SP, "sequence"},
            {ECH_DIM_PP, "pipeline"},
            {ECH_DIM_VPP, "virtual stages"},
            {ECH_DIM_SCHEDULE, "schedule"},
            {ECH_DIM_CP, "context"},
            {ECH_DIM_CP_KIND, "context by"},
            {ECH_DIM_EP, "experts"},
            {ECH_DIM_ETP, "expert tensor"},
            {ECH_DIM_DP, "data"},
            {ECH_DIM_ZERO, "ZeRO"},
            {ECH_DIM_ZERO_GROUP, "shard group"},
            {ECH_DIM_RESHARD, "reshard"},
            {ECH_DIM_REDUCE, "reduce"},
            {ECH_DIM_MICRO, "micro-batch"},
            {ECH_DIM_RECOMPUTE, "recompute"},
            {ECH_DIM_OFFLOAD_OPTIMIZER, "optimizer to"},
            {ECH_DIM_OFFLOAD_PARAMS, "parameters to"},
            {ECH_DIM_OFFLOAD_ACTIVATIONS, "activations to"},
            {ECH_DIM_ORDER, "order"},
            {ECH_DIM_SPLIT, "stages cut"}};

/* Is it worth a word: a degree above one, a way that is not the usual one. */
static bool is_said(ech_plan_dim dim, const char *value, const char *usual)
{
    return dim == ECH_DIM_DP || dim == ECH_DIM_MICRO || dim == ECH_DIM_RECOMPUTE ||
           strcmp(value, usual) != 0;
}

static void add_layout(ech_page *p)
{
    const ech_point plain = ech_point_default();
    ech_text value = {0};
    ech_text usual = {0};
    ech_text_add(p->out, "<ul class=\"chips\" aria-label=\"The layout\">");
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        value.bytes = usual.bytes = 0;
        ech_plan_dim_print(said[i].dim, &p->told->point, &value);
        ech_plan_dim_print(said[i].dim, &plain, &usual);
        if (!is_said(said[i].dim, ech_text_get(&value), ech_text_get(&usual)))
            continue;
        ech_text_add(p->out, "<li>%s <b>", said[i].words);
        ech_html_text(p->out, ech_text_get(&value));
        ech_text_add(p->out, "</b></li>");
    }
    ech_text_add(p->out, "<li>micro-batches <b>%lld</b></li></ul>\n",
                 (long long)ech_point_micros(&p->job, &p->told->point));
    p->out->failed |= value.failed || usual.failed;
    ech_text_fini(&value);
    ech_text_fini(&usual);
}

/* --- texts --- */

static void add_box(ech_page *p, const char *what, const char *text)
{
    ech_text_add(p->out,
                 "<div class=\"code\"><pre tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                 "<code>",
                 what);
    ech_html_text(p->out, text);
    ech_text_add(p->out, "</code></pre>");
    ech_page_copy(p->out, what, text);
    ech_text_add(p->out, "</div>\n");
}

static void add_command(ech_page *p, const char *what, const char *verb)
{
    ech_text command = {0};
    ech_page_command(p, verb, p->told, &command);
    ech_text_add(p->out, "<div class=\"code\"><pre>");
    ech_page_options(p->out, ech_text_get(&command));
    ech_text_add(p->out, "</pre>");
    ech_page_copy(p->out, what, ech_text_get(&command));
    ech_text_add(p->out, "</div>\n");
    p->out->failed |= command.failed;
    ech_text_fini(&command);
}

/* A list of the lines of a text; none where it is empty. */
static void add_lines(ech_page *p, const char *lines)
{
    ech_text_add(p->out, "%s", lines[0] ? "<ul class=\"soft\">" : "");
    for (const char *at = lines; *at;) {
        const size_t n = strcspn(at, "\n");
        ech_text_add(p->out, "<li>");
        ech_html_bytes(p->out, at, n);
        ech_text_add(p->out, "</li>");
        at += n + (at[n] == '\n');
    }
    ech_text_add(p->out, "%s", lines[0] ? "</ul>\n" : "");
}

/* What this engine does not run today. */
static void add_gaps(ech_page *p)
{
    ech_findings missing = {0};
    if (!ech_point_is_executable(&p->job, &p->told->point, &missing)) {
        ech_text_add(p->out, "<p>From formulas alone: the engine does not run this today.</p>\n");
        add_lines(p, ech_text_get(&missing.text));
    }
    ech_findings_fini(&missing);
}

/* The format in which a system is spoken to. */
static ech_format format_of(ech_system s)
{
    switch (s) {
    case ECH_SYSTEM_MEGATRON:
        return ECH_FORMAT_MEGATRON;
    case ECH_SYSTEM_DEEPSPEED:
        return ECH_FORMAT_DEEPSPEED;
    case ECH_SYSTEM_FSDP2:
        return ECH_FORMAT_ACCELERATE;
    case ECH_SYSTEM_TORCHTITAN:
        return ECH_FORMAT_TORCHTITAN;
    case ECH_SYSTEM_ECHELON:
    case ECH_N_SYSTEMS:
        break;
    }
    return ECH_FORMAT_ECHELON;
}

static const char *const titles[ECH_N_FORMATS] = {[ECH_FORMAT_MEGATRON] = "Megatron-LM arguments",
                                                  [ECH_FORMAT_DEEPSPEED] = "DeepSpeed JSON",
                                                  [ECH_FORMAT_TORCHTITAN] = "torchtitan TOML",
                                                  [ECH_FORMAT_ACCELERATE] = "Accelerate FSDP YAML",
                                                  [ECH_FORMAT_ECHELON] = "Echelon YAML"};

/* A format's text, or why there is none: the system cannot run the layout, the format cannot say the
 * model. */
static ech_status add_format(ech_page *p, ech_format f)
{
    ech_text text = {0};
    ech_findings lost = {0};
    ech_status st = ech_format_emit(f, &p->job, &p->told->point, &text, &lost);
    if (st >= 0) {
        add_box(p, titles[f], ech_text_get(&text));
        if (lost.n)
            ech_text_add(p->out, "<p class=\"soft\">What is not in it, or otherwise:</p>\n");
        add_lines(p, ech_text_get(&lost.text));
    } else if (st != ECH_E_NOMEM) {
        ech_text_add(p->out, "<p class=\"soft\">");
        ech_html_text(p->out, ech_error_message());
        ech_text_add(p->out, "</p>\n");
        ech_error_clear();
        st = ECH_OK;
    }
    p->out->failed |= text.failed || lost.text.failed;
    ech_findings_fini(&lost);
    ech_text_fini(&text);
    return st;
}

/* The engine's own first, the others folded. */
static ech_status add_formats(ech_page *p)
{
    const ech_format own = format_of(p->job.system);
    ech_text_add(p->out, "<h3>%s</h3>\n", titles[own]);
    ECH_TRY(add_format(p, own));
    ech_text_add(p->out, "<details><summary>In the words of other systems</summary>\n");
    for (int f = 0; f < ECH_N_FORMATS; f++) {
        if ((ech_format)f == own)
            continue;
        ech_text_add(p->out, "<h3>%s</h3>\n", titles[f]);
        ECH_TRY(add_format(p, (ech_format)f));
    }
    ech_text_add(p->out, "</details>\n");
    return ECH_OK;
}

static void add_commands(ech_page *p)
{
    ech_text_add(p->out, "<details><summary>Look closer at its time and memory</summary>\n");
    add_command(p, "the command for its time", "sim");
    add_command(p, "the command for its memory", "fit");
    ech_text_add(p->out, "</details>\n");
}

ech_status ech_page_add_type(ech_page *p)
{
    if (!p->told)
        return ECH_OK;
    ech_text_add(p->out,
                 "<section aria-labelledby=\"h-type\" id=\"type\">\n<h2 id=\"h-type\">%s"
                 "</h2>\n",
                 p->has_winner ? "What to type" : "The nearest layout");
    add_layout(p);
    add_gaps(p);
    if (p->has_winner)
        ECH_TRY(add_formats(p));
    add_commands(p);
    ech_text_add(p->out, "</section>\n");
    return ECH_OK;
}
