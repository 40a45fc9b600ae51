#include "base/node.h"
#include "base/node_build.h"
#include "base/node_scalar.h"

#include <string.h>
#include <yaml.h>

/* A list or map that is still open. */
typedef struct yaml_level {
    ech_node *node;
    ech_node *last;    /* newest member */
    ech_node *waiting; /* in a map: member whose key was read and whose value comes next */
} yaml_level;

typedef struct yaml_build {
    yaml_parser_t parser;
    ech_node_tree *tree;
    const char *name;
    int depth; /* open levels */
    int documents;
    yaml_level level[ECH_NODE_MAX_DEPTH];
} yaml_build;

#define FAIL_AT(b, mark, ...) fail_at((b), (mark), ECH_RAISE(ECH_E_PARSE, __VA_ARGS__))

/* Put "file:line:column: " in front of the message just raised. */
static ech_status fail_at(const yaml_build *b, yaml_mark_t mark, ech_status st)
{
    return ech_error_prefix(st, "%s:%zu:%zu: ", b->name, mark.line + 1, mark.column + 1);
}

static ech_status parser_error(const yaml_build *b)
{
    const yaml_parser_t *p = &b->parser;
    const char *problem = p->problem ? p->problem : "cannot be parsed";
    if (p->error == YAML_MEMORY_ERROR)
        return ECH_RAISE(ECH_E_NOMEM, "%s: no memory to parse it", b->name);
    if (p->error == YAML_READER_ERROR) /* bytes that are no text: libyaml knows the offset only */
        return ECH_RAISE(ECH_E_PARSE, "%s: byte %zu: %s", b->name, p->problem_offset, problem);
    return FAIL_AT(b, p->problem_mark, "%s%s%s", problem, p->context ? ", " : "",
                   p->context ? p->context : "");
}

static void set_place(ech_node *node, yaml_mark_t mark)
{
    node->line = (int)mark.line + 1;
    node->column = (int)mark.column + 1;
}

/* The node that the next value fills: the root, a new list member or the member of a read key. */
static ech_status place_value(yaml_build *b, yaml_mark_t mark, ech_node **out)
{
    yaml_level *top = b->depth > 0 ? &b->level[b->depth - 1] : NULL;
    if (top && top->node->kind == ECH_NODE_MAP) {
        *out = top->waiting;
        top->waiting = NULL;
        return ECH_OK;
    }
    if (!top) {
        *out = ech_node_tree_root(b->tree);
    } else {
        ECH_TRY(ech_node_tree_add(b->tree, out));
        *(top->last ? &top->last->next : &top->node->child) = *out;
        top->last = *out;
        top->node->n++;
    }
    set_place(*out, mark);
    return ECH_OK;
}

static bool wants_key(const yaml_build *b)
{
    const yaml_level *top = b->depth > 0 ? &b->level[b->depth - 1] : NULL;
    return top && top->node->kind == ECH_NODE_MAP && !top->waiting;
}

static ech_status add_key(yaml_build *b, const yaml_event_t *e)
{
    yaml_level *top = &b->level[b->depth - 1];
    const char *key = (const char *)e->data.scalar.value;
    const size_t bytes = e->data.scalar.length;
    const bool is_plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    ech_node *member;
    if (bytes == 0 && is_plain)
        return FAIL_AT(b, e->start_mark, "a key is missing before ':'");
    if (memchr(key, '\0', bytes))
        return FAIL_AT(b, e->start_mark, "a key must not hold the character NUL");
    ECH_TRY(ech_node_tree_add(b->tree, &member));
    ECH_TRY(ech_node_tree_add_string(b->tree, key, bytes, &member->key));
    set_place(member, e->start_mark);
    *(top->last ? &top->last->next : &top->node->child) = member;
    top->last = member;
    top->waiting = member;
    top->node->n++;
    return ECH_OK;
}

static ech_status add_scalar(yaml_build *b, const yaml_event_t *e)
{
    ech_node *node;
    if (e->data.scalar.anchor)
        return FAIL_AT(b, e->start_mark, "anchors (&%.64s) are not supported: write the value out",
                       (const char *)e->data.scalar.anchor);
    if (e->data.scalar.tag)
        return FAIL_AT(b, e->start_mark, "tags (%.64s) are not supported",
                       (const char *)e->data.scalar.tag);
    if (wants_key(b))
        return add_key(b, e);
    ECH_TRY(place_value(b, e->start_mark, &node));
    node->kind = ECH_NODE_STRING;
    node->string_bytes = e->data.scalar.length;
    ECH_TRY(ech_node_tree_add_string(b->tree, (const char *)e->data.scalar.value,
                                     node->string_bytes, &node->string));
    if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return ECH_OK;
    const ech_status st = ech_node_type_scalar(node);
    return st < 0 ? fail_at(b, e->start_mark, st) : ECH_OK;
}

static ech_status open_level(yaml_build *b, const yaml_event_t *e, bool is_map)
{
    const yaml_char_t *anchor =
        is_map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
    const yaml_char_t *tag = is_map ? e->data.mapping_start.tag : e->data.sequence_start.tag;
    ech_node *node;
    if (anchor)
        return FAIL_AT(b, e->start_mark, "anchors (&%.64s) are not supported: write the value out",
                       (const char *)anchor);
    if (tag)
        return FAIL_AT(b, e->start_mark, "tags (%.64s) are not supported", (const char *)tag);
    if (wants_key(b))
        return FAIL_AT(b, e->start_mark, "a key must be a string, not %s",
                       is_map ? "a map" : "a list");
    if (b->depth == ECH_NODE_MAX_DEPTH)
        return FAIL_AT(b, e->start_mark, "lists and maps nested deeper than %d",
                       ECH_NODE_MAX_DEPTH);
    ECH_TRY(place_value(b, e->start_mark, &node));
    node->kind = is_map ? ECH_NODE_MAP : ECH_NODE_LIST;
    b->level[b->depth++] = (yaml_level){.node = node};
    return ECH_OK;
}

static ech_status close_map(yaml_build *b)
{
    const ech_node *map = b->level[--b->depth].node;
    const ech_node *again;
    ECH_TRY(ech_node_find_duplicate(map, &again));
    ECH_CHECK(!again, ECH_E_PARSE, "%s:%d:%d: key '%.200s' is given twice", b->name, again->line,
              again->column, again->key);
    return ECH_OK;
}

static ech_status take_event(yaml_build *b, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++b->documents > 1)
            return FAIL_AT(b, e->start_mark, "a second document: one is read, not several");
        return ECH_OK;
    case YAML_ALIAS_EVENT:
        return FAIL_AT(b, e->start_mark, "aliases (*%.64s) are not supported: write the value out",
                       (const char *)e->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        return add_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return open_level(b, e, false);
    case YAML_MAPPING_START_EVENT:
        return open_level(b, e, true);
    case YAML_SEQUENCE_END_EVENT:
        b->depth--;
        return ECH_OK;
    case YAML_MAPPING_END_EVENT:
        return close_map(b);
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return ECH_OK;
    }
    return ECH_OK;
}

/* Events rather than libyaml's own documents: caps hold before memory is used. */
static ech_status build_tree(yaml_build *b)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&b->parser, &event))
            return parser_error(b);
        const yaml_event_type_t type = event.type;
        const ech_status st = take_event(b, &event);
        yaml_event_delete(&event);
        ECH_TRY(st);
        if (type == YAML_STREAM_END_EVENT)
            return ECH_OK;
    }
}

ech_status ech_node_parse_yaml(const char *text, size_t bytes, const char *name, ech_node **out)
{
    yaml_build b = {.name = name};
    const size_t bom = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    *out = NULL;
    ECH_CHECK(yaml_parser_initialize(&b.parser), ECH_E_NOMEM, "%s: no memory to parse it", name);
    ech_status st = ech_node_tree_create(&b.tree);
    if (st == ECH_OK) {
        set_place(ech_node_tree_root(b.tree), (yaml_mark_t){0});
        yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
        /* libyaml would count the byte order mark as a column and misread what follows. */
        yaml_parser_set_input_string(&b.parser, (const unsigned char *)text + bom, bytes - bom);
        st = build_tree(&b);
    }
    yaml_parser_delete(&b.parser);
    if (st < 0) {
        ech_node_tree_destroy(&b.tree);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = ech_node_tree_root(b.tree);
    return ECH_OK;
}
