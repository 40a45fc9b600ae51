/* The whole run: days, money, energy, failures and checkpoints. */
#include "report/plan_page_part.h"

#include <math.h>

/* A row: a name, a number, where it is from. */
static void add_row(ech_page *p, const char *name, double x, ech_page_unit unit, const char *words)
{
    ech_text_add(p->out, "<tr><th scope=\"row\">%s</th>", name);
    ech_text_add(p->out, "<td class=\"n\">");
    ech_page_data(p->out, x, unit);
    ech_text_add(p->out, "%s</td></tr>\n", isfinite(x) ? words : "");
}

static void open_table(ech_page *p, const char *id, const char *caption)
{
    ech_text_add(p->out, "<table id=\"%s\"><caption>%s</caption><tbody>\n", id, caption);
}

static void add_goal(ech_page *p)
{
    const ech_goal_cost *g = &p->goal;
    const ech_device *device = &p->job.cluster->device;
    const bool is_node = device->kind == ECH_DEVICE_CPU;
    if (!isfinite(g->days)) {
        ech_text_add(p->out,
                     "<p>How much is to be trained was not said (<code>--tokens</code>), so "
                     "days, money and energy are not told.</p>\n");
        return;
    }
    open_table(p, "goal", "To the goal");
    add_row(p, "tokens", p->job.tokens, ECH_PAGE_COUNT, "");
    add_row(p, "steps", g->steps, ECH_PAGE_PLAIN, "");
    add_row(p, "days, failures counted", g->days, ECH_PAGE_PLAIN, "");
    add_row(p, "days without failures", g->ideal_days, ECH_PAGE_PLAIN, "");
    add_row(p, is_node ? "node-hours" : "GPU-hours", g->gpu_hours, ECH_PAGE_PLAIN, "");
    add_row(p, "money", device->dollars_per_hour > 0.0 ? g->dollars : NAN, ECH_PAGE_DOLLARS, "");
    add_row(p, "energy", g->megawatt_hours, ECH_PAGE_PLAIN, "\xc2\xa0MWh");
    ech_text_add(p->out, "</tbody></table>\n");
}

static void add_goodput(ech_page *p)
{
    const ech_goodput *g = &p->goal.goodput;
    open_table(p, "goodput", "Failures and checkpoints");
    add_row(p, "goodput", g->goodput, ECH_PAGE_SHARE, "");
    add_row(p, "a checkpoint every", g->interval_s, ECH_PAGE_SPAN, "");
    add_row(p, "of", g->checkpoint_bytes, ECH_PAGE_GIB, "");
    add_row(p, "training stands for", g->blocked_s, ECH_PAGE_SPAN, "");
    add_row(p, "until it is written", g->drain_s, ECH_PAGE_SPAN, "");
    add_row(p, "a failure every", g->mtbf_s, ECH_PAGE_SPAN, "");
    add_row(p, "back after one in", g->restart_s, ECH_PAGE_SPAN, "");
    add_row(p, "interval by Young", g->young_s, ECH_PAGE_SPAN, "");
    add_row(p, "interval by Daly", g->daly_s, ECH_PAGE_SPAN, "");
    ech_text_add(p->out, "</tbody></table>\n");
}

void ech_page_add_run(ech_page *p)
{
    if (!p->has_winner)
        return;
    ech_text_add(p->out, "<section aria-labelledby=\"h-run\">\n"
                         "<h2 id=\"h-run\">The whole run</h2>\n<div class=\"pair\">\n");
    add_goal(p);
    add_goodput(p);
    ech_text_add(p->out, "</div>\n<p class=\"soft\">Prices are those of the device's row in the "
                         "catalogue or of the cluster's file; energy counts devices, hosts and the "
                         "building. Young 1974, doi:10.1145/361147.361115; Daly 2006, "
                         "doi:10.1016/j.future.2004.11.016.</p>\n</section>\n");
}
