#include "train/overlay.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 128, MAX_DEPTH = 16, MAX_SET_BYTES = 1 << 20 };

static ech_status keep_tree(ech_overlay *o, ech_node *tree)
{
    ech_status st = ech_grow(&o->tree, o->n_trees, &o->trees_capacity, sizeof *o->tree);
    if (st < 0) {
        ech_node_destroy(&tree);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    o->tree[o->n_trees++] = tree;
    return ECH_OK;
}

static ech_status keep_string(ech_overlay *o, const char *s, size_t bytes, const char **out)
{
    ECH_TRY(ech_grow(&o->string, o->n_strings, &o->strings_capacity, sizeof *o->string));
    char *copy = strndup(s, bytes);
    ECH_CHECK(copy, ECH_E_NOMEM, "%zu bytes for a configuration key", bytes);
    o->string[o->n_strings++] = copy;
    *out = copy;
    return ECH_OK;
}

static ech_status make_node(ech_overlay *o, const ech_node *from, const char *set_by,
                            ech_node **out)
{
    ech_overlay_node *made = NULL;
    ECH_TRY(ech_calloc(1, sizeof *made, &made));
    if (from)
        made->node = *from;
    made->node.child = NULL;
    made->node.next = NULL;
    made->set_by = set_by;
    if (set_by)
        made->node.line = made->node.column = 0; /* the argument itself is the place */
    made->made = o->made;
    o->made = made;
    *out = &made->node;
    return ECH_OK;
}

/* Copy of a tree; the parser bounds its depth. */
static ech_status copy_tree(ech_overlay *o, const ech_node *from, const char *set_by,
                            ech_node **out)
{
    ech_node *copy = NULL;
    ECH_TRY(make_node(o, from, set_by, &copy));
    ech_node **tail = &copy->child;
    for (const ech_node *at = from->child; at; at = at->next) {
        ECH_TRY(copy_tree(o, at, set_by, tail));
        tail = &(*tail)->next;
    }
    *out = copy;
    return ECH_OK;
}

ech_status ech_overlay_init(ech_overlay *o, ech_node *tree, const char *name)
{
    *o = (ech_overlay){0};
    const ech_node empty = {.kind = ECH_NODE_MAP};
    if (!tree)
        return make_node(o, &empty, NULL, &o->root);
    ECH_TRY(keep_tree(o, tree));
    if (tree->kind == ECH_NODE_NULL)
        return make_node(o, &empty, NULL, &o->root);
    ECH_CHECK(tree->kind == ECH_NODE_MAP, ECH_E_CONFIG,
              "%s: the file is %s, wanted a map of sections (model, data, batch, layout, ...)",
              name, ech_node_kind_name(tree->kind));
    return copy_tree(o, tree, NULL, &o->root);
}

static ech_node *find_member(ech_node *map, const char *key, size_t bytes)
{
    for (ech_node *at = map->child; at; at = at->next)
        if (strlen(at->key) == bytes && memcmp(at->key, key, bytes) == 0)
            return at;
    return NULL;
}

static ech_status add_member(ech_overlay *o, ech_node *map, const char *key, size_t bytes,
                             const char *set_by, ech_node **out)
{
    ech_node *node = NULL;
    ECH_TRY(make_node(o, NULL, set_by, &node));
    ECH_TRY(keep_string(o, key, bytes, &node->key));
    ech_node **tail = &map->child;
    while (*tail)
        tail = &(*tail)->next;
    *tail = node;
    map->n++;
    *out = node;
    return ECH_OK;
}

/* Put value's content in the place of node, which keeps its key and its neighbours. */
static ech_status replace(ech_overlay *o, ech_node *node, const ech_node *value, const char *set_by)
{
    ech_node *copy = NULL;
    ECH_TRY(copy_tree(o, value, set_by, &copy));
    const char *key = node->key;
    ech_node *next = node->next;
    *node = *copy;
    node->key = key;
    node->next = next;
    ((ech_overlay_node *)(void *)node)->set_by = set_by;
    return ECH_OK;
}

/* Members of value go into map one by one; what is no map replaces. */
static ech_status merge(ech_overlay *o, ech_node *node, const ech_node *value, const char *set_by)
{
    if (value->kind != ECH_NODE_MAP || node->kind != ECH_NODE_MAP)
        return replace(o, node, value, set_by);
    for (const ech_node *at = value->child; at; at = at->next) {
        ech_node *member = find_member(node, at->key, strlen(at->key));
        if (!member)
            ECH_TRY(add_member(o, node, at->key, strlen(at->key), set_by, &member));
        ECH_TRY(merge(o, member, at, set_by));
    }
    return ECH_OK;
}

/* The node of a dotted path, its maps made where they are missing. */
static ech_status reach(ech_overlay *o, const char *set, size_t path_bytes, ech_node **out)
{
    const ech_node empty = {.kind = ECH_NODE_MAP};
    ech_node *node = o->root;
    for (size_t at = 0; at <= path_bytes;) {
        size_t n = strcspn(set + at, ".=");
        ech_node *member = NULL;
        if (node->kind != ECH_NODE_MAP)
            ECH_TRY(replace(o, node, &empty, set));
        member = find_member(node, set + at, n);
        if (!member)
            ECH_TRY(add_member(o, node, set + at, n, set, &member));
        node = member;
        at += n + 1;
    }
    *out = node;
    return ECH_OK;
}

/* Is the text before '=' names joined by dots. */
static bool is_path(const char *s, size_t bytes)
{
    size_t depth = 1;
    for (size_t i = 0; i < bytes; i++) {
        const bool is_name = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                             (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '-';
        if (!is_name && (s[i] != '.' || i == 0 || s[i - 1] == '.'))
            return false;
        depth += s[i] == '.';
    }
    return bytes > 0 && bytes < KEY_BYTES && s[bytes - 1] != '.' && depth <= MAX_DEPTH;
}

ech_status ech_overlay_set(ech_overlay *o, const char *set, ech_findings *findings)
{
    const char *equals = strchr(set, '=');
    const size_t path_bytes = equals ? (size_t)(equals - set) : 0;
    if (!equals || !is_path(set, path_bytes) || strlen(set) > MAX_SET_BYTES) {
        ech_findings_add(findings, "--set %.200s: wanted KEY=VALUE, such as optim.lr=1e-4", set);
        return ECH_OK;
    }
    ech_node *value = NULL;
    ech_node null = {.kind = ECH_NODE_NULL};
    if (equals[1]) {
        const ech_status st = ech_node_parse_yaml(equals + 1, strlen(equals + 1), "--set", &value);
        if (st == ECH_E_PARSE) {
            ech_findings_add(findings, "--set %.200s: %s", set, ech_error_message());
            return ECH_OK;
        }
        ECH_TRY(st);
        ECH_TRY(keep_tree(o, value));
    }
    ech_node *node = NULL;
    ECH_TRY(reach(o, set, path_bytes, &node));
    return merge(o, node, value ? value : &null, set);
}

ech_status ech_overlay_replace_string(ech_overlay *o, ech_node *node, const char *value)
{
    ECH_TRY(keep_string(o, value, strlen(value), &node->string));
    node->string_bytes = strlen(value);
    return ECH_OK;
}

const char *ech_overlay_set_by(const ech_node *node)
{
    return ((const ech_overlay_node *)(const void *)node)->set_by;
}

static void list_to_json(const ech_node *node, ech_text *out)
{
    ech_text_add(out, "%s", node->kind == ECH_NODE_MAP ? "{" : "[");
    for (const ech_node *at = node->child; at; at = at->next) {
        if (node->kind == ECH_NODE_MAP) {
            ech_text_add_json_string(out, at->key, strlen(at->key));
            ech_text_add(out, ": ");
        }
        ech_overlay_to_json(at, out);
        ech_text_add(out, "%s", at->next ? ", " : "");
    }
    ech_text_add(out, "%s", node->kind == ECH_NODE_MAP ? "}" : "]");
}

void ech_overlay_to_json(const ech_node *node, ech_text *out)
{
    switch (node->kind) {
    case ECH_NODE_NULL:
        ech_text_add(out, "null");
        break;
    case ECH_NODE_BOOL:
        ech_text_add(out, node->boolean ? "true" : "false");
        break;
    case ECH_NODE_INT:
        ech_text_add(out, "%lld", (long long)node->integer);
        break;
    case ECH_NODE_REAL:
        ech_text_add_double(out, node->real);
        break;
    case ECH_NODE_STRING:
        ech_text_add_json_string(out, node->string, node->string_bytes);
        break;
    case ECH_NODE_LIST:
    case ECH_NODE_MAP:
        list_to_json(node, out);
        break;
    }
}

void ech_overlay_fini(ech_overlay *o)
{
    while (o->made) {
        ech_overlay_node *before = o->made->made;
        free(o->made);
        o->made = before;
    }
    for (size_t i = 0; i < o->n_strings; i++)
        free(o->string[i]);
    for (size_t i = 0; i < o->n_trees; i++)
        ech_node_destroy(&o->tree[i]);
    free(o->string);
    free(o->tree);
    *o = (ech_overlay){0};
}
