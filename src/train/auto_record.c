/* The layout that an earlier start of the same run chose. */
#include "train/auto_private.h"

#include "base/io.h"
#include "base/node.h"
#include "train/config_value.h"
#include "train/overlay.h"
#include "train/resume.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096 };

bool ech_auto_sets(const ech_option *row)
{
    static const char section[] = "layout.";
    return (strncmp(row->path, section, sizeof section - 1) == 0 &&
            strcmp(row->path, "layout.auto") != 0) ||
           strcmp(row->path, "batch.micro") == 0;
}

bool ech_auto_is_given(const ech_config *cfg, const char *path)
{
    size_t n = 0;
    const ech_option *rows = ech_options(&n);
    const ech_config_place *p = &cfg->place[ech_option_find(path) - rows];
    return p->line > 0 || p->set_by;
}

ech_status ech_auto_set(ech_config *cfg, const char *path, const char *value)
{
    ech_node *node = NULL;
    ech_text problem = {0};
    ECH_TRY(ech_node_parse_yaml(value, strlen(value), path, &node));
    const ech_status st = ech_value_read(ech_option_find(path), node, "", cfg, &problem);
    ECH_ASSERT(problem.bytes == 0); /* the search keeps to legal values */
    ech_text_fini(&problem);
    ech_node_destroy(&node);
    return st;
}

/* May this start go on from a checkpoint. */
static bool may_resume(const ech_config *cfg, const char *wish)
{
    if (strcmp(wish, ECH_RESUME_NO) == 0)
        return false;
    if (strcmp(wish, ECH_RESUME_AUTO) != 0)
        return true;
    return cfg->checkpoint.every_steps > 0 && ech_path_is_folder(cfg->checkpoint.dir);
}

/* The configuration in a record of as many ranks; *found false: there is none that can be read. */
static ech_status read_record(const ech_config *cfg, int ranks, ech_config *out, bool *found)
{
    char path[MAX_PATH_BYTES];
    ech_node *root = NULL;
    ech_text json = {0};
    *found = false;
    ECH_TRY(ech_path_join(cfg->run.dir, "run.json", path, sizeof path));
    if (!ech_path_exists(path))
        return ECH_OK;
    ech_status st = ech_node_read_file(path, true, &root);
    const ech_node *layout = st >= 0 ? ech_node_find(root, "layout") : NULL;
    const ech_node *n = layout ? ech_node_find(layout, "ranks") : NULL;
    const ech_node *config = st >= 0 ? ech_node_find(root, "config") : NULL;
    if (n && n->kind == ECH_NODE_INT && n->integer == ranks && config) {
        ech_overlay_to_json(config, &json);
        const ech_config_source source = {
            .path = path, .text = ech_text_get(&json), .text_bytes = json.bytes, .ranks = ranks};
        st = ech_config_load(&source, out);
        *found = st >= 0;
    }
    ech_text_fini(&json);
    ech_node_destroy(&root);
    if (st == ECH_E_NOMEM)
        return st;
    if (st < 0) /* another version's, or cut off: then it says nothing */
        ech_error_clear();
    return ECH_OK;
}

static bool is_same_value(const ech_option *row, const ech_config *a, const ech_config *b)
{
    ech_text x = {0};
    ech_text y = {0};
    ech_value_print(row, a, &x);
    ech_value_print(row, b, &y);
    const bool is = strcmp(ech_text_get(&x), ech_text_get(&y)) == 0;
    ech_text_fini(&x);
    ech_text_fini(&y);
    return is;
}

/* The same question, with the same pins. */
static bool is_same_run(const ech_config *cfg, const ech_config *record)
{
    static const char *const same[] = {"batch.global", "batch.seq", "precision.compute",
                                       "optim.name"};
    size_t n = 0;
    const ech_option *rows = ech_options(&n);
    bool is = record->layout.is_auto && cfg->model_json && record->model_json &&
              strcmp(cfg->model_json, record->model_json) == 0;
    for (size_t i = 0; i < sizeof same / sizeof same[0] && is; i++)
        is = is_same_value(ech_option_find(same[i]), cfg, record);
    for (size_t i = 0; i < n && is; i++)
        if (ech_auto_sets(&rows[i]) && ech_auto_is_given(cfg, rows[i].path))
            is = is_same_value(&rows[i], cfg, record);
    return is;
}

static ech_status take_over(ech_config *cfg, const ech_config *record)
{
    size_t n = 0;
    const ech_option *rows = ech_options(&n);
    ech_status st = ECH_OK;
    for (size_t i = 0; i < n && st >= 0; i++) {
        ech_text value = {0};
        if (!ech_auto_sets(&rows[i]))
            continue;
        ech_value_print(&rows[i], record, &value);
        st = value.failed ? ECH_RAISE(ECH_E_NOMEM, "layout: auto")
                          : ech_auto_set(cfg, rows[i].path, ech_text_get(&value));
        ech_text_fini(&value);
    }
    return st;
}

ech_status ech_auto_keep(ech_config *cfg, const ech_auto_spec *spec, ech_text *words, bool *kept)
{
    ech_config record;
    bool found = false;
    *kept = false;
    if (!may_resume(cfg, spec->resume))
        return ECH_OK;
    ECH_TRY(read_record(cfg, spec->ranks, &record, &found));
    if (!found)
        return ECH_OK;
    ech_status st = ECH_OK;
    if (is_same_run(cfg, &record)) {
        st = take_over(cfg, &record);
        *kept = st >= 0;
        ech_text_add(words,
                     "layout: auto: keeps the layout in %s/run.json, of the same ranks, "
                     "model, batch and pins",
                     cfg->run.dir);
    }
    ech_config_fini(&record);
    return st;
}
