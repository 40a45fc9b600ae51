/* Cases of a fixture: [text, ids] or [text, ids, text with special tokens, text without]. */
#ifndef ECH_TESTS_DATA_CASES_H
#define ECH_TESTS_DATA_CASES_H

#include "check.h" /* cmocka */

#include "base/node.h"      /* ech_node */
#include "data/tokenizer.h" /* ech_tokenizer */

#include <stdlib.h>

static inline void check_ids(const char *what, const ech_node *text, const ech_node *want,
                             const ech_ids *got)
{
    const ech_node *v = want->child;

    for (size_t i = 0; i < got->n; i++, v = v->next) {
        if (!v || v->integer != got->data[i])
            fail_msg("%s: '%s': id %zu is %d, wanted %lld", what, text->string, i, got->data[i],
                     v ? (long long)v->integer : -1LL);
    }
    if (v)
        fail_msg("%s: '%s': %zu ids, wanted %lld", what, text->string, got->n, (long long)want->n);
}

static inline void check_decoded(const char *what, const ech_tokenizer *t, const ech_ids *ids,
                                 bool keep_special, const ech_node *want)
{
    ech_text out = {0};

    assert_ok(ech_tokenizer_decode(t, ids->data, ids->n, keep_special, &out));
    if (out.bytes != want->string_bytes || strcmp(ech_text_get(&out), want->string) != 0)
        fail_msg("%s: decoded '%s', wanted '%s'", what, ech_text_get(&out), want->string);
    ech_text_fini(&out);
}

static inline void check_cases(const char *what, ech_tokenizer *t, const ech_node *cases,
                               unsigned flags)
{
    int n = 0;

    for (const ech_node *c = cases->child; c; c = c->next, n++) {
        const ech_node *text = c->child;
        const ech_node *ids = text->next;
        ech_ids got = {0};
        assert_ok(ech_tokenizer_encode(t, text->string, text->string_bytes, flags, &got));
        check_ids(what, text, ids, &got);
        if (ids->next) {
            check_decoded(what, t, &got, true, ids->next);
            check_decoded(what, t, &got, false, ids->next->next);
        }
        ech_ids_fini(&got);
    }
    assert_in_range(n, 30, 1000);
}

#endif
