#include "fuzz.h"

#include "cli/hostfile.c" /* the command line is no library */

/* What is accepted is written for Open MPI's mpirun, one line a host, and reads back the same; a
 * refusal names the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_hostfile first;
    ech_hostfile again;
    ech_text text = {0};
    const ech_status st = ech_hostfile_parse((const char *)data, bytes, "input", &first);
    if (st < 0) {
        ECH_ASSERT(strstr(ech_error_message(), "input") && st == ECH_E_USAGE);
        return 0;
    }
    ech_node_fill(first.host, first.n, (int)first.slots);
    ech_hostfile_print(&first, true, &text);
    ECH_ASSERT(ech_hostfile_parse(text.data, text.bytes, "input", &again) == ECH_OK);
    ECH_ASSERT(again.n == first.n && again.slots == first.slots);
    for (int i = 0; i < first.n; i++)
        ECH_ASSERT(strcmp(again.host[i].name, first.host[i].name) == 0 &&
                   again.host[i].slots == first.host[i].n);
    ech_text_fini(&text);
    ech_hostfile_fini(&first);
    ech_hostfile_fini(&again);
    return 0;
}
