/* A small parser of GNU long options. */
#include "base/checked.h"
#include "base/io.h"
#include "base/text.h"
#include "cli/command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 128 };

static ech_status list_add(ech_opt_list *list, const char *s)
{
    ECH_TRY(ech_grow(&list->item, list->n, &list->capacity, sizeof *list->item));
    list->item[list->n++] = s;
    return ECH_OK;
}

void ech_opt_list_fini(ech_opt_list *list)
{
    free(list->item);
    *list = (ech_opt_list){0};
}

static const ech_opt *find_option(const ech_opt *opts, size_t n, const char *name, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(opts[i].name) == bytes && memcmp(opts[i].name, name, bytes) == 0)
            return &opts[i];
    return NULL;
}

static ech_status refuse_unknown(const char *command, const ech_opt *opts, size_t n,
                                 const char *name, size_t bytes)
{
    const char *known[MAX_OPTIONS];
    char asked[128];
    size_t n_known = 0;
    for (; n_known < n && n_known < MAX_OPTIONS - 1; n_known++)
        known[n_known] = opts[n_known].name;
    known[n_known++] = "help";
    (void)snprintf(asked, sizeof asked, "%.*s", (int)(bytes < 100 ? bytes : 100), name);
    const char *near = ech_nearest_name(asked, known, n_known);
    return ECH_RAISE(ECH_E_USAGE, "%s: unknown option '--%s'%s%s%s See 'echelon help %s'", command,
                     asked, near ? "; did you mean '--" : "", near ? near : "", near ? "'?" : ".",
                     command);
}

static ech_status read_int(const char *command, const ech_opt *opt, const char *value)
{
    char *end = NULL;
    errno = 0;
    const long long x = strtoll(value, &end, 10);
    ECH_CHECK(end != value && *end == '\0' && errno == 0, ECH_E_USAGE,
              "%s: '--%s' wants an integer, got '%.80s'", command, opt->name, value);
    *(int64_t *)opt->out = x;
    return ECH_OK;
}

static ech_status read_real(const char *command, const ech_opt *opt, const char *value)
{
    char *end = NULL;
    const double x = strtod(value, &end);
    ECH_CHECK(end != value && *end == '\0' && isfinite(x), ECH_E_USAGE,
              "%s: '--%s' wants a number, got '%.80s'", command, opt->name, value);
    *(double *)opt->out = x;
    return ECH_OK;
}

static ech_status store(const char *command, const ech_opt *opt, const char *value)
{
    switch (opt->kind) {
    case ECH_OPT_FLAG:
        *(bool *)opt->out = true;
        return ECH_OK;
    case ECH_OPT_STRING:
        *(const char **)opt->out = value;
        return ECH_OK;
    case ECH_OPT_INT:
        return read_int(command, opt, value);
    case ECH_OPT_REAL:
        return read_real(command, opt, value);
    case ECH_OPT_LIST:
        return list_add(opt->out, value);
    }
    ECH_ASSERT(false && "an option kind outside its enumeration");
    return ECH_OK;
}

/* One option at argv[*i]; *i is moved onto its value where that is a word of its own. */
static ech_status parse_option(int argc, char **argv, const ech_opt *opts, size_t n, int *i)
{
    const char *command = argv[0];
    const char *name = argv[*i] + 2;
    const size_t bytes = strcspn(name, "=");
    const char *value = name[bytes] == '=' ? name + bytes + 1 : NULL;
    const ech_opt *opt = find_option(opts, n, name, bytes);
    if (!opt)
        return refuse_unknown(command, opts, n, name, bytes);
    ECH_CHECK(opt->kind != ECH_OPT_FLAG || !value, ECH_E_USAGE,
              "%s: '--%s' takes no value, got '%.80s'", command, opt->name, value);
    if (opt->kind != ECH_OPT_FLAG && !value) {
        ECH_CHECK(*i + 1 < argc, ECH_E_USAGE, "%s: '--%s' needs a value", command, opt->name);
        value = argv[++*i];
    }
    return store(command, opt, value);
}

ech_status ech_cli_check_path(const char *path)
{
    ECH_CHECK(ech_path_exists(path), ECH_E_USAGE, "%s: no such file or folder", path);
    return ECH_OK;
}

ech_status ech_opt_parse(int argc, char **argv, const ech_opt *opts, size_t n, ech_opt_list *words)
{
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const bool is_long = !only_words && arg[0] == '-' && arg[1] == '-';
        if (is_long && arg[2] == '\0') {
            only_words = true;
        } else if (is_long) {
            ECH_TRY(parse_option(argc, argv, opts, n, &i));
        } else {
            ECH_CHECK(only_words || arg[0] != '-' || arg[1] == '\0', ECH_E_USAGE,
                      "%s: unknown option '%.80s'; options are long, such as '--key=value'; see "
                      "'echelon help %s'",
                      argv[0], arg, argv[0]);
            ECH_CHECK(words, ECH_E_USAGE, "%s: unexpected word '%.80s'; see 'echelon help %s'",
                      argv[0], arg, argv[0]);
            ECH_TRY(list_add(words, arg));
        }
    }
    return ECH_OK;
}
