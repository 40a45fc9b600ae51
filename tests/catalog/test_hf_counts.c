/* RUN: np=1 timeout=20 tags=fast */
/* fixtures/hf_counts.json: small variants of each family (keys left out, null, true, false) with
 * the number of parameters that Transformers 5.24 makes of them on the meta device, the router's
 * correction bias (a buffer there) included. */
#include "check.h"
#include "fixture.h"

#include "base/node.h"
#include "catalog/canon.h"

#include <stdlib.h>

static ech_node *fixture;

static int read_fixture(void **state)
{
    (void)state;
    const char *path = fixture_path("tests/catalog/fixtures/hf_counts.json");
    return ech_node_read_file(path, true, &fixture) == ECH_OK ? 0 : -1;
}

static int drop_fixture(void **state)
{
    (void)state;
    ech_node_destroy(&fixture);
    return 0;
}

static void every_variant_counts(void **state)
{
    (void)state;
    int i = 0;
    for (const ech_node *x = fixture->child; x; x = x->next, i++) {
        ech_model m;
        ech_param_count count;
        char name[32];
        (void)snprintf(name, sizeof name, "variant %d", i);
        assert_ok(ech_model_from_hf(ech_node_find(x, "config"), name, &m));
        assert_ok(ech_model_count(&m, &count));
        const int64_t wanted = ech_node_find(x, "params")->integer;
        if (count.total != wanted)
            fail_msg("%s, %s: got %lld, wanted %lld", name, m.family, (long long)count.total,
                     (long long)wanted);
        assert_true(count.active <= count.total);
        assert_true(count.active == count.total || m.moe.topk < m.moe.experts);
    }
    assert_int_equal(i, 138);
}

/* The engine's own list of tensors and the catalogue's agree, padding taken off. */
static void canonical_tensors_count_the_same(void **state)
{
    (void)state;
    int n_executable = 0;
    for (const ech_node *x = fixture->child; x; x = x->next) {
        ech_model m;
        ech_canon canon;
        assert_ok(ech_model_from_hf(ech_node_find(x, "config"), "variant", &m));
        if (!m.is_executable)
            continue;
        assert_ok(ech_canon_create(&m, &canon));
        const int64_t padding =
            (canon.vocab_padded - m.vocab) * m.hidden * (m.tie_embeddings ? 1 : 2);
        assert_int_equal(canon.elems - padding, ech_node_find(x, "params")->integer);
        ech_canon_fini(&canon);
        n_executable++;
    }
    assert_true(n_executable >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_counts),
        cmocka_unit_test(canonical_tensors_count_the_same),
    };
    return cmocka_run_group_tests(tests, read_fixture, drop_fixture);
}
