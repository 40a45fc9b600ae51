#include "fuzz.h"

#include "train/config.h"

#include <string.h>

static ech_status load(const char *text, size_t bytes, ech_config *out)
{
    const ech_config_source source = {
        .path = "input", .text = text, .text_bytes = bytes, .ranks = 2};
    return ech_config_load(&source, out);
}

/* What is accepted reads back equal from its own record; a refusal is one of the user's errors and
 * says something. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_config first;
    ech_config again;
    ech_text a = {0};
    ech_text b = {0};
    const ech_status st = load(bytes ? (const char *)data : "", bytes, &first);
    if (st < 0) {
        const int code = ech_status_exit_code(st);
        ECH_ASSERT(ech_error_message()[0] && (code == 2 || code == 4));
        return 0;
    }
    ech_config_to_json(&first, &a);
    ECH_ASSERT(load(a.data, a.bytes, &again) == ECH_OK);
    ech_config_to_json(&again, &b);
    ECH_ASSERT(a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0);
    ech_text_fini(&a);
    ech_text_fini(&b);
    ech_config_fini(&first);
    ech_config_fini(&again);
    return 0;
}
