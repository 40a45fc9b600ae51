/** @file fuzz/fuzz_node.h
 *  What must hold of any tree that a parser has accepted. */
#ifndef ECH_TESTS_FUZZ_NODE_H
#define ECH_TESTS_FUZZ_NODE_H

#include "fuzz.h"       /* ECH_ASSERT */
#include "node_print.h" /* node_print */

#include "base/node.h" /* ech_node */

#include <string.h>

/** A parser of base/node.h. */
typedef ech_status (*fuzz_parser)(const char *text, size_t bytes, const char *name, ech_node **out);

/** Parse: what is accepted is sound, and its JSON reads back as the same tree; a refusal says
 *  where. */
static inline void fuzz_parse(fuzz_parser parse, const uint8_t *data, size_t bytes)
{
    ech_node *root;
    ech_node *again;
    ech_text text = {0};
    if (parse((const char *)data, bytes, "input", &root) < 0) {
        ECH_ASSERT(!root && strncmp(ech_error_message(), "input:", 6) == 0);
        return;
    }
    ECH_ASSERT(node_is_sound(root, 0));
    node_print(&text, root);
    ECH_ASSERT(!text.failed);
    ECH_ASSERT(ech_node_parse_json(text.data, text.bytes, "again", &again) == ECH_OK);
    ECH_ASSERT(node_is_equal(root, again));
    ech_node_destroy(&again);
    ech_node_destroy(&root);
    ech_text_fini(&text);
}

#endif
