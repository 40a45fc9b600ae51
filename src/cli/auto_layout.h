/** @file cli/auto_layout.h
 *  `layout: auto` for the commands that read a configuration: the machine's file and memory, and the
 *  choice.  Local. */
#ifndef ECH_CLI_AUTO_LAYOUT_H
#define ECH_CLI_AUTO_LAYOUT_H

#include "train/auto_layout.h" /* ech_auto_spec */

/** What a command knows. */
typedef struct ech_cli_auto {
    int ranks;           /**< of the run; 0: not said */
    int ranks_here;      /**< of them on this host; 0: all */
    const char *cluster; /**< file of bench --save; NULL: none */
    const char *resume;  /**< NULL: auto */
} ech_cli_auto;

/** Choose where the configuration asks for it.  A rank's memory is memory.device, else its share of what
 *  the machine's file says, else of this machine's.
 *  @param cfg    in/out
 *  @param ask    borrowed
 *  @param words  appended to: what was chosen and why; nothing where layout is not auto
 *  @return as ech_auto_choose | ECH_E_IO | ECH_E_PARSE | ECH_E_CONFIG (a file that is none, no ranks) */
ECH_MUST_USE ech_status ech_cli_auto_layout(ech_config *cfg, const ech_cli_auto *ask,
                                            ech_text *words);

#endif
