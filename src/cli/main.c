/* echelon: finds the sub-command and runs it. */
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_log_level(void)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *asked = getenv("ECHELON_LOG");
    for (int i = 0; asked && i < 4; i++)
        if (strcmp(asked, names[i]) == 0)
            ech_log_set_level((ech_log_level)i);
}

static int refuse_command(const char *name)
{
    const char *known[64];
    size_t n = 0;
    for (; n < 63 && ech_command_at(n); n++)
        known[n] = ech_command_at(n)->name;
    const char *near = ech_nearest_name(name, known, n);
    return ech_cli_fail(ECH_RAISE(ECH_E_USAGE, "unknown command '%.80s'%s%s%s See 'echelon help'",
                                  name, near ? "; did you mean '" : "", near ? near : "",
                                  near ? "'?" : "."));
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int run_command(int argc, char **argv)
{
    const ech_command *command = ech_command_find(argv[0]);
    if (!command)
        return refuse_command(argv[0]);
    if (wants_help(argc, argv)) {
        (void)fputs(command->usage, stdout);
        return 0;
    }
    if (!command->run)
        return ech_cli_fail(ECH_RAISE(ECH_E_UNSUPPORTED,
                                      "'%s' is not built yet; see 'echelon help'", command->name));
    return command->run(argc, argv);
}

static int run(int argc, char **argv)
{
    char *help[] = {(char[]){"help"}, NULL};
    if (argc < 2) {
        (void)fputs("echelon: no command given; see 'echelon help'\n", stderr);
        return ech_status_exit_code(ECH_E_USAGE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)puts("echelon " ECH_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return ech_command_help.run(1, help);
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    set_log_level();
    ech_launch_say_started();
    int code = run(argc, argv);
    if (code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        (void)fputs("echelon: standard output cannot be written\n", stderr);
        code = ech_status_exit_code(ECH_E_IO);
    }
    ech_launch_say_ended(code);
    return code;
}
