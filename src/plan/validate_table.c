/* Comma-separated values with names in the first line. */
#include "base/checked.h"
#include "plan/validate_private.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 128 };

static const struct {
    const char *name;
    bool must;
} columns[] = {
#define COLUMN_ROW(id, text, is_must) [id] = {text, is_must},
    ECH_COLUMN_LIST(COLUMN_ROW)
#undef COLUMN_ROW
};

const char *ech_column_name(ech_column c)
{
    return columns[c].name;
}

/* Where reading stands.  Cells are unquoted in place: `to` never overtakes `at`. */
typedef struct reader {
    char *at;
    const char *path;
    int line, place; /* of *at, from 1 */
} reader;

/* The cells of one line. */
typedef struct line_cells {
    int line, n;
    char *cell[MAX_CELLS];
    int place[MAX_CELLS];
} line_cells;

static char take(reader *r)
{
    const char c = *r->at++;
    r->place++;
    if (c == '\n') {
        r->line++;
        r->place = 1;
    }
    return c;
}

/* A cell in quotes, its opening one taken: unquoted to *to. */
static ech_status take_quoted(reader *r, char **to)
{
    const int line = r->line, place = r->place - 1;
    for (;;) {
        ECH_CHECK(*r->at, ECH_E_PARSE, "%s:%d:%d: a quote begins here and does not end", r->path,
                  line, place);
        const char c = take(r);
        if (c == '"' && *r->at != '"')
            return ECH_OK;
        if (c == '"')
            (void)take(r); /* a doubled quote is one */
        *(*to)++ = c;
    }
}

/* One cell, up to the comma or line's end behind it, which is left to take. */
static ech_status take_cell(reader *r, line_cells *out)
{
    ECH_CHECK(out->n < MAX_CELLS, ECH_E_PARSE, "%s:%d:%d: more than %d cells in a line", r->path,
              r->line, r->place, MAX_CELLS);
    char *to = r->at;
    out->cell[out->n] = to;
    out->place[out->n++] = r->place;
    const bool is_quoted = *r->at == '"';
    if (is_quoted) {
        (void)take(r);
        ECH_TRY(take_quoted(r, &to));
        ECH_CHECK(strchr(",\r\n", *r->at), ECH_E_PARSE,
                  "%s:%d:%d: after a cell in quotes stands a comma or the line's end", r->path,
                  r->line, r->place);
    } else {
        const size_t n = strcspn(r->at, ",\r\n");
        r->at += n;
        r->place += (int)n;
        to = r->at;
    }
    /* The end is written when the separator was read: it may stand in the same byte. */
    const char separator = *r->at;
    if (separator == '\r') {
        (void)take(r);
        ECH_CHECK(*r->at == '\n' || *r->at == '\0', ECH_E_PARSE,
                  "%s:%d:%d: a carriage return within a line", r->path, r->line, r->place);
    }
    const bool is_last = *r->at != ',';
    if (*r->at)
        (void)take(r);
    *to = '\0';
    return is_last ? ECH_DONE : ECH_OK;
}

static ech_status take_line(reader *r, line_cells *out)
{
    out->line = r->line;
    out->n = 0;
    for (;;) {
        const ech_status st = take_cell(r, out);
        if (st != ECH_OK)
            return st == ECH_DONE ? ECH_OK : ech_error_trace(st, __FILE__, __LINE__);
    }
}

/* Which cell holds a column, -1: none; one that is missing or twice there is a finding. */
static void find_columns(const line_cells *head, const char *path, int where[ECH_N_COLUMNS],
                         ech_findings *findings)
{
    for (int c = 0; c < ECH_N_COLUMNS; c++) {
        where[c] = -1;
        for (int i = 0; i < head->n; i++) {
            if (strcmp(head->cell[i], columns[c].name) != 0)
                continue;
            if (where[c] >= 0)
                ech_findings_add(findings, "%s:1:%d: a second column '%s'", path, head->place[i],
                                 columns[c].name);
            where[c] = i;
        }
        if (where[c] >= 0 || !columns[c].must)
            continue;
        const char *near =
            ech_nearest_name(columns[c].name, (const char *const *)head->cell, (size_t)head->n);
        ech_findings_add(findings, "%s:1: no column '%s'%s%s%s", path, columns[c].name,
                         near ? " (there is '" : "", near ? near : "", near ? "')" : "");
    }
}

static ech_status add_row(ech_table *t, size_t *capacity, const line_cells *line,
                          const int where[ECH_N_COLUMNS])
{
    ECH_TRY(ech_grow(&t->row, t->n, capacity, sizeof *t->row));
    ech_table_row *row = &t->row[t->n++];
    row->line = line->line;
    for (int c = 0; c < ECH_N_COLUMNS; c++) {
        row->cell[c] = where[c] >= 0 ? line->cell[where[c]] : "";
        row->place[c] = where[c] >= 0 ? line->place[where[c]] : 0;
    }
    return ECH_OK;
}

static ech_status read_rows(ech_table *t, reader *r)
{
    line_cells head, line;
    int where[ECH_N_COLUMNS];
    size_t capacity = 0;
    ech_findings findings = {0};
    ECH_CHECK(*r->at, ECH_E_PARSE,
              "%s: empty; wanted a table with the names of its columns in the "
              "first line",
              t->path);
    ECH_TRY(take_line(r, &head));
    find_columns(&head, t->path, where, &findings);
    const ech_status st = ech_findings_raise(&findings, ECH_E_CONFIG);
    ech_findings_fini(&findings);
    ECH_TRY(st);
    while (*r->at) {
        ECH_TRY(take_line(r, &line));
        if (line.n == 1 && !line.cell[0][0])
            continue; /* an empty line */
        ECH_CHECK(line.n == head.n, ECH_E_PARSE, "%s:%d: %d cells where the first line has %d",
                  t->path, line.line, line.n, head.n);
        ECH_TRY(add_row(t, &capacity, &line, where));
    }
    return ECH_OK;
}

ech_status ech_table_parse(const char *text, size_t bytes, const char *name, ech_table *out)
{
    ech_table t = {.path = name};
    ECH_CHECK(bytes == 0 || memchr(text, '\0', bytes) == NULL, ECH_E_PARSE,
              "%s: holds zero bytes; it is no text", name);
    ECH_TRY(ech_calloc(bytes + 1, 1, &t.text));
    if (bytes > 0)
        memcpy(t.text, text, bytes);
    const char *mark = "\xef\xbb\xbf"; /* of UTF-8, as spreadsheets write it */
    char *begin = t.text + (strncmp(t.text, mark, 3) == 0 ? 3 : 0);
    reader r = {.at = begin, .path = name, .line = 1, .place = 1};
    const ech_status st = read_rows(&t, &r);
    if (st < 0) {
        ech_table_fini(&t);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = t;
    return ECH_OK;
}

void ech_table_fini(ech_table *t)
{
    free(t->text);
    free(t->row);
    *t = (ech_table){0};
}
