#include "fuzz_tokenizer.h"

/* Any bytes as llama2.c's tokenizer.bin: refused with a message, or a tokenizer that works. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_tokenizer *t = NULL;

    const ech_status st = ech_tokenizer_from_llama2c(data, bytes, "fuzz", &t);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_DATA);
    ECH_ASSERT((st == ECH_OK) == (t != NULL));
    if (t)
        fuzz_use_tokenizer(t);
    ech_tokenizer_destroy(&t);
    return 0;
}
