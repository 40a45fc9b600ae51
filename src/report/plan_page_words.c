#include "report/html.h"
#include "report/plan_page_part.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* With one decimal; close to all with more of them. */
static void add_share(ech_text *out, double x)
{
    if (x < 0.9995 || x >= 1.0) {
        ech_html_percent(out, x);
        return;
    }
    ech_html_number(out, 100.0 * x, 4);
    ech_text_add(out, "\xc2\xa0%%");
}

static void add_dollars(ech_text *out, double x)
{
    const double size = fabs(x);
    const double unit = size >= 1e9 ? 1e9 : size >= 1e6 ? 1e6 : 1.0;
    ech_html_number(out, x / unit, 4);
    ech_text_add(out, "%s\xc2\xa0USD", unit == 1e9 ? "\xc2\xa0G" : unit == 1e6 ? "\xc2\xa0M" : "");
}

void ech_page_words(ech_text *out, double x, ech_page_unit unit)
{
    if (!isfinite(x)) {
        ech_text_add(out, "not known");
        return;
    }
    switch (unit) {
    case ECH_PAGE_GIB:
        ech_html_gib(out, x);
        break;
    case ECH_PAGE_SECONDS:
        ech_html_seconds(out, x);
        break;
    case ECH_PAGE_SPAN:
        ech_html_span(out, x);
        break;
    case ECH_PAGE_SHARE:
        add_share(out, x);
        break;
    case ECH_PAGE_DOLLARS:
        add_dollars(out, x);
        break;
    case ECH_PAGE_COUNT:
        ech_html_number(out, x, 15);
        break;
    default:
        ech_html_number(out, x, 4);
    }
}

void ech_page_data(ech_text *out, double x, ech_page_unit unit)
{
    if (isfinite(x)) {
        ech_text_add(out, "<data value=\"");
        ech_text_add_double(out, x);
        ech_text_add(out, "\">");
    }
    ech_page_words(out, x, unit);
    if (isfinite(x))
        ech_text_add(out, "</data>");
}

void ech_page_cell(ech_text *out, double x, ech_page_unit unit)
{
    ech_text_add(out, "<td class=\"n\">");
    ech_page_data(out, x, unit);
    ech_text_add(out, "</td>");
}

/* --- graphics --- */

void ech_page_percent(ech_text *out, double share)
{
    const long long hundredths = llrint(share * 1e4);
    const long long size = hundredths < 0 ? -hundredths : hundredths;
    ech_text_add(out, "%s%lld.%02lld%%", hundredths < 0 ? "-" : "", size / 100, size % 100);
}

void ech_page_bar_part(ech_text *out, int colour, double from, double to)
{
    const long long begin = llrint(1e4 * from);
    const long long end = llrint(1e4 * to);
    if (end > begin)
        ech_text_add(out, "<rect class=\"c%d\" x=\"%lld\" width=\"%lld\" height=\"16\"/>", colour,
                     begin, end - begin);
}

void ech_page_swatch(ech_text *out, int colour)
{
    ech_text_add(out, "<span class=\"sw c%d\"></span>", colour);
}

/* --- pieces that several parts have --- */

void ech_page_command(const ech_page *p, const char *verb, const ech_candidate *c, ech_text *out)
{
    ech_text_add(out, "echelon %s %s --gpus %lld ", verb, p->ask->job_options, (long long)c->gpus);
    ech_point_options(&p->job, &c->point, out);
}

void ech_page_options(ech_text *out, const char *text)
{
    ech_text_add(out, "<code class=\"o\">");
    for (const char *at = text; *at;) {
        const char *next = strstr(at + 1, " --");
        const size_t n = next ? (size_t)(next - at) : strlen(at);
        ech_text_add(out, "%s<span>", at == text ? "" : " ");
        ech_html_bytes(out, at, n);
        ech_text_add(out, "</span>");
        at += n + (next != NULL);
    }
    ech_text_add(out, "</code>");
}

void ech_page_copy(ech_text *out, const char *what, const char *text)
{
    ech_text_add(out, "<button type=\"button\" hidden aria-label=\"Copy ");
    ech_html_text(out, what);
    ech_text_add(out, "\" data-copy=\"");
    ech_html_text(out, text);
    ech_text_add(out, "\">Copy</button>");
}

double ech_page_memory_end(const ech_page *p, double most)
{
    static const double far_below = 0.1;
    const double capacity = p->job.cluster->device.usable_bytes;
    return 1.04 * (most < far_below * capacity ? most : fmax(most, capacity));
}

const char *ech_page_device(const ech_page *p)
{
    return p->ask->spec->job->cluster->device.kind == ECH_DEVICE_CPU ? "node" : "GPU";
}

const char *ech_page_fit_words(ech_fit fit)
{
    return fit == ECH_FIT_YES ? "fits" : fit == ECH_FIT_EDGE ? "on the edge" : "does not fit";
}

void ech_page_verdict(ech_text *out, ech_fit fit)
{
    static const char *const look[] = {[ECH_FIT_YES] = "good\">\xe2\x9c\x93",
                                       [ECH_FIT_EDGE] = "edge\">!",
                                       [ECH_FIT_NO] = "bad\">\xc3\x97"};
    ech_text_add(out, "<span class=\"pill %s %s</span>", look[fit], ech_page_fit_words(fit));
}
