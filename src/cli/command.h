/** @file cli/command.h
 *  The frame of the command line: the table of sub-commands, a small parser of GNU long options,
 *  and how an error is shown.  Only cli prints, reads the environment (with base) and exits.
 *  Local. */
#ifndef ECH_CLI_COMMAND_H
#define ECH_CLI_COMMAND_H

#include "base/status.h" /* ech_status */
#include "base/text.h"   /* ech_text */
#include "report/jout.h" /* ech_jout */

#include <stdint.h>

/** One sub-command: a row of the table in commands.c. */
typedef struct ech_command {
    const char *name;
    const char *summary;               /**< one line, for `echelon help` */
    const char *usage;                 /**< whole text of `echelon help NAME` */
    int (*run)(int argc, char **argv); /**< argv[0] is the name; returns the exit status of the
                                             program; NULL: in the specification, not built yet */
} ech_command;

/** Sub-command i in the order of `echelon help`, NULL past the last; static storage. */
const ech_command *ech_command_at(size_t i);

/** Row of a name, or NULL. */
const ech_command *ech_command_find(const char *name);

/** The sub-commands that are built, each in the file of its name. */
extern const ech_command ech_command_train;
extern const ech_command ech_command_check;
extern const ech_command ech_command_sim;
extern const ech_command ech_command_fit;
extern const ech_command ech_command_plan;
extern const ech_command ech_command_generate;
extern const ech_command ech_command_data;
extern const ech_command ech_command_model;
extern const ech_command ech_command_ckpt;
extern const ech_command ech_command_status;
extern const ech_command ech_command_help;
extern const ech_command ech_command_doctor;
extern const ech_command ech_command_bench;
extern const ech_command ech_command_validate;

/** What an option takes and where its value goes. */
typedef enum ech_opt_kind {
    ECH_OPT_FLAG,   /**< no value; `bool *` becomes true */
    ECH_OPT_STRING, /**< `const char **`, borrowed from argv */
    ECH_OPT_INT,    /**< `int64_t *`, decimal */
    ECH_OPT_REAL,   /**< `double *`, finite */
    ECH_OPT_LIST    /**< `ech_opt_list *`, may be repeated */
} ech_opt_kind;

/** Values of a repeated option, or the words that are no options.  Zero-initialise; release with
 *  ech_opt_list_fini.  The strings are borrowed from argv. */
typedef struct ech_opt_list {
    const char **item; /**< owned array */
    size_t n;
    size_t capacity;
} ech_opt_list;

/** One option of a command. */
typedef struct ech_opt {
    const char *name; /**< without the dashes */
    ech_opt_kind kind;
    void *out; /**< keeps its value where the option is not given */
} ech_opt;

/** Read `--key=value`, `--key value` and flags; what is left goes to `words` in order; everything
 *  after `--` is a word, and so is a lone `-`.  A repeated option that is no list: the last wins.
 *  Allocates only in lists.
 *  @param argc   as given to the command: argv[0] is its name, used in messages
 *  @param argv   borrowed
 *  @param opts   [n], borrowed
 *  @param n      how many
 *  @param words  in/out, or NULL: the command takes none
 *  @return ECH_OK | ECH_E_USAGE (an unknown option with the nearest known one, a missing, unwanted
 *          or malformed value, an unwanted word) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_opt_parse(int argc, char **argv, const ech_opt *opts, size_t n,
                                      ech_opt_list *words);

/** Release and zero. */
void ech_opt_list_fini(ech_opt_list *list);

/** Refuse a path of the command line behind which there is nothing: a mistake of who typed it, unlike
 *  a file that cannot be read.
 *  @param path  borrowed
 *  @return ECH_OK | ECH_E_USAGE */
ECH_MUST_USE ech_status ech_cli_check_path(const char *path);

/** Show the last error on stderr (each finding on a line of its own; the chain of places where the
 *  log level is debug) and return the exit status of st.  Prints nothing for st >= 0.
 *  @param st  what the command ended with */
int ech_cli_fail(ech_status st);

/** Print an answer on stdout, all of it or nothing, and release it.
 *  @param answer  in/out
 *  @return ECH_OK | ECH_E_NOMEM (it had failed) */
ECH_MUST_USE ech_status ech_cli_print(ech_text *answer);

/** The same of a JSON document, which it ends with a line's end. */
ECH_MUST_USE ech_status ech_cli_print_json(ech_jout *answer);

/** Are colours and progress bars wanted on this stream (1 or 2): a terminal, NO_COLOR unset or
 *  empty, TERM not "dumb". */
bool ech_cli_has_colour(int fd);

#endif
