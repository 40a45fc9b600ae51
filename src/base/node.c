#include "base/node.h"

#include "base/checked.h"
#include "base/node_build.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 16384, FEW_KEYS = 16 };

typedef struct tree_chunk tree_chunk;
struct tree_chunk {
    tree_chunk *before;
    size_t used;
    size_t bytes;
    alignas(ech_node) char data[];
};

struct ech_node_tree {
    ech_node root; /* first: the caller's pointer to the root is the tree */
    tree_chunk *chunk;
    int64_t n;
};

ech_status ech_node_tree_create(ech_node_tree **out)
{
    return ech_calloc(1, sizeof **out, out);
}

void ech_node_tree_destroy(ech_node_tree **tree)
{
    if (*tree)
        for (tree_chunk *c = (*tree)->chunk; c;) {
            tree_chunk *before = c->before;
            free(c);
            c = before;
        }
    free(*tree);
    *tree = NULL;
}

ech_node *ech_node_tree_root(ech_node_tree *tree)
{
    return &tree->root;
}

/* Zeroed memory from the newest chunk, or from a new one where it is full. */
static ech_status tree_take(ech_node_tree *tree, size_t bytes, void *out)
{
    const size_t wanted = ech_align_up(bytes, alignof(ech_node));
    tree_chunk *c = tree->chunk;
    if (!c || wanted > c->bytes - c->used) {
        const size_t size = wanted > CHUNK_BYTES ? wanted : CHUNK_BYTES;
        ECH_TRY(ech_calloc(1, sizeof *c + size, &c));
        c->bytes = size;
        c->before = tree->chunk;
        tree->chunk = c;
    }
    void *p = c->data + c->used;
    c->used += wanted;
    memcpy(out, &p, sizeof p);
    return ECH_OK;
}

ech_status ech_node_tree_add(ech_node_tree *tree, ech_node **out)
{
    ECH_CHECK(++tree->n < ECH_NODE_MAX_NODES, ECH_E_PARSE, "more than %d values",
              ECH_NODE_MAX_NODES);
    return tree_take(tree, sizeof **out, out);
}

ech_status ech_node_tree_add_string(ech_node_tree *tree, const char *s, size_t bytes,
                                    const char **out)
{
    char *copy;
    ECH_TRY(tree_take(tree, bytes + 1, &copy));
    if (bytes > 0)
        memcpy(copy, s, bytes);
    *out = copy;
    return ECH_OK;
}

/* By key, then by place: the later of two equal keys comes second. */
static int compare_members(const void *a, const void *b)
{
    const ech_node *x = *(const ech_node *const *)a;
    const ech_node *y = *(const ech_node *const *)b;
    const int order = strcmp(x->key, y->key);
    if (order != 0)
        return order;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

static const ech_node *duplicate_of_few(const ech_node *map)
{
    for (const ech_node *a = map->child; a; a = a->next)
        for (const ech_node *b = map->child; b != a; b = b->next)
            if (strcmp(a->key, b->key) == 0)
                return a;
    return NULL;
}

ech_status ech_node_find_duplicate(const ech_node *map, const ech_node **out)
{
    const ech_node **members;
    size_t n = 0;
    *out = NULL;
    if (map->n <= FEW_KEYS) {
        *out = duplicate_of_few(map);
        return ECH_OK;
    }
    ECH_TRY(ech_calloc((size_t)map->n, sizeof *members, &members));
    for (const ech_node *m = map->child; m; m = m->next)
        members[n++] = m;
    qsort(members, n, sizeof *members, compare_members);
    for (size_t i = 1; i < n && !*out; i++)
        if (strcmp(members[i - 1]->key, members[i]->key) == 0)
            *out = members[i];
    free(members);
    return ECH_OK;
}

void ech_node_destroy(ech_node **node)
{
    ech_node_tree *tree = (ech_node_tree *)(void *)*node;
    ech_node_tree_destroy(&tree);
    *node = NULL;
}

const ech_node *ech_node_find(const ech_node *map, const char *key)
{
    if (!map || map->kind != ECH_NODE_MAP)
        return NULL;
    for (const ech_node *m = map->child; m; m = m->next)
        if (strcmp(m->key, key) == 0)
            return m;
    return NULL;
}

const char *ech_node_kind_name(ech_node_kind kind)
{
    static const char *const names[] = {"null",     "a boolean", "an integer", "a real number",
                                        "a string", "a list",    "a map"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}
