/* Lists of a plan's page: the best layouts, cures, neighbours, what was rejected. */
#include "report/html.h"
#include "report/plan_page_part.h"

#include <math.h>

/* A table that scrolls in its own box; head: its <th>s. */
static void open_table(ech_page *p, const char *id, const char *name, const char *head)
{
    ech_text_add(p->out,
                 "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                 "<table id=\"%s\"><thead><tr>%s</tr></thead><tbody>\n",
                 name, id, head);
}

static void close_table(ech_page *p)
{
    ech_text_add(p->out, "</tbody></table></div>\n");
}

/* --- the best --- */

static void add_layout_cell(ech_page *p, const ech_candidate *c)
{
    ech_text command = {0};
    ech_text layout = {0};
    ech_page_command(p, "sim", c, &command);
    ech_point_options(&p->job, &c->point, &layout);
    ech_text_add(p->out, "<td>");
    ech_page_copy(p->out, "its command", ech_text_get(&command));
    ech_page_options(p->out, ech_text_get(&layout));
    ech_text_add(p->out, "</td>");
    p->out->failed |= command.failed || layout.failed;
    ech_text_fini(&command);
    ech_text_fini(&layout);
}

static void add_best_row(ech_page *p, int i)
{
    const ech_plan *plan = p->ask->plan;
    const ech_candidate *c = &plan->best[i];
    const ech_step_rates rates = ech_step_rates_of(&p->job, &c->step);
    ech_text_add(p->out, "<tr%s><th scope=\"row\">%d</th>", i ? "" : " class=\"won\"", i + 1);
    ech_page_cell(p->out, c->step.step_s, ECH_PAGE_SECONDS);
    ech_page_cell(p->out, c->step.step_s / plan->best[0].step.step_s - 1.0, ECH_PAGE_SHARE);
    ech_page_cell(p->out, rates.mfu, ECH_PAGE_SHARE);
    ech_page_cell(p->out, c->reserved_bytes, ECH_PAGE_GIB);
    ech_text_add(p->out, "<td>%s</td>", ech_page_fit_words(c->fit));
    add_layout_cell(p, c);
    ech_text_add(p->out, "</tr>\n");
}

void ech_page_add_best(ech_page *p)
{
    if (!p->has_winner)
        return;
    ech_text_add(p->out, "<section aria-labelledby=\"h-best\">\n<h2 id=\"h-best\">The best "
                         "layouts</h2>\n<p class=\"soft\">Copy one to have it as a command: all of "
                         "the job, and these options.</p>\n");
    open_table(p, "best", "The best layouts",
               "<th scope=\"col\">rank</th><th scope=\"col\">a step</th>"
               "<th scope=\"col\">behind</th><th scope=\"col\">MFU</th>"
               "<th scope=\"col\">memory</th><th scope=\"col\">verdict</th>"
               "<th scope=\"col\">layout</th>");
    for (int i = 0; i < p->ask->plan->n_best; i++)
        add_best_row(p, i);
    close_table(p);
    ech_text_add(p->out, "</section>\n");
}

/* --- cures --- */

static void add_cure(ech_page *p, const ech_cure *c)
{
    ech_text_add(p->out, "<tr><td>");
    for (int i = 0; i < c->changes; i++) {
        ech_text_add(p->out, "%s", i ? "; " : "");
        ech_html_text(p->out, c->gloss[i] ? c->gloss[i] : "");
    }
    ech_text_add(p->out, "<br>");
    ech_page_copy(p->out, "these options", c->change);
    ech_page_options(p->out, c->change);
    ech_text_add(p->out, "</td><td>");
    ech_page_verdict(p->out, c->fit);
    ech_text_add(p->out, "</td>");
    ech_page_cell(p->out, c->reserved_bytes, ECH_PAGE_GIB);
    ech_page_cell(p->out, c->saves_bytes, ECH_PAGE_GIB);
    ech_page_cell(p->out, c->time_ratio, ECH_PAGE_PLAIN);
    ech_text_add(p->out, "<td>%s</td></tr>\n", ech_cure_cost_name(c->cost));
}

void ech_page_add_cures(ech_page *p)
{
    const ech_cures *cures = p->ask->cures;
    if (!cures)
        return;
    ech_text_add(p->out, "<section aria-labelledby=\"h-cures\">\n"
                         "<h2 id=\"h-cures\">What would help</h2>\n");
    if (cures->n || cures->has_nearest) {
        ech_text_add(p->out, "<p class=\"soft\">%s</p>\n",
                     cures->n ? "Changes to the nearest layout, the least first; times are seconds "
                                "a token, then over now."
                              : "No change, and no two, is enough; this leaves the least missing.");
        open_table(p, "cures", "What would help",
                   "<th scope=\"col\">change</th><th scope=\"col\">then</th>"
                   "<th scope=\"col\">holds</th><th scope=\"col\">saves</th>"
                   "<th scope=\"col\">time \xc3\x97</th><th scope=\"col\">asks for</th>");
        for (int i = 0; i < cures->n; i++)
            add_cure(p, &cures->cure[i]);
        if (!cures->n)
            add_cure(p, &cures->nearest);
        close_table(p);
    } else {
        ech_text_add(p->out, "<p>None of %d changes and pairs of changes does.</p>\n",
                     cures->tried);
    }
    ech_text_add(p->out, "</section>\n");
}

/* --- neighbours --- */

static double slower(const ech_page *p, const ech_neighbour *n)
{
    return n->at.step.step_s / p->ask->plan->best[0].step.step_s - 1.0;
}

static void add_slow_bar(ech_page *p, double share, double most)
{
    ech_text_add(p->out, "<td><svg class=\"bar small\" viewBox=\"0 0 10000 16\" "
                         "preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    ech_page_bar_part(p->out, 3, 0.0, most > 0.0 ? fmax(share, 0.0) / most : 0.0);
    ech_text_add(p->out, "</svg></td>");
}

static void add_neighbour(ech_page *p, const ech_neighbour *n, double most)
{
    ech_text value = {0};
    ech_text *out = p->out;
    ech_plan_dim_print(n->dim, &n->at.point, &value);
    ech_text_add(out, "<tr><th scope=\"row\">%s <b>", ech_plan_dim_name(n->dim));
    ech_html_text(out, ech_text_get(&value));
    ech_text_add(out, "</b></th>");
    ech_page_cell(out, n->at.step.step_s, ECH_PAGE_SECONDS);
    if (n->fits) {
        ech_page_cell(out, slower(p, n), ECH_PAGE_SHARE);
        add_slow_bar(p, slower(p, n), most);
    } else {
        ech_text_add(out, "<td colspan=\"2\">");
        ech_page_verdict(out, ECH_FIT_NO);
        ech_text_add(out, "</td>");
    }
    ech_page_cell(out, n->at.reserved_bytes, ECH_PAGE_GIB);
    ech_text_add(out, "<td>");
    ech_html_text(out, n->loses_by ? n->loses_by : "");
    ech_text_add(out, "</td></tr>\n");
    p->out->failed |= value.failed;
    ech_text_fini(&value);
}

void ech_page_add_neighbours(ech_page *p)
{
    const ech_plan *plan = p->ask->plan;
    double most = 0.0;
    if (!p->has_winner || !plan->n_neighbours)
        return;
    for (int i = 0; i < plan->n_neighbours; i++)
        if (plan->neighbour[i].fits)
            most = fmax(most, slower(p, &plan->neighbour[i]));
    ech_text_add(p->out, "<section aria-labelledby=\"h-why\">\n<h2 id=\"h-why\">Why its neighbours "
                         "lose</h2>\n<p class=\"soft\">One dimension changed, what must follow it "
                         "too.</p>\n");
    open_table(p, "neighbours", "Why its neighbours lose",
               "<th scope=\"col\">with</th><th scope=\"col\">a step</th>"
               "<th scope=\"col\" colspan=\"2\">slower by</th><th scope=\"col\">memory</th>"
               "<th scope=\"col\">loses by</th>");
    for (int i = 0; i < plan->n_neighbours; i++)
        add_neighbour(p, &plan->neighbour[i], most);
    close_table(p);
    ech_text_add(p->out, "</section>\n");
}

/* --- what was rejected --- */

static void add_rejections(ech_page *p, bool is_memory)
{
    const ech_plan *plan = p->ask->plan;
    for (int i = 0; i < plan->n_rejected; i++) {
        const ech_rejection *r = &plan->rejected[i];
        if (r->is_memory != is_memory || r->count <= 0)
            continue;
        ech_text_add(p->out, "<tr>");
        ech_page_cell(p->out, (double)r->count, ECH_PAGE_COUNT);
        ech_text_add(p->out, "<td>%s</td><td>", is_memory ? "holds too much" : "not possible");
        ech_html_text(p->out, r->reason);
        ech_text_add(p->out, "</td></tr>\n");
    }
}

void ech_page_add_rejected(ech_page *p)
{
    const ech_plan *plan = p->ask->plan;
    ech_text_add(p->out, "<section aria-labelledby=\"h-not\">\n"
                         "<h2 id=\"h-not\">What was not taken</h2>\n<p>");
    ech_page_data(p->out, (double)plan->space, ECH_PAGE_COUNT);
    ech_text_add(p->out, " layouts: ");
    ech_page_data(p->out, (double)plan->evaluated, ECH_PAGE_COUNT);
    ech_text_add(p->out, " priced, ");
    ech_page_data(p->out, (double)plan->pruned, ECH_PAGE_COUNT);
    ech_text_add(p->out, " skipped by bounds, which never skip one of the best; in ");
    ech_page_data(p->out, plan->seconds, ECH_PAGE_SECONDS);
    ech_text_add(p->out, ".</p>\n");
    if (plan->n_rejected) {
        open_table(p, "rejected", "What was not taken",
                   "<th scope=\"col\">how many</th><th scope=\"col\">are</th>"
                   "<th scope=\"col\">because of</th>");
        add_rejections(p, true);
        add_rejections(p, false);
        close_table(p);
        ech_text_add(p->out, "<p class=\"soft\">Of what is not possible, values of a dimension are "
                             "counted, once whatever else a layout has.</p>\n");
    }
    ech_text_add(p->out, "</section>\n");
}
