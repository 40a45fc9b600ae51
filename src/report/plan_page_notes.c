/* The end of a plan's page: the derivation, section by section, and the question. */
#include "report/html.h"
#include "report/plan_page_part.h"

#include <string.h>

/* --- the derivation --- */

static void add_line(ech_page *p, const ech_derived *line)
{
    ech_text value = {0};
    ech_quantity_print(line->value, line->unit, &value);
    ech_text_add(p->out, "<tr><th scope=\"row\">");
    ech_html_text(p->out, line->what);
    ech_text_add(p->out, "</th><td>");
    ech_html_text(p->out, line->formula);
    ech_text_add(p->out, "</td><td class=\"n\"><data value=\"");
    ech_text_add_double(p->out, line->value);
    ech_text_add(p->out, "\">");
    ech_html_text(p->out, ech_text_get(&value));
    ech_text_add(p->out, "</data></td><td class=\"soft\">");
    ech_html_text(p->out, line->source ? line->source : "");
    ech_text_add(p->out, "</td></tr>\n");
    p->out->failed |= value.failed;
    ech_text_fini(&value);
}

static void open_section(ech_page *p, const char *title)
{
    ech_text_add(p->out, "<details><summary>");
    ech_html_text(p->out, title);
    ech_text_add(p->out, "</summary>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                         "aria-label=\"");
    ech_html_text(p->out, title);
    ech_text_add(p->out, "\"><table class=\"notes\"><thead><tr><th scope=\"col\">what</th>"
                         "<th scope=\"col\">formula</th><th scope=\"col\">value</th>"
                         "<th scope=\"col\">source</th></tr></thead><tbody>\n");
}

void ech_page_add_derivation(ech_page *p)
{
    const ech_derivation *d = p->ask->notes;
    int section = -2; /* none is open */
    if (!d || !d->n)
        return;
    ech_text_add(p->out, "<section aria-labelledby=\"h-derive\" id=\"derivation\">\n"
                         "<h2 id=\"h-derive\">How it follows</h2>\n<p class=\"soft\">Every formula "
                         "with the numbers of this layout, as it was computed. "
                         "<button type=\"button\" hidden data-open=\"derivation\">Open all"
                         "</button></p>\n");
    for (int i = 0; i < d->n; i++) {
        if (d->line[i].section != section) {
            ech_text_add(p->out, "%s", section == -2 ? "" : "</tbody></table></div></details>\n");
            section = d->line[i].section;
            open_section(p, section >= 0 ? d->section[section] : "First");
        }
        add_line(p, &d->line[i]);
    }
    ech_text_add(p->out, "</tbody></table></div></details>\n</section>\n");
}

/* --- the question --- */

static void add_pins(ech_page *p)
{
    const ech_search_spec *spec = p->ask->spec;
    for (int i = 0; i < ECH_N_DIMS; i++) {
        if (!(spec->pinned >> i & 1))
            continue;
        ech_text value = {0};
        ech_plan_dim_print((ech_plan_dim)i, &spec->pin, &value);
        ech_text_add(p->out, "<li>pinned: %s ", ech_plan_dim_name((ech_plan_dim)i));
        ech_html_text(p->out, ech_text_get(&value));
        ech_text_add(p->out, "</li>\n");
        p->out->failed |= value.failed;
        ech_text_fini(&value);
    }
}

static void add_assumed(ech_page *p)
{
    for (const char *at = p->ask->assumed; *at;) {
        const size_t n = strcspn(at, "\n");
        ech_text_add(p->out, "<li>assumed: ");
        ech_html_bytes(p->out, at, n);
        ech_text_add(p->out, "</li>\n");
        at += n + (at[n] == '\n');
    }
}

static void add_level(ech_page *p, const ech_link_level *l)
{
    ech_text_add(p->out, "<li>network: <bdi>");
    ech_html_text(p->out, l->name);
    ech_text_add(p->out, "</bdi>, ");
    if (l->span > 0)
        ech_text_add(p->out, "%lld devices, ", (long long)l->span);
    ech_html_number(p->out, l->bytes_per_s / 1e9, 4);
    ech_text_add(p->out, "\xc2\xa0GB/s a device one way</li>\n");
}

static void add_asked(ech_page *p)
{
    ech_text command = {0};
    ech_text_add(&command, "echelon plan %s --gpus %lld", p->ask->job_options,
                 (long long)p->ask->spec->job->gpus);
    ech_page_options(p->out, ech_text_get(&command));
    p->out->failed |= command.failed;
    ech_text_fini(&command);
}

void ech_page_add_question(ech_page *p)
{
    const ech_job *job = p->ask->spec->job;
    const ech_device *d = &job->cluster->device;
    ech_text_add(p->out, "<section aria-labelledby=\"h-asked\">\n"
                         "<h2 id=\"h-asked\">What was asked</h2>\n<ul>\n<li>");
    add_asked(p);
    ech_text_add(p->out, "</li>\n");
    add_pins(p);
    add_assumed(p);
    ech_text_add(p->out, "<li>device: <bdi>");
    ech_html_text(p->out, d->name);
    ech_text_add(p->out, "</bdi>, ");
    ech_page_words(p->out, d->usable_bytes, ECH_PAGE_GIB);
    ech_text_add(p->out, " to allocate in, ");
    ech_html_number(p->out, d->memory_bytes_per_s / 1e9, 4);
    ech_text_add(p->out, "\xc2\xa0GB/s, dense peak ");
    ech_html_number(p->out, d->peak_flops[job->precision] / 1e12, 4);
    ech_text_add(p->out, "\xc2\xa0TFLOP/s in %s</li>\n", ech_precision_name(job->precision));
    for (int i = 0; i < job->cluster->n_levels; i++)
        add_level(p, &job->cluster->level[i]);
    ech_text_add(p->out, "</ul>\n<p class=\"soft\">1 GiB is 2<sup>30</sup> bytes, 1 GB is "
                         "10<sup>9</sup>. Sources stand beside each figure in the derivation; "
                         "constants in src/price/constants.c and src/catalog, each with its own."
                         "</p>\n</section>\n");
}
