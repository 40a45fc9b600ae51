/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "base/io_lock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char holder[100];

/* A process that holds the file until it is killed; it has it when this returns. */
static pid_t hold(const char *path, const char *words)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        ech_lock *lock = NULL;
        if (ech_lock_take(path, words, &lock, holder, sizeof holder) != ECH_OK || !lock ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return child;
}

static void end(pid_t child)
{
    int how;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
}

/* Held by another: refused with its words.  Left by a dead one: taken over.  Let go: nothing is
 * left. */
static void test_one_holder(void **state)
{
    const char *path = in_folder(state, "lock");
    ech_lock *lock = NULL;
    ech_lock *second = NULL;
    const pid_t child = hold(path, "a rather long name of the first holder");
    assert_int_equal(ech_lock_take(path, "me", &lock, holder, sizeof holder), ECH_BLOCKED);
    assert_string_equal(holder, "a rather long name of the first holder");
    assert_null(lock);
    end(child);
    assert_true(ech_path_exists(path));
    assert_ok(ech_lock_take(path, "me", &lock, holder, sizeof holder));
    assert_non_null(lock);
    assert_int_equal(ech_lock_take(path, "us", &second, holder, sizeof holder), ECH_BLOCKED);
    assert_string_equal(holder, "me"); /* the longer words are gone */
    ech_lock_release(&lock);
    assert_null(lock);
    assert_false(ech_path_exists(path));
    ech_lock_release(&lock);
    assert_ok(ech_lock_take(path, "us", &second, holder, sizeof holder));
    ech_lock_release(&second);
}

static int error;

static int fail_lock(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)path;
    (void)bytes;
    (void)user;
    return strcmp(op, "lock") == 0 ? -error : 0;
}

static void test_no_locks(void **state)
{
    const char *path = in_folder(state, "none");
    ech_lock *lock = NULL;
    ech_io_set_hook(fail_lock, NULL);
    error = ENOLCK;
    assert_ok(ech_lock_take(path, "me", &lock, holder, sizeof holder));
    assert_null(lock);
    assert_false(ech_path_exists(path));
    error = EIO;
    assert_fails(ech_lock_take(path, "me", &lock, holder, sizeof holder), ECH_E_IO, "cannot lock");
    ech_io_set_hook(NULL, NULL);
    assert_fails(ech_lock_take("/no/such/folder", "me", &lock, holder, sizeof holder), ECH_E_IO,
                 "No such file");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {IN_FOLDER(test_one_holder), IN_FOLDER(test_no_locks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
