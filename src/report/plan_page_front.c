/* Time against memory: the front and the best as points, and the front's table. */
#include "report/html.h"
#include "report/picture_cells.h"
#include "report/plan_page_part.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEIGHT = 300, /* of the plot, in pixels */
    N_SHAPES = 5,
    MOST_POINTS = ECH_SEARCH_PARETO + ECH_SEARCH_TOP
};

static const double LOG_SPAN = 6.0; /* times that span more are told on a logarithmic scale */

/* A shape of about 12 pixels for each number of GPUs, the colours of plan_page_style.c. */
static const struct {
    const char *path;
    int colour;
} shape[N_SHAPES] = {
    {"M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0z", 0},
    {"M-5.5 -5.5h11v11h-11z", 5},
    {"M0 -7L6.5 5H-6.5z", 10},
    {"M0 -7.5L7.5 0L0 7.5L-7.5 0z", 7},
    {"M-7 -5H7L0 7z", 8},
};

/* What is drawn. */
typedef struct front {
    const ech_candidate *point[MOST_POINTS]; /* the winner first, then best, then the front */
    int n, n_best;
    int64_t gpus[MOST_POINTS]; /* numbers of GPUs, most first */
    int n_gpus;
    double least_s, most_s, most_bytes; /* of the axes */
    bool is_log;
} front;

/* --- what is drawn --- */

static bool is_same(const ech_candidate *a, const ech_candidate *b)
{
    return a->gpus == b->gpus && a->step.step_s == b->step.step_s &&
           a->reserved_bytes == b->reserved_bytes;
}

static void add_point(front *f, const ech_candidate *c)
{
    for (int i = 0; i < f->n; i++)
        if (is_same(f->point[i], c))
            return;
    f->point[f->n++] = c;
    for (int i = 0; i < f->n_gpus; i++)
        if (f->gpus[i] == c->gpus)
            return;
    f->gpus[f->n_gpus++] = c->gpus;
}

static int by_most(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static void gather(const ech_page *p, front *f)
{
    const ech_plan *plan = p->ask->plan;
    for (int i = 0; i < plan->n_best; i++)
        add_point(f, &plan->best[i]);
    f->n_best = f->n;
    for (int i = 0; i < plan->n_pareto; i++)
        add_point(f, &plan->pareto[i]);
    qsort(f->gpus, (size_t)f->n_gpus, sizeof *f->gpus, by_most);
    f->least_s = INFINITY;
    for (int i = 0; i < f->n; i++) {
        f->least_s = fmin(f->least_s, f->point[i]->step.step_s);
        f->most_s = fmax(f->most_s, f->point[i]->step.step_s);
        f->most_bytes = fmax(f->most_bytes, f->point[i]->reserved_bytes);
    }
    f->most_bytes = ech_page_memory_end(p, f->most_bytes);
    f->is_log = f->most_s > LOG_SPAN * f->least_s;
    const double margin = f->is_log ? 1.15 : 1.0 + 0.08 * (f->most_s / f->least_s - 1.0) + 0.002;
    f->most_s *= margin;
    f->least_s /= margin;
}

static double x_of(const front *f, double bytes)
{
    return bytes / f->most_bytes;
}

/* From the top. */
static double y_of(const front *f, double s)
{
    return f->is_log ? 1.0 - log(s / f->least_s) / log(f->most_s / f->least_s)
                     : 1.0 - (s - f->least_s) / (f->most_s - f->least_s);
}

static int shape_of(const front *f, int64_t gpus)
{
    int i = 0;
    while (i < f->n_gpus - 1 && f->gpus[i] != gpus)
        i++;
    return i % N_SHAPES;
}

/* --- the plot --- */

static void add_time_tick(ech_page *p, const front *f, double s, double shown, int decimals)
{
    const long long y = llrint(HEIGHT * y_of(f, s));
    ech_text_add(p->out,
                 "<line class=\"tick\" x2=\"100%%\" y1=\"%lld\" y2=\"%lld\"/>"
                 "<text class=\"e\" x=\"-8\" y=\"%lld\">%.*f</text>",
                 y, y, y + 4, decimals, shown);
}

static void add_time_axis(ech_page *p, const front *f)
{
    const double unit = f->least_s < 1.0 ? 1e-3 : 1.0;
    int decimals;
    if (!f->is_log) {
        const double step = ech_picture_tick((f->most_s - f->least_s) / unit, &decimals);
        for (double k = ceil(f->least_s / unit / step); k * step * unit <= f->most_s; k++)
            add_time_tick(p, f, k * step * unit, k * step, decimals);
    } else {
        static const double lead[] = {1.0, 2.0, 5.0};
        const double first = floor(log10(f->least_s / unit));
        for (int i = 0; i < 3 * 12; i++) {
            const double x = lead[i % 3] * pow(10.0, first + i / 3);
            if (x * unit >= f->least_s && x * unit <= f->most_s)
                add_time_tick(p, f, x * unit, x, x < 1.0 ? (int)-floor(log10(x)) : 0);
        }
    }
    ech_text_add(p->out, "<text x=\"-44\" y=\"-12\">step (%s%s)</text>\n", unit < 1.0 ? "ms" : "s",
                 f->is_log ? ", logarithmic" : "");
}

static void add_capacity(ech_page *p, const front *f)
{
    const double x = x_of(f, p->job.cluster->device.usable_bytes);
    if (x > 1.0)
        return;
    ech_text_add(p->out, "<line class=\"mark\" y2=\"%d\" x1=\"", HEIGHT);
    ech_page_percent(p->out, x);
    ech_text_add(p->out, "\" x2=\"");
    ech_page_percent(p->out, x);
    ech_text_add(p->out, "\"/><text class=\"e\" x=\"");
    ech_page_percent(p->out, x);
    ech_text_add(p->out, "\" dx=\"-6\" y=\"-12\">capacity</text>\n");
}

static void add_memory_axis(ech_page *p, const front *f)
{
    static const double GIB = 1073741824.0;
    int decimals;
    const double step = ech_picture_tick(f->most_bytes / GIB, &decimals);
    for (double k = 0.0; k * step * GIB <= f->most_bytes; k++) {
        ech_text_add(p->out, "<text class=\"a\" x=\"");
        ech_page_percent(p->out, x_of(f, k * step * GIB));
        ech_text_add(p->out, "\" y=\"%d\">%.*f</text>", HEIGHT + 18, decimals, k * step);
    }
    ech_text_add(p->out,
                 "<text class=\"a\" x=\"50%%\" y=\"%d\">memory of the fullest device (GiB)"
                 "</text>\n",
                 HEIGHT + 38);
    add_capacity(p, f);
}

/* What is told of a point: as its label, and below the plot. */
static void add_words(ech_page *p, const front *f, int i)
{
    const ech_candidate *c = f->point[i];
    ech_text layout = {0};
    ech_text_add(p->out, "%s", i == 0 ? "The winner: " : "");
    ech_page_words(p->out, c->step.step_s, ECH_PAGE_SECONDS);
    ech_text_add(p->out, " a step, ");
    ech_page_words(p->out, c->reserved_bytes, ECH_PAGE_GIB);
    ech_text_add(p->out, ", %lld %ss: ", (long long)c->gpus, ech_page_device(p));
    ech_point_options(&p->job, &c->point, &layout);
    ech_html_text(p->out, ech_text_get(&layout));
    p->out->failed |= layout.failed;
    ech_text_fini(&layout);
}

static void add_mark(ech_page *p, const front *f, int i)
{
    const ech_candidate *c = f->point[i];
    const int s = shape_of(f, c->gpus);
    ech_text_add(p->out, "<svg x=\"");
    ech_page_percent(p->out, x_of(f, c->reserved_bytes));
    ech_text_add(p->out,
                 "\" y=\"%lld\" overflow=\"visible\"><g class=\"pt%s\" tabindex=\"0\" "
                 "role=\"img\" aria-label=\"",
                 llrint(HEIGHT * y_of(f, c->step.step_s)), i == 0 ? " won" : "");
    add_words(p, f, i);
    ech_text_add(p->out, "\"><title>");
    add_words(p, f, i);
    ech_text_add(p->out, "</title><circle class=\"hit\" r=\"14\"/>");
    if (i == 0)
        ech_text_add(p->out, "<circle class=\"ring\" r=\"11\"/>");
    ech_text_add(p->out, "<path class=\"c%d\" d=\"%s\"/></g></svg>\n", shape[s].colour,
                 shape[s].path);
}

static void add_legend(ech_page *p, const front *f)
{
    ech_text_add(p->out, "<ul class=\"legend\">");
    for (int i = 0; i < f->n_gpus; i++) {
        const int s = shape_of(f, f->gpus[i]);
        ech_text_add(p->out,
                     "<li><svg class=\"key\" viewBox=\"-8 -8 16 16\" aria-hidden=\"true\">"
                     "<path class=\"c%d\" d=\"%s\"/></svg>%lld %ss</li>",
                     shape[s].colour, shape[s].path, (long long)f->gpus[i], ech_page_device(p));
    }
    ech_text_add(p->out, "<li><svg class=\"key\" viewBox=\"-12 -12 24 24\" aria-hidden=\"true\">"
                         "<circle class=\"ring\" r=\"10\"/></svg>the winner</li></ul>\n");
}

/* The winner is drawn last, above its neighbours. */
static void add_plot(ech_page *p, const front *f)
{
    ech_text_add(p->out,
                 "<div class=\"plot\"><svg height=\"%d\" width=\"100%%\" role=\"group\" "
                 "aria-label=\"Step time against memory, %d layouts; arrow keys go from one "
                 "to the next\">\n<rect class=\"track\" width=\"100%%\" height=\"%d\"/>\n",
                 HEIGHT, f->n, HEIGHT);
    add_time_axis(p, f);
    add_memory_axis(p, f);
    for (int i = f->n - 1; i >= 0; i--)
        add_mark(p, f, i);
    ech_text_add(p->out, "</svg></div>\n<p class=\"said\" id=\"said\" aria-live=\"polite\">");
    add_words(p, f, 0);
    ech_text_add(p->out, "</p>\n");
}

/* --- the table --- */

static void add_row(ech_page *p, const ech_candidate *c, bool is_won)
{
    ech_text command = {0};
    ech_text layout = {0};
    ech_page_command(p, "sim", c, &command);
    ech_point_options(&p->job, &c->point, &layout);
    ech_text_add(p->out, "<tr%s>", is_won ? " class=\"won\"" : "");
    ech_page_cell(p->out, c->step.step_s, ECH_PAGE_SECONDS);
    ech_page_cell(p->out, c->reserved_bytes, ECH_PAGE_GIB);
    ech_page_cell(p->out, (double)c->gpus, ECH_PAGE_COUNT);
    ech_page_cell(p->out, p->job.cluster->device.dollars_per_hour > 0.0 ? c->dollars_per_step : NAN,
                  ECH_PAGE_DOLLARS);
    ech_text_add(p->out, "<td>");
    ech_page_copy(p->out, "its command", ech_text_get(&command));
    ech_page_options(p->out, ech_text_get(&layout));
    ech_text_add(p->out, "</td></tr>\n");
    p->out->failed |= command.failed || layout.failed;
    ech_text_fini(&command);
    ech_text_fini(&layout);
}

static void add_table(ech_page *p)
{
    const ech_plan *plan = p->ask->plan;
    ech_text_add(p->out,
                 "<details><summary>The front as a table (%d layouts)</summary>\n"
                 "<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                 "aria-label=\"The front\"><table id=\"front\"><thead><tr>"
                 "<th scope=\"col\">a step</th><th scope=\"col\">memory</th>"
                 "<th scope=\"col\">GPUs</th><th scope=\"col\">a step costs</th>"
                 "<th scope=\"col\">layout</th></tr></thead><tbody>\n",
                 plan->n_pareto);
    for (int i = 0; i < plan->n_pareto; i++)
        add_row(p, &plan->pareto[i], p->has_winner && is_same(&plan->pareto[i], p->told));
    ech_text_add(p->out, "</tbody></table></div></details>\n");
}

void ech_page_add_front(ech_page *p)
{
    front *f = p->has_winner ? calloc(1, sizeof *f) : NULL;
    if (!p->has_winner)
        return;
    if (!f) {
        p->out->failed = true;
        return;
    }
    gather(p, f);
    ech_text_add(p->out,
                 "<section aria-labelledby=\"h-front\">\n"
                 "<h2 id=\"h-front\">Time against memory</h2>\n<p class=\"soft\">Layouts "
                 "that nobody beats in both%s, and the best. Point at one, tap it, or use "
                 "the arrow keys.</p>\n",
                 p->ask->spec->may_use_fewer ? ", in GPUs and in cost" : "");
    add_legend(p, f);
    add_plot(p, f);
    add_table(p);
    ech_text_add(p->out, "</section>\n");
    free(f);
}
