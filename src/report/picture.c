#include "report/picture.h"
#include "base/io.h"
#include "base/text.h"
#include "report/picture_cells.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All in pixels. */
enum {
    WIDTH = 1000,
    LEFT = 62,
    RIGHT = 14,
    PLOT = WIDTH - LEFT - RIGHT,
    ROW = 24,
    BAR = 20,
    HEAD = 24, /* of a line of rows */
    TOP = 30,  /* the legend */
    AXIS = 40,
    NOTE = 16,
    DIGIT = 7
};

static const double FIRST_LEAST = 0.5; /* narrower is not drawn */

static const char STYLE[] =
    "<style>\n"
    "text{font:11px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}\n"
    ".bg{fill:#fff}.tick{stroke:#d0d7de}.hatch{stroke:#8c959f;stroke-width:1.4}\n"
    ".row{fill:#eef1f4}.soft{fill:#57606a}\n"
    ".f{fill:#56b4e9}.b{fill:#e69f00}.i{fill:#f2c75c}.w{fill:#3fb58b}.r{fill:#b2a7e0}\n"
    ".u{fill:#d58ab4}.o{fill:#aab4be}.q{fill:url(#hatch)}\n"
    ".f2{fill:#9fd3f3}.b2{fill:#f3c566}.i2{fill:#f8e2a8}.w2{fill:#8fd6bd}.r2{fill:#d3ccee}\n"
    ".u2{fill:#e8bcd5}.o2{fill:#cdd4da}\n"
    ".m{font-size:10px;text-anchor:middle;fill:#111}.t{text-anchor:middle}.e{text-anchor:end}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#0d1117}.tick{stroke:#3d444d}\n"
    ".hatch{stroke:#768390}.row{fill:#1b222b}.soft{fill:#9198a1}.m{fill:#111}}\n"
    "</style>\n"
    "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V5\"/></pattern></defs>\n";

/* A picture being drawn. */
typedef struct drawing {
    const ech_timeline *const *line;
    const char *const *name;
    int n;
    double span_s;  /* of the widest line */
    double least_s; /* narrower is not drawn */
    ech_text rows;
    ech_text text; /* the whole */
    ech_cell_row cells;
    bool has[ECH_N_PAINTS];
    bool has_odd_chunk;
    int y;
} drawing;

/* --- numbers --- */

/* x with so many decimals, zeros at its end left out; no locale's comma. */
static void add_fixed(ech_text *t, double x, int decimals)
{
    int64_t unit = 1;
    for (int i = 0; i < decimals; i++)
        unit *= 10;
    const int64_t all = llrint(fabs(x) * (double)unit);
    int64_t rest = all % unit;
    ech_text_add(t, "%s%lld", x < 0 && all ? "-" : "", (long long)(all / unit));
    while (rest && rest % 10 == 0) {
        rest /= 10;
        decimals--;
    }
    if (rest)
        ech_text_add(t, ".%0*lld", decimals, (long long)rest);
}

static void add_escaped(ech_text *t, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '&':
            ech_text_add(t, "&amp;");
            break;
        case '<':
            ech_text_add(t, "&lt;");
            break;
        case '>':
            ech_text_add(t, "&gt;");
            break;
        default:
            ech_text_add_bytes(t, s, 1);
        }
}

/* A unit in which a time has few digits. */
typedef struct time_unit {
    const char *name;
    double per_s;
} time_unit;

static time_unit unit_of(double s)
{
    if (s >= 1.0)
        return (time_unit){"s", 1.0};
    return s >= 1e-3 ? (time_unit){"ms", 1e3} : (time_unit){"\xc2\xb5s", 1e6};
}

/* --- rows --- */

static double x_of(const drawing *d, double s)
{
    return LEFT + PLOT * s / d->span_s;
}

static const char *letter_of(ech_paint p)
{
    static const char *const letter[] = {
#define ECH_PAINT_LETTER(name, letter, text) letter,
        ECH_PAINT_LIST(ECH_PAINT_LETTER)
#undef ECH_PAINT_LETTER
    };
    return letter[p];
}

static const char *name_of(ech_paint p)
{
    static const char *const name[] = {
#define ECH_PAINT_NAME(name, letter, text) text,
        ECH_PAINT_LIST(ECH_PAINT_NAME)
#undef ECH_PAINT_NAME
    };
    return name[p];
}

/* A little narrower than it is, so that neighbours of one colour are two. */
static void draw_cell(drawing *d, const ech_cell_box *c)
{
    const double x = x_of(d, c->begin_s);
    const double whole = x_of(d, c->end_s) - x;
    const double w = whole >= 3.0 ? whole - 0.6 : whole;
    const bool is_odd = c->chunk > 0 && c->chunk % 2;
    char micro[16] = "";
    ech_text *t = &d->rows;
    d->has[c->paint] = true;
    d->has_odd_chunk |= is_odd;
    ech_text_add(t, "<rect class=\"%s%s\" x=\"", letter_of(c->paint), is_odd ? "2" : "");
    add_fixed(t, x, 1);
    ech_text_add(t, "\" y=\"%d\" width=\"", d->y);
    add_fixed(t, w, 1);
    ech_text_add(t, "\" height=\"%d\"/>\n", BAR);
    if (c->micro >= 0)
        (void)snprintf(micro, sizeof micro, "%d", c->micro);
    if (!micro[0] || w < DIGIT * (double)strlen(micro) + 2)
        return;
    ech_text_add(t, "<text class=\"m\" x=\"");
    add_fixed(t, x + 0.5 * w, 1);
    ech_text_add(t, "\" y=\"%d\">%s</text>\n", d->y + BAR - 6, micro);
}

static ech_status draw_rank(drawing *d, int index, int rank)
{
    ech_text *t = &d->rows;
    ECH_TRY(ech_picture_cells(d->line[index], rank, d->least_s, &d->cells));
    ech_text_add(t, "<g id=\"line%d-rank%d\">\n", index, rank);
    ech_text_add(t, "<text class=\"e\" x=\"%d\" y=\"%d\">rank %d</text>\n", LEFT - 6,
                 d->y + BAR - 6, rank);
    ech_text_add(t, "<path class=\"row\" d=\"M%d %dH", LEFT, d->y);
    add_fixed(t, x_of(d, d->line[index]->step_s), 1);
    ech_text_add(t, "v%dH%dz\"/>\n", BAR, LEFT);
    for (size_t i = 0; i < d->cells.n; i++)
        draw_cell(d, &d->cells.cell[i]);
    ech_text_add(t, "</g>\n");
    d->y += ROW;
    return ECH_OK;
}

/* Share of all ranks' time that is spent at waits. */
static double wait_share(const ech_timeline *l)
{
    double sum = 0.0;
    for (size_t i = 0; i < l->n; i++)
        if (l->bar[i].lane == ECH_LANE_WAIT)
            sum += l->bar[i].end_s - l->bar[i].begin_s;
    return l->step_s > 0.0 ? sum / (l->step_s * l->world) : 0.0;
}

static void draw_head(drawing *d, int index, int drawn)
{
    const ech_timeline *l = d->line[index];
    const time_unit u = unit_of(l->step_s);
    ech_text *t = &d->rows;
    ech_text_add(t, "<text x=\"%d\" y=\"%d\">", LEFT, d->y + HEAD - 8);
    add_escaped(t, d->name[index]);
    ech_text_add(t, ": a step of ");
    add_fixed(t, l->step_s * u.per_s, 2);
    ech_text_add(t, " %s on %d rank%s", u.name, l->world, l->world == 1 ? "" : "s");
    if (drawn < l->world)
        ech_text_add(t, " (drawn: %d, the first on every axis but pp)", drawn);
    ech_text_add(t, "; waits: ");
    add_fixed(t, 100.0 * wait_share(l), 1);
    ech_text_add(t, " %% of their time</text>\n");
    d->y += HEAD;
}

static ech_status draw_line(drawing *d, int index)
{
    const ech_timeline *l = d->line[index];
    int drawn = 0;
    for (int r = 0; r < l->world; r++)
        drawn += ech_picture_is_drawn(l, r);
    draw_head(d, index, drawn);
    for (int r = 0; r < l->world; r++)
        if (ech_picture_is_drawn(l, r))
            ECH_TRY(draw_rank(d, index, r));
    return ECH_OK;
}

/* --- around them --- */

static void draw_axis(drawing *d, int top)
{
    const time_unit u = unit_of(d->span_s);
    int decimals;
    const double step = ech_picture_tick(d->span_s * u.per_s, &decimals);
    ech_text *t = &d->text;
    for (int k = 0; k * step <= d->span_s * u.per_s * (1.0 + 1e-9); k++) {
        ech_text_add(t, "<path class=\"tick\" d=\"M");
        add_fixed(t, x_of(d, k * step / u.per_s), 1);
        ech_text_add(t, " %dV%d\"/><text class=\"t\" x=\"", top, d->y + 4);
        add_fixed(t, x_of(d, k * step / u.per_s), 1);
        ech_text_add(t, "\" y=\"%d\">", d->y + 16);
        add_fixed(t, k * step, decimals);
        ech_text_add(t, "</text>\n");
    }
    ech_text_add(t, "<text class=\"t\" x=\"%d\" y=\"%d\">time (%s)</text>\n", LEFT + PLOT / 2,
                 d->y + 31, u.name);
}

static void draw_legend(drawing *d)
{
    int x = LEFT;
    ech_text *t = &d->text;
    for (int p = 0; p < ECH_N_PAINTS; p++) {
        if (!d->has[p])
            continue;
        const char *name = name_of((ech_paint)p);
        ech_text_add(t,
                     "<rect class=\"%s\" x=\"%d\" y=\"12\" width=\"14\" height=\"12\"/>"
                     "<text x=\"%d\" y=\"22\">%s</text>\n",
                     letter_of((ech_paint)p), x, x + 19, name);
        x += 19 + DIGIT * (int)strlen(name) + 12;
    }
    ech_text_add(t, "<text class=\"soft\" x=\"%d\" y=\"22\">numbers: micro-batches%s</text>\n", x,
                 d->has_odd_chunk ? "; paler: every other chunk" : "");
}

static void draw_notes(drawing *d)
{
    int y = d->y + AXIS + 10;
    for (int i = 0; i < d->n; i++) {
        if (!d->line[i]->note[0])
            continue;
        ech_text_add(&d->text, "<text class=\"soft\" x=\"%d\" y=\"%d\">", LEFT, y);
        add_escaped(&d->text, d->name[i]);
        ech_text_add(&d->text, ": ");
        add_escaped(&d->text, d->line[i]->note);
        if (d->line[i]->lost)
            ech_text_add(&d->text, "; %zu bars are missing", d->line[i]->lost);
        ech_text_add(&d->text, "</text>\n");
        y += NOTE;
    }
}

static ech_status draw(drawing *d)
{
    const int height_below = AXIS + NOTE * d->n + 8;
    ech_text *t = &d->text;
    d->rows.bytes = t->bytes = 0;
    d->y = TOP;
    for (int i = 0; i < d->n; i++)
        ECH_TRY(draw_line(d, i));
    ech_text_add(
        t,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>Time line of a training step</title>\n",
        WIDTH, d->y + height_below, WIDTH, d->y + height_below);
    ech_text_add(t, "%s", STYLE);
    ech_text_add(t, "<path class=\"bg\" d=\"M0 0H%dV%dH0z\"/>\n", WIDTH, d->y + height_below);
    draw_legend(d);
    draw_axis(d, TOP + HEAD - 4);
    ech_text_add_bytes(t, ech_text_get(&d->rows), d->rows.bytes);
    draw_notes(d);
    ech_text_add(t, "</svg>\n");
    ECH_CHECK(!t->failed && !d->rows.failed, ECH_E_NOMEM, "no memory for a picture");
    return ECH_OK;
}

/* Coarser until it is small enough; at a cell a plot's width it is. */
static ech_status draw_small(drawing *d)
{
    d->least_s = FIRST_LEAST * d->span_s / PLOT;
    ECH_TRY(draw(d));
    while (d->text.bytes > ECH_PICTURE_BYTES && d->least_s < d->span_s) {
        d->least_s *= 1.5;
        memset(d->has, 0, sizeof d->has);
        d->has_odd_chunk = false;
        ECH_TRY(draw(d));
    }
    return ECH_OK;
}

ech_status ech_picture_write(const ech_timeline *const *line, const char *const *name, int n,
                             const char *path)
{
    drawing d = {.line = line, .name = name, .n = n, .span_s = 1e-9};
    for (int i = 0; i < n; i++)
        d.span_s = line[i]->step_s > d.span_s ? line[i]->step_s : d.span_s;
    ech_status st = draw_small(&d);
    if (st >= 0)
        st = ech_write_whole(path, ech_text_get(&d.text), d.text.bytes);
    ech_text_fini(&d.text);
    ech_text_fini(&d.rows);
    free(d.cells.cell);
    return st;
}
