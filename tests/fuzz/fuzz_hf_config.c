#include "fuzz.h"

#include "base/node.h"
#include "catalog/canon.h"

#include <string.h>

/* A model that was accepted is sound: it passes validation and counts; one that can be run has
 * canonical tensors of the same number, and its own config.json reads back with the same count. */
static void check_accepted(const ech_model *m)
{
    ech_param_count count;
    ech_findings findings = {0};
    ech_model_validate(m, &findings);
    ECH_ASSERT(findings.n == 0);
    ECH_ASSERT(ech_model_count(m, &count) == ECH_OK);
    ECH_ASSERT(count.total > 0 && count.active > 0 && count.active <= count.total);
    ECH_ASSERT(count.matmul > 0 && count.embedding > 0);
    if (!m->is_executable)
        return;
    ech_canon canon;
    if (ech_canon_create(m, &canon) == ECH_OK) { /* padding may leave 64 bits */
        ECH_ASSERT(canon.elems >= count.total);
        ech_canon_fini(&canon);
    }
    ech_text text = {0};
    ech_node *node;
    ech_model again;
    ech_param_count same;
    ECH_ASSERT(ech_model_to_hf(m, NULL, &text) == ECH_OK);
    ECH_ASSERT(ech_node_parse_json(text.data, text.bytes, "again", &node) == ECH_OK);
    ECH_ASSERT(ech_model_from_hf(node, "again", &again) == ECH_OK);
    ECH_ASSERT(again.is_executable && ech_model_count(&again, &same) == ECH_OK);
    ECH_ASSERT(same.total == count.total);
    ech_node_destroy(&node);
    ech_text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_node *node;
    ech_model m;
    if (ech_node_parse_json((const char *)data, bytes, "input", &node) < 0)
        return 0;
    const ech_status st = ech_model_from_hf(node, "input", &m);
    ech_node_destroy(&node);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_CONFIG);
    if (st == ECH_OK)
        check_accepted(&m);
    else
        ECH_ASSERT(strstr(ech_error_message(), "input: "));
    return 0;
}
