/** @file cli/check_program.h
 *  check --program: the proof of programs that files bring.  Local. */
#ifndef ECH_CLI_CHECK_PROGRAM_H
#define ECH_CLI_CHECK_PROGRAM_H

#include "base/status.h" /* ech_status */

#include <stdbool.h>

/** Load the program of a file, or, where there is no such file but path.0, those of path.0, path.1, ...,
 *  one a pipeline rank of the layout in the first; prove them together and print the proof.
 *  @param path     borrowed
 *  @param is_json  one JSON document in place of lines
 *  @return ECH_OK | ECH_E_PROOF, after printing, or where two files are of different layouts
 *        | as ech_program_load (program/program_file.h) */
ECH_MUST_USE ech_status ech_cli_check_program(const char *path, bool is_json);

#endif
