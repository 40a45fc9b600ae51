#include "program/program_read_value.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ech_status ech_read_fault(const ech_reader *r, const char *what, const char *why)
{
    return ECH_RAISE(ECH_E_PARSE, "%s: %s: %s %s", r->name, r->where, what, why);
}

ech_status ech_read_int(const ech_reader *r, const ech_node *n, const char *what, int64_t least,
                        int64_t most, int64_t *out)
{
    char why[96];
    const bool is_int = n && n->kind == ECH_NODE_INT;
    if (is_int && n->integer >= least && n->integer <= most) {
        *out = n->integer;
        return ECH_OK;
    }
    if (is_int)
        (void)snprintf(why, sizeof why, "is %lld, wanted %lld..%lld", (long long)n->integer,
                       (long long)least, (long long)most);
    else
        (void)snprintf(why, sizeof why, "is %s, wanted an integer",
                       n ? ech_node_kind_name(n->kind) : "missing");
    return ech_read_fault(r, what, why);
}

ech_status ech_read_real(const ech_reader *r, const ech_node *n, const char *what, double *out)
{
    if (!n || (n->kind != ECH_NODE_INT && n->kind != ECH_NODE_REAL) || !isfinite(n->real))
        return ech_read_fault(r, what, "is no finite number");
    *out = n->real;
    return ECH_OK;
}

ech_status ech_read_name(const ech_reader *r, const ech_node *n, const char *what,
                         const char *const *names, int n_names, int *out)
{
    char why[160];
    if (!n || n->kind != ECH_NODE_STRING)
        return ech_read_fault(r, what, "is missing, or no name");
    for (int i = 0; i < n_names; i++)
        if (strcmp(names[i], n->string) == 0) {
            *out = i;
            return ECH_OK;
        }
    const char *near = ech_nearest_name(n->string, names, (size_t)n_names);
    (void)snprintf(why, sizeof why, "'%.40s' is unknown%s%s%s", n->string,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return ech_read_fault(r, what, why);
}

ech_status ech_read_bool(const ech_reader *r, const ech_node *map, const char *key, bool *out)
{
    const ech_node *n = ech_node_find(map, key);
    if (n && n->kind != ECH_NODE_BOOL)
        return ech_read_fault(r, key, "is neither true nor false");
    *out = n && n->boolean;
    return ECH_OK;
}

ech_status ech_read_text(const ech_reader *r, const ech_node *map, const char *key, char *buf,
                         size_t n)
{
    const ech_node *s = ech_node_find(map, key);
    if (!s || s->kind != ECH_NODE_STRING || s->string_bytes >= n ||
        strlen(s->string) != s->string_bytes)
        return ech_read_fault(r, key, "is missing, no text or too long");
    (void)snprintf(buf, n, "%s", s->string);
    return ECH_OK;
}

ech_status ech_read_int_or(const ech_reader *r, const ech_node *map, const char *key, int64_t least,
                           int64_t most, int64_t *out)
{
    const ech_node *n = ech_node_find(map, key);
    return n ? ech_read_int(r, n, key, least, most, out) : ECH_OK;
}

ech_status ech_read_want(const ech_reader *r, const ech_node *n, const char *what,
                         ech_node_kind kind)
{
    char why[64];
    if (n && n->kind == kind)
        return ECH_OK;
    (void)snprintf(why, sizeof why, "is %s, wanted %s", n ? ech_node_kind_name(n->kind) : "missing",
                   ech_node_kind_name(kind));
    return ech_read_fault(r, what, why);
}

ech_status ech_read_want_list(const ech_reader *r, const ech_node *list, const char *what,
                              int64_t n)
{
    char why[64];
    ECH_TRY(ech_read_want(r, list, what, ECH_NODE_LIST));
    (void)snprintf(why, sizeof why, "has %lld values, wanted %lld", (long long)list->n,
                   (long long)n);
    return list->n == n ? ECH_OK : ech_read_fault(r, what, why);
}

ech_status ech_read_check_keys(const ech_reader *r, const ech_node *map, const char *const *known,
                               int n)
{
    int index = 0;
    ECH_TRY(ech_read_want(r, map, "it", ECH_NODE_MAP));
    for (const ech_node *m = map->child; m; m = m->next) {
        const ech_node key = {.kind = ECH_NODE_STRING, .string = m->key};
        ECH_TRY(ech_read_name(r, &key, "key", known, n, &index));
    }
    return ECH_OK;
}

ech_status ech_read_key(const ech_reader *r, const ech_node *member, const char *const *names,
                        int n, int *out)
{
    const ech_node key = {.kind = ECH_NODE_STRING, .string = member->key};
    return ech_read_name(r, &key, "key", names, n, out);
}

ech_status ech_read_pair(const ech_reader *r, const ech_node *n, const char *what, int64_t least,
                         int64_t most, int64_t out[2])
{
    ECH_TRY(ech_read_want_list(r, n, what, 2));
    ECH_TRY(ech_read_int(r, n->child, what, least, most, &out[0]));
    return ech_read_int(r, n->child->next, what, least, most, &out[1]);
}
