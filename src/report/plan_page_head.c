/* The top of a plan's page: what was asked, the verdict, the figures. */
#include "price/doubt.h"
#include "report/html.h"
#include "report/plan_page_part.h"

#include <math.h>

/* --- what was asked, and the verdict --- */

static void add_title(ech_page *p)
{
    ech_text *out = p->out;
    const ech_job *job = p->ask->spec->job;
    ech_text_add(out, "<header>\n<p class=\"soft\">Echelon plan</p>\n<h1><bdi>");
    ech_html_text(out, job->model->name);
    ech_text_add(out, "</bdi> on %lld \xc3\x97 <bdi>", (long long)job->gpus);
    ech_html_text(out, job->cluster->name);
    ech_text_add(out, "</bdi></h1>\n<p class=\"soft\">%s (kernels of %s), %s, sequences of ",
                 ech_system_name(job->system), ech_generation_name(job->generation),
                 ech_precision_name(job->precision));
    ech_page_words(out, (double)job->seq, ECH_PAGE_COUNT);
    ech_text_add(out, " tokens, ");
    ech_page_words(out, (double)job->global_batch, ECH_PAGE_COUNT);
    ech_text_add(out, " of them a step</p>\n</header>\n");
}

static void add_wish(ech_page *p)
{
    ech_text *out = p->out;
    if (p->ask->days <= 0.0)
        return;
    const bool is_met = p->goal.days <= p->ask->days;
    ech_text_add(out, " Asked for at most %g days: <strong>%s</strong>.", p->ask->days,
                 is_met ? "met" : "not met");
}

static void add_verdict(ech_page *p)
{
    ech_text *out = p->out;
    const ech_candidate *c = p->told;
    const ech_plan *plan = p->ask->plan;
    const double usable = p->job.cluster->device.usable_bytes;
    ech_text_add(out, "<p class=\"lead\" id=\"verdict\">");
    ech_page_verdict(out, p->has_winner ? c->fit : ECH_FIT_NO);
    ech_text_add(out, p->has_winner ? " The fastest of " : " None of ");
    ech_page_data(out, (double)plan->space, ECH_PAGE_COUNT);
    ech_text_add(out, p->has_winner ? " layouts" : " layouts fits");
    if (plan->opened_offload)
        ech_text_add(out,
                     p->has_winner ? "; without offload none fits" : ", not even with offload");
    ech_text_add(out, ".");
    if (p->has_winner)
        add_wish(p);
    if (c && !p->has_winner && c->reserved_bytes > usable) {
        ech_text_add(out, " The nearest misses ");
        ech_page_words(out, c->reserved_bytes - usable, ECH_PAGE_GIB);
        ech_text_add(out, " of a device.");
    }
    ech_text_add(out, "</p>\n");
}

/* --- figures --- */

static void open_tile(ech_page *p, const char *name)
{
    ech_text_add(p->out, "<div><dt>%s</dt><dd>", name);
}

static void close_tile(ech_page *p)
{
    ech_text_add(p->out, "</small></dd></div>\n");
}

static void add_tile(ech_page *p, const char *name, double x, ech_page_unit unit)
{
    open_tile(p, name);
    ech_page_data(p->out, x, unit);
    ech_text_add(p->out, " <small>");
}

static void add_memory_tiles(ech_page *p)
{
    ech_text *out = p->out;
    const ech_candidate *c = p->told;
    add_tile(p, "device memory", c->reserved_bytes, ECH_PAGE_GIB);
    ech_text_add(out, "of ");
    ech_page_words(out, p->job.cluster->device.usable_bytes, ECH_PAGE_GIB);
    ech_text_add(out, c->is_exact ? ", exact" : "");
    close_tile(p);
    if (p->job.cluster->host_bytes <= 0.0 || (p->has_winner && c->fit == ECH_FIT_YES))
        return;
    add_tile(p, "host memory, a node", c->host_node_bytes, ECH_PAGE_GIB);
    ech_text_add(out, "of ");
    ech_page_words(out, p->job.cluster->host_bytes, ECH_PAGE_GIB);
    close_tile(p);
}

static void add_goal_tiles(ech_page *p)
{
    ech_text *out = p->out;
    const ech_goal_cost *g = &p->goal;
    if (isfinite(g->days)) {
        add_tile(p, "days to the goal", g->days, ECH_PAGE_PLAIN);
        ech_html_count(out, p->job.tokens);
        ech_text_add(out, " tokens");
        close_tile(p);
        const bool has_price = p->job.cluster->device.dollars_per_hour > 0.0;
        add_tile(p, "money", has_price ? g->dollars : NAN, ECH_PAGE_DOLLARS);
        ech_html_number(out, g->gpu_hours, 4);
        ech_text_add(out, " %s-hours, ", ech_page_device(p));
        ech_html_number(out, g->megawatt_hours, 4);
        ech_text_add(out, "\xc2\xa0MWh");
        close_tile(p);
    }
    add_tile(p, "goodput", g->goodput.goodput, ECH_PAGE_SHARE);
    ech_text_add(out, "a checkpoint every ");
    ech_page_words(out, g->goodput.interval_s, ECH_PAGE_SPAN);
    close_tile(p);
}

static void add_tiles(ech_page *p)
{
    ech_text *out = p->out;
    ech_text_add(out, "<dl class=\"tiles\" id=\"figures\">\n");
    if (p->has_winner) {
        add_tile(p, "a step", p->told->step.step_s, ECH_PAGE_SECONDS);
        ech_doubt_print(p->told->step.uncertainty, out);
        close_tile(p);
    }
    add_memory_tiles(p);
    if (p->has_winner) {
        add_tile(p, "tokens a second", p->rates.tokens_per_s_per_gpu, ECH_PAGE_PLAIN);
        ech_text_add(out, "of a %s", ech_page_device(p));
        close_tile(p);
        add_tile(p, "MFU", p->rates.mfu, ECH_PAGE_SHARE);
        ech_text_add(out, "of %.4g\xc2\xa0TFLOP/s", p->rates.peak_flops / 1e12);
        close_tile(p);
        add_goal_tiles(p);
    }
    ech_text_add(out, "</dl>\n");
}

void ech_page_add_head(ech_page *p)
{
    add_title(p);
    add_verdict(p);
    if (p->told)
        add_tiles(p);
}
