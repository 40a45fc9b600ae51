#include "train/inputs.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/node.h"
#include "data/token_file.h"

#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {"train", "valid", "mask"};
enum { N_KEYS = sizeof keys / sizeof *keys };

static const ech_strings *files_of(const ech_config *cfg, int key)
{
    const ech_strings *all[N_KEYS] = {&cfg->data.train, &cfg->data.valid, &cfg->data.mask};
    return all[key];
}

static ech_status hash_file(ech_input *in)
{
    ech_file *f = NULL;
    const void *map = NULL;
    ECH_TRY(ech_file_open(in->path, &f));
    in->count = ech_file_bytes(f);
    const ech_status st = ech_file_map(f, &map);
    if (st == ECH_OK) {
        ech_hash128_hex(map ? map : "", (size_t)in->count, in->hash);
        ech_unmap(map, in->count);
    }
    ech_file_close(&f);
    return st;
}

/* Of tokens as stored: where a side file has the hashes of its blocks, nothing else is read. */
static ech_status hash_tokens(const ech_config *cfg, ech_input *in)
{
    ech_token_file *f = NULL;
    ech_token_options opt = ech_token_options_default();
    opt.dtype = cfg->data.dtype;
    opt.vocab = cfg->model.vocab;
    opt.skips_scan = true;
    ECH_TRY(ech_token_file_open(in->path, &opt, &f));
    in->count = ech_token_file_info(f)->n_tokens;
    const ech_status st = ech_token_file_hash(f, in->hash);
    ech_token_file_close(&f);
    return st;
}

ech_status ech_inputs_hash(const ech_config *cfg, ech_inputs *out)
{
    ech_inputs all = {0};
    ech_status st = ECH_OK;
    const int n = cfg->data.train.n + cfg->data.valid.n + cfg->data.mask.n;
    ECH_TRY(ech_calloc((size_t)n, sizeof *all.item, &all.item));
    for (int k = 0; k < N_KEYS; k++)
        for (int i = 0; i < files_of(cfg, k)->n && st >= 0; i++) {
            ech_input *in = &all.item[all.n++];
            in->key = keys[k];
            in->path = files_of(cfg, k)->item[i];
            st = strcmp(keys[k], "mask") == 0 ? hash_file(in) : hash_tokens(cfg, in);
        }
    if (st < 0) {
        ech_inputs_fini(&all);
        return st;
    }
    *out = all;
    return ECH_OK;
}

void ech_inputs_to_json(const ech_inputs *inputs, ech_text *out)
{
    for (int k = 0; k < N_KEYS; k++) {
        const char *comma = "";
        ech_text_add(out, "%s\"%s\":[", k ? "," : "{", keys[k]);
        for (int i = 0; i < inputs->n; i++)
            if (strcmp(inputs->item[i].key, keys[k]) == 0) {
                ech_text_add(out, "%s\"%s\"", comma, inputs->item[i].hash);
                comma = ",";
            }
        ech_text_add(out, "]");
    }
    ech_text_add(out, "}");
}

/* Files of one key, beside the hashes that were saved of it. */
static void compare(const ech_inputs *inputs, const char *key, const ech_node *saved, ech_text *out)
{
    const ech_node *then = saved && saved->kind == ECH_NODE_LIST ? saved->child : NULL;
    for (int i = 0; i < inputs->n && then; i++) {
        const ech_input *in = &inputs->item[i];
        if (strcmp(in->key, key) != 0)
            continue;
        if (then->kind == ECH_NODE_STRING && strcmp(then->string, in->hash) != 0)
            ech_text_add(out, "%sdata.%s %s", out->bytes ? ", " : "", key, in->path);
        then = then->next;
    }
}

void ech_inputs_changes(const ech_inputs *inputs, const char *saved, ech_text *out)
{
    ech_node *tree = NULL;
    if (!saved)
        return;
    if (ech_node_parse_json(saved, strlen(saved), "data", &tree) < 0)
        ech_error_clear();
    for (int k = 0; k < N_KEYS && tree; k++)
        compare(inputs, keys[k], ech_node_find(tree, keys[k]), out);
    ech_node_destroy(&tree);
}

void ech_inputs_fini(ech_inputs *inputs)
{
    free(inputs->item);
    *inputs = (ech_inputs){0};
}
