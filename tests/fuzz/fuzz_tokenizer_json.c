#include "fuzz_tokenizer.h"

#include "base/log.h"

static void drop(ech_log_level level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

/* Any bytes as tokenizer.json: refused with a message, or a tokenizer that works. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_tokenizer *t = NULL;

    ech_log_set_sink(drop, NULL);
    const ech_status st = ech_tokenizer_from_json((const char *)data, bytes, "fuzz", &t);
    ECH_ASSERT(st == ECH_OK || ech_status_exit_code(st) == 2);
    ECH_ASSERT((st == ECH_OK) == (t != NULL));
    if (t)
        fuzz_use_tokenizer(t);
    ech_tokenizer_destroy(&t);
    return 0;
}
