/* echelon help. */
#include "base/text.h"
#include "cli/command.h"
#include "cli/help_config.h"
#include "layout/legal.h"

#include <stdio.h>
#include <string.h>

static void print_commands(bool is_built)
{
    const ech_command *c = NULL;
    for (size_t i = 0; (c = ech_command_at(i)) != NULL; i++)
        if ((c->run != NULL) == is_built)
            (void)printf("  %-10s %s\n", c->name, c->summary);
}

static void print_overview(void)
{
    (void)puts("Usage: echelon COMMAND [ARGS] [OPTIONS]\n"
               "       echelon help [COMMAND | config | layouts]\n"
               "       echelon --version\n"
               "\n"
               "Commands:");
    print_commands(true);
    (void)puts("\nIn the specification, not built yet (exit 2):");
    print_commands(false);
    (void)puts(
        "\n"
        "Options are long: --key=value or --key value.  With --json standard output carries\n"
        "JSON only.\n"
        "\n"
        "Exit status: 0 done; 1 the job ran and failed; 2 wrong usage or configuration,\n"
        "nothing was started; 3 does not fit; 4 the environment (MPI, disk, permission);\n"
        "5 stopped on request after a checkpoint.\n"
        "\n"
        "Environment: NO_COLOR, ECHELON_LOG=error|warn|info|debug.");
}

static ech_status help_config(bool as_markdown)
{
    ech_text text = {0};
    if (as_markdown)
        ech_help_config_markdown(&text);
    else
        ech_help_config_text(&text);
    return ech_cli_print(&text);
}

static ech_status help_layouts(void)
{
    ech_text text = {0};
    ech_legal_markdown(&text);
    return ech_cli_print(&text);
}

static ech_status refuse_topic(const char *topic)
{
    const char *known[64];
    size_t n = 0;
    for (; n < 62 && ech_command_at(n); n++)
        known[n] = ech_command_at(n)->name;
    known[n++] = "config";
    known[n++] = "layouts";
    const char *near = ech_nearest_name(topic, known, n);
    return ECH_RAISE(ECH_E_USAGE, "no help on '%.80s'%s%s%s See 'echelon help'", topic,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".");
}

static ech_status help_on(const char *topic, bool as_markdown)
{
    const ech_command *command = ech_command_find(topic);
    if (strcmp(topic, "config") == 0)
        return help_config(as_markdown);
    if (strcmp(topic, "layouts") == 0)
        return help_layouts();
    if (!command)
        return refuse_topic(topic);
    (void)printf("%s - %s\n\n%s", command->name, command->summary, command->usage);
    return ECH_OK;
}

static int cmd_help(int argc, char **argv)
{
    bool as_markdown = false;
    ech_opt_list words = {0};
    const ech_opt opts[] = {{"markdown", ECH_OPT_FLAG, &as_markdown}};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st == ECH_OK && words.n > 1)
        st = ECH_RAISE(ECH_E_USAGE, "help: one topic at a time, got %zu", words.n);
    if (st == ECH_OK && words.n == 0)
        print_overview();
    else if (st == ECH_OK)
        st = help_on(words.item[0], as_markdown);
    ech_opt_list_fini(&words);
    return ech_cli_fail(st);
}

const ech_command ech_command_help = {
    "help",
    "this overview, the usage of a command, every key of a configuration, the legal layouts",
    "Usage: echelon help [COMMAND | config | layouts] [--markdown]\n"
    "\n"
    "  COMMAND      its usage\n"
    "  config       every key of a configuration: default, unit, legal values, meaning\n"
    "  layouts      which products of parallelisms are legal, at which cost, or refused\n"
    "  --markdown   config as the page docs/config.md, layouts as docs/layouts.md\n",
    cmd_help,
};
