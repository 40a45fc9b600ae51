#include "fuzz.h"

#include "program/schedule.h"

#include <string.h>

/* What is accepted comes to an end in finite time, holds at least one pair and at most all, and
 * reads back the same once it is written; a refusal names the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const ech_schedule_costs unit = {.of = {1, 1, 1, 1}};
    ech_schedule s = {0};
    ech_schedule again = {0};
    ech_text text = {0};
    ech_status st = ech_schedule_read((const char *)data, bytes, "input", &s);
    if (st < 0) {
        ECH_ASSERT(strncmp(ech_error_message(), "input", 5) == 0 && st == ECH_E_CONFIG);
        return 0;
    }
    const double bubble = ech_schedule_bubble(&s, &unit, &st);
    ECH_ASSERT(st == ECH_OK && bubble >= 0 && bubble < 1);
    for (int r = 0; r < s.ranks; r++) {
        const ech_schedule_live live = ech_schedule_live_of(&s, r);
        ECH_ASSERT(live.saved >= 1 && live.both <= s.stages * s.micros);
    }
    ECH_ASSERT(ech_schedule_write(&s, &text) == ECH_OK);
    ECH_ASSERT(ech_schedule_read(text.data, text.bytes, "again", &again) == ECH_OK);
    ECH_ASSERT(again.ranks == s.ranks && again.stages == s.stages && again.micros == s.micros);
    for (int i = 0; i < s.first[s.ranks]; i++)
        ECH_ASSERT(again.work[i].kind == s.work[i].kind && again.work[i].stage == s.work[i].stage &&
                   again.work[i].micro == s.work[i].micro);
    ech_text_fini(&text);
    ech_schedule_fini(&s);
    ech_schedule_fini(&again);
    return 0;
}
