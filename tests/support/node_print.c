#include "node_print.h"

#include <math.h>
#include <string.h>

static void print_real(ech_text *t, double x)
{
    const size_t start = t->bytes;
    ech_text_add_double(t, x);
    if (!t->failed && !strpbrk(t->data + start, ".e"))
        ech_text_add(t, ".0");
}

static void print_members(ech_text *t, const ech_node *node)
{
    const bool is_map = node->kind == ECH_NODE_MAP;
    ech_text_add(t, "%c", is_map ? '{' : '[');
    for (const ech_node *m = node->child; m; m = m->next) {
        if (m != node->child)
            ech_text_add(t, ",");
        if (is_map) {
            ech_text_add_json_string(t, m->key, strlen(m->key));
            ech_text_add(t, ":");
        }
        node_print(t, m);
    }
    ech_text_add(t, "%c", is_map ? '}' : ']');
}

void node_print(ech_text *t, const ech_node *node)
{
    switch (node->kind) {
    case ECH_NODE_NULL:
        ech_text_add(t, "null");
        return;
    case ECH_NODE_BOOL:
        ech_text_add(t, "%s", node->boolean ? "true" : "false");
        return;
    case ECH_NODE_INT:
        ech_text_add(t, "%lld", (long long)node->integer);
        return;
    case ECH_NODE_REAL:
        print_real(t, node->real);
        return;
    case ECH_NODE_STRING:
        ech_text_add_json_string(t, node->string, node->string_bytes);
        return;
    case ECH_NODE_LIST:
    case ECH_NODE_MAP:
        print_members(t, node);
        return;
    }
}

static bool is_same_value(const ech_node *a, const ech_node *b)
{
    switch (a->kind) {
    case ECH_NODE_BOOL:
        return a->boolean == b->boolean;
    case ECH_NODE_INT:
        return a->integer == b->integer;
    case ECH_NODE_REAL:
        return memcmp(&a->real, &b->real, sizeof a->real) == 0;
    case ECH_NODE_STRING:
        return a->string_bytes == b->string_bytes &&
               memcmp(a->string, b->string, a->string_bytes) == 0;
    case ECH_NODE_NULL:
    case ECH_NODE_LIST:
    case ECH_NODE_MAP:
        break;
    }
    return a->n == b->n;
}

bool node_is_equal(const ech_node *a, const ech_node *b)
{
    if (a->kind != b->kind || !a->key != !b->key || !is_same_value(a, b))
        return false;
    if (a->key && strcmp(a->key, b->key) != 0)
        return false;
    const ech_node *y = b->child;
    for (const ech_node *x = a->child; x; x = x->next, y = y->next)
        if (!y || !node_is_equal(x, y))
            return false;
    return y == NULL;
}

bool node_is_sound(const ech_node *node, int depth)
{
    const bool has_members = node->kind == ECH_NODE_LIST || node->kind == ECH_NODE_MAP;
    int64_t n = 0;
    if (has_members && ++depth > ECH_NODE_MAX_DEPTH)
        return false;
    if (node->kind == ECH_NODE_STRING && node->string[node->string_bytes] != '\0')
        return false;
    if (node->kind == ECH_NODE_REAL && !isfinite(node->real))
        return false;
    for (const ech_node *m = node->child; m; m = m->next, n++)
        if (!has_members || (node->kind == ECH_NODE_MAP) != (m->key != NULL) ||
            !node_is_sound(m, depth))
            return false;
    return n == node->n;
}
