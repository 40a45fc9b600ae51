#include "base/node.h"
#include "base/node_build.h"

#include <jansson.h>
#include <string.h>

/* Where a scan of JSON text stands. */
typedef struct json_scan {
    const char *name;
    int64_t nodes;
    int depth;
    int line;
    const char *line_start;
    bool in_string;
    bool escaped;
} json_scan;

static ech_status scan_open(json_scan *s, const char *p)
{
    s->nodes++;
    ECH_CHECK(++s->depth <= ECH_NODE_MAX_DEPTH, ECH_E_PARSE,
              "%s:%d:%lld: lists and maps nested deeper than %d", s->name, s->line,
              (long long)(p - s->line_start) + 1, ECH_NODE_MAX_DEPTH);
    return ECH_OK;
}

static ech_status scan_byte(json_scan *s, const char *p)
{
    if (*p == '\n') {
        s->line++;
        s->line_start = p + 1;
    }
    if (s->in_string) {
        s->in_string = s->escaped || *p != '"';
        s->escaped = !s->escaped && *p == '\\';
        return ECH_OK;
    }
    switch (*p) {
    case '"':
        s->in_string = true;
        return ECH_OK;
    case '[':
    case '{':
        return scan_open(s, p);
    case ']':
    case '}':
        s->depth--;
        return ECH_OK;
    case ',':
        s->nodes++;
        return ECH_OK;
    default:
        return ECH_OK;
    }
}

/* Caps before jansson builds a tree of its own: depth, and a bound on the number of values. */
static ech_status scan_caps(const char *text, size_t bytes, const char *name)
{
    json_scan s = {.name = name, .line = 1, .line_start = text};
    for (size_t i = 0; i < bytes; i++)
        ECH_TRY(scan_byte(&s, text + i));
    ECH_CHECK(s.nodes < ECH_NODE_MAX_NODES, ECH_E_PARSE, "%s: more than %d values", name,
              ECH_NODE_MAX_NODES);
    return ECH_OK;
}

static ech_status convert(ech_node_tree *tree, json_t *from, ech_node *to);

static ech_status convert_list(ech_node_tree *tree, json_t *from, ech_node *to)
{
    ech_node **tail = &to->child;
    to->kind = ECH_NODE_LIST;
    to->n = (int64_t)json_array_size(from);
    for (size_t i = 0; i < json_array_size(from); i++) {
        ECH_TRY(ech_node_tree_add(tree, tail));
        ECH_TRY(convert(tree, json_array_get(from, i), *tail));
        tail = &(*tail)->next;
    }
    return ECH_OK;
}

static ech_status convert_map(ech_node_tree *tree, json_t *from, ech_node *to)
{
    ech_node **tail = &to->child;
    to->kind = ECH_NODE_MAP;
    to->n = (int64_t)json_object_size(from);
    for (void *it = json_object_iter(from); it; it = json_object_iter_next(from, it)) {
        const char *key = json_object_iter_key(it);
        ECH_TRY(ech_node_tree_add(tree, tail));
        ECH_TRY(ech_node_tree_add_string(tree, key, strlen(key), &(*tail)->key));
        ECH_TRY(convert(tree, json_object_iter_value(it), *tail));
        tail = &(*tail)->next;
    }
    return ECH_OK;
}

/* Recursion is as deep as the text, which scan_caps has bounded. */
static ech_status convert(ech_node_tree *tree, json_t *from, ech_node *to)
{
    switch (json_typeof(from)) {
    case JSON_OBJECT:
        return convert_map(tree, from, to);
    case JSON_ARRAY:
        return convert_list(tree, from, to);
    case JSON_STRING:
        to->kind = ECH_NODE_STRING;
        to->string_bytes = json_string_length(from);
        return ech_node_tree_add_string(tree, json_string_value(from), to->string_bytes,
                                        &to->string);
    case JSON_INTEGER:
        to->kind = ECH_NODE_INT;
        to->integer = json_integer_value(from);
        to->real = (double)to->integer;
        return ECH_OK;
    case JSON_REAL:
        to->kind = ECH_NODE_REAL;
        to->real = json_real_value(from);
        return ECH_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        to->kind = ECH_NODE_BOOL;
        to->boolean = json_is_true(from);
        return ECH_OK;
    case JSON_NULL:
        break;
    }
    to->kind = ECH_NODE_NULL;
    return ECH_OK;
}

ech_status ech_node_parse_json(const char *text, size_t bytes, const char *name, ech_node **out)
{
    json_error_t why;
    ech_node_tree *tree = NULL;
    ech_status st;
    *out = NULL;
    ECH_TRY(scan_caps(text, bytes, name));
    json_t *json =
        json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!json) {
        const bool memory = json_error_code(&why) == json_error_out_of_memory;
        return ECH_RAISE(memory ? ECH_E_NOMEM : ECH_E_PARSE, "%s:%d:%d: %s", name, why.line,
                         why.column, why.text);
    }
    st = ech_node_tree_create(&tree);
    if (st == ECH_OK)
        st = convert(tree, json, ech_node_tree_root(tree));
    json_decref(json);
    if (st < 0) {
        ech_node_tree_destroy(&tree);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = ech_node_tree_root(tree);
    return ECH_OK;
}
