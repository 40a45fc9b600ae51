#include "fuzz.h"

#include "catalog/model.h"

#include <string.h>

/* Shapes on a line.  hf= and preset= are left out: files are another target's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[1024];
    ech_model m;
    ech_param_count c;
    ech_findings findings = {0};
    if (bytes >= sizeof text || memchr(data, 0, bytes))
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (strstr(text, "hf"))
        return 0;
    if (ech_model_from_words(text, &m) < 0) {
        ECH_ASSERT(strstr(ech_error_message(), "model"));
        return 0;
    }
    ech_model_validate(&m, &findings);
    ECH_ASSERT(findings.n == 0);
    ECH_ASSERT(ech_model_count(&m, &c) == ECH_OK && c.total > 0 && c.active <= c.total);
    return 0;
}
