/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "fixture.h"

#include "base/io.h"
#include "catalog/model.h"
#include "known_models.h"

#include <stdlib.h>

static const char *folder;

static void assert_same_shape(const ech_model *a, const ech_model *b)
{
    assert_string_equal(a->family, b->family);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->ffn, b->ffn);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->act, b->act);
    assert_int_equal(a->rope.kind, b->rope.kind);
    assert_near(a->rope.theta, b->rope.theta, 0.0);
    assert_near(a->rope.factor, b->rope.factor, 0.0);
    assert_near(a->rope.partial, b->rope.partial, 1e-15);
    assert_int_equal(a->rope.original_context, b->rope.original_context);
    assert_near(a->norm_eps, b->norm_eps, 0.0);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->window_layers, b->window_layers);
    assert_int_equal(a->moe.experts, b->moe.experts);
    assert_int_equal(a->moe.shared_experts, b->moe.shared_experts);
    assert_int_equal(a->is_executable, b->is_executable);
}

/* Real config.json files, where the shared facts are at hand: their totals, and the presets made
 * after them.  (Two of Llama-2's are a first upload with half the context.) */
static void real_files_agree(void **state)
{
    (void)state;
    char **names;
    size_t n;
    int n_files = 0;
    assert_ok(ech_list_folder(folder, &names, &n));
    for (size_t i = 0; i < n; i++) {
        const char *end = strstr(names[i], ".json");
        size_t j = 0;
        if (!end)
            continue;
        while (j < N_KNOWN &&
               !(known[j].file && strlen(known[j].file) == (size_t)(end - names[i]) &&
                 strncmp(known[j].file, names[i], strlen(known[j].file)) == 0))
            j++;
        if (j == N_KNOWN)
            fail_msg("%s is not in the table", names[i]);
        ech_model file;
        ech_model preset;
        ech_param_count c;
        char path[4400];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_ok(ech_model_load(path, &file));
        assert_ok(ech_model_load(known[j].name, &preset));
        assert_ok(ech_model_count(&file, &c));
        if (c.total != known[j].total)
            fail_msg("%s: got %lld, wanted %lld", names[i], (long long)c.total,
                     (long long)known[j].total);
        assert_same_shape(&file, &preset);
        n_files++;
    }
    ech_names_destroy(&names, n);
    assert_true(n_files >= 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_files_agree)};
    folder = shared_path("configs/hf");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
