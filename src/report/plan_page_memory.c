/* What a layout holds: a bar for each pipeline rank against the capacity, and the numbers. */
#include "report/html.h"
#include "report/plan_page_part.h"

#include <math.h>
#include <string.h>

/* Colours of the classes (plan_page_style.c). */
static const struct {
    const char *klass;
    int colour;
} shown[] = {{"params", 0},      {"grads", 3},   {"master", 10}, {"optimizer", 8},
             {"activations", 7}, {"buffers", 4}, {"context", 2}, {"slack", 13}};

enum {
    N_CLASSES = sizeof shown / sizeof shown[0],
    TALL_STAGES = 16 /* more of them have thinner bars */
};

static void sum_classes(const ech_footprint_stage *s, double sum[N_CLASSES])
{
    for (int k = 0; k < N_CLASSES; k++) {
        sum[k] = 0.0;
        for (int h = 0; h < ECH_N_USES; h++)
            if (strcmp(ech_use_class((ech_use)h), shown[k].klass) == 0)
                sum[k] += s->held[h];
    }
}

static double total_of(const ech_footprint_stage *s)
{
    double sum = 0.0;
    for (int h = 0; h < ECH_N_USES; h++)
        sum += s->held[h];
    return sum;
}

/* Bytes of a whole bar's width. */
static double scale_of(const ech_page *p)
{
    double most = 0.0;
    for (int i = 0; i < p->memory->n_stages; i++)
        most = fmax(most, total_of(&p->memory->stage[i]));
    return ech_page_memory_end(p, most);
}

static void add_legend(ech_page *p, double scale)
{
    ech_text_add(p->out, "<ul class=\"legend\">");
    for (int k = 0; k < N_CLASSES; k++) {
        ech_text_add(p->out, "<li>");
        ech_page_swatch(p->out, shown[k].colour);
        ech_text_add(p->out, "%s</li>", shown[k].klass);
    }
    if (p->job.cluster->device.usable_bytes <= scale)
        ech_text_add(p->out, "<li><span class=\"sw mark\"></span>capacity</li>");
    ech_text_add(p->out, "</ul>\n");
}

static void add_label(ech_text *out, int stage, const double sum[N_CLASSES], double total)
{
    ech_text_add(out, "stage %d: ", stage);
    ech_page_words(out, total, ECH_PAGE_GIB);
    for (int k = 0; k < N_CLASSES; k++)
        if (sum[k] > 0.0) {
            ech_text_add(out, ", %s ", shown[k].klass);
            ech_page_words(out, sum[k], ECH_PAGE_GIB);
        }
}

static void add_bar(ech_page *p, int stage, double scale)
{
    ech_text *out = p->out;
    double sum[N_CLASSES];
    double at = 0.0;
    const double capacity = p->job.cluster->device.usable_bytes;
    const ech_footprint_stage *s = &p->memory->stage[stage];
    sum_classes(s, sum);
    ech_text_add(out,
                 "<span class=\"name\">%d</span><svg class=\"bar\" viewBox=\"0 0 10000 16\" "
                 "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
                 stage);
    add_label(out, stage, sum, total_of(s));
    ech_text_add(out, "\"><title>");
    add_label(out, stage, sum, total_of(s));
    ech_text_add(out, "</title><rect class=\"track\" width=\"10000\" height=\"16\"/>");
    for (int k = 0; k < N_CLASSES; k++) {
        ech_page_bar_part(out, shown[k].colour, at / scale, (at + sum[k]) / scale);
        at += sum[k];
    }
    if (capacity <= scale)
        ech_text_add(out, "<path class=\"mark\" d=\"M%lld 0v16\"/>",
                     llrint(1e4 * capacity / scale));
    ech_text_add(out, "</svg><span class=\"n\">");
    ech_page_words(out, total_of(s), ECH_PAGE_GIB);
    ech_text_add(out, "</span>\n");
}

static void add_bars(ech_page *p)
{
    const ech_footprint *f = p->memory;
    const double scale = scale_of(p);
    ech_text_add(p->out, "<div class=\"bars%s\">\n", f->n_stages > TALL_STAGES ? " thin" : "");
    for (int i = 0; i < f->n_stages; i++)
        add_bar(p, i, scale);
    ech_text_add(p->out, "</div>\n<p class=\"soft\">One bar for the fullest rank of each pipeline "
                         "stage; ");
    ech_text_add(p->out, "%s",
                 p->job.cluster->device.usable_bytes <= scale
                     ? "the line is what can be allocated on a device, "
                     : "they end far below what can be allocated on a device, ");
    ech_page_words(p->out, p->job.cluster->device.usable_bytes, ECH_PAGE_GIB);
    if (p->ask->spec->headroom > 0.0) {
        ech_text_add(p->out, ", of which ");
        ech_page_words(p->out, p->ask->spec->headroom, ECH_PAGE_SHARE);
        ech_text_add(p->out, " is to stay free");
    }
    ech_text_add(p->out, ".</p>\n");
}

/* --- tables --- */

static void add_stage_row(ech_page *p, int stage)
{
    double sum[N_CLASSES];
    const ech_footprint_stage *s = &p->memory->stage[stage];
    sum_classes(s, sum);
    ech_text_add(p->out, "<tr%s><th scope=\"row\">%d</th>",
                 stage == p->memory->fullest ? " class=\"won\"" : "", stage);
    ech_page_cell(p->out, (double)s->layers, ECH_PAGE_COUNT);
    for (int k = 0; k < N_CLASSES; k++)
        ech_page_cell(p->out, sum[k], ECH_PAGE_GIB);
    ech_page_cell(p->out, total_of(s), ECH_PAGE_GIB);
    ech_text_add(p->out, "</tr>\n");
}

static void add_stages(ech_page *p)
{
    ech_text_add(p->out, "<details><summary>Numbers of every stage</summary>\n<div class=\"wide\" "
                         "tabindex=\"0\" role=\"region\" aria-label=\"Memory of every stage\">"
                         "<table id=\"memory-stages\"><thead><tr><th scope=\"col\">stage</th>"
                         "<th scope=\"col\">layers</th>");
    for (int k = 0; k < N_CLASSES; k++)
        ech_text_add(p->out, "<th scope=\"col\">%s</th>", shown[k].klass);
    ech_text_add(p->out, "<th scope=\"col\">all</th></tr></thead><tbody>\n");
    for (int i = 0; i < p->memory->n_stages; i++)
        add_stage_row(p, i);
    ech_text_add(p->out, "</tbody></table></div></details>\n");
}

static void add_held(ech_page *p)
{
    const ech_footprint_stage *s = &p->memory->stage[p->memory->fullest];
    const double total = total_of(s);
    ech_text_add(p->out,
                 "<details><summary>What the fullest rank holds (stage %d), and when"
                 "</summary>\n<div class=\"pair\"><table id=\"memory-held\"><thead><tr>"
                 "<th scope=\"col\">held</th><th scope=\"col\">bytes</th>"
                 "<th scope=\"col\">share</th></tr></thead><tbody>\n",
                 p->memory->fullest);
    for (int h = 0; h < ECH_N_USES; h++) {
        if (s->held[h] <= 0.0)
            continue;
        ech_text_add(p->out, "<tr><th scope=\"row\">");
        ech_html_text(p->out, ech_use_name((ech_use)h));
        ech_text_add(p->out, "</th>");
        ech_page_cell(p->out, s->held[h], ECH_PAGE_GIB);
        ech_page_cell(p->out, s->held[h] / total, ECH_PAGE_SHARE);
        ech_text_add(p->out, "</tr>\n");
    }
    ech_text_add(p->out, "</tbody></table>\n<table id=\"memory-peaks\"><thead><tr>"
                         "<th scope=\"col\">moment</th><th scope=\"col\">device</th>"
                         "<th scope=\"col\">host of a node</th></tr></thead><tbody>\n");
    for (int m = 0; m < ECH_N_MOMENTS; m++) {
        ech_text_add(p->out, "<tr%s><th scope=\"row\">%s</th>",
                     m == (int)s->fullest ? " class=\"won\"" : "", ech_moment_name((ech_moment)m));
        ech_page_cell(p->out, s->peak[m], ECH_PAGE_GIB);
        ech_page_cell(p->out, p->memory->host_peak[m], ECH_PAGE_GIB);
        ech_text_add(p->out, "</tr>\n");
    }
    ech_text_add(p->out, "</tbody></table></div></details>\n");
}

static void add_note(ech_page *p)
{
    const ech_footprint *f = p->memory;
    ech_text_add(p->out, "<p>Allocated ");
    ech_page_data(p->out, f->allocated_bytes, ECH_PAGE_GIB);
    ech_text_add(p->out, ", reserved with context and the allocator's slack ");
    ech_page_data(p->out, f->reserved_bytes, ECH_PAGE_GIB);
    if (f->is_exact)
        ech_text_add(p->out, ": read off the programs that would run, exact.</p>\n");
    else
        ech_text_add(p->out, ", good to %.0f\xc2\xa0%%.</p>\n", 100.0 * f->uncertainty);
}

void ech_page_add_memory(ech_page *p)
{
    if (!p->memory)
        return;
    ech_text_add(p->out, "<section aria-labelledby=\"h-memory\">\n"
                         "<h2 id=\"h-memory\">What it holds</h2>\n");
    add_legend(p, scale_of(p));
    add_bars(p);
    add_note(p);
    add_held(p);
    add_stages(p);
    ech_text_add(p->out, "</section>\n");
}
