/** @file support/folder.h
 *  Folders of a test's own, under TMPDIR or /tmp, removed with all they hold. */
#ifndef ECH_TESTS_FOLDER_H
#define ECH_TESTS_FOLDER_H

#include <stddef.h>

/* One per test, held in cmocka's state. */

/** cmocka set-up: make an empty folder; its path is *state. */
int folder_setup(void **state);

/** cmocka tear-down: remove the folder and everything in it. */
int folder_teardown(void **state);

/** "folder/name" in one of eight buffers used in turn. */
const char *in_folder(void **state, const char *name);

/** Entries of the folder (hidden ones too), or -1 where it cannot be read. */
int folder_count(const char *path);

/* One per process, made when first asked for and removed when the process ends. */

/** Path of the folder. */
const char *scratch_folder(void);

/** Path of a name in the folder; static, 64 names at most. */
const char *scratch_path(const char *name);

/** Write a file there and return its path. */
const char *scratch_write(const char *name, const void *data, size_t bytes);

#endif
