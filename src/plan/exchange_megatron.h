/** @file plan/exchange_megatron.h
 *  The model's shape in Megatron-LM's arguments, both ways.  Inside plan only.
 *  Source: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py,
 *  Megatron-LM of August 2026.  Local, pure. */
#ifndef ECH_PLAN_EXCHANGE_MEGATRON_H
#define ECH_PLAN_EXCHANGE_MEGATRON_H

#include "catalog/model.h"       /* ech_model */
#include "plan/exchange_words.h" /* ech_words */

/** One argument on a line of its own: "    --name value \". */
void ech_megatron_arg(ech_text *out, const char *name, const char *fmt, ...) ECH_PRINTF(3, 4);

/** Append the shape.  What Megatron has no argument for is left out: reading back shows it. */
void ech_megatron_write_model(const ech_model *m, ech_text *out);

/** Read the shape, everything not said as Megatron has it.
 *  @param w    borrowed
 *  @param out  set where the text has --num-layers
 *  @return has it */
bool ech_megatron_read_model(const ech_words *w, ech_findings *notes, ech_model *out);

/** One flag per layer from a list such as "([0]*3+[1]*58)".
 *  @param words  borrowed
 *  @param flag   out [cap]
 *  @return layers; -1: no such list, or longer than cap */
int ech_megatron_pattern(const char *words, bool *flag, int cap);

#endif
