/* RUN: np=1 timeout=60 tags=fast */
/* The cases themselves are legal ops; the reference in fp32 stays near itself in fp64; and the
 * comparison that fast sets are held to finds a wrong kernel. */
#include "check.h"
#include "kernel_cases.h"

#include <math.h>

/* fp32 storage, double sums: a few roundings of inputs and results, more where saved tensors and
 * exponentials pass them on. */
static const double fp32_bound = 4e-6;

static void test_cases_are_legal_ops(void **state)
{
    (void)state;
    for (int kind = 0; kind < KERNEL_CASE_KINDS; kind++) {
        assert_true(kernel_case_variants((ech_op_kind)kind) >= 1);
        for (int variant = 0; variant < kernel_case_variants((ech_op_kind)kind); variant++) {
            kernel_case c;
            kernel_case_make(&c, (ech_op_kind)kind, variant, ECH_F64, 0);
            const ech_op op = kernel_case_op(&c);
            assert_ok(ech_op_check_shape(&op));
            kernel_case_fini(&c);
        }
    }
}

static void check_precision(ech_op_kind kind, int variant, uint64_t seed)
{
    kernel_case f32, f64;
    int arg = -1;
    kernel_case_make(&f32, kind, variant, ECH_F32, seed);
    kernel_case_make(&f64, kind, variant, ECH_F64, seed);
    kernel_case_run(&f32, ech_kernel_set_ref());
    kernel_case_run(&f64, ech_kernel_set_ref());
    const double error = kernel_case_error(&f32, &f64, &arg);
    if (!(error <= fp32_bound))
        fail_msg("%s: argument %d is %.3g from fp64, bound %.3g", f32.name, arg, error, fp32_bound);
    kernel_case_fini(&f32);
    kernel_case_fini(&f64);
}

static void test_fp32_is_near_fp64(void **state)
{
    (void)state;
    for (int kind = 0; kind < KERNEL_CASE_KINDS; kind++)
        for (int variant = 0; variant < kernel_case_variants((ech_op_kind)kind); variant++)
            for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++)
                check_precision((ech_op_kind)kind, variant, seed);
}

/* y = x w^T, the bias forgotten. */
static void linear_without_bias(const ech_kernel_call *call)
{
    ech_kernel_call other = *call;
    other.arg[2].data = NULL;
    ech_kernel_set_ref()->kernel[ECH_OP_LINEAR](&other);
}

/* Right but for one NaN. */
static void swiglu_with_nan(const ech_kernel_call *call)
{
    ech_kernel_set_ref()->kernel[ECH_OP_SWIGLU](call);
    if (call->arg[1].dim[0] > 0)
        ((double *)call->arg[1].data)[0] = (double)NAN;
}

/* Error that the comparison finds where `wrong` stands in for the reference. */
static double error_of(ech_op_kind kind, ech_kernel wrong)
{
    kernel_case got, want;
    int arg = -1;
    kernel_case_make(&got, kind, 0, ECH_F64, 0);
    kernel_case_make(&want, kind, 0, ECH_F64, 0);
    wrong(&got.call);
    kernel_case_run(&want, ech_kernel_set_ref());
    const double error = kernel_case_error(&got, &want, &arg);
    kernel_case_fini(&got);
    kernel_case_fini(&want);
    return error;
}

static void test_comparison_finds_wrong_kernels(void **state)
{
    (void)state;
    assert_true(error_of(ECH_OP_LINEAR, linear_without_bias) > 0.1);
    assert_true(isinf(error_of(ECH_OP_SWIGLU, swiglu_with_nan)));
    assert_true(error_of(ECH_OP_LINEAR, ech_kernel_set_ref()->kernel[ECH_OP_LINEAR]) == 0.0);
    assert_int_equal(kernel_cases_compare(ech_kernel_set_ref(), ECH_F64, 0.0), 0);
    assert_int_equal(kernel_cases_compare(ech_kernel_set_ref(), ECH_F32, 0.0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_are_legal_ops),
        cmocka_unit_test(test_fp32_is_near_fp64),
        cmocka_unit_test(test_comparison_finds_wrong_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
