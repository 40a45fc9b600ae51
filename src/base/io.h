/** @file base/io.h
 *  The I/O layer: every file operation of Echelon goes through it, so that tests can fail, delay
 *  and count them.  Local; errors name the path and errno's words.  Umask is left to the user. */
#ifndef ECH_BASE_IO_H
#define ECH_BASE_IO_H

#include "base/status.h" /* ech_status */

#include <stdint.h>
#include <stdio.h>

/** An open file; opaque. */
typedef struct ech_file ech_file;

/** Open a regular file for reading.
 *  @return ECH_OK | ECH_E_IO (absent, no permission, a folder, a pipe) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_file_open(const char *path, ech_file **out);

/** Create beside `path` under a temporary name (O_EXCL); nothing stands at `path` until
 *  ech_file_publish, and ech_file_close without it removes the temporary file.
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_file_create(const char *path, ech_file **out);

/** Open the regular file `name` in folder `dir` for reading, never through a symbolic link: for
 *  names that a file (an index, a manifest) gave.
 *  @param dir   a folder, may itself be a link
 *  @param name  a plain file name (ech_path_is_plain)
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (not a plain name, a symbolic link) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_file_open_in(const char *dir, const char *name, ech_file **out);

/** Size in bytes: when opened, or written so far. */
int64_t ech_file_bytes(const ech_file *f);

/** Path as given; borrowed. */
const char *ech_file_path(const ech_file *f);

/** Read exactly `bytes` at `offset` (pread, retried); short files are ECH_E_CORRUPT. */
ECH_MUST_USE ech_status ech_file_read_at(const ech_file *f, void *buf, size_t bytes,
                                         int64_t offset);

/** Append to a file being created; after a failure the file can no longer be published.
 *  @return ECH_OK | ECH_E_IO */
ECH_MUST_USE ech_status ech_file_write(ech_file *f, const void *buf, size_t bytes);

/** Flush (fsync), rename the temporary file to its path, fsync the folder.  The file stays open for
 *  reading.
 *  @return ECH_OK
 *        | ECH_E_IO  what stood at the path is unchanged, unless the folder's fsync failed */
ECH_MUST_USE ech_status ech_file_publish(ech_file *f);

/** Close; accepts NULL, nulls the pointer.  An unpublished new file is removed. */
void ech_file_close(ech_file **f);

/** Map a whole file read-only.
 *  @param f    open for reading
 *  @param out  its bytes, release with ech_unmap; NULL for an empty file
 *  @return ECH_OK | ECH_E_IO */
ECH_MUST_USE ech_status ech_file_map(const ech_file *f, const void **out);

/** Undo ech_file_map. */
void ech_unmap(const void *p, int64_t bytes);

/** Whole file into memory, terminated by a NUL that does not count; also files of /proc, which
 *  tell no size.
 *  @param path       the file
 *  @param max_bytes  refuse larger files with ECH_E_IO
 *  @param out        owned by the caller, free()
 *  @param out_bytes  out: how many
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_read_whole(const char *path, int64_t max_bytes, char **out,
                                       size_t *out_bytes);

/** Write a whole file atomically (create, write, publish).
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM; as it was on failure, but see ech_file_publish */
ECH_MUST_USE ech_status ech_write_whole(const char *path, const void *data, size_t bytes);

/** Append a line to a log-like file (created if absent); not atomic, not synced.
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_append_line(const char *path, const char *line);

/** Make a folder and its parents; already there is fine.
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_make_folders(const char *path);

/** Is there something at path. */
bool ech_path_exists(const char *path);

/** Is there something at path, where not being allowed or able to look is no answer.
 *  @return ECH_OK | ECH_E_IO (neither found nor known to be absent) */
ECH_MUST_USE ech_status ech_path_look(const char *path, bool *exists);

/** Does path name a folder. */
bool ech_path_is_folder(const char *path);

/** "dir/name" into buf, or name alone if it is absolute; ECH_E_USAGE if too long. */
ECH_MUST_USE ech_status ech_path_join(const char *dir, const char *name, char *buf, size_t n);

/** Folder part of path into buf ("." if none); ECH_E_USAGE if too long. */
ECH_MUST_USE ech_status ech_path_folder(const char *path, char *buf, size_t n);

/** Sorted names in a folder (without . and ..).
 *  @param path   the folder
 *  @param names  out: [n] owned by the caller, release with ech_names_destroy
 *  @param n      out: how many
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM; no names on failure */
ECH_MUST_USE ech_status ech_list_folder(const char *path, char ***names, size_t *n);

/** Release a list of names; accepts NULL, nulls the pointer. */
void ech_names_destroy(char ***names, size_t n);

/** Is name a plain file name: 1..255 bytes, no slash, no control character, not "." or "..". */
bool ech_path_is_plain(const char *name);

/** Test hook: called before each system call with its name ("open", "create", "read", "write",
 *  "append", "fsync", "rename", "exchange", "fsync-folder", "map", "mkdir", "list", "stat",
 *  "unlink", "rmdir", "lock"), path and bytes.  A negative return is an errno to fail with
 *  (-ENOSPC; -EINTR is retried as the kernel's would be), 0 goes on, n > 0 lets a read or write
 *  move at most n bytes.  NULL (default): off.  Not thread-safe: set it before threads start. */
typedef int (*ech_io_hook)(const char *op, const char *path, int64_t bytes, void *user);

/** Install a hook, or none (NULL); `user` is handed to it. */
void ech_io_set_hook(ech_io_hook hook, void *user);

#endif
