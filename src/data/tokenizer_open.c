/* Which tokenizer a path means. */
#include "base/io.h"
#include "base/node.h"
#include "base/text.h"
#include "data/tokenizer_gpt2.h"
#include "data/tokenizer_parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 28 };

static bool is_named(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

/* --- BOS and EOS by name --- */

/* "bos_token": "<s>" or {"content": "<s>"} or null. */
static void take_end(const ech_tokenizer *t, const ech_node *root, const char *key, int32_t *out)
{
    const ech_node *v = ech_node_find(root, key);
    const ech_node *content = v && v->kind == ECH_NODE_MAP ? ech_node_find(v, "content") : v;

    if (!content || content->kind != ECH_NODE_STRING)
        return;
    const int32_t id = ech_tokenizer_find(t, content->string);
    if (id >= 0)
        *out = id;
}

static ech_status read_config_beside(ech_tokenizer *t, const char *path)
{
    char folder[PATH_MAX];
    char config[PATH_MAX];
    ech_node *root = NULL;

    ECH_TRY(ech_path_folder(path, folder, sizeof folder));
    ECH_TRY(ech_path_join(folder, "tokenizer_config.json", config, sizeof config));
    if (!ech_path_exists(config))
        return ECH_OK;
    ECH_TRY(ech_node_read_file(config, true, &root));
    take_end(t, root, "bos_token", &t->bos);
    take_end(t, root, "eos_token", &t->eos);
    ech_node_destroy(&root);
    if (t->eos >= 0)
        t->document_flags |= ECH_ENCODE_EOS;
    return ECH_OK;
}

/* --- by kind --- */

static ech_status open_whole(const char *path, bool is_json, ech_tokenizer **out)
{
    char *data = NULL;
    size_t bytes = 0;

    ECH_TRY(ech_read_whole(path, MAX_BYTES, &data, &bytes));
    const ech_status st = is_json ? ech_tokenizer_from_json(data, bytes, path, out)
                                  : ech_tokenizer_from_llama2c(data, bytes, path, out);
    free(data);
    return st;
}

static ech_status open_json(const char *path, ech_tokenizer **out)
{
    ech_tokenizer *t = NULL;

    ECH_TRY(open_whole(path, true, &t));
    const ech_status st = read_config_beside(t, path);
    if (st < 0) {
        ech_tokenizer_destroy(&t);
        return st;
    }
    *out = t;
    return ECH_OK;
}

static ech_status open_pair(const char *path, const char *merges, ech_tokenizer **out)
{
    char folder[PATH_MAX];
    char merges_path[PATH_MAX];

    ECH_TRY(ech_path_folder(path, folder, sizeof folder));
    ECH_TRY(ech_path_join(folder, merges, merges_path, sizeof merges_path));
    ECH_CHECK(ech_path_exists(merges_path), ECH_E_DATA, "%s: '%s' is not beside it", path, merges);
    return ech_tokenizer_open_gpt2(path, merges_path, out);
}

static ech_status open_file(const char *path, ech_tokenizer **out)
{
    if (is_named(path, "encoder.json"))
        return open_pair(path, "vocab.bpe", out);
    if (is_named(path, "vocab.json"))
        return open_pair(path, "merges.txt", out);
    if (ech_has_suffix(path, ".json"))
        return open_json(path, out);
    if (ech_has_suffix(path, ".bin"))
        return open_whole(path, false, out);
    ECH_CHECK(!ech_has_suffix(path, ".model"), ECH_E_UNSUPPORTED,
              "%s: SentencePiece's own files are not read; convert it to tokenizer.json", path);
    return ECH_RAISE(ECH_E_DATA,
                     "%s: is no tokenizer by its name: wanted tokenizer.json, encoder.json, "
                     "vocab.json or a llama2.c .bin",
                     path);
}

ech_status ech_tokenizer_open(const char *path, ech_tokenizer **out)
{
    static const char *const names[] = {"tokenizer.json", "encoder.json", "vocab.json",
                                        "tokenizer.bin"};
    char inside[PATH_MAX];

    ECH_CHECK(ech_path_exists(path), ECH_E_DATA, "tokenizer '%s' does not exist", path);
    if (!ech_path_is_folder(path))
        return open_file(path, out);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ECH_TRY(ech_path_join(path, names[i], inside, sizeof inside));
        if (ech_path_exists(inside))
            return open_file(inside, out);
    }
    return ECH_RAISE(ECH_E_DATA,
                     "%s: holds no tokenizer (tokenizer.json, encoder.json, vocab.json or "
                     "tokenizer.bin)",
                     path);
}
