#include "fuzz.h"

#include "program/program_file.h"
#include "program/prove.h"

#include <string.h>

/* Any bytes as a program: what is accepted reads back equal from what is written of it, and can be
 * proved or refused in words; a refusal names the document. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_program p;
    ech_program again;
    ech_text a = {0};
    ech_text b = {0};
    ech_prove_report report;
    const ech_program *const one = &p;
    const ech_prove_spec spec = {.program = &one, .n_classes = 1};
    if (ech_program_read(bytes ? (const char *)data : "", bytes, "input", &p) < 0) {
        ECH_ASSERT(strncmp(ech_error_message(), "input:", 6) == 0);
        return 0;
    }
    ech_program_write(&p, &a);
    ECH_ASSERT(ech_program_read(a.data, a.bytes, "again", &again) == ECH_OK);
    ech_program_write(&again, &b);
    ECH_ASSERT(a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0);
    const ech_status st = ech_prove(&spec, &report);
    ECH_ASSERT(st == ECH_OK || ech_error_message()[0]);
    ech_program_fini(&p);
    ech_program_fini(&again);
    ech_text_fini(&a);
    ech_text_fini(&b);
    return 0;
}
