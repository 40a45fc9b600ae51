/* RUN: np=1 timeout=30 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/io.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A hook that fails or shortens the n-th call of one operation, and counts them. */
typedef struct fault {
    const char *op;
    int at;     /* first call that fails, from 1; 0: never */
    int times;  /* how many fail */
    int answer; /* what the hook answers then */
    int seen;
    int64_t bytes;
} fault;

static int inject(const char *op, const char *path, int64_t bytes, void *user)
{
    fault *f = user;
    (void)path;
    if (strcmp(op, f->op) != 0)
        return 0;
    f->seen++;
    f->bytes += bytes;
    return f->at > 0 && f->seen >= f->at && f->seen < f->at + f->times ? f->answer : 0;
}

static void check_contents(const char *path, const char *wanted)
{
    char *data;
    size_t bytes;
    assert_ok(ech_read_whole(path, 1 << 20, &data, &bytes));
    assert_string_equal(data, wanted);
    assert_int_equal(bytes, strlen(wanted));
    free(data);
}

static void test_write_and_read_whole(void **state)
{
    const char *path = in_folder(state, "a");
    char *data;
    size_t bytes;
    assert_ok(ech_write_whole(path, "one\0two", 7));
    assert_ok(ech_read_whole(path, 7, &data, &bytes));
    assert_int_equal(bytes, 7);
    assert_memory_equal(data, "one\0two", 8);
    free(data);
    assert_fails(ech_read_whole(path, 6, &data, &bytes), ECH_E_IO, "more than 6");
    assert_null(data);
    assert_ok(ech_write_whole(path, "", 0));
    check_contents(path, "");
    assert_int_equal(folder_count(*state), 1);
}

static void test_files_without_a_size_are_read(void **state)
{
    char *data;
    size_t bytes;
    (void)state;
    assert_ok(ech_read_whole("/proc/self/status", 1 << 20, &data, &bytes));
    assert_non_null(strstr(data, "VmRSS"));
    assert_int_equal(bytes, strlen(data));
    free(data);
    assert_fails(ech_read_whole("/proc/self/status", 10, &data, &bytes), ECH_E_IO,
                 "larger than 10");
}

static void test_a_large_file_is_read(void **state)
{
    enum { N = 3000001 };
    char *data = malloc(N);
    char *back;
    size_t bytes;
    assert_non_null(data);
    for (int i = 0; i < N; i++)
        data[i] = (char)(i * 31 + i / 251);
    assert_ok(ech_write_whole(in_folder(state, "big"), data, N));
    assert_ok(ech_read_whole(in_folder(state, "big"), N, &back, &bytes));
    assert_int_equal(bytes, N);
    assert_memory_equal(back, data, N);
    free(back);
    free(data);
}

static void test_open_names_path_and_reason(void **state)
{
    ech_file *f;
    assert_fails(ech_file_open(in_folder(state, "no"), &f), ECH_E_IO, "no: No such file");
    assert_null(f);
    assert_fails(ech_file_open(*state, &f), ECH_E_IO, "is a folder");
    assert_int_equal(mkfifo(in_folder(state, "pipe"), 0600), 0);
    assert_fails(ech_file_open(in_folder(state, "pipe"), &f), ECH_E_IO, "device or pipe");
    assert_fails(ech_file_create(in_folder(state, "no/such"), &f), ECH_E_IO, "cannot create");
    assert_null(f);
}

/* A file is put in place of a file only; a link is followed, so that it stays a link. */
static void test_what_a_new_file_replaces(void **state)
{
    struct stat info;
    ech_file *f;
    assert_int_equal(mkfifo(in_folder(state, "fifo"), 0600), 0);
    assert_fails(ech_file_create(in_folder(state, "fifo"), &f), ECH_E_IO, "device or pipe");
    assert_fails(ech_file_create(*state, &f), ECH_E_IO, "is a folder");
    assert_ok(ech_write_whole(in_folder(state, "real"), "old", 3));
    assert_int_equal(symlink("real", in_folder(state, "link")), 0);
    assert_ok(ech_write_whole(in_folder(state, "link"), "new", 3));
    check_contents(in_folder(state, "real"), "new");
    assert_int_equal(lstat(in_folder(state, "link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(symlink("nowhere", in_folder(state, "dangling")), 0);
    assert_fails(ech_file_create(in_folder(state, "dangling"), &f), ECH_E_IO, "leads nowhere");
}

static void test_read_at_is_exact(void **state)
{
    ech_file *f;
    char buf[8] = "";
    assert_ok(ech_write_whole(in_folder(state, "a"), "0123456789", 10));
    assert_ok(ech_file_open(in_folder(state, "a"), &f));
    assert_int_equal(ech_file_bytes(f), 10);
    assert_string_equal(ech_file_path(f), in_folder(state, "a"));
    assert_ok(ech_file_read_at(f, buf, 3, 7));
    assert_memory_equal(buf, "789", 3);
    assert_ok(ech_file_read_at(f, buf, 0, 10));
    assert_fails(ech_file_read_at(f, buf, 4, 7), ECH_E_CORRUPT, "ends at byte 10");
    assert_fails(ech_file_read_at(f, buf, 1, 10), ECH_E_CORRUPT, "wanted 1 bytes from byte 10");
    assert_fails(ech_file_read_at(f, buf, 1, -1), ECH_E_CORRUPT, "byte -1");
    assert_fails(ech_file_read_at(f, buf, SIZE_MAX, 5), ECH_E_CORRUPT, "ends at");
    assert_fails(ech_file_read_at(f, buf, 1, INT64_MAX), ECH_E_CORRUPT, "ends at");
    assert_int_equal(truncate(in_folder(state, "a"), 5), 0);
    assert_fails(ech_file_read_at(f, buf, 6, 2), ECH_E_CORRUPT, "was shortened");
    ech_file_close(&f);
    assert_null(f);
    ech_file_close(&f);
}

static void test_nothing_stands_before_publish(void **state)
{
    const char *path = in_folder(state, "a");
    ech_file *f;
    char buf[3];
    assert_ok(ech_write_whole(path, "old", 3));
    assert_ok(ech_file_create(path, &f));
    assert_ok(ech_file_write(f, "ne", 2));
    assert_ok(ech_file_write(f, "w!", 2));
    assert_int_equal(ech_file_bytes(f), 4);
    check_contents(path, "old");
    assert_int_equal(folder_count(*state), 2);
    assert_ok(ech_file_publish(f));
    check_contents(path, "new!");
    assert_ok(ech_file_read_at(f, buf, 3, 1)); /* still open */
    assert_memory_equal(buf, "ew!", 3);
    ech_file_close(&f);
    check_contents(path, "new!");
    assert_int_equal(folder_count(*state), 1);
}

static void test_close_without_publish_leaves_nothing(void **state)
{
    ech_file *f;
    assert_ok(ech_file_create(in_folder(state, "a"), &f));
    assert_ok(ech_file_write(f, "new", 3));
    ech_file_close(&f);
    assert_int_equal(folder_count(*state), 0);
}

static void test_two_writers_do_not_meet(void **state)
{
    const char *path = in_folder(state, "a");
    ech_file *f[2];
    assert_ok(ech_file_create(path, &f[0]));
    assert_ok(ech_file_create(path, &f[1]));
    assert_ok(ech_file_write(f[0], "first", 5));
    assert_ok(ech_file_write(f[1], "second", 6));
    assert_ok(ech_file_publish(f[0]));
    check_contents(path, "first");
    assert_ok(ech_file_publish(f[1]));
    check_contents(path, "second");
    ech_file_close(&f[0]);
    ech_file_close(&f[1]);
    check_contents(path, "second");
}

/* Umask is the user's: new files are as open as it allows. */
static void test_mode_follows_umask(void **state)
{
    struct stat info;
    const mode_t before = umask(027);
    assert_ok(ech_write_whole(in_folder(state, "a"), "x", 1));
    (void)umask(before);
    assert_int_equal(stat(in_folder(state, "a"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

static void check_failed_write(void **state, fault f, const char *words)
{
    const char *path = in_folder(state, "kept");
    assert_ok(ech_write_whole(path, "old", 3));
    ech_io_set_hook(inject, &f);
    const ech_status st = ech_write_whole(path, "brand new", 9);
    ech_io_set_hook(NULL, NULL);
    assert_int_equal(st, ECH_E_IO);
    if (!strstr(ech_error_message(), words) || !strstr(ech_error_message(), path))
        fail_msg("%s: '%s' says neither '%s' nor the path", f.op, ech_error_message(), words);
    check_contents(path, "old");
    assert_int_equal(folder_count(*state), 1);
}

static void test_failures_leave_the_old_file(void **state)
{
    check_failed_write(state, (fault){.op = "create", .at = 1, .times = 1, .answer = -EACCES},
                       "Permission denied");
    check_failed_write(state, (fault){.op = "write", .at = 1, .times = 1, .answer = -ENOSPC},
                       "No space left");
    check_failed_write(state, (fault){.op = "fsync", .at = 1, .times = 1, .answer = -EIO},
                       "Input/output error");
    check_failed_write(state, (fault){.op = "rename", .at = 1, .times = 1, .answer = -EROFS},
                       "Read-only");
}

/* The rename is done by then, so the new file stands; but its name may not survive a power cut. */
static void test_a_failed_folder_sync_is_told(void **state)
{
    fault f = {.op = "fsync-folder", .at = 1, .times = 1, .answer = -EIO};
    ech_io_set_hook(inject, &f);
    assert_fails(ech_write_whole(in_folder(state, "a"), "new", 3), ECH_E_IO, "flush the folder");
    ech_io_set_hook(NULL, NULL);
    check_contents(in_folder(state, "a"), "new");
    assert_int_equal(folder_count(*state), 1);
}

static void test_no_publish_after_a_failed_write(void **state)
{
    fault bad = {.op = "write", .at = 2, .times = 1, .answer = -ENOSPC};
    ech_file *f;
    assert_ok(ech_file_create(in_folder(state, "a"), &f));
    ech_io_set_hook(inject, &bad);
    assert_ok(ech_file_write(f, "one", 3));
    assert_fails(ech_file_write(f, "two", 3), ECH_E_IO, "No space");
    ech_io_set_hook(NULL, NULL);
    assert_fails(ech_file_publish(f), ECH_E_IO, "an earlier write failed");
    ech_file_close(&f);
    assert_int_equal(folder_count(*state), 0);
}

static void test_no_publish_after_a_failed_fsync(void **state)
{
    fault bad = {.op = "fsync", .at = 1, .times = 1, .answer = -EIO};
    ech_file *f;
    assert_ok(ech_file_create(in_folder(state, "a"), &f));
    assert_ok(ech_file_write(f, "one", 3));
    ech_io_set_hook(inject, &bad);
    assert_fails(ech_file_publish(f), ECH_E_IO, "cannot flush");
    assert_fails(ech_file_publish(f), ECH_E_IO, "an earlier write failed");
    ech_io_set_hook(NULL, NULL);
    assert_int_equal(bad.seen, 1); /* a second fsync would lie */
    ech_file_close(&f);
    assert_int_equal(folder_count(*state), 0);
}

static void test_short_and_interrupted_transfers(void **state)
{
    fault one_byte = {.op = "write", .at = 1, .times = INT_MAX / 2, .answer = 1};
    char *data;
    size_t bytes;
    ech_io_set_hook(inject, &one_byte);
    assert_ok(ech_write_whole(in_folder(state, "a"), "0123456789", 10));
    assert_int_equal(one_byte.seen, 10);
    assert_int_equal(one_byte.bytes, 55); /* ten, nine, ... bytes asked for */
    fault again = {.op = "write", .at = 1, .times = 3, .answer = -EINTR};
    ech_io_set_hook(inject, &again);
    assert_ok(ech_write_whole(in_folder(state, "a"), "0123456789", 10));
    assert_int_equal(again.seen, 4);
    fault few = {.op = "read", .at = 1, .times = INT_MAX / 2, .answer = 3};
    ech_io_set_hook(inject, &few);
    assert_ok(ech_read_whole(in_folder(state, "a"), 100, &data, &bytes));
    assert_string_equal(data, "0123456789");
    free(data);
    assert_int_equal(few.seen, 5); /* 3 + 3 + 3 + 1 and the end */
    fault stop = {.op = "read", .at = 2, .times = 1, .answer = -EINTR};
    ech_io_set_hook(inject, &stop);
    assert_ok(ech_read_whole(in_folder(state, "a"), 100, &data, &bytes));
    free(data);
    fault broken = {.op = "read", .at = 1, .times = 1, .answer = -EIO};
    ech_io_set_hook(inject, &broken);
    assert_fails(ech_read_whole(in_folder(state, "a"), 100, &data, &bytes), ECH_E_IO,
                 "cannot read: Input/output error");
    ech_io_set_hook(NULL, NULL);
    assert_null(data);
}

static void test_map(void **state)
{
    const void *p;
    ech_file *f;
    fault bad = {.op = "map", .at = 1, .times = 1, .answer = -ENOMEM};
    assert_ok(ech_write_whole(in_folder(state, "a"), "mapped", 6));
    assert_ok(ech_file_open(in_folder(state, "a"), &f));
    assert_ok(ech_file_map(f, &p));
    assert_memory_equal(p, "mapped", 6);
    ech_unmap(p, 6);
    ech_io_set_hook(inject, &bad);
    assert_fails(ech_file_map(f, &p), ECH_E_IO, "cannot map 6 bytes");
    ech_io_set_hook(NULL, NULL);
    assert_null(p);
    ech_file_close(&f);
    assert_ok(ech_write_whole(in_folder(state, "a"), "", 0));
    assert_ok(ech_file_open(in_folder(state, "a"), &f));
    assert_ok(ech_file_map(f, &p));
    assert_null(p);
    ech_unmap(p, 0);
    ech_file_close(&f);
}

static void test_append_line(void **state)
{
    fault bad = {.op = "append", .at = 1, .times = 1, .answer = -ENOSPC};
    assert_ok(ech_append_line(in_folder(state, "log"), "one"));
    assert_ok(ech_append_line(in_folder(state, "log"), "two"));
    check_contents(in_folder(state, "log"), "one\ntwo\n");
    assert_fails(ech_append_line(*state, "x"), ECH_E_IO, "cannot append");
    ech_io_set_hook(inject, &bad);
    assert_fails(ech_append_line(in_folder(state, "log"), "x"), ECH_E_IO, "No space left");
    ech_io_set_hook(NULL, NULL);
}

static void test_make_folders(void **state)
{
    assert_ok(ech_make_folders(in_folder(state, "a/b//c/")));
    assert_true(ech_path_is_folder(in_folder(state, "a/b/c")));
    assert_ok(ech_make_folders(in_folder(state, "a/b/c")));
    assert_ok(ech_make_folders("/"));
    assert_fails(ech_make_folders(""), ECH_E_IO, "empty");
    assert_ok(ech_write_whole(in_folder(state, "a/file"), "x", 1));
    assert_fails(ech_make_folders(in_folder(state, "a/file")), ECH_E_IO, "File exists");
    assert_fails(ech_make_folders(in_folder(state, "a/file/d")), ECH_E_IO, "cannot make");
    fault bad = {.op = "mkdir", .at = 2, .times = 1, .answer = -EDQUOT};
    ech_io_set_hook(inject, &bad);
    assert_fails(ech_make_folders(in_folder(state, "p/q/r")), ECH_E_IO, "quota");
    ech_io_set_hook(NULL, NULL);
}

static void test_what_stands_at_a_path(void **state)
{
    assert_ok(ech_write_whole(in_folder(state, "a"), "x", 1));
    assert_int_equal(symlink("nowhere", in_folder(state, "dangling")), 0);
    assert_true(ech_path_exists(in_folder(state, "a")));
    assert_true(ech_path_exists(in_folder(state, "dangling")));
    assert_false(ech_path_exists(in_folder(state, "b")));
    assert_false(ech_path_is_folder(in_folder(state, "a")));
    assert_false(ech_path_is_folder(in_folder(state, "dangling")));
    assert_true(ech_path_is_folder(*state));
}

static void check_join(const char *dir, const char *name, const char *wanted)
{
    char buf[64];
    assert_ok(ech_path_join(dir, name, buf, sizeof buf));
    assert_string_equal(buf, wanted);
}

static void check_folder(const char *path, const char *wanted)
{
    char buf[64];
    assert_ok(ech_path_folder(path, buf, sizeof buf));
    assert_string_equal(buf, wanted);
}

static void test_path_words(void **state)
{
    char buf[8];
    (void)state;
    check_join("a", "b", "a/b");
    check_join("a/", "b", "a/b");
    check_join("", "b", "b");
    check_join("a", "/b", "/b");
    check_join("/", "b", "/b");
    assert_ok(ech_path_join("abc", "def", buf, sizeof buf)); /* just fits */
    assert_fails(ech_path_join("abcd", "def", buf, sizeof buf), ECH_E_USAGE, "path too long");
    check_folder("a/b", "a");
    check_folder("a/b/", "a");
    check_folder("a", ".");
    check_folder("", ".");
    check_folder("/a", "/");
    check_folder("/", "/");
    check_folder("//a//b", "//a");
    check_folder("a//b", "a");
    assert_fails(ech_path_folder("12345678/x", buf, sizeof buf), ECH_E_USAGE, "too long");
}

static void test_list_folder_is_sorted(void **state)
{
    char **names;
    size_t n;
    assert_ok(ech_list_folder(*state, &names, &n));
    assert_int_equal(n, 0);
    ech_names_destroy(&names, n);
    for (int i = 0; i < 40; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%02d", (i * 7) % 40);
        assert_ok(ech_write_whole(in_folder(state, name), "", 0));
    }
    assert_ok(ech_list_folder(*state, &names, &n));
    assert_int_equal(n, 40);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(atoi(names[i] + 1), i);
    ech_names_destroy(&names, n);
    assert_null(names);
    assert_fails(ech_list_folder(in_folder(state, "no"), &names, &n), ECH_E_IO, "cannot list");
    assert_null(names);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_write_and_read_whole),
        IN_FOLDER(test_files_without_a_size_are_read),
        IN_FOLDER(test_a_large_file_is_read),
        IN_FOLDER(test_open_names_path_and_reason),
        IN_FOLDER(test_what_a_new_file_replaces),
        IN_FOLDER(test_read_at_is_exact),
        IN_FOLDER(test_nothing_stands_before_publish),
        IN_FOLDER(test_close_without_publish_leaves_nothing),
        IN_FOLDER(test_two_writers_do_not_meet),
        IN_FOLDER(test_mode_follows_umask),
        IN_FOLDER(test_failures_leave_the_old_file),
        IN_FOLDER(test_a_failed_folder_sync_is_told),
        IN_FOLDER(test_no_publish_after_a_failed_write),
        IN_FOLDER(test_no_publish_after_a_failed_fsync),
        IN_FOLDER(test_short_and_interrupted_transfers),
        IN_FOLDER(test_map),
        IN_FOLDER(test_append_line),
        IN_FOLDER(test_make_folders),
        IN_FOLDER(test_what_stands_at_a_path),
        IN_FOLDER(test_path_words),
        IN_FOLDER(test_list_folder_is_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
