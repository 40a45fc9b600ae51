/* Which model a name or a path means. */
#include "base/io.h"
#include "catalog/model.h"
#include "catalog/presets.h"

#include <stdio.h>
#include <string.h>

/* A path: something with a slash or an ending in .json, or something that is there. */
static bool is_path(const char *s)
{
    const size_t n = strlen(s);
    return strchr(s, '/') || (n > 5 && strcmp(s + n - 5, ".json") == 0) || ech_path_exists(s);
}

static ech_status load_config(const char *path, const char *name, ech_model *out)
{
    ech_node *node = NULL;
    ECH_TRY(ech_node_read_file(path, true, &node));
    const ech_status st = ech_model_from_hf(node, path, out);
    ech_node_destroy(&node);
    if (st == ECH_OK)
        (void)snprintf(out->name, sizeof out->name, "%s", name);
    return st;
}

ech_status ech_model_load(const char *name_or_path, ech_model *out)
{
    if (ech_preset_find(name_or_path, out))
        return ECH_OK;
    if (strchr(name_or_path, '=') && !ech_path_exists(name_or_path))
        return ech_model_from_words(name_or_path, out);
    if (is_path(name_or_path)) {
        char path[4096];
        ECH_CHECK(ech_path_exists(name_or_path), ECH_E_CONFIG, "%s: no such file or folder",
                  name_or_path);
        if (!ech_path_is_folder(name_or_path))
            return load_config(name_or_path, name_or_path, out);
        ECH_TRY(ech_path_join(name_or_path, "config.json", path, sizeof path));
        ECH_CHECK(ech_path_exists(path), ECH_E_CONFIG, "%s: the folder holds no config.json",
                  name_or_path);
        return load_config(path, name_or_path, out);
    }
    size_t n;
    const char *const *names = ech_model_presets(&n);
    const char *near = ech_nearest_name(name_or_path, names, n);
    return ECH_RAISE(
        ECH_E_CONFIG,
        "'%.80s' is neither a known model nor a config.json or a folder holding one%s%s%s",
        name_or_path, near ? ", nearest is '" : "", near ? near : "",
        near ? "'" : " (echelon model list names the known ones)");
}
