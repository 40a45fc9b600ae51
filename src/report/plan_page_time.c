/* Where a step's time goes: one bar, its parts, and the messages. */
#include "report/plan_page_part.h"

#include <stdio.h>
#include <string.h>

enum { N_PARTS = 6 + ECH_N_AXES };

/* A part with its colour (plan_page_style.c). */
typedef struct part {
    char name[40];
    double s;
    int colour;
} part;

static const double SHOWN = 1e-4; /* less of the step is not told */

static const int axis_colour[ECH_N_AXES] = {
    [ECH_AXIS_DP] = 3,   [ECH_AXIS_EDP] = 4,   [ECH_AXIS_HSDP] = 12, [ECH_AXIS_TP] = 5,
    [ECH_AXIS_KV] = 12,  [ECH_AXIS_PP] = 6,    [ECH_AXIS_CP] = 9,    [ECH_AXIS_EP] = 7,
    [ECH_AXIS_TIED] = 4, [ECH_AXIS_WORLD] = 12};

static int list_parts(const ech_step_price *s, part list[N_PARTS])
{
    int n = 0;
    list[n++] = (part){"compute", s->compute_s, 0};
    list[n++] = (part){"recompute", s->recompute_s, 1};
    list[n++] = (part){"bubble", s->bubble_s, 2};
    for (int i = 0; i < ECH_N_AXES; i++) {
        list[n] = (part){.s = s->exposed_s[i], .colour = axis_colour[i]};
        (void)snprintf(list[n++].name, sizeof list[0].name, "exposed %s",
                       ech_axis_name((ech_axis)i));
    }
    list[n++] = (part){"offload", s->offload_s, 8};
    list[n++] = (part){"optimizer", s->optimizer_s, 10};
    list[n++] = (part){"fixed", s->fixed_s, 13};
    return n;
}

static const char *gloss_of(const char *name)
{
    static const char *const gloss[][2] = {
        {"compute", "forward and backward kernels"},
        {"recompute", "forward kernels that run again"},
        {"bubble", "idle by the schedule and uneven stages"},
        {"offload", "to and from the host, not hidden"},
        {"optimizer", "update and norm"},
        {"fixed", "launches, host, stragglers"},
    };
    for (size_t i = 0; i < sizeof gloss / sizeof gloss[0]; i++)
        if (strcmp(gloss[i][0], name) == 0)
            return gloss[i][1];
    return "communication that nothing hides";
}

static void add_bar(ech_page *p, const part *list, int n)
{
    const double step_s = p->told->step.step_s;
    double at = 0.0;
    ech_text_add(p->out, "<svg class=\"bar tall\" viewBox=\"0 0 10000 16\" "
                         "preserveAspectRatio=\"none\" role=\"img\" "
                         "aria-label=\"Parts of a step; the table below has their numbers\">"
                         "<rect class=\"track\" width=\"10000\" height=\"16\"/>");
    for (int i = 0; i < n; i++) {
        if (list[i].s <= 0.0)
            continue;
        ech_text_add(p->out, "<g><title>%s ", list[i].name);
        ech_page_words(p->out, list[i].s / step_s, ECH_PAGE_SHARE);
        ech_text_add(p->out, "</title>");
        ech_page_bar_part(p->out, list[i].colour, at / step_s, (at + list[i].s) / step_s);
        ech_text_add(p->out, "</g>");
        at += list[i].s;
    }
    ech_text_add(p->out, "</svg>\n");
}

static void add_parts(ech_page *p, const part *list, int n)
{
    const double step_s = p->told->step.step_s;
    ech_text_add(p->out, "<table id=\"time\"><thead><tr><th scope=\"col\">part</th>"
                         "<th scope=\"col\">of a step</th><th scope=\"col\">share</th></tr></thead>"
                         "<tbody>\n");
    for (int i = 0; i < n; i++) {
        if (list[i].s < SHOWN * step_s)
            continue;
        ech_text_add(p->out, "<tr><th scope=\"row\">");
        ech_page_swatch(p->out, list[i].colour);
        ech_text_add(p->out, "%s <small>%s</small></th>", list[i].name, gloss_of(list[i].name));
        ech_page_cell(p->out, list[i].s, ECH_PAGE_SECONDS);
        ech_page_cell(p->out, list[i].s / step_s, ECH_PAGE_SHARE);
        ech_text_add(p->out, "</tr>\n");
    }
    ech_text_add(p->out, "</tbody></table>\n");
}

static void add_messages(ech_page *p)
{
    const ech_step_price *s = &p->told->step;
    ech_text_add(p->out,
                 "<details><summary>Messages: exposed, hidden under kernels, bytes</summary>"
                 "\n<table id=\"messages\"><thead><tr><th scope=\"col\">over</th>"
                 "<th scope=\"col\">exposed</th><th scope=\"col\">hidden</th>"
                 "<th scope=\"col\">sent by a rank</th></tr></thead><tbody>\n");
    for (int i = 0; i < ECH_N_AXES; i++) {
        if (s->exposed_s[i] <= 0.0 && s->hidden_s[i] <= 0.0 && s->sent_bytes[i] <= 0.0)
            continue;
        ech_text_add(p->out, "<tr><th scope=\"row\">%s</th>", ech_axis_name((ech_axis)i));
        ech_page_cell(p->out, s->exposed_s[i], ECH_PAGE_SECONDS);
        ech_page_cell(p->out, s->hidden_s[i], ECH_PAGE_SECONDS);
        ech_page_cell(p->out, s->sent_bytes[i], ECH_PAGE_GIB);
        ech_text_add(p->out, "</tr>\n");
    }
    ech_text_add(p->out, "</tbody></table></details>\n");
}

static void add_rates(ech_page *p)
{
    ech_text_add(p->out, "<p>A step takes ");
    ech_page_data(p->out, p->told->step.step_s, ECH_PAGE_SECONDS);
    ech_text_add(p->out, ", mean over all ranks. MFU ");
    ech_page_data(p->out, p->rates.mfu, ECH_PAGE_SHARE);
    ech_text_add(p->out, ", with recomputation (HFU) ");
    ech_page_data(p->out, p->rates.hfu, ECH_PAGE_SHARE);
    ech_text_add(p->out, ", of the dense peak; a token counts as " ECH_FLOPS_CONVENTION ".</p>\n");
}

void ech_page_add_time(ech_page *p)
{
    part list[N_PARTS];
    if (!p->has_winner)
        return;
    const int n = list_parts(&p->told->step, list);
    ech_text_add(p->out, "<section aria-labelledby=\"h-time\">\n"
                         "<h2 id=\"h-time\">Where its time goes</h2>\n");
    add_bar(p, list, n);
    add_parts(p, list, n);
    add_rates(p);
    add_messages(p);
    ech_text_add(p->out, "</section>\n");
}
