#include "catalog/key_reader.h"

#include "catalog/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ech_key_describe(const ech_node *node, char *buf, size_t n)
{
    if (node->kind == ECH_NODE_INT)
        (void)snprintf(buf, n, "%lld", (long long)node->integer);
    else if (node->kind == ECH_NODE_REAL)
        (void)snprintf(buf, n, "%g", node->real);
    else if (node->kind == ECH_NODE_BOOL)
        (void)snprintf(buf, n, "%s", node->boolean ? "true" : "false");
    else if (node->kind == ECH_NODE_STRING)
        (void)snprintf(buf, n, "'%.40s'", node->string);
    else
        (void)snprintf(buf, n, "%s", ech_node_kind_name(node->kind));
    return buf;
}

void ech_key_complain(const ech_key_reader *r, const ech_node *node, const char *fmt, ...)
{
    char words[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    if (node && node->line > 0)
        ech_findings_add(r->findings, "%s: %s (line %d, column %d)", r->name, words, node->line,
                         node->column);
    else
        ech_findings_add(r->findings, "%s: %s", r->name, words);
}

const ech_node *ech_key_find(const ech_key_reader *r, const char *key)
{
    const ech_node *node = ech_node_find(r->map, key);
    return node && node->kind != ECH_NODE_NULL ? node : NULL;
}

/* A whole number, also one written as 10000.0; beyond 2^53 a real is no exact integer. */
static bool is_whole(const ech_node *node, int64_t *out)
{
    if (node->kind == ECH_NODE_INT) {
        *out = node->integer;
        return true;
    }
    if (node->kind != ECH_NODE_REAL || !(fabs(node->real) <= 0x1p53) ||
        node->real != floor(node->real))
        return false;
    *out = (int64_t)node->real;
    return true;
}

ech_key_got ech_key_int(const ech_key_reader *r, const char *const *keys, int64_t min, int64_t *out)
{
    const char *first = NULL;
    int64_t value = 0;
    char buf[64];
    for (; *keys; keys++) {
        const ech_node *node = ech_key_find(r, *keys);
        int64_t x;
        if (!node)
            continue;
        if (!is_whole(node, &x) || x < min || x > ECH_MODEL_SIZE_MAX) {
            ech_key_complain(r, node, "%s is %s, wanted a whole number of %lld .. %lld", *keys,
                             ech_key_describe(node, buf, sizeof buf), (long long)min,
                             (long long)ECH_MODEL_SIZE_MAX);
            return ECH_KEY_BAD;
        }
        if (first && x != value) {
            ech_key_complain(r, node, "%s is %lld but %s is %lld: they mean the same", first,
                             (long long)value, *keys, (long long)x);
            return ECH_KEY_BAD;
        }
        first = *keys;
        value = x;
    }
    if (!first)
        return ECH_KEY_ABSENT;
    *out = value;
    return ECH_KEY_GOOD;
}

/* First of the names that is there. */
static const ech_node *find_any(const ech_key_reader *r, const char *const *keys, const char **key)
{
    for (; *keys; keys++) {
        const ech_node *node = ech_key_find(r, *keys);
        if (node) {
            *key = *keys;
            return node;
        }
    }
    return NULL;
}

static ech_key_got wrong(const ech_key_reader *r, const char *key, const ech_node *node,
                         const char *wanted)
{
    char buf[64];
    ech_key_complain(r, node, "%s is %s, wanted %s", key, ech_key_describe(node, buf, sizeof buf),
                     wanted);
    return ECH_KEY_BAD;
}

ech_key_got ech_key_real(const ech_key_reader *r, const char *const *keys, double min, double max,
                         double *out)
{
    const char *key;
    const ech_node *node = find_any(r, keys, &key);
    if (!node)
        return ECH_KEY_ABSENT;
    const bool is_number = node->kind == ECH_NODE_INT || node->kind == ECH_NODE_REAL;
    if (!is_number || !(node->real >= min && node->real <= max)) {
        char words[64];
        (void)snprintf(words, sizeof words, "a number of %g .. %g", min, max);
        return wrong(r, key, node, words);
    }
    *out = node->real;
    return ECH_KEY_GOOD;
}

ech_key_got ech_key_bool(const ech_key_reader *r, const char *key, bool *out)
{
    const ech_node *node = ech_key_find(r, key);
    if (!node)
        return ECH_KEY_ABSENT;
    if (node->kind != ECH_NODE_BOOL)
        return wrong(r, key, node, "true or false");
    *out = node->boolean;
    return ECH_KEY_GOOD;
}

ech_key_got ech_key_string(const ech_key_reader *r, const char *const *keys, const char **out)
{
    const char *key;
    const ech_node *node = find_any(r, keys, &key);
    if (!node)
        return ECH_KEY_ABSENT;
    if (node->kind != ECH_NODE_STRING)
        return wrong(r, key, node, "a string");
    *out = node->string;
    return ECH_KEY_GOOD;
}

ech_key_got ech_key_tree(const ech_key_reader *r, const char *key, ech_node_kind kind,
                         const ech_node **out)
{
    const ech_node *node = ech_key_find(r, key);
    if (!node)
        return ECH_KEY_ABSENT;
    if (node->kind != kind)
        return wrong(r, key, node, ech_node_kind_name(kind));
    *out = node;
    return ECH_KEY_GOOD;
}

ech_key_got ech_key_choice(const ech_key_reader *r, const char *key, const char *const *names,
                           size_t n, int *out)
{
    const char *value;
    const ech_key_got got = ech_key_string(r, ECH_KEYS(key), &value);
    if (got != ECH_KEY_GOOD)
        return got;
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], value) == 0) {
            *out = (int)i;
            return ECH_KEY_GOOD;
        }
    ech_text words = {0};
    const char *near = ech_nearest_name(value, names, n);
    for (size_t i = 0; i < n; i++)
        ech_text_add(&words, "%s%s", i ? " | " : "", names[i]);
    ech_key_complain(r, ech_key_find(r, key), "%s is '%.40s', wanted %s%s%s", key, value,
                     ech_text_get(&words), near ? "; nearest is " : "", near ? near : "");
    ech_text_fini(&words);
    return ECH_KEY_BAD;
}

void ech_key_check_known(const ech_key_reader *r, const char *const *known, size_t n)
{
    for (const ech_node *x = r->map ? r->map->child : NULL; x; x = x->next) {
        bool is_known = false;
        for (size_t i = 0; i < n && !is_known; i++)
            is_known = strcmp(x->key, known[i]) == 0;
        if (is_known)
            continue;
        const char *near = ech_nearest_name(x->key, known, n);
        ech_key_complain(r, x, "unknown key '%.60s'%s%s%s", x->key, near ? ", nearest is '" : "",
                         near ? near : "", near ? "'" : "");
    }
}
