/** @file base/status.h
 *  Status codes, the error chain, checks and asserts: how every call says what went wrong.
 *
 *  A function that can fail returns ech_status: 0 done, > 0 progress, < 0 error.  The place that
 *  finds the error raises it with ECH_CHECK or ECH_RAISE (what, got, wanted, who); each caller
 *  passes it up with ECH_TRY, which adds its file and line to a thread-local chain.  Only the
 *  command line prints the chain and exits.  Local, no allocation. */
#ifndef ECH_BASE_STATUS_H
#define ECH_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/** Code, exit status of the command line and text, one row each. */
#define ECH_STATUS_LIST(X)                                                                         \
    X(ECH_OK, 0, 0, "done")                                                                        \
    X(ECH_BLOCKED, 1, 0, "waits for a message")                                                    \
    X(ECH_DONE, 2, 0, "finished")                                                                  \
    X(ECH_E_FAILED, -1, 1, "the job failed")                                                       \
    X(ECH_E_CORRUPT, -2, 1, "damaged data")                                                        \
    X(ECH_E_DEADLOCK, -3, 1, "ranks wait for each other")                                          \
    X(ECH_E_PROOF, -4, 1, "the program is wrong")                                                  \
    X(ECH_E_CONFIG, -10, 2, "wrong configuration")                                                 \
    X(ECH_E_USAGE, -11, 2, "wrong usage")                                                          \
    X(ECH_E_ILLEGAL, -12, 2, "not a legal combination")                                            \
    X(ECH_E_PARSE, -13, 2, "cannot be parsed")                                                     \
    X(ECH_E_DATA, -14, 2, "wrong input data")                                                      \
    X(ECH_E_UNSUPPORTED, -15, 2, "not built yet")                                                  \
    X(ECH_E_INFEASIBLE, -20, 3, "does not fit")                                                    \
    X(ECH_E_IO, -30, 4, "input or output failed")                                                  \
    X(ECH_E_NOMEM, -31, 4, "out of memory")                                                        \
    X(ECH_E_ENV, -32, 4, "the environment lacks something")                                        \
    X(ECH_E_COMM, -33, 4, "communication failed")                                                  \
    X(ECH_E_TIMEOUT, -34, 1, "a peer did not answer in time")

typedef enum ech_status {
#define ECH_STATUS_ENUM(name, value, exit_code, text) name = (value),
    ECH_STATUS_LIST(ECH_STATUS_ENUM)
#undef ECH_STATUS_ENUM
} ech_status;

#define ECH_MUST_USE           __attribute__((warn_unused_result))
#define ECH_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/** Name of a status, such as "ECH_E_CONFIG"; static storage. */
const char *ech_status_name(ech_status st);

/** Its text, such as "wrong configuration"; static storage. */
const char *ech_status_text(ech_status st);

/** Exit status of the command line for st (0, 1, 2, 3, 4). */
int ech_status_exit_code(ech_status st);

/** Start a new error chain with a message and return st.  Used through ECH_RAISE and ECH_CHECK.
 *  @param st    a negative status
 *  @param file  source file of the raise
 *  @param line  its line
 *  @param fmt   printf format: what, got, wanted, who
 *  @return st */
ech_status ech_error_raise(ech_status st, const char *file, int line, const char *fmt, ...)
    ECH_PRINTF(4, 5);

/** Add a caller to the chain; used through ECH_TRY.
 *  @return st */
ech_status ech_error_trace(ech_status st, const char *file, int line);

/** Put words in front of the current message ("config.yaml:3:5: " ...) and return st. */
ech_status ech_error_prefix(ech_status st, const char *fmt, ...) ECH_PRINTF(2, 3);

/** Message of the last error raised on this thread ("" if none); valid until the next raise. */
const char *ech_error_message(void);

/** The chain of places, innermost first, as "file:line < file:line"; valid until the next raise. */
const char *ech_error_trail(void);

/** Forget the last error of this thread. */
void ech_error_clear(void);

/** Print the assertion and abort.  Used through ECH_ASSERT. */
_Noreturn void ech_assert_fail(const char *what, const char *file, int line);

#define ECH_RAISE(code, ...) ech_error_raise((code), __FILE__, __LINE__, __VA_ARGS__)

/** Environment, files, input, peers: return an error if cond does not hold. */
#define ECH_CHECK(cond, code, ...)                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return ECH_RAISE((code), __VA_ARGS__);                                                 \
    } while (0)

/** Pass an error up. */
#define ECH_TRY(call)                                                                              \
    do {                                                                                           \
        const ech_status ech_try_st_ = (call);                                                     \
        if (ech_try_st_ < 0)                                                                       \
            return ech_error_trace(ech_try_st_, __FILE__, __LINE__);                               \
    } while (0)

/** The same with cleanup: sets the status variable and jumps. */
#define ECH_TRY_GOTO(st, call, label)                                                              \
    do {                                                                                           \
        (st) = (call);                                                                             \
        if ((st) < 0) {                                                                            \
            (void)ech_error_trace((st), __FILE__, __LINE__);                                       \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/** Impossible states; always on, so keep it cheap. */
#define ECH_ASSERT(cond)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            ech_assert_fail(#cond, __FILE__, __LINE__);                                            \
    } while (0)

#endif
