/* Reading side files: strict, every field checked against the others. */
#include "data/side_file.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIDE_BYTES = 1 << 30 };

ech_status ech_side_file_path(const char *path, char *buf, size_t n)
{
    const int len = snprintf(buf, n, "%s.json", path);
    ECH_CHECK(len > 0 && (size_t)len < n, ECH_E_USAGE, "path is too long: '%s'", path);
    return ECH_OK;
}

static ech_status get_count(const ech_node *root, const char *path, const char *key, int64_t low,
                            int64_t *out)
{
    const ech_node *v = ech_node_find(root, key);
    ECH_CHECK(v && v->kind == ECH_NODE_INT && v->integer >= low, ECH_E_DATA,
              "%s: '%s' is missing or no number >= %lld", path, key, (long long)low);
    *out = v->integer;
    return ECH_OK;
}

static ech_status get_type(const ech_node *root, const char *path, ech_token_type *out)
{
    const ech_node *v = ech_node_find(root, "dtype");
    ECH_CHECK(v && v->kind == ECH_NODE_STRING, ECH_E_DATA, "%s: 'dtype' is missing", path);
    const ech_status st = ech_token_type_parse(v->string, out);
    ECH_CHECK(st == ECH_OK && *out != ECH_TOKEN_AUTO, ECH_E_DATA,
              "%s: 'dtype' is '%s', no token type", path, v->string);
    return ECH_OK;
}

static ech_status get_hash(const ech_node *v, const char *path, size_t i, uint64_t *out)
{
    char *end = NULL;
    ECH_CHECK(v->kind == ECH_NODE_STRING && v->string_bytes == 16 &&
                  strspn(v->string, "0123456789abcdef") == 16,
              ECH_E_DATA, "%s: hash %zu is not 16 hexadecimal digits", path, i);
    *out = strtoull(v->string, &end, 16);
    return ECH_OK;
}

static ech_status get_hashes(const ech_node *root, const char *path, ech_side_file *s)
{
    const ech_node *list = ech_node_find(root, "hashes");
    int64_t bytes = 0;

    ECH_TRY(ech_mul_i64(s->n_tokens, ech_token_type_bytes(s->dtype), &bytes));
    const int64_t want = bytes / s->block_bytes + (bytes % s->block_bytes != 0);
    ECH_CHECK(list && list->kind == ECH_NODE_LIST && list->n == want, ECH_E_DATA,
              "%s: 'hashes' has %lld entries, %lld bytes in blocks of %lld need %lld", path,
              list ? (long long)list->n : 0LL, (long long)bytes, (long long)s->block_bytes,
              (long long)want);
    ECH_TRY(ech_calloc((size_t)want, sizeof *s->hash, &s->hash));
    s->n_blocks = (size_t)want;
    size_t i = 0;
    for (const ech_node *v = list->child; v; v = v->next, i++)
        ECH_TRY(get_hash(v, path, i, &s->hash[i]));
    return ECH_OK;
}

static ech_status read_fields(const ech_node *root, const char *path, ech_side_file *s)
{
    int64_t version = 0;

    ECH_TRY(get_count(root, path, "version", 1, &version));
    ECH_CHECK(version == 1, ECH_E_DATA, "%s: version %lld, only 1 is known", path,
              (long long)version);
    ECH_TRY(get_type(root, path, &s->dtype));
    ECH_TRY(get_count(root, path, "n_tokens", 1, &s->n_tokens));
    ECH_TRY(get_count(root, path, "n_documents", 1, &s->n_documents));
    ECH_TRY(get_count(root, path, "vocab", 1, &s->vocab));
    ECH_TRY(get_count(root, path, "max_id", 0, &s->max_id));
    ECH_TRY(get_count(root, path, "block_bytes", 1, &s->block_bytes));
    ECH_CHECK(s->max_id < s->vocab, ECH_E_DATA, "%s: max_id %lld is not below vocab %lld", path,
              (long long)s->max_id, (long long)s->vocab);
    return get_hashes(root, path, s);
}

ech_status ech_side_file_read(const char *path, bool *found, ech_side_file *out)
{
    ech_node *root = NULL;
    ech_side_file s = {0};
    char *text = NULL;
    size_t bytes = 0;
    ech_status st = ECH_OK;

    *found = false;
    if (!ech_path_exists(path))
        return ECH_OK;
    ECH_TRY(ech_read_whole(path, MAX_SIDE_BYTES, &text, &bytes));
    ECH_TRY_GOTO(st, ech_node_parse_json(text, bytes, path, &root), done);
    const ech_node *format = ech_node_find(root, "format");
    if (!format || format->kind != ECH_NODE_STRING || strcmp(format->string, "echelon-tokens") != 0)
        goto done; /* somebody else's JSON */
    ECH_TRY_GOTO(st, read_fields(root, path, &s), done);
    *found = true;
    *out = s;
    s = (ech_side_file){0};
done:
    ech_side_file_fini(&s);
    ech_node_destroy(&root);
    free(text);
    return st;
}

void ech_side_file_fini(ech_side_file *s)
{
    free(s->hash);
    *s = (ech_side_file){0};
}
