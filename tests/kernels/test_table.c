/* RUN: np=1 timeout=20 tags=fast */
/* The kernel table: complete from ref, overridden only where a set takes kind and type. */
#include "check.h"

#include "kernels/kernels.h"

static void fast_linear(const ech_kernel_call *call)
{
    (void)call;
}

static bool takes_f32(ech_op_kind kind, ech_dtype real)
{
    (void)kind;
    return real == ECH_F32;
}

static const ech_kernel_set fast = {.name = "fast",
                                    .priority = 10,
                                    .supports = takes_f32,
                                    .kernel = {[ECH_OP_LINEAR] = fast_linear}};

static void test_reference_is_complete(void **state)
{
    (void)state;
    static const ech_dtype types[] = {ECH_F32, ECH_F64};
    for (int t = 0; t < 2; t++) {
        ech_kernel_table table;
        assert_ok(ech_kernel_table_make(NULL, types[t], &table));
        for (int kind = 0; kind < ECH_N_OPS; kind++) {
            const bool is_comm = ech_op_is_comm((ech_op_kind)kind);
            assert_true((table.kernel[kind] == NULL) == is_comm);
            assert_ptr_equal(table.from[kind], is_comm ? NULL : ech_kernel_set_ref());
        }
    }
}

static void test_fast_set_overrides_what_it_takes(void **state)
{
    (void)state;
    ech_kernel_table table;
    assert_ok(ech_kernel_table_make(&fast, ECH_F32, &table));
    assert_true(table.kernel[ECH_OP_LINEAR] == fast_linear);
    assert_ptr_equal(table.from[ECH_OP_LINEAR], &fast);
    assert_true(table.kernel[ECH_OP_GELU] == ech_kernel_set_ref()->kernel[ECH_OP_GELU]);
    assert_ptr_equal(table.from[ECH_OP_GELU], ech_kernel_set_ref());

    assert_ok(ech_kernel_table_make(&fast, ECH_F64, &table));
    assert_ptr_equal(table.from[ECH_OP_LINEAR], ech_kernel_set_ref());
}

static void test_type_without_kernels_is_refused(void **state)
{
    (void)state;
    ech_kernel_table table, before;
    memset(&table, 0x5a, sizeof table);
    before = table;
    assert_fails(ech_kernel_table_make(NULL, ECH_BF16, &table), ECH_E_UNSUPPORTED,
                 "op 'zero' has no kernel for bf16 arguments (sets: ref)");
    assert_fails(ech_kernel_table_make(&fast, ECH_BF16, &table), ECH_E_UNSUPPORTED, "ref, fast");
    assert_memory_equal(&table, &before, sizeof table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_is_complete),
        cmocka_unit_test(test_fast_set_overrides_what_it_takes),
        cmocka_unit_test(test_type_without_kernels_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
