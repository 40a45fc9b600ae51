/* The time line of the winner: a row for each pipeline rank, begin and end of the step where the
 * whole has too many cells. */
#include "report/picture.h"
#include "report/picture_cells.h"
#include "report/plan_page_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_BARS = 7000,   /* that are drawn */
    WIDTH = 5000,       /* units of a row */
    NUMBERED_ROWS = 16, /* with more of them no micro-batches are written */
    DIGIT = 90,
    ROOM = 50 /* units of a digit at the least width of the drawing, and around it */
};

static const double GAP = 0.03; /* share of the width between begin and end */

/* What is drawn: [0, until_s] and [from_s, end_s], one piece where they meet. */
typedef struct window {
    double until_s, from_s, end_s;
    bool is_whole;
} window;

/* --- what is drawn --- */

static size_t bars_in(const ech_timeline *l, double until_s, double from_s)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += l->bar[i].lane == ECH_LANE_COMPUTE && ech_picture_is_drawn(l, l->bar[i].rank) &&
             (l->bar[i].begin_s < until_s || l->bar[i].end_s > from_s);
    return n;
}

/* As much of begin and end, of equal length, as there is room for. */
static window choose(const ech_timeline *l)
{
    enum { HALVINGS = 20 };
    const double end = l->step_s;
    double low = 0.0;
    double high = 0.5 * end;
    if (bars_in(l, high, high) <= MOST_BARS)
        return (window){end, end, end, true};
    for (int i = 0; i < HALVINGS; i++) {
        const double mid = 0.5 * (low + high);
        *(bars_in(l, mid, end - mid) <= MOST_BARS ? &low : &high) = mid;
    }
    return (window){low, end - low, end, false};
}

static double share_of(const window *w, double s)
{
    if (w->is_whole)
        return s / w->end_s;
    const double side = 0.5 * (1.0 - GAP);
    return s <= w->until_s ? side * s / w->until_s
                           : 1.0 - side * (w->end_s - s) / (w->end_s - w->from_s);
}

/* The piece of a cell that is drawn.  @return is there one */
static bool clip(const window *w, ech_cell_box *c)
{
    if (w->is_whole)
        return true;
    if (c->begin_s < w->until_s)
        c->end_s = fmin(c->end_s, w->until_s);
    else if (c->end_s > w->from_s)
        c->begin_s = fmax(c->begin_s, w->from_s);
    else
        return false;
    return true;
}

/* --- rows --- */

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

/* All cells of one look as one line as thick as the row, each a little shorter than it is, so that
 * neighbours are two. */
static void add_path(ech_page *p, const window *w, const ech_cell_row *row, ech_paint paint,
                     bool is_odd)
{
    bool is_open = false;
    long long at = 0; /* where the line has got to */
    for (size_t i = 0; i < row->n; i++) {
        ech_cell_box c = row->cell[i];
        if (c.paint != paint || (c.chunk > 0 && c.chunk % 2) != is_odd || !clip(w, &c))
            continue;
        const long long x = llrint(WIDTH * share_of(w, c.begin_s));
        const long long whole = llrint(WIDTH * share_of(w, c.end_s)) - x;
        const long long wide = whole > 12 ? whole - 4 : whole > 1 ? whole - 1 : 1;
        if (!is_open)
            ech_text_add(p->out, "<path class=\"p%s%s\" d=\"M0 0", letter_of(paint),
                         is_odd ? "2" : "");
        is_open = true;
        ech_text_add(p->out, "m%lld 0h%lld", x - at, wide);
        at = x + wide;
    }
    if (is_open)
        ech_text_add(p->out, "\"/>");
}

static void add_numbers(ech_page *p, const window *w, const ech_cell_row *row, int y)
{
    for (size_t i = 0; i < row->n; i++) {
        ech_cell_box c = row->cell[i];
        char micro[16];
        if (c.micro < 0 || c.paint == ECH_PAINT_WAIT || !clip(w, &c))
            continue;
        const double from = share_of(w, c.begin_s);
        const double to = share_of(w, c.end_s);
        (void)snprintf(micro, sizeof micro, "%d", c.micro);
        if (WIDTH * (to - from) < DIGIT * (double)strlen(micro) + ROOM)
            continue;
        ech_text_add(p->out, "<text x=\"");
        ech_page_percent(p->out, 0.5 * (from + to));
        ech_text_add(p->out, "\" y=\"%d\">%s</text>", y, micro);
    }
}

/* Sizes of a drawing, in pixels. */
typedef struct sizes {
    int rows, row, bar;
} sizes;

static sizes sizes_of(const ech_timeline *l)
{
    int rows = 0;
    for (int r = 0; r < l->world; r++)
        rows += ech_picture_is_drawn(l, r);
    return rows > NUMBERED_ROWS ? (sizes){rows, 13, 11} : (sizes){rows, 22, 18};
}

static ech_status add_row(ech_page *p, const window *w, const sizes *z, int rank, int index)
{
    const double least_s = (w->is_whole ? w->end_s : 2.0 * w->until_s) / WIDTH;
    const int y = index * z->row;
    ech_cell_row row = {0};
    const ech_status st = ech_picture_cells(p->line, rank, least_s, &row);
    if (st >= 0) {
        ech_text_add(p->out,
                     "<text class=\"e\" x=\"-6\" y=\"%d\">%d</text><svg y=\"%d\" width=\"100%%\" "
                     "height=\"%d\" viewBox=\"0 -.5 %d 1\" preserveAspectRatio=\"none\">"
                     "<rect class=\"track\" y=\"-.5\" width=\"%d\" height=\"1\"/>",
                     y + z->bar - 3, rank, y, z->bar, WIDTH, WIDTH);
        for (int paint = 0; paint < ECH_PAINT_WAIT; paint++)
            for (int odd = 0; odd < 2; odd++)
                add_path(p, w, &row, (ech_paint)paint, odd);
        ech_text_add(p->out, "</svg>");
        if (z->rows <= NUMBERED_ROWS)
            add_numbers(p, w, &row, y + z->bar - 5);
        ech_text_add(p->out, "\n");
    }
    free(row.cell);
    return st;
}

/* --- around them --- */

/* Ticks of [from, to]. */
static void add_ticks(ech_page *p, const window *w, double from, double to, int height)
{
    int decimals;
    const double shown = w->is_whole ? to - from : 2.0 * (to - from);
    const bool is_ms = w->end_s < 1.0;
    const double unit = is_ms ? 1e-3 : 1.0;
    const double step = ech_picture_tick(shown / unit, &decimals);
    for (double k = fmax(0.0, ceil(from / unit / step - 1e-9));
         k * step * unit <= to * (1.0 + 1e-9); k++) {
        ech_text_add(p->out, "<text class=\"a\" x=\"");
        ech_page_percent(p->out, share_of(w, fmin(k * step * unit, w->end_s)));
        ech_text_add(p->out, "\" y=\"%d\">%.*f</text>", height + 14, decimals, k * step);
    }
}

static void add_gap(ech_page *p, const window *w, int height)
{
    if (w->is_whole)
        return;
    ech_text_add(p->out, "<rect class=\"gap\" x=\"");
    ech_page_percent(p->out, 0.5 - 0.5 * GAP);
    ech_text_add(p->out, "\" width=\"");
    ech_page_percent(p->out, GAP);
    ech_text_add(p->out,
                 "\" height=\"%d\"/><text class=\"g\" x=\"50%%\" y=\"%d\">\xe2\x80\xa6"
                 "</text>\n",
                 height, height / 2 + 4);
}

static ech_status add_drawing(ech_page *p, const window *w)
{
    const ech_timeline *l = p->line;
    const sizes z = sizes_of(l);
    const int height = z.rows * z.row;
    ech_text_add(p->out,
                 "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Time line\">"
                 "<svg class=\"line\" height=\"%d\" role=\"img\" aria-label=\"Time line of a "
                 "step on %d pipeline ranks; the table below has the numbers\">\n",
                 height + 34, z.rows);
    for (int r = 0, n = 0; r < l->world; r++)
        if (ech_picture_is_drawn(l, r))
            ECH_TRY(add_row(p, w, &z, r, n++));
    add_gap(p, w, height);
    add_ticks(p, w, 0.0, w->until_s, height);
    if (!w->is_whole)
        add_ticks(p, w, w->from_s, w->end_s, height);
    ech_text_add(p->out, "<text class=\"a\" x=\"50%%\" y=\"%d\">time in %s</text></svg></div>\n",
                 height + 30, w->end_s < 1.0 ? "ms" : "s");
    return ECH_OK;
}

static void add_legend(ech_page *p)
{
    const ech_timeline *l = p->line;
    bool has[ECH_N_PAINTS] = {false};
    bool has_odd = false;
    ech_cell_row row = {0};
    if (ech_picture_cells(l, 0, l->step_s / WIDTH, &row) < 0)
        p->out->failed = true;
    for (size_t i = 0; i < row.n; i++) {
        has[row.cell[i].paint] = true;
        has_odd |= row.cell[i].chunk > 0 && row.cell[i].chunk % 2;
    }
    free(row.cell);
    ech_text_add(p->out, "<ul class=\"legend\">");
    for (int i = 0; i < ECH_PAINT_WAIT; i++)
        if (has[i])
            ech_text_add(p->out, "<li><span class=\"sw p%s\"></span>%s</li>",
                         letter_of((ech_paint)i), name_of((ech_paint)i));
    ech_text_add(p->out,
                 "<li><span class=\"sw track\"></span>waits</li></ul>\n<p class=\"soft\">"
                 "A row a pipeline rank; numbers are micro-batches%s.</p>\n",
                 has_odd ? ", paler are every other of a rank's virtual stages" : "");
}

static void add_rank(ech_page *p, int rank)
{
    double busy_s = 0.0;
    for (size_t i = 0; i < p->line->n; i++)
        if (p->line->bar[i].rank == rank && p->line->bar[i].lane == ECH_LANE_COMPUTE)
            busy_s += p->line->bar[i].end_s - p->line->bar[i].begin_s;
    ech_text_add(p->out, "<tr><th scope=\"row\">%d</th>", rank);
    ech_page_cell(p->out, busy_s, ECH_PAGE_SECONDS);
    ech_page_cell(p->out, p->line->step_s - busy_s, ECH_PAGE_SECONDS);
    ech_page_cell(p->out, busy_s / p->line->step_s, ECH_PAGE_SHARE);
    ech_text_add(p->out, "</tr>\n");
}

static void add_ranks(ech_page *p)
{
    ech_text_add(p->out,
                 "<details><summary>Numbers of every rank</summary>\n<table id=\"line\">"
                 "<thead><tr><th scope=\"col\">rank</th><th scope=\"col\">works</th>"
                 "<th scope=\"col\">waits</th><th scope=\"col\">works, share</th></tr></thead>"
                 "<tbody>\n");
    for (int r = 0; r < p->line->world; r++)
        if (ech_picture_is_drawn(p->line, r))
            add_rank(p, r);
    ech_text_add(p->out, "</tbody></table></details>\n");
}

ech_status ech_page_add_line(ech_page *p)
{
    if (!p->line)
        return ECH_OK;
    const window w = choose(p->line);
    ech_text_add(p->out, "<section aria-labelledby=\"h-line\">\n"
                         "<h2 id=\"h-line\">The step as it runs</h2>\n");
    add_legend(p);
    ECH_TRY(add_drawing(p, &w));
    if (!w.is_whole) {
        ech_text_add(p->out, "<p class=\"soft\">Begin and end of the step; what lies between, ");
        ech_page_words(p->out, w.from_s - w.until_s, ECH_PAGE_SECONDS);
        ech_text_add(p->out, ", goes on alike and is not drawn.</p>\n");
    }
    add_ranks(p);
    ech_text_add(p->out, "</section>\n");
    return ECH_OK;
}
