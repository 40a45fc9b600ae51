/* From a file and `--set` values to a configuration: the walk over the tree. */
#include "train/config.h"

#include "base/io.h"
#include "train/config_check.h"
#include "train/config_value.h"
#include "train/overlay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 256, MAX_PATH_BYTES = 4096 };

/* One reading. */
typedef struct reader {
    ech_overlay tree;
    ech_config *cfg;
    ech_config_report report;
    char base_dir[MAX_PATH_BYTES]; /* folder of the file */
} reader;

/* "FILE:LINE:COLUMN: " or "--set ARG: " of a node. */
static const char *place_of(const reader *r, const ech_node *node, char *buf, size_t n)
{
    const char *set_by = ech_overlay_set_by(node);
    if (set_by)
        (void)snprintf(buf, n, "--set %.200s: ", set_by);
    else if (node->line > 0)
        (void)snprintf(buf, n, "%.800s:%d:%d: ", ech_config_name(r->cfg), node->line, node->column);
    else
        (void)snprintf(buf, n, "%.800s: ", ech_config_name(r->cfg));
    return buf;
}

static void add_unknown(reader *r, const ech_node *node, const char *section)
{
    char where[MAX_PATH_BYTES];
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s%.80s", section, node->key);
    const char *near = ech_option_nearest(path);
    ech_findings_add(r->report.findings, "%s%s: unknown key%s%s%s",
                     place_of(r, node, where, sizeof where), path, near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "");
}

static ech_status read_row(reader *r, const ech_option *row, const ech_node *node)
{
    char where[MAX_PATH_BYTES];
    ech_text problem = {0};
    size_t n_rows = 0;
    const char *set_by = ech_overlay_set_by(node);
    r->cfg->place[row - ech_options(&n_rows)] =
        (ech_config_place){node->line, node->column, set_by};
    const ech_status st = ech_value_read(row, node, set_by ? "" : r->base_dir, r->cfg, &problem);
    if (problem.bytes)
        ech_findings_add(r->report.findings, "%s%s: %s", place_of(r, node, where, sizeof where),
                         row->path, ech_text_get(&problem));
    else if (st == ECH_OK && !ech_value_is_built(row, r->cfg)) {
        ech_value_print(row, r->cfg, &problem);
        ech_config_report_unsupported(&r->report, r->cfg, row->path,
                                      "%.200s is not built yet; built: %s", ech_text_get(&problem),
                                      row->built);
    }
    ech_text_fini(&problem);
    return st;
}

static ech_status read_map(reader *r, const ech_node *map, const char *section);

static ech_status read_section(reader *r, const ech_node *node, const char *path)
{
    char where[MAX_PATH_BYTES];
    char below[PATH_BYTES + 1];
    if (node->kind == ECH_NODE_NULL)
        return ECH_OK;
    if (node->kind == ECH_NODE_MAP) {
        (void)snprintf(below, sizeof below, "%s.", path);
        return read_map(r, node, below);
    }
    ech_findings_add(r->report.findings, "%s%s: %s, wanted a map of keys",
                     place_of(r, node, where, sizeof where), path, ech_node_kind_name(node->kind));
    return ECH_OK;
}

static ech_status read_map(reader *r, const ech_node *map, const char *section)
{
    char path[PATH_BYTES];
    for (const ech_node *node = map->child; node; node = node->next) {
        const int n = snprintf(path, sizeof path, "%s%s", section, node->key);
        const bool is_short = n > 0 && (size_t)n < sizeof path;
        const ech_option *row = is_short ? ech_option_find(path) : NULL;
        if (strcmp(path, "model") == 0)
            continue; /* read_model's */
        if (row)
            ECH_TRY(read_row(r, row, node));
        else if (is_short && ech_option_is_section(path))
            ECH_TRY(read_section(r, node, path));
        else
            add_unknown(r, node, section);
    }
    return ECH_OK;
}

/* --- the model --- */

/* model.hf is relative to the file that names it; made absolute in the tree, so that it means the
 * same to the catalogue and in the run record. */
static ech_status resolve_hf(reader *r, const ech_node *model)
{
    char path[MAX_PATH_BYTES];
    char cwd[MAX_PATH_BYTES];
    char whole[MAX_PATH_BYTES];
    ech_node *hf = (ech_node *)(uintptr_t)ech_node_find(model, "hf");
    if (!hf || hf->kind != ECH_NODE_STRING || hf->string[0] == '/')
        return ECH_OK;
    if (!getcwd(cwd, sizeof cwd))
        return ECH_RAISE(ECH_E_IO, "the current directory cannot be read");
    ECH_TRY(
        ech_path_join(ech_overlay_set_by(hf) ? "." : r->base_dir, hf->string, path, sizeof path));
    ECH_TRY(ech_path_join(cwd, path, whole, sizeof whole));
    return ech_overlay_replace_string(&r->tree, hf, whole);
}

/* The catalogue's findings end in their place, "(line 2, column 7)": give each the form of the
 * others. */
static void adopt_findings(reader *r, const ech_findings *found)
{
    for (const char *at = found->n ? ech_text_get(&found->text) : NULL; at;) {
        const size_t n = strcspn(at, "\n");
        const char *place = NULL;
        int line = 0;
        int column = 0;
        for (const char *open = memchr(at, '(', n); open && open < at + n;
             open = memchr(open + 1, '(', n - (size_t)(open + 1 - at)))
            if (sscanf(open, "(line %d, column %d)", &line, &column) == 2)
                place = open;
        if (place)
            ech_findings_add(r->report.findings, "%s:%d:%d: %.*s", ech_config_name(r->cfg), line,
                             column, (int)(place - at - 1), at);
        else
            ech_findings_add(r->report.findings, "%s: %.*s", ech_config_name(r->cfg), (int)n, at);
        at = at[n] ? at + n + 1 : NULL;
    }
}

static ech_status keep_hf(ech_config *cfg, const ech_node *model)
{
    const ech_node *hf = ech_node_find(model, "hf");
    if (!hf || hf->kind != ECH_NODE_STRING)
        return ECH_OK;
    cfg->model_hf = strdup(hf->string);
    ECH_CHECK(cfg->model_hf, ECH_E_NOMEM, "model.hf");
    return ECH_OK;
}

static ech_status read_model_map(reader *r, const ech_node *node)
{
    ech_findings found = {0};
    const ech_status st = ech_model_from_config(node, r->base_dir, &found, &r->cfg->model);
    if (st == ECH_OK)
        adopt_findings(r, &found);
    ech_findings_fini(&found);
    return st < 0 ? ech_error_trace(st, __FILE__, __LINE__) : ECH_OK;
}

static ech_status read_model(reader *r)
{
    const ech_node *node = ech_node_find(r->tree.root, "model");
    ech_text json = {0};
    if (!node || node->kind == ECH_NODE_NULL) {
        ech_findings_add(r->report.findings,
                         "%s: model: missing; wanted a preset such as {preset: gpt2-124m}, "
                         "{hf: DIR}, or arch, layers, hidden, heads, vocab and context",
                         ech_config_name(r->cfg));
        return ECH_OK;
    }
    ECH_TRY(resolve_hf(r, node));
    ECH_TRY(keep_hf(r->cfg, node));
    ECH_TRY(read_model_map(r, node));
    ech_overlay_to_json(node, &json);
    if (json.failed) {
        ech_text_fini(&json);
        return ECH_RAISE(ECH_E_NOMEM, "the model of the configuration");
    }
    r->cfg->model_json = json.data;
    return ECH_OK;
}

/* --- front --- */

/* A name that is wrong is a mistake of the command line, unlike a disk that fails. */
static ech_status read_named_file(const char *path, ech_node **tree)
{
    ECH_CHECK(ech_path_exists(path), ECH_E_CONFIG, "configuration file '%s' does not exist", path);
    ECH_CHECK(!ech_path_is_folder(path), ECH_E_CONFIG,
              "'%s' is a folder, wanted a configuration file", path);
    return ech_node_read_file(path, false, tree);
}

static ech_status open_source(reader *r, const ech_config_source *source)
{
    ech_node *tree = NULL;
    if (source->path) {
        r->cfg->path = strdup(source->path);
        ECH_CHECK(r->cfg->path, ECH_E_NOMEM, "%s", source->path);
    }
    if (source->text)
        ECH_TRY(
            ech_node_parse_yaml(source->text, source->text_bytes, ech_config_name(r->cfg), &tree));
    else if (source->path)
        ECH_TRY(read_named_file(source->path, &tree));
    return ech_overlay_init(&r->tree, tree, ech_config_name(r->cfg));
}

/* One of several findings; alone it is left to who opens the file, and has more to say. */
static void check_files(const ech_strings *files, const char *key, reader *r)
{
    for (int i = 0; i < files->n; i++)
        if (!ech_path_exists(files->item[i]))
            ech_config_report_add(&r->report, r->cfg, key, "'%s' does not exist", files->item[i]);
}

static void check_needs(const ech_config_source *source, reader *r)
{
    if (!source->needs_data)
        return;
    if (r->cfg->data.train.n == 0)
        ech_config_report_add(&r->report, r->cfg, "data.train",
                              "no token file is named, wanted a path or a list of paths");
    if (r->report.findings->n == 0)
        return;
    check_files(&r->cfg->data.train, "data.train", r);
    check_files(&r->cfg->data.valid, "data.valid", r);
    check_files(&r->cfg->data.mask, "data.mask", r);
}

/* `layout: auto` is short for a map, so that keys can be laid over it. */
static ech_status open_auto(reader *r)
{
    const ech_node *layout = ech_node_find(r->tree.root, "layout");
    if (!layout || layout->kind != ECH_NODE_STRING || strcmp(layout->string, "auto") != 0)
        return ECH_OK;
    return ech_overlay_set(&r->tree, "layout={auto: true}", r->report.findings);
}

static ech_status read_all(const ech_config_source *source, reader *r)
{
    ECH_TRY(open_source(r, source));
    ECH_TRY(open_auto(r));
    for (size_t i = 0; i < source->n_sets; i++) {
        ECH_TRY(ech_overlay_set(&r->tree, source->sets[i], r->report.findings));
        ECH_TRY(open_auto(r));
    }
    ECH_TRY(read_map(r, r->tree.root, ""));
    ECH_TRY(read_model(r));
    ECH_TRY(ech_config_resolve(r->cfg, source->ranks));
    ECH_TRY(ech_config_schedule_read(r->cfg, &r->report));
    ech_config_check(r->cfg, source->ranks, &r->report);
    check_needs(source, r);
    const ech_findings *f = r->report.findings;
    ECH_CHECK(!f->text.failed, ECH_E_NOMEM, "no memory for the findings");
    const bool is_unsupported = f->n > 0 && f->n == r->report.n_unsupported;
    return ech_findings_raise(f, is_unsupported ? ECH_E_UNSUPPORTED : ECH_E_CONFIG);
}

ech_status ech_config_load(const ech_config_source *source, ech_config *out)
{
    ech_findings findings = {0};
    ech_config cfg;
    reader r = {.cfg = &cfg, .report = {&findings, 0}, .base_dir = "."};
    if (source->path)
        ECH_TRY(ech_path_folder(source->path, r.base_dir, sizeof r.base_dir));
    ECH_TRY(ech_config_init_in(r.base_dir, &cfg));
    const ech_status st = read_all(source, &r);
    ech_overlay_fini(&r.tree);
    ech_findings_fini(&findings);
    if (st < 0) {
        ech_config_fini(&cfg);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = cfg;
    return ECH_OK;
}
