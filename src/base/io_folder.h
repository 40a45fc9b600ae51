/** @file base/io_folder.h
 *  Folders that appear whole: filled under a temporary name, then put in place in one step.  Part
 *  of the I/O layer (base/io.h): the same hook stands before each system call.  Local. */
#ifndef ECH_BASE_IO_FOLDER_H
#define ECH_BASE_IO_FOLDER_H

#include "base/status.h" /* ech_status */

/** Make a new, empty folder beside `path` under a temporary name (".NAME.tmp-XXXXXX"), to be
 *  filled and put in place by ech_folder_publish.
 *  @param path  where it will stand
 *  @param tmp   out: its path
 *  @param n     room in tmp
 *  @return ECH_OK | ECH_E_IO | ECH_E_USAGE (path too long) */
ECH_MUST_USE ech_status ech_folder_create(const char *path, char *tmp, size_t n);

/** Put a folder of ech_folder_create at its path: fsync it, rename it, fsync the parent.  A folder
 *  that stands there is exchanged in the same atomic step and then removed.
 *  @param tmp   filled, its files published
 *  @param path  where it will stand
 *  @return ECH_OK
 *        | ECH_E_IO  path is as it was and tmp still there; after a failure of the very last steps
 *                    (flushing the parent, removing the old folder) path is the new one */
ECH_MUST_USE ech_status ech_folder_publish(const char *tmp, const char *path);

/** Remove a folder and the files in it; an absent one is fine, sub-folders are ECH_E_IO. */
ECH_MUST_USE ech_status ech_folder_remove(const char *path);

#endif
