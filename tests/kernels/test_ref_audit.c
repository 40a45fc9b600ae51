/* RUN: np=1 timeout=60 tags=fast */
/* The reference set touches the bytes it is declared to touch; and the audit that says so finds
 * kernels which do not. */
#include "audit.h"
#include "check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_reference_passes(void **state)
{
    (void)state;
    assert_int_equal(audit_kernel_set(ech_kernel_set_ref(), ECH_F64), 0);
    assert_int_equal(audit_kernel_set(ech_kernel_set_ref(), ECH_F32), 0);
}

static void run_ref(const ech_kernel_call *call)
{
    ech_kernel_set_ref()->kernel[call->kind](call);
}

/* The last element keeps what was there. */
static void leaves_last_element(const ech_kernel_call *call)
{
    double *y = call->arg[1].data;
    const int64_t last = call->arg[1].dim[0] * call->arg[1].dim[1] - 1;
    const double old = y[last];
    run_ref(call);
    y[last] = old;
}

static void changes_its_input(const ech_kernel_call *call)
{
    run_ref(call);
    ((double *)call->arg[0].data)[0] += 1.0;
}

static void writes_past_the_end(const ech_kernel_call *call)
{
    run_ref(call);
    ((double *)call->arg[1].data)[call->arg[1].dim[0] * call->arg[1].dim[1]] = 0.0;
}

static void writes_before_the_start(const ech_kernel_call *call)
{
    run_ref(call);
    if (call->threads > 1) /* the run in which there is room before */
        ((double *)call->arg[1].data)[-1] = 0.0;
}

static void depends_on_threads(const ech_kernel_call *call)
{
    run_ref(call);
    ((double *)call->arg[1].data)[0] += call->threads;
}

static void writes_past_its_scratch(const ech_kernel_call *call)
{
    run_ref(call);
    ((char *)call->work)[call->work_bytes] = 1;
}

static void assert_audit_says(ech_op_kind kind, ech_kernel kernel, const char *words)
{
    char why[256] = "";
    kernel_case c;
    kernel_case_make(&c, kind, 0, ECH_F64, 0);
    const bool is_clean = audit_kernel(kernel, &c, why, sizeof why);
    kernel_case_fini(&c);
    if (is_clean || !strstr(why, words))
        fail_msg("the audit says '%s', not '%s'", why, words);
}

static void test_faulty_kernels_are_found(void **state)
{
    (void)state;
    assert_audit_says(ECH_OP_GELU, leaves_last_element, "operand 1 was not written to the last");
    assert_audit_says(ECH_OP_GELU, changes_its_input, "operand 0 is an input and was changed");
    assert_audit_says(ECH_OP_GELU, writes_past_the_end, "operand 1 was written past its end");
    assert_audit_says(ECH_OP_GELU, writes_before_the_start, "operand 1 was written before");
    assert_audit_says(ECH_OP_GELU, depends_on_threads, "operand 1 depends on");
    assert_audit_says(ECH_OP_XENT, writes_past_its_scratch, "operand 10 was written past its end");
}

/* Reading is seen where it faults: the gradient that sumsq reads ends at the guard page. */
static void reads_past_the_end(const ech_kernel_call *call)
{
    const volatile double *x = call->arg[0].data;
    (void)x[call->arg[0].dim[0]];
    run_ref(call);
}

static void test_reading_past_the_end_faults(void **state)
{
    (void)state;
    int fd[2], status = 0;
    char text[256] = "";
    assert_int_equal(pipe(fd), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char why[256];
        kernel_case c;
        (void)dup2(fd[1], STDERR_FILENO);
        kernel_case_make(&c, ECH_OP_SUMSQ, 0, ECH_F64, 0);
        (void)audit_kernel(reads_past_the_end, &c, why, sizeof why);
        _exit(0);
    }
    (void)close(fd[1]);
    size_t have = 0;
    for (ssize_t n = 1; n > 0 && have + 1 < sizeof text; have += n > 0 ? (size_t)n : 0)
        n = read(fd[0], text + have, sizeof text - 1 - have);
    (void)close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_string_equal(text,
                        "audit: sumsq fp64 seed 0, no copies: touches memory after operand 00:"
                        " fault\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_passes),
        cmocka_unit_test(test_faulty_kernels_are_found),
        cmocka_unit_test(test_reading_past_the_end_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
