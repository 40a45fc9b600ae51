#include "fuzz.h"

#include "storage/safetensors.h"

#include <string.h>

/* Any bytes as a safetensors file: legal, or refused by the name of a rule.  The seeds (one or more
 * a rule) are made by tests/storage/test_safetensors_rules.py --seeds. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const rules[] = {
        "length: ", "json: ", "metadata: ", "size: ", "cover: ", "name: "};
    const ech_status st = ech_st_check_bytes(data, bytes);
    bool is_named = st == ECH_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        is_named |= strncmp(ech_error_message(), rules[i], strlen(rules[i])) == 0;
    ECH_ASSERT(st == ECH_OK || st == ECH_E_CORRUPT);
    ECH_ASSERT(is_named);
    return 0;
}
