/* The table of sub-commands: each is defined in the file of its name. */
#include "cli/command.h"

#include <string.h>

#define NOT_BUILT "This command is in the specification and not built yet: it ends with exit 2.\n"

static const ech_command unbuilt[] = {
    {"eval", "loss and perplexity on a held-out token file", NOT_BUILT, NULL},
    {"report", "HTML report of a run", NOT_BUILT, NULL},
    {"top", "live view of a running job", NOT_BUILT, NULL},
};

static const ech_command *const built[] = {
    &ech_command_train,    &ech_command_check, &ech_command_generate, &ech_command_data,
    &ech_command_model,    &ech_command_ckpt,  &ech_command_status,   &ech_command_help,
    &ech_command_doctor,   &ech_command_bench, &ech_command_sim,      &ech_command_fit,
    &ech_command_validate, &ech_command_plan,
};

enum { N_BUILT = sizeof built / sizeof built[0], N_UNBUILT = sizeof unbuilt / sizeof unbuilt[0] };

const ech_command *ech_command_at(size_t i)
{
    if (i < N_BUILT)
        return built[i];
    return i < N_BUILT + N_UNBUILT ? &unbuilt[i - N_BUILT] : NULL;
}

const ech_command *ech_command_find(const char *name)
{
    const ech_command *c = NULL;
    for (size_t i = 0; (c = ech_command_at(i)) != NULL; i++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
