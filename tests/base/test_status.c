/* RUN: np=1 timeout=20 tags=fast,thread */
#include "check.h"

#include <pthread.h>

static void test_names_texts_and_exit_codes(void **state)
{
    (void)state;
    assert_string_equal(ech_status_name(ECH_E_CONFIG), "ECH_E_CONFIG");
    assert_string_equal(ech_status_text(ECH_E_NOMEM), "out of memory");
    assert_string_equal(ech_status_name((ech_status)-999), "unknown status");
    assert_int_equal(ech_status_exit_code(ECH_OK), 0);
    assert_int_equal(ech_status_exit_code(ECH_BLOCKED), 0);
    assert_int_equal(ech_status_exit_code(ECH_E_CORRUPT), 1);
    assert_int_equal(ech_status_exit_code(ECH_E_PARSE), 2);
    assert_int_equal(ech_status_exit_code(ECH_E_INFEASIBLE), 3);
    assert_int_equal(ech_status_exit_code(ECH_E_IO), 4);
    assert_int_equal(ech_status_exit_code(ECH_E_TIMEOUT), 1); /* the job ran, a rank hung */
    assert_int_equal(ech_status_exit_code((ech_status)-999), 1);
}

static ech_status inner(int x)
{
    ECH_CHECK(x > 0, ECH_E_ILLEGAL, "x is %d, wanted > 0", x);
    return ECH_OK;
}

static ech_status outer(int x)
{
    ECH_TRY(inner(x));
    return ECH_DONE;
}

static ech_status with_cleanup(int x, int *cleaned)
{
    ech_status st;
    ECH_TRY_GOTO(st, inner(x), end);
    st = ECH_DONE;
end:
    (*cleaned)++;
    return st;
}

static void test_chain_names_each_caller(void **state)
{
    int cleaned = 0;
    int places = 0;
    (void)state;
    assert_int_equal(outer(1), ECH_DONE);
    assert_int_equal(outer(-2), ECH_E_ILLEGAL);
    assert_string_equal(ech_error_message(), "x is -2, wanted > 0");
    for (const char *p = ech_error_trail(); (p = strstr(p, "test_status.c:")) != NULL; p++)
        places++;
    assert_int_equal(places, 2);
    assert_non_null(strstr(ech_error_trail(), " < "));
    assert_int_equal(with_cleanup(1, &cleaned), ECH_DONE);
    assert_int_equal(with_cleanup(0, &cleaned), ECH_E_ILLEGAL);
    assert_int_equal(cleaned, 2);
    ech_error_clear();
    assert_string_equal(ech_error_message(), "");
    assert_string_equal(ech_error_trail(), "");
}

static void test_prefix_and_quoting_of_itself(void **state)
{
    (void)state;
    (void)ECH_RAISE(ECH_E_IO, "inner");
    assert_int_equal(ech_error_prefix(ECH_E_IO, "file:%d: ", 3), ECH_E_IO);
    assert_string_equal(ech_error_message(), "file:3: inner");
    (void)ECH_RAISE(ECH_E_IO, "outer (%s)", ech_error_message());
    assert_string_equal(ech_error_message(), "outer (file:3: inner)");
}

static void test_messages_are_cut_and_clean(void **state)
{
    char endless[8192];
    (void)state;
    memset(endless, 'y', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    (void)ECH_RAISE(ECH_E_PARSE, "%s", endless);
    assert_true(strlen(ech_error_message()) < 4096 && strlen(ech_error_message()) > 4000);
    (void)ech_error_prefix(ECH_E_PARSE, "%s", endless);
    assert_true(strlen(ech_error_message()) < 4096);
    for (int i = 0; i < 200; i++)
        (void)ech_error_trace(ECH_E_PARSE, __FILE__, __LINE__);
    assert_true(strlen(ech_error_trail()) < 1024);
    (void)ECH_RAISE(ECH_E_PARSE, "name '%s'\nnext", "\x1b]0;x\x7f");
    assert_string_equal(ech_error_message(), "name '?]0;x?'\nnext");
    (void)ech_error_prefix(ECH_E_PARSE, "%s: ", "\x1b[2J.yaml");
    assert_string_equal(ech_error_message(), "?[2J.yaml: name '?]0;x?'\nnext");
}

static void *raise_other(void *arg)
{
    (void)arg;
    assert_string_equal(ech_error_message(), "");
    (void)ECH_RAISE(ECH_E_COMM, "other thread");
    return NULL;
}

static void test_threads_have_their_own_chain(void **state)
{
    pthread_t thread;
    (void)state;
    (void)ECH_RAISE(ECH_E_IO, "this thread");
    assert_int_equal(pthread_create(&thread, NULL, raise_other, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(ech_error_message(), "this thread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_texts_and_exit_codes),
        cmocka_unit_test(test_chain_names_each_caller),
        cmocka_unit_test(test_prefix_and_quoting_of_itself),
        cmocka_unit_test(test_messages_are_cut_and_clean),
        cmocka_unit_test(test_threads_have_their_own_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
