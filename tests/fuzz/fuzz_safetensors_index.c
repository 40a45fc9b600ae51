#include "fuzz.h"

#include "base/checked.h"
#include "storage/safetensors_index.h"

#include <stdlib.h>
#include <string.h>

/* Any bytes as model.safetensors.index.json: what is accepted is sorted and has no tensor twice in
 * a shard. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_st_index x = {0};

    ECH_ASSERT(ech_calloc(bytes + 1, 1, &x.text) == ECH_OK);
    memcpy(x.text, data, bytes);
    const ech_status st = ech_st_index_parse(&x, bytes);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_CORRUPT);
    for (size_t i = 1; st == ECH_OK && i < x.n; i++) {
        const int shard = strcmp(x.map[i - 1].shard, x.map[i].shard);
        ECH_ASSERT(shard < 0 || (shard == 0 && strcmp(x.map[i - 1].name, x.map[i].name) < 0));
    }
    ech_st_index_fini(&x);
    return 0;
}
