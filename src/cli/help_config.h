/** @file cli/help_config.h
 *  The option table of the configuration as a page for people.  Local, pure. */
#ifndef ECH_CLI_HELP_CONFIG_H
#define ECH_CLI_HELP_CONFIG_H

#include "base/text.h" /* ech_text */

/** Append every key: default, unit, legal values, what is built, meaning. */
void ech_help_config_text(ech_text *out);

/** The same as docs/config.md. */
void ech_help_config_markdown(ech_text *out);

#endif
