/** @file base/io_shared.h
 *  A file of fixed size that processes of one host have in common: mapped by all of them, what one
 *  stores the others see.  Part of the I/O layer (base/io.h): the hook is asked as for a file
 *  written whole, and with "open" and "map".  Its blocks are on the disk from the start, so that no later
 *  store meets a full one.  Local. */
#ifndef ECH_BASE_IO_SHARED_H
#define ECH_BASE_IO_SHARED_H

#include "base/status.h" /* ech_status */

#include <stddef.h>

/** A mapping; opaque. */
typedef struct ech_shared ech_shared;

/** Put a file at a path, in place of one that may stand there (who has that one mapped keeps it).
 *  @param path   the file
 *  @param first  [bytes] what it holds at first
 *  @param bytes  its size for good
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_shared_create(const char *path, const void *first, size_t bytes);

/** Map a file that ech_shared_create has put there, for reading and writing.
 *  @param path   the file; no symbolic link
 *  @param bytes  its size
 *  @param out    owned by the caller, ech_shared_close
 *  @return ECH_OK | ECH_E_CORRUPT (another size) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_shared_open(const char *path, size_t bytes, ech_shared **out);

/** Its bytes, at the start of a page; borrowed. */
void *ech_shared_data(const ech_shared *s);

/** Unmap; the file stays.  Accepts NULL, nulls the pointer. */
void ech_shared_close(ech_shared **s);

#endif
