/* Files to node trees. */
#include "base/io.h"
#include "base/node.h"

#include <stdlib.h>

ech_status ech_node_read_file(const char *path, bool is_json, ech_node **out)
{
    char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    ECH_TRY(ech_read_whole(path, ECH_NODE_FILE_BYTES, &text, &bytes));
    const ech_status st = is_json ? ech_node_parse_json(text, bytes, path, out)
                                  : ech_node_parse_yaml(text, bytes, path, out);
    free(text);
    ECH_TRY(st);
    return ECH_OK;
}
