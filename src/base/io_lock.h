/** @file base/io_lock.h
 *  A file that one process at a time holds: who else asks is told what the holder wrote into it.
 *  Part of the I/O layer (base/io.h): the hook is asked with "lock" before each attempt.  The
 *  kernel lets go when the holder ends, however it ends; what a dead one left is taken over.
 *  Local. */
#ifndef ECH_BASE_IO_LOCK_H
#define ECH_BASE_IO_LOCK_H

#include "base/status.h" /* ech_status */

/** A file held; opaque. */
typedef struct ech_lock ech_lock;

/** Hold the file at `path`, made where it is not there, its folder being there.
 *  @param path    the file; its contents are replaced
 *  @param words   what it says while it is held
 *  @param out     set on success, release with ech_lock_release; NULL: the file system has no locks
 *  @param holder  out: what the file of another holder says; "" where that cannot be read
 *  @param n       room in holder
 *  @return ECH_OK | ECH_BLOCKED (another process holds it) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_lock_take(const char *path, const char *words, ech_lock **out,
                                      char *holder, size_t n);

/** Remove the file and let go; accepts NULL, nulls the pointer. */
void ech_lock_release(ech_lock **lock);

#endif
