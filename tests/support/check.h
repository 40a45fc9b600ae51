/** @file support/check.h
 *  cmocka with the headers it wants, and the asserts that Echelon's tests share. */
#ifndef ECH_TESTS_CHECK_H
#define ECH_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h" /* ech_status */

/** The call returns ECH_OK; prints the error chain where it does not. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        const ech_status check_st_ = (call);                                                       \
        if (check_st_ != ECH_OK)                                                                   \
            fail_msg("%s: %s: %s (%s)", #call, ech_status_name(check_st_), ech_error_message(),    \
                     ech_error_trail());                                                           \
    } while (0)

/** The call fails with this status and a message that contains `words`. */
#define assert_fails(call, status, words)                                                          \
    do {                                                                                           \
        const ech_status check_st_ = (call);                                                       \
        if (check_st_ != (status))                                                                 \
            fail_msg("%s: got %s, wanted %s: %s", #call, ech_status_name(check_st_),               \
                     ech_status_name(status), ech_error_message());                                \
        if (!strstr(ech_error_message(), (words)))                                                 \
            fail_msg("%s: message '%s' does not say '%s'", #call, ech_error_message(), (words));   \
    } while (0)

/** |got - wanted| <= bound; false for NaN. */
#define assert_near(got, wanted, bound)                                                            \
    do {                                                                                           \
        const double check_got_ = (got);                                                           \
        const double check_wanted_ = (wanted);                                                     \
        const double check_diff_ = check_got_ - check_wanted_;                                     \
        if (!(check_diff_ <= (bound) && -check_diff_ <= (bound)))                                  \
            fail_msg("%s: got %.17g, wanted %.17g within %g", #got, check_got_, check_wanted_,     \
                     (double)(bound));                                                             \
    } while (0)

#endif
