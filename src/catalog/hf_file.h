/** @file catalog/hf_file.h
 *  What the readers of an HF config.json share.  Inside catalog only.  Local. */
#ifndef ECH_CATALOG_HF_FILE_H
#define ECH_CATALOG_HF_FILE_H

#include "catalog/family.h"     /* ech_family */
#include "catalog/key_reader.h" /* ech_key_reader */

/** What reading needs at hand. */
typedef struct ech_hf_file {
    ech_key_reader r;
    const ech_node *outer;    /**< whole file where r.map is its text_config, else r.map */
    const ech_family *family; /**< never NULL while a family's keys are read */
    bool is_difference;       /**< a text_config states differences from its class */
} ech_hf_file;

/** Keys that one family alone has (GPT-2, OPT, BLOOM, Falcon, Phi-MoE, DBRX), after the common sizes are read:
 *  what they switch and the sizes they hold.  Findings go to h. */
void ech_hf_read_own_keys(const ech_hf_file *h, ech_model *m);

#endif
