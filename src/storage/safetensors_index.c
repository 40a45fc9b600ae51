#include "storage/safetensors_index.h"

#include "base/checked.h"
#include "storage/json_cursor.h"

#include <stdlib.h>
#include <string.h>

void ech_st_index_fini(ech_st_index *x)
{
    free(x->text);
    free(x->map);
    *x = (ech_st_index){0};
}

static int by_shard(const void *a, const void *b)
{
    const ech_st_mapping *x = a;
    const ech_st_mapping *y = b;
    const int shard = strcmp(x->shard, y->shard);

    return shard ? shard : strcmp(x->name, y->name);
}

int ech_st_mapping_by_tensor(const void *a, const void *b)
{
    return strcmp(((const ech_st_mapping *)a)->name, ((const ech_st_mapping *)b)->name);
}

static ech_status parse_weight_map(ech_json *j, ech_st_index *x)
{
    int64_t n = 0;
    bool more = true;

    ECH_TRY(ech_json_take(j, '{'));
    for (;;) {
        char *name;
        char *shard;

        ECH_TRY(ech_json_more(j, '}', &n, &more));
        if (!more)
            return ECH_OK;
        ECH_TRY(ech_json_key(j, &name));
        ECH_TRY(ech_json_string(j, &shard));
        ECH_TRY(ech_grow(&x->map, x->n, &x->cap, sizeof *x->map));
        x->map[x->n++] = (ech_st_mapping){.name = name, .shard = shard};
    }
}

static ech_status parse_members(ech_st_index *x, size_t bytes)
{
    enum { SKIP_DEPTH = 4 };
    ech_json j = ech_json_start(x->text, bytes);
    bool has_map = false;
    bool more = true;
    int64_t n = 0;
    char *key;

    ECH_TRY(ech_json_take(&j, '{'));
    for (;;) {
        ECH_TRY(ech_json_more(&j, '}', &n, &more));
        if (!more)
            break;
        ECH_TRY(ech_json_key(&j, &key));
        if (strcmp(key, "weight_map")) {
            ECH_TRY(ech_json_skip(&j, SKIP_DEPTH)); /* metadata: nothing in it is relied on */
            continue;
        }
        ECH_CHECK(!has_map, ECH_E_CORRUPT, "weight_map stands twice");
        has_map = true;
        ECH_TRY(parse_weight_map(&j, x));
    }
    (void)ech_json_peek(&j);
    ECH_CHECK(j.at == j.end, ECH_E_CORRUPT, "json: byte %zu: text behind the end",
              (size_t)(j.at - j.begin));
    ECH_CHECK(has_map, ECH_E_CORRUPT, "no weight_map");
    return ECH_OK;
}

static ech_status check_duplicates(ech_st_index *x)
{
    char shown[96];

    if (x->n > 1)
        qsort(x->map, x->n, sizeof *x->map, ech_st_mapping_by_tensor);
    for (size_t i = 1; i < x->n; i++)
        ECH_CHECK(strcmp(x->map[i - 1].name, x->map[i].name), ECH_E_CORRUPT,
                  "weight_map has tensor '%s' twice",
                  ech_json_quote(x->map[i].name, shown, sizeof shown));
    if (x->n > 1)
        qsort(x->map, x->n, sizeof *x->map, by_shard);
    return ECH_OK;
}

ech_status ech_st_index_parse(ech_st_index *x, size_t bytes)
{
    ech_status ok = parse_members(x, bytes);

    if (ok >= 0)
        ok = check_duplicates(x);
    return ok == ECH_E_PARSE ? ECH_E_CORRUPT : ok; /* a damaged file, not a configuration */
}
