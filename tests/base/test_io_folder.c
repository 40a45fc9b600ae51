/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "base/io_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder at path with one file that holds `text`. */
static ech_status put(const char *path, const char *text)
{
    char tmp[4096];
    char file[4096];
    ECH_TRY(ech_folder_create(path, tmp, sizeof tmp));
    ECH_TRY(ech_path_join(tmp, "file", file, sizeof file));
    ECH_TRY(ech_write_whole(file, text, strlen(text)));
    const ech_status st = ech_folder_publish(tmp, path);
    if (st < 0)
        assert_ok(ech_folder_remove(tmp));
    return st;
}

static void expect_text(const char *path, const char *wanted)
{
    char file[4096];
    char *text = NULL;
    size_t bytes = 0;
    assert_ok(ech_path_join(path, "file", file, sizeof file));
    assert_ok(ech_read_whole(file, 100, &text, &bytes));
    assert_string_equal(text, wanted);
    free(text);
}

static void test_new_and_replaced(void **state)
{
    struct stat info;
    const mode_t mask = umask(027);
    assert_ok(put(in_folder(state, "a/b/model"), "one"));
    (void)umask(mask);
    expect_text(in_folder(state, "a/b/model"), "one");
    assert_int_equal(stat(in_folder(state, "a/b/model"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0750); /* the user's umask, not mkdtemp's 0700 */
    assert_ok(put(in_folder(state, "a/b/model/"), "two"));
    expect_text(in_folder(state, "a/b/model"), "two");
    assert_int_equal(folder_count(in_folder(state, "a/b")), 1);
    assert_fails(put("/", "x"), ECH_E_USAGE, "names no folder");
}

/* A file system without the exchange, and then a failing rename on the detour: 0 for none. */
static int renames_before_failure;

static int no_exchange(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    if (strcmp(op, "exchange") == 0)
        return -EINVAL;
    if (strcmp(op, "rename") == 0 && !strstr(path, "/file") && renames_before_failure > 0 &&
        --renames_before_failure == 0)
        return -EIO;
    return 0;
}

static void test_without_exchange(void **state)
{
    const char *path = in_folder(state, "detour/model");
    assert_ok(put(path, "one"));
    ech_io_set_hook(no_exchange, NULL);
    assert_ok(put(path, "two"));
    expect_text(path, "two");
    for (int n = 1; n <= 2; n++) { /* stepping aside fails; putting in place fails */
        renames_before_failure = n;
        assert_fails(put(path, "three"), ECH_E_IO, "cannot put in place");
        assert_int_equal(renames_before_failure, 0);
        expect_text(path, "two");
    }
    ech_io_set_hook(NULL, NULL);
    assert_int_equal(folder_count(in_folder(state, "detour")), 1);
}

static void test_remove(void **state)
{
    assert_ok(ech_folder_remove(in_folder(state, "never")));
    assert_ok(put(in_folder(state, "gone"), "x"));
    assert_ok(ech_folder_remove(in_folder(state, "gone")));
    assert_false(ech_path_exists(in_folder(state, "gone")));
    assert_ok(ech_make_folders(in_folder(state, "kept/sub")));
    assert_fails(ech_folder_remove(in_folder(state, "kept")), ECH_E_IO, "cannot remove");
    assert_true(ech_path_is_folder(in_folder(state, "kept/sub")));
}

static void test_plain_names(void **state)
{
    static const char *const bad[] = {"", ".", "..", "a/b", "/a", "a/", "a\nb", "a\x7f"};
    char name[300];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ech_path_is_plain(bad[i]));
    assert_true(ech_path_is_plain("..a") && ech_path_is_plain(" ") &&
                ech_path_is_plain("\xc3\xa9"));
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    assert_false(ech_path_is_plain(name));
    name[255] = '\0';
    assert_true(ech_path_is_plain(name));
}

static void test_open_in_folder(void **state)
{
    ech_file *f = NULL;
    const char *dir = in_folder(state, "in");
    assert_ok(ech_make_folders(dir));
    assert_ok(ech_write_whole(in_folder(state, "in/x"), "abc", 3));
    assert_ok(ech_file_open_in(dir, "x", &f));
    assert_int_equal(ech_file_bytes(f), 3);
    assert_string_equal(ech_file_path(f), in_folder(state, "in/x"));
    ech_file_close(&f);
    assert_int_equal(symlink("x", in_folder(state, "in/link")), 0);
    assert_fails(ech_file_open_in(dir, "link", &f), ECH_E_ILLEGAL, "is a symbolic link");
    assert_null(f);
    assert_fails(ech_file_open_in(dir, "../in/x", &f), ECH_E_ILLEGAL, "not a plain file name");
    assert_fails(ech_file_open_in(dir, "y", &f), ECH_E_IO, "No such file");
    assert_fails(ech_file_open_in(in_folder(state, "none"), "x", &f), ECH_E_IO, "No such file");
    assert_ok(ech_make_folders(in_folder(state, "in/sub")));
    assert_fails(ech_file_open_in(dir, "sub", &f), ECH_E_IO, "is a folder");
    assert_int_equal(symlink(dir, in_folder(state, "way")),
                     0); /* the folder itself may be a link */
    assert_ok(ech_file_open_in(in_folder(state, "way"), "x", &f));
    ech_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_and_replaced), cmocka_unit_test(test_without_exchange),
        cmocka_unit_test(test_remove),           cmocka_unit_test(test_plain_names),
        cmocka_unit_test(test_open_in_folder),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
