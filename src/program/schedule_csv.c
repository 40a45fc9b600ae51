/* Tables in files: one line a pipeline rank, cells between commas. */
#include "program/schedule_private.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table that is being read; capacities of its lists. */
typedef struct reader {
    ech_schedule *s;
    ech_schedule_faults faults;
    size_t work_capacity, first_capacity, line_capacity;
    int cells;
} reader;

/* A piece of the text. */
typedef struct span {
    const char *data;
    size_t n;
} span;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static span trim(span t)
{
    while (t.n > 0 && is_blank(t.data[0]))
        t = (span){t.data + 1, t.n - 1};
    while (t.n > 0 && is_blank(t.data[t.n - 1]))
        t.n--;
    return t;
}

/* Cut what stands before the first `c` off *rest (all of it where there is none); false: it was the
 * last piece. */
static bool cut(span *rest, char c, span *piece)
{
    const char *at = rest->n ? memchr(rest->data, c, rest->n) : NULL;
    if (!at) {
        *piece = *rest;
        *rest = (span){NULL, 0};
        return false;
    }
    piece->data = rest->data;
    piece->n = (size_t)(at - rest->data);
    *rest = (span){at + 1, rest->n - piece->n - 1};
    return true;
}

/* Digits at *t, which moves behind them; more than an int holds are INT_MAX.  False: none. */
static bool read_number(span *t, int *out)
{
    int64_t x = 0;
    const size_t n = t->n;
    while (t->n > 0 && t->data[0] >= '0' && t->data[0] <= '9') {
        if (x < INT_MAX)
            x = 10 * x + (t->data[0] - '0');
        *t = (span){t->data + 1, t->n - 1};
    }
    *out = x < INT_MAX ? (int)x : INT_MAX;
    return t->n < n;
}

static bool read_cell(span t, ech_work *w)
{
    static const char letters[] = "FBIW";
    if (!read_number(&t, &w->stage) || t.n == 0)
        return false;
    const char *letter = memchr(letters, t.data[0], sizeof letters - 1);
    if (!letter)
        return false;
    w->kind = (ech_work_kind)(letter - letters);
    t = (span){t.data + 1, t.n - 1};
    return read_number(&t, &w->micro) && t.n == 0;
}

/* A cell's own words, short and printable. */
static const char *show(span t, char *buf, size_t n)
{
    size_t k = 0;
    for (; k < t.n && k + 1 < n; k++)
        buf[k] = t.data[k] >= ' ' && t.data[k] <= '~' ? t.data[k] : '?';
    buf[k] = '\0';
    return buf;
}

static ech_status add_cell(reader *rd, span text, int line, int column)
{
    ech_work w = {.column = column};
    char words[24];
    if (!read_cell(text, &w)) {
        if (ech_schedule_fault(&rd->faults))
            ech_findings_add(&rd->faults.findings,
                             "%s:%d:%d: '%s'%s is no cell; wanted <stage><F|B|I|W><micro-batch>, "
                             "such as 3B12, or nothing",
                             rd->s->name, line, column, show(text, words, sizeof words),
                             text.n >= sizeof words ? " ..." : "");
        return ECH_OK;
    }
    ECH_TRY(ech_grow(&rd->s->work, (size_t)rd->cells, &rd->work_capacity, sizeof w));
    rd->s->work[rd->cells++] = w;
    return ECH_OK;
}

/* A line of cells: one more rank. */
static ech_status add_rank(reader *rd, span text, int line)
{
    ech_schedule *s = rd->s;
    const int before = rd->cells;
    const int64_t faults = rd->faults.n;
    int column = 0;
    span piece;
    bool more;
    ECH_TRY(ech_grow(&s->line, (size_t)s->ranks, &rd->line_capacity, sizeof *s->line));
    ECH_TRY(ech_grow(&s->first, (size_t)s->ranks + 1, &rd->first_capacity, sizeof *s->first));
    do {
        more = cut(&text, ',', &piece);
        piece = trim(piece);
        column++;
        if (piece.n > 0)
            ECH_TRY(add_cell(rd, piece, line, column));
    } while (more);
    if (rd->cells == before && rd->faults.n == faults && ech_schedule_fault(&rd->faults))
        ech_findings_add(&rd->faults.findings, "%s:%d: pipeline rank %d does nothing", s->name,
                         line, s->ranks);
    s->line[s->ranks++] = line;
    s->first[s->ranks] = rd->cells;
    return ECH_OK;
}

static ech_status read_lines(reader *rd, span text)
{
    span line;
    bool more;
    ECH_TRY(ech_grow(&rd->s->first, 0, &rd->first_capacity, sizeof *rd->s->first));
    rd->s->first[0] = 0;
    if (text.n >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0) /* a byte order mark */
        text = (span){text.data + 3, text.n - 3};
    for (int k = 1;; k++) {
        more = cut(&text, '\n', &line);
        line = trim(line);
        if (line.n > 0 && line.data[0] != '#')
            ECH_TRY(add_rank(rd, line, k));
        if (!more)
            return ECH_OK;
    }
}

/* Numbers count from 0 without gaps, so none is as high as the number of cells: what is read takes
 * memory in proportion to the file. */
static void check_numbers(reader *rd)
{
    const ech_schedule *s = rd->s;
    for (int i = 0; i < rd->cells; i++) {
        const ech_work *w = &s->work[i];
        const bool is_stage = w->stage >= rd->cells;
        const int rank = ech_schedule_rank_at(s, i);
        if ((is_stage || w->micro >= rd->cells) && ech_schedule_fault(&rd->faults))
            ech_findings_add(&rd->faults.findings,
                             "%s:%d:%d: %s %d%s in a table of %d cells: numbers count from 0 "
                             "without gaps",
                             s->name, s->line[rank], w->column, is_stage ? "stage" : "micro-batch",
                             is_stage ? w->stage : w->micro,
                             (is_stage ? w->stage : w->micro) == INT_MAX ? " or more" : "",
                             rd->cells);
    }
}

/* Numbers of stages and micro-batches, and the rank of each stage: the first that has it. */
static ech_status find_stages(ech_schedule *s)
{
    int stage = 0;
    int micro = 0;
    for (int i = 0; i < s->first[s->ranks]; i++) {
        const ech_work *w = &s->work[i];
        stage = w->stage > stage ? w->stage : stage;
        micro = w->micro > micro ? w->micro : micro;
        s->is_split |= w->kind == ECH_WORK_INPUT || w->kind == ECH_WORK_WEIGHT;
    }
    s->stages = stage + 1;
    s->micros = micro + 1;
    ECH_TRY(ech_calloc((size_t)s->stages, sizeof *s->rank_of, &s->rank_of));
    for (int k = 0; k < s->stages; k++)
        s->rank_of[k] = -1;
    for (int r = 0; r < s->ranks; r++)
        for (int i = s->first[r]; i < s->first[r + 1]; i++)
            if (s->rank_of[s->work[i].stage] < 0)
                s->rank_of[s->work[i].stage] = r;
    return ECH_OK;
}

ech_status ech_schedule_read(const char *text, size_t n, const char *name, ech_schedule *out)
{
    ech_schedule s = {0};
    reader rd = {.s = &s};
    ech_status st;
    ECH_CHECK(n <= INT_MAX, ECH_E_CONFIG, "%s: %zu bytes are no schedule", name, n);
    (void)snprintf(s.name, sizeof s.name, "%s", name);
    rd.faults.name = s.name;
    ECH_TRY_GOTO(st, read_lines(&rd, (span){text, n}), fail);
    check_numbers(&rd);
    if (rd.cells == 0 && rd.faults.n == 0 && ech_schedule_fault(&rd.faults))
        ech_findings_add(&rd.faults.findings, "%s: the table has no cell", s.name);
    ECH_TRY_GOTO(st, ech_schedule_raise(&rd.faults), fail);
    ECH_TRY_GOTO(st, find_stages(&s), fail);
    ECH_TRY_GOTO(st, ech_schedule_check(&s), fail);
    *out = s;
    return ECH_OK;
fail:
    ech_findings_fini(&rd.faults.findings);
    ech_schedule_fini(&s);
    return st;
}

ech_status ech_schedule_write(const ech_schedule *s, ech_text *out)
{
    static const ech_schedule_costs unit = {.of = {1, 1, 1, 1}};
    const size_t cells = (size_t)s->first[s->ranks];
    double *begin = NULL;
    double *end = NULL;
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc(cells, sizeof *begin, &begin), done);
    ECH_TRY_GOTO(st, ech_calloc(cells, sizeof *end, &end), done);
    (void)ech_schedule_times(s, &unit, begin, end, &st);
    if (st < 0)
        goto done;
    for (int r = 0; r < s->ranks; r++) {
        int64_t column = 0;
        for (int i = s->first[r]; i < s->first[r + 1]; i++) {
            char cell[40];
            for (; column < (int64_t)begin[i]; column++)
                ech_text_add_bytes(out, ",", 1);
            ech_work_format(&s->work[i], cell, sizeof cell);
            ech_text_add_bytes(out, cell, strlen(cell));
        }
        ech_text_add_bytes(out, "\n", 1);
    }
    if (out->failed)
        st = ECH_RAISE(ECH_E_NOMEM, "no memory to write schedule %s", s->name);
done:
    free(begin);
    free(end);
    return st;
}
