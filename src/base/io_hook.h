/** @file base/io_hook.h
 *  Where tests step in between the I/O layer and the kernel.  Inside base only.  Local. */
#ifndef ECH_BASE_IO_HOOK_H
#define ECH_BASE_IO_HOOK_H

#include <stddef.h>

/** Ask the hook about a system call that moves up to *bytes.
 *  @param op     as in ech_io_set_hook
 *  @param path   of the file
 *  @param bytes  in/out: lowered when the hook wants a short transfer; may be NULL
 *  @return 0 to go on; -1 with errno set to fail */
int ech_io_ask(const char *op, const char *path, size_t *bytes);

#endif
