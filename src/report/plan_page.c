#include "report/html.h"
#include "report/plan_page.h"
#include "base/io.h"
#include "report/plan_page_part.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_CELLS = 1000000 /* of a time line that is made for a picture */ };

/* What a page is made from beside what it was given. */
typedef struct source {
    ech_own own; /* of the layout that is told */
    ech_own_line own_line;
    ech_stage_line stage_line;
} source;

/* --- what is told --- */

/* Memory: of the programs where the layout's sums are theirs, else of the formulas. */
static ech_status ask_memory(ech_page *p, source *s)
{
    const ech_own_spec spec = {.job = &p->job,
                               .point = &p->told->point,
                               .calibration = p->ask->calibration,
                               .line = &s->own_line};
    p->memory = &s->own.memory;
    if (p->told->is_exact)
        return ech_own_answer(&spec, NULL, &s->own);
    ech_footprint_of(&p->job, &p->told->point, NULL, &s->own.memory);
    return ECH_OK;
}

/* Cells of the table of a layout's schedule. */
static double cells_of(const ech_page *p)
{
    const ech_point *at = &p->told->point;
    return 3.0 * at->pp * ech_schedule_chunks(at->schedule, at->vpp) *
           (double)ech_point_micros(&p->job, at);
}

/* The simulated line where there is one, else that of the stages' times; none where a picture would
 * not be worth its memory, or the schedule has no table. */
static ech_status ask_line(ech_page *p, source *s)
{
    ech_pricer *pricer = NULL;
    if (s->own.is_timed && s->own_line.line.n) {
        p->line = &s->own_line.line;
        return ECH_OK;
    }
    if (p->told->point.schedule == ECH_SCHEDULE_FILE || cells_of(p) > MOST_CELLS)
        return ECH_OK;
    ECH_TRY(ech_pricer_create(&p->job, p->ask->spec->constants, &pricer));
    const ech_status st =
        ech_stage_line_of(&p->job, pricer, &p->told->point, &p->told->step, &s->stage_line);
    ech_pricer_destroy(&pricer);
    if (st >= 0 && s->stage_line.line.step_s > 0.0)
        p->line = &s->stage_line.line;
    return st;
}

static ech_status ask_all(ech_page *p, source *s)
{
    const ech_plan *plan = p->ask->plan;
    p->job = *p->ask->spec->job;
    p->has_winner = plan->n_best > 0;
    if (p->has_winner)
        p->told = &plan->best[0];
    else if (plan->has_nearest)
        p->told = &plan->nearest;
    if (!p->told)
        return ECH_OK;
    p->job.gpus = p->told->gpus;
    ECH_TRY(ask_memory(p, s));
    if (!p->has_winner)
        return ECH_OK;
    p->rates = ech_step_rates_of(&p->job, &p->told->step);
    ech_goal_of(&p->job, &p->told->point, &p->told->step, NULL, &p->goal);
    return ask_line(p, s);
}

/* --- the page --- */

/* The policy: nothing from anywhere, and of what stands here the one style and the one script. */
static void open_page(ech_page *p)
{
    const ech_job *job = p->ask->spec->job;
    ech_text_add(p->out,
                 "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                 "style-src 'sha256-%s'; script-src 'sha256-%s'; base-uri 'none'; "
                 "form-action 'none'\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                 "<meta name=\"referrer\" content=\"no-referrer\">\n<title>Plan: ",
                 ech_page_style_hash, ech_page_script_hash);
    ech_html_text(p->out, job->model->name);
    ech_text_add(p->out, " on %lld x ", (long long)job->gpus);
    ech_html_text(p->out, job->cluster->name);
    ech_text_add(p->out, "</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n", ech_page_style);
}

static void close_page(ech_page *p)
{
    ech_text_add(p->out, "</main>\n<script>%s</script>\n</body>\n</html>\n", ech_page_script);
}

static ech_status add_page(ech_page *p)
{
    open_page(p);
    ech_page_add_head(p);
    ech_page_add_cures(p);
    ECH_TRY(ech_page_add_type(p));
    ech_text_add(p->out, "<div class=\"two\">\n");
    ech_page_add_memory(p);
    ech_page_add_time(p);
    ech_text_add(p->out, "</div>\n");
    ECH_TRY(ech_page_add_line(p));
    ech_page_add_best(p);
    ech_page_add_front(p);
    ech_page_add_neighbours(p);
    ech_page_add_run(p);
    ech_page_add_rejected(p);
    ech_page_add_derivation(p);
    ech_page_add_question(p);
    close_page(p);
    return ECH_OK;
}

ech_status ech_plan_page_text(const ech_plan_page *page, ech_text *out)
{
    ech_page p = {.ask = page, .out = out};
    source *s = calloc(1, sizeof *s);
    ECH_CHECK(s, ECH_E_NOMEM, "a page");
    ech_status st = ask_all(&p, s);
    if (st >= 0)
        st = add_page(&p);
    ech_own_line_fini(&s->own_line);
    ech_stage_line_fini(&s->stage_line);
    free(s);
    ECH_TRY(st);
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for a page");
    return ECH_OK;
}

ech_status ech_plan_page_write(const ech_plan_page *page, const char *path)
{
    ech_text text = {0};
    ech_status st = ech_plan_page_text(page, &text);
    if (st >= 0)
        st = ech_write_whole(path, ech_text_get(&text), text.bytes);
    ech_text_fini(&text);
    return st;
}
