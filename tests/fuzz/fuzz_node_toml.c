#include "fuzz_node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_parse(ech_node_parse_toml, data, bytes);
    return 0;
}
