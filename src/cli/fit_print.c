#include "cli/fit_print.h"
#include "report/train_events.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1073741824.0;

enum { BAR = 56 /* characters for what a device has */ };

/* --- classes --- */

/* Classes of JSON and of bars, in the order of ECH_USE_LIST; a letter each. */
typedef struct classes {
    const char *name[ECH_N_USES];
    double bytes[ECH_N_USES];
    int n;
} classes;

static classes classes_of(const double *held)
{
    classes c = {.n = 0};
    for (int h = 0; h < ECH_N_USES; h++) {
        const char *name = ech_use_class((ech_use)h);
        int at = 0;
        while (at < c.n && strcmp(c.name[at], name) != 0)
            at++;
        if (at == c.n)
            c.name[c.n++] = name;
        c.bytes[at] += held[h];
    }
    return c;
}

static double sum_of(const double *held)
{
    double sum = 0.0;
    for (int h = 0; h < ECH_N_USES; h++)
        sum += held[h];
    return sum;
}

void ech_held_members(ech_jout *j, const char *key, const double *held)
{
    const classes c = classes_of(held);
    ech_jout_open(j, key, '{');
    for (int i = 0; i < c.n; i++)
        ech_jout_real(j, c.name[i], c.bytes[i]);
    ech_jout_real(j, "total", sum_of(held));
    ech_jout_close(j);
}

/* --- words --- */

static const char *bytes_words(double bytes, char *buf, size_t n)
{
    (void)snprintf(buf, n, "%.4g GiB", bytes / GIB);
    return buf;
}

static const char *ratio_words(double ratio, char *buf, size_t n)
{
    (void)snprintf(buf, n, "time x %.3g", ratio);
    return buf;
}

void ech_job_words(const ech_job *job, const ech_point *point, ech_text *out)
{
    ech_text_add(out, "%s on %lld x %s (%s, %s), seq %lld, global batch %lld\n", job->model->name,
                 (long long)job->gpus, job->cluster->name, ech_system_name(job->system),
                 ech_precision_name(job->precision), (long long)job->seq,
                 (long long)job->global_batch);
    ech_text_add(out, "  ");
    ech_point_print(point, out);
    ech_text_add(out, "\n");
}

static void say_verdict(const ech_fit_answer *a, ech_text *out)
{
    static const char *const words[] = {
        [ECH_FIT_YES] = "fits", [ECH_FIT_EDGE] = "on the edge", [ECH_FIT_NO] = "does not fit"};
    const ech_fit_report *r = a->report;
    ech_text_add(out,
                 "%s: %.4g of %.4g GiB on the fullest device (%.4g GiB allocated), %s %.3g GiB; ",
                 words[r->fit], r->memory.reserved_bytes / GIB, r->capacity_bytes / GIB,
                 r->memory.allocated_bytes / GIB, r->margin_bytes < 0 ? "missing" : "left",
                 fabs(r->margin_bytes) / GIB);
    if (r->memory.uncertainty > 0.0)
        ech_text_add(out, "good to %.0f %%", 100.0 * r->memory.uncertainty);
    else
        ech_text_add(out, "as the engine allocates, to the byte");
    ech_text_add(out, "\nwhat decides: %s\n", r->binding);
    if (r->memory.marked)
        ech_text_add(out, "from formulas alone: %s\n", r->memory.marked);
}

/* A letter for each 1/BAR of the device, '.' for what is free, what is over it behind its end. */
static void draw_bar(const double *held, double capacity, ech_text *out)
{
    const classes c = classes_of(held);
    double upto = 0.0;
    int drawn = 0;
    for (int i = 0; i < c.n; i++) {
        upto += c.bytes[i];
        const int end = (int)lrint(BAR * upto / capacity);
        for (; drawn < end && drawn < 2 * BAR; drawn++)
            ech_text_add(out, "%s%c", drawn == BAR ? "|" : "", c.name[i][0] - 'a' + 'A');
    }
    for (; drawn < BAR; drawn++)
        ech_text_add(out, ".");
    ech_text_add(out, "%s", drawn > BAR ? "" : "|");
}

static void say_classes(const ech_footprint_stage *s, ech_text *out)
{
    for (int h = 0; h < ECH_N_USES; h++)
        if (s->held[h] > 0.0)
            ech_text_add(out, "  %-26s %9.3f GiB\n", ech_use_name((ech_use)h), s->held[h] / GIB);
}

static void say_stages(const ech_fit_answer *a, ech_text *out)
{
    const ech_footprint *f = &a->report->memory;
    const classes c = classes_of(f->stage[0].held);
    ech_text_add(out, "\nstages at their fullest moment (");
    for (int i = 0; i < c.n; i++)
        ech_text_add(out, "%s%c %s", i ? ", " : "", c.name[i][0] - 'a' + 'A', c.name[i]);
    ech_text_add(out, "):\n");
    for (int i = 0; i < f->n_stages; i++) {
        const ech_footprint_stage *s = &f->stage[i];
        ech_text_add(out, "  %3d ", i);
        draw_bar(s->held, a->report->capacity_bytes, out);
        ech_text_add(out, " %7.2f GiB, %s; %lld layers, %.4g micro-batches live\n",
                     s->peak[s->fullest] / GIB, ech_moment_name(s->fullest), (long long)s->layers,
                     s->live);
    }
    ech_text_add(out, "the fullest, stage %d:\n", f->fullest);
    say_classes(&f->stage[f->fullest], out);
}

static void say_peaks(const ech_fit_answer *a, ech_text *out)
{
    const ech_footprint *f = &a->report->memory;
    const double host = a->job->cluster->host_bytes;
    ech_text_add(out, "peaks, device:");
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        ech_text_add(out, "%s %s %.4g", m ? "," : "", ech_moment_name((ech_moment)m),
                     f->stage[f->fullest].peak[m] / GIB);
    ech_text_add(out, " GiB\npeaks, a node's host:");
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        ech_text_add(out, "%s %s %.4g", m ? "," : "", ech_moment_name((ech_moment)m),
                     f->host_peak[m] / GIB);
    ech_text_add(out, " GiB");
    if (host > 0.0)
        ech_text_add(out, " of %.4g", host / GIB);
    ech_text_add(out,
                 "\nof the device's bytes %.4g GiB stay whatever the number of data parallel "
                 "ranks\n",
                 a->report->fixed_bytes / GIB);
}

static void say_saving(const ech_fit_answer *a, ech_text *out)
{
    const ech_fit_saving *s = &a->report->saving;
    ech_text_add(out,
                 "checkpoint: %.4g GB (%.4g GiB), written in %.4g s at %.3g GB/s; every %.4g s "
                 "that costs %.2g %% if training stands, room for all kept: %.4g GB%s\n",
                 s->checkpoint_bytes / 1e9, s->checkpoint_bytes / GIB, s->save_s,
                 s->write_bytes_per_s / 1e9, s->interval_s, 100.0 * s->lost, s->room_bytes / 1e9,
                 s->has_room ? "" : ", which is not there");
}

static void say_cure(const ech_cure *c, ech_text *out)
{
    char saves[32];
    char costs[32];
    const bool is_host = c->saves_bytes <= 0.0 && c->saves_host_bytes > 0.0;
    ech_text_add(out, "  %-44s saves %s%s, %s%s\n      %s%s%s\n", c->change,
                 bytes_words(is_host ? c->saves_host_bytes : c->saves_bytes, saves, sizeof saves),
                 is_host ? " of host memory" : "", ratio_words(c->time_ratio, costs, sizeof costs),
                 c->fit == ECH_FIT_EDGE ? "; then on the edge" : "", c->gloss[0],
                 c->changes > 1 ? "; " : "", c->changes > 1 ? c->gloss[1] : "");
}

static void say_cures(const ech_fit_answer *a, ech_text *out)
{
    const ech_cures *c = &a->report->cures;
    if (!a->report->has_cures)
        return;
    ech_text_add(out, "\nwhat would help (%d changes and pairs tried):\n", c->tried);
    for (int i = 0; i < c->n; i++)
        say_cure(&c->cure[i], out);
    if (c->has_nearest) {
        ech_text_add(out, "  none of them is enough; nearest, at %.4g GiB:\n",
                     c->nearest.reserved_bytes / GIB);
        say_cure(&c->nearest, out);
    } else if (c->n == 0)
        ech_text_add(out, "  nothing that was tried: fewer parameters, or more GPUs\n");
}

void ech_fit_words(const ech_fit_answer *a, ech_text *out)
{
    ech_job_words(a->job, a->point, out);
    say_verdict(a, out);
    say_stages(a, out);
    say_peaks(a, out);
    say_saving(a, out);
    if (a->report->warnings.n)
        ech_text_add(out, "\nbeware:\n%s\n", ech_text_get(&a->report->warnings.text));
    say_cures(a, out);
}

/* --- JSON --- */

static void add_stages(const ech_footprint *f, ech_jout *j)
{
    ech_jout_open(j, "stages", '[');
    for (int i = 0; i < f->n_stages; i++) {
        const ech_footprint_stage *s = &f->stage[i];
        ech_jout_open(j, NULL, '{');
        ech_jout_int(j, "layers", s->layers);
        ech_jout_real(j, "params", s->params);
        ech_jout_real(j, "trained", s->trained);
        ech_jout_real(j, "live", s->live);
        ech_jout_string(j, "fullest", ech_moment_name(s->fullest));
        ech_held_members(j, "memory_bytes", s->held);
        ech_jout_open(j, "held_bytes", '{');
        for (int h = 0; h < ECH_N_USES; h++)
            ech_jout_real(j, ech_use_name((ech_use)h), s->held[h]);
        ech_jout_close(j);
        ech_jout_real(j, "host_bytes", s->host_bytes);
        ech_jout_real(j, "nvme_bytes", s->nvme_bytes);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

static void add_peaks(ech_jout *j, const char *key, const double *peak)
{
    ech_jout_open(j, key, '{');
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        ech_jout_real(j, ech_moment_name((ech_moment)m), peak[m]);
    ech_jout_close(j);
}

static void add_cure(const ech_cure *c, ech_jout *j)
{
    ech_jout_string(j, "change", c->change);
    ech_jout_real(j, "saves_bytes", c->saves_bytes);
    ech_jout_real(j, "time_ratio", c->time_ratio);
    ech_jout_real(j, "saves_host_bytes", c->saves_host_bytes);
    ech_jout_string(j, "fits", ech_fit_word(c->fit));
    ech_jout_string(j, "asks_for", ech_cure_cost_name(c->cost));
    ech_jout_real(j, "reserved_bytes", c->reserved_bytes);
}

static void add_cures(const ech_fit_report *r, ech_jout *j)
{
    ech_jout_open(j, "cures", '[');
    for (int i = 0; i < r->cures.n; i++) {
        ech_jout_open(j, NULL, '{');
        add_cure(&r->cures.cure[i], j);
        ech_jout_close(j);
    }
    ech_jout_close(j);
    if (!r->cures.has_nearest) {
        ech_jout_null(j, "nearest");
        return;
    }
    ech_jout_open(j, "nearest", '{');
    add_cure(&r->cures.nearest, j);
    ech_jout_close(j);
}

static void add_saving(const ech_fit_report *r, ech_jout *j)
{
    const ech_fit_saving *s = &r->saving;
    ech_jout_open(j, "saving", '{');
    ech_jout_real(j, "checkpoint_bytes", s->checkpoint_bytes);
    ech_jout_real(j, "write_bytes_per_s", s->write_bytes_per_s);
    ech_jout_real(j, "save_s", s->save_s);
    ech_jout_real(j, "interval_s", s->interval_s);
    ech_jout_real(j, "lost", s->lost);
    ech_jout_real(j, "room_bytes", s->room_bytes);
    ech_jout_bool(j, "has_room", s->has_room);
    ech_jout_close(j);
}

static void add_warnings(const ech_findings *w, ech_jout *j)
{
    char line[512];
    const char *at = ech_text_get(&w->text);
    ech_jout_open(j, "warnings", '[');
    while (*at) {
        const size_t n = strcspn(at, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)n, at);
        ech_jout_string(j, NULL, line);
        at += n + (at[n] == '\n');
    }
    ech_jout_close(j);
}

void ech_fit_members(const ech_fit_answer *a, ech_jout *j)
{
    const ech_fit_report *r = a->report;
    const ech_footprint *f = &r->memory;
    ech_jout_string(j, "fits", ech_fit_word(r->fit));
    ech_jout_string(j, "binding", r->binding);
    ech_jout_real(j, "capacity_bytes", r->capacity_bytes);
    ech_held_members(j, "memory_bytes", f->stage[f->fullest].held);
    ech_jout_real(j, "host_memory_bytes", f->host_node_bytes);
    add_stages(f, j);
    add_peaks(j, "peaks", f->stage[f->fullest].peak);
    add_cures(r, j);
    ech_jout_real(j, "reserved_bytes", f->reserved_bytes);
    ech_jout_real(j, "allocated_bytes", f->allocated_bytes);
    ech_jout_real(j, "worst_bytes", f->worst_bytes);
    ech_jout_real(j, "capped_bytes", r->capped_bytes > 0.0 ? r->capped_bytes : NAN);
    ech_jout_real(j, "fixed_bytes", r->fixed_bytes);
    ech_jout_real(j, "margin_bytes", r->margin_bytes);
    ech_jout_real(j, "uncertainty", f->uncertainty);
    ech_jout_bool(j, "exact", f->is_exact);
    ech_jout_string(j, "marked", f->marked);
    if (r->own.is_exact)
        ech_jout_prediction(j, "predicted", &r->own.predicted);
    ech_jout_real(j, "host_capacity_bytes",
                  a->job->cluster->host_bytes > 0.0 ? a->job->cluster->host_bytes : NAN);
    add_peaks(j, "host_peaks", f->host_peak);
    add_saving(r, j);
    add_warnings(&r->warnings, j);
}
