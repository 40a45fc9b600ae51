#include "price/derive.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A formatted string of its own; NULL where memory ran out. */
static char *format(const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *s = n < 0 ? NULL : malloc((size_t)n + 1);
    if (s)
        (void)vsnprintf(s, (size_t)n + 1, fmt, args);
    return s;
}

static char *copy(const char *s)
{
    const size_t n = strlen(s) + 1;
    char *to = malloc(n);
    return to ? memcpy(to, s, n) : NULL;
}

void ech_derive_section(ech_derivation *d, const char *title, ...)
{
    if (!d || d->failed)
        return;
    va_list args;
    va_start(args, title);
    char *words = format(title, args);
    va_end(args);
    char **section = realloc(d->section, ((size_t)d->n_sections + 1) * sizeof *d->section);
    if (section)
        d->section = section;
    if (!section || !words) {
        free(words);
        d->failed = true;
        return;
    }
    d->section[d->n_sections++] = words;
}

/* Room for one more line.  @return is there */
static bool grow(ech_derivation *d)
{
    if (d->n < d->capacity)
        return true;
    const int capacity = d->capacity ? 2 * d->capacity : 64;
    ech_derived *line = realloc(d->line, (size_t)capacity * sizeof *line);
    if (!line)
        return false;
    d->line = line;
    d->capacity = capacity;
    return true;
}

void ech_derive(ech_derivation *d, const char *what, double value, const char *unit,
                const char *source, const char *formula, ...)
{
    if (!d || d->failed)
        return;
    va_list args;
    va_start(args, formula);
    ech_derived line = {.section = d->n_sections - 1,
                        .what = copy(what),
                        .formula = format(formula, args),
                        .value = value,
                        .unit = unit,
                        .source = source};
    va_end(args);
    if (!line.what || !line.formula || !grow(d)) {
        free(line.what);
        free(line.formula);
        d->failed = true;
        return;
    }
    d->line[d->n++] = line;
}

void ech_quantity_print(double value, const char *unit, ech_text *out)
{
    static const struct {
        double of;
        const char *name;
    } scale[] = {{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    const bool scales = strcmp(unit, "B") == 0 || strcmp(unit, "FLOP") == 0 ||
                        strcmp(unit, "B/s") == 0 || strcmp(unit, "FLOP/s") == 0;
    if (strcmp(unit, "s") == 0 && value != 0.0 && fabs(value) < 1.0) {
        const bool is_micro = fabs(value) < 1e-3;
        ech_text_add(out, "%.4g %s", value * (is_micro ? 1e6 : 1e3), is_micro ? "us" : "ms");
        return;
    }
    for (size_t i = 0; scales && i < sizeof scale / sizeof scale[0]; i++)
        if (fabs(value) >= scale[i].of) {
            ech_text_add(out, "%.4g %s%s", value / scale[i].of, scale[i].name, unit);
            if (strcmp(unit, "B") == 0 && value >= 1048576.0 && value < 1e15)
                ech_text_add(out, value >= 1073741824.0 ? " (%.4g GiB)" : " (%.4g MiB)",
                             value / (value >= 1073741824.0 ? 1073741824.0 : 1048576.0));
            return;
        }
    ech_text_add(out, "%.6g%s%s", value, strcmp(unit, "1") == 0 ? "" : " ",
                 strcmp(unit, "1") == 0 ? "" : unit);
}

void ech_derivation_print(const ech_derivation *d, ech_text *out)
{
    int section = -1;
    for (int i = 0; i < d->n; i++) {
        const ech_derived *line = &d->line[i];
        if (line->section != section && line->section >= 0)
            ech_text_add(out, "%s%s\n", i ? "\n" : "", d->section[line->section]);
        section = line->section;
        ech_text_add(out, "  %s = %s%s", line->what, line->formula, line->formula[0] ? " = " : "");
        ech_quantity_print(line->value, line->unit, out);
        if (line->source && line->source[0])
            ech_text_add(out, "   [%s]", line->source);
        ech_text_add(out, "\n");
    }
    if (d->failed)
        ech_text_add(out, "  (cut short: out of memory)\n");
}

void ech_derivation_fini(ech_derivation *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n; i++) {
        free(d->line[i].what);
        free(d->line[i].formula);
    }
    for (int i = 0; i < d->n_sections; i++)
        free(d->section[i]);
    free(d->line);
    free(d->section);
    *d = (ech_derivation){0};
}
