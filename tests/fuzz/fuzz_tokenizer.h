/** @file fuzz/fuzz_tokenizer.h
 *  What must hold of any tokenizer that was accepted. */
#ifndef ECH_TESTS_FUZZ_TOKENIZER_H
#define ECH_TESTS_FUZZ_TOKENIZER_H

#include "fuzz.h" /* ECH_ASSERT */

#include "data/tokenizer.h" /* ech_tokenizer */

#include <stddef.h>

/** Encode some text: a message, or ids that are tokens and decode. */
static inline void fuzz_use_tokenizer(ech_tokenizer *t)
{
    static const char text[] = "It's a  test,\n\n 123 <s>x</s> \xC3\xA9\xE2\x96\x81\xFF <0x41>";
    ech_ids ids = {0};
    ech_text out = {0};

    const ech_status st = ech_tokenizer_encode(t, text, sizeof text - 1, ECH_ENCODE_PLAIN, &ids);
    ECH_ASSERT(st == ECH_OK || st == ECH_E_DATA);
    for (size_t i = 0; i < ids.n; i++)
        ECH_ASSERT(ids.data[i] >= 0 && ids.data[i] < ech_tokenizer_vocab(t));
    ECH_ASSERT(ech_tokenizer_decode(t, ids.data, ids.n, true, &out) == ECH_OK);
    ech_text_fini(&out);
    ech_ids_fini(&ids);
}

#endif
