/* The configuration as JSON, which is YAML: for the run record, and to be read again. */
#include "train/config_value.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DEPTH = 4, MAX_PATH_BYTES = 4096 };

static const void *field_view(const ech_option *row, const ech_config *cfg)
{
    return (const char *)cfg + row->offset;
}

static void add_string(ech_text *out, const char *s)
{
    ech_text_add_json_string(out, s, strlen(s));
}

/* A path that means the same from any folder. */
static void add_path(ech_text *out, const char *path)
{
    char cwd[MAX_PATH_BYTES];
    if (path[0] == '/' || !getcwd(cwd, sizeof cwd)) {
        add_string(out, path);
        return;
    }
    ech_text whole = {0};
    ech_text_add(&whole, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd,
                 strncmp(path, "./", 2) == 0 ? path + 2 : path);
    add_string(out, ech_text_get(&whole));
    ech_text_fini(&whole);
}

static void add_int_or(ech_text *out, int64_t x, const char *nothing)
{
    if (x == ECH_AUTO)
        ech_text_add(out, "%s", nothing);
    else
        ech_text_add(out, "%lld", (long long)x);
}

static void add_paths(ech_text *out, const ech_strings *list)
{
    ech_text_add(out, "%s", list->n ? "[" : "null");
    for (int i = 0; i < list->n; i++) {
        ech_text_add(out, "%s", i ? ", " : "");
        add_path(out, list->item[i]);
    }
    ech_text_add(out, "%s", list->n ? "]" : "");
}

static void add_ints(ech_text *out, const ech_ints *list)
{
    ech_text_add(out, "%s", list->n ? "[" : "\"auto\"");
    for (int i = 0; i < list->n; i++)
        ech_text_add(out, "%s%lld", i ? ", " : "", (long long)list->item[i]);
    ech_text_add(out, "%s", list->n ? "]" : "");
}

static void add_pair(ech_text *out, const double pair[2])
{
    ech_text_add(out, "[");
    ech_text_add_double(out, pair[0]);
    ech_text_add(out, ", ");
    ech_text_add_double(out, pair[1]);
    ech_text_add(out, "]");
}

void ech_value_print(const ech_option *row, const ech_config *cfg, ech_text *out)
{
    const void *field = field_view(row, cfg);
    switch (row->type) {
    case ECH_OPTION_BOOL:
        ech_text_add(out, *(const bool *)field ? "true" : "false");
        break;
    case ECH_OPTION_INT:
    case ECH_OPTION_BYTES:
    case ECH_OPTION_INT_AUTO:
    case ECH_OPTION_BYTES_AUTO:
        add_int_or(out, *(const int64_t *)field, "\"auto\"");
        break;
    case ECH_OPTION_INT_NONE:
        add_int_or(out, *(const int64_t *)field, "null");
        break;
    case ECH_OPTION_REAL:
        ech_text_add_double(out, *(const double *)field);
        break;
    case ECH_OPTION_PAIR:
        add_pair(out, field);
        break;
    case ECH_OPTION_CHOICE: {
        size_t n = 0;
        const char *choice = ech_choice_get(row->allowed, *(const unsigned *)field, &n);
        ech_text_add_json_string(out, choice, n);
        break;
    }
    case ECH_OPTION_WORD:
        if (ech_value_is_file(row, *(char *const *)field))
            add_path(out, *(char *const *)field);
        else
            add_string(out, *(char *const *)field);
        break;
    case ECH_OPTION_INTS_AUTO:
        add_ints(out, field);
        break;
    case ECH_OPTION_PATH:
    case ECH_OPTION_PATH_AUTO:
        if (*(char *const *)field)
            add_path(out, *(char *const *)field);
        else
            ech_text_add(out, row->type == ECH_OPTION_PATH ? "null" : "\"auto\"");
        break;
    case ECH_OPTION_PATHS:
        add_paths(out, field);
        break;
    case ECH_OPTION_MODEL:
        ECH_ASSERT(false && "model keys are printed together");
    }
}

/* Length of the common sections of two paths, as "layout.zero." of layout.zero.stage and .group. */
static size_t common_section_bytes(const char *a, const char *b)
{
    size_t n = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            n = i + 1;
    return n;
}

static int count_dots(const char *s, size_t bytes)
{
    int n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += s[i] == '.';
    return n;
}

static void indent(ech_text *out, int depth)
{
    ech_text_add(out, "\n%*s", 2 * (depth + 1), "");
}

/* Close the sections of `before` that `path` is not in and open its own; both may be "". */
static void move_between(const char *before, const char *path, ech_text *out)
{
    const size_t common = common_section_bytes(before, path);
    const int stays = count_dots(path, common);
    for (int depth = count_dots(before, strlen(before)); depth > stays; depth--) {
        indent(out, depth - 1);
        ech_text_add(out, "}");
    }
    if (!path[0])
        return;
    ech_text_add(out, "%s", before[0] ? "," : "");
    int depth = stays;
    const char *at = path + common;
    for (const char *dot = strchr(at, '.'); dot; dot = strchr(at, '.')) {
        indent(out, depth++);
        ech_text_add_json_string(out, at, (size_t)(dot - at));
        ech_text_add(out, ": {");
        at = dot + 1;
    }
    indent(out, depth);
    add_string(out, at);
    ech_text_add(out, ": ");
}

void ech_config_to_json(const ech_config *cfg, ech_text *out)
{
    size_t n_rows = 0;
    const ech_option *row = ech_options(&n_rows);
    const char *before = "";
    ech_text_add(out, "{");
    if (cfg->model_json) {
        move_between(before, "model", out);
        ech_text_add(out, "%s", cfg->model_json);
        before = "model";
    }
    for (size_t i = 0; i < n_rows; i++) {
        if (row[i].type == ECH_OPTION_MODEL)
            continue;
        move_between(before, row[i].path, out);
        ech_value_print(&row[i], cfg, out);
        before = row[i].path;
    }
    move_between(before, "", out);
    ech_text_add(out, "\n}\n");
}
